//! The store on one Redis or Valkey server.
//!
//! Two connections: the *front* one lives on the user's runtime and carries acquisitions and awaited releases; the
//! *back* one lives on the manager's own thread and carries renewals, and releases that the front one did not answer.
//! Each operation is one script, so one round trip. Those who wait are told of their turn on the front connection.

mod acks;
mod answers;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
mod connecting;
mod connection;
mod crowd;
mod doctor;
#[cfg(feature = "tls-rustls")]
pub(crate) mod encryption;
mod listening;
mod permissions;
mod replies;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;
mod stream;
pub(crate) mod target;
mod url;
pub(crate) mod vote;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use redis::{Cmd, RedisWrite};

use self::acks::Acks;
use self::connection::Connection;
use self::crowd::Crowd;
use self::listening::Listening;
use self::replies::{acquired, fencing_tokens, garbled, granted, released, renewed};
use self::scripts::{ACQUIRE, Form, RELEASE, RENEW, TAKE};
use self::target::{Access, Server, Target};
use super::ears::{Ear, Ears, Mark};
use super::facts::{Look, NodeFacts};
use super::{
    Acquire, Acquired, BoxFuture, Description, FencingTokens, Lane, LockStore, Release, Released, Renewal, Renewed,
    StoreError, Token,
};
use crate::key::{LockName, Names};
#[cfg(feature = "cluster")]
use crate::slot::slot_of;

/// Bounds of the pause between two looks at a key that another process holds, where the server tells nobody of anything.
const POLL: std::ops::Range<u64> = 20..250;

#[derive(Debug)]
pub(crate) struct RedisStore {
    front: Arc<Connection>,
    back: Connection,
    /// The one on which waiters are told of their turn.
    listener: Arc<Connection>,
    ears: Arc<Ears>,
    takes: Arc<Crowd<Take, u64>>,
    releases: Arc<Crowd<Release, Released>>,
    first_reading: doctor::FirstReading,
    /// A lock counts once replicas have it.
    acks: Option<Acks>,
    /// What a command may take that goes for many; each of them has a limit of its own beside it.
    response_timeout: Duration,
}

/// Whether a store can be told of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hears {
    Already,
    FromNowOn,
    Nothing,
}

/// What a key is taken with that is taken together with others.
#[derive(Debug)]
struct Take {
    names: Arc<Names>,
    token: Token,
    expiry: Duration,
    holder: Description,
}

impl RedisStore {
    /// Where a URL leads.
    pub(crate) fn target(url: &str, access: Access, connect_timeout: Duration) -> Result<Target, StoreError> {
        #[cfg(feature = "sentinel")]
        if url.starts_with(sentinel::SCHEME) {
            return Ok(Target::Sentinel(Arc::new(sentinel::Sentinels::read(url, access, connect_timeout)?)));
        }
        #[cfg(not(feature = "sentinel"))]
        let _ = connect_timeout;
        Ok(Target::Server(Box::new(Server { info: url::read(url)?, access })))
    }

    /// A store on one node; connects to nothing.
    pub(crate) fn on(target: Target, connect_timeout: Duration, response_timeout: Duration) -> Self {
        Self::heard_by(Arc::default(), target, connect_timeout, response_timeout)
    }

    /// As [`on`](Self::on); what the node tells is heard by ears that several stores share.
    pub(crate) fn heard_by(
        ears: Arc<Ears>,
        target: Target,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        let front = Arc::new(Connection::new(target, connect_timeout, response_timeout, Some(ears.clone())));
        Self {
            listener: front.clone(),
            back: front.beside(None),
            front,
            ears,
            takes: Arc::default(),
            releases: Arc::default(),
            first_reading: doctor::FirstReading::default(),
            acks: None,
            response_timeout,
        }
    }

    /// Whether the node tells of keys that come free.
    pub(crate) fn hears(&self) -> bool {
        self.listener.listening() == Listening::Yes
    }

    /// Hears what the node tells from now on, if it may.
    pub(crate) async fn hear(&self, limit: Duration) -> Hears {
        match self.listener.listening() {
            Listening::Yes => Hears::Already,
            Listening::NotYet if self.listener.listen(limit).await == Listening::Yes => Hears::FromNowOn,
            Listening::NotYet | Listening::Refused => Hears::Nothing,
        }
    }

    /// A store on one node of a cluster, connecting to nothing. Its waiters listen beside its commands.
    #[cfg(feature = "cluster")]
    fn member(
        target: Target,
        connect_timeout: Duration,
        response_timeout: Duration,
        ears: Arc<Ears>,
        replica_acks: Option<(usize, Duration)>,
    ) -> Self {
        let front = Arc::new(Connection::new(target, connect_timeout, response_timeout, None));
        let acks =
            |(replicas, limit)| Acks::new(replicas, limit, response_timeout, Some(slot_of), || front.beside(None));
        Self {
            acks: replica_acks.map(acks),
            back: front.beside(None),
            listener: Arc::new(front.beside(Some(ears.clone()))),
            front,
            ears,
            takes: Arc::default(),
            releases: Arc::default(),
            first_reading: doctor::FirstReading::default(),
            response_timeout,
        }
    }

