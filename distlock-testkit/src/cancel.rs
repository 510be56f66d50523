//! Dropping a future in the middle of its work.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Polls `future` up to `polls` times, then drops it. `true` if it was ready before.
///
/// Each poll but the first waits for the future's own wake-up, so the k-th poll is the k-th real step. To drop a future
/// after each of its steps, call this with 0, 1, 2 … polls until it gives `true`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let two_steps = || tokio::task::yield_now();
/// let mut polls = 0;
/// while !distlock_testkit::dropped_after(polls, two_steps()).await {
///     polls += 1;
/// }
/// assert_eq!(polls, 2);
/// # }
/// ```
pub async fn dropped_after<F: Future>(polls: usize, future: F) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        let mut polled = false;
        let ready = poll_fn(|cx| {
            // The second time round it was woken: the step is over, and the next one belongs to the next poll.
            if polled {
                return Poll::Ready(false);
            }
            polled = true;
            future.as_mut().poll(cx).map(|_| true)
        });
        if ready.await {
            return true;
        }
    }
    false
}
