//! What a user says about encrypted connections. How they are made is the store's business.

// Where TLS is not built in, settings are taken and refused as a whole.
#![cfg_attr(not(feature = "tls-rustls"), allow(dead_code))]

use std::fmt;
use std::path::PathBuf;

/// Whom encrypted connections trust, and what they show of themselves. Given to [`Builder::tls`](crate::Builder::tls),
/// with a `rediss://` URL.
///
/// A `rediss://` URL alone trusts the authorities of the system, or those of Mozilla's list where the system has none. A
/// server's certificate is always checked, and there is no setting that turns this off.
///
/// Everything is PEM. Files are read when the manager is built, and again for each later connection, so that a renewed
/// certificate is used without a restart.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::{LockManager, Tls};
///
/// let tls = Tls::new().ca_file("/etc/locks/ca.pem").client_cert_files("/etc/locks/app.pem", "/etc/locks/app.key");
/// let builder = LockManager::builder().url("rediss://locks.internal:6380").tls(tls);
/// # let _ = builder;
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Tls {
    pub(crate) authorities: Vec<Pem>,
    pub(crate) client: Option<ClientCert>,
}

#[derive(Clone)]
pub(crate) struct ClientCert {
    pub(crate) chain: Pem,
    pub(crate) key: Pem,
}

/// A text in PEM, or where it is.
#[derive(Clone)]
pub(crate) enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

impl Tls {
    /// Trusts the authorities of the system, and shows no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificates in `pem`, instead of those of the system. May be given several times.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities.push(Pem::Text(pem.into()));
        self
    }

    /// Trusts the certificates in a file, instead of those of the system. May be given several times.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authorities.push(Pem::File(path.into()));
        self
    }

    /// Shows a certificate, with the chain that leads to the server's authority, for a server that asks for one.
    pub fn client_cert(mut self, cert_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.client = Some(ClientCert { chain: Pem::Text(cert_pem.into()), key: Pem::Text(key_pem.into()) });
        self
    }

    /// As [`client_cert`](Self::client_cert), from files.
    pub fn client_cert_files(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client = Some(ClientCert { chain: Pem::File(cert.into()), key: Pem::File(key.into()) });
        self
    }
}

impl fmt::Debug for Tls {
    /// Without any text of a certificate or key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.len())
            .field("client_cert", &self.client.is_some())
            .finish()
    }
}

#[cfg(feature = "tls-rustls")]
impl Tls {
    /// Whether there is something to read again for a later connection.
    pub(crate) fn has_files(&self) -> bool {
        let client = self.client.iter().flat_map(|client| [&client.chain, &client.key]);
        self.authorities.iter().chain(client).any(|pem| matches!(pem, Pem::File(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_key_is_shown() {
        let tls = Tls::new().ca_pem("AUTHORITY").client_cert("CERTIFICATE", "PRIVATE");
        let shown = format!("{tls:?} {:?}", crate::LockManager::builder().tls(tls.clone()));
        for secret in ["AUTHORITY", "CERTIFICATE", "PRIVATE", "80, 82, 73"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
