//! The link over HTTP: verifies requests before it reads them, takes each once, signs every answer. Decides nothing.
//!
//! ```text
//!  head ─▶ headers? ─▶ key known? ─▶ signature? ─▶ number free? ─▶ content ─▶ digest? ─▶ still its key? ─▶ service
//!          no: unsigned  no: Unverified             no: BadRequestNumber      no: Malformed  no: Revoked
//! ```
//!
//! An agent acts upon what a hub says of its standing. So that is said only behind the signature: whoever can send bytes can
//! have the hub answer in anybody's name, and what it says then is [`Unverified`], of which no agent thinks anything but that
//! the link is at fault.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use http_body_util::LengthLimitError;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;
use tideline_common::limits::REQUEST_BYTES_MAX;
use tideline_common::replay::{ReplayWindow, RunNumber, number_for};
use tideline_common::signature::{self, NONCE_BYTES, Parameters, Signed, SigningKey, VerifyingKey};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    BODIES_PATH, DESIRED_PATH, ENROL_PATH, EnrolAnswer, EnrolRequest, HubAddresses, NumberRefused, REPORTED_PATH,
    Refusal, RefusalKind, SESSION_PATH, SessionRequest,
};
use tideline_common::{HubId, RunId, SessionId, TargetId};
use tokio::time::timeout;

use super::core;
use crate::listener::{Caller, Crowded, Peer};
use crate::summary::Breach;

/// Where a link's path begins, whatever prefix a proxy put before it.
const LOGICAL_ROOT: &str = "/link/v1/";
/// How long the content of a verified request may take: a full report over a link of 10 KiB/s, twice over.
const CONTENT_WAIT: Duration = Duration::from_mins(4);

/// When an agent is to come back that has too much under way, or comes while others have.
const CROWDED_RETRY_SECONDS: u64 = 5;

/// What stands behind the listener.
pub trait Service: Send + Sync + 'static {
    /// The key that a target signs with.
    fn target_key(&self, target: TargetId) -> Result<VerifyingKey, Unverified>;

    /// Keys that a target signed with before: a few, and not the present one.
    fn replaced_keys(&self, target: TargetId) -> Vec<VerifyingKey>;

    /// The key of an enrolment token, by its name.
    fn token_key(&self, token: &str) -> impl Future<Output = Result<VerifyingKey, Unverified>> + Send;

    /// A request signed by that token's key.
    fn enrol(&self, request: EnrolRequest) -> impl Future<Output = Result<EnrolAnswer, Refusal>> + Send;

    /// The agent of a target, by its key, said more than it may.
    fn breached(&self, target: TargetId, breach: Breach);

    /// A request signed by that target's key. Dropping the future abandons it.
    fn handle(&self, target: TargetId, request: core::Request) -> impl Future<Output = Result<Reply, Refusal>> + Send;
}

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
            Unverified::Unauthenticated(why) => refusal(RefusalKind::Unauthenticated, why),
            Unverified::UnknownToken => refusal(RefusalKind::Unauthenticated, "this hub knows no such token"),
            Unverified::UnknownTarget => refusal(
                RefusalKind::UnknownTarget,
                "this hub has no record of this target; if the hub was restored or replaced, give the agent a new token of it",
            ),
            Unverified::Starting => {
                Self { retry_after_seconds: Some(1), ..refusal(RefusalKind::Busy, "the hub is starting") }
            }
            Unverified::Unreadable => busy("the hub cannot read its tokens at the moment"),
        }
    }
}

/// An answer, ready to be written.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Reply {
    Core(core::Answer),
    Bodies(tideline_common::wire::v1::BodiesAnswer),
}

impl Reply {
    /// Outside of the engine's lock, for a change of one object is told to thousands at once.
    fn sign(self, key: &SigningKey) -> Self {
        match self {
            Self::Core(answer) => Self::Core(answer.sign(key)),
            Self::Bodies(_) => self,
        }
    }
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

/// Whose key a request was signed with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Sender {
    Target(TargetId),
    /// By a key that the target had before.
    Replaced(TargetId),
    Token(String),
}

