//! What the inventory says of targets: which there are, who may speak for each, and who may no more.

use std::collections::BTreeSet;

use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{Decommission, Refusal};
use tideline_common::{Monotonic, TargetId};
use tracing::{info, warn};

use super::{Deletion, Engine, HolderWrite, LastKnown, RememberedTarget, TargetRecord};
use crate::history_change::HistoryChange;
use crate::ledger::{PlaceChange, TargetIndex};
use crate::link::core::{self as link, HolderRecord};
use crate::placement::{Change, Part, Target};
use crate::summary::TargetReports;

impl Engine {
    /// The inventory shows a target. One without an agent's key takes part in placement, and no agent can speak for it.
    pub fn target_seen(&mut self, now: Monotonic, target: Target, record: Option<TargetRecord>) {
        let id = target.id;
        let called = self.target_name(id);
        let perhaps = self.targets.leaving().contains_key(&id) || self.targets.is_unreadable(id);
        self.inventory.seen(id, LastKnown::of(&target));
        // Also where an accept that takes it for leaving is under way.
        if target.decommission == Decommission::No && (perhaps || self.ledger.leaving_is_unexplained(id)) {
            self.changes.push(Change::History(HistoryChange::Stays(id)));
        }
        self.takes_part(target);
        match record {
            Some(record) if self.memory.bars(id, &record.key) => {
                let name = &record.name;
                warn!(sync_target = name, "the key of this SyncTarget was revoked; its agent needs a new token");
                self.target_without_key(now, id, Some(record));
            }
            Some(record) => self.target_with_key(now, id, record),
            None => self.target_without_key(now, id, None),
        }
        self.dirty.targets.insert(id);
        if self.target_name(id) == called {
            self.moved_elsewhere();
        } else {
            self.moved_anywhere(PlaceChange::Diminished);
        }
    }

    /// A target is in the inventory, with this for placement.
    fn takes_part(&mut self, target: Target) {
        let (id, how) = (target.id, target.decommission);
        let former = self.targets.leaving().get(&id).copied();
        self.targets.awaited(target);
        if how != Decommission::No {
            // What is held there may be all that it has: placement says nothing of it.
            self.changes.push(Change::Retire(id, how));
            if how.keeps() && former != Some(how) {
                self.changes.push(Change::LetGo(id));
            }
        }
        if self.ledger.index_of(id).is_some() {
            self.place_target(id);
        } else {
            self.changes.push(Change::Register(id));
        }
    }

    /// What the SyncTarget of a target is called, whether anything else of it can be read, and whether it has an agent.
    pub fn call_target(&mut self, now: Monotonic, id: TargetId, name: &str) {
        if self.targets.named(id, name) {
            self.moved_anywhere(PlaceChange::Diminished);
        }
        self.target_not_unknown(now, name);
    }

    /// The inventory shows a target that cannot be read. It is not gone, and what is known of it stays, by an earlier run at a
    /// start. Where that is only what the ledger has of it, nobody can say what selects it: until it can be read or is deleted,
    /// placement decides nothing.
    pub fn target_unreadable(&mut self, now: Monotonic, id: TargetId) {
        let index = self.ledger.index_of(id);
        let is_placed = index.is_some_and(|index| self.index.target_unreadable(index));
        match self.inventory.before(id).cloned() {
            Some(known) if !is_placed => self.target_as_known(now, id, &known),
            None if !is_placed && index.is_some() && !self.inventory.contains(id) => {
                let name = self.target_name(id);
                warn!(
                    sync_target = name,
                    "nothing is placed and nothing taken away before this SyncTarget can be read, or is deleted: nothing is known \
                     of it from before"
                );
                self.targets.wait_for(id);
            }
            Some(_) | None => {}
        }
        self.targets.unreadable(id);
    }

