//! The shop: a file with the stock, which oversells when two buyers read it before either has written.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock::Lease;
use distlock_testkit::{Holding, Recorder};

use crate::TTL;

/// What the file says: how many coupons are left, and who has the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stock {
    pub(crate) left: usize,
    /// Number of the coupon and name of its buyer.
    pub(crate) sold: Vec<(usize, String)>,
}

impl Stock {
    /// Takes a coupon from the stock; gives its number.
    pub(crate) fn sell_to(&mut self, buyer: &str) -> usize {
        let coupon = self.sold.len() + 1;
        self.sold.push((coupon, buyer.to_owned()));
        self.left -= 1;
        coupon
    }

    /// One line `left 7`, then one line `1 worker-2/buyer-5` for each coupon sold.
    fn to_text(&self) -> String {
        let mut text = format!("left {}\n", self.left);
        for (coupon, buyer) in &self.sold {
            let _ = writeln!(text, "{coupon} {buyer}"); // a String takes everything
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let left = lines.next()?.strip_prefix("left ")?.parse().ok()?;
        let sold = lines.map(|line| {
            let (coupon, buyer) = line.split_once(' ')?;
            Some((coupon.parse().ok()?, buyer.to_owned()))
        });
        Some(Self { left, sold: sold.collect::<Option<_>>()? })
    }
}

/// The shop as one worker sees it.
pub(crate) struct Shop {
    folder: PathBuf,
    worker: String,
    key: String,
    records: Recorder,
    /// How long a sale takes between the read and the write.
    pub(crate) think: Duration,
}

impl Shop {
    pub(crate) fn enter(folder: &Path, worker: &str, campaign: &str, think: Duration) -> io::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            worker: worker.to_owned(),
            key: format!("coupon:{campaign}"),
            records: Recorder::open_as(history(folder), worker)?,
            think,
        })
    }

    /// Notes in the history that a sale begins. Without a lease the buyer believes, wrongly, to be alone all the same.
    pub(crate) fn note_entry(&self, lease: Option<&Lease>) -> io::Result<Holding> {
        match lease {
            Some(lease) => self.records.granted(lease.key(), lease.fencing_token(), lease.remaining()),
            None => self.records.granted(&self.key, 0, TTL),
        }
    }

    pub(crate) async fn read(&self) -> io::Result<Stock> {
        read(&self.folder).await
    }

    /// Replaces the file as a whole, so that a worker killed in the middle leaves no half of it.
    pub(crate) async fn write(&self, stock: &Stock) -> io::Result<()> {
        // Named for worker and sale: without the lock several sales of one worker write at once.
        let sale = stock.sold.last().map_or("", |(_, buyer)| buyer).replace('/', "-");
        let new = self.folder.join(format!("stock-{}-{sale}", self.worker));
        tokio::fs::write(&new, stock.to_text()).await?;
        tokio::fs::rename(&new, file(&self.folder)).await
    }
}

/// Opens a shop with so many coupons in an empty folder.
pub(crate) async fn open(folder: &Path, coupons: usize) -> io::Result<()> {
    tokio::fs::write(file(folder), Stock { left: coupons, sold: Vec::new() }.to_text()).await
}

/// Reads the stock.
pub(crate) async fn read(folder: &Path) -> io::Result<Stock> {
    let text = tokio::fs::read_to_string(file(folder)).await?;
    Stock::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no stock: `{text}`")))
}

/// Where the workers note who held the lock when.
pub(crate) fn history(folder: &Path) -> PathBuf {
    folder.join("history")
}

fn file(folder: &Path) -> PathBuf {
    folder.join("stock")
}
