//! What the cluster says: the model takes it in, and whatever it may change for is woken.
//!
//! It concerns every room, so it is in none of them.

use std::collections::BTreeSet;

use tideline_common::{GroupKind, Mark, Monotonic, ObjectKey, Ownership, Reason, Uid};

use crate::core::Core;
use crate::core::decide::set_back::{note_set_back, shows_set_back};
use crate::core::interface::observed::{Observed, Served};
use crate::core::model::kinds::View;

impl Core {
    pub(in crate::core) fn kind_served(&mut self, now: Monotonic, kind: &GroupKind, served: Served) {
        if self.model.kinds.served(kind, served) {
            if served == Served::No {
                self.model.restored.not_served(kind);
                self.unsee(kind, |_| true);
                self.audit.copies.listed(kind, &BTreeSet::new());
                self.audit.unexplained.listed(kind, &BTreeSet::new());
            }
            self.enqueue_kind(now, kind);
        }
    }

    pub(in crate::core) fn watch_lost(&mut self, now: Monotonic, kind: &GroupKind, reason: Reason, message: String) {
        let unlisted = self.model.kinds.view_of(kind) == View::Unlisted;
        let blinded = reason == Reason::Forbidden && !self.model.kinds.is_forbidden(kind);
        self.model.kinds.lost(kind, reason, message);
        for key in self.model.keys_of(kind) {
            if blinded {
                self.dirty(&key, now);
            }
            // A watch that cannot be had is lost again with every try: the others are not even expanded.
            if !self.model.objects.awaits_status(&key) {
                continue;
            }
            self.model.compact_if_many();
            // The list that was to bring its status does not come.
            if let Some(object) = self.model.objects.get_mut(&key)
                && object.live.status.unread()
            {
                self.dirty(&key, now);
            }
        }
        if unlisted {
            self.enqueue_kind(now, kind);
        }
    }

    pub(in crate::core) fn listed(&mut self, now: Monotonic, kind: &GroupKind, objects: Vec<Observed>) {
        if !self.model.kinds.is_needed(kind) {
            return;
        }
        let again = self.model.kinds.view_of(kind) == View::Current;
        self.model.kinds.listed(kind);
        let before = self.model.restored.has_listed(kind);
        let listed: BTreeSet<&ObjectKey> = objects.iter().map(|observed| &observed.key).collect();
        for key in self.model.restored.of_kind(kind) {
            if !listed.contains(&key) {
                self.model.came_back_no_more(&key);
            }
        }
        self.unsee(kind, |key| !listed.contains(key));
        self.audit.copies.listed(kind, &listed);
        self.audit.unexplained.listed(kind, &listed);
        for observed in objects {
            let key = observed.key.clone();
            if self.take_in(now, observed, before) {
                self.may_be_late(key);
            }
        }
        self.model.restored.listed(kind);
        for key in self.model.keys_of(kind) {
            // What waits for its retry is not tried sooner because a list shows it as a watch did.
            if !again || self.model.objects.get(&key).is_some_and(|object| !object.work.is_waiting()) {
                self.enqueue(&key);
            }
            self.dirty(&key, now);
        }
    }

    pub(in crate::core) fn observed(&mut self, now: Monotonic, observed: Observed) {
        let listed = self.model.restored.has_listed(&observed.key.kind);
        self.take_in(now, observed, listed);
    }

    /// A list or a watch shows an object. `listed` says that everything of its kind was looked at before. Returns whether
    /// something later was seen of it, and it is idle.
    fn take_in(&mut self, now: Monotonic, observed: Observed, listed: bool) -> bool {
        let key = observed.key.clone();
        if !self.model.kinds.is_needed(&key.kind) {
            return false;
        }
        let ownership = self.model.me().zip(observed.mark.as_ref()).map(|(me, mark)| mark.ownership(me, &key));
        if ownership == Some(Ownership::Copy) {
            self.audit.copies.found(&key, &observed.uid);
        } else {
            self.audit.copies.cleared(&key);
        }
        let known = self.model.objects.contains_key(&key);
        if ownership == Some(Ownership::Ours) && !known && !self.model.has_room_for_unexplained() {
            self.audit.unexplained.found(&key, &observed.uid);
            return false;
        }
        self.audit.unexplained.cleared(&key);
        // Copies and strangers that only carry our label are none of our business otherwise.
        if ownership != Some(Ownership::Ours) && !known {
            return false;
        }
        self.may_have_come_back(&key, &observed.uid, observed.mark.as_deref(), listed);
        // The status of one that is being deleted changes all the time, and nothing can be created in it.
        let takes_objects = key.kind.is_namespace() && !observed.deleting;
        let looked = self.see(&key, observed);
        let news = looked == Some(true);
        let object = self.model.objects.get(&key);
        let waits = object.as_ref().is_some_and(|object| object.work.is_waiting());
        let late = looked.is_none() && object.as_ref().is_some_and(|object| !object.work.is_busy());
        drop(object);
        // What waits for its retry is not tried sooner because its status changes.
        if news || !waits {
            self.enqueue(&key);
        }
        self.dirty(&key, now);
        if news && takes_objects {
            self.wake_namespace(&key.name);
        }
        late
    }

