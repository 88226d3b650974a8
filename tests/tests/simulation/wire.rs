//! What travels between agent and hub: the real messages, in their real bytes, really signed.

use std::sync::LazyLock;

use tideline_agent::addresses::Destination;
use tideline_agent::core::RequestId;
use tideline_agent::link::exchange::{Outgoing, Returned, Sending};
use tideline_common::signature::{self, Headers, Signed, SigningKey};
use tideline_hub::link::exchange::Answered;

/// The name of the enrolment token.
pub(crate) const TOKEN: &str = "token";

/// Every process with an identity of the first target has this one, copies included.
pub(crate) static AGENT_KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::from_seed([9; 32]));
pub(crate) static TOKEN_KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::from_seed([8; 32]));
/// The key of the other target's agent. It was stolen.
pub(crate) static STOLEN_KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::from_seed([10; 32]));

/// A request as it is on the wire, whoever made it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) query: String,
    pub(crate) media_type: &'static str,
    pub(crate) content: Vec<u8>,
    pub(crate) content_digest: String,
    pub(crate) run: String,
    pub(crate) headers: Option<Headers>,
}

impl Message {
    pub(crate) fn of(outgoing: &Outgoing, sending: &Sending) -> Self {
        let Outgoing { kind: _, method, path, query, content, content_digest } = outgoing;
        let (media_type, content) = content.as_ref().map_or(("", Vec::new()), |(kind, bytes)| (*kind, bytes.to_vec()));
        Self {
            method,
            path,
            query: query.clone(),
            media_type,
            content,
            content_digest: content_digest.clone(),
            run: sending.run.clone(),
            headers: Some(sending.headers.clone()),
        }
    }

    /// What its signature covers.
    pub(crate) fn covered(&self) -> signature::Request<'_> {
        let Self { method, path, query, content_digest, run, .. } = self;
        signature::Request { method, path, query, content_digest, run }
    }

    /// None if it is not signed.
    pub(crate) fn signed(&self) -> Option<Signed<'_>> {
        let Headers { signature_input, signature } = self.headers.as_ref()?;
        Some(Signed { request: self.covered(), signature_input, signature })
    }
}

/// One sending of a request by an agent, of all that there ever were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// The agent's.
    pub(crate) run: u64,
    pub(crate) id: RequestId,
    pub(crate) number: u64,
}

/// What an agent waits for an answer to.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) outgoing: Outgoing,
    /// The last sending, and its number.
    pub(crate) sending: Option<(Sending, u64)>,
    pub(crate) sendings: usize,
    /// Where the last one went.
    pub(crate) destination: Destination,
}

impl Waiting {
    /// Whether this is what was sent last.
    pub(crate) fn is_of(&self, sent: Sent) -> bool {
        self.sending.as_ref().is_some_and(|(_, number)| *number == sent.number)
    }
}

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Travelling {
    pub(crate) message: Message,
    /// Which sending it is, as far as a signature covers it; none if somebody has changed it.
    pub(crate) is: Option<u64>,
    /// The content is not what was sent.
    pub(crate) forged_content: bool,
    /// Who gets the answer.
    pub(crate) waits: Sent,
}

/// An answer on its way.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) returned: Returned,
    /// The sending that the hub answered; none if somebody has changed either.
    pub(crate) to: Option<u64>,
}

impl Reply {
    /// What a hub answers to this.
    pub(crate) fn new(answered: Answered, to: &Travelling) -> Self {
        let Answered { status, media_type, content, content_digest, run, headers } = answered;
        let returned = Returned {
            status,
            content_type: Some(media_type.to_owned()),
            retry_after: None,
            content_digest: Some(content_digest),
            run: Some(run),
            signature_input: Some(headers.signature_input),
            signature: Some(headers.signature),
            content,
        };
        Self { returned, to: to.is }
    }

    /// What a hub answers to an unsigned request.
    pub(crate) fn unsigned() -> Self {
        Self { returned: Returned { status: 401, ..Returned::default() }, to: None }
    }
}
