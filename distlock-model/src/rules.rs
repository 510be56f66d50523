//! The constants of a run, and the ways in which the rules can be broken on purpose.

/// One rule left out or turned round. Each must be noticed by some property, else the model shows nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The rules as they are.
    None,
    /// A push is taken for the grant: the body starts when it arrives.
    PushIsGrant,
    /// The deadline counts from the arrival of the answer.
    DeadlineFromReceipt,
    /// A waiter that gives up leaves the queue and does not give the lock back.
    WithdrawOnlyDequeues,
    /// Every heartbeat of a waiter adds an entry.
    NoDeduplication,
    /// A release deletes whatever lock it finds.
    PlainDelete,
    /// A renewal may shorten.
    Shorten,
    /// A lease lost by its deadline sends no release.
    SilentAfterDeadline,
    /// A release buries nothing.
    NoBurial,
    /// A repeated acquisition is granted without extending the lock.
    ResendWithoutExtend,
    /// A waiter's ticket is used as its fencing token.
    OldFence,
    /// Waiters rely on pushes alone.
    NoTimer,
    /// The timer counts from the arrival of the answer.
    TimerFromReceipt,
    /// A renewal sets a key that is gone.
    RenewalRecreates,
    /// One fencing token is reserved, two are used.
    NoReserve,
    /// A repeat asks for more fencing tokens than the first copy did, and believes that it got them.
    ReserveOnRepeat,
    /// A hand-on inside the process starts a new deadline.
    FreshDeadline,
    /// A waiter gets a new ticket with every heartbeat.
    TailRequeue,
    /// A waiter does not send its ticket back: what missed its turn goes to the end of the queue.
    ForgetTicket,
    /// A newcomer takes a free lock before those who wait.
    Barging,
    /// An entry without listener gets its turn like any other.
    NoListenerCheck,
    /// A turn has no end of its own.
    EndlessTurn,
    /// Only a release passes the turn on; an acquisition that finds the lock free and somebody before it does not.
    ServeOnlyOnRelease,
    /// A push that arrives while an acquisition is under way is forgotten.
    ForgetPush,
    /// A lease that is lost to a foreign or absent token buries nothing.
    LossBuriesNothing,
    /// A reconnect does not ask again.
    SilentReconnect,
}

/// Durations are in ticks. A message takes no time unless a fault delays it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) ttl: u8,
    /// How long the head of the queue has to answer the push.
    pub(crate) turn: u8,
    /// How long an entry lives after its waiter last spoke.
    pub(crate) life: u8,
    pub(crate) heartbeat: u8,
    /// After this long a command counts as unanswered.
    pub(crate) timeout: u8,
    /// How long a copy of a command can be under way on a connection that is gone.
    pub(crate) copies: u8,
    /// What renewals ask for.
    pub(crate) renew_ttl: u8,
    /// Fencing tokens reserved with each grant.
    pub(crate) reserve: u8,
    /// An acquisition passes the turn on after it has queued instead of before it looks whether somebody is before it.
    /// One more round trip behind an entry that nobody listens for; nothing else.
    pub(crate) serve_last: bool,
    pub(crate) mutant: Mutant,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            ttl: 3,
            turn: 1,
            life: 4,
            heartbeat: 2,
            timeout: 1,
            copies: 4,
            renew_ttl: 3,
            reserve: 1,
            serve_last: false,
            mutant: Mutant::None,
        }
    }
}

impl Rules {
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }
}
