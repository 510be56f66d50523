//! What is searched: the rules within bounds that differ, and every broken rule within bounds that show it.

use crate::fault::{ALL, Fault};
use crate::model::{CLEAN, FAIR, IDLE, JUMP, LAPSE, ONE, ORDER};
use crate::rules::{Mutant, Rules};
use crate::server::{CLIENTS, Clients, Keys};

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
    /// Clients whose calls do not wait.
    pub(crate) hurried: Clients,
    pub(crate) rules: Rules,
    /// The most idle ticks, where that is less than the sum of what the faults may cost.
    pub(crate) limit: u8,
}

impl Run {
    fn new(level: Level, clients: usize, calls: u8, faults: u8) -> Run {
        let (kinds, wants, rules) = (ALL, [1; CLIENTS], Rules::default());
        Run { level, clients, calls, faults, kinds, wants, hurried: 0, rules, limit: u8::MAX }
    }

    fn kinds(self, kinds: &'static [Fault]) -> Run {
        Run { kinds, ..self }
    }

    fn wants(self, wants: [Keys; CLIENTS]) -> Run {
        Run { wants, ..self }
    }

    fn hurried(self, hurried: Clients) -> Run {
        Run { hurried, ..self }
    }

    fn hand_on(mut self) -> Run {
        self.rules.reserve = 2;
        self
    }

    /// Other lengths, in another proportion to each other.
    fn other_times(mut self) -> Run {
        self.rules =
            Rules { ttl: 4, renew_ttl: 4, turn: 2, life: 7, heartbeat: 3, timeout: 2, copies: 3, ..self.rules };
        self
    }

    fn serve_last(mut self) -> Run {
        self.rules.serve_last = true;
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
        Run::new(Quick, 3, 2, 0).hurried(0b001),
        Run::new(Quick, 3, 1, 1).hurried(0b001),
        Run::new(Quick, 2, 1, 2).hurried(0b001),
        Run::new(Quick, 2, 1, 2).serve_last(),
        Run::new(Quick, 3, 1, 1).serve_last(),
        Run::new(Full, 3, 1, 1).hurried(0b001).serve_last(),
        Run::new(Full, 3, 2, 0).serve_last(),
        Run::new(Full, 2, 2, 1).hand_on().serve_last(),
        Run::new(Full, 3, 1, 1).wants([0b11, 0b01, 0b10]).serve_last(),
        Run::new(Quick, 2, 1, 0).wants([0b11, 0b01, 0]),
        Run::new(Quick, 3, 1, 0).wants([0b11, 0b01, 0b10]),
        Run::new(Quick, 3, 1, 0).wants([0b11, 0b11, 0b01]),
        Run::new(Quick, 2, 1, 1).wants([0b11, 0b01, 0]),
        Run::new(Quick, 2, 1, 1).wants([0b11, 0b11, 0]),
        Run::new(Full, 2, 1, 2).other_times(),
        Run::new(Full, 3, 1, 1).other_times(),
        Run::new(Full, 3, 2, 0).hand_on(),
        Run::new(Full, 3, 2, 0).wants([0b11, 0b01, 0b10]),
        Run::new(Full, 3, 1, 1).wants([0b11, 0b01, 0b10]),
        Run::new(Full, 3, 1, 1).wants([0b11, 0b11, 0b01]),
        Run::new(Full, 3, 2, 1).kinds(&[Cancel]),
        Run::new(Full, 3, 2, 1).kinds(&[Crash]),
        Run::new(Full, 3, 2, 1).kinds(&[Lose]),
        Run::new(Full, 3, 2, 1).kinds(&[Freeze]),
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
        (run(Mutant::ReserveOnRepeat, 2, 2, &[Disconnect]).hand_on(), ORDER),
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use stateright::Model;

    use super::*;
    use crate::model::HandOff;
    use crate::world::{Phase, World};

    /// Whether the run gets to a state like this. A search in which nothing happens would be clean as well.
    fn reaches(run: Run, like: impl Fn(&World<1>) -> bool) -> bool {
        let model = HandOff::<1> { run, most_idle: Arc::default() };
        let mut open = model.init_states();
        let mut seen: HashSet<_> = open.iter().copied().collect();
        while let Some(world) = open.pop() {
            if like(&world) {
                return true;
            }
            open.extend(model.next_states(&world).into_iter().filter(|next| seen.insert(*next)));
        }
        false
    }

    fn any(world: &World<1>, like: impl Fn(&crate::world::Client) -> bool) -> bool {
        world.clients.iter().any(like)
    }

    #[test]
    fn everybody_gets_a_turn() {
        let run = Run::new(Level::Quick, 3, 2, 0);
        assert!(reaches(run, |world| world.clients.iter().all(|client| client.calls == 0)));
        assert!(reaches(run, |world| world.entries().count() == 2));
        assert!(reaches(run, |world| any(world, |client| client.again)));
    }

    #[test]
    fn leases_are_handed_on_renewed_and_lost() {
        let run = Run::new(Level::Quick, 2, 2, 1).hand_on();
        assert!(reaches(run, |world| any(world, |client| client.handed && client.valid())));
        assert!(reaches(run, |world| any(world, |client| client.renewed && client.left == run.rules.ttl)));
        assert!(reaches(run, |world| any(world, |client| client.phase == Phase::Holding && client.left == 0)));
    }

    #[test]
    fn faults_leave_their_traces() {
        let run = Run::new(Level::Quick, 2, 1, 1);
        assert!(reaches(run, |world| !world.strays.is_empty()));
        assert!(reaches(run, |world| !world.server.gone.is_empty()));
        assert!(reaches(run, |world| any(world, |client| client.doubt)));
        let run = Run::new(Level::Quick, 3, 1, 1).kinds(&[Fault::LosePush]);
        assert!(reaches(run, |world| any(world, |client| client.lapsed > 0)));
        assert!(reaches(run, |world| any(world, |client| client.overtaken > 0)));
    }

    #[test]
    fn what_a_fault_costs_is_not_told_too_high() {
        for (kind, cost) in [(Fault::LosePush, 2), (Fault::Freeze, 3), (Fault::Cancel, 0)] {
            let kinds = Box::leak(Box::new([kind]));
            let run = Run::new(Level::Quick, 2, 1, 1).kinds(kinds);
            assert!(reaches(run, |world| world.idle == cost), "{kind:?}");
            assert!(!reaches(run, |world| world.idle > cost), "{kind:?}");
        }
    }

    #[test]
    fn every_broken_rule_has_a_run() {
        let names: HashSet<_> = broken().iter().map(|(run, _)| format!("{:?}", run.rules.mutant)).collect();
        assert_eq!(names.len(), broken().len());
        assert_eq!(names.len(), Mutant::SilentReconnect as usize);
    }
}
