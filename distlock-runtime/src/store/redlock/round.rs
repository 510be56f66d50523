//! One question to several servers at the same time, and their answers as they come.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

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

    /// Sends what was not sent yet.
    pub(super) async fn send(&mut self) {
        poll_fn(|context| {
            self.look(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Waits for all answers, which nobody wants to know.
    pub(super) async fn end(mut self) {
        while self.next().await.is_some() {}
    }

    /// The next answer and whose it is; `None` when all have answered.
    ///
    /// Cancel safe: an answer that has come in is not lost.
    pub(super) async fn next(&mut self) -> Option<(usize, T)> {
        poll_fn(|context| {
            self.look(context);
            match self.answered.pop_front() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if self.under_way.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    fn look(&mut self, context: &mut Context<'_>) {
        let Self { under_way, answered } = self;
        under_way.retain_mut(|(server, question)| match question.as_mut().poll(context) {
            Poll::Ready(answer) => {
                answered.push_back((*server, answer));
                false
            }
            Poll::Pending => true,
        });
    }
}
