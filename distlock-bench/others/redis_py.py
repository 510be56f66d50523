# The lock of redis-py: python3 -c SCRIPT PORT SECONDS
# Says the median of an uncontended lock + unlock in microseconds, and the calls per second of 64 tasks with one key.
import asyncio, statistics, sys, time
import redis.asyncio


async def main(port, seconds):
    client = redis.asyncio.Redis(port=port, max_connections=200)
    micros = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        async with client.lock("redis-py:0", timeout=10):
            pass
        micros.append((time.perf_counter() - begun) * 1e6)
    count = 0
    end = time.monotonic() + seconds

    async def task():
        nonlocal count
        while time.monotonic() < end:
            lock = client.lock("redis-py:hot", timeout=10)
            if await lock.acquire(blocking_timeout=max(0.01, end - time.monotonic())):
                await lock.release()
                count += 1

    await asyncio.gather(*[task() for _ in range(64)])
    await client.aclose()
    print(statistics.median(micros), count / seconds)


asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
