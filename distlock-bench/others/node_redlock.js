// node-redlock on one server: node -e SCRIPT PORT SECONDS
// Says the median of an uncontended lock + unlock in microseconds, and the calls per second of 64 tasks with one key.
const redlock = require('redlock');
const Redlock = redlock.default ?? redlock;
const ioredis = require('ioredis');
const Redis = ioredis.default ?? ioredis;

async function main(port, seconds) {
  const client = new Redis(port);
  const locks = new Redlock([client], { retryCount: 1000000 });
  locks.on('error', () => {});
  // Version 5 says `release` where version 4 says `unlock`.
  const give = (lock) => (lock.release ?? lock.unlock).call(lock);
  const micros = [];
  let end = Date.now() + seconds * 1000;
  while (Date.now() < end) {
    const begun = process.hrtime.bigint();
    const lock = await locks.acquire(['node-redlock:0'], 10000);
    await give(lock);
    micros.push(Number(process.hrtime.bigint() - begun) / 1000);
  }
  let count = 0;
  end = Date.now() + seconds * 1000;
  const task = async () => {
    while (Date.now() < end) {
      const lock = await locks.acquire(['node-redlock:hot'], 10000);
      await give(lock);
      if (Date.now() < end) count += 1;
    }
  };
  await Promise.all(Array.from({ length: 64 }, task));
  client.disconnect();
  micros.sort((a, b) => a - b);
  console.log(micros[Math.floor(micros.length / 2)], count / seconds);
}

main(Number(process.argv[1]), Number(process.argv[2]));
