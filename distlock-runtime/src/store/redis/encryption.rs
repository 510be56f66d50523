//! TLS between the client crate and a socket.
//!
//! The client crate takes its cryptography from a setting of the whole process, and panics where a program has two kinds
//! or none. So the stream is made here, with a provider of its own, and handed to the client crate.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, CertificateError, ClientConfig, RootCertStore};

use super::stream::dial;
use crate::store::{StoreError, StoreErrorKind};
use crate::tls::{Pem, Tls};

/// How encrypted connections are made.
#[derive(Clone)]
pub(crate) struct Encryption {
    settings: Tls,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Encryption").field(&self.settings).finish()
    }
}

impl Encryption {
    /// Reads what the settings name.
    pub(crate) fn new(settings: Tls) -> Result<Self, StoreError> {
        let config = Arc::new(configure(&settings)?);
        Ok(Self { settings, config })
    }

    /// An encrypted stream to the server, whose certificate is for `host`.
    pub(super) async fn connect(&self, host: &str, port: u16) -> Result<TlsStream<TcpStream>, StoreError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            config_error(format!("`{host}` cannot be the name in a certificate; write a host name or an address"))
        })?;
        let config = self.current().await;
        let stream = dial(host, port).await.map_err(|error| unavailable(&error))?;
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| handshake_failed(&error))
    }

    /// With the files as they are now: a certificate may have been renewed. One that cannot be read at this moment, for it
    /// is being written, is used as it was. Read where it may block: a slow disk must not stop the renewals, which share the
    /// thread of the one who asks.
    async fn current(&self) -> Arc<ClientConfig> {
        if !self.settings.has_files() {
            return self.config.clone();
        }
        let settings = self.settings.clone();
        let again = tokio::task::spawn_blocking(move || configure(&settings)).await;
        match again {
            Ok(Ok(again)) => Arc::new(again),
            // It cannot be read, or the runtime is ending.
            Ok(Err(_)) | Err(_) => self.config.clone(),
        }
    }
}

fn configure(settings: &Tls) -> Result<ClientConfig, StoreError> {
    let roots =
        if settings.authorities.is_empty() { system_roots().clone() } else { authorities(&settings.authorities)? };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| config_error(format!("TLS cannot be used: {error}")))?
        .with_root_certificates(roots);
    let Some(client) = &settings.client else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(&client.chain, "the client certificate")?;
    let key = read(&client.key, "the key of the client certificate")?;
    // Without the reason, which may repeat what it could not read.
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
        config_error("the key of the client certificate is no private key in PEM; give the text that begins with `-----BEGIN PRIVATE KEY-----`, without a passphrase")
    })?;
    builder.with_client_auth_cert(chain, key).map_err(|_| {
        config_error("the client certificate and its key cannot be used together; give the certificate that belongs to the key, first in its chain")
    })
}

/// The system's authorities; Mozilla's where the system has none, as in a small container.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        roots
    })
}

fn authorities(pems: &[Pem]) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    for pem in pems {
        for certificate in certificates(pem, "the certificate of the authority")? {
            roots.add(certificate).map_err(|_| {
                config_error("the certificate of the authority cannot be used as one; give the certificate that the server's was signed with")
            })?;
        }
    }
    Ok(roots)
}

/// All certificates of a PEM text; at least one.
fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let text = read(pem, what)?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().unwrap_or_default();
    if certificates.is_empty() {
        return Err(config_error(format!(
            "{what} is no certificate in PEM; give the text that begins with `-----BEGIN CERTIFICATE-----`, or the path of a file with it through the method that takes files"
        )));
    }
    Ok(certificates)
}

fn read(pem: &Pem, what: &str) -> Result<Vec<u8>, StoreError> {
    match pem {
        Pem::Text(text) => Ok(text.clone()),
        Pem::File(path) => std::fs::read(path).map_err(|error| {
            config_error(format!(
                "{what} cannot be read from `{}` ({error}); check the path and the permissions",
                path.display()
            ))
        }),
    }
}

/// What an unfinished handshake means.
fn handshake_failed(error: &io::Error) -> StoreError {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            // A server that is being killed does so, and a balancer without one behind it. A plain port does, too.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => StoreError::new(
                StoreErrorKind::Unavailable,
                "the server ended the connection instead of beginning TLS; if it goes on doing so while it runs, check that this is its TLS port, or write `redis://`",
            ),
            _ => unavailable(error),
        };
    };
    match error {
        rustls::Error::InvalidCertificate(problem) => config_error(match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => "the server's certificate is signed by an authority that is not trusted; give it with `Builder::tls(Tls::new().ca_file(\"ca.pem\"))`".to_owned(),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => "the server's certificate is for another name; connect by the name in the certificate, or issue one for this name".to_owned(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the server's certificate has expired; renew it, or set this machine's clock".to_owned(),
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "the server's certificate is not valid yet; set this machine's clock".to_owned(),
            other => format!("the server's certificate is refused ({other}); issue another one"),
        }),
        rustls::Error::InvalidMessage(_) => {
            config_error("the server does not speak TLS at this port; give its TLS port, or write `redis://`")
        }
        rustls::Error::AlertReceived(alert) => client_refused(&format!("{alert:?}")),
        other => config_error(format!("no TLS connection can be agreed on ({other}); check the server's `tls-` settings")),
    }
}

/// The server ended TLS with an alert: before its handshake was over, or, as TLS 1.3 has it, after.
fn client_refused(alert: &str) -> StoreError {
    if alert.contains("CertificateRequired") || alert.contains("HandshakeFailure") || alert.contains("BadCertificate") {
        return StoreError::new(
            StoreErrorKind::Permission,
            "a TLS connection without a certificate that it knows; give one with `Builder::tls(Tls::new().client_cert_files(\"app.pem\", \"app.key\"))`",
        );
    }
    StoreError::new(
        StoreErrorKind::Permission,
        format!(
            "the TLS connection ({alert}); check the client certificate, its authority and the server's `tls-` settings"
        ),
    )
}

/// Reads an alert out of the text of an error that the client crate wrapped.
pub(super) fn alert_in(text: &str) -> Option<StoreError> {
    text.split_once("received fatal alert: ").map(|(_, alert)| client_refused(alert))
}

fn config_error(text: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Config, text)
}

fn unavailable(error: &io::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, error.to_string())
}
