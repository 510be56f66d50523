//! Many callers at the same moment: what they ask leaves in one command.
//!
//! A caller that is alone sends its own command, at once. In a crowd it leaves its request here; the first to do so starts a
//! task that takes along whatever the others bring until the scheduler comes to it. As many as fill a command do not wait
//! for that: the server works on them while the callers behind them have their turn. Nobody waits for an answer to be
//! under way, so a crowd costs no round trip, and saves a command for most callers.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::store::StoreError;

/// How many requests must be under way before the next ones are sent together.
const CROWD: usize = 4;

/// The most requests that one command takes along.
const MOST: usize = 32;

/// How long it may take until what has gathered is sent, before somebody else sends it.
const STALLED: Duration = Duration::from_millis(10);

/// How many requests fill a command, of so many under way: half of them, so that the server works on one half while callers
/// bring the other.
fn fill(under_way: usize) -> usize {
    (under_way / 2).clamp(CROWD, MOST)
}

/// Requests of one kind.
#[derive(Debug)]
pub(super) struct Crowd<R, A>(Mutex<State<R, A>>);

/// A request, and who wants the answer.
type Asked<R, A> = (R, oneshot::Sender<Result<A, StoreError>>);

#[derive(Debug)]
struct State<R, A> {
    under_way: usize,
    waiting: Vec<Asked<R, A>>,
    /// Who will send them, and since when.
    gathering: Option<(u64, Instant)>,
    next_id: u64,
}

impl<R, A> Default for Crowd<R, A> {
    fn default() -> Self {
        Self(Mutex::new(State { under_way: 0, waiting: Vec::new(), gathering: None, next_id: 0 }))
    }
}

/// Counts a request as under way.
pub(super) struct UnderWay<'a, R, A> {
    crowd: &'a Crowd<R, A>,
    others: usize,
}

impl<R, A> UnderWay<'_, R, A> {
    /// Whether it pays to send the request together with others.
    pub(super) fn is_crowded(&self) -> bool {
        self.others >= CROWD
    }
}

impl<R, A> Drop for UnderWay<'_, R, A> {
    fn drop(&mut self) {
        self.crowd.lock().under_way -= 1;
    }
}

impl<R, A> Crowd<R, A> {
    pub(super) fn join(&self) -> UnderWay<'_, R, A> {
        let others = {
            let mut state = self.lock();
            state.under_way += 1;
            state.under_way - 1
        };
        UnderWay { crowd: self, others }
    }

    fn lock(&self) -> MutexGuard<'_, State<R, A>> {
        // Nothing that can panic runs under the lock, so a poisoned state is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Send + 'static, A: Send + 'static> Crowd<R, A> {
    /// Has the request sent together with others; waits at most `limit` for its answer. `send` sends what has gathered and
    /// gives an answer for each request, in their order.
    ///
    /// Cancel safe in this sense: a request whose future is dropped is not sent if it was not yet.
    pub(super) async fn ask<F, S>(self: &Arc<Self>, request: R, limit: Duration, send: S) -> Result<A, StoreError>
    where
        F: Future<Output = Result<Vec<A>, StoreError>> + Send,
        S: FnOnce(Vec<R>) -> F + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        // A statement of its own: a runtime that has ended drops what it is to spawn at once, which takes the lock.
        let step = self.lock().add((request, sender));
        match step {
            Step::Wait => {}
            Step::Gather(id) => Gathering { crowd: self.clone(), id }.start(send),
            Step::Send(gathered) => drop(tokio::spawn(async move { exchange(gathered, send).await })),
        }
        match timeout(limit, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::unanswered("the runtime that asked the server has ended")),
            Err(_elapsed) => Err(StoreError::unanswered(format!("no answer within {}", crate::error::brief(limit)))),
        }
    }
}

/// What becomes of a request that was added.
enum Step<R, A> {
    /// Somebody gathers already.
    Wait,
    /// Whoever brought it gathers, as this one.
    Gather(u64),
    /// They are enough for a command.
    Send(Vec<Asked<R, A>>),
}

