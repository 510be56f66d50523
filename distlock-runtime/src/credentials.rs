//! Who the manager is on a server, where that changes while the process runs.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::store::BoxFuture;

/// A user and a password, as a provider gives them. See [`Builder::credentials`](crate::Builder::credentials).
#[derive(Clone)]
pub struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Login {
    /// A named user of the server's access list.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// The default user, as `requirepass` has it.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

type Answer = Result<Login, Box<dyn Error + Send + Sync>>;

/// Asks for a login, once per connection.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync>);

impl Credentials {
    pub(crate) fn new<F>(provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(provider())))
    }

    pub(crate) async fn login(&self) -> Answer {
        (self.0)().await
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}
