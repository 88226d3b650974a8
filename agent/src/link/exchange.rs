//! One exchange without the wire: a request as what is sent, an answer as what may be believed of what came back.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tideline_common::Digest;
use tideline_common::replay::RunNumber;
use tideline_common::signature::{self, Headers, Signed, VerifyingKey};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    BODIES_PATH, BodiesAnswer, Body, DESIRED_PATH, ENROL_PATH, HubAddresses, NumberRefused, REPORTED_PATH, Refusal,
    RefusalKind, SESSION_PATH,
};
use tideline_runtime::retry::parse_retry_after;

use crate::core::{Answer, LinkFailure, Request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Enrol,
    Session,
    Desired,
    Bodies,
    Reported,
}

/// A request ready to be signed and sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) kind: Kind,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Without the question mark; empty for none.
    pub(super) query: String,
    /// The media type and the bytes, for requests that have content.
    pub(super) content: Option<(&'static str, Bytes)>,
    pub(super) content_digest: String,
}

/// One sending of a request: the numbers that it has taken of the hub's runs, and its signature.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) run: String,
    pub(super) headers: Headers,
}

impl Outgoing {
    pub(super) fn new(request: &Request) -> Result<Self, codec::Error> {
        let (kind, method, path, query, content) = match request {
            Request::Enrol(body) => (Kind::Enrol, "POST", ENROL_PATH, String::new(), Some(codec::encode(body)?)),
            Request::Session(body) => {
                (Kind::Session, "POST", SESSION_PATH, codec::session_query(body), Some(codec::encode(body)?))
            }
            Request::Desired(body) => (Kind::Desired, "GET", DESIRED_PATH, codec::desired_query(body), None),
            Request::Bodies(body) => (Kind::Bodies, "POST", BODIES_PATH, String::new(), Some(codec::encode(body)?)),
            Request::Reported(body) => {
                (Kind::Reported, "PUT", REPORTED_PATH, String::new(), Some(codec::encode(body)?))
            }
        };
        let content = content.map(|(media_type, bytes)| (media_type, Bytes::from(bytes)));
        let content_digest = signature::content_digest(content.as_ref().map_or(&[], |(_, bytes)| bytes));
        Ok(Self { kind, method, path, query, content, content_digest })
    }

    /// What the signature covers.
    pub(super) fn covered<'a>(&'a self, run: &'a str) -> signature::Request<'a> {
        let Self { kind: _, method, path, query, content: _, content_digest } = self;
        signature::Request { method, path, query, content_digest, run }
    }

    /// What the answer must be to.
    pub(super) fn signed<'a>(&'a self, sending: &'a Sending) -> Signed<'a> {
        let Headers { signature_input, signature } = &sending.headers;
        Signed { request: self.covered(&sending.run), signature_input, signature }
    }
}

/// What came back, by whomever it was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Returned {
    pub(super) status: u16,
    pub(super) content_type: Option<String>,
    pub(super) retry_after: Option<String>,
    pub(super) content_digest: Option<String>,
    pub(super) run: Option<String>,
    pub(super) signature_input: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) content: Vec<u8>,
}

/// What the hub said, and in which run.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) run: RunNumber,
    pub(super) answer: Result<Answer, LinkFailure>,
    /// Where it is reached, if it said so.
    pub(super) addresses: Option<HubAddresses>,
}

/// Believes an answer that the hub signed for this very sending of this request; says of anything else what it looks like.
pub(super) fn read_answer(
    kind: Kind,
    hub: &VerifyingKey,
    to: Signed<'_>,
    returned: &Returned,
) -> Result<Said, LinkFailure> {
    match verify(hub, to, returned) {
        Ok(run) => {
            let answer = read_content(kind, returned);
            let addresses = addresses(&answer, returned);
            Ok(Said { run, answer, addresses })
        }
        Err(error) => Err(LinkFailure::NotTheHub {
            message: describe(returned, &error),
            retry_after: returned.retry_after.as_deref().and_then(parse_retry_after),
        }),
    }
}

