//! The wire, and the hub's process at its end.

use std::sync::LazyLock;

use serde::Serialize;
use tideline_agent::addresses::Missed;
use tideline_agent::core::{Answer, LinkFailure, Request, RequestId};
use tideline_agent::link::exchange::{Kind, Outgoing, VerifiedAnswer, read_answer};
use tideline_common::TargetId;
use tideline_common::replay::RUNS_MAX;
use tideline_common::signature::{NONCE_BYTES, Parameters, VerifyingKey};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{EnrolAnswer, Refusal, RefusalKind};
use tideline_hub::engine::Lineage;
use tideline_hub::link::core as link;
use tideline_hub::link::exchange::{self, Claimant, Sender, Stamp, Unverified};

use super::{Happening, World};
use crate::faults::{COMMIT, DELAYED, GIVE_UP_AFTER, TRANSIT};
use crate::hub::{Demand, key};
use crate::ids::{HUB, OTHER_TARGET, parse};
use crate::wire::{AGENT_KEY, Message, Reply, STOLEN_KEY, Sent, TOKEN, TOKEN_KEY, Travelling, Waiting};

static HUB_KEY: LazyLock<VerifyingKey> = LazyLock::new(|| key().public());

/// A request at the hub, with the first unused number after it.
#[derive(Debug)]
pub(super) struct Asked {
    travelling: Travelling,
    next: Option<u64>,
}

impl Asked {
    pub(super) fn waits(&self) -> Sent {
        self.travelling.waits
    }
}

impl World {
    pub(super) fn send(&mut self, id: RequestId, request: &Request) {
        self.note(|| format!("agent ▶ {id:?} {request:?}"));
        let run = self.agent.run;
        let waits = match request {
            Request::Desired(request) => request.wait_seconds * 1000,
            Request::Enrol(_) | Request::Session(_) | Request::Bodies(_) | Request::Reported(_) => 0,
        };
        let outgoing = match request {
            Request::Enrol(request) => Outgoing::new(&Request::Enrol(request.clone().proven(&AGENT_KEY))),
            request => Outgoing::new(request),
        };
        let outgoing = outgoing.expect("every message can be written");
        let destination = self.destination();
        self.agent.requests.insert(id, Waiting { outgoing, sending: None, sendings: 0, destination });
        self.schedule(waits + GIVE_UP_AFTER, Happening::GiveUp { run, id });
        self.send_again(id);
    }

    /// Sends a request that still waits for its answer, with a number of its own.
    fn send_again(&mut self, id: RequestId) {
        self.sendings += 1;
        let (run, number) = (self.agent.run, self.sendings);
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        let destination = self.destination();
        let Some(waiting) = self.agent.requests.get_mut(&id) else { return };
        let target = self.agent.journal.identity.as_ref().map(|identity| identity.target.to_string());
        let (key, key_id) = match waiting.outgoing.kind {
            Kind::Enrol => (&TOKEN_KEY, TOKEN.to_owned()),
            Kind::Session | Kind::Desired | Kind::Bodies | Kind::Reported => {
                (&AGENT_KEY, target.expect("it asks only once it is enrolled"))
            }
        };
        let nonce = tideline_common::signature::nonce(nonce);
        let parameters = Parameters { key_id: &key_id, created: self.now / 1000, nonce: &nonce };
        let sending = waiting.outgoing.sign(key, self.agent.numbers.take(), parameters);
        let message = Message::of(&waiting.outgoing, &sending);
        waiting.sending = Some((sending, number));
        waiting.sendings += 1;
        waiting.destination = destination;
        let waits = Sent { run, id, number };
        if !self.is_reached() {
            let after = self.transit();
            return self.schedule(after, Happening::Unreached(waits));
        }
        let genuine = Travelling { message, is: Some(number), forged_content: false, waits };
        let travelling = self.pass_request(genuine);
        for _ in 0..self.copies() {
            let after = self.transit();
            let happening = match self.answers_for_the_hub(&travelling) {
                Some(reply) => Happening::Reply { to: waits, reply: Box::new(reply) },
                None => Happening::Request(Box::new(travelling.clone())),
            };
            self.schedule(after, happening);
        }
    }

