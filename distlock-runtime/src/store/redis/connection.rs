//! One multiplexed connection to one server, made again when it breaks.
//!
//! The client crate's own reconnection takes seconds before it gives up and keeps a frozen connection for ever, so this
//! file does it: a connection is made on demand by one task at a time, shared by all callers, replaced after an error or
//! when it has been silent for too long, and a server that refuses connections is asked at most every
//! [`CONNECT_PAUSE`]. Callers never wait longer than their own limit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::time::{Instant, timeout};

use super::answers::{Refusal, classify, closes_connection};
use super::connecting::{Attempt, Ended, Progress};
use super::listening::{self, Listening};
use super::target::{Target, Watch};
use crate::error::brief;
use crate::events;
use crate::store::ears::Ears;
use crate::store::{StoreError, StoreErrorKind};

/// The least time between two connection attempts after a failed one, by any of the connections to one place.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that owes answers counts as frozen once this many waits for them were in vain and the first of them
/// began half a response time-out ago: a short wait says nothing about a long line, and a lease cannot wait for ever.
const FROZEN_AFTER: u32 = 2;

/// How long a frozen connection is kept for what must stand behind its earlier commands.
const RETIRED: Duration = Duration::from_secs(60);

/// How much longer than the time-out of an attempt its outcome is waited for; then its runtime is taken for dead.
const ATTEMPT_MARGIN: Duration = Duration::from_millis(100);

/// A connection slot. Its driver lives on the runtime of whoever made the connection.
#[derive(Debug)]
pub(crate) struct Connection {
    target: Target,
    connect_timeout: Duration,
    response_timeout: Duration,
    /// Who is told of what the server sends unasked, and on which channel.
    told: Option<Told>,
    refusal: Arc<Refused>,
    slot: Mutex<Slot>,
}

/// When an attempt to connect to a place failed last, or one has begun since, and why it failed. Nothing while they
/// succeed.
pub(super) type Refused = Mutex<Option<(Instant, StoreError)>>;

#[derive(Clone, Debug)]
struct Told {
    ears: Arc<Ears>,
    channel: Arc<str>,
}

#[derive(Debug)]
struct Slot {
    state: State,
    /// The last connection that was given up as frozen. The server may still execute what it has buffered from it.
    retired: Option<(Instant, Live)>,
}

#[derive(Debug)]
enum State {
    Idle,
    Connecting { since: Instant, progress: Arc<Progress> },
    Connected { live: Live, silence: Option<Silence> },
}

/// Waits in vain since the last answer.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Instant,
    waits: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Live {
    connection: MultiplexedConnection,
    /// Also tells connections of one slot apart, so that a late error does not close its successor.
    listening: Arc<listening::State>,
    _watch: Watch,
}

impl Live {
    pub(super) fn new(connection: MultiplexedConnection, listening: Arc<listening::State>, watch: Watch) -> Self {
        Self { connection, listening, _watch: watch }
    }
}

impl Connection {
    /// With `ears`, the connection can be told of the turn of those who wait.
    pub(crate) fn new(
        target: Target,
        connect_timeout: Duration,
        response_timeout: Duration,
        ears: Option<Arc<Ears>>,
    ) -> Self {
        let slot = Slot { state: State::Idle, retired: None };
        let told = ears.map(|ears| Told { ears, channel: listening::channel() });
        let refusal = Arc::default();
        Self { target, connect_timeout, response_timeout, told, refusal, slot: Mutex::new(slot) }
    }

    /// Another connection to the same place.
    pub(super) fn beside(&self, ears: Option<Arc<Ears>>) -> Self {
        let new = Self::new(self.target.clone(), self.connect_timeout, self.response_timeout, ears);
        Self { refusal: self.refusal.clone(), ..new }
    }

    /// Whether the connection that stands now can be told of anything.
    pub(super) fn listening(&self) -> Listening {
        self.current().map_or(Listening::NotYet, |live| live.listening.get())
    }

    /// What an entry in a line names as its channel; `-` as long as nothing can be told.
    pub(super) fn channel(&self) -> Arc<str> {
        self.current().and_then(|live| live.listening.channel()).unwrap_or_else(|| "-".into())
    }

    /// Whether the last sign that it listens is younger than this.
    #[cfg(feature = "cluster")]
    pub(super) fn is_trusted(&self, age: Duration) -> bool {
        self.current().and_then(|live| live.listening.since()).is_some_and(|since| since.elapsed() < age)
    }

    /// Listens to the channel, once per connection.
    pub(super) async fn listen(&self, limit: Duration) -> Listening {
        let Some(told) = &self.told else { return Listening::Refused };
        let subscribed = timeout(limit, async {
            let mut live = match self.current() {
                Some(live) => live,
                None => self.connect(limit).await.ok()?,
            };
            let answer = live.connection.subscribe(&*told.channel).await;
            Some((live, answer))
        });
        let Ok(Some((live, answer))) = subscribed.await else { return Listening::NotYet };
        match answer {
            Ok(()) => live.listening.begin(told.channel.clone()),
            Err(error) if closes_connection(&error) => self.note_answer(&live, [&error]),
            Err(error) => {
                events::wake_ups_refused(&classify(&error).text);
                live.listening.refuse();
            }
        }
        live.listening.get()
    }

