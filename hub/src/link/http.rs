//! The link over HTTP: verifies requests before it reads them, takes each once, signs every answer, counts those that it
//! refuses. Decides nothing.
//!
//! ```text
//!  head ─▶ headers? ─▶ key known? ─▶ signature? ─▶ number free? ─▶ content ─▶ digest? ─▶ still its key? ─▶ service
//!          no: unsigned  no: Unverified             no: BadRequestNumber      no: Malformed  no: Revoked
//! ```
//!
//! An agent acts upon what a hub says of its standing. So that is said only behind the signature: whoever can send bytes can
//! have the hub answer in anybody's name, and what it says then is [`Unverified`], of which no agent thinks anything but that
//! the link is at fault.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use http_body_util::LengthLimitError;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;
use tideline_common::signature::{self, NONCE_BYTES, Signed, VerifyingKey};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{EnrolAnswer, EnrolRequest, REPORTED_PATH, Refusal, RefusalKind};
use tideline_common::{SessionId, TargetId};
use tokio::time::timeout;

use super::core;
use super::exchange::{self, Answered, Claimant, Sender, Silences, Stamp, TakenNumbers, busy};
pub use super::exchange::{Signer, Unverified};
use super::refusals::{Refusals, RefusedAs};
use crate::listener::{Caller, Crowded, Peer, Purpose};
use crate::summary::Breach;

/// How long the content of a verified request may take: a full report over a link of 10 KiB/s, twice over.
const CONTENT_WAIT: Duration = Duration::from_mins(4);

/// What stands behind the listener.
pub trait Service: Send + Sync + 'static {
    /// The key that a target signs with.
    ///
    /// # Errors
    ///
    /// The target is not known, or is not served any more.
    fn target_key(&self, target: TargetId) -> Result<VerifyingKey, Unverified>;

    /// Keys that a target signed with before: a few, and not the present one.
    fn replaced_keys(&self, target: TargetId) -> Vec<VerifyingKey>;

    /// How often a target fell silent.
    fn silences(&self, target: TargetId) -> Silences;

    /// The key of an enrolment token, by its name.
    fn token_key(&self, token: &str) -> impl Future<Output = Result<VerifyingKey, Unverified>> + Send;

    /// A request signed by that token's key.
    fn enrol(&self, request: EnrolRequest) -> impl Future<Output = Result<EnrolAnswer, Refusal>> + Send;

    /// The agent of a target, by its key, said more than it may.
    fn breached(&self, target: TargetId, breach: Breach);

    /// The agent of a target signs by a clock that is far from this one.
    fn clock_differs(&self, target: TargetId);

    /// A request signed by that target's key. Dropping the future abandons it.
    fn handle(&self, target: TargetId, request: core::Request) -> impl Future<Output = Result<Reply, Refusal>> + Send;
}

/// An answer, ready to be written.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Reply {
    Core(core::Answer),
    Bodies(tideline_common::wire::v1::BodiesAnswer),
}

impl Reply {
    fn complete(self, signer: &Signer) -> Self {
        match self {
            Self::Core(answer) => Self::Core(signer.complete(answer)),
            Self::Bodies(_) => self,
        }
    }
}

impl Caller {
    /// By the key that signed, too: what one that was replaced has used up, its successor has not.
    fn of(sender: &Sender, key: &VerifyingKey) -> Self {
        match sender {
            Sender::Target(target) | Sender::Replaced(target) => Self::Agent(format!("{target} {}", key.fingerprint())),
            Sender::Token(token) => Self::Agent(token.clone()),
        }
    }
}

impl From<Signed<'_>> for Purpose {
    fn from(signed: Signed<'_>) -> Self {
        if signed.request.path == REPORTED_PATH { Self::Report } else { Self::Other }
    }
}

struct Link<S> {
    service: Arc<S>,
    signer: Arc<Signer>,
    taken: Arc<Mutex<TakenNumbers>>,
    refusals: Arc<Refusals>,
    random: SystemRandom,
}

