//! The audit at the end: what the shop's file, the buyers and the history of the lock say, held against each other.

use std::collections::BTreeSet;
use std::fmt;

use distlock_testkit::Report;

use crate::news::Sales;
use crate::shop::Stock;
use crate::takeover::Takeover;
use crate::{COUPONS, TTL};

/// All that is known about a sale when it is over.
pub(crate) struct Audit {
    pub(crate) stock: Stock,
    pub(crate) sales: Sales,
    pub(crate) report: Report,
    pub(crate) takeover: Option<Takeover>,
    pub(crate) locked: bool,
}

impl Audit {
    /// Coupons given out: those in the file, for a buyer who was killed has no receipt, and those on receipts, for
    /// without a lock one sale overwrites another's entry.
    fn issued(&self) -> usize {
        self.stock.sold.iter().chain(&self.sales.receipts).collect::<BTreeSet<_>>().len()
    }

    fn oversold(&self) -> usize {
        self.issued().saturating_sub(COUPONS)
    }

    /// True when the sale went as it should.
    pub(crate) fn is_good(&self) -> bool {
        self.issued() == COUPONS
            && self.stock.left == 0
            && self.sales.failed.is_empty()
            && self.report.grants() > 0
            && self.report.is_clean()
            && self.takeover.as_ref().is_none_or(Takeover::is_in_time)
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sales, report, .. } = self;
        let (lease, entered) = if self.locked { ("leases", "granted") } else { ("entries", "without a lock") };
        writeln!(f, "\naudit")?;
        writeln!(f, "  issued    {} of {COUPONS}, the shop has {} left", self.issued(), self.stock.left)?;
        writeln!(f, "  oversold  {}", self.oversold())?;
        writeln!(f, "  {lease:<9} {} {entered}, by {} workers", report.grants(), report.processes())?;
        writeln!(f, "  overlaps  {}", report.overlaps())?;
        if self.locked {
            let rising = report.violations().len() == report.overlaps();
            writeln!(f, "  tokens    {}", if rising { "rising" } else { "NOT rising" })?;
            for violation in report.violations().iter().take(3) {
                writeln!(f, "            {violation}")?;
            }
        }
        if let Some(takeover) = &self.takeover {
            let (killed, ttl, limit) = (&takeover.killed, TTL.as_secs(), Takeover::limit().as_millis());
            match &takeover.next {
                Some((next, after)) => {
                    let (after, verdict) = (after.as_millis(), if takeover.is_in_time() { "" } else { ": TOO LATE" });
                    writeln!(
                        f,
                        "  takeover  {next} {after} ms after {killed} was killed (ttl {ttl} s, at most {limit} ms){verdict}"
                    )?;
                }
                None => writeln!(f, "  takeover  NONE after {killed} was killed")?,
            }
        }
        if !sales.failed.is_empty() {
            writeln!(f, "  failed    {}, the first: {}", sales.failed.len(), sales.failed[0])?;
        }
        f.write_str(match (self.is_good(), self.locked) {
            (true, true) => "  verdict   the lock held",
            (true, false) => "  verdict   lucky: nothing was oversold, although nothing prevented it",
            (false, true) => "  verdict   THE SALE WENT WRONG",
            (false, false) => "  verdict   OVERSOLD, as was to be expected without the lock",
        })
    }
}
