//! What the user sees: a line for each coupon and, on a terminal, a bar below them.

use std::io::{self, IsTerminal as _, Write as _};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::COUPONS;
use crate::news::{News, Sales};

/// Width of the bar between its brackets.
const WIDTH: usize = 30;

/// Prints a line. A reader who has gone away, as in `coupon | head -1`, is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Shows how far the sale is.
pub(crate) struct Progress {
    buyers: usize,
    bar: bool,
}

impl Progress {
    pub(crate) fn new(buyers: usize) -> Self {
        Self { buyers, bar: io::stderr().is_terminal() && io::stdout().is_terminal() }
    }

    /// Shows all news until the last worker is done, and gives what they add up to.
    pub(crate) async fn follow(self, mut news: UnboundedReceiver<News>) -> Sales {
        let mut sales = Sales::default();
        self.draw(&sales);
        while let Some(news) = news.recv().await {
            if let News::Issued { coupon, token, waited, buyer } = &news {
                self.clear();
                let token = if *token == 0 { "none".to_owned() } else { token.to_string() };
                say(&format!("coupon {coupon:>2}  {buyer:<20} token {token:<18} waited {} ms", waited.as_millis()));
            }
            sales.add(news);
            self.draw(&sales);
        }
        self.clear();
        sales
    }

    fn draw(&self, sales: &Sales) {
        if self.bar {
            let done = WIDTH * sales.served().min(self.buyers) / self.buyers.max(1);
            let (full, rest) = ("#".repeat(done), "-".repeat(WIDTH - done));
            let (issued, served, buyers) = (sales.receipts.len(), sales.served(), self.buyers);
            let _ = write!(io::stderr(), "\r\x1b[K[{full}{rest}] {issued}/{COUPONS} coupons, {served}/{buyers} buyers");
        }
    }

    fn clear(&self) {
        if self.bar {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