impl<R, A> State<R, A> {
    fn add(&mut self, asked: Asked<R, A>) -> Step<R, A> {
        self.waiting.push(asked);
        if self.waiting.len() >= fill(self.under_way) {
            // Who gathers goes on, and finds what comes after these.
            return Step::Send(std::mem::take(&mut self.waiting));
        }
        // One that has not come to it by now sits on a runtime that nobody runs.
        if self.gathering.is_some_and(|(_, since)| since.elapsed() < STALLED) {
            return Step::Wait;
        }
        self.waiting.retain(|(_, sender)| !sender.is_closed());
        self.next_id += 1;
        self.gathering = Some((self.next_id, Instant::now()));
        Step::Gather(self.next_id)
    }

    /// What this one has gathered; nothing if another one has taken over.
    fn end(&mut self, id: u64) -> Vec<Asked<R, A>> {
        if self.gathering.is_none_or(|(gathers, _)| gathers != id) {
            return Vec::new();
        }
        self.gathering = None;
        std::mem::take(&mut self.waiting)
    }
}

/// Sends the requests of those who have not given up, and tells them the answers.
async fn exchange<R, A, F, S>(gathered: Vec<Asked<R, A>>, send: S)
where
    F: Future<Output = Result<Vec<A>, StoreError>> + Send,
    S: FnOnce(Vec<R>) -> F,
{
    let wanted = gathered.into_iter().filter(|(_, sender)| !sender.is_closed());
    let (requests, senders): (Vec<_>, Vec<_>) = wanted.unzip();
    if requests.is_empty() {
        return;
    }
    match send(requests).await {
        Ok(answers) => {
            for (sender, answer) in senders.into_iter().zip(answers) {
                let _ = sender.send(Ok(answer));
            }
        }
        Err(error) => {
            for sender in senders {
                let _ = sender.send(Err(error.clone()));
            }
        }
    }
}

/// What has gathered and is not sent yet. Dropped, it tells those who wait: the runtime that should send it has ended.
struct Gathering<R, A> {
    crowd: Arc<Crowd<R, A>>,
    id: u64,
}

impl<R: Send + 'static, A: Send + 'static> Gathering<R, A> {
    fn start<F, S>(self, send: S)
    where
        F: Future<Output = Result<Vec<A>, StoreError>> + Send,
        S: FnOnce(Vec<R>) -> F + Send + 'static,
    {
        tokio::spawn(async move {
            // Behind the tasks that are ready now: what they ask goes along.
            tokio::task::yield_now().await;
            let gathered = self.crowd.lock().end(self.id);
            exchange(gathered, send).await;
        });
    }
}

impl<R, A> Drop for Gathering<R, A> {
    fn drop(&mut self) {
        let abandoned = self.crowd.lock().end(self.id);
        // Not under the lock: it wakes those who wait.
        drop(abandoned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo(requests: Vec<u32>) -> Result<Vec<u32>, StoreError> {
        Ok(requests)
    }

    #[test]
    fn a_runtime_that_nobody_runs_does_not_stop_the_others() {
        let idle = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let crowd: Arc<Crowd<u32, u32>> = Arc::default();
        let Step::Gather(id) = crowd.lock().add((0, oneshot::channel().0)) else { panic!("somebody gathers") };
        let gathering = Gathering { crowd: crowd.clone(), id };
        {
            // Leaves a task that never runs.
            let _entered = idle.enter();
            gathering.start(echo);
        }
        let driven = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = driven.block_on(async {
            tokio::time::sleep(STALLED * 2).await;
            crowd.ask(7, Duration::from_secs(5), echo).await
        });
        assert_eq!(answer.unwrap(), 7);
        // Its late end tells nobody anything that is not so.
        drop(idle);
        assert!(crowd.lock().waiting.is_empty());
    }

    #[test]
    fn a_runtime_that_has_ended_does_not_stop_its_caller() {
        let crowd: Arc<Crowd<u32, u32>> = Arc::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let (told, ended) = std::sync::mpsc::channel::<()>();
        let asked = crowd.clone();
        std::thread::spawn(move || {
            // Dropped at the end, also by the panic of a timer that the runtime has no more.
            let _told = told;
            let _entered = handle.enter();
            let mut asks = std::pin::pin!(asked.ask(1, Duration::from_secs(5), echo));
            let _ = asks.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        });
        let ended = ended.recv_timeout(Duration::from_secs(5));
        assert_eq!(ended, Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "the caller still waits for a lock");
        assert!(crowd.lock().waiting.is_empty());
    }
}
