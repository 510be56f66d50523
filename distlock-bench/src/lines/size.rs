//! What a locked call weighs: the size of its future, and how often it asks for memory.

use distlock::{LockError, LockManager, distributed_lock};

use crate::Result;
use crate::bench::Bench;
use crate::contenders::{Bare, Contender, Distlock};
use crate::report::{Line, Report};

const MARGIN: usize = 256;

/// Two functions that differ in the attribute alone, and for each pair the sizes of the futures and of the output.
macro_rules! twins {
    ($(($name:ident, $plain:ident) ($locks:ident, $n:ident $(, $arg:ident: $type:ty = $value:expr)*) -> $output:ty $body:block)*) => {
        $(
            #[distributed_lock(key = "size:{n}", ttl = "5s", manager = $locks)]
            async fn $name($locks: &LockManager, $n: u64 $(, $arg: $type)*) -> Result<$output, LockError> $body

            async fn $plain($locks: &LockManager, $n: u64 $(, $arg: $type)*) -> Result<$output, LockError> $body
        )*

        fn sizes(locks: &LockManager) -> Vec<(usize, usize, usize)> {
            vec![$({
                let locked = $name(locks, 1 $(, $value)*);
                let plain = $plain(locks, 1 $(, $value)*);
                (size_of_val(&locked), size_of_val(&plain), size_of::<Result<$output, LockError>>())
            }),*]
        }
    };
}

twins! {
    (nothing, nothing_plain) (locks, n) -> u64 {
        let _ = locks;
        Ok(n)
    }
    (arguments, arguments_plain) (locks, n, text: String = String::new(), bytes: [u8; 256] = [0; 256]) -> usize {
        let _ = locks;
        tokio::task::yield_now().await;
        Ok(text.len() + bytes.len() + n as usize)
    }
    (large_output, large_output_plain) (locks, n) -> [u8; 1024] {
        let _ = locks;
        tokio::task::yield_now().await;
        Ok([n as u8; 1024])
    }
    (large_body, large_body_plain) (locks, n) -> u8 {
        let _ = locks;
        let buffer = [n as u8; 2048];
        tokio::task::yield_now().await;
        Ok(buffer.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)))
    }
}

pub(crate) fn future(_bench: &Bench, report: &mut Report) -> Result<()> {
    let sizes = sizes(&LockManager::in_memory());
    // A future may be smaller than its plain twin and its output together.
    let beyond = |(locked, plain, output): &(usize, usize, usize)| locked.saturating_sub(plain + output);
    let worst = sizes.iter().map(beyond).max().unwrap_or_default();
    let shown: Vec<_> = sizes.iter().map(|(locked, plain, output)| format!("{locked}/{plain}/{output}")).collect();
    report.add(Line {
        line: "future of an annotated function beyond plain + output".to_owned(),
        figure: worst as f64,
        unit: "bytes",
        target: "<= 256".to_owned(),
        holds: Some(worst <= MARGIN),
        note: format!("annotated/plain/output: {}", shown.join(", ")),
        ..Line::default()
    });
    Ok(())
}

pub(crate) fn allocations(bench: &Bench, report: &mut Report) -> Result<()> {
    let server = bench.server()?;
    // Everything on this thread, whose allocations are counted: the call, and the client's own task.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = server.url();
    let (bare, ours) = runtime.block_on(async {
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((Bare::connect(&url).await?, Distlock::connect(&url).await?))
    })?;
    let (floor, floor_bytes) = count(&runtime, &bare)?;
    let (all, bytes) = count(&runtime, &ours)?;
    report.add(Line {
        line: "allocations of a locked call beyond those of the floor".to_owned(),
        figure: all - floor,
        unit: "",
        ratio: Some(all / floor),
        target: "<= 12".to_owned(),
        holds: Some(all - floor <= 12.0),
        note: format!("{all:.1} of {bytes:.0} bytes in all; the floor {floor:.1} of {floor_bytes:.0}"),
    });
    Ok(())
}

/// Allocations of a warm cycle, and their bytes.
fn count<C: Contender>(runtime: &tokio::runtime::Runtime, contender: &C) -> Result<(f64, f64)> {
    const CYCLES: u32 = 1000;
    let cycles = || {
        runtime.block_on(async {
            for _ in 0..CYCLES {
                contender.cycle(0).await?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        })
    };
    cycles()?;
    let mut outcome = Ok(());
    let counted = allocation_counter::measure(|| outcome = cycles());
    outcome?;
    Ok((counted.count_total as f64 / f64::from(CYCLES), counted.bytes_total as f64 / f64::from(CYCLES)))
}
