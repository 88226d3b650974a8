//! One exchange without the wire: a request as bytes to send, and an answer as far as it may be believed.

use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tideline_common::replay::RunNumber;
use tideline_common::signature::{self, Headers, Parameters, Signed, SigningKey, VerifyingKey};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    BODIES_PATH, BodiesAnswer, Body, DESIRED_PATH, ENROL_PATH, HubAddresses, NumberRefused, REPORTED_PATH, Refusal,
    RefusalKind, SESSION_PATH, SessionAnswer,
};
use tideline_common::{Digest, TargetId};
use tideline_runtime::retry::parse_retry_after;

use crate::core::{Answer, LinkFailure, Request};

/// Longest pause that an answer which nobody signed can ask for. A load balancer whose hub starts asks for seconds; whoever can
/// answer in its place keeps the agent away for four times the longest pause after failures, and no longer.
const UNSIGNED_PAUSE_MAX: Duration = Duration::from_mins(2);

/// What a request asks for, and so how its answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Enrol,
    Session,
    Desired,
    Bodies,
    Reported,
}

/// A request ready to be signed and sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub kind: Kind,
    pub method: &'static str,
    pub path: &'static str,
    /// Without the question mark; empty for none.
    pub query: String,
    /// The media type and the bytes, for requests that have content.
    pub content: Option<(&'static str, Bytes)>,
    pub content_digest: String,
}

/// One sending of a request: the numbers that it has taken of the hub's runs, and its signature.
#[derive(Clone, Debug)]
pub struct Sending {
    pub run: String,
    pub headers: Headers,
}

impl Outgoing {
    /// # Errors
    ///
    /// The request is too large, or cannot be written as JSON.
    pub fn new(request: &Request) -> Result<Self, codec::Error> {
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

    /// Signs one sending of it, with the numbers that it has taken.
    pub fn sign(&self, key: &SigningKey, run: String, parameters: Parameters<'_>) -> Sending {
        let headers = signature::sign_request(key, self.covered(&run), parameters);
        Sending { run, headers }
    }

    /// What the signature covers.
    fn covered<'a>(&'a self, run: &'a str) -> signature::Request<'a> {
        let Self { kind: _, method, path, query, content: _, content_digest } = self;
        signature::Request { method, path, query, content_digest, run }
    }

    /// What the answer must be to.
    fn signed<'a>(&'a self, sending: &'a Sending) -> Signed<'a> {
        let Headers { signature_input, signature } = &sending.headers;
        Signed { request: self.covered(&sending.run), signature_input, signature }
    }
}

/// What came back, by whomever it was sent.
#[derive(Clone, Debug, Default)]
pub struct Returned {
    pub status: u16,
    pub content_type: Option<String>,
    pub retry_after: Option<String>,
    pub content_digest: Option<String>,
    pub run: Option<String>,
    pub signature_input: Option<String>,
    pub signature: Option<String>,
    pub content: Vec<u8>,
}

/// What the hub said, and in which run.
#[derive(Clone, Debug)]
pub struct VerifiedAnswer {
    pub run: RunNumber,
    /// When it was signed, by the hub's clock, in seconds since 1970.
    pub signed_at: u64,
    pub answer: Result<Answer, LinkFailure>,
    /// Where it is reached, if it said so.
    pub addresses: Option<HubAddresses>,
}

impl VerifiedAnswer {
    /// What the agent with this key makes of it, which is one of these targets and was the others. None: the request is to be
    /// sent again, with another number.
    pub fn conclude(self, key: &VerifyingKey, is_or_was: &[TargetId]) -> Option<Result<Answer, LinkFailure>> {
        match self.answer {
            // A hub that was started since, another replica, or a middlebox that sends requests twice.
            Err(LinkFailure::Refused(Refusal { refusal: RefusalKind::BadRequestNumber, .. })) => None,
            Ok(Answer::Session(SessionAnswer { handover: Some(handover), .. })) if handover.key != key.as_bytes() => {
                Some(Err(not_handed_over("with another key than this one's")))
            }
            Ok(Answer::Session(SessionAnswer { handover: Some(handover), .. }))
                if !is_or_was.contains(&handover.former) =>
            {
                Some(Err(not_handed_over(&format!("of target {}, which this one never was", handover.former))))
            }
            answer => Some(answer),
        }
    }
}

fn not_handed_over(whose: &str) -> LinkFailure {
    LinkFailure::Unreachable { message: format!("the hub hands over an agent {whose}"), retry_after: None }
}

/// Believes an answer that the hub signed for this very sending of this request; says of anything else what it looks like.
///
/// # Errors
///
/// The hub refused the request, signed; or what came back is not its answer to it.
pub fn read_answer(
    hub: &VerifyingKey,
    outgoing: &Outgoing,
    sending: &Sending,
    returned: &Returned,
) -> Result<VerifiedAnswer, LinkFailure> {
    match verify(hub, outgoing.signed(sending), returned) {
        Ok((run, signed_at)) => {
            let answer = read_content(outgoing.kind, returned);
            let addresses = addresses(&answer, returned);
            Ok(VerifiedAnswer { run, signed_at, answer, addresses })
        }
        Err(error) => {
            Err(LinkFailure::NotTheHub { message: describe(returned, &error), retry_after: unsigned_pause(returned) })
        }
    }
}

/// The pause that somebody on the way asks for: of those who have no hub to pass the request to, and for a bounded time.
fn unsigned_pause(returned: &Returned) -> Option<Duration> {
    let asked = returned.retry_after.as_deref().filter(|_| matches!(returned.status, 429 | 503))?;
    Some(parse_retry_after(asked)?.min(UNSIGNED_PAUSE_MAX))
}

/// Returns the run, and when it was signed.
fn verify(hub: &VerifyingKey, to: Signed<'_>, returned: &Returned) -> Result<(RunNumber, u64), signature::Error> {
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
    let claims = signature::verify_response(hub, response, to, &headers)?;
    if signature::content_digest(&returned.content) != content_digest {
        return Err(signature::Error::Content);
    }
    let run = run.parse().map_err(|_| signature::Error::Malformed(signature::RUN))?;
    Ok((run, claims.created))
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
        (_, false) => {
            "something between hub and agent changes answers, or this is another hub, or it was started on an empty data \
             directory"
        }
    };
    format!("the answer ({status}, {content_type}) is not the pinned hub's: {error}; {guess}")
}

#[cfg(test)]
mod tests;
