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

use super::Model;
use super::removal::{Cause, JournalAge};
use crate::core::interface::write::{RestoredObject, Write};

/// How many unexplained objects are recorded one by one at least, however little is assigned: those that came back from one
/// backup of a small set, at some 1 KiB each with journal and report, so 10 MiB. Few in tests, which have few objects.
const UNEXPLAINED_MIN: usize = if cfg!(test) { 64 } else { 10_000 };
/// The same by objects assigned: a backup of all of them may be restored beside what lost history has left of another set.
const UNEXPLAINED_PER_ASSIGNED: usize = 2;

/// How many unexplained objects are recorded one by one, where so many are assigned.
pub(in crate::core) fn unexplained_max(assigned: usize) -> usize {
    (UNEXPLAINED_PER_ASSIGNED * assigned).max(UNEXPLAINED_MIN)
}

#[derive(Debug, Default)]
pub(in crate::core) struct Restored {
    objects: BTreeMap<ObjectKey, Uid>,
    /// Kinds that ever had an object, in this run or an earlier one, each with the version last named.
    kinds: BTreeMap<GroupKind, Arc<str>>,
    /// Kinds that were listed completely in this run, and are served since.
    listed: BTreeSet<GroupKind>,
}

impl Restored {
    /// A kind was listed completely.
    pub(in crate::core) fn listed(&mut self, kind: &GroupKind) {
        if !self.listed.contains(kind) {
            self.listed.insert(kind.clone());
        }
    }

    /// A kind is not served, for a while or for good. What shows when it is served again may have been there all the time, so its
    /// next list counts as its first.
    pub(in crate::core) fn not_served(&mut self, kind: &GroupKind) {
        self.listed.remove(kind);
    }

    /// Whether a kind was listed completely in this run.
    pub(in crate::core) fn has_listed(&self, kind: &GroupKind) -> bool {
        self.listed.contains(kind)
    }

    /// Whether it was there in an earlier run, or before its kind was not served any more, and its kind was not listed since.
    pub(in crate::core) fn awaits(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key) && !self.listed.contains(&key.kind)
    }

    pub(in crate::core) fn is(&self, key: &ObjectKey, uid: &Uid) -> bool {
        self.objects.get(key) == Some(uid)
    }

    pub(in crate::core) fn of_kind(&self, kind: &GroupKind) -> Vec<ObjectKey> {
        let from = ObjectKey::new(kind.clone(), "", "");
        self.objects.range(from..).map(|(key, _)| key).take_while(|key| key.kind == *kind).cloned().collect()
    }

    /// Every kind that ever had an object.
    pub(in crate::core) fn kinds(&self) -> impl Iterator<Item = (GroupKind, Arc<str>)> {
        self.kinds.iter().map(|(kind, version)| (kind.clone(), Arc::clone(version)))
    }
}

impl Model {
    /// At the start: what the journal knows.
    pub(in crate::core) fn resume_restored(
        &mut self,
        kinds: Vec<(GroupKind, Arc<str>)>,
        came_back: Vec<RestoredObject>,
    ) {
        self.restored.kinds.extend(kinds);
        for RestoredObject { key, uid, source } in came_back {
            // It is counted when its kind is listed.
            if !self.has_room_for_unexplained() {
                self.disk.write(Write::RestoredGone { key });
                continue;
            }
            self.told_of_unexplained(&key, source);
            self.restored.objects.insert(key, uid);
            self.compact_if_many();
        }
    }

    /// Whether one more object that nothing explains may be kept account of. What is assigned or to be removed has a place of
    /// its own in any case.
    pub(in crate::core) fn has_room_for_unexplained(&self) -> bool {
        let explained = self.desired.len() + self.removals.len();
        self.objects.len() < explained + unexplained_max(self.desired.len())
    }

    /// At the start: the process before may have told the hub of an object that nothing explains, as nothing does now. It is
    /// watched from the start, so that its end is seen and told.
    pub(in crate::core) fn told_of_unexplained(&mut self, key: &ObjectKey, source: Uid) {
        if self.removals_of(key).next().is_none() {
            self.kinds.refer(key, &self.restored.kinds.get(&key.kind).cloned().unwrap_or_default());
            let told = self.objects.at(key).unexplained.replace(source);
            if told.is_some() {
                self.kinds.unrefer(key);
            }
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

    /// An object is about to be seen that was not there when its kind was listed. Returns whether somebody has restored it
    /// since the last time that it was seen.
    pub(in crate::core) fn may_have_come_back(&mut self, key: &ObjectKey, uid: &Uid, mark: Option<&Mark>) -> bool {
        let Some((me, mark)) = self.me().zip(mark) else { return false };
        if mark.ownership(me, key) != Ownership::Ours
            || self.journal_age == JournalAge::SetBack
            || self.is_set_back_at(key)
            || self.desired.get(key).is_some()
            // An approval was for the object that was there before.
            || self.open_removals_of(key).any(|(_, removal)| removal.cause() != Cause::Approved)
            || self.objects.get(key).is_some_and(|object| object.is_known_as(uid))
        {
            return false;
        }
        let news = self.restored.objects.insert(key.clone(), uid.clone()).as_ref() != Some(uid);
        if news {
            let source = mark.source.uid.clone();
            self.disk.write(Write::RestoredObject(RestoredObject { key: key.clone(), uid: uid.clone(), source }));
        }
        news
    }

    /// It is gone, or explained by now.
    pub(in crate::core) fn came_back_no_more(&mut self, key: &ObjectKey) {
        if self.restored.objects.remove(key).is_some() {
            self.disk.write(Write::RestoredGone { key: key.clone() });
        }
    }

    /// Whether what is seen under a key was restored.
    pub(in crate::core) fn is_restored(&self, key: &ObjectKey) -> bool {
        let object = self.objects.get(key);
        let stands = object.as_ref().and_then(|object| object.seen()).map(|seen| &seen.uid);
        self.restored.objects.get(key).is_some_and(|uid| stands == Some(uid))
    }
}

#[cfg(test)]
mod tests;