    /// What the doctor is told of this server.
    pub(crate) async fn look_at(&self, look: &Look, limit: Duration) -> NodeFacts {
        doctor::look_at(&self.front, &self.first_reading, look, limit).await
    }

    /// Where it is, without credentials.
    pub(crate) fn address(&self) -> String {
        self.front.address()
    }

    /// The same store, where so many replicas must have a lock or a renewal within `limit`, or it does not count.
    pub(crate) fn acknowledged(mut self, replicas: usize, limit: Duration) -> Self {
        self.acks = Some(Acks::new(replicas, limit, self.response_timeout, None, || self.front.beside(None)));
        self
    }

    /// Makes the front connection.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        self.front.ready(limit).await
    }

    fn connection(&self, lane: Lane) -> &Connection {
        match lane {
            Lane::Awaited | Lane::Detached => &self.front,
            Lane::Back => &self.back,
        }
    }

    async fn acquire(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
        let begun = Instant::now();
        let acquired = self.acquire_here(request, self.own_share(limit)).await?;
        self.acknowledge(request, acquired, limit.saturating_sub(begun.elapsed())).await
    }

    /// What of a limit the server itself has; the rest is for its replicas.
    fn own_share(&self, limit: Duration) -> Duration {
        if self.acks.is_some() { limit.min(self.response_timeout) } else { limit }
    }

    /// A grant counts once the replicas have it, where they are to.
    async fn acknowledge(
        &self,
        request: &Acquire,
        acquired: Acquired,
        limit: Duration,
    ) -> Result<Acquired, StoreError> {
        let (Some(acks), Acquired::Granted { .. }) = (&self.acks, &acquired) else { return Ok(acquired) };
        let (token, expiry) = (request.token, request.expiry);
        let written = request.names.iter().map(|name| Renewal { wire: name.wire.clone(), token, expiry }).collect();
        // A grant is worth nothing beyond its life.
        match acks.confirm(written, Lane::Awaited, limit.min(expiry)).await {
            Ok(()) => Ok(acquired),
            Err(error) if error.kind.is_outage() => Ok(Acquired::Unacknowledged(error.text)),
            // The key was taken all the same.
            Err(error) => Err(StoreError { unanswered: true, ..error }),
        }
    }

    /// Takes the keys on this server, whatever its replicas know.
    async fn acquire_here(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
        let under_way = self.takes.join();
        let is_new =
            request.names.len() == 1 && request.reserve == 1 && request.wait.is_none_or(|wait| wait.ticket.is_none());
        if !is_new || !under_way.is_crowded() {
            return self.acquire_alone(request, limit).await;
        }
        let begun = Instant::now();
        let Acquire { names, token, expiry, holder, .. } = request;
        let take = Take { names: names.clone(), token: *token, expiry: *expiry, holder: holder.clone() };
        let (front, together) = (self.front.clone(), self.response_timeout);
        match self.takes.ask(take, limit, move |takes| take_together(front, takes, together)).await {
            Ok(0) => {}
            Ok(first) => return Ok(granted(FencingTokens { first, more: Box::default() }, false)),
            // One of them may be refused where the others are not.
            Err(error) if !error.kind.is_outage() => {}
            Err(error) => return Err(error),
        }
        self.acquire_alone(request, limit.saturating_sub(begun.elapsed())).await
    }

    async fn acquire_alone(&self, request: &Acquire, limit: Duration) -> Result<Acquired, StoreError> {
        let token = request.token.as_str();
        // Who cannot be told of its turn yet has its place in line all the same; `wake_up` makes it hear.
        let wait = request.wait.map(|wait| (wait, self.listener.channel()));
        let value = ACQUIRE
            .run(&self.front, Form::Known, limit, request.names.len() * ACQUIRE_KEYS, |command: &mut Cmd| {
                for name in request.names.iter() {
                    line(command, name);
                    command.write_arg_fmt(name.gone(token));
                    command.arg(&*name.fence);
                }
                command.arg(token).arg(millis(request.expiry));
                command.write_arg_fmt(&request.holder);
                command.arg(request.reserve);
                if let Some((wait, channel)) = &wait {
                    command.arg(millis(wait.life)).arg(wait.ticket.unwrap_or_default()).arg(&**channel);
                }
            })
            .await?;
        acquired(value, request.names.len()).ok_or_else(|| garbled("acquire"))
    }

    async fn renew(&self, batch: &[Renewal], lane: Lane, limit: Duration) -> Result<Vec<Renewed>, StoreError> {
        let begun = Instant::now();
        let answers = self.renew_here(batch, Form::Known, lane, self.own_share(limit)).await?;
        self.acknowledge_renewals(batch, answers, lane, limit.saturating_sub(begun.elapsed())).await
    }

    /// Renewals count once the replicas have them, where they are to.
    async fn acknowledge_renewals(
        &self,
        batch: &[Renewal],
        mut answers: Vec<Renewed>,
        lane: Lane,
        limit: Duration,
    ) -> Result<Vec<Renewed>, StoreError> {
        let Some(acks) = &self.acks else { return Ok(answers) };
        let renewed = |(renewal, answer): (&Renewal, &Renewed)| (*answer == Renewed::Yes).then(|| renewal.clone());
        let written: Box<[_]> = batch.iter().zip(&answers).filter_map(renewed).collect();
        let only_renewed = written.len() == answers.len();
        if written.is_empty() {
            return Ok(answers);
        }
        match acks.confirm(written, lane, limit).await {
            Ok(()) => {}
            Err(error) if only_renewed => return Err(error),
            // What is lost is told all the same.
            Err(_) => answers.iter_mut().filter(|it| **it == Renewed::Yes).for_each(|it| *it = Renewed::Unknown),
        }
        Ok(answers)
    }

    /// Prolongs the keys on this server, whatever its replicas know.
    async fn renew_here(
        &self,
        batch: &[Renewal],
        form: Form,
        lane: Lane,
        limit: Duration,
    ) -> Result<Vec<Renewed>, StoreError> {
        let value = RENEW.run(self.connection(lane), form, limit, batch.len(), fill_renewal(batch)).await?;
        renewed(value).filter(|answers| answers.len() == batch.len()).ok_or_else(|| garbled("renew"))
    }

    async fn release(&self, request: &Release, lane: Lane, limit: Duration) -> Result<Released, StoreError> {
        let under_way = self.releases.join();
        if lane == Lane::Awaited && request.names.len() == 1 && under_way.is_crowded() {
            let (front, together) = (self.front.clone(), self.response_timeout);
            let send = move |releases: Vec<Release>| async move {
                let answers = release_on(&front, Form::Known, &releases, together).await?;
                (answers.len() == releases.len()).then_some(answers).ok_or_else(|| garbled("release"))
            };
            match self.releases.ask(request.clone(), limit, send).await {
                // One of them may be refused where the others are not.
                Err(error) if !error.kind.is_outage() => {}
                answer => return answer,
            }
        }
        self.release_alone(request, lane, limit).await
    }

    async fn release_alone(&self, request: &Release, lane: Lane, limit: Duration) -> Result<Released, StoreError> {
        let form = if lane == Lane::Awaited { Form::Known } else { Form::Whole };
        let request = std::slice::from_ref(request);
        if lane == Lane::Detached {
            self.front.send_on_retired(&RELEASE.whole(release_keys(request), fill_release(request)));
        }
        let answers = release_on(self.connection(lane), form, request, limit).await?;
        // Of several keys, the worst counts.
        let worst = answers.into_iter().max_by_key(|answer| match answer {
            Released::Deleted => 0,
            Released::Absent => 1,
            Released::Stolen => 2,
        });
        worst.ok_or_else(|| garbled("release"))
    }
}

