//! What workers tell: a line each when they are processes, and what it adds up to.

use std::fmt;
use std::time::Duration;

/// What became of one buyer.
#[derive(Debug)]
pub(crate) enum News {
    Issued { coupon: usize, token: u64, waited: Duration, buyer: String },
    SoldOut { buyer: String },
    Failed { buyer: String, why: String },
}

impl fmt::Display for News {
    /// The line that [`News::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Issued { coupon, token, waited, buyer } => {
                write!(f, "issued {buyer} {coupon} {token} {}", waited.as_millis())
            }
            Self::SoldOut { buyer } => write!(f, "sold-out {buyer}"),
            Self::Failed { buyer, why } => write!(f, "failed {buyer} {}", why.replace('\n', " ")),
        }
    }
}

impl News {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        let (buyer, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let buyer = buyer.to_owned();
        match kind {
            "issued" => {
                let mut numbers = rest.split(' ');
                Some(Self::Issued {
                    coupon: numbers.next()?.parse().ok()?,
                    token: numbers.next()?.parse().ok()?,
                    waited: Duration::from_millis(numbers.next()?.parse().ok()?),
                    buyer,
                })
            }
            "sold-out" => Some(Self::SoldOut { buyer }),
            "failed" => Some(Self::Failed { buyer, why: rest.to_owned() }),
            _ => None,
        }
    }
}

/// All the news of a sale.
#[derive(Debug, Default)]
pub(crate) struct Sales {
    /// Coupon and buyer, as the buyers were told.
    pub(crate) receipts: Vec<(usize, String)>,
    /// How many buyers were told that there is none left.
    pub(crate) sold_out: usize,
    /// Who failed, and why.
    pub(crate) failed: Vec<String>,
}

impl Sales {
    pub(crate) fn add(&mut self, news: News) {
        match news {
            News::Issued { coupon, buyer, .. } => self.receipts.push((coupon, buyer)),
            News::SoldOut { .. } => self.sold_out += 1,
            News::Failed { buyer, why } => self.failed.push(format!("{buyer}: {why}")),
        }
    }

    /// How many buyers have had their answer.
    pub(crate) fn served(&self) -> usize {
        self.receipts.len() + self.sold_out + self.failed.len()
    }
}