    /// An answer to a request arrives.
    pub(super) fn reply_arrives(&mut self, to: Sent, reply: &Reply) {
        let waiting = self.agent.requests.get(&to.id).filter(|waiting| waiting.is_of(to) && !self.agent.cut_off);
        let Some(Waiting { outgoing, sending: Some((sending, _)), sendings, .. }) = waiting else { return };
        let said = read_answer(&HUB_KEY, outgoing, sending, &reply.returned);
        if let Ok(said) = &said {
            assert_eq!(reply.to, Some(to.number), "{said:?} is believed and is not the answer to {sending:?}");
        }
        let again = *sendings <= RUNS_MAX;
        self.heard(to.id, said.as_ref().ok());
        let result = match said {
            Err(failure) => Err(failure),
            Ok(said) => {
                let VerifiedAnswer { run, .. } = said;
                self.agent.numbers.answered(run);
                let journal = &self.agent.journal;
                let is = journal.identity.as_ref().map(|identity| identity.target);
                let is_or_was: Vec<_> = journal.formers.iter().chain(is).collect();
                match said.conclude(&AGENT_KEY.public(), &is_or_was) {
                    Some(result) => result,
                    None if again => return self.send_again(to.id),
                    None => Err(LinkFailure::Unreachable { message: "no number".to_owned(), retry_after: None }),
                }
            }
        };
        self.agent.requests.remove(&to.id);
        self.hear(to.id, result);
    }

    fn hear(&mut self, id: RequestId, result: Result<Answer, LinkFailure>) {
        self.note(|| format!("agent ◀ {id:?} {result:?}"));
        self.keep_target(&result);
        self.agent_steps(tideline_agent::core::Event::Answered { id, result });
        self.keep_addresses();
    }

    /// No answer to a request came.
    pub(super) fn goes_unanswered(&mut self, id: RequestId) {
        self.missed(id, Missed::Cut);
        self.agent.requests.remove(&id);
        self.hear(id, Err(LinkFailure::Unreachable { message: "no answer".to_owned(), retry_after: None }));
    }

    /// No server took the request.
    pub(super) fn unreached(&mut self, to: Sent) {
        if self.agent.requests.get(&to.id).is_some_and(|waiting| waiting.is_of(to)) {
            self.missed(to.id, Missed::NotThere);
            self.agent.requests.remove(&to.id);
            self.hear(
                to.id,
                Err(LinkFailure::Unreachable { message: "nobody is there".to_owned(), retry_after: None }),
            );
        }
    }

    /// How many copies of a message arrive.
    pub(super) fn copies(&mut self) -> u64 {
        let lost = self.probe.as_mut().is_some_and(|probe| probe.message());
        if lost || self.partitioned || self.random.chance(self.faults.lose) {
            0
        } else {
            1 + u64::from(self.random.chance(self.faults.double))
        }
    }

    pub(super) fn transit(&mut self) -> u64 {
        let late = self.random.chance(self.faults.delay);
        self.random.within(if late { DELAYED } else { TRANSIT })
    }

    /// What the hub's edge does.
    pub(super) fn request_arrives(&mut self, travelling: Travelling) {
        if !self.hub.up || self.partitioned || self.is_cut_off(travelling.waits.run) {
            return;
        }
        let Some(signed) = travelling.message.signed() else {
            return self.reply(travelling.waits, Reply::unsigned());
        };
        let sender = match self.verify(signed) {
            Ok(sender) => sender,
            Err(unverified) => {
                let asked = Asked { travelling, next: None };
                return self.refuse(&asked, &unverified.into());
            }
        };
        let next = match self.hub.taken.take(self.hub.signer.run, &sender, self.hub.silences, signed) {
            Ok(next) => next,
            Err(next) => {
                let refused = self.hub.signer.number_refused();
                let asked = Asked { travelling, next: Some(next) };
                return self.answer(&asked, refused.refusal.refusal.status(), &refused);
            }
        };
        let checked = exchange::check_content(signed, &travelling.message.content);
        let asked = Asked { travelling, next: Some(next) };
        if let Err(refusal) = checked {
            return self.refuse(&asked, &refusal);
        }
        if let Sender::Target(target) = sender
            && target == parse(OTHER_TARGET)
        {
            let refusal = self.bad_news();
            return self.refuse(&asked, &refusal);
        }
        let is = asked.travelling.is.expect("a request is taken that nobody has sent so");
        assert!(!asked.travelling.forged_content, "a request is taken whose content was changed on the way");
        assert!(self.taken.insert(is), "a request is taken twice");
        self.is_taken(sender, asked);
    }

