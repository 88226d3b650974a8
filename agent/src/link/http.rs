//! The one file that knows reqwest.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER, USER_AGENT};
use reqwest::redirect::Policy;
use reqwest::{Client, Method};
use tideline_common::limits::LINK_MESSAGE_BYTES_MAX;
use tideline_common::signature::{CONTENT_DIGEST, RUN, SIGNATURE, SIGNATURE_INPUT};
use tideline_common::{Authority, Digest, HubUrl};
use tideline_runtime::exit::chain;
use tideline_runtime::tls::{self, DamagedPem, UnusableAuthority};

use super::exchange::{Outgoing, Returned, Sending};
use crate::addresses::Missed;
use crate::certificates::{self, Clock, Unusable};
use crate::core::LinkFailure;
use crate::proxy::Proxies;

/// Longest wait for a connection, TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long an idle connection is kept: longer than the pause between polls, shorter than most middleboxes wait.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// Idle connections: the poll's, a report's, and those of bodies in flight.
const IDLE_CONNECTIONS_MAX: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it holds no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    #[error("it cannot be read as PEM")]
    Pem(#[source] DamagedPem),
    #[error("it holds no certificate that can be used")]
    NoneUsable(#[source] UnusableAuthority),
    #[error("cannot set up TLS with the hub")]
    Tls(#[source] Unusable),
    #[error("cannot set up the client of the hub")]
    Setup(#[source] reqwest::Error),
}

/// The authorities of a PEM file, DER, trusted for as long as it is given. At least one can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenAuthorities(Vec<Vec<u8>>);

impl GivenAuthorities {
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let certificates = tls::certificates(pem).map_err(Error::Pem)?;
        let mut unusable = None;
        for certificate in &certificates {
            match tls::check_authority(certificate) {
                Ok(()) => return Ok(Self(certificates)),
                Err(why) => unusable = unusable.or(Some(why)),
            }
        }
        Err(unusable.map_or(Error::NoCertificate, Error::NoneUsable))
    }
}

/// The authorities that a client trusts beside those of the system.
#[derive(Debug, Default)]
pub(super) struct Trusted {
    /// DER.
    certificates: Vec<Vec<u8>>,
    /// The certificates that cannot be used, with the reasons. TLS fails over each of them, so none of them is among the above.
    unusable: Vec<String>,
}

impl Trusted {
    pub(super) fn new<'a>(known: impl Iterator<Item = &'a Authority>, given: &GivenAuthorities) -> Self {
        let mut trusted = Self::default();
        for authority in known {
            trusted.take("that the hub or a token named", authority.der());
        }
        for der in &given.0 {
            trusted.take("of --hub-ca", der);
        }
        trusted
    }

    fn take(&mut self, whose: &str, der: &[u8]) {
        match tls::check_authority(der) {
            Ok(()) => self.certificates.push(der.to_vec()),
            Err(why) => {
                let (bytes, digest, why) = (der.len(), Digest::of(der), chain(&why));
                self.unusable
                    .push(format!("the one {whose} with {bytes} bytes and the SHA-256 digest {digest}: {why}"));
            }
        }
    }

    /// Which certificates were left out, and why.
    pub(super) fn unusable(&self) -> &[String] {
        &self.unusable
    }
}

/// A client that trusts one set of authorities.
#[derive(Clone, Debug)]
pub(super) struct Http {
    client: Client,
}

impl Http {
    pub(super) fn new(trusted: &Trusted, clock: &Arc<Clock>) -> Result<Self, Error> {
        let tls = certificates::client(&trusted.certificates, clock).map_err(Error::Tls)?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_MAX)
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build();
        client.map(|client| Self { client }).map_err(Error::Setup)
    }

    /// Sends a signed request and returns whatever came back, whole.
    pub(super) async fn exchange(
        &self,
        url: &HubUrl,
        outgoing: &Outgoing,
        sending: &Sending,
        limit: Duration,
    ) -> Result<Returned, Unanswered> {
        let Outgoing { kind: _, method, path, query, content, content_digest } = outgoing;
        let question = if query.is_empty() { "" } else { "?" };
        let method = Method::from_bytes(method.as_bytes()).expect("methods are constants");
        let mut request = self
            .client
            .request(method, format!("{url}{path}{question}{query}"))
            .timeout(limit)
            .header(USER_AGENT, concat!("tideline-agent/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_DIGEST, content_digest)
            .header(RUN, &sending.run)
            .header(SIGNATURE_INPUT, &sending.headers.signature_input)
            .header(SIGNATURE, &sending.headers.signature);
        if let Some((media_type, bytes)) = content {
            request = request.header(CONTENT_TYPE, *media_type).body(bytes.clone());
        }
        let mut response = request.send().await.map_err(|error| unanswered(url, &error))?;
        let mut returned = describe(response.status().as_u16(), response.headers());
        while let Some(chunk) = response.chunk().await.map_err(|error| unanswered(url, &error))? {
            if returned.content.len() + chunk.len() > LINK_MESSAGE_BYTES_MAX {
                let message =
                    format!("the answer is larger than {LINK_MESSAGE_BYTES_MAX} bytes, so it is not the hub's");
                let failure = LinkFailure::NotTheHub { message, retry_after: None };
                return Err(Unanswered { missed: Missed::NotThere, failure });
            }
            returned.content.extend_from_slice(&chunk);
        }
        Ok(returned)
    }
}

fn describe(status: u16, headers: &HeaderMap) -> Returned {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::to_owned);
    Returned {
        status,
        content_type: text(CONTENT_TYPE),
        retry_after: text(RETRY_AFTER),
        content_digest: text(HeaderName::from_static(CONTENT_DIGEST)),
        run: text(HeaderName::from_static(RUN)),
        signature_input: text(HeaderName::from_static(SIGNATURE_INPUT)),
        signature: text(HeaderName::from_static(SIGNATURE)),
        content: Vec::new(),
    }
}

/// Why nothing came back.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) missed: Missed,
    pub(super) failure: LinkFailure,
}

/// The chain of causes: the outermost says only that a request failed.
fn unanswered(url: &HubUrl, error: &reqwest::Error) -> Unanswered {
    // Neither a name that is not found nor TLS with somebody else is a connection; nor is a URL that cannot be dialled.
    let missed = if error.is_connect() || error.is_builder() { Missed::NotThere } else { Missed::Cut };
    let mut message = if error.is_timeout() {
        format!("the hub did not answer in time at {url}")
    } else {
        format!("cannot reach the hub at {url}")
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some layers print their cause too.
        if !message.ends_with(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    if let Some(advice) = Proxies::of_environment().advice(&message) {
        message.push_str(": ");
        message.push_str(&advice);
    }
    Unanswered { missed, failure: LinkFailure::Unreachable { message, retry_after: None } }
}

#[cfg(test)]
pub(super) mod tests;
