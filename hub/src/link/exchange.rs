//! One exchange without the wire: whose request it is, whether its number is free, what it asks; and the answer, bound to it.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tideline_common::limits::REQUEST_BYTES_MAX;
use tideline_common::replay::{ReplayWindow, RunNumber, number_for};
use tideline_common::signature::{self, Headers, NONCE_BYTES, Parameters, Signed, SigningKey, VerifyingKey};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    BODIES_PATH, DESIRED_PATH, ENROL_PATH, EnrolRequest, HubAddresses, NumberRefused, REPORTED_PATH, Refusal,
    RefusalKind, SESSION_PATH, SessionRequest,
};
use tideline_common::{HubId, RunId, TargetId};

use super::core;
use crate::limits::{CLOCK_DIFFERENCE_MAX, OPENING_BYTES_MAX};

/// Where a link's path begins, whatever prefix a proxy put before it.
const LOGICAL_ROOT: &str = "/link/v1/";

/// When an agent is to come back that has too much under way, or comes while others have.
const CROWDED_RETRY_SECONDS: u64 = 5;

/// Why a request is nobody's that this hub knows. Whoever can send bytes can have the hub say it, so no agent acts on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// A header is missing or wrong.
    Unauthenticated(String),
    /// There is no such token. One answer for every token that is not known, so that nothing is learnt from it.
    UnknownToken,
    /// There is no record of such a target.
    UnknownTarget,
    /// The inventory was not read yet.
    Starting,
    /// Whether there is such a token cannot be found out at the moment.
    Unreadable,
}

impl From<Unverified> for Refusal {
    fn from(unverified: Unverified) -> Self {
        match unverified {
            Unverified::Unauthenticated(why) => Refusal::new(RefusalKind::Unauthenticated, why),
            Unverified::UnknownToken => Refusal::new(RefusalKind::Unauthenticated, "this hub knows no such token"),
            Unverified::UnknownTarget => Refusal::new(
                RefusalKind::UnknownTarget,
                "this hub has no record of this target; if the hub was restored or replaced, give the agent a new token of it",
            ),
            Unverified::Starting => Self::new(RefusalKind::Busy, "the hub is starting").retry_after(1),
            Unverified::Unreadable => busy("the hub cannot read its tokens at the moment"),
        }
    }
}

impl From<signature::Error> for Unverified {
    fn from(error: signature::Error) -> Self {
        Self::Unauthenticated(error.to_string())
    }
}

/// In whose name a request comes. Nothing of it is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimant {
    Token(String),
    Target {
        named: TargetId,
        /// What it was before, the latest last.
        formers: Vec<TargetId>,
    },
}

impl Claimant {
    /// # Errors
    ///
    /// The request names no signer.
    pub fn of(signed: Signed<'_>) -> Result<Self, Unverified> {
        let claims = signature::claims(signed.signature_input)?;
        let signature::Request { path, query, .. } = signed.request;
        if path == ENROL_PATH {
            return Ok(Self::Token(claims.key_id));
        }
        let named = claims.key_id.parse().map_err(|_| Unverified::UnknownTarget)?;
        let formers = if path == SESSION_PATH { codec::parse_session_query(query) } else { Vec::new() };
        Ok(Self::Target { named, formers })
    }
}

/// The target that asks, and its key. A hub that does not know it may know what it was before: an older copy of its
/// directory, from before the agent was handed over.
///
/// # Errors
///
/// No target of these is known.
pub fn find_target(
    named: TargetId,
    formers: &[TargetId],
    key: impl Fn(TargetId) -> Result<VerifyingKey, Unverified>,
) -> Result<(TargetId, VerifyingKey), Unverified> {
    match key(named) {
        Ok(key) => Ok((named, key)),
        Err(Unverified::UnknownTarget) => {
            let known = formers.iter().rev().find_map(|former| Some((*former, key(*former).ok()?)));
            known.ok_or(Unverified::UnknownTarget)
        }
        Err(unverified) => Err(unverified),
    }
}

/// Whose key a request was signed with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    Target(TargetId),
    /// By a key that the target had before.
    Replaced(TargetId),
    Token(String),
}