impl<S> Clone for Link<S> {
    fn clone(&self) -> Self {
        let Self { service, signer, taken, refusals, random } = self;
        let (service, signer, taken) = (Arc::clone(service), Arc::clone(signer), Arc::clone(taken));
        Self { service, signer, taken, refusals: Arc::clone(refusals), random: random.clone() }
    }
}

/// Serves `/link/v1/`.
pub fn router<S: Service>(service: Arc<S>, signer: Arc<Signer>, refusals: Arc<Refusals>) -> Router {
    let link = Link { service, signer, taken: Arc::default(), refusals, random: SystemRandom::new() };
    Router::new().route("/link/v1/{*rest}", any(answer::<S>)).with_state(link)
}

/// A request without its content. It owns what it keeps: a header of the request itself keeps all that was read with it, and a
/// poll hangs for minutes.
struct Head {
    method: Method,
    path: String,
    query: String,
    content_type: String,
    /// What it is signed by, if all of that is there.
    proof: Option<Proof>,
    /// The connection it came over, unless it came over none of the listener's.
    peer: Option<Peer>,
}

struct Proof {
    content_digest: String,
    run: String,
    signature_input: String,
    signature: String,
}

async fn answer<S: Service>(State(link): State<Link<S>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let head = Head::of(parts);
    let Some(signed) = head.signed() else {
        link.refusals.count(RefusedAs::Unverified);
        // There is nothing that an answer could be bound to.
        return unsigned(&Unverified::Unauthenticated(
            "this is the link of agents, who sign what they send".to_owned(),
        ));
    };
    let (sender, key) = match link.verify(signed).await {
        Ok(verified) => verified,
        Err(unverified) => {
            head.untaken();
            return link.refuse(signed, None, &Refusal::from(unverified).into());
        }
    };
    // Before anything is read: what was recorded verifies for ever, and is not to cost more than this.
    let next = match link.take_number(&sender, signed) {
        Ok(next) => next,
        Err(next) => {
            head.untaken();
            link.refusals.count(RefusedAs::Replayed);
            let refused = link.signer.number_refused();
            return link.sign(signed, Some(next), status(&refused.refusal), &refused);
        }
    };
    if let Sender::Replaced(_) = sender {
        // Whatever it wants.
        head.untaken();
        return link.refuse(signed, Some(next), &replaced().into());
    }
    if let Sender::Target(target) = sender
        && exchange::clock_differs(signed, now())
    {
        link.service.clock_differs(target);
    }
    let read =
        head.read(body, Caller::of(&sender, &key), signed.into()).await.map_err(|unread| link.judge(&sender, unread));
    let done = match read {
        Err(refused) => Err(refused),
        Ok(content) => match exchange::check_content(signed, &content) {
            Ok(()) => {
                head.has_signed(content.len());
                link.carry_out(&head, signed, (sender, &key), &content).await.map_err(Refused::from)
            }
            Err(refusal) => Err(refusal.into()),
        },
    };
    match done {
        Ok(Done::Enrolled(answer)) => link.sign(signed, Some(next), StatusCode::OK, &answer),
        Ok(Done::Replied(reply)) => link.sign(signed, Some(next), StatusCode::OK, &reply),
        Err(refused) => link.refuse(signed, Some(next), &refused),
    }
}

/// What is said to a request that is refused, and what it counts as.
struct Refused {
    counts_as: RefusedAs,
    refusal: Refusal,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { counts_as: refusal.refusal.into(), refusal }
    }
}

enum Done {
    Enrolled(EnrolAnswer),
    Replied(Reply),
}

