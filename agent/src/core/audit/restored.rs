//! Restored objects: those with this agent's mark that nothing assigns, and that were not there when their kind was last
//! listed. Somebody restored them from a backup, or set the API server back. They wait for a person as what lost history
//! leaves behind does, under a reason of their own: the hub lost nothing.
//!
//! An object in the first list of its kind in a run may have appeared at any time, and counts as left behind by lost history,
//! unless the journal says otherwise. To notice restored objects of kinds that are no longer assigned, the patrol lists every
//! kind that ever had an object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::{GroupKind, Mark, ObjectKey, Ownership, Uid};

use crate::core::Core;
use crate::core::decide::remove::Ground;
use crate::core::interface::write::{RestoredObject, Write};
use crate::core::model::removal::{Cause, JournalAge};

#[derive(Debug, Default)]
pub(in crate::core) struct Restored {
    objects: BTreeMap<ObjectKey, Uid>,
    /// Kinds that ever had an object, in this run or an earlier one, each with the version last named.
    kinds: BTreeMap<GroupKind, Arc<str>>,
    /// Kinds that were listed completely in this run.
    listed: BTreeSet<GroupKind>,
}

impl Restored {
    /// A kind was listed completely.
    pub(in crate::core) fn listed(&mut self, kind: &GroupKind) {
        if !self.listed.contains(kind) {
            self.listed.insert(kind.clone());
        }
    }

    /// Whether a kind was listed completely in this run.
    pub(in crate::core) fn has_listed(&self, kind: &GroupKind) -> bool {
        self.listed.contains(kind)
    }

    /// Whether it was there in an earlier run, and its kind was not listed in this one.
    pub(in crate::core) fn awaits(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key) && !self.listed.contains(&key.kind)
    }

    pub(in crate::core) fn is(&self, key: &ObjectKey, uid: &Uid) -> bool {
        self.objects.get(key) == Some(uid)
    }

    /// Every kind that ever had an object.
    pub(in crate::core) fn kinds(&self) -> impl Iterator<Item = (GroupKind, Arc<str>)> {
        self.kinds.iter().map(|(kind, version)| (kind.clone(), Arc::clone(version)))
    }
}

impl Core {
    /// At the start: what the journal knows.
    pub(in crate::core) fn resume_restored(
        &mut self,
        kinds: Vec<(GroupKind, Arc<str>)>,
        came_back: Vec<RestoredObject>,
    ) {
        self.restored.kinds.extend(kinds);
        for RestoredObject { key, uid, source } in came_back {
            // Watched from the start, so that its end is seen.
            self.model.kinds.refer(&key, &self.restored.kinds.get(&key.kind).cloned().unwrap_or_default());
            self.model.objects.at(&key).unexplained = Some(source);
            self.restored.objects.insert(key, uid);
        }
    }

    /// There is an object of this kind.
    pub(in crate::core) fn there_was(&mut self, kind: &GroupKind, version: &Arc<str>) {
        let known = self.restored.kinds.get(kind);
        if known.is_none_or(|known| known != version && !version.is_empty()) {
            self.restored.kinds.insert(kind.clone(), Arc::clone(version));
            self.disk.write(Write::Kind { kind: kind.clone(), version: Arc::clone(version) });
        }
    }

    /// An object is about to be seen. `listed` says that its kind was listed completely before.
    pub(in crate::core) fn may_have_come_back(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        mark: Option<&Mark>,
        listed: bool,
    ) {
        let whole = !self.is_broken() && self.sets.current().is_some() && self.model.journal_age != JournalAge::SetBack;
        let Some((me, mark)) = self.model.me().zip(mark).filter(|_| listed && whole) else { return };
        if mark.ownership(me, key) != Ownership::Ours
            || self.model.desired.get(key).is_some()
            // An approval was for the object that was there before.
            || self.open_removals_of(key).any(|(_, removal)| removal.cause != Cause::Approved)
            || self.model.objects.get(key).is_some_and(|object| object.is_known_as(uid))
        {
            return;
        }
        if self.restored.objects.insert(key.clone(), uid.clone()).as_ref() != Some(uid) {
            // An approval given before is not for this object.
            self.approvals.strike_at(key);
            let source = mark.source.uid.clone();
            self.disk.write(Write::RestoredObject(RestoredObject { key: key.clone(), uid: uid.clone(), source }));
        }
    }

    /// It is gone, or explained by now.
    pub(in crate::core) fn came_back_no_more(&mut self, key: &ObjectKey) {
        if self.restored.objects.remove(key).is_some() {
            self.disk.write(Write::RestoredGone { key: key.clone() });
        }
    }

    /// Why an object of ours exists that nothing assigns.
    pub(in crate::core) fn ground_of_left_over(&self, key: &ObjectKey) -> Ground<'static> {
        let object = self.model.objects.get(key);
        let stands = object.as_ref().and_then(|object| object.seen()).map(|seen| &seen.uid);
        match self.restored.objects.get(key) {
            Some(uid) if stands == Some(uid) => Ground::Restored,
            Some(_) | None => Ground::Unexplained,
        }
    }
}

#[cfg(test)]
mod tests;