/// Whose request this is, proven by its signature alone, and by which key: `key`, or one of those that the target had before.
///
/// # Errors
///
/// The signature is none of these keys'.
pub fn verify(
    signed: Signed<'_>,
    sender: Sender,
    key: VerifyingKey,
    replaced: impl FnOnce(TargetId) -> Vec<VerifyingKey>,
) -> Result<(Sender, VerifyingKey), Unverified> {
    match (signature::verify_request(&key, signed), &sender) {
        (Ok(_), _) => Ok((sender, key)),
        // Where it has another by now, it is told so.
        (Err(error), Sender::Target(target)) => {
            let by = replaced(*target).into_iter().find(|key| signature::verify_request(key, signed).is_ok());
            by.map(|key| (Sender::Replaced(*target), key)).ok_or_else(|| error.into())
        }
        (Err(error), Sender::Replaced(_) | Sender::Token(_)) => Err(error.into()),
    }
}

/// Whether a request, which was verified, was signed by a clock that is far from this one, which says `now`, in seconds since
/// 1970. Nothing follows for the request.
pub fn clock_differs(signed: Signed<'_>, now: u64) -> bool {
    let created = signature::claims(signed.signature_input).map(|claims| claims.created);
    created.is_ok_and(|created| created.abs_diff(now) > CLOCK_DIFFERENCE_MAX.as_secs())
}

/// How often a sender fell silent in this run: was not heard for so long that what it said before is not to be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silences(pub u64);

/// The numbers that were taken in this run, of senders that were verified: 48 bytes for each of the hub's targets and tokens.
#[derive(Debug, Default)]
pub struct TakenNumbers(HashMap<Sender, (Silences, ReplayWindow)>);

impl TakenNumbers {
    /// Takes the request's number in `run`, and returns the next that is free; that alone if this one is not. No request is
    /// taken that its sender signed before it fell silent last.
    ///
    /// # Errors
    ///
    /// The number that is free, where this one was taken before or is of another run.
    pub fn take(&mut self, run: RunId, sender: &Sender, silences: Silences, signed: Signed<'_>) -> Result<u64, u64> {
        let number = number_for(run, signed.request.run);
        let (known, window) = match self.0.get_mut(sender) {
            Some(known) => known,
            None => self.0.entry(sender.clone()).or_insert_with(|| (silences, ReplayWindow::default())),
        };
        if std::mem::replace(known, silences) != silences {
            window.leap();
        }
        let taken = number.is_some_and(|number| window.take(number));
        if taken { Ok(window.next()) } else { Err(window.next()) }
    }
}

/// Bytes that the content of a request may have, sent and unpacked. A poll waits with what it has sent, and sends nothing.
pub fn content_max(path: &str) -> usize {
    match path {
        DESIRED_PATH => 0,
        BODIES_PATH | REPORTED_PATH => REQUEST_BYTES_MAX,
        _ => OPENING_BYTES_MAX,
    }
}

/// Refuses content that is not what was signed.
///
/// # Errors
///
/// The content is not what was signed.
pub fn check_content(signed: Signed<'_>, content: &[u8]) -> Result<(), Refusal> {
    if signature::content_digest(content) == signed.request.content_digest {
        Ok(())
    } else {
        Err(Refusal::new(RefusalKind::Malformed, "the content is not what its digest says; something has changed it"))
    }
}

/// What the token `token` asks.
///
/// # Errors
///
/// The content cannot be read, or names another token.
pub fn read_enrolment(token: &str, json: Result<Cow<'_, [u8]>, codec::Error>) -> Result<EnrolRequest, Refusal> {
    let request: EnrolRequest = message(json)?;
    if request.token == token {
        Ok(request)
    } else {
        Err(Refusal::new(RefusalKind::TokenRefused, "the request names another token than it is signed by"))
    }
}