impl From<&Sender> for Caller {
    fn from(sender: &Sender) -> Self {
        match sender {
            Sender::Target(target) => Self::Agent(target.to_string()),
            Sender::Replaced(target) => Self::Agent(format!("{target}, replaced")),
            Sender::Token(token) => Self::Agent(token.clone()),
        }
    }
}

struct Link<S> {
    service: Arc<S>,
    signer: Arc<Signer>,
    /// Of senders that were verified in this run: 40 bytes for each of the hub's targets and tokens.
    windows: Arc<Mutex<HashMap<Sender, ReplayWindow>>>,
    random: SystemRandom,
}

impl<S> Clone for Link<S> {
    fn clone(&self) -> Self {
        let Self { service, signer, windows, random } = self;
        let (service, signer, windows) = (Arc::clone(service), Arc::clone(signer), Arc::clone(windows));
        Self { service, signer, windows, random: random.clone() }
    }
}

/// Serves [`LOGICAL_ROOT`].
pub fn router<S: Service>(service: Arc<S>, signer: Arc<Signer>) -> Router {
    let link = Link { service, signer, windows: Arc::default(), random: SystemRandom::new() };
    Router::new().route("/link/v1/{*rest}", any(answer::<S>)).with_state(link)
}

/// A request without its content.
struct Head {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    /// The connection it came over, unless it came over none of the listener's.
    peer: Option<Peer>,
}

async fn answer<S: Service>(State(link): State<Link<S>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.remove();
    let head = Head { method: parts.method, uri: parts.uri, headers: parts.headers, peer };
    let Some(signed) = head.signed() else {
        // There is nothing that an answer could be bound to.
        return unsigned(&Unverified::Unauthenticated(
            "this is the link of agents, who sign what they send".to_owned(),
        ));
    };
    let (sender, key) = match link.verify(signed).await {
        Ok(verified) => verified,
        Err(unverified) => {
            head.untaken();
            return link.refuse(signed, None, &unverified.into());
        }
    };
    // Before anything is read: what was recorded verifies for ever, and is not to cost more than this.
    let next = match link.take_number(&sender, signed) {
        Ok(next) => next,
        Err(next) => {
            head.untaken();
            let refusal = refusal(RefusalKind::BadRequestNumber, "no number that is free in this run of the hub");
            let status = status(&refusal);
            let refused = NumberRefused { refusal, addresses: link.signer.addresses.clone() };
            return link.sign(signed, Some(next), status, &refused);
        }
    };
    if let Sender::Replaced(_) = sender {
        // Whatever it wants.
        head.untaken();
        return link.refuse(signed, Some(next), &replaced());
    }
    let read = head.read(body, &sender).await.map_err(|unread| link.judge(&sender, unread));
    let done = match read {
        Err(refused) => Err(refused),
        Ok(content) if signature::content_digest(&content) != signed.request.content_digest => {
            Err(refusal(RefusalKind::Malformed, "the content is not what its digest says; something has changed it"))
        }
        Ok(content) => match link.confirm(&sender, &key).await {
            Ok(()) => link.handle(&head, sender, &content).await,
            Err(refused) => Err(refused),
        },
    };
    match done {
        Ok(Done::Enrolled(answer)) => link.sign(signed, Some(next), StatusCode::OK, &answer),
        Ok(Done::Replied(reply)) => link.sign(signed, Some(next), StatusCode::OK, &reply),
        Err(refused) => link.refuse(signed, Some(next), &refused),
    }
}

enum Done {
    Enrolled(EnrolAnswer),
    Replied(Reply),
}