    fn is_taken(&mut self, sender: Sender, asked: Asked) {
        if self.new_key_enrols(&sender) {
            self.let_in();
        }
        if let Some(refusal) = self.shut_out {
            return self.refuse(&asked, &refuse(refusal));
        }
        let message = &asked.travelling.message;
        let json = || codec::unpack_request(exchange::content_max(message.path), message.media_type, &message.content);
        let found = match sender {
            Sender::Target(target) => target,
            Sender::Replaced(_) => unreachable!("no key is remembered here"),
            Sender::Token(token) => {
                exchange::read_enrolment(&token, json()).expect("what one side wrote the other can read");
                let answer = EnrolAnswer { hub: parse(HUB), target: self.hub.target(), name: "store".to_owned() };
                return self.answer(&asked, 200, &answer);
            }
        };
        let from = self.hub.origin(self.monotonic());
        let signed = message.signed().expect("it was verified");
        let request = exchange::read_request(signed, json, || Ok(from), &HUB_KEY);
        let request = request.expect("what one side wrote the other can read");
        if let Some(answer) = self.hub.of_another(found, &request) {
            return self.conclude(&asked, answer);
        }
        let asked = if let link::Request::Desired(request) = &request {
            let Some(asked) = self.answered_instead(asked, request) else { return };
            asked
        } else {
            asked
        };
        self.last_request += 1;
        let at_hub = link::RequestId(self.last_request);
        self.requests.insert(at_hub, asked);
        self.hub_steps(link::Event::Requested { id: at_hub, target: self.hub.target(), request });
    }

    fn verify(&self, signed: tideline_common::signature::Signed<'_>) -> Result<Sender, Unverified> {
        let (sender, key) = match Claimant::of(signed)? {
            Claimant::Token(token) if token == TOKEN => (Sender::Token(token), TOKEN_KEY.public()),
            Claimant::Token(_) => return Err(Unverified::UnknownToken),
            Claimant::Target { named, formers } => {
                let (target, key) = exchange::find_target(named, &formers, |target| self.key_of(target))?;
                (Sender::Target(target), key)
            }
        };
        Ok(exchange::verify(signed, sender, key, |_| Vec::new())?.0)
    }

    fn key_of(&self, target: TargetId) -> Result<VerifyingKey, Unverified> {
        if target == parse(OTHER_TARGET) {
            return Ok(STOLEN_KEY.public());
        }
        let forgotten = self.shut_out == Some(RefusalKind::UnknownTarget);
        self.hub.key(target).filter(|_| !forgotten).ok_or(Unverified::UnknownTarget)
    }

    /// The hub refuses the agent: its SyncTarget was deleted, say, or the hub runs on an old copy of its directory.
    pub(super) fn shut_out(&mut self, refusal: RefusalKind) {
        self.note(|| format!("the agent is SHUT OUT: {refusal:?}"));
        self.shut_out = Some(refusal);
        if self.hub.up {
            self.hub_steps(link::Event::TargetClosed { target: self.hub.target(), why: refuse(refusal) });
        }
    }

    /// The cause has ended.
    pub(super) fn let_in(&mut self) {
        if self.shut_out.take().is_some() && self.hub.up {
            self.note(|| "the agent is let in again".to_owned());
            let known = self.hub.known();
            self.hub_steps(known);
        }
    }

    /// Signs the answer of the core.
    fn conclude(&mut self, asked: &Asked, answer: Result<link::Answer, Refusal>) {
        if let Some(probe) = &mut self.probe {
            probe.answered(&answer);
        }
        if self.loses_acknowledgements && matches!(answer, Ok(link::Answer::Reported(_))) {
            return self.note(|| format!("the answer to {:?} is lost", asked.waits()));
        }
        match answer {
            Ok(answer) => {
                let answer = self.hub.signer.complete(answer);
                self.answer(asked, 200, &answer);
            }
            Err(refusal) => self.refuse(asked, &refusal),
        }
    }