    /// Nothing of a target was read in this run: it takes part as an earlier run knew it, and its agent is served by the key that
    /// it had. What was asked for by annotations was done then.
    fn target_as_known(&mut self, now: Monotonic, id: TargetId, known: &LastKnown) {
        let name = known.name.clone();
        warn!(sync_target = name, "this SyncTarget takes part as it was last read, before this hub was started");
        if !name.is_empty() {
            self.call_target(now, id, &name);
        }
        self.takes_part(known.target(id));
        let remembered = self.memory.get(id).filter(|remembered| remembered.refusal().is_none());
        if let Some((remembered, key)) = remembered.and_then(|it| Some((it, it.known_key()?))) {
            let (name, cluster) = (remembered.name.clone(), remembered.cluster.clone());
            let decommission = known.decommission;
            let record = TargetRecord {
                name,
                key,
                cluster,
                decommission,
                accepted: None,
                released: None,
                adopts: None,
                without_effect: Vec::new(),
            };
            self.targets.seen(id, record);
            self.tell_link(now, id);
        }
        self.dirty.targets.insert(id);
        self.moved_anywhere(PlaceChange::Diminished);
    }

    /// Which target a SyncTarget is that cannot be read, by its name.
    pub fn target_named(&self, name: &str) -> Option<TargetId> {
        self.memory.named(name).or_else(|| self.inventory.named(name))
    }

    /// The inventory shows a target of this name, and nobody can say which it is.
    pub fn target_unknown(&mut self, name: &str) {
        self.targets.saw_unknown(name);
    }

    /// By now it is known which target has this name, or none has it. Where it was the last that may have been any, those that
    /// were not seen are gone.
    pub fn target_not_unknown(&mut self, now: Monotonic, name: &str) {
        for target in self.targets.not_unknown(name) {
            self.target_gone(now, target, Deletion::default());
        }
    }

    fn target_with_key(&mut self, now: Monotonic, id: TargetId, record: TargetRecord) {
        let replaces = self.targets.get(id).is_some_and(|outline| outline.record.key != record.key);
        let former = self.memory.get(id).and_then(RememberedTarget::known_key);
        if self.memory.get(id).is_some_and(|remembered| remembered.is_revoked_for(&record.key)) {
            self.vacate(id);
        }
        self.memory.shows(id, &record.name, Some(&record.key), record.cluster.as_ref());
        if replaces && let Some(why) = self.memory.get(id).map(RememberedTarget::replaced) {
            // Whoever waits for an answer has the former key.
            warn!(sync_target = record.name, "its agent's key was replaced; who has the former one is refused");
            self.end(now, id, why);
            self.changes.push(Change::History(HistoryChange::Unclaimed(id)));
        }
        if former.is_some_and(|former| former != record.key) {
            self.forget_agent(id);
        }
        if let Some(former) = record.adopts {
            self.adopt(former, id, &record);
        }
        let accepted = record.accepted.clone();
        let released = record.released.clone();
        self.targets.seen(id, record);
        self.tell_link(now, id);
        if let Some((instance, word)) = accepted {
            self.step(now, link::Event::InstanceAccepted { target: id, instance, word });
        }
        self.changes.extend(released.map(|word| Change::LetRun(id, word)));
    }

    /// Who held it had a key that was revoked since. That another agent has a key by now is a person's word that this one is
    /// meant, in place or not.
    fn vacate(&mut self, id: TargetId) {
        let holder = self.targets.holder(id);
        if holder != HolderRecord::default() {
            self.hold(id, holder.vacated());
        }
    }

    /// Who holds it is what the hub says, and not what it heard.
    pub(super) fn hold(&mut self, target: TargetId, record: HolderRecord) {
        self.targets.held(target, record.clone());
        self.holders.push(HolderWrite { target, version: 0, record: Box::new(record) });
    }

    /// Keys of this target that a person has revoked. To be told before [`Engine::target_seen`].
    pub fn keys_revoked(&mut self, id: TargetId, name: &str, keys: &[VerifyingKey]) {
        for key in keys {
            if self.memory.revoke(id, name, key) {
                info!(sync_target = name, key = key.fingerprint(), "the key of an agent is revoked");
                // Whoever has it may have made the claim.
                self.changes.push(Change::History(HistoryChange::Unclaimed(id)));
            }
        }
    }

