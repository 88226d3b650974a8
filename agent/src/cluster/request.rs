//! One request to the API server, with its own timeout, and what comes back: a body, or why not.
//!
//! Below kube's typed `Api`: an operation needs what that hides (status codes, `Retry-After`, impersonation) and does not
//! need the objects decoded twice.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tideline_common::Impersonation;
use tideline_runtime::retry::parse_retry_after;

use super::failure::{Failure, Refused};
use super::resource::Resource;

/// Longest wait for one answer, unless it is a page of a list: below, there is a deadline for its beginning and each of its
/// parts. Admission webhooks may take up to 30 s, as the API server bounds them.
pub(super) const CALL_MAX: Duration = Duration::from_secs(35);
/// Bytes of an answer that are read, if it is no watch: what etcd holds of a single object, 1.5 MiB, is nine where JSON escapes
/// every character, and a list has smaller pages.
pub(super) const ANSWER_BYTES_MAX: usize = 16 << 20;

pub(super) const JSON: &str = "application/json";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// How much of an object is wanted back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Whole,
    Metadata,
    MetadataList,
}

impl Want {
    /// Enough to decode an object of this kind.
    pub(super) fn for_decode(resource: &Resource) -> Self {
        if resource.status { Self::Whole } else { Self::Metadata }
    }
}

/// What is sent.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) method: Method,
    /// Path and query.
    pub(super) uri: String,
    pub(super) content: Option<(&'static str, Vec<u8>)>,
    pub(super) want: Want,
    pub(super) impersonate: Option<&'a Impersonation>,
}

impl<'a> Call<'a> {
    pub(super) fn get(uri: String, want: Want) -> Self {
        Self { method: Method::GET, uri, content: None, want, impersonate: None }
    }

    pub(super) fn impersonating(mut self, account: Option<&'a Impersonation>) -> Self {
        self.impersonate = account;
        self
    }

    fn into_request(self) -> Result<Request<Body>, http::Error> {
        let Self { method, uri, content, want, impersonate } = self;
        let accept = match want {
            Want::Whole => JSON,
            Want::Metadata => METADATA,
            Want::MetadataList => METADATA_LIST,
        };
        let mut request = Request::builder().method(method).uri(uri).header(ACCEPT, accept);
        if let Some(Impersonation { namespace, name }) = impersonate {
            request = request.header("impersonate-user", format!("system:serviceaccount:{namespace}:{name}"));
        }
        match content {
            Some((media_type, bytes)) => request.header(CONTENT_TYPE, media_type).body(Body::from(bytes)),
            None => request.body(Body::empty()),
        }
    }
}

/// Sends a call and decodes its answer.
pub(super) async fn call<T: DeserializeOwned>(client: &Client, call: Call<'_>) -> Result<T, Refused> {
    read(&answer(client, call).await?)
}

/// As [`call`], and the answer as it came, to be [`read`] by and by.
pub(super) async fn answer(client: &Client, call: Call<'_>) -> Result<bytes::Bytes, Refused> {
    let request = call
        .into_request()
        .map_err(|error| Refused::Local(Failure::invalid(format!("not a valid request: {error}"))))?;
    if page_limit(&request).is_some() {
        // While it waits for its turn nobody is asked, and from then on each part of the answer has a time of its own.
        return exchange(client, request).await;
    }
    match tokio::time::timeout(CALL_MAX, exchange(client, request)).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => {
            let message = format!("the API server did not answer within {} s", CALL_MAX.as_secs());
            Err(Refused::Local(Failure::unavailable(message).unanswered()))
        }
    }
}

/// The parameter by which a page of a list is asked for.
pub(super) const LIMIT: &str = "limit=";

/// How many objects a request asks for at most: one that does is for a page of a list.
pub(super) fn page_limit<B>(request: &Request<B>) -> Option<u32> {
    let query = request.uri().query().filter(|_| *request.method() == Method::GET)?;
    let limit = query.split('&').find_map(|parameter| parameter.strip_prefix(LIMIT))?;
    limit.parse().ok().filter(|limit| *limit > 0)
}

pub(super) fn read<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, Refused> {
    serde_json::from_slice(answer).map_err(|error| unreadable(&error))
}

pub(super) fn unreadable(error: &serde_json::Error) -> Refused {
    Refused::Local(Failure::unavailable(format!("the API server's answer cannot be read: {error}")).unanswered())
}

async fn exchange(client: &Client, request: Request<Body>) -> Result<bytes::Bytes, Refused> {
    let response = client.send(request).await.map_err(|error| Refused::Local(Failure::of_client(&error)))?;
    let code = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| parse_retry_after(value.to_str().ok()?));
    let bytes = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| Refused::Local(Failure::unavailable(format!("the answer broke off: {error}")).unanswered()))?
        .to_bytes();
    if code.is_success() {
        return Ok(bytes);
    }
    Err(Refused::Status { code: code.as_u16(), status: Box::new(read_status(code, &bytes)), retry_after })
}

/// What is no `Status` (a proxy's page, an aggregated server's text) becomes one with its beginning as message.
fn read_status(code: StatusCode, bytes: &[u8]) -> Status {
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let text: String = String::from_utf8_lossy(bytes).chars().take(200).collect();
        Status::failure(text.trim(), code.canonical_reason().unwrap_or_default()).with_code(code.as_u16())
    })
}
