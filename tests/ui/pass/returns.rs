//! What a function may return, and what it says when the lock fails.
#![deny(warnings)]
#![allow(dead_code)]

use distlock::{LockError, Outcome, distributed_lock};

#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("parse")]
    Parse(#[from] std::num::ParseIntError),
}

type Answer<T> = Result<T, AppError>;

#[distributed_lock(key = "a:{text}")]
async fn question_marks(text: &str) -> Answer<u64> {
    let n: u64 = text.parse()?;
    if n == 0 {
        return Ok(1);
    }
    Ok(n)
}

#[distributed_lock(key = "any")]
async fn anyhow_result() -> anyhow::Result<()> {
    anyhow::ensure!(true, "x");
    if false {
        anyhow::bail!("y");
    }
    Ok(())
}

#[distributed_lock(key = "box")]
async fn coerced() -> Result<Box<dyn Fn() -> u32 + Send>, Box<dyn std::error::Error + Send + Sync>> {
    if false {
        return Err("no".into());
    }
    Ok(Box::new(|| 1))
}

#[distributed_lock(key = "nightly", on_busy = skip, on_error = skip, on_lost = finish)]
async fn unit() {
    tokio::task::yield_now().await;
}

#[distributed_lock(key = "nightly", on_busy = skip, on_error = skip, on_lost = |_| None)]
async fn option() -> Option<u32> {
    let n: Option<u32> = None;
    Some(n? + 1)
}

#[distributed_lock(key = "o", on_busy = skip)]
async fn skipped() -> Result<Outcome<u32>, AppError> {
    Ok(Outcome::Ran(1))
}

#[distributed_lock(key = "o", on_busy = skip)]
async fn skipped_unit() -> Result<(), AppError> {
    Ok(())
}

#[distributed_lock(key = "o", on_busy = skip, on_error = skip)]
async fn skipped_option() -> Result<Option<u32>, AppError> {
    Ok(None)
}

#[distributed_lock(key = "o", on_busy = skip, on_error = |err| panic!("{err}"), on_lost = finish)]
async fn outcome() -> Outcome<u32> {
    Outcome::Ran(1)
}

#[distributed_lock(key = "never", on_busy = |_| panic!(), on_error = |_| panic!(), on_lost = |_| panic!())]
async fn never() -> ! {
    loop {
        tokio::task::yield_now().await;
    }
}

#[distributed_lock(key = "p:{text}:{n}", on_busy = |busy| { other(text).await + u32::try_from(busy.key().len()).unwrap_or(n) }, on_error = |err| { if err.is_retryable() { return n; } 7 }, on_lost = |lost| u32::try_from(lost.key().len()).unwrap_or(0))]
async fn closures(text: String, n: u32) -> u32 {
    drop(text);
    n
}

async fn other(text: String) -> u32 {
    u32::try_from(text.len()).unwrap_or(0)
}

#[distributed_lock(key = "p:{text}", on_busy = |_busy| Err(parse(&text)?))]
async fn question_mark_in_a_closure(text: &str) -> Result<u64, AppError> {
    Ok(1)
}

fn parse(text: &str) -> Result<AppError, std::num::ParseIntError> {
    Err(text.parse::<u8>().unwrap_err())
}

#[distributed_lock(key = "todo")]
async fn unfinished() -> Result<(), AppError> {
    todo!()
}

#[distributed_lock(key = "impl", on_busy = |_| String::new(), on_error = |_| String::new(), on_lost = |_| String::new())]
async fn impl_trait() -> impl std::fmt::Display {
    String::from("x")
}

#[distributed_lock(key = "impl", on_busy = skip, on_error = skip, on_lost = finish)]
async fn impl_trait_of_an_option() -> impl std::fmt::Debug {
    Some(1)
}

#[distributed_lock(key = "impl", on_busy = skip, on_error = skip)]
async fn impl_trait_in_a_result() -> Result<Option<impl Iterator<Item = u8>>, AppError> {
    Ok(Some([1].into_iter()))
}

#[distributed_lock(key = "alias", on_error = skip)]
async fn alias_of_a_skip() -> Maybe<u8> {
    Ok(Some(1))
}

#[distributed_lock(key = "later", allow(deferred_work))]
async fn work_that_needs_no_lock() -> Answer<Vec<tokio::task::JoinHandle<()>>> {
    Ok(vec![tokio::spawn(async {})])
}

#[distributed_lock(key = "marker")]
async fn marker_of_work() -> Answer<std::marker::PhantomData<fn() -> tokio::task::JoinHandle<()>>> {
    Ok(std::marker::PhantomData)
}

type Maybe<T> = Result<Option<T>, AppError>;

fn main() {}