/// What a target asks. `json` unpacks the content, and is not called for requests that have none.
///
/// # Errors
///
/// The path, the query or the content cannot be read.
pub fn read_request<'a>(
    signed: Signed<'_>,
    json: impl FnOnce() -> Result<Cow<'a, [u8]>, codec::Error>,
    origin: impl FnOnce() -> Result<core::Origin, Refusal>,
    hub: &VerifyingKey,
) -> Result<core::Request, Refusal> {
    let signature::Request { method, path, query, .. } = signed.request;
    match (method, path) {
        ("POST", SESSION_PATH) => {
            let request: SessionRequest = message(json())?;
            let formers = codec::parse_session_query(query);
            let claims = signature::claims(signed.signature_input).ok();
            let asked_as = claims.and_then(|claims| claims.key_id.parse().ok());
            Ok(core::Request::session(SessionRequest { formers, asked_as, ..request }, origin()?, hub))
        }
        ("GET", DESIRED_PATH) => codec::parse_desired_query(query)
            .map(core::Request::Desired)
            .map_err(|error| Refusal::new(RefusalKind::Malformed, error.to_string())),
        ("POST", BODIES_PATH) => message(json()).map(core::Request::Bodies),
        ("PUT", REPORTED_PATH) => message(json()).map(|report| core::Request::Reported(Box::new(report))),
        (method, path) => Err(Refusal::new(RefusalKind::Malformed, format!("there is no {method} {path}"))),
    }
}

fn message<T: DeserializeOwned>(json: Result<Cow<'_, [u8]>, codec::Error>) -> Result<T, Refusal> {
    json.and_then(|json| codec::read(&json)).map_err(|error| match error {
        codec::Error::TooLarge(_) => Refusal::new(RefusalKind::TooLarge, error.to_string()),
        error => Refusal::new(RefusalKind::Malformed, error.to_string()),
    })
}

/// Who signs the answers, and in which run of the hub.
#[derive(Debug)]
pub struct Signer {
    pub hub: HubId,
    pub key: SigningKey,
    /// Another for every run of the process.
    pub run: RunId,
    /// Where agents find this hub from now on.
    pub addresses: HubAddresses,
}

/// When an answer is signed, and what makes its signature another than all others.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Seconds since 1970.
    pub created: u64,
    pub random: [u8; NONCE_BYTES],
}

/// An answer as it is sent: bound to one sending of one request.
#[derive(Clone, Debug)]
pub struct Answered {
    pub status: u16,
    pub media_type: &'static str,
    pub content: Vec<u8>,
    pub content_digest: String,
    pub run: String,
    pub headers: Headers,
}

impl Signer {
    /// Signs a message as the answer to `to`. `next` is the number that is free; nobody who was not verified has one.
    ///
    /// # Errors
    ///
    /// The message is too large, or cannot be written as JSON.
    pub fn sign<T: Serialize>(
        &self,
        to: Signed<'_>,
        next: Option<u64>,
        status: u16,
        message: &T,
        stamp: Stamp,
    ) -> Result<Answered, codec::Error> {
        let (media_type, content) = codec::encode(message)?;
        let content_digest = signature::content_digest(&content);
        let run = RunNumber { run: self.run, number: next.unwrap_or_default() }.to_string();
        let headers = signature::sign_response(
            &self.key,
            signature::Response { status, content_digest: &content_digest, run: &run },
            to,
            Parameters {
                key_id: &self.hub.to_string(),
                created: stamp.created,
                nonce: &signature::nonce(stamp.random),
            },
        );
        Ok(Answered { status, media_type, content, content_digest, run, headers })
    }

    /// What is said to whose request has no number that is free.
    pub fn number_refused(&self) -> NumberRefused {
        let refusal = Refusal::new(RefusalKind::BadRequestNumber, "no number that is free in this run of the hub");
        NumberRefused { refusal, addresses: self.addresses.clone() }
    }

    /// Completes what the core answers, outside of the engine's lock: a change of one object is told to thousands at once.
    pub fn complete(&self, answer: core::Answer) -> core::Answer {
        let mut answer = answer.sign(&self.key);
        if let core::Answer::Session(session) = &mut answer {
            session.addresses = self.addresses.clone();
        }
        answer
    }
}

pub(super) fn busy(message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::Busy, message).retry_after(CROWDED_RETRY_SECONDS)
}

/// The path that is signed: without what a proxy may have put before it.
pub fn logical_path(path: &str) -> &str {
    path.find(LOGICAL_ROOT).map_or(path, |at| &path[at..])
}

#[cfg(test)]
mod tests;
