//! The agent's side of the link: signs what goes out, believes nothing that comes back unsigned.
//!
//! A 200 that is not the hub's (a captive portal, a proxy's error page) is no answer, and neither is one that the hub gave to
//! another request. What is signed is the logical path, so a base URL with a prefix, or a proxy that adds one, does not
//! matter.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tideline_common::replay::{RUNS_MAX, RunNumbers};
use tideline_common::signature::{self, NONCE_BYTES, SigningKey, VerifyingKey};
use tideline_common::{Digest, EnrolmentToken, TargetId};

use crate::addresses::{Addresses, Locator};
use crate::certificates::{Clock, read_clock};
use crate::core::{Answer, LinkFailure, Request};
use crate::identity::HubPin;

pub mod exchange;
mod http;
mod route;

use exchange::{Kind, Outgoing, Sending, VerifiedAnswer};
#[cfg(test)]
pub(crate) use http::tests::USABLE;
pub(crate) use http::{Error, GivenAuthorities};
use route::HubRoute;

/// Longest wait for an answer that the hub does not hold back: a batch of bodies over a link of 10 KiB/s.
const ANSWER_MAX: Duration = Duration::from_mins(2);
/// Added to the wait that a long poll asks for: two slow round trips and a TLS handshake.
const POLL_MARGIN: Duration = Duration::from_secs(15);
/// How often one request is sent: once for each replica behind a balancer that says which run it is, and once more.
const SENDINGS_MAX: usize = RUNS_MAX + 1;

/// The agent's identity, to the hub.
#[derive(Clone)]
struct Speaker {
    key: Arc<SigningKey>,
    /// None until it is enrolled.
    target: Option<TargetId>,
}

/// The token that was given.
struct Token {
    id: Digest,
    name: String,
    key: Arc<SigningKey>,
}

/// A client of one hub.
pub(crate) struct Link {
    route: HubRoute,
    hub_key: VerifyingKey,
    speaker: Mutex<Speaker>,
    /// What signs the request to enrol.
    token: Option<Token>,
    numbers: Mutex<RunNumbers>,
    random: SystemRandom,
}

impl Link {
    /// Makes a client of the pinned hub; dials nothing yet.
    pub(crate) fn new(
        pin: &HubPin,
        (locator, given): (Locator, GivenAuthorities),
        key: SigningKey,
        token: Option<&EnrolmentToken>,
        target: Option<TargetId>,
        clock: Arc<Clock>,
    ) -> Self {
        let token = token.and_then(|token| {
            let seed = <[u8; 32]>::try_from(token.seed.as_slice()).ok()?;
            Some(Token { id: token.id(), name: token.name.clone(), key: Arc::new(SigningKey::from_seed(seed)) })
        });
        Self {
            route: HubRoute::new(locator, given, clock),
            hub_key: pin.verifying_key(),
            speaker: Mutex::new(Speaker { key: Arc::new(key), target }),
            token,
            numbers: Mutex::default(),
            random: SystemRandom::new(),
        }
    }

    /// Says why no request could be sent, if none could. An agent with a cluster to keep asks later again.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        self.route.prepare()
    }

    /// Trusts these authorities from now on, instead of those that were given before.
    pub(crate) fn trust(&self, given: GivenAuthorities) {
        self.route.trust(given);
    }

    /// Sends one request and returns what the hub, and nobody else, answered to it.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer, LinkFailure> {
        let outgoing = Outgoing::new(request).map_err(|error| failed(error.to_string()))?;
        let limit = match request {
            Request::Desired(desired) => Duration::from_secs(desired.wait_seconds) + POLL_MARGIN,
            Request::Enrol(_) | Request::Session(_) | Request::Bodies(_) | Request::Reported(_) => ANSWER_MAX,
        };
        for _ in 0..SENDINGS_MAX {
            let said = self.send_once(&outgoing, limit).await?;
            self.numbers().answered(said.run);
            let Speaker { key, target } = self.speaker();
            let formers = match request {
                Request::Session(session) => &session.formers[..],
                Request::Enrol(_) | Request::Desired(_) | Request::Bodies(_) | Request::Reported(_) => &[],
            };
            let is_or_was: Vec<_> = formers.iter().copied().chain(target).collect();
            if let Some(answer) = said.conclude(&key.public(), &is_or_was) {
                return answer;
            }
        }
        Err(failed(format!(
            "the hub refused {SENDINGS_MAX} request numbers in a row; does a proxy or load balancer send requests twice?"
        )))
    }

    /// Sends it to the address that the hub answers at, as far as is known.
    async fn send_once(&self, outgoing: &Outgoing, limit: Duration) -> Result<VerifiedAnswer, LinkFailure> {
        let sending = self.sign(outgoing)?;
        let (destination, http) = self.route.next()?;
        let returned = http.exchange(&destination.url, outgoing, &sending, limit).await;
        let returned = returned.map_err(|unanswered| self.route.unanswered(&destination, unanswered))?;
        let said = exchange::read_answer(&self.hub_key, outgoing, &sending, &returned);
        self.route.heard(&destination, said)
    }

    /// Names the token that was given.
    pub(crate) fn token(&self) -> Option<Digest> {
        self.token.as_ref().map(|token| token.id)
    }

    /// The key that requests other than to enrol are signed with.
    pub(crate) fn public_key(&self) -> VerifyingKey {
        self.speaker().key.public()
    }

    /// From now on this agent has this key and is this target.
    pub(crate) fn speak_as(&self, key: SigningKey, target: TargetId) {
        *self.speaker.lock().unwrap_or_else(PoisonError::into_inner) =
            Speaker { key: Arc::new(key), target: Some(target) };
    }

    fn speaker(&self) -> Speaker {
        self.speaker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Signs one sending, with numbers of its own.
    fn sign(&self, outgoing: &Outgoing) -> Result<Sending, LinkFailure> {
        let mut random = [0; NONCE_BYTES];
        self.random.fill(&mut random).map_err(|_| failed("the operating system gives no random numbers".to_owned()))?;
        let (key, key_id) = self.signer(outgoing.kind).ok_or_else(|| {
            failed("this agent is not enrolled, and was given no token to enrol with: give --token-file".to_owned())
        })?;
        // Written for people; nobody judges it.
        let created = read_clock().0;
        let parameters = signature::Parameters { key_id: &key_id, created, nonce: &signature::nonce(random) };
        let numbers = self.numbers().take();
        Ok(outgoing.sign(&key, numbers, parameters))
    }

    /// The hub's addresses, if they have to be kept anew.
    pub(crate) fn take_unsaved_addresses(&self) -> Option<Addresses> {
        self.route.take_unsaved()
    }

    /// None for a request that cannot be signed: to enrol without a token, any other without being enrolled.
    fn signer(&self, kind: Kind) -> Option<(Arc<SigningKey>, String)> {
        match kind {
            Kind::Enrol => self.token.as_ref().map(|token| (Arc::clone(&token.key), token.name.clone())),
            Kind::Session | Kind::Desired | Kind::Bodies | Kind::Reported => {
                let Speaker { key, target } = self.speaker();
                Some((key, target?.to_string()))
            }
        }
    }

    fn numbers(&self) -> std::sync::MutexGuard<'_, RunNumbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(message: String) -> LinkFailure {
    LinkFailure::Unreachable { message, retry_after: None }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("hub", &self.hub_key)
            .field("target", &self.speaker().target)
            .finish_non_exhaustive()
    }
}
