//! How many commands an uncontended call sends, as the server sees them.

use crate::Result;
use crate::bench::Bench;
use crate::contenders::{Contender, Distlock};
use crate::report::{Line, Report};

const CALLS: usize = 200;

pub(crate) fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    let url = server.url();
    let sent = bench.runtime()?.block_on(async {
        let ours = Distlock::connect(&url).await?;
        // The first call brings the scripts.
        ours.cycle(0).await?;
        let mut monitor = server.monitor()?;
        for key in 0..CALLS {
            ours.cycle(key as u64).await?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(monitor.sent()?.len())
    })?;
    report.add(Line {
        line: "round trips of an uncontended call".to_owned(),
        figure: sent as f64 / CALLS as f64,
        unit: "commands",
        target: "= 2".to_owned(),
        holds: Some(sent == 2 * CALLS),
        note: format!("{sent} commands of {CALLS} calls in MONITOR"),
        ..Line::default()
    });
    Ok(())
}