    /// Listens to a channel in a slot that this node serves, and so looks whether the connection still works. A channel
    /// that is listened to already stays.
    ///
    /// Only for a connection that sends nothing else: the server may end such a subscription unasked, which the client
    /// crate takes for the answer to the command that is under way.
    #[cfg(feature = "cluster")]
    pub(super) async fn listen_in(&self, slot: u16, limit: Duration) -> Listening {
        let channel = self.current().and_then(|live| live.listening.channel());
        let channel = channel.unwrap_or_else(|| listening::channel_in(slot));
        match self.send(redis::cmd("SSUBSCRIBE").arg(&*channel), limit).await {
            // That it listens was told, if it is so, before the answer.
            Ok(_) => {}
            Err(Refusal::Failed(error)) if error.kind == StoreErrorKind::Unavailable || error.detour.is_some() => {
                return Listening::NotYet;
            }
            Err(refusal) => {
                if let Refusal::Failed(error) = &refusal {
                    events::wake_ups_refused(&error.text);
                }
                if let Some(live) = self.current() {
                    live.listening.refuse();
                }
            }
        }
        self.listening()
    }

    /// Sends one command and waits at most `limit` for its answer, connecting first if need be.
    ///
    /// Cancel safe in this sense: a command whose future is dropped is not repeated, but may be executed.
    pub(crate) async fn send(&self, command: &Cmd, limit: Duration) -> Result<Value, Refusal> {
        self.last_of(Packet::Command(command), limit).await
    }

    /// [`send`](Self::send) to a node that the command's slot is on its way to.
    #[cfg(feature = "cluster")]
    pub(super) async fn send_asking(&self, command: &Cmd, limit: Duration) -> Result<Value, Refusal> {
        let mut asking = Pipeline::with_capacity(2);
        asking.cmd("ASKING").add_command(command.clone());
        self.last_of(Packet::All(&asking), limit).await
    }

    /// Sends commands in one piece, which are answered in their order. Each has an answer of its own, which may be an error.
    pub(super) async fn send_each(&self, commands: &Pipeline, limit: Duration) -> Result<Answers, StoreError> {
        self.exchange(Packet::All(commands), limit).await.map_err(|error| match error {
            Refusal::Failed(error) => error,
            Refusal::NoScript => self.too_few(),
        })
    }

    async fn last_of(&self, packet: Packet<'_>, limit: Duration) -> Result<Value, Refusal> {
        match self.exchange(packet, limit).await?.pop() {
            Some(answer) => answer.map_err(|error| match error.into() {
                Refusal::Failed(error) => self.named(error).into(),
                Refusal::NoScript => Refusal::NoScript,
            }),
            None => Err(self.too_few().into()),
        }
    }

    /// Everything that is sent goes through here: within `limit`, connecting included, and what becomes of it is noted.
    async fn exchange(&self, packet: Packet<'_>, limit: Duration) -> Result<Answers, Refusal> {
        let deadline = Instant::now() + limit.min(FAR);
        let mut live = match self.current() {
            Some(live) => live,
            None => self.connect(limit).await?,
        };
        let sent_at = Instant::now();
        let left = deadline.saturating_duration_since(sent_at);
        match timeout(left, packet.send(&mut live.connection)).await {
            Ok(Ok(answers)) if answers.len() == packet.len() => {
                let answers: Answers = answers.into_iter().map(Value::extract_error).collect();
                self.note_answer(&live, answers.iter().filter_map(|answer| answer.as_ref().err()));
                Ok(answers)
            }
            Ok(Ok(_)) => Err(self.too_few().into()),
            Ok(Err(error)) => {
                self.note_answer(&live, [&error]);
                Err(error.into())
            }
            Err(_elapsed) => {
                self.note_silence(&live, sent_at);
                let text = format!("no answer from {} within {}", self.address(), brief(limit));
                Err(StoreError::unanswered(text).into())
            }
        }
    }

    fn too_few(&self) -> StoreError {
        StoreError::unanswered(format!("{} gave too few answers", self.address()))
    }

    /// What an error among the answers of [`send_each`](Self::send_each) means.
    pub(super) fn meaning(&self, error: &RedisError) -> StoreError {
        self.named(classify(error))
    }

    /// Who must change something has to know where.
    fn named(&self, error: StoreError) -> StoreError {
        if error.kind == StoreErrorKind::Permission { error.at(&self.address()) } else { error }
    }

    /// Sends the command on the last frozen connection as well, if there is one, behind what was sent there before. A
    /// server that thaws executes what it has buffered, even from a connection that nobody holds any more.
    pub(crate) fn send_on_retired(&self, command: &Cmd) {
        let retired = self.lock().retired.clone();
        if let Some((since, mut live)) = retired {
            let (command, left) = (command.clone(), RETIRED.saturating_sub(since.elapsed()));
            tokio::spawn(async move { timeout(left, live.connection.send_packed_command(&command)).await });
        }
    }

