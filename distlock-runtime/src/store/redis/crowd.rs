//! Many callers at the same moment: what they ask leaves in one command.
//!
//! A caller that is alone sends its own command, at once. In a crowd it leaves its request here; the first to do so starts a
//! task that takes along whatever the others bring until the scheduler comes to it. Nobody waits for an answer to be under
//! way, so a crowd costs no round trip, and saves a command for each caller.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::store::StoreError;

/// How many requests must be under way before the next ones are sent together.
const CROWD: usize = 4;

/// How long it may take until what has gathered is sent, before somebody else sends it.
const STALLED: Duration = Duration::from_millis(10);

/// The most requests that one command takes along.
const MOST: usize = 64;

/// Requests of one kind.
#[derive(Debug)]
pub(super) struct Crowd<R, A>(Mutex<State<R, A>>);

#[derive(Debug)]
struct State<R, A> {
    under_way: usize,
    waiting: Vec<(R, oneshot::Sender<Result<A, StoreError>>)>,
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
        S: FnOnce(Vec<R>) -> F + Clone + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let begun = {
            let mut state = self.lock();
            state.waiting.push((request, sender));
            state.begin()
        };
        if let Some(id) = begun {
            Gathering { crowd: self.clone(), id }.start(send);
        }
        match timeout(limit, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::unanswered("the runtime that asked the server has ended")),
            Err(_elapsed) => Err(StoreError::unanswered(format!("no answer within {}", crate::error::brief(limit)))),
        }
    }
}

impl<R, A> State<R, A> {
    /// Begins to gather, unless somebody does. One that has not come to it by now sits on a runtime that nobody runs.
    fn begin(&mut self) -> Option<u64> {
        if self.gathering.is_some_and(|(_, since)| since.elapsed() < STALLED) {
            return None;
        }
        self.waiting.retain(|(_, sender)| !sender.is_closed());
        self.next_id += 1;
        self.gathering = Some((self.next_id, Instant::now()));
        Some(self.next_id)
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
        S: FnOnce(Vec<R>) -> F + Clone + Send + 'static,
    {
        tokio::spawn(async move {
            // Behind the tasks that are ready now: what they ask goes along.
            tokio::task::yield_now().await;
            let (requests, senders): (Vec<_>, Vec<_>) = self.take(send.clone()).into_iter().unzip();
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
        });
    }

    /// What one command takes along, without those who have given up. The rest is for another one.
    fn take<F, S>(self, send: S) -> Vec<(R, oneshot::Sender<Result<A, StoreError>>)>
    where
        F: Future<Output = Result<Vec<A>, StoreError>> + Send,
        S: FnOnce(Vec<R>) -> F + Clone + Send + 'static,
    {
        let (gathered, next) = {
            let mut state = self.crowd.lock();
            if state.gathering.is_none_or(|(id, _)| id != self.id) {
                // Another one has taken over.
                return Vec::new();
            }
            state.gathering = None;
            let most = MOST.min(state.waiting.len());
            let rest = state.waiting.split_off(most);
            let gathered = std::mem::replace(&mut state.waiting, rest);
            let next = if state.waiting.is_empty() { None } else { state.begin() };
            (gathered, next)
        };
        if let Some(id) = next {
            Self { crowd: self.crowd.clone(), id }.start(send);
        }
        gathered.into_iter().filter(|(_, sender)| !sender.is_closed()).collect()
    }
}

impl<R, A> Drop for Gathering<R, A> {
    fn drop(&mut self) {
        let abandoned = {
            let mut state = self.crowd.lock();
            match state.gathering {
                Some((id, _)) if id == self.id => {
                    state.gathering = None;
                    std::mem::take(&mut state.waiting)
                }
                _ => Vec::new(),
            }
        };
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
        let begun = crowd.lock().begin();
        let gathering = Gathering { crowd: crowd.clone(), id: begun.unwrap() };
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
}
