//! Makes the trouble, and notes what happened when.

use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use distlock_testkit::{Moment, Recorder, Server, process};

use crate::dice::Dice;
use crate::ms;
use crate::worker::{self, HISTORY, TTL};

const PROCESSES: usize = 8;

/// How many processes may stand still at the same time.
const MOST_STOPPED: usize = 2;

/// Something that can keep others waiting, from one moment to another.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) what: What,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Killed { pid: u32 },
    Stopped { pid: u32 },
    ServerDown,
    ConnectionsCut,
    ScriptsFlushed,
}

/// All that happened.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) troubles: Vec<Trouble>,
}

impl Story {
    pub(crate) fn count(&self, which: impl Fn(&What) -> bool) -> usize {
        self.troubles.iter().filter(|trouble| which(&trouble.what)).count()
    }
}

struct Worker {
    child: Child,
    /// Since when it stands still, and until when it is to.
    stopped: Option<(Moment, Instant)>,
}

pub(crate) struct Campaign<'a> {
    server: &'a Server,
    dice: Dice,
    workers: Vec<Worker>,
    recorder: Recorder,
    story: Story,
}

impl<'a> Campaign<'a> {
    pub(crate) fn new(server: &'a Server, seed: u64) -> Self {
        let recorder = Recorder::open_as(server.folder().join(HISTORY), "campaign").unwrap();
        Self { server, dice: Dice::new(seed), workers: Vec::new(), recorder, story: Story::default() }
    }

    /// So long there is trouble. Comes back when all processes have ended by themselves.
    pub(crate) fn run(mut self, time: Duration) -> Story {
        let until = Moment::now() + time;
        for _ in 0..PROCESSES {
            self.start_worker(until);
        }
        // All of them connect and stand in line.
        sleep(ms(500));
        // What happens in any case, at a time of its own.
        let mut restarts = vec![Instant::now() + time / 2];
        if time > ms(30_000) {
            restarts.push(Instant::now() + time / 4);
        }
        let end = Instant::now() + time.saturating_sub(ms(500));
        let mut next = Instant::now();
        while Instant::now() < end {
            if let Some(due) = restarts.iter().position(|at| *at <= Instant::now()) {
                restarts.swap_remove(due);
                self.restart_server();
            }
            if next <= Instant::now() {
                self.make_trouble(until);
                next = Instant::now() + ms(100 + self.dice.below(600));
            }
            self.wake_up(|until| until <= Instant::now());
            sleep(ms(5));
        }
        self.wake_up(|_| true);
        self.see_them_off()
    }

    fn start_worker(&mut self, until: Moment) {
        let child = worker::spawn(&self.server.url(), self.server.folder(), until);
        self.workers.push(Worker { child, stopped: None });
    }

    fn make_trouble(&mut self, until: Moment) {
        match self.dice.below(10) {
            0..3 => self.kill_one(until),
            3..7 => self.stop_one(),
            7 => self.tell_server(What::ConnectionsCut, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]),
            8 => self.tell_server(What::ConnectionsCut, &["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]),
            _ => self.tell_server(What::ScriptsFlushed, &["SCRIPT", "FLUSH"]),
        }
    }

    /// The number of a worker that runs.
    fn choose(&mut self) -> Option<usize> {
        let place = usize::try_from(self.dice.below(self.workers.len() as u64)).unwrap();
        self.workers[place].stopped.is_none().then_some(place)
    }

    fn kill_one(&mut self, until: Moment) {
        let Some(place) = self.choose() else { return };
        let mut worker = self.workers.swap_remove(place);
        let from = Moment::now();
        worker.child.kill().unwrap();
        worker.child.wait().unwrap();
        let pid = worker.child.id();
        self.recorder.died(&pid.to_string()).unwrap();
        self.note(What::Killed { pid }, from);
        self.start_worker(until);
    }

    fn stop_one(&mut self) {
        if self.workers.iter().filter(|worker| worker.stopped.is_some()).count() >= MOST_STOPPED {
            return;
        }
        let Some(place) = self.choose() else { return };
        let longest = u64::try_from((TTL * 3).as_millis()).unwrap();
        let time = ms(self.dice.below(longest));
        process::freeze(&self.workers[place].child).unwrap();
        self.workers[place].stopped = Some((Moment::now(), Instant::now() + time));
    }

    /// Lets those go on whose time it is.
    fn wake_up(&mut self, due: impl Fn(Instant) -> bool) {
        for worker in &mut self.workers {
            if let Some((from, _)) = worker.stopped.take_if(|(_, until)| due(*until)) {
                process::thaw(&worker.child).unwrap();
                let what = What::Stopped { pid: worker.child.id() };
                self.story.troubles.push(Trouble { what, from, to: Moment::now() });
            }
        }
    }

    fn tell_server(&mut self, what: What, command: &[&str]) {
        let from = Moment::now();
        self.server.command(command).unwrap();
        self.note(what, from);
    }

    fn restart_server(&mut self) {
        let from = Moment::now();
        self.server.kill().unwrap();
        sleep(ms(self.dice.below(500)));
        self.server.restart_with_data().unwrap();
        self.note(What::ServerDown, from);
    }

    fn note(&mut self, what: What, from: Moment) {
        self.story.troubles.push(Trouble { what, from, to: Moment::now() });
    }

    /// Every worker ends by itself once the time is over; one that does not is killed, and that is a failure.
    fn see_them_off(mut self) -> Story {
        let limit = Instant::now() + ms(15_000);
        let mut late = 0;
        for worker in &mut self.workers {
            let status = loop {
                match worker.child.try_wait().unwrap() {
                    Some(status) => break Some(status),
                    None if Instant::now() > limit => break None,
                    None => sleep(ms(10)),
                }
            };
            match status {
                Some(status) => assert!(status.success(), "a worker failed: {status}"),
                None => {
                    late += 1;
                    worker.child.kill().unwrap();
                    worker.child.wait().unwrap();
                }
            }
        }
        assert_eq!(late, 0, "workers that still wait long after everything has ended");
        std::mem::take(&mut self.story)
    }
}

impl Drop for Campaign<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // Those that have ended are only waited for.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}