impl<S: Service> Link<S> {
    /// Whose request this is, proven by its signature alone, and by which key.
    async fn verify(&self, signed: Signed<'_>) -> Result<(Sender, VerifyingKey), Unverified> {
        let (sender, key) = match Claimant::of(signed)? {
            Claimant::Token(token) => {
                let key = self.service.token_key(&token).await?;
                (Sender::Token(token), key)
            }
            Claimant::Target { named, formers } => {
                let found = exchange::find_target(named, &formers, |target| self.service.target_key(target));
                found.map(|(target, key)| (Sender::Target(target), key))?
            }
        };
        exchange::verify(signed, sender, key, |target| self.service.replaced_keys(target))
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

    /// Takes the request's number, and returns the next that is free; that alone if this one is not.
    fn take_number(&self, sender: &Sender, signed: Signed<'_>) -> Result<u64, u64> {
        let silences = match sender {
            Sender::Target(target) => self.service.silences(*target),
            Sender::Replaced(_) | Sender::Token(_) => Silences::default(),
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.take(self.signer.run, sender, silences, signed)
    }

    /// What is said to whom nothing was read of, and of them.
    fn judge(&self, sender: &Sender, unread: Unread) -> Refused {
        let refused = match unread {
            Unread::Crowded(crowded @ (Crowded::FloodOfKey | Crowded::SignedBytesOfKey)) => {
                if let Sender::Target(target) = sender {
                    self.service.breached(*target, Breach::Rate);
                }
                return Refused { counts_as: RefusedAs::Flood, refusal: busy(crowded.to_string()) };
            }
            Unread::Crowded(crowded) => busy(crowded.to_string()),
            Unread::TooLarge(most) => {
                // Nobody knows whether it is what was signed: whoever is on the way may have added to it. So it accuses nobody;
                // but it counts.
                let message = format!("a request of this kind may have {most} bytes of content");
                Refusal::new(RefusalKind::TooLarge, message)
            }
            Unread::Broken(why) => busy(why),
        };
        refused.into()
    }

    async fn carry_out(
        &self,
        head: &Head,
        signed: Signed<'_>,
        (sender, key): (Sender, &VerifyingKey),
        content: &[u8],
    ) -> Result<Done, Refusal> {
        self.confirm(&sender, key).await?;
        match sender {
            Sender::Token(token) => {
                let request = exchange::read_enrolment(&token, head.unpack(content))?;
                self.service.enrol(request).await.map(Done::Enrolled)
            }
            // It was refused before anything was read.
            Sender::Replaced(_) => Err(replaced()),
            Sender::Target(target) => {
                let (unpack, origin) = (|| head.unpack(content), || head.origin(&self.random));
                let request = exchange::read_request(signed, unpack, origin, &self.signer.key.public());
                let request = request.inspect_err(|refused| {
                    if refused.refusal == RefusalKind::TooLarge {
                        self.service.breached(target, Breach::Message);
                    }
                })?;
                let reply = self.service.handle(target, request).await;
                let reply = reply.inspect_err(|refused| {
                    if refused.refusal == RefusalKind::TooLarge {
                        self.service.breached(target, Breach::Words);
                    }
                })?;
                Ok(Done::Replied(reply.complete(&self.signer)))
            }
        }
    }

    fn refuse(&self, to: Signed<'_>, next: Option<u64>, refused: &Refused) -> Response {
        let Refused { counts_as, refusal } = refused;
        self.refusals.count(*counts_as);
        let mut response = self.sign(to, next, status(refusal), refusal);
        if let Some(seconds) = refusal.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// `next` is the number that is free; nobody who was not verified has one.
    fn sign<T: Serialize>(&self, to: Signed<'_>, next: Option<u64>, status: StatusCode, message: &T) -> Response {
        let mut random = [0; NONCE_BYTES];
        let drawn = self.random.fill(&mut random);
        let signed = self.signer.sign(to, next, status.as_u16(), message, Stamp { created: now(), random });
        let (Ok(Answered { status: _, media_type, content, content_digest, run, headers }), Ok(())) = (signed, drawn)
        else {
            return bare(StatusCode::INTERNAL_SERVER_ERROR);
        };
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

/// In seconds since 1970, as messages are signed.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Proof {
    /// None where a header is missing, or longer than any of an agent's: all of them go into the answer's signature.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let get = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.filter(|value| value.len() <= signature::HEADER_BYTES_MAX).map(str::to_owned)
        };
        Some(Self {
            content_digest: get(signature::CONTENT_DIGEST)?,
            run: get(signature::RUN)?,
            signature_input: get(signature::SIGNATURE_INPUT)?,
            signature: get(signature::SIGNATURE)?,
        })
    }
}

impl Head {
    fn of(mut parts: Parts) -> Self {
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Self {
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or("").to_owned(),
            content_type: content_type.unwrap_or("").to_owned(),
            proof: Proof::of(&parts.headers),
            peer: parts.extensions.remove(),
            method: parts.method,
        }
    }

    fn signed(&self) -> Option<Signed<'_>> {
        let Proof { content_digest, run, signature_input, signature } = self.proof.as_ref()?;
        Some(Signed {
            request: signature::Request {
                method: self.method.as_str(),
                path: exchange::logical_path(&self.path),
                query: &self.query,
                content_digest,
                run,
            },
            signature_input,
            signature,
        })
    }

    /// Counts against the connection, for nobody is to answer for what others recorded of it.
    fn untaken(&self) {
        if let Some(peer) = &self.peer {
            peer.untaken();
        }
    }

    /// Counts as what the key itself has signed: nobody on the way can have added to it.
    fn has_signed(&self, bytes: usize) {
        if let Some(peer) = &self.peer {
            peer.has_signed(bytes);
        }
    }

    /// Counts against the key, for as many bytes as this may cost besides what was received.
    fn has_sent(&self, bytes: usize) {
        if let Some(peer) = &self.peer {
            peer.has_sent(bytes);
        }
    }

    /// Reads the content of a request that was verified, as far as its sender has a share of what is received.
    async fn read(&self, body: Body, caller: Caller, purpose: Purpose) -> Result<Bytes, Unread> {
        if let Some(peer) = &self.peer {
            peer.verified(caller, purpose).map_err(Unread::Crowded)?;
        }
        match timeout(CONTENT_WAIT, to_bytes(body, self.content_max())).await {
            Err(_elapsed) => Err(Unread::Broken("the content of the request did not come in time".to_owned())),
            Ok(Err(error)) => Err(unreadable(&error, self.content_max())),
            Ok(Ok(content)) => Ok(content),
        }
    }

    fn content_max(&self) -> usize {
        exchange::content_max(exchange::logical_path(&self.path))
    }

    fn origin(&self, random: &SystemRandom) -> Result<core::Origin, Refusal> {
        let mut id = [0; 8];
        let failed = |_| Refusal::new(RefusalKind::Busy, "the operating system gives no random numbers");
        random.fill(&mut id).map_err(failed)?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let address = self.peer.as_ref().map(|peer| peer.address().to_string());
        Ok(core::Origin { address, at, id: SessionId(u64::from_le_bytes(id)), ..core::Origin::default() })
    }

    fn unpack<'a>(&self, content: &'a [u8]) -> Result<Cow<'a, [u8]>, codec::Error> {
        let unpacked = codec::unpack_request(self.content_max(), &self.content_type, content);
        let more = |bytes: usize| bytes.saturating_sub(content.len());
        match &unpacked {
            // What it is packed from is signed with it.
            Ok(json) => {
                self.has_sent(more(json.len()));
                self.has_signed(more(json.len()));
            }
            Err(codec::Error::TooLarge(most)) => {
                self.has_sent(more(*most));
                self.has_signed(more(*most));
            }
            // The media type is not signed, so nobody on the way is to accuse the key by it. But up to where nothing more can be
            // unpacked it may have cost as much as any.
            Err(codec::Error::Inflate(_)) => self.has_sent(more(self.content_max())),
            // Nothing was unpacked.
            Err(_) => {}
        }
        unpacked
    }
}

fn replaced() -> Refusal {
    Refusal::new(RefusalKind::Revoked, "the key of this agent was replaced: its SyncTarget has another")
}

/// Why the content of a request that was verified was not read.
enum Unread {
    Crowded(Crowded),
    /// It may have so many bytes.
    TooLarge(usize),
    Broken(String),
}

fn unreadable(error: &axum::Error, most: usize) -> Unread {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return Unread::TooLarge(most);
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
