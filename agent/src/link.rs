//! The agent's side of the link: signs what goes out, believes nothing that comes back unsigned.
//!
//! A 200 that is not the hub's (a captive portal, a proxy's error page) is no answer. What is signed is the logical path,
//! so a base URL with a prefix, or a proxy that adds one, does not matter.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use tideline_common::signature::{self, NONCE_BYTES, SigningKey, VerifyingKey};
use tideline_common::{EnrolmentToken, TargetId};

use crate::core::{Answer, LinkFailure, Request};
use crate::identity::HubPin;

mod exchange;
mod http;

use exchange::{Kind, Outgoing, Returned};
pub(crate) use http::Error;
use http::Http;

/// Longest wait for an answer that the hub does not hold back: a batch of bodies over a link of 10 KiB/s.
const ANSWER_MAX: Duration = Duration::from_mins(2);
/// Added to the wait that a long poll asks for: two slow round trips and a TLS handshake.
const POLL_MARGIN: Duration = Duration::from_secs(15);

/// A client of one hub.
pub(crate) struct Link {
    http: Http,
    hub_key: VerifyingKey,
    key: SigningKey,
    /// What signs the request to enrol.
    token: Option<(String, SigningKey)>,
    target: OnceLock<TargetId>,
    random: SystemRandom,
}

impl Link {
    /// Makes a client of the pinned hub; dials nothing yet.
    pub(crate) fn new(
        pin: &HubPin,
        key: SigningKey,
        token: Option<&EnrolmentToken>,
        target: Option<TargetId>,
    ) -> Result<Self, Error> {
        let token = token.and_then(|token| {
            let seed = <[u8; 32]>::try_from(token.seed.as_slice()).ok()?;
            Some((token.name.clone(), SigningKey::from_seed(seed)))
        });
        Ok(Self {
            http: Http::new(&pin.url, &pin.ca)?,
            hub_key: pin.verifying_key(),
            key,
            token,
            target: target.map_or_else(OnceLock::new, OnceLock::from),
            random: SystemRandom::new(),
        })
    }

    /// Sends one request and returns what the hub, and nobody else, answered.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer, LinkFailure> {
        let failed = |message: String| LinkFailure::Unreachable { message, retry_after: None };
        let outgoing = Outgoing::new(request).map_err(|error| failed(error.to_string()))?;
        let mut random = [0; NONCE_BYTES];
        self.random.fill(&mut random).map_err(|_| failed("the operating system gives no random numbers".to_owned()))?;
        let nonce = signature::nonce(random);
        let headers = self.sign(&outgoing, &nonce).ok_or_else(|| {
            failed("this agent is not enrolled, and was given no token to enrol with: give --token-file".to_owned())
        })?;
        let limit = match request {
            Request::Desired(desired) => Duration::from_secs(desired.wait_seconds) + POLL_MARGIN,
            Request::Enrol(_) | Request::Session(_) | Request::Bodies(_) | Request::Reported(_) => ANSWER_MAX,
        };
        let kind = outgoing.kind;
        let returned: Returned = self.http.exchange(outgoing, &headers, limit).await?;
        let answer = exchange::read_answer(kind, &self.hub_key, &nonce, &returned)?;
        if let Answer::Enrolled(enrolled) = &answer {
            // Enrolling again is answered alike, so whatever is there is this.
            let _ = self.target.set(enrolled.target);
        }
        Ok(answer)
    }

    /// None for what cannot be signed: a request to enrol without a token, any other without being enrolled.
    fn sign(&self, outgoing: &Outgoing, nonce: &str) -> Option<signature::Headers> {
        // Written for people; nobody judges it.
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (key, key_id) = match outgoing.kind {
            Kind::Enrol => self.token.as_ref().map(|(name, key)| (key, name.clone()))?,
            Kind::Session | Kind::Desired | Kind::Bodies | Kind::Reported => {
                (&self.key, self.target.get()?.to_string())
            }
        };
        let parameters = signature::Parameters { key_id: &key_id, created, nonce };
        Some(signature::sign_request(key, outgoing.signed(), parameters))
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("hub", &self.hub_key).field("target", &self.target).finish_non_exhaustive()
    }
}
