//! The wire, and the hub's process at its end.

use tideline_agent::core::{Request, RequestId};
use tideline_common::wire::v1::{EnrolAnswer, Refusal, RefusalKind};
use tideline_hub::link::core as link;

use super::{Happening, World};
use crate::faults::{COMMIT, DELAYED, PATIENCE, TRANSIT};
use crate::hub::Demand;
use crate::ids::{HUB, parse};
use crate::wire::{Packet, Reply, Sending};

/// Requests that somebody on the wire keeps.
const RECORDED_MAX: usize = 64;

impl World {
    pub(super) fn send(&mut self, id: RequestId, request: &Request) {
        self.note(|| format!("agent ▶ {id:?} {request:?}"));
        let run = self.agent.run;
        self.agent.requests.insert(id, Packet::of(request));
        let waits = match request {
            Request::Desired(request) => request.wait_seconds * 1000,
            Request::Enrol(_) | Request::Session(_) | Request::Bodies(_) | Request::Reported(_) => 0,
        };
        self.schedule(waits + PATIENCE, Happening::GiveUp { run, id });
        self.send_again(id);
    }

    /// Sends a request that still waits for its answer, with a number of its own.
    pub(super) fn send_again(&mut self, id: RequestId) {
        let Some(packet) = self.agent.requests.get(&id).cloned() else { return };
        let (run, sending) = (
            self.agent.run,
            Sending {
                packet,
                numbers: self.agent.numbers.take(),
                target: self.agent.journal.identity.as_ref().map(|it| it.target),
            },
        );
        if self.recorded.len() == RECORDED_MAX {
            self.recorded.pop_front();
        }
        self.recorded.push_back((run, id, sending.clone()));
        for _ in 0..self.copies() {
            let after = self.transit();
            self.schedule(after, Happening::Request { run, id, sending: sending.clone() });
        }
    }

    /// Somebody on the wire sends again what passed once, perhaps in another run of hub or agent.
    pub(super) fn replay_some(&mut self) {
        if !self.recorded.is_empty() && self.random.chance(300) {
            let at = self.random.below(self.recorded.len() as u64);
            self.replay(usize::try_from(at).expect("it is an index"));
        }
    }

    /// The same of all that was kept.
    pub(crate) fn replay_all(&mut self) {
        (0..self.recorded.len()).for_each(|at| self.replay(at));
    }

    fn replay(&mut self, at: usize) {
        let (run, id, sending) = self.recorded[at].clone();
        self.note(|| format!("somebody sends {id:?} of run {run} again"));
        self.schedule(0, Happening::Request { run, id, sending });
    }

    /// How many of a message arrive.
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

    pub(super) fn request_arrives(&mut self, run: u64, id: RequestId, sending: &Sending) {
        if !self.hub.up || self.partitioned {
            return;
        }
        if let Err(next) = self.hub.take_number(&sending.numbers) {
            return self.reply(run, id, &Reply::BadNumber(next));
        }
        if self.new_key_enrols(&sending.packet) {
            self.let_in();
        }
        if let Some(refusal) = self.shut_out {
            return self.reply(run, id, &Reply::of(&Err(refuse(refusal))));
        }
        let from = self.hub.origin(self.monotonic());
        let Some(request) = sending.packet.request(from, sending.target) else {
            let answer = EnrolAnswer { hub: parse(HUB), target: self.hub.target(), name: "store".to_owned() };
            return self.reply(run, id, &Reply::enrolled(&answer));
        };
        if let Some(answer) = self.hub.of_another(sending.target, &request) {
            return self.reply(run, id, &Reply::of(&answer));
        }
        if let link::Request::Desired(request) = &request
            && self.answered_instead(run, id, request)
        {
            return;
        }
        self.last_request += 1;
        let at_hub = link::RequestId(self.last_request);
        self.requests.insert(at_hub, (run, id));
        self.hub_steps(link::Event::Requested { id: at_hub, target: self.hub.target(), request });
    }

    /// The hub serves the agent no more: its SyncTarget was deleted, say, or the hub runs on an old copy of its directory.
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

    pub(super) fn reply(&mut self, run: u64, id: RequestId, reply: &Reply) {
        if let Some(probe) = &mut self.probe {
            probe.answered(reply);
        }
        if self.loses_acknowledgements && matches!(reply, Reply::Reported(_)) {
            return self.note(|| format!("the answer to {id:?} is lost"));
        }
        for _ in 0..self.copies() {
            let after = self.transit();
            self.schedule(after, Happening::Reply { run, id, reply: reply.clone() });
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
                    if let Some((run, request)) = self.requests.remove(&id) {
                        self.note(|| format!("hub answers {request:?}"));
                        self.check_told(run, &answer);
                        self.reply(run, request, &Reply::of(&answer));
                    }
                }
                Demand::RespondBodies(id, answer) => {
                    if let Some((run, request)) = self.requests.remove(&id) {
                        self.reply(run, request, &Reply::bodies(&answer));
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
    Refusal { refusal, message: "shut out".to_owned(), retry_after_seconds: None, fenced_by: None }
}