impl<S: Service> Link<S> {
    /// Whose request this is, proven by its signature alone, and by which key.
    async fn verify(&self, signed: Signed<'_>) -> Result<(Sender, VerifyingKey), Unverified> {
        let unauthenticated = |error: signature::Error| Unverified::Unauthenticated(error.to_string());
        let claims = signature::claims(signed.signature_input).map_err(unauthenticated)?;
        let (sender, key) = if signed.request.path == ENROL_PATH {
            let key = self.service.token_key(&claims.key_id).await?;
            (Sender::Token(claims.key_id), key)
        } else {
            self.target(&claims.key_id, signed.request)?
        };
        match (signature::verify_request(&key, signed), &sender) {
            (Ok(_), _) => Ok((sender, key)),
            // Where it has another by now, it is told so.
            (Err(error), Sender::Target(target)) => {
                let replaced = self.service.replaced_keys(*target);
                let by = replaced.into_iter().find(|key| signature::verify_request(key, signed).is_ok());
                by.map(|key| (Sender::Replaced(*target), key)).ok_or_else(|| unauthenticated(error))
            }
            (Err(error), Sender::Replaced(_) | Sender::Token(_)) => Err(unauthenticated(error)),
        }
    }

    /// Refuses what was signed by a key that is its sender's no more. The content may have been on its way for minutes, and a
    /// person may have revoked the key meanwhile.
    async fn confirm(&self, sender: &Sender, key: &VerifyingKey) -> Result<(), Refusal> {
        let (present, other) = match sender {
            Sender::Target(target) => (self.service.target_key(*target), replaced()),
            Sender::Token(token) => (self.service.token_key(token).await, Unverified::UnknownToken.into()),
            Sender::Replaced(_) => return Err(replaced()),
        };
        if present? == *key { Ok(()) } else { Err(other) }
    }

    /// The target that asks, and its key. A hub that does not know it may know what it was before: an older copy of its
    /// directory, from before the agent was handed over.
    fn target(&self, key_id: &str, request: signature::Request<'_>) -> Result<(Sender, VerifyingKey), Unverified> {
        let named: TargetId = key_id.parse().map_err(|_| Unverified::UnknownTarget)?;
        let unknown = match self.service.target_key(named) {
            Ok(key) => return Ok((Sender::Target(named), key)),
            Err(unknown) => unknown,
        };
        let formers = if request.path == SESSION_PATH && unknown == Unverified::UnknownTarget {
            codec::parse_session_query(request.query)
        } else {
            Vec::new()
        };
        let known = formers.into_iter().rev().find_map(|former| {
            let key = self.service.target_key(former).ok()?;
            Some((Sender::Target(former), key))
        });
        known.ok_or(unknown)
    }

    /// Takes the request's number, and returns the next that is free; that alone if this one is not.
    fn take_number(&self, sender: &Sender, signed: Signed<'_>) -> Result<u64, u64> {
        let number = number_for(self.signer.run, signed.request.run);
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = match windows.get_mut(sender) {
            Some(window) => window,
            None => windows.entry(sender.clone()).or_default(),
        };
        let taken = number.is_some_and(|number| window.take(number));
        if taken { Ok(window.next()) } else { Err(window.next()) }
    }

    /// What is said to whom nothing was read of, and of them.
    fn judge(&self, sender: &Sender, unread: Unread) -> Refusal {
        let (breach, refusal) = match unread {
            Unread::Crowded(Crowded::FloodOfKey) => (Some(Breach::Rate), busy(Crowded::FloodOfKey.to_string())),
            Unread::Crowded(crowded) => (None, busy(crowded.to_string())),
            Unread::TooLarge => {
                // Nobody knows whether it is what was signed: whoever is on the way may have added to it.
                let message = format!("a request may have {REQUEST_BYTES_MAX} bytes");
                (None, refusal(RefusalKind::TooLarge, message))
            }
            Unread::Broken(why) => (None, busy(why)),
        };
        if let (Some(breach), Sender::Target(target)) = (breach, sender) {
            self.service.breached(*target, breach);
        }
        refusal
    }

