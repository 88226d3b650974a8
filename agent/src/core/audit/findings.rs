//! What the core does with the lists of the [patrol](super::patrol): each item is judged, and what is found twice is taken in as if
//! a watch had shown it. So the patrol decides nothing by itself.

use tideline_common::{Monotonic, ObjectKey, Ownership, Reason};

use super::judgement::{Finding, Judgement, judge};
use super::patrol::{Confirmed, Patrol, PatrolContext};
use crate::core::interface::effect::{Effects, ListId};
use crate::core::interface::event::ListFailure;
use crate::core::interface::observed::ListedItem;
use crate::core::model::object::Me;
use crate::core::model::seen::Seen;
use crate::core::work::in_flight::ReadFor;
use crate::core::{Core, Phase};

impl Core {
    /// Schedules the next patrol, and ends one that has nothing left to do.
    pub(in crate::core) fn patrol(&mut self, now: Monotonic, out: &mut Effects) {
        if self.phase == Phase::Running && self.sync.sets.current().is_some() && self.model.me().is_some() {
            self.patrols(now, out, Patrol::goes_on);
        }
    }

    pub(in crate::core) fn patrol_due(&mut self, now: Monotonic, out: &mut Effects) {
        if self.phase == Phase::Running {
            self.patrols(now, out, Patrol::due);
        }
    }

    fn patrols(&mut self, now: Monotonic, out: &mut Effects, step: impl FnOnce(&mut Patrol, PatrolContext<'_>)) {
        let Self { config, model, work, audit, jitter, .. } = self;
        step(&mut audit.patrol, PatrolContext { now, period: config.patrol, model, work, jitter, out });
    }

    /// A page of a list.
    pub(in crate::core) fn list_page(&mut self, now: Monotonic, list: ListId, objects: &[ListedItem]) {
        let Some(me) = self.model.me() else { return };
        if !self.audit.patrol.lists(list) {
            return;
        }
        for item in objects {
            if !item.labelled {
                self.copy_listed(me, list, item);
                continue;
            }
            let assigned = self.model.desired.get(&item.key);
            if assigned.is_some_and(|entry| self.model.objects.listed_again(list, item, entry)) {
                self.judged(now, &item.key, None, Judgement::Nothing);
                continue;
            }
            if let Some(object) = self.model.objects.get_mut(&item.key) {
                object.listed_in = list;
            }
            let listed = Seen::of_listed(item);
            // Nothing follows from an item that cannot be read.
            let judgement =
                listed.as_ref().map_or(Judgement::Busy, |seen| judge(&self.model, me, &item.key, Some(seen)));
            if judgement == Judgement::TooMany {
                self.audit.unexplained.listed_in(&item.key, list);
            }
            self.judged(now, &item.key, listed, judgement);
            self.model.compact_if_many();
        }
    }

    /// It carries the label of another target. What has a key of ours is reported with the entry of that key.
    fn copy_listed(&mut self, me: Me, list: ListId, item: &ListedItem) {
        let key = &item.key;
        let mark = item.details().and_then(|details| details.mark.as_deref());
        let ownership = mark.map(|mark| mark.ownership(me, key));
        if ownership == Some(Ownership::Copy) && self.model.desired.get(key).is_none() {
            self.audit.copies.listed_in(key, list);
        }
    }

    /// Every page was seen: what was on none of them does not exist.
    pub(in crate::core) fn list_ended(
        &mut self,
        now: Monotonic,
        list: ListId,
        result: &Result<(), ListFailure>,
        out: &mut Effects,
    ) {
        let Some(me) = self.model.me() else { return };
        let Some(kind) = self.audit.patrol.take_listed_kind(list) else { return };
        match result {
            Ok(()) => {
                self.audit.copies.list_ended(&kind, list);
                self.audit.unexplained.list_ended(&kind, list);
                self.model.restored.listed(&kind);
                for key in self.model.keys_of(&kind) {
                    if self.model.objects.last_listed_in(&key).is_some_and(|last| last != list) {
                        let judgement = judge(&self.model, me, &key, None);
                        self.judged(now, &key, None, judgement);
                    }
                }
            }
            Err(failure) => {
                if failure.reason == Reason::KindMissing {
                    self.model.restored.not_served(&kind);
                }
                self.audit.patrol.list_failed(&self.model, &kind);
            }
        }
        self.patrols(now, out, Patrol::next_list);
    }

    fn judged(&mut self, now: Monotonic, key: &ObjectKey, listed: Option<Seen>, judgement: Judgement) {
        if let Some(found) = self.audit.patrol.judged(&self.model, key, listed, judgement) {
            self.act_on(now, key, found);
        }
    }

    /// What was found is taken in, and looked at.
    fn act_on(&mut self, now: Monotonic, key: &ObjectKey, found: Confirmed) {
        let Confirmed { finding, listed, kind_was_listed, set_back } = found;
        let is_there = listed.is_some();
        // What came meanwhile may have taken the last place.
        if is_there && !self.model.objects.contains_key(key) && !self.model.has_room_for_unexplained() {
            return;
        }
        if let Some(listed) = listed {
            self.may_have_come_back(key, &listed.uid, listed.mark.as_deref(), kind_was_listed);
            self.take_listed(key, listed);
        } else {
            // Missing by its label at least. The creation finds out whether it only lost that.
            if let Some(object) = self.model.objects.get_mut(key) {
                object.doubt();
            }
            self.guards.gates.update(&self.model, key);
        }
        if finding == Finding::Unseen && is_there && (set_back || self.model.kinds.has_status(&key.kind)) {
            self.work.read(key.clone(), ReadFor::Status);
        }
        self.dirty(key, now);
        self.enqueue(key);
        if matches!(finding, Finding::Missing | Finding::Drifted) {
            self.audit.patrol.mends(key);
        }
        self.forget_if_empty(key);
    }

    fn take_listed(&mut self, key: &ObjectKey, mut seen: Seen) {
        let object = self.model.objects.at(key);
        match object.seen() {
            Some(former) if seen.is_older_than(former) => object.set_back(),
            Some(former) if former.uid == seen.uid => seen.observed_generation = former.observed_generation,
            Some(_) | None => object.unsee(),
        }
        object.presence.list(seen);
    }
}
