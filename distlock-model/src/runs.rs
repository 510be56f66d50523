//! What is searched: the rules within bounds that differ, and every broken rule within bounds that show it.

use crate::fault::{ALL, Fault};
use crate::model::{CLEAN, FAIR, IDLE, JUMP, LAPSE, ONE, ORDER};
use crate::rules::{Mutant, Rules};
use crate::server::{CLIENTS, Keys};

/// How long one is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Quick,
    Full,
    Deep,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) level: Level,
    pub(crate) clients: usize,
    /// Calls that each client makes, one after the other.
    pub(crate) calls: u8,
    pub(crate) faults: u8,
    pub(crate) kinds: &'static [Fault],
    /// Two bits per client: one key each, or both together. All the first key if nothing else is said.
    pub(crate) wants: [Keys; CLIENTS],
    pub(crate) rules: Rules,
    /// The most idle ticks, where that is less than the sum of what the faults may cost.
    pub(crate) limit: u8,
}

impl Run {
    fn new(level: Level, clients: usize, calls: u8, faults: u8) -> Run {
        let (kinds, wants, rules) = (ALL, [1; CLIENTS], Rules::default());
        Run { level, clients, calls, faults, kinds, wants, rules, limit: u8::MAX }
    }

    fn kinds(self, kinds: &'static [Fault]) -> Run {
        Run { kinds, ..self }
    }

    fn wants(self, wants: [Keys; CLIENTS]) -> Run {
        Run { wants, ..self }
    }

    fn hand_on(mut self) -> Run {
        self.rules.reserve = 2;
        self
    }

    fn short_renewals(mut self) -> Run {
        self.rules.renew_ttl = 1;
        self
    }

    fn limit(self, limit: u8) -> Run {
        Run { limit, ..self }
    }

    pub(crate) fn two_keys(&self) -> bool {
        self.wants != [1; CLIENTS]
    }

    /// The same run of rules without fault.
    pub(crate) fn mended(mut self) -> Run {
        self.rules.mutant = Mutant::None;
        self
    }
}

/// The rules as they are.
pub(crate) fn sound() -> Vec<Run> {
    use Fault::*;
    use Level::*;
    vec![
        Run::new(Quick, 2, 1, 0),
        Run::new(Quick, 3, 1, 0),
        Run::new(Quick, 3, 2, 0),
        Run::new(Quick, 2, 1, 1),
        Run::new(Quick, 2, 2, 1),
        Run::new(Quick, 2, 2, 1).hand_on(),
        Run::new(Quick, 2, 1, 1).short_renewals(),
        Run::new(Quick, 3, 1, 1),
        Run::new(Quick, 2, 1, 2),
        Run::new(Quick, 2, 1, 0).wants([0b11, 0b01, 0]),
        Run::new(Quick, 3, 1, 0).wants([0b11, 0b01, 0b10]),
        Run::new(Quick, 3, 1, 0).wants([0b11, 0b11, 0b01]),
        Run::new(Quick, 2, 1, 1).wants([0b11, 0b01, 0]),
        Run::new(Quick, 2, 1, 1).wants([0b11, 0b11, 0]),
        Run::new(Full, 3, 2, 0).hand_on(),
        Run::new(Full, 3, 2, 0).wants([0b11, 0b01, 0b10]),
        Run::new(Full, 3, 1, 1).wants([0b11, 0b01, 0b10]),
        Run::new(Full, 3, 1, 1).wants([0b11, 0b11, 0b01]),
        Run::new(Full, 3, 2, 1).kinds(&[Cancel]),
        Run::new(Full, 3, 2, 1).kinds(&[Crash]),
        Run::new(Full, 3, 2, 1).kinds(&[Lose]),
        Run::new(Deep, 3, 2, 1).kinds(&[Freeze]),
        Run::new(Deep, 3, 2, 1).kinds(&[Late]),
        Run::new(Deep, 3, 2, 1).kinds(&[Disconnect]),
        Run::new(Deep, 2, 2, 2),
        Run::new(Deep, 2, 2, 2).hand_on(),
        Run::new(Deep, 3, 1, 2),
    ]
}

/// Each broken rule, with a run that shows it and the property that must notice.
pub(crate) fn broken() -> Vec<(Run, &'static str)> {
    use Fault::*;
    let run = |mutant, clients, calls, kinds: &'static [Fault]| {
        let mut run = Run::new(Level::Quick, clients, calls, kinds.len() as u8).kinds(kinds);
        run.rules.mutant = mutant;
        run
    };
    vec![
        (run(Mutant::PushIsGrant, 3, 1, &[Late]), ONE),
        (run(Mutant::DeadlineFromReceipt, 2, 1, &[Late]), ONE),
        (run(Mutant::WithdrawOnlyDequeues, 2, 1, &[Cancel]), CLEAN),
        (run(Mutant::NoDeduplication, 2, 1, &[]), CLEAN),
        (run(Mutant::PlainDelete, 2, 1, &[Late]), ONE),
        (run(Mutant::Shorten, 2, 1, &[]).short_renewals(), ONE),
        (run(Mutant::SilentAfterDeadline, 2, 1, &[LoseRenewal]), IDLE),
        (run(Mutant::NoBurial, 2, 1, &[Cancel]), CLEAN),
        (run(Mutant::LossBuriesNothing, 2, 1, &[Disconnect, Late]), CLEAN),
        (run(Mutant::ResendWithoutExtend, 2, 1, &[Disconnect, Late]), ONE),
        (run(Mutant::OldFence, 3, 1, &[FreezeWaiter]), ORDER),
        (run(Mutant::NoTimer, 2, 1, &[LosePush]), IDLE),
        (run(Mutant::TimerFromReceipt, 2, 1, &[LateWaiting, LosePush]).limit(2), IDLE),
        (run(Mutant::RenewalRecreates, 2, 1, &[Late]), CLEAN),
        (run(Mutant::NoReserve, 2, 2, &[]).hand_on(), ORDER),
        (run(Mutant::FreshDeadline, 2, 2, &[]).hand_on(), ONE),
        (run(Mutant::TailRequeue, 3, 1, &[]), FAIR),
        (run(Mutant::ForgetTicket, 3, 2, &[LosePush]), LAPSE),
        (run(Mutant::Barging, 2, 2, &[]), JUMP),
        (run(Mutant::NoListenerCheck, 3, 1, &[CrashWaiter]), IDLE),
        (run(Mutant::EndlessTurn, 3, 1, &[FreezeWaiter]).limit(2), IDLE),
        (run(Mutant::ServeOnlyOnRelease, 3, 1, &[FreezeWaiter, Crash]), IDLE),
        (run(Mutant::ForgetPush, 2, 1, &[]), IDLE),
        (run(Mutant::SilentReconnect, 2, 1, &[Disconnect]), IDLE),
    ]
}