    /// No agent may speak for it as long as that is so.
    fn target_without_key(&mut self, now: Monotonic, id: TargetId, record: Option<TargetRecord>) {
        let Some(remembered) = self.memory.get(id) else { return };
        let name = record.map_or_else(|| remembered.name.clone(), |record| record.name);
        if !remembered.is_revoked() && !remembered.withdrawn {
            warn!(
                sync_target = name,
                "the key of its agent was taken from this SyncTarget, which revokes nothing: the agent is refused until its \
                 annotation tideline.dev/agent-key is put back, or it enrols with a new token"
            );
        }
        let revoked = remembered.is_revoked();
        self.memory.shows(id, &name, None, None);
        self.close(now, id);
        self.targets.closed(id);
        if revoked {
            self.forget_agent(id);
        }
    }

    /// What was said of this target was said with a key that is its agent's no more. It is not to stand until the next agent
    /// says otherwise, nor to take the room of what that says. What happened once there is in the ledger, and stays.
    fn forget_agent(&mut self, id: TargetId) {
        self.targets.closed(id);
        self.summary.forget(id);
        self.moved_anywhere(PlaceChange::Reads);
        self.bounds.forget(id);
    }

    /// Ends what is under way with its agent.
    fn close(&mut self, now: Monotonic, target: TargetId) {
        if let Some(why) = self.memory.get(target).and_then(RememberedTarget::refusal) {
            self.end(now, target, why);
        }
    }

    /// Nothing that was signed before is to be believed once it is served again: its agent may be dead by then.
    fn end(&mut self, now: Monotonic, target: TargetId, why: Refusal) {
        if self.link.freshness(target).is_some() {
            self.targets.fell_silent(target);
        }
        self.step(now, link::Event::TargetClosed { target, why });
        self.believed_otherwise(target);
    }

    /// Whether an agent must not enrol with this key: it was revoked of any target, and no other is served by it.
    pub fn is_revoked(&self, key: &VerifyingKey) -> bool {
        self.memory.is_revoked(key) && !self.targets.iter().any(|(_, outline)| outline.record.key == *key)
    }

    /// A name for people: the SyncTarget's, also of one that was deleted and had an agent; the id of one that the inventory
    /// has not shown yet.
    pub fn target_name(&self, target: TargetId) -> String {
        self.known_name(target).cloned().unwrap_or_else(|| target.to_string())
    }

    /// The same, by its number.
    pub fn target_name_at(&self, index: TargetIndex) -> String {
        self.ledger.target_at(index).map_or_else(|| index.to_string(), |target| self.target_name(target))
    }

    fn known_name(&self, target: TargetId) -> Option<&String> {
        self.targets.name(target).or_else(|| self.memory.get(target).map(|remembered| &remembered.name))
    }

    /// Whether a target is called so.
    pub(super) fn is_called(&self, target: TargetId, name: &str) -> bool {
        self.known_name(target).map_or_else(|| target.to_string() == name, |known| known == name)
    }

    /// The key by which the agent of a target is known, though it may not be served.
    pub fn key_of(&self, target: TargetId) -> Option<VerifyingKey> {
        match self.targets.get(target) {
            Some(outline) => Some(outline.record.key.clone()),
            None => self.memory.get(target)?.known_key(),
        }
    }

    /// The keys that agents of this target had and that are not revoked, whether or not one is served now, in standard base64.
    pub fn unrevoked_keys(&self, target: TargetId) -> Vec<String> {
        let Some(remembered) = self.memory.get(target) else { return Vec::new() };
        let present = remembered.key.iter().filter(|_| !remembered.is_revoked());
        remembered.former.iter().chain(present).cloned().collect()
    }

    /// What is remembered of every target that has or had an agent, behind one of them.
    pub fn all_remembered_after(&self, after: Option<TargetId>) -> impl Iterator<Item = (TargetId, &RememberedTarget)> {
        self.memory.iter_after(after)
    }

    /// Why the agent of a target is not served, if that is so.
    pub(super) fn closed(&self, target: TargetId) -> Option<Refusal> {
        if self.targets.get(target).is_some() { None } else { self.memory.get(target)?.refusal() }
    }

    /// What is remembered of a target that has or had an agent.
    pub fn remembered(&self, target: TargetId) -> Option<&RememberedTarget> {
        self.memory.get(target)
    }