/// The pause before the next look at a key where nobody tells of anything.
async fn poll(at_most: Duration) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(POLL)).min(at_most)).await;
}

/// Takes keys of one namespace each for its own token; 0 for one that is not simply free.
async fn take_together(front: Arc<Connection>, takes: Vec<Take>, limit: Duration) -> Result<Vec<u64>, StoreError> {
    let Some(Take { names, expiry, holder, .. }) = takes.first() else { return Ok(Vec::new()) };
    let fence = &names.first().fence;
    // One of another namespace has another counter; it is asked for by itself.
    let belongs = |take: &&Take| take.names.first().fence == *fence;
    let count = takes.iter().filter(belongs).count();
    let are_alike = takes.iter().all(|take| take.expiry == *expiry && take.holder == *holder);
    let value = TAKE
        .run(&front, Form::Known, limit, count * TAKE_KEYS + 1, |command: &mut Cmd| {
            for take in takes.iter().filter(belongs) {
                let name = take.names.first();
                command.arg(&*name.wire);
                command.write_arg_fmt(name.queue());
                command.write_arg_fmt(name.gone(take.token.as_str()));
            }
            command.arg(&**fence);
            for take in takes.iter().filter(belongs) {
                command.arg(take.token.as_str());
            }
            for take in takes.iter().filter(belongs).take(if are_alike { 1 } else { count }) {
                command.arg(millis(take.expiry));
                command.write_arg_fmt(&take.holder);
            }
        })
        .await?;
    let mut tokens = fencing_tokens(value, count).ok_or_else(|| garbled("take"))?.into_iter();
    Ok(takes.iter().map(|take| if belongs(&take) { tokens.next().unwrap_or(0) } else { 0 }).collect())
}

