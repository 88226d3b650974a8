//! The one file that knows reqwest.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER, USER_AGENT};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Method, Url};
use tideline_common::limits::LINK_MESSAGE_BYTES_MAX;
use tideline_common::signature::{CONTENT_DIGEST, RUN, SIGNATURE, SIGNATURE_INPUT};

use super::exchange::{Outgoing, Returned, Sending};
use crate::core::LinkFailure;

/// Longest wait for a connection, TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long an idle connection is kept: longer than the pause between polls, shorter than most middleboxes' patience.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// Idle connections: the poll's, a report's, and those of bodies in flight.
const IDLE_CONNECTIONS_MAX: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the hub's URL {url:?} cannot be used: {why}; correct it in the token, or make another one")]
    Url { url: String, why: String },
    #[error("the hub's CA in the token cannot be read")]
    Authority(#[source] reqwest::Error),
    #[error("cannot set up the client of the hub")]
    Setup(#[source] reqwest::Error),
}

pub(super) struct Http {
    client: Client,
    /// Without a slash at the end.
    base: String,
}

impl Http {
    /// `authority` is the CA of the hub's own certificate, DER, trusted beside the system's; empty for none.
    pub(super) fn new(url: &str, authority: &[u8]) -> Result<Self, Error> {
        let wrong = |why: String| Error::Url { url: url.to_owned(), why };
        let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        if parsed.scheme() != "https" {
            return Err(wrong("it must begin with https://".to_owned()));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(wrong("it must have no query and no fragment".to_owned()));
        }
        let mut builder = Client::builder()
            .http1_only()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_MAX)
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX);
        if !authority.is_empty() {
            builder = builder.tls_certs_merge([Certificate::from_der(authority).map_err(Error::Authority)?]);
        }
        let client = builder.build().map_err(Error::Setup)?;
        Ok(Self { client, base: parsed.as_str().trim_end_matches('/').to_owned() })
    }

    /// Sends a signed request and returns whatever came back, whole.
    pub(super) async fn exchange(
        &self,
        outgoing: &Outgoing,
        sending: &Sending,
        limit: Duration,
    ) -> Result<Returned, LinkFailure> {
        let Outgoing { kind: _, method, path, query, content, content_digest } = outgoing;
        let question = if query.is_empty() { "" } else { "?" };
        let method = Method::from_bytes(method.as_bytes()).expect("methods are constants");
        let mut request = self
            .client
            .request(method, format!("{}{path}{question}{query}", self.base))
            .timeout(limit)
            .header(USER_AGENT, concat!("tideline-agent/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_DIGEST, content_digest)
            .header(RUN, &sending.run)
            .header(SIGNATURE_INPUT, &sending.headers.signature_input)
            .header(SIGNATURE, &sending.headers.signature);
        if let Some((media_type, bytes)) = content {
            request = request.header(CONTENT_TYPE, *media_type).body(bytes.clone());
        }
        let mut response = request.send().await.map_err(|error| unreachable(&error))?;
        let mut returned = describe(response.status().as_u16(), response.headers());
        while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))? {
            if returned.content.len() + chunk.len() > LINK_MESSAGE_BYTES_MAX {
                let message =
                    format!("the answer is larger than {LINK_MESSAGE_BYTES_MAX} bytes, so it is not the hub's");
                return Err(LinkFailure::NotTheHub { message, retry_after: None });
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

/// The chain of causes: the outermost says only that a request failed.
fn unreachable(error: &reqwest::Error) -> LinkFailure {
    let mut message =
        if error.is_timeout() { "the hub did not answer in time" } else { "cannot reach the hub" }.to_owned();
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
    LinkFailure::Unreachable { message, retry_after: None }
}
