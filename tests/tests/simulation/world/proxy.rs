//! A proxy between agent and hub that ends TLS: it sees everything and keeps what it likes, changes messages and forges
//! others, and has the key of another enrolled target. Whatever it does, nobody acts on it.

use std::collections::VecDeque;

use tideline_agent::link::exchange::Returned;
use tideline_common::RunId;
use tideline_common::replay::RunNumber;
use tideline_common::signature::{self, Headers, Parameters, Signed};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    BODIES_PATH, DESIRED_PATH, DesiredAnswer, MEDIA_TYPE, REPORTED_PATH, Refusal, RefusalKind, SESSION_PATH,
};
use tideline_hub::link::exchange::Answered;
use uuid::Uuid;

use super::hub::refuse;
use super::{Happening, World};
use crate::ids::{HUB, OTHER_TARGET};
use crate::wire::{Message, Reply, STOLEN_KEY, Travelling};

/// Requests and answers that are kept.
const KEPT_MAX: usize = 32;

/// Messages that were kept, from whichever run.
#[derive(Debug, Default)]
pub(super) struct Proxy {
    requests: VecDeque<Travelling>,
    answers: VecDeque<Reply>,
    tricks: u64,
}

fn keep<T>(kept: &mut VecDeque<T>, what: T) {
    if kept.len() == KEPT_MAX {
        kept.pop_front();
    }
    kept.push_back(what);
}

impl World {
    /// What becomes of a request.
    pub(super) fn pass_request(&mut self, travelling: Travelling) -> Travelling {
        keep(&mut self.proxy.requests, travelling.clone());
        if !self.random.chance(self.faults.meddle) {
            return travelling;
        }
        self.proxy.tricks += 1;
        let trick = self.random.below(15);
        let former = self.random.pick(self.proxy.requests.make_contiguous()).clone();
        let waits = travelling.waits;
        self.note(|| format!("somebody plays trick {trick} on {waits:?}"));
        match trick {
            // An answer to an earlier request, or to another agent.
            0 => Travelling { waits, ..former },
            // The signature still covers this very request.
            1 => {
                let mut content = travelling.message.content.clone();
                content.push(b' ');
                let message = Message { content, ..travelling.message };
                Travelling { message, forged_content: true, ..travelling }
            }
            _ => {
                let message = self.forge(trick, travelling.message.clone(), &former.message);
                let is = [&travelling, &former].into_iter().find(|it| signs(&it.message) == signs(&message));
                let is = is.and_then(|it| it.is);
                Travelling { message, is, ..travelling }
            }
        }
    }

    /// One part of a request is another.
    fn forge(&mut self, trick: u64, mut message: Message, former: &Message) -> Message {
        let Some(headers) = message.headers.clone() else { return message };
        let claims = signature::claims(&headers.signature_input).expect("an agent has written it");
        let named = |name: &str| {
            let signature_input = headers.signature_input.replace(&claims.key_id, name);
            Some(Headers { signature_input, ..headers.clone() })
        };
        match trick {
            2 => message.headers = None,
            // The live agent's nonce under another name: an answer about that one must not be given to this one.
            3 => message.headers = named(&Uuid::from_u128(u128::from(self.random.next())).to_string()),
            4 => message.headers = named(OTHER_TARGET),
            5 | 6 => {
                let key_id = if trick == 5 { OTHER_TARGET } else { &claims.key_id };
                let parameters = Parameters { key_id, created: claims.created, nonce: &claims.nonce };
                message.headers = Some(signature::sign_request(&STOLEN_KEY, message.covered(), parameters));
            }
            7 => message.query = if message.query.is_empty() { "a=b".to_owned() } else { former.query.clone() },
            8 => message.method = if message.method == "POST" { "PUT" } else { "POST" },
            9 => message.path = *self.random.pick(&[SESSION_PATH, DESIRED_PATH, BODIES_PATH, REPORTED_PATH]),
            10 => {
                message.content.clone_from(&former.content);
                message.content_digest.clone_from(&former.content_digest);
            }
            11 => message.content_digest = signature::content_digest(b"something else"),
            12 => message.run.clone_from(&former.run),
            13 => {
                let signature = former.headers.as_ref().map_or_else(String::new, |of| of.signature.clone());
                message.headers = Some(Headers { signature, ..headers });
            }
            _ => message.headers.clone_from(&former.headers),
        }
        message
    }

