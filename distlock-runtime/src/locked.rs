//! One locked call as a future: acquire, poll the body under the deadline, release.
//!
//! [`Locked`] holds the body itself, not a box of it, and is the only thing that polls it. The clock is read before
//! each of those polls, so no step of the body starts after the deadline, whatever the runtime did in between.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::acquire::{Holding, Intent};
use crate::error::{Busy, LockError, Lost};
use crate::grant::View;
use crate::held;
use crate::key::Keys;
use crate::lease::Lease;
use crate::manager::LockManager;
use crate::release::{Release, release, release_in_background};
use crate::settings::{Settings, Span};
use crate::store::BoxFuture;

/// A locked call before it starts.
#[derive(Debug)]
#[doc(hidden)]
pub struct Call {
    /// Boxed, for it becomes part of a boxed future anyway, and every caller's future would carry it.
    intent: Result<Box<Intent>, LockError>,
    start: Start,
}

impl Call {
    /// Puts together what the call needs. A fault in any part is kept and becomes the call's outcome; nothing is sent
    /// then, nor before the first poll.
    pub fn new(
        manager: Result<LockManager, LockError>,
        key: Result<Keys, LockError>,
        settings: Settings,
        function: impl Into<Cow<'static, str>>,
    ) -> Self {
        let intent = || Intent::new(&manager?, &key?, &settings, function.into()).map(Box::new);
        Self { intent: intent(), start: Start::default() }
    }

    /// Where the body learns how the call began.
    pub fn start(&self) -> Start {
        self.start.clone()
    }
}

/// How a call began, for the body that was made before it did.
#[derive(Clone, Default)]
#[doc(hidden)]
pub struct Start(Arc<OnceLock<Result<View, LockError>>>);

impl Start {
    /// Called by the body in its first poll, when the answer is there.
    pub fn open<L>(&self) -> Opened<L> {
        match self.0.get() {
            Some(Ok(view)) => Opened::Held(Lease::view(view.clone())),
            Some(Err(LockError::Busy(busy))) => Opened::Busy(busy.clone()),
            Some(Err(error)) => Opened::Failed(error.clone()),
            // Polled by something else than its call: there is no lease, so there is no body.
            None => Opened::Failed(
                crate::error::Config::new(
                    "the body of a locked function was polled outside of its lock; await the function itself",
                )
                .into(),
            ),
        }
    }

    fn set(&self, start: Result<View, LockError>) {
        // A call starts once, so this is the only time.
        let _ = self.0.set(start);
    }
}

impl Start {
    /// As [`open`](Self::open), of what the key's type says.
    pub fn open_for<L>(&self, _witness: PhantomData<fn() -> L>) -> Opened<L> {
        self.open()
    }
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Start")
    }
}

/// How a call began.
#[derive(Debug)]
#[doc(hidden)]
pub enum Opened<L> {
    /// With a lease; this view of it releases nothing.
    Held(Lease<L>),
    /// Not: somebody else holds the key.
    Busy(Busy),
    /// Not, for another reason.
    Failed(LockError),
}

/// How the end of a call becomes the value that its caller gets.
#[doc(hidden)]
pub trait Verdict<T> {
    /// That value.
    type Output;

    /// Which way the body went that ended so, for what becomes of the key.
    fn ending(&self, _output: &T) -> Ending {
        Ending::Either
    }

    /// The body ran to its end.
    fn finished(&self, output: T) -> Self::Output;

    /// There was no lease. `Err` hands the error back: the body is polled without a lease, to make the value itself out
    /// of what [`Start::open`] tells it.
    fn refused(&self, error: LockError) -> Result<Self::Output, LockError>;

    /// Whether the loss of the lease ends the body.
    fn cancels_on_loss(&self) -> bool;

    /// The lease was lost and the body dropped.
    fn lost(&self, error: LockError) -> Self::Output;
}

/// Which way a body went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Ending {
    /// It gave `Ok`.
    Ok,
    /// It gave `Err`.
    Err,
    /// Nobody asks.
    Either,
}

/// The verdict of a call by hand: `Result<T, LockError>`, as a time-out gives it.
#[derive(Clone, Copy, Debug, Default)]
#[doc(hidden)]
pub struct ByHand;

impl<T> Verdict<T> for ByHand {
    type Output = Result<T, LockError>;

    fn finished(&self, output: T) -> Self::Output {
        Ok(output)
    }

    fn refused(&self, error: LockError) -> Result<Self::Output, LockError> {
        Ok(Err(error))
    }

    fn cancels_on_loss(&self) -> bool {
        true
    }

    fn lost(&self, error: LockError) -> Self::Output {
        Err(error)
    }
}

pin_project! {
    /// A future that runs under a lock. Made by [`Lock::around`](crate::Lock::around); `Send` when the body is.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any point, it drops the body and gives the key back in the background.
    #[must_use = "futures do nothing unless polled"]
    pub struct Locked<F, V = ByHand>
    where
        F: Future,
    {
        // Stands before `stage`: whatever drops this struct drops the body before the lease.
        #[pin]
        body: Option<F>,
        stage: Stage,
        output: Option<F::Output>,
        start: Start,
        verdict: V,
    }
}