    /// Makes sure that a connection stands.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        match self.current() {
            Some(_) => Ok(()),
            None => self.connect(limit).await.map(drop),
        }
    }

    fn current(&self) -> Option<Live> {
        match &self.lock().state {
            State::Connected { live, .. } => Some(live.clone()),
            _ => None,
        }
    }

    /// Lets the connection go that stands now. The next command gets another one, perhaps to another server.
    pub(super) fn let_go(&self) {
        let mut slot = self.lock();
        if matches!(slot.state, State::Connected { .. }) {
            slot.state = State::Idle;
        }
    }

    async fn connect(&self, limit: Duration) -> Result<Live, StoreError> {
        let progress = match self.join_or_start() {
            Step::Connected(live) => return Ok(live),
            Step::Refused(error) => return Err(error),
            Step::Connecting(progress) => progress,
        };
        match timeout(limit, progress.outcome()).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(StoreError::new(StoreErrorKind::Unavailable, self.target.no_connection(limit))),
        }
    }

    /// One task connects for everybody; it is detached, so a caller that gives up does not spoil it for the others.
    fn join_or_start(&self) -> Step {
        let mut slot = self.lock();
        match &slot.state {
            State::Connected { live, .. } => return Step::Connected(live.clone()),
            State::Connecting { progress, .. } => return Step::Connecting(progress.clone()),
            State::Idle => {}
        }
        if let Some((at, error)) = &mut *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) {
            if at.elapsed() < CONNECT_PAUSE {
                return Step::Refused(error.clone());
            }
            *at = Instant::now();
        }
        let ears = self.told.as_ref().map(|told| told.ears.clone());
        let refusal = self.refusal.clone();
        let attempt = Attempt {
            target: self.target.clone(),
            limit: self.connect_timeout,
            address: self.address(),
            ears,
            refusal,
        };
        let progress = Arc::<Progress>::default();
        slot.state = State::Connecting { since: Instant::now(), progress: progress.clone() };
        // Not under the lock: a runtime that has ended drops the task at once.
        drop(slot);
        attempt.start(progress.clone());
        Step::Connecting(progress)
    }

    /// Takes the outcome of a finished attempt into the slot, and gives up on one whose runtime does not run.
    fn settle(&self, state: &mut State) {
        let State::Connecting { since, progress } = state else { return };
        match progress.peek() {
            Some(Ended::Connected(live)) => *state = State::Connected { live, silence: None },
            Some(Ended::Failed(_) | Ended::Abandoned(_)) => *state = State::Idle,
            None if since.elapsed() > self.connect_timeout.saturating_add(ATTEMPT_MARGIN) => *state = State::Idle,
            None => {}
        }
    }

    /// The server has answered, and these are the errors among what it said.
    fn note_answer<'a>(&self, used: &Live, errors: impl IntoIterator<Item = &'a RedisError>) {
        let broken = errors.into_iter().any(closes_connection);
        let mut slot = self.lock();
        if let State::Connected { live, silence } = &mut slot.state
            && Arc::ptr_eq(&live.listening, &used.listening)
        {
            *silence = None;
            if broken {
                slot.state = State::Idle;
            }
        }
    }

    fn note_silence(&self, used: &Live, sent_at: Instant) {
        let mut slot = self.lock();
        if let State::Connected { live, silence } = &mut slot.state
            && Arc::ptr_eq(&live.listening, &used.listening)
        {
            let silence = silence.get_or_insert(Silence { since: sent_at, waits: 0 });
            silence.waits += 1;
            if silence.waits >= FROZEN_AFTER && silence.since.elapsed() >= self.response_timeout / 2 {
                let frozen = live.clone();
                slot.retired = Some((Instant::now(), frozen));
                slot.state = State::Idle;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slot> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle(&mut slot.state);
        slot.retired.take_if(|(since, _)| since.elapsed() >= RETIRED);
        slot
    }

    /// Where the server is, without the credentials that the URL may have held.
    pub(crate) fn address(&self) -> String {
        self.target.address()
    }

    /// As [`address`](Self::address), with the database if it is not 0.
    pub(super) fn place(&self) -> String {
        match self.target.database() {
            0 => self.address(),
            database => format!("{}/{database}", self.address()),
        }
    }
}

/// What a server says to one command.
pub(super) type Answer = Result<Value, RedisError>;

/// The answers to commands that left together, in their order.
pub(super) type Answers = Vec<Answer>;

/// What is written at once.
enum Packet<'a> {
    Command(&'a Cmd),
    All(&'a Pipeline),
}

impl Packet<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Command(_) => 1,
            Self::All(commands) => commands.len(),
        }
    }

    async fn send(&self, connection: &mut MultiplexedConnection) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::Command(command) => Ok(vec![connection.send_packed_command(command).await?]),
            Self::All(commands) => connection.send_packed_commands(commands, 0, commands.len()).await,
        }
    }
}

/// Longer than any wait, and short enough to be added to a moment.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// What a caller without a connection finds.
enum Step {
    Connected(Live),
    Refused(StoreError),
    Connecting(Arc<Progress>),
}
