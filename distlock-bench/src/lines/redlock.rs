//! Several independent servers, one of which is out of order: what that costs those who take and give back locks.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::Server;

use crate::Result;
use crate::bench::{Bench, micros_of};
use crate::figures::Sample;
use crate::report::{Line, Report};

/// How much slower it may become, by the median.
const LIMIT: f64 = 2.0;

/// And by the slowest in a hundred, beside what a busy machine adds to any of them, in microseconds.
const SLOWEST_LIMIT: f64 = 3.0;
const JITTER: f64 = 1000.0;

/// What is the matter with one of the servers.
#[derive(Clone, Copy)]
enum Fault {
    Frozen,
    Mute,
    Refusing,
    Erroring,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Frozen, Self::Mute, Self::Refusing, Self::Erroring];

    fn name(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::Mute => "mute",
            Self::Refusing => "refusing connections",
            Self::Erroring => "answering with errors",
        }
    }
}

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    for count in [3, 5] {
        for fault in Fault::ALL {
            one_out_of_order(bench, report, count, fault)?;
        }
    }
    Ok(())
}

fn one_out_of_order(bench: &Bench, report: &mut Report, count: usize, fault: Fault) -> Result<()> {
    let servers = (0..count).map(|_| bench.server()).collect::<Result<Vec<_>>>()?;
    let healthy: Vec<String> = servers.iter().map(Server::url).collect();
    // One more, for the place of one of the others.
    let (spare, port) = (bench.server()?, TcpListener::bind("127.0.0.1:0")?);
    let mut impaired = healthy.clone();
    impaired[0] = match fault {
        Fault::Frozen | Fault::Erroring => spare.url(),
        Fault::Mute | Fault::Refusing => format!("redis://{}", port.local_addr()?),
    };
    match fault {
        Fault::Refusing => drop(port),
        // Connections wait in the system's queue, or are taken and never answered.
        Fault::Mute => drop(thread::spawn(move || port.incoming().flatten().collect::<Vec<_>>())),
        Fault::Erroring => drop(spare.command(&["CONFIG", "SET", "maxmemory", "1"])?),
        Fault::Frozen => {}
    }
    let (rounds, calls) = bench.pick((20, 100), (6, 40));
    let (mut acquires, mut releases) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    bench.runtime()?.block_on(async {
        let managers = [
            LockManager::builder().redlock(healthy).namespace("healthy").build().await?,
            LockManager::builder().redlock(impaired).namespace("impaired").build().await?,
        ];
        for locks in &managers {
            locks.lock("warm").run(async |_| ()).await?;
        }
        if matches!(fault, Fault::Frozen) {
            spare.pause()?;
        }
        for _ in 0..rounds {
            for (place, locks) in managers.iter().enumerate() {
                for _ in 0..calls {
                    let begun = Instant::now();
                    let lease = locks.lock("k").ttl(Duration::from_secs(30)).acquire().await?;
                    acquires[place].push(micros_of(begun.elapsed()));
                    let begun = Instant::now();
                    lease.release().await?;
                    releases[place].push(micros_of(begun.elapsed()));
                }
            }
        }
        if matches!(fault, Fault::Frozen) {
            spare.resume()?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    for (what, times) in [("acquire", acquires), ("release", releases)] {
        let [healthy, impaired] = times.map(Sample::new);
        let ratio = impaired.median() / healthy.median();
        let slowest_holds = impaired.quantile(0.99) <= SLOWEST_LIMIT * healthy.quantile(0.99) + JITTER;
        report.add(Line {
            line: format!("Redlock, one of {count} {}: {what}", fault.name()),
            figure: impaired.median(),
            unit: "us",
            ratio: Some(ratio),
            target: "<= 2x healthy; p99 <= 3x + 1 ms".to_owned(),
            holds: Some(ratio <= LIMIT && slowest_holds),
            note: format!(
                "healthy {:.1} us; p99 {:.1} us against {:.1} us; worst {:.1} us against {:.1} us",
                healthy.median(),
                impaired.quantile(0.99),
                healthy.quantile(0.99),
                impaired.max(),
                healthy.max()
            ),
        });
    }
    Ok(())
}