    fn refuse(&mut self, asked: &Asked, refusal: &Refusal) {
        self.answer(asked, refusal.refusal.status(), refusal);
    }

    fn answer<T: Serialize>(&mut self, asked: &Asked, status: u16, message: &T) {
        let reply = self.sign(asked, status, message);
        self.reply(asked.waits(), reply);
    }

    pub(super) fn sign<T: Serialize>(&mut self, asked: &Asked, status: u16, message: &T) -> Reply {
        let Asked { travelling, next } = asked;
        let signed = travelling.message.signed().expect("who signs nothing is answered otherwise");
        let stamp = Stamp { created: self.now / 1000, random: [0; NONCE_BYTES] };
        let answered = self.hub.signer.sign(signed, *next, status, message, stamp);
        Reply::new(answered.expect("every message can be written"), travelling)
    }

    fn reply(&mut self, to: Sent, reply: Reply) {
        let reply = self.pass_answer(reply);
        for _ in 0..self.copies() {
            let after = self.transit();
            self.schedule(after, Happening::Reply { to, reply: Box::new(reply.clone()) });
        }
    }

    pub(super) fn hub_starts(&mut self) {
        if self.hub.up || self.hub_gone {
            return;
        }
        if self.now < self.restoring_until {
            return self.schedule(self.restoring_until - self.now, Happening::HubStarts);
        }
        self.note(|| "the hub starts".to_owned());
        let mut demands = Vec::new();
        self.hub.start(self.monotonic(), &mut demands);
        self.hub.signer.addresses = self.whereabouts.announced();
        self.satisfy(demands);
        let changes = self.workload.changes(&self.hub.ledger, self.hub.target());
        self.hub.change(changes);
        self.hub_writes_if_needed();
    }

    pub(super) fn hub_steps(&mut self, event: link::Event) {
        let mut demands = Vec::new();
        self.hub.step(self.monotonic(), event, &mut demands);
        self.satisfy(demands);
        self.hub_writes_if_needed();
    }

    pub(super) fn satisfy(&mut self, demands: Vec<Demand>) {
        for demand in demands {
            if self.random.chance(self.faults.hub_crash) {
                return self.hub_crashes();
            }
            match demand {
                Demand::End(absence) => return self.hub_ends(absence.millis()),
                Demand::Timer(at) => {
                    let run = self.hub.run;
                    let after = at.as_millis().saturating_sub(self.now);
                    self.schedule(after, Happening::HubTimer { run, at });
                }
                Demand::Respond(id, answer) => {
                    if let Some(asked) = self.requests.remove(&id) {
                        let Sent { run, id, .. } = asked.waits();
                        self.note(|| format!("hub answers {id:?}"));
                        self.check_told(run, &answer);
                        self.conclude(&asked, answer);
                    }
                }
                Demand::RespondBodies(id, answer) => {
                    if let Some(asked) = self.requests.remove(&id) {
                        self.answer(&asked, 200, &answer);
                    }
                }
            }
        }
    }

    pub(super) fn hub_writes_if_needed(&mut self) {
        if self.hub.begin_write(self.monotonic()) {
            self.schedule_hub_write();
        }
    }

    pub(super) fn schedule_hub_write(&mut self) {
        let run = self.hub.run;
        let after = self.random.within(COMMIT);
        self.schedule(after, Happening::HubWrites { run });
    }

    pub(super) fn hub_writes(&mut self) {
        if self.random.chance(self.faults.hub_crash) {
            return self.hub_crashes();
        }
        if self.random.chance(self.faults.disk) {
            self.hub.write_again();
            return self.schedule_hub_write();
        }
        let mut demands = Vec::new();
        if self.hub.go_on_writing(self.monotonic(), &mut demands) {
            self.schedule_hub_write();
        }
        self.note(|| "hub wrote".to_owned());
        self.satisfy(demands);
        if self.hub.outdated && !self.hub.is_writing() {
            self.workload_changed();
        }
        self.hub_writes_if_needed();
    }
}

pub(super) fn refuse(refusal: RefusalKind) -> Refusal {
    Refusal::new(refusal, "shut out")
}
