//! Certificates of a test's own: an authority that nobody else trusts, and what it has signed.

use std::fmt;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::{Error, Result};

/// An authority, a certificate for a server and one for a client. Made anew for each test, in memory.
#[derive(Clone)]
pub struct Certificates {
    pub(crate) ca: String,
    pub(crate) server: Pair,
    client: Pair,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Certificates {
    /// For a server at `127.0.0.1` and `localhost`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the system gives no randomness.
    pub fn new() -> Result<Self> {
        Self::for_names(&["127.0.0.1", "localhost"])
    }

    /// For a server that goes by these names and addresses.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and for what is no name.
    pub fn for_names(names: &[&str]) -> Result<Self> {
        make(names).map_err(|error| Error::io("make certificates")(std::io::Error::other(error)))
    }

    /// The certificate of the authority, in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// A certificate that the server knows for that of a client, in PEM.
    #[must_use]
    pub fn client_cert_pem(&self) -> &str {
        &self.client.cert
    }

    /// The key of [`client_cert_pem`](Self::client_cert_pem).
    #[must_use]
    pub fn client_key_pem(&self) -> &str {
        &self.client.key
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}

fn make(names: &[&str]) -> Result<Certificates, rcgen::Error> {
    // By its name, an authority is taken for another one of the same name.
    let mut authority = named(&[], &format!("distlock test authority {}", fastrand::u64(..)))?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let signed = |params: CertificateParams| -> Result<Pair, rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok(Pair { cert: params.signed_by(&key, &authority)?.pem(), key: key.serialize_pem() })
    };
    Ok(Certificates {
        ca: authority.pem(),
        server: signed(named(names, "distlock test server")?)?,
        client: signed(named(&[], "distlock test client")?)?,
    })
}

fn named(names: &[&str], common: &str) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, common);
    Ok(params)
}
