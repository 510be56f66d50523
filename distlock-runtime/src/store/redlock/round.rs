//! One question to several servers at the same time, and their answers as they come.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use crate::store::BoxFuture;

/// What is still under way, and what has come in. All questions leave with the first poll.
pub(super) struct Round<T> {
    under_way: Vec<(usize, BoxFuture<'static, T>)>,
    answered: VecDeque<(usize, T)>,
}

impl<T> Round<T> {
    /// Asks the servers of these numbers.
    pub(super) fn new(questions: impl IntoIterator<Item = (usize, BoxFuture<'static, T>)>) -> Self {
        Self { under_way: questions.into_iter().collect(), answered: VecDeque::new() }
    }

    /// The next answer and whose it is; `None` when all have answered.
    ///
    /// Cancel safe: an answer that has come in is not lost.
    pub(super) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|context| {
            let Self { under_way, answered } = self;
            under_way.retain_mut(|(server, question)| match question.as_mut().poll(context) {
                Poll::Ready(answer) => {
                    answered.push_back((*server, answer));
                    false
                }
                Poll::Pending => true,
            });
            match answered.pop_front() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if under_way.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }
}