    /// What becomes of an answer.
    pub(super) fn pass_answer(&mut self, reply: Reply) -> Reply {
        keep(&mut self.proxy.answers, reply.clone());
        if !self.random.chance(self.faults.meddle) {
            return reply;
        }
        self.proxy.tricks += 1;
        let trick = self.random.below(9);
        let former = self.random.pick(self.proxy.answers.make_contiguous()).clone();
        self.note(|| format!("somebody plays trick {trick} on an answer"));
        if trick == 0 {
            return former;
        }
        let mut returned = reply.returned.clone();
        match trick {
            1 => (returned.signature, returned.signature_input) = (None, None),
            2 => {
                let statuses = [200, 403, 404, 409, 410, 503];
                let others: Vec<_> = statuses.into_iter().filter(|it| *it != returned.status).collect();
                returned.status = *self.random.pick(&others);
            }
            3 => returned.content = self.harm(None).1,
            4 => {
                returned.content = self.harm(None).1;
                returned.content_digest = Some(signature::content_digest(&returned.content));
            }
            5 => {
                let told = returned.run.as_deref().and_then(|run| run.parse::<RunNumber>().ok());
                returned.run = told.map(|told| RunNumber { number: told.number + 1, ..told }.to_string());
            }
            6 => {
                let run = RunId::from_uuid(Uuid::from_u128(u128::from(self.random.next())));
                returned.run = Some(RunNumber { run, number: 1 }.to_string());
            }
            7 => {
                returned.signature_input.clone_from(&former.returned.signature_input);
                returned.signature.clone_from(&former.returned.signature);
            }
            _ => {
                let page = b"<html>Welcome to the hotel</html>".to_vec();
                let content_type = Some("text/html".to_owned());
                returned = Returned { status: 200, content_type, content: page, ..Returned::default() };
            }
        }
        // Two answers to one request may differ in nothing but what was swapped.
        let is = [&reply, &former].into_iter().find(|it| bytes(&it.returned) == bytes(&returned));
        let to = is.and_then(|is| is.to);
        Reply { returned, to }
    }

    /// Answers the request itself, in the hub's name, with the key that it has.
    pub(super) fn answers_for_the_hub(&mut self, travelling: &Travelling) -> Option<Reply> {
        let meddles = self.random.chance(self.faults.meddle / 4);
        let to = travelling.message.signed().filter(|_| meddles)?;
        self.proxy.tricks += 1;
        let waits = travelling.waits;
        self.note(|| format!("somebody answers {waits:?} in the hub's name"));
        let (status, content) = self.harm(Some(travelling.message.path));
        let run = RunNumber { run: RunId::from_uuid(Uuid::from_u128(1)), number: 1 }.to_string();
        let content_digest = signature::content_digest(&content);
        let response = signature::Response { status, content_digest: &content_digest, run: &run };
        let parameters = Parameters { key_id: HUB, created: 0, nonce: "nonce" };
        let headers = signature::sign_response(&STOLEN_KEY, response, to, parameters);
        let answered = Answered { status, media_type: MEDIA_TYPE, content, content_digest, run, headers };
        Some(Reply { to: None, ..Reply::new(answered, travelling) })
    }

    /// Bad news for an agent, as an answer to this request.
    fn harm(&mut self, path: Option<&str>) -> (u16, Vec<u8>) {
        if path == Some(DESIRED_PATH) && self.random.chance(500) {
            let content = codec::encode(&DesiredAnswer::Broken).expect("it is short").1;
            return (200, content);
        }
        let refusal = self.bad_news();
        (refusal.refusal.status(), codec::encode(&refusal).expect("it is short").1)
    }

    /// What the hub says of the other target, to whoever has its key.
    pub(super) fn bad_news(&mut self) -> Refusal {
        let kinds = [
            RefusalKind::TargetGone,
            RefusalKind::Revoked,
            RefusalKind::Quarantined,
            RefusalKind::UnknownTarget,
            RefusalKind::Fenced,
        ];
        refuse(*self.random.pick(&kinds))
    }

    /// How often something was changed or forged.
    pub(crate) fn tricks(&self) -> u64 {
        self.proxy.tricks
    }

    /// A message is replayed, perhaps in another run of hub or agent.
    pub(super) fn replay_some(&mut self) {
        if !self.proxy.requests.is_empty() && self.random.chance(300) {
            let at = self.random.below(self.proxy.requests.len() as u64);
            self.replay(usize::try_from(at).expect("it is an index"));
        }
    }

    /// All kept messages are replayed.
    pub(crate) fn replay_all(&mut self) {
        (0..self.proxy.requests.len()).for_each(|at| self.replay(at));
    }

    fn replay(&mut self, at: usize) {
        let travelling = self.proxy.requests[at].clone();
        let waits = travelling.waits;
        self.note(|| format!("somebody sends {waits:?} again"));
        self.schedule(0, Happening::Request(Box::new(travelling)));
    }
}

/// Everything of a request that its answer is bound to.
fn signs(message: &Message) -> (&str, &str, &str, &str, &str, Option<(&str, &str)>) {
    let signature::Request { method, path, query, content_digest, run } = message.covered();
    let headers = message.signed().map(|Signed { signature_input, signature, .. }| (signature_input, signature));
    (method, path, query, content_digest, run, headers)
}

/// Everything of an answer that is to be believed.
fn bytes(returned: &Returned) -> impl PartialEq + '_ {
    let Returned { status, content_type: _, retry_after: _, content_digest, run, signature_input, signature, content } =
        returned;
    (status, content_digest, run, signature_input, signature, content)
}