    /// Somebody may delete this SyncTarget now.
    pub fn target_deleting(&mut self, target: TargetId, by: &str) {
        self.deleting.insert(target, by.to_owned());
    }

    /// The inventory does not show a target any more.
    pub fn target_gone(&mut self, now: Monotonic, target: TargetId, deletion: Deletion) {
        if let Some(index) = self.ledger.index_of(target) {
            self.index.delete_target(index);
        }
        let by = self.deleting.remove(&target).or(deletion.by);
        let heard = self.targets.last_asked(target).map(|at| now.since(at));
        let heard = deletion.at.zip(heard).and_then(|(at, ago)| at.checked_sub(ago).ok());
        // A cluster that was emptied is through with what ran there; one that keeps all is not.
        let how = self.targets.get(target).map(|outline| outline.record.decommission);
        let emptied = |how| how == Decommission::Remove && self.is_decommissioned(target, how);
        let remains = !how.is_some_and(emptied);
        let view = self.ledger.target(target).filter(|_| remains);
        let ran = view.map(|view| view.facts()).unwrap_or_default();
        let beyond = self.memory.deleted(target, Deletion { by, heard, ..deletion }, ran);
        if beyond > 0 {
            let sync_target = self.target_name(target);
            warn!(
                sync_target,
                forgotten = beyond,
                "more has happened once at this deleted SyncTarget than is remembered; where its agent is adopted, Jobs that are \
                 forgotten may run again"
            );
        }
        self.close(now, target);
        self.inventory.gone(target);
        self.targets.gone(target);
        self.summary.forget(target);
        self.bounds.forget(target);
        self.changes.push(Change::Forget(target));
        self.moved_anywhere(PlaceChange::Diminished);
        self.targets_placed();
    }

    /// Whether a target has gone out of service, as it was to: nothing is assigned or to be removed, and its agent says that
    /// nothing is left.
    pub fn is_decommissioned(&self, target: TargetId, how: Decommission) -> bool {
        let rest = self.ledger.target(target).map_or(0, |view| view.len() + view.tombstones().count());
        let told = self.summary.target(target).and_then(TargetReports::decommission);
        how != Decommission::No && rest == 0 && told.is_some_and(|report| report.how == how && report.left == 0)
    }

    /// The inventory's targets are read anew.
    pub fn targets_reset(&mut self) {
        self.targets.begin_listing();
        self.index.reset(Part::Targets);
    }

    /// Every target that there is was seen. What was not is gone, since whenever.
    pub fn targets_listed(&mut self, now: Monotonic) {
        for target in self.targets.end_listing(&self.all_targets()) {
            if self.targets.any_is_unknown() && self.memory.get(target).is_none() && !self.inventory.contains(target) {
                self.target_unreadable(now, target);
                self.targets.is_perhaps_unknown(target);
            } else {
                self.target_gone(now, target, Deletion::default());
            }
        }
        self.targets_placed();
        self.accept_history();
    }

    /// Every target was seen but for what has a key that cannot be read: what was not seen may be that.
    pub fn targets_unlisted(&mut self, now: Monotonic) {
        for target in self.targets.end_listing(&self.all_targets()) {
            self.target_unreadable(now, target);
        }
        self.targets_placed();
        self.accept_history();
    }

    /// Those that the inventory showed when it was last read, as far as that is known.
    fn all_targets(&self) -> BTreeSet<TargetId> {
        let registered = self.ledger.targets().map(|(id, _)| id);
        registered.chain(self.memory.present()).chain(self.inventory.targets()).collect()
    }

    /// Tells placement of a target that has an index by now.
    pub(super) fn place_target(&mut self, id: TargetId) {
        if let (Some(index), Some(target)) = (self.ledger.index_of(id), self.targets.placed(id)) {
            self.index.apply_target(index, target);
        }
        self.targets_placed();
    }

    /// Placement may rely on absence once the inventory was read and every target in it has an index.
    fn targets_placed(&mut self) {
        if self.targets.take_complete() {
            self.index.listed(Part::Targets);
        }
    }

    /// Whether an agent of this target would be served.
    pub fn is_registered(&self, target: TargetId) -> bool {
        self.targets.get(target).is_some() && self.ledger.index_of(target).is_some()
    }
}
