//! Where this hub is reached from outside, and by whom it is certified there: as agents, tokens and kubeconfigs are told.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use tideline_common::limits::{AUTHORITY_BYTES_MAX, HUB_ADDRESSES_MAX};
use tideline_common::wire::v1::HubAddresses;
use tideline_common::{Authority, HubUrl};
use tideline_runtime::tls::{self, DamagedPem, UnusableAuthority};

use crate::identity::Identity;

/// Authorities of whoever ends TLS before this hub: what remains beside the hub's own, and the one that it had or will have.
const PUBLIC_AUTHORITIES_MAX: usize = HUB_ADDRESSES_MAX - 2;

/// Who certifies the public URLs, where something else than this hub ends TLS there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicCa {
    /// One that every system trusts.
    System,
    /// Those in this PEM file.
    File(PathBuf),
}

impl std::str::FromStr for PublicCa {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "system" { Self::System } else { Self::File(PathBuf::from(text)) })
    }
}

impl fmt::Display for PublicCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--public-url names {0} addresses; agents are told of {HUB_ADDRESSES_MAX} at most")]
    Urls(usize),
    #[error("cannot read the file {path:?} of --public-ca")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the file {path:?} of --public-ca cannot be read as PEM")]
    Damaged { path: PathBuf, source: DamagedPem },
    #[error("agents cannot use certificate {number} of the file {path:?} of --public-ca; leave it out")]
    Unusable { path: PathBuf, number: usize, source: UnusableAuthority },
    #[error(
        "certificate {number} of the file {path:?} of --public-ca has more than {AUTHORITY_BYTES_MAX} bytes, and agents take \
         none so large"
    )]
    TooLarge { path: PathBuf, number: usize },
    #[error("the file {0:?} of --public-ca holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate(PathBuf),
    #[error(
        "the file {path:?} of --public-ca holds {found} certificates; give the one to {PUBLIC_AUTHORITIES_MAX} \
         that certify the public URLs"
    )]
    Authorities { path: PathBuf, found: usize },
}

/// Where this hub is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// At least one; clients are told of the first.
    pub(crate) urls: Vec<HubUrl>,
    /// Whether they were given. Where a hub listens says nothing to those that are elsewhere.
    public: bool,
    /// The hub's own first.
    pub(crate) authorities: Vec<Authority>,
    /// Kubernetes clients that are told of authorities trust no others. None: they trust the system's.
    pub(crate) client_bundle: Option<String>,
}

impl Addresses {
    /// Where no public URL is given, this hub is reached where it listens.
    pub(crate) fn new(
        public_urls: &[HubUrl],
        public_ca: Option<&PublicCa>,
        identity: &Identity,
        listening: HubUrl,
    ) -> Result<Self, Error> {
        if public_urls.len() > HUB_ADDRESSES_MAX {
            return Err(Error::Urls(public_urls.len()));
        }
        let public = !public_urls.is_empty();
        let urls = if public { public_urls.to_vec() } else { vec![listening] };
        let mut pem = identity.authority.certificate_pem().to_owned();
        pem.extend(identity.other_authorities.iter().map(String::as_str));
        let mut authorities = own_authorities(&pem);
        let client_bundle = match public_ca {
            Some(PublicCa::System) => None,
            Some(PublicCa::File(path)) => {
                let given =
                    fs::read_to_string(path).map_err(|source| Error::Unreadable { path: path.clone(), source })?;
                authorities.extend(public_authorities(path, &given)?);
                pem.push_str(&given);
                Some(pem)
            }
            None => Some(pem),
        };
        Ok(Self { urls, public, authorities, client_bundle })
    }

    /// The address that clients are told of.
    pub(crate) fn first(&self) -> &HubUrl {
        &self.urls[0]
    }

    /// What agents are told.
    pub(crate) fn announcement(&self) -> HubAddresses {
        HubAddresses {
            urls: self.urls.iter().filter(|_| self.public).map(ToString::to_string).collect(),
            authorities: self.authorities.clone(),
        }
    }

    /// What the listener's certificate is for: the public names, and this machine.
    pub(crate) fn names(&self, listening: SocketAddr) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        if !listening.ip().is_unspecified() {
            names.insert(listening.ip().to_string());
        }
        names.extend(self.urls.iter().map(|url| url.host().to_owned()));
        names
    }
}

/// The address of a hub that has no public one.
pub(crate) fn listening_at(address: SocketAddr) -> HubUrl {
    let ip = address.ip();
    let host = match ip {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("https://{host}:{}", address.port())
        .parse()
        .expect("an address with a port, which a listener has, is a URL")
}

/// Those that this hub made itself.
fn own_authorities(pem: &str) -> Vec<Authority> {
    tls::certificates(pem.as_bytes()).into_iter().flatten().filter_map(Authority::from_der).collect()
}

/// Those in the file `path`. An agent leaves out what it cannot use, and would not reach this hub for it.
fn public_authorities(path: &Path, pem: &str) -> Result<Vec<Authority>, Error> {
    let path = || path.to_owned();
    let certificates = tls::certificates(pem.as_bytes()).map_err(|source| Error::Damaged { path: path(), source })?;
    if certificates.is_empty() {
        return Err(Error::NoCertificate(path()));
    }
    if certificates.len() > PUBLIC_AUTHORITIES_MAX {
        return Err(Error::Authorities { path: path(), found: certificates.len() });
    }
    let usable = |(number, der): (usize, Vec<u8>)| {
        tls::check_authority(&der).map_err(|source| Error::Unusable { path: path(), number, source })?;
        Authority::from_der(der).ok_or_else(|| Error::TooLarge { path: path(), number })
    };
    (1..).zip(certificates).map(usable).collect()
}

#[cfg(test)]
mod tests;