enum Stage {
    /// Not polled yet.
    New(Result<Box<Intent>, LockError>),
    Acquiring(BoxFuture<'static, Result<Holding, LockError>>),
    /// The body runs under a lease.
    Running(Hold),
    /// There is no lease, and the body makes the value of that.
    Refused,
    /// The body has ended and the key is being given back.
    Releasing(BoxFuture<'static, Result<Release, LockError>>),
    Done,
}

/// The lease of a running body. Released in the background when dropped.
struct Hold(Holding);

impl Hold {
    /// One step of the body, unless the deadline has passed. The body may also end after it, in a step that began before
    /// it; that is a lost lease all the same.
    fn poll<F: Future>(
        &self,
        body: Pin<&mut Option<F>>,
        cancels_on_loss: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<F::Output, Lost>> {
        let Some(body) = body.as_pin_mut() else { return Poll::Pending };
        let grant = self.0.grant();
        grant.inner.watchdog.keep_running();
        if cancels_on_loss {
            grant.wake_on_loss(cx.waker());
        }
        let output = {
            let _held = held::enter(grant);
            let _polling = grant.poll_body();
            // The last thing before the step: whatever delays this thread until here cannot make the step stale.
            if cancels_on_loss && let Err(lost) = grant.check() {
                return Poll::Ready(Err(lost));
            }
            ready!(body.poll(cx))
        };
        Poll::Ready(if cancels_on_loss { grant.check().map(|()| output) } else { Ok(output) })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Holding::Own(grant) = &self.0 {
            release_in_background(grant);
        }
    }
}

impl<F: Future, V> Locked<F, V> {
    /// Runs `body` under the lock that `call` names.
    #[doc(hidden)]
    pub fn new(call: Call, verdict: V, body: F) -> Self {
        let Call { intent, start } = call;
        Self { body: Some(body), stage: Stage::New(intent), output: None, start, verdict }
    }

    /// Runs `body` under a lease that is there already, and releases it.
    pub(crate) fn under(holding: Holding, verdict: V, body: F) -> Self {
        Self { body: Some(body), stage: Stage::Running(Hold(holding)), output: None, start: Start::default(), verdict }
    }
}

impl<F: Future, V: Verdict<F::Output>> Future for Locked<F, V> {
    type Output = V::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<V::Output> {
        let mut this = self.project();
        loop {
            match this.stage {
                Stage::New(_) => {
                    let Stage::New(intent) = std::mem::replace(this.stage, Stage::Done) else { continue };
                    *this.stage = Stage::Acquiring(match intent {
                        Ok(intent) => Box::pin(intent.acquire()),
                        Err(error) => Box::pin(std::future::ready(Err(error))),
                    });
                }
                Stage::Acquiring(acquiring) => match ready!(acquiring.as_mut().poll(cx)) {
                    Ok(holding) => {
                        let hold = Hold(holding);
                        this.start.set(Ok(hold.0.view()));
                        *this.stage = Stage::Running(hold);
                    }
                    Err(error) => {
                        *this.stage = Stage::Done;
                        match this.verdict.refused(error) {
                            Ok(output) => {
                                this.body.set(None);
                                return Poll::Ready(output);
                            }
                            Err(error) => {
                                this.start.set(Err(error));
                                *this.stage = Stage::Refused;
                            }
                        }
                    }
                },
                Stage::Running(hold) => match ready!(hold.poll(this.body.as_mut(), this.verdict.cancels_on_loss(), cx))
                {
                    Ok(output) => {
                        this.body.set(None);
                        *this.stage = match &hold.0 {
                            Holding::Own(grant) => {
                                let keep = match this.verdict.ending(&output) {
                                    Ending::Ok => grant.plan.after_ok,
                                    Ending::Err => grant.plan.after_err,
                                    Ending::Either => None,
                                };
                                Stage::Releasing(Box::pin(release(grant, keep.map(Span::get))))
                            }
                            // The outermost call gives the key back.
                            Holding::Shared(_) => Stage::Done,
                        };
                        *this.output = Some(output);
                    }
                    Err(lost) => {
                        this.body.set(None);
                        *this.stage = Stage::Done;
                        return Poll::Ready(this.verdict.lost(lost.into()));
                    }
                },
                Stage::Refused => {
                    let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Pending };
                    let output = ready!(body.poll(cx));
                    this.body.set(None);
                    *this.stage = Stage::Done;
                    return Poll::Ready(this.verdict.finished(output));
                }
                Stage::Releasing(releasing) => {
                    // Whatever became of the release, the body's outcome stands; a failure goes on in the background.
                    let _ = ready!(releasing.as_mut().poll(cx));
                    *this.stage = Stage::Done;
                }
                Stage::Done => {
                    return match this.output.take() {
                        Some(output) => Poll::Ready(this.verdict.finished(output)),
                        // Polled again after its end, which no executor does.
                        None => Poll::Pending,
                    };
                }
            }
        }
    }
}