fn verify(hub: &VerifyingKey, to: Signed<'_>, returned: &Returned) -> Result<RunNumber, signature::Error> {
    fn present<'a>(value: Option<&'a str>, name: &'static str) -> Result<&'a str, signature::Error> {
        value.ok_or(signature::Error::Missing(name))
    }
    let content_digest = present(returned.content_digest.as_deref(), signature::CONTENT_DIGEST)?;
    let run = present(returned.run.as_deref(), signature::RUN)?;
    let headers = Headers {
        signature_input: present(returned.signature_input.as_deref(), signature::SIGNATURE_INPUT)?.to_owned(),
        signature: present(returned.signature.as_deref(), signature::SIGNATURE)?.to_owned(),
    };
    let response = signature::Response { status: returned.status, content_digest, run };
    signature::verify_response(hub, response, to, &headers)?;
    if signature::content_digest(&returned.content) != content_digest {
        return Err(signature::Error::Content);
    }
    run.parse().map_err(|_| signature::Error::Malformed(signature::RUN))
}

fn read_content(kind: Kind, returned: &Returned) -> Result<Answer, LinkFailure> {
    if returned.status != 200 {
        return Err(LinkFailure::Refused(decode::<Refusal>(returned)?));
    }
    match kind {
        Kind::Enrol => decode(returned).map(Answer::Enrolled),
        Kind::Session => decode(returned).map(Answer::Session),
        Kind::Desired => decode(returned).map(Answer::Desired),
        Kind::Reported => decode(returned).map(Answer::Reported),
        Kind::Bodies => {
            let answer: BodiesAnswer = decode(returned)?;
            match answer.bodies.iter().find(|body| !is_intact(body)) {
                None => Ok(Answer::Bodies(answer)),
                Some(body) => Err(unreadable(&format!("the body {} is not what its SHA-256 says", body.input))),
            }
        }
    }
}

fn addresses(answer: &Result<Answer, LinkFailure>, returned: &Returned) -> Option<HubAddresses> {
    match answer {
        Ok(Answer::Session(session)) => Some(session.addresses.clone()),
        Err(LinkFailure::Refused(Refusal { refusal: RefusalKind::BadRequestNumber, .. })) => {
            decode::<NumberRefused>(returned).ok().map(|refused| refused.addresses)
        }
        Ok(Answer::Enrolled(_) | Answer::Desired(_) | Answer::Bodies(_) | Answer::Reported(_)) | Err(_) => None,
    }
}

/// A part of a body is checked when it is whole.
fn is_intact(body: &Body) -> bool {
    let whole = body.offset == 0 && body.text.len() as u64 == body.size;
    !whole || Digest::of(body.text.as_bytes()) == body.sha256
}

fn decode<T: DeserializeOwned>(returned: &Returned) -> Result<T, LinkFailure> {
    codec::decode(returned.content_type.as_deref().unwrap_or_default(), &returned.content).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        unreadable(&format!("{error}{cause}"))
    })
}

fn unreadable(why: &str) -> LinkFailure {
    LinkFailure::Unreachable { message: format!("the hub's answer cannot be read: {why}"), retry_after: None }
}

/// Says what an answer that is not the hub's looks like.
fn describe(returned: &Returned, error: &signature::Error) -> String {
    let Returned { status, content_type, .. } = returned;
    let content_type = content_type.as_deref().unwrap_or("no content type");
    let unsigned = matches!(error, signature::Error::Missing(_));
    let guess = match (status, unsigned) {
        (407, true) => "a proxy asks for credentials: put them into HTTPS_PROXY",
        (301..=399, true) => {
            "it is a redirect, as captive portals send; log in to the network, or correct the hub's URL"
        }
        (200, true) => "it looks like a captive portal or a proxy; log in to the network, or let the hub's name pass",
        (404, true) => "it looks like another server; check the hub's URL and its prefix",
        (429 | 502..=504, true) => "it looks like a proxy or load balancer whose hub does not answer",
        (_, true) => "it looks like a proxy",
        (_, false) => "something between hub and agent changes answers, or this is another hub",
    };
    format!("the answer ({status}, {content_type}) is not the pinned hub's: {error}; {guess}")
}

#[cfg(test)]
mod tests;
