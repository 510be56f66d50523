//! Ten coupons, many buyers in many processes, one line that keeps the shop from overselling.
//!
//! ```text
//! cargo run --example coupon                  exactly ten coupons are issued
//! cargo run --example coupon -- --no-lock     the same without the lock: oversold
//! cargo run --example coupon -- --kill        one holder is killed in the middle; another takes over
//! cargo run --example coupon -- --help        all flags
//! ```
//!
//! Read `claim.rs` first: it has the locked function. `shop.rs` is what it protects, `worker.rs` sends the buyers,
//! `processes.rs` starts the workers, `takeover.rs` kills one, `audit.rs` judges. The rest is flags and printing.

mod audit;
mod backend;
mod claim;
mod news;
mod options;
mod processes;
mod progress;
mod shop;
mod takeover;
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use distlock::LockManager;
use distlock_testkit::{Folder, History};
use tokio::sync::mpsc;

use crate::audit::Audit;
use crate::backend::Backend;
use crate::news::Sales;
use crate::options::{Command, Options};
use crate::progress::Progress;
use crate::takeover::Takeover;

/// What the shop has to sell.
const COUPONS: usize = 10;

/// The `ttl` of the lock in `claim.rs`, for the arithmetic about it.
const TTL: Duration = Duration::from_secs(2);

/// Anything that keeps the example from running to its end.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match options::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            progress::say(options::HELP.trim_end());
            return ExitCode::SUCCESS;
        }
        Ok(Command::Sell(options)) => sell(&options).await,
        Ok(Command::Work(work)) => worker::main(work).await.map(|()| true),
        Err(error) => {
            eprintln!("coupon: {error}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("coupon: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the shop, lets everybody in, and says whether all went well.
async fn sell(options: &Options) -> Result<bool> {
    let backend = Backend::choose(options).await?;
    progress::say(&backend.to_string());

    let folder = Folder::new()?;
    let shop = folder.path();
    shop::open(shop, COUPONS).await?;
    let (sales, takeover) = match backend.url() {
        Some(url) => sell_by_processes(options, &url, shop).await?,
        None => (sell_by_tasks(options, shop).await?, None),
    };

    let audit = Audit {
        stock: shop::read(shop).await?,
        report: distlock_testkit::check(&History::read(shop::history(shop))?),
        sales,
        takeover,
        locked: !options.no_lock,
    };
    progress::say(&audit.to_string());
    Ok(audit.is_good())
}

/// Every worker is a process of its own; the lock server is all they share.
async fn sell_by_processes(options: &Options, url: &str, shop: &Path) -> Result<(Sales, Option<Takeover>)> {
    // One clear error here instead of one from each worker.
    let probe = LockManager::connect(url).await?;
    probe.shutdown(Duration::from_secs(1)).await;

    let (tell, news) = mpsc::unbounded_channel();
    let mut workers = processes::start(options, url, shop, tell)?;
    let selling = Progress::new(options.buyers_in_all()).follow(news);
    let (mut sales, takeover) = if options.kill {
        let (sales, takeover) = tokio::join!(selling, takeover::kill_a_holder(&mut workers, shop));
        (sales, Some(takeover?))
    } else {
        (selling.await, None)
    };
    let killed = takeover.as_ref().map(|takeover| takeover.killed.as_str());
    sales.failed.extend(processes::wait(workers, killed).await?);
    Ok((sales, takeover))
}

/// Every worker is a group of tasks in this process, which shares the lock with nobody.
async fn sell_by_tasks(options: &Options, shop: &Path) -> Result<Sales> {
    let locks = LockManager::in_memory();
    distlock::init(locks.clone())?;
    let (tell, news) = mpsc::unbounded_channel();
    for work in options.works(shop) {
        let tell = tell.clone();
        tokio::spawn(async move {
            worker::send_buyers(&work, |news| drop(tell.send(news))).await;
        });
    }
    drop(tell); // the news end when the last worker is done
    let sales = Progress::new(options.buyers_in_all()).follow(news).await;
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(sales)
}