    async fn handle(&self, head: &Head, sender: Sender, content: &[u8]) -> Result<Done, Refusal> {
        match sender {
            Sender::Token(token) => {
                let request: EnrolRequest = head.message(content)?;
                if request.token != token {
                    let message = "the request names another token than it is signed by";
                    return Err(refusal(RefusalKind::TokenRefused, message));
                }
                self.service.enrol(request).await.map(Done::Enrolled)
            }
            // It was refused before anything was read.
            Sender::Replaced(_) => Err(replaced()),
            Sender::Target(target) => {
                let request =
                    head.request(content, &self.random, &self.signer.key.public()).inspect_err(|refused| {
                        if refused.refusal == RefusalKind::TooLarge {
                            self.service.breached(target, Breach::Message);
                        }
                    })?;
                let mut reply = self.service.handle(target, request).await?.sign(&self.signer.key);
                if let Reply::Core(core::Answer::Session(session)) = &mut reply {
                    session.addresses = self.signer.addresses.clone();
                }
                Ok(Done::Replied(reply))
            }
        }
    }

    fn refuse(&self, to: Signed<'_>, next: Option<u64>, refusal: &Refusal) -> Response {
        let mut response = self.sign(to, next, status(refusal), refusal);
        if let Some(seconds) = refusal.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// `next` is the number that is free; nobody who was not verified has one.
    fn sign<T: Serialize>(&self, to: Signed<'_>, next: Option<u64>, status: StatusCode, message: &T) -> Response {
        let mut random = [0; NONCE_BYTES];
        let (Ok((media_type, content)), Ok(())) = (codec::encode(message), self.random.fill(&mut random)) else {
            return bare(StatusCode::INTERNAL_SERVER_ERROR);
        };
        let hub = self.signer.hub.to_string();
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let content_digest = signature::content_digest(&content);
        let run = RunNumber { run: self.signer.run, number: next.unwrap_or_default() }.to_string();
        let headers = signature::sign_response(
            &self.signer.key,
            signature::Response { status: status.as_u16(), content_digest: &content_digest, run: &run },
            to,
            Parameters { key_id: &hub, created, nonce: &signature::nonce(random) },
        );
        let mut response = Response::new(Body::from(content));
        *response.status_mut() = status;
        let to = response.headers_mut();
        to.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        to.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
        for (name, value) in [
            (signature::CONTENT_DIGEST, content_digest),
            (signature::RUN, run),
            (signature::SIGNATURE_INPUT, headers.signature_input),
            (signature::SIGNATURE, headers.signature),
        ] {
            let value = HeaderValue::try_from(value).expect("it is made of digits, base64 and our own names");
            to.insert(HeaderName::from_static(name), value);
        }
        response
    }
}

impl Head {
    /// None where a header is missing, or longer than any of an agent's: all of them go into the answer's signature.
    fn signed(&self) -> Option<Signed<'_>> {
        let get = |name: &str| {
            let value = self.headers.get(name).and_then(|value| value.to_str().ok());
            value.filter(|value| value.len() <= signature::HEADER_BYTES_MAX)
        };
        Some(Signed {
            request: signature::Request {
                method: self.method.as_str(),
                path: self.logical_path(),
                query: self.uri.query().unwrap_or(""),
                content_digest: get(signature::CONTENT_DIGEST)?,
                run: get(signature::RUN)?,
            },
            signature_input: get(signature::SIGNATURE_INPUT)?,
            signature: get(signature::SIGNATURE)?,
        })
    }

    /// Counts against the connection, for nobody is to answer for what others recorded of it.
    fn untaken(&self) {
        if let Some(peer) = &self.peer {
            peer.untaken();
        }
    }

    fn key_id(&self) -> Option<TargetId> {
        let claims = signature::claims(self.signed()?.signature_input).ok()?;
        claims.key_id.parse().ok()
    }

    /// The path that is signed: without what a proxy may have put before it.
    fn logical_path(&self) -> &str {
        let path = self.uri.path();
        path.find(LOGICAL_ROOT).map_or(path, |at| &path[at..])
    }

