//! Certificates of a test's own: an authority that nobody else trusts, and what it has signed.

use std::fmt;
use std::ops::Range;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};

use crate::{Error, Result};

/// What a server on this machine goes by.
const HERE: [&str; 2] = ["127.0.0.1", "localhost"];

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
        Self::for_names(&HERE)
    }

    /// For a server that goes by these names and addresses.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and for what is no name.
    pub fn for_names(names: &[&str]) -> Result<Self> {
        make(names, None)
    }

    /// For a server as that of [`new`](Self::new), whose certificate counts from the beginning of the one year to that of the
    /// other, as `2001..2002` for one that has expired. The authority and the client's certificate count now.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn for_years(years: Range<i32>) -> Result<Self> {
        make(&HERE, Some(years))
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

fn make(names: &[&str], years: Option<Range<i32>>) -> Result<Certificates> {
    sign(names, years).map_err(|error| Error::io("make certificates")(std::io::Error::other(error)))
}

fn sign(names: &[&str], years: Option<Range<i32>>) -> Result<Certificates, rcgen::Error> {
    // By its name, an authority is taken for another one of the same name.
    let mut authority = named(&[], &format!("distlock test authority {}", fastrand::u64(..)))?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let signed = |params: CertificateParams| -> Result<Pair, rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok(Pair { cert: params.signed_by(&key, &authority)?.pem(), key: key.serialize_pem() })
    };
    let mut server = named(names, "distlock test server")?;
    if let Some(years) = years {
        (server.not_before, server.not_after) = (date_time_ymd(years.start, 1, 1), date_time_ymd(years.end, 1, 1));
    }
    Ok(Certificates {
        ca: authority.pem(),
        server: signed(server)?,
        client: signed(named(&[], "distlock test client")?)?,
    })
}

fn named(names: &[&str], common: &str) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, common);
    Ok(params)
}
