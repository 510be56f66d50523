//! The command line.

use std::path::Path;
use std::time::Duration;

use crate::COUPONS;
use crate::worker::Work;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Ten coupons, many buyers in many processes, and one lock that keeps the shop from overselling.

Usage: coupon [FLAGS]

  --processes N    worker processes, 1 to 64 (4)
  --buyers M       buyers of each worker, 1 to 1000 (25)
  --backend WHERE  where the locks live (auto):
                     auto      the server that DISTLOCK_URL names, else a server found on this machine,
                               else embedded
                     spawn     a redis-server or valkey-server started for this run
                     embedded  a small server inside of this program; nothing to install
                     memory    this process; the workers are tasks in it
                     URL       as in redis://127.0.0.1:6379
  --no-lock        the same sale without the lock: it oversells
  --kill           kill one holder in the middle of its claim, and measure how soon another takes over
  --help           this text

Exit status: 0 if the audit is content, 1 if it is not or the sale could not be held, 2 for a wrong flag.
";

/// How long a sale takes between its read and its write.
const THINK: Duration = Duration::from_millis(5);

/// The same with `--kill`, which has to catch somebody in the act.
const THINK_LONG: Duration = Duration::from_millis(100);

/// What the user asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Sell(Options),
    Work(Work),
}

/// Where the user wants the locks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Auto,
    Spawn,
    Embedded,
    Memory,
    Url(String),
}

/// A sale as the flags describe it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) processes: usize,
    pub(crate) buyers: usize,
    pub(crate) backend: Wanted,
    pub(crate) no_lock: bool,
    pub(crate) kill: bool,
}

impl Options {
    pub(crate) fn buyers_in_all(&self) -> usize {
        self.processes * self.buyers
    }

    /// One piece of work for each worker.
    pub(crate) fn works(&self, shop: &Path) -> impl Iterator<Item = Work> {
        // Two sales at once on one server are two campaigns.
        let campaign = format!("sale-{}", std::process::id());
        (1..=self.processes).map(move |number| Work {
            name: format!("worker-{number}"),
            shop: shop.to_owned(),
            campaign: campaign.clone(),
            buyers: self.buyers,
            think: if self.kill { THINK_LONG } else { THINK },
            no_lock: self.no_lock,
        })
    }

    fn check(self) -> Result<Self, String> {
        if self.kill && self.no_lock {
            return Err(
                "`--kill` and `--no-lock` exclude each other; without a lock there is nothing to take over".into()
            );
        }
        if self.kill && self.backend == Wanted::Memory {
            return Err(
                "`--kill` needs worker processes, and with `--backend memory` there are none; leave one of them out"
                    .into(),
            );
        }
        if self.kill && self.processes < 2 {
            return Err("`--kill` needs two processes or more; raise `--processes`".into());
        }
        // The buyers of the worker that is killed go with it.
        let left = if self.kill { self.processes - 1 } else { self.processes } * self.buyers;
        if left < COUPONS {
            return Err(format!(
                "{COUPONS} coupons need {COUPONS} buyers, and there are {left}; raise `--processes` or `--buyers`"
            ));
        }
        Ok(self)
    }
}

impl Work {
    /// The command line of a worker, as [`parse`] reads it.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let mut args = ["--worker", &self.name, "--campaign", &self.campaign].map(str::to_owned).to_vec();
        args.extend(["--shop".to_owned(), self.shop.to_string_lossy().into_owned()]);
        args.extend(["--buyers".to_owned(), self.buyers.to_string()]);
        args.extend(["--think-ms".to_owned(), self.think.as_millis().to_string()]);
        args.extend(self.no_lock.then(|| "--no-lock".to_owned()));
        args
    }
}

/// Reads the command line, without the program's name. The error is one sentence for the user.
pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut options = Options { processes: 4, buyers: 25, backend: Wanted::Auto, no_lock: false, kill: false };
    let (mut worker, mut shop, mut campaign, mut think) = (None, String::new(), String::new(), 0);
    let mut args = args;
    while let Some(arg) = args.next() {
        let (flag, mut attached) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let mut value =
            || attached.take().or_else(|| args.next()).ok_or_else(|| format!("`{flag}` lacks its value; see `--help`"));
        match flag {
            "--help" | "-h" => return Ok(Command::Help),
            "--processes" => options.processes = number(flag, &value()?, 1..=64)?,
            "--buyers" => options.buyers = number(flag, &value()?, 1..=1000)?,
            "--backend" => options.backend = backend(value()?)?,
            "--no-lock" => options.no_lock = true,
            "--kill" => options.kill = true,
            // What follows is for the program itself.
            "--worker" => worker = Some(value()?),
            "--shop" => shop = value()?,
            "--campaign" => campaign = value()?,
            "--think-ms" => think = number(flag, &value()?, 0..=60_000)?,
            _ => return Err(format!("there is no flag `{flag}`; see `--help`")),
        }
        if attached.is_some() {
            return Err(format!("`{flag}` takes no value; write it alone"));
        }
    }
    match worker {
        Some(name) => Ok(Command::Work(Work {
            name,
            shop: shop.into(),
            campaign,
            buyers: options.buyers,
            think: Duration::from_millis(think as u64),
            no_lock: options.no_lock,
        })),
        None => options.check().map(Command::Sell),
    }
}

fn number(flag: &str, value: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        format!("`{flag}` cannot be `{value}`; give a whole number from {} to {}", range.start(), range.end())
    })
}

fn backend(value: String) -> Result<Wanted, String> {
    match value.as_str() {
        "auto" => Ok(Wanted::Auto),
        "spawn" => Ok(Wanted::Spawn),
        "embedded" => Ok(Wanted::Embedded),
        "memory" => Ok(Wanted::Memory),
        url if url.contains(':') => Ok(Wanted::Url(value)),
        _ => Err(format!(
            "`--backend` cannot be `{value}`; give auto, spawn, embedded, memory or a URL as in redis://127.0.0.1:6379"
        )),
    }
}