    /// Reads the content of a request that was verified, as far as its sender has a share of what is received.
    async fn read(&self, body: Body, sender: &Sender) -> Result<Bytes, Unread> {
        if let Some(peer) = &self.peer {
            peer.verified(sender.into()).map_err(Unread::Crowded)?;
        }
        match timeout(CONTENT_WAIT, to_bytes(body, REQUEST_BYTES_MAX)).await {
            Err(_elapsed) => Err(Unread::Broken("the content of the request did not come in time".to_owned())),
            Ok(Err(error)) => Err(unreadable(&error)),
            Ok(Ok(content)) => Ok(content),
        }
    }

    fn origin(&self, random: &SystemRandom) -> Result<core::Origin, Refusal> {
        let mut id = [0; 8];
        let failed = |_| refusal(RefusalKind::Busy, "the operating system gives no random numbers");
        random.fill(&mut id).map_err(failed)?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let address = self.peer.as_ref().map(|peer| peer.address().to_string());
        Ok(core::Origin { address, at, id: SessionId(u64::from_le_bytes(id)), ..core::Origin::default() })
    }

    fn message<T: serde::de::DeserializeOwned>(&self, content: &[u8]) -> Result<T, Refusal> {
        let media_type = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let unpacked = codec::unpack_request(media_type, content);
        if let Some(peer) = &self.peer {
            // What cannot be unpacked may have cost as much as any.
            peer.has_sent(unpacked.as_ref().map_or(REQUEST_BYTES_MAX, |json| json.len()));
        }
        let read = unpacked.and_then(|json| codec::read(&json));
        read.map_err(|error| match error {
            codec::Error::TooLarge(_) => refusal(RefusalKind::TooLarge, error.to_string()),
            error => refusal(RefusalKind::Malformed, error.to_string()),
        })
    }

    fn request(&self, content: &[u8], random: &SystemRandom, hub: &VerifyingKey) -> Result<core::Request, Refusal> {
        match (self.method.as_str(), self.logical_path()) {
            ("POST", SESSION_PATH) => {
                let request: SessionRequest = self.message(content)?;
                let formers = codec::parse_session_query(self.uri.query().unwrap_or(""));
                let request = SessionRequest { formers, asked_as: self.key_id(), ..request };
                Ok(core::Request::session(request, self.origin(random)?, hub))
            }
            ("GET", DESIRED_PATH) => codec::parse_desired_query(self.uri.query().unwrap_or(""))
                .map(core::Request::Desired)
                .map_err(|error| refusal(RefusalKind::Malformed, error.to_string())),
            ("POST", BODIES_PATH) => self.message(content).map(core::Request::Bodies),
            ("PUT", REPORTED_PATH) => self.message(content).map(|report| core::Request::Reported(Box::new(report))),
            (method, path) => Err(refusal(RefusalKind::Malformed, format!("there is no {method} {path}"))),
        }
    }
}

fn refusal(refusal: RefusalKind, message: impl Into<String>) -> Refusal {
    Refusal { refusal, message: message.into(), retry_after_seconds: None, fenced_by: None }
}

fn replaced() -> Refusal {
    refusal(RefusalKind::Revoked, "the key of this agent was replaced: its SyncTarget has another")
}

fn busy(message: impl Into<String>) -> Refusal {
    Refusal { retry_after_seconds: Some(CROWDED_RETRY_SECONDS), ..refusal(RefusalKind::Busy, message) }
}

/// Why the content of a request that was verified was not read.
enum Unread {
    Crowded(Crowded),
    TooLarge,
    Broken(String),
}

fn unreadable(error: &axum::Error) -> Unread {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return Unread::TooLarge;
        }
        cause = error.source();
    }
    Unread::Broken(format!("the content of the request was not received: {error}"))
}

fn status(refusal: &Refusal) -> StatusCode {
    StatusCode::from_u16(refusal.refusal.status()).unwrap_or(StatusCode::BAD_REQUEST)
}

/// For people: no agent believes it.
fn unsigned(unverified: &Unverified) -> Response {
    let refusal = Refusal::from(unverified.clone());
    let mut response = bare(status(&refusal));
    *response.body_mut() = Body::from(refusal.message + "\n");
    response
}

fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