async fn release_on(
    connection: &Connection,
    form: Form,
    releases: &[Release],
    limit: Duration,
) -> Result<Vec<Released>, StoreError> {
    let keys = release_keys(releases);
    let value = RELEASE.run(connection, form, limit, keys, fill_release(releases)).await?;
    let count = releases.iter().map(|release| release.names.len()).sum::<usize>();
    released(value, count).ok_or_else(|| garbled("release"))
}

fn fill_renewal(batch: &[Renewal]) -> impl Fn(&mut Cmd) {
    move |command| {
        for renewal in batch {
            command.arg(&*renewal.wire);
        }
        for renewal in batch {
            command.arg(renewal.token.as_str()).arg(millis(renewal.expiry));
        }
    }
}

/// Whether the keys are just deleted and the tokens forgotten, which needs less to be said.
fn is_plain(releases: &[Release]) -> bool {
    releases.iter().all(|release| release.keep.is_none() && release.bury.is_none())
}

fn release_keys(releases: &[Release]) -> usize {
    let keys_of_one = if is_plain(releases) { PLAIN_RELEASE_KEYS } else { RELEASE_KEYS };
    releases.iter().map(|release| release.names.len() * keys_of_one).sum()
}

fn fill_release(releases: &[Release]) -> impl Fn(&mut Cmd) {
    let is_plain = is_plain(releases);
    move |command| {
        for release in releases {
            for name in release.names.iter() {
                line(command, name);
                if !is_plain {
                    command.write_arg_fmt(name.gone(release.token.as_str()));
                }
            }
        }
        for release in releases {
            for _ in release.names.iter() {
                command.arg(release.token.as_str());
                if !is_plain {
                    command.arg(release.keep.map_or(0, millis)).arg(release.bury.map_or(0, millis));
                }
            }
        }
    }
}

impl LockStore for RedisStore {
    fn acquire<'a>(&'a self, request: &'a Acquire, limit: Duration) -> BoxFuture<'a, Result<Acquired, StoreError>> {
        Box::pin(self.acquire(request, limit))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Vec<Renewed>, StoreError>> {
        Box::pin(self.renew(batch, lane, limit))
    }

    fn release<'a>(
        &'a self,
        request: &'a Release,
        lane: Lane,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Released, StoreError>> {
        Box::pin(self.release(request, lane, limit))
    }

    fn facts<'a>(&'a self, look: &'a Look, limit: Duration) -> BoxFuture<'a, Vec<NodeFacts>> {
        Box::pin(async move { vec![self.look_at(look, limit).await] })
    }

    fn hands_on(&self) -> bool {
        true
    }

    fn mark(&self) -> Mark {
        self.ears.mark()
    }

    fn listen(&self, names: &Arc<Names>, since: Mark) -> Ear {
        self.ears.listen(names, since)
    }

    fn wake_up<'a>(&'a self, ear: &'a Ear, at_most: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let begun = Instant::now();
            match self.hear(at_most.min(self.response_timeout)).await {
                Hears::Already => {
                    let _ = tokio::time::timeout(at_most, ear.told()).await;
                }
                // It asks again, and says so.
                Hears::FromNowOn => {}
                Hears::Nothing => poll(at_most.saturating_sub(begun.elapsed())).await,
            }
        })
    }
}

/// How many KEYS the acquire script takes for each key of a lock.
const ACQUIRE_KEYS: usize = 5;

/// How many KEYS the take script takes for each key of a lock, beside the counter.
const TAKE_KEYS: usize = 3;

/// How many KEYS the release script takes for each key of a lock.
const RELEASE_KEYS: usize = 4;

/// The same where nothing is kept or buried.
const PLAIN_RELEASE_KEYS: usize = 3;

/// A lock key and the keys of its line, as every script that knows the line wants them.
fn line(command: &mut Cmd, name: &LockName) {
    command.arg(&*name.wire);
    command.write_arg_fmt(name.queue());
    command.write_arg_fmt(name.waiters());
}

/// Whole milliseconds, rounded up, never zero: a zero expiry is refused or deletes.
fn millis(duration: Duration) -> u64 {
    let rounded = duration.as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(rounded).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_never_rounded_to_nothing() {
        assert_eq!(millis(Duration::from_millis(500)), 500);
        assert_eq!(millis(Duration::from_micros(500)), 1);
        assert_eq!(millis(Duration::from_micros(10_001)), 11);
        assert_eq!(millis(Duration::ZERO), 1);
    }
}
