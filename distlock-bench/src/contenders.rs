//! The locks that are compared: each takes and gives back one key, as its documentation says to.
//!
//! All speak to the server through the same client crate. The peers run with their own default settings; the only thing
//! set is what makes them wait for as long as it takes, and a ttl of ten seconds for everybody.

use std::future::Future;
use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use redis::aio::MultiplexedConnection;
use redis::{Client, IntoConnectionInfo as _, ProtocolVersion};

use crate::Result;

/// The ttl of every lock.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// One way to lock.
pub(crate) trait Contender: Clone + Send + Sync + 'static {
    /// As the table calls it.
    const NAME: &'static str;

    /// Makes the connection.
    fn connect(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Takes the key, waiting for it if somebody else holds it, and gives it back.
    fn cycle(&self, key: u64) -> impl Future<Output = Result<()>> + Send;
}

// ----- the floor -----

/// `SET NX PX` and a compare-and-delete by `EVALSHA`, with nothing around them: no deadline, no renewal, no wait, no
/// fencing token, and nothing that takes an unanswered command back.
/// On a connection with the client crate's own settings.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    sha: String,
}

/// The same on a connection as distlock makes its own: RESP3, and without Nagle's delay, which on a loopback interface
/// costs many tasks throughput and on a network saves them stalls.
#[derive(Clone)]
pub(crate) struct BareNoDelay(Bare);

/// The same with the smallest script that takes a key, in place of `SET`: what it costs at least to do more than `SET NX` in
/// one step, such as to give a fencing token or to look at a line.
#[derive(Clone)]
pub(crate) struct BareScript {
    bare: Bare,
    set: String,
}

const SET: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

impl Contender for Bare {
    const NAME: &'static str = "bare SET NX PX + EVALSHA";

    async fn connect(url: &str) -> Result<Self> {
        Self::on(Client::open(url)?.get_multiplexed_async_connection().await?).await
    }

    async fn cycle(&self, key: u64) -> Result<()> {
        let mut connection = self.connection.clone();
        let key = format!("bare:{key}");
        let token = format!("{:032x}", fastrand::u128(..));
        let ttl = TTL.as_millis() as u64;
        let set = redis::cmd("SET").arg(&key).arg(&token).arg("NX").arg("PX").arg(ttl).take();
        granted(set.query_async(&mut connection).await?)?;
        self.give_back(&mut connection, &key, &token).await
    }
}

fn granted(answer: Option<String>) -> Result<()> {
    answer.map(drop).ok_or_else(|| "the bare lock met somebody else".into())
}

impl Bare {
    async fn give_back(&self, connection: &mut MultiplexedConnection, key: &str, token: &str) -> Result<()> {
        let delete = redis::cmd("EVALSHA").arg(&self.sha).arg(1).arg(key).arg(token).take();
        let deleted: u64 = delete.query_async(connection).await?;
        if deleted == 1 { Ok(()) } else { Err("the bare lock was lost".into()) }
    }

    async fn on(mut connection: MultiplexedConnection) -> Result<Self> {
        let sha = redis::cmd("SCRIPT").arg("LOAD").arg(COMPARE_AND_DELETE).query_async(&mut connection).await?;
        Ok(Self { connection, sha })
    }
}

impl Contender for BareNoDelay {
    const NAME: &'static str = "bare, RESP3 and TCP_NODELAY";

    async fn connect(url: &str) -> Result<Self> {
        let info = url.into_connection_info()?;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))?;
        Ok(Self(Bare::on(client.get_multiplexed_async_connection().await?).await?))
    }

    async fn cycle(&self, key: u64) -> Result<()> {
        self.0.cycle(key).await
    }
}

impl Contender for BareScript {
    const NAME: &'static str = "bare, SET by EVALSHA as well";

    async fn connect(url: &str) -> Result<Self> {
        let bare = Bare::connect(url).await?;
        let set = redis::cmd("SCRIPT").arg("LOAD").arg(SET).query_async(&mut bare.connection.clone()).await?;
        Ok(Self { bare, set })
    }

    async fn cycle(&self, key: u64) -> Result<()> {
        let mut connection = self.bare.connection.clone();
        let key = format!("bare:{key}");
        let token = format!("{:032x}", fastrand::u128(..));
        let set = redis::cmd("EVALSHA").arg(&self.set).arg(1).arg(&key).arg(&token).arg(TTL.as_millis() as u64).take();
        granted(set.query_async(&mut connection).await?)?;
        self.bare.give_back(&mut connection, &key, &token).await
    }
}

// ----- this library -----

/// The annotated function.
#[derive(Clone)]
pub(crate) struct Distlock(pub(crate) LockManager);

#[distributed_lock(key = "bench:{key}", ttl = "10s", wait = forever, manager = locks)]
async fn locked(locks: &LockManager, key: u64) -> Result<u64, LockError> {
    Ok(key)
}

impl Contender for Distlock {
    const NAME: &'static str = "distlock";

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(LockManager::connect(url).await?))
    }

    async fn cycle(&self, key: u64) -> Result<()> {
        locked(&self.0, key).await?;
        Ok(())
    }
}

// ----- the peers -----

#[derive(Clone)]
pub(crate) struct Rslock(rslock::LockManager);

impl Contender for Rslock {
    const NAME: &'static str = "rslock 0.10";

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(rslock::LockManager::new(vec![url])))
    }

    async fn cycle(&self, key: u64) -> Result<()> {
        let guard = self.0.acquire(format!("rslock:{key}").as_bytes(), TTL).await?;
        guard.release().await;
        Ok(())
    }
}

#[derive(Clone)]
pub(crate) struct Rlock(rlock::async_lock::RLock);

impl Contender for Rlock {
    const NAME: &'static str = "rlock 0.2";

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(rlock::async_lock::RLock::new(url).await?))
    }

    async fn cycle(&self, key: u64) -> Result<()> {
        let mut guard = self.0.acquire_mutex(format!("rlock:{key}")).await?;
        guard.release().await?;
        Ok(())
    }
}

#[derive(Clone)]
pub(crate) struct AsyncRedisLock(async_redis_lock::Locker);

impl Contender for AsyncRedisLock {
    const NAME: &'static str = "async-redis-lock 0.4";

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(async_redis_lock::Locker::from_redis_url(url).await?))
    }

    async fn cycle(&self, key: u64) -> Result<()> {
        let options = async_redis_lock::Options::new().ttl(TTL).timeout(None);
        let lock = self.0.acquire_with_options(&options, format!("async-redis-lock:{key}")).await?;
        lock.release().await?;
        Ok(())
    }
}