    /// An object is about to be seen. `listed` says that its kind was listed completely before: if it was not there then, it
    /// was restored.
    pub(in crate::core) fn may_have_come_back(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        mark: Option<&Mark>,
        listed: bool,
    ) {
        let whole = !self.sync.is_broken() && self.sync.sets.current().is_some();
        if listed && whole && self.model.may_have_come_back(key, uid, mark) {
            // An approval given before is not for this object.
            self.guards.approvals.withdraw_at(key);
        }
    }

    /// Takes a look at an object into account: whether it could change a decision. None if a later look was taken.
    pub(in crate::core) fn see(&mut self, key: &ObjectKey, observed: Observed) -> Option<bool> {
        let set_back = shows_set_back(&self.model, key, &observed);
        let facts: Vec<_> = observed.terminal.map_or_else(Vec::new, |fact| {
            let sources = self.model.sources_of(key, &observed.uid, observed.mark.as_deref());
            sources.into_iter().map(|source| (source, fact)).collect()
        });
        let source = observed.mark.as_ref().map(|mark| mark.source.uid.clone());
        let news = self.model.see(key, observed)?;
        if set_back {
            note_set_back(&mut self.model, key);
        }
        self.guards.gates.update(&self.model, key);
        self.reporting.associates.update(&self.model, key);
        self.guards.ran.undoubt(&mut self.model, key);
        for (source, fact) in facts {
            self.guards.ran.note(&mut self.model, key, source, fact);
        }
        // After what is known: the journal may be cut between the two.
        if let Some(source) = source {
            self.model.creation_is_known(key, &source);
        }
        Some(news)
    }

    /// The same of an object that was read, whatever its labels. What is not ours any more is not kept: no watch would tell of
    /// its end. Returns whether it could change a decision.
    pub(in crate::core) fn see_live(&mut self, key: &ObjectKey, observed: Observed) -> bool {
        let known = self.model.objects.get(key).is_some_and(|object| object.record.is_some());
        if observed.labelled || known {
            return self.see(key, observed) == Some(true);
        }
        let Some(object) = self.model.objects.get_mut(key) else { return false };
        let stood = object.seen().is_some();
        object.unsee();
        stood
    }

    pub(in crate::core) fn vanished(&mut self, now: Monotonic, key: &ObjectKey, uid: &Uid) {
        self.audit.copies.vanished(key, uid);
        self.audit.unexplained.vanished(key, uid);
        if self.model.restored.is(key, uid) {
            self.model.came_back_no_more(key);
        }
        let Some(object) = self.model.objects.get_mut(key) else { return };
        if object.vanished(uid) {
            self.guards.gates.update(&self.model, key);
            self.reporting.associates.update(&self.model, key);
            self.enqueue(key);
            self.dirty(key, now);
            self.forget_if_empty(key);
        }
    }

    fn unsee(&mut self, kind: &GroupKind, gone: impl Fn(&ObjectKey) -> bool) {
        for key in self.model.keys_of(kind) {
            if gone(&key) {
                self.model.compact_if_many();
                if let Some(object) = self.model.objects.get_mut(&key) {
                    let stood = object.seen().is_some();
                    object.unsee();
                    if stood {
                        self.enqueue(&key);
                    }
                }
                self.guards.gates.update(&self.model, &key);
                self.reporting.associates.update(&self.model, &key);
                self.forget_if_empty(&key);
            }
        }
    }

    fn enqueue_kind(&mut self, now: Monotonic, kind: &GroupKind) {
        for key in self.model.keys_of(kind) {
            self.enqueue(&key);
            self.dirty(&key, now);
        }
    }
}
