//! The gate. Nothing is deleted that did not come through here: [`Authorised`] cannot be made elsewhere, and the operations
//! that delete or orphan are made of it alone.

use std::sync::Arc;

use tideline_common::wire::v1::{Decommission, Terminal};
use tideline_common::{
    ApplyMode, ApplyPolicy, Entry, EntryState, GroupKind, Impersonation, Mark, ObjectKey, Origin, Ownership,
    PrunePolicy, Reason, Recreate, Uid,
};

use super::plan::{is_made_once, refuses};
use crate::core::interface::effect::Op;
use crate::core::interface::write::{AppliedRecord, RemovalPolicy};
use crate::core::model::kinds::View;
use crate::core::model::object::Me;
use crate::core::model::removal::JournalAge;
use crate::core::model::seen::Seen;

/// The ground for a removal, and everything that counts for or against it.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Evidence<'a> {
    pub(in crate::core) me: Me,
    pub(in crate::core) key: &'a ObjectKey,
    pub(in crate::core) ground: Ground<'a>,
    /// What the accepted set assigns to this key.
    pub(in crate::core) entry: Option<&'a Entry>,
    pub(in crate::core) record: Option<&'a AppliedRecord>,
    /// The policy it was applied under, if still known.
    pub(in crate::core) applied: Option<&'a ApplyPolicy>,
    /// That of `entry`, if it is known.
    pub(in crate::core) assigned: Option<&'a ApplyPolicy>,
    pub(in crate::core) policy: RemovalPolicy,
    pub(in crate::core) seen: Option<&'a Seen>,
    /// An object may exist that no list or watch has shown.
    pub(in crate::core) unshown: bool,
    pub(in crate::core) view: View,
    pub(in crate::core) inspection: Option<Inspection>,
    /// The object was read just now.
    pub(in crate::core) fresh: bool,
    pub(in crate::core) journal: JournalAge,
    /// The object belongs to another source, whose removal is or was pending as well.
    pub(in crate::core) leaves_too: bool,
    /// Whether the cluster goes out of service.
    pub(in crate::core) decommission: Decommission,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Ground<'a> {
    /// This source is not assigned here any more: a tombstone says so, it was missing from a set that is complete and of the
    /// epoch of the set that had it, or a person approved its removal.
    Unassigned(&'a Uid),
    /// It is in no set that is known, and nothing says that it was unassigned.
    Unexplained,
    /// In no known set either, and it reappeared after it was gone or after its kind was listed.
    Restored,
}

/// What an inspection found in a namespace, or of a CRD's kind. What it found the namespace or CRD itself to be is what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct Inspection {
    pub(in crate::core) foreign: u64,
    pub(in crate::core) ours: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::core) enum Verdict {
    Delete(Authorised),
    Orphan(Authorised),
    /// What it holds must be inspected first.
    Inspect,
    /// It must be read first.
    Read,
    /// The key is assigned again: a new source takes ownership by its apply or by a mark; the same source adopts.
    TransferOwnership,
    /// No object of this source exists: the removal is done.
    Forget,
    /// Not before something changes.
    Hold(Reason),
    /// Not enough is known yet.
    Wait,
}

/// The right to remove one object, by UID.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::core) struct Authorised {
    key: ObjectKey,
    uid: Uid,
    how: How,
}

#[derive(Debug, PartialEq, Eq)]
enum How {
    Delete,
    Orphan,
}

impl Authorised {
    pub(in crate::core) fn op(self, version: Arc<str>, impersonate: Option<Arc<Impersonation>>) -> Op {
        let Self { key, uid, how } = self;
        match how {
            How::Delete => Op::Delete { key, version, uid, impersonate },
            How::Orphan => Op::Orphan { key, version, uid, impersonate },
        }
    }

    /// Uses it another time.
    pub(in crate::core) fn later(self) -> Verdict {
        let Self { .. } = self;
        Verdict::Wait
    }

    /// Forgoes the right.
    pub(in crate::core) fn held(self, reason: Reason) -> Verdict {
        let Self { .. } = self;
        Verdict::Hold(reason)
    }
}

/// Judges a removal. A [`Verdict::Delete`] still has to pass the fuse.
pub(in crate::core) fn may_delete(evidence: &Evidence<'_>) -> Verdict {
    let Evidence { me, key, ground, entry, record, seen, unshown, view, fresh, .. } = *evidence;
    let source = match ground {
        Ground::Unassigned(source) => source,
        Ground::Unexplained => return Verdict::Hold(Reason::HistoryLost),
        Ground::Restored => return Verdict::Hold(Reason::Restored),
    };
    let own_record = record.filter(|record| record.source == *source);
    if view == View::NamespaceExcluded {
        return if own_record.is_some() { Verdict::Hold(Reason::OtherNamespace) } else { Verdict::Forget };
    }
    if let Some(entry) = entry {
        return handover(evidence, entry, source);
    }
    let record = own_record;
    let Some(seen) = seen else {
        return match (record, view) {
            // Not seen by its label, which it may have lost or exchanged: the same object may be another hub's by now. And a
            // kind that may not be listed is never current. One that is not served may be again: only a read tells whether its
            // objects are gone with it.
            (Some(_), View::Current) | (_, View::Lost | View::Missing) => Verdict::Read,
            // Created, or found there, and unassigned again before anything showed it.
            (None, View::Current) if unshown => Verdict::Read,
            (None, View::Current) => Verdict::Forget,
            (_, View::Unlisted | View::Unknown | View::NamespaceExcluded) => Verdict::Wait,
        };
    };
    // What was seen before the watch was lost may be another hub's by now, and has the same UID then.
    if !fresh && view != View::Current {
        return Verdict::Read;
    }
    let recorded = record.is_some_and(|record| record.uid == seen.uid);
    let record = record.filter(|_| recorded);
    // Of whichever source it was written.
    let written = evidence.record.filter(|record| record.uid == seen.uid);
    let behind = written.is_some_and(|record| seen.is_before(&record.resource_version));
    match seen.mark.as_ref().map(|mark| mark.ownership(me, key)) {
        // A list from before it changed owner shows its former owner.
        Some(Ownership::Ours) if seen.mark.as_ref().is_some_and(|mark| mark.source.uid != *source) => {
            if behind {
                Verdict::Read
            } else if speaks_for_its_key(evidence) {
                match evidence.journal {
                    JournalAge::Current => dispose(evidence, seen, written),
                    // Only the hub knows, and it is not heard.
                    JournalAge::Unknown | JournalAge::SetBack => Verdict::Hold(Reason::Unavailable),
                }
            } else {
                Verdict::Forget
            }
        }
        // Of the same source, and another object than the journal knows: it may have been assigned again since.
        Some(Ownership::Ours) if !recorded && evidence.journal != JournalAge::Current => {
            Verdict::Hold(Reason::Unavailable)
        }
        Some(Ownership::Ours) => dispose(evidence, seen, record),
        Some(Ownership::Copy) if recorded => Verdict::Hold(Reason::Copy),
        // The journal knows the object, and a newer agent of another target may have taken it over since.
        None if recorded && seen.is_under_anothers_illegible_mark() => Verdict::Hold(Reason::AgentTooOld),
        None if record.is_some_and(|record| was_left(record, seen)) => Verdict::Forget,
        None if recorded => dispose(evidence, seen, record),
        // It may be just the object that is to go: a later build wrote its mark.
        None if is_illegible(seen) => Verdict::Hold(Reason::AgentTooOld),
        Some(Ownership::Copy | Ownership::Foreign) | None => Verdict::Forget,
    }
}

/// Whether it carries our label, and a mark that does not say whose it is.
const fn is_illegible(seen: &Seen) -> bool {
    seen.illegible && seen.labelled
}

/// Whether neither label nor mark nor any field is ours on an object that was written by us. Nobody takes all of that away but an
/// agent that leaves the object behind: this one, or one of the same identity that had a later journal.
fn was_left(record: &AppliedRecord, seen: &Seen) -> bool {
    record.managed.is_some() && seen.managed.is_none() && !seen.labelled && !seen.illegible
}

/// A tombstone does, whatever source of ours the object is of: an agent that saw every step has handed it from one to the
/// next. A removal of that object counts for itself.
fn speaks_for_its_key(evidence: &Evidence<'_>) -> bool {
    matches!(evidence.policy, RemovalPolicy::Tombstone(_)) && !evidence.leaves_too
}

fn handover(evidence: &Evidence<'_>, entry: &Entry, source: &Uid) -> Verdict {
    let Evidence { record, policy, seen, view, .. } = *evidence;
    if policy.orphans() {
        return overtaken(evidence, entry);
    }
    if entry.source.uid == *source {
        return comes_back(evidence, entry);
    }
    match record {
        // Another removal of this key has orphaned it; there is nothing to hand over.
        Some(record) if record.orphaning && seen.is_none() && view == View::Current => Verdict::Forget,
        Some(record) if record.source == *source => Verdict::TransferOwnership,
        None if seen.is_some() || view != View::Current => Verdict::TransferOwnership,
        Some(_) | None => Verdict::Forget,
    }
}

/// It is assigned again before it was deleted. The object stays. Whether a create-only object still exists decides whether it
/// is created anew.
fn comes_back(evidence: &Evidence<'_>, entry: &Entry) -> Verdict {
    let Evidence { record, assigned, seen, unshown, view, policy, fresh, .. } = *evidence;
    // A withheld entry is sent under another policy than its own.
    let Some(assigned) = assigned.filter(|_| entry.state == EntryState::Apply) else { return Verdict::Wait };
    if matches!(policy, RemovalPolicy::Absence(_)) || !is_made_once(entry, assigned) {
        return Verdict::Forget;
    }
    match (seen, view) {
        (Some(seen), _) if seen.deleting => Verdict::Wait,
        (None, View::Unlisted | View::Unknown) => Verdict::Wait,
        // The object may have been seen before its deletion, which was accepted, or had no answer.
        (Some(_), _) | (None, View::Lost) if !fresh => Verdict::Read,
        (None, View::Current) if record.is_some() || unshown => Verdict::Read,
        (Some(_), _) | (None, View::Current | View::Lost | View::Missing | View::NamespaceExcluded) => Verdict::Forget,
    }
}

/// The object was due for orphaning, and something was assigned to its key before that was done. It ends as if it had been
/// done: the removal is over when the new entry has adopted the object, and is carried out if the new entry may not.
fn overtaken(evidence: &Evidence<'_>, entry: &Entry) -> Verdict {
    let Evidence { me, key, record, assigned, seen, unshown, view, fresh, .. } = *evidence;
    let recorded = |seen: &Seen| record.is_some_and(|record| record.uid == seen.uid && !record.orphaning);
    let ours = |seen: &Seen| {
        let mark = seen.mark.as_ref().map(|mark| mark.ownership(me, key));
        let by_journal = mark.is_none() && recorded(seen) && !seen.is_under_anothers_illegible_mark();
        mark == Some(Ownership::Ours) || by_journal
    };
    match (record, seen) {
        (_, Some(seen)) if !ours(seen) && (is_illegible(seen) || (seen.illegible && recorded(seen))) => Verdict::Wait,
        (_, Some(seen)) if !ours(seen) => Verdict::Forget,
        (_, Some(seen)) if seen.deleting => Verdict::Wait,
        (_, Some(seen)) if assigned.is_some_and(|policy| refuses(entry, policy, seen).is_some()) => {
            if !fresh && view != View::Current {
                return Verdict::Read;
            }
            Verdict::Orphan(Authorised { key: key.clone(), uid: seen.uid.clone(), how: How::Orphan })
        }
        (Some(record), _)
            if record.origin == Origin::Adopted
                && record.source == entry.source.uid
                && (seen.is_some() || matches!(view, View::Current | View::Missing)) =>
        {
            Verdict::Forget
        }
        // Perhaps it was orphaned just before a restart: without its label nothing shows it.
        (Some(record), None) if record.orphaning && matches!(view, View::Current | View::Lost) => Verdict::Read,
        // An object that exists unseen is found by the creation of the entry.
        (None, None) if view == View::Current && !unshown => Verdict::Forget,
        (_, Some(_) | None) => Verdict::TransferOwnership,
    }
}

/// It is ours, and its source is gone. What becomes of it is what was said last: by the tombstone. Where there is none, by the
/// set that had it, by the journal and by its mark, whichever is least destructive.
fn dispose(evidence: &Evidence<'_>, seen: &Seen, record: Option<&AppliedRecord>) -> Verdict {
    let Evidence { me, key, applied, policy, inspection, decommission, .. } = *evidence;
    if seen.deleting {
        return Verdict::Hold(Reason::Finalizing);
    }
    let mark = seen.mark.as_deref();
    let adopted = record.is_some_and(|record| record.origin == Origin::Adopted)
        || mark.is_some_and(|mark| mark.origin == Origin::Adopted);
    // It may have been orphaned already, and be another's. With our mark on it, it was not: whatever was to orphan it broke off,
    // and if that is void by now, nothing says orphan any more.
    let marked = mark.is_some_and(|mark| mark.ownership(me, key) == Ownership::Ours);
    let orphaned = !marked && record.is_some_and(|record| record.orphaning);
    // An adopted object had not been refused.
    let managed = !adopted && seen.managed_elsewhere;
    let deletes = match policy {
        RemovalPolicy::Tombstone(policy) => policy.deletes(adopted, managed) && !orphaned,
        RemovalPolicy::Absence(last) => {
            let said = last.into_iter().chain(applied.map(PrunePolicy::of)).chain(mark.map(prune_policy));
            let spared = orphaned || record.is_some_and(|record| record.implied);
            !spared && said.reduce(PrunePolicy::least).is_some_and(|policy| policy.deletes(adopted, managed))
        }
    };
    let delete = deletes && !decommission.keeps();
    let (key, uid) = (key.clone(), seen.uid.clone());
    if !delete {
        return Verdict::Orphan(Authorised { key, uid, how: How::Orphan });
    }
    if holds_others(&key.kind) {
        if adopted || is_system_namespace(&key) {
            return Verdict::Orphan(Authorised { key, uid, how: How::Orphan });
        }
        match inspection {
            None => return Verdict::Inspect,
            Some(Inspection { foreign: 0, ours: 0 }) => {}
            Some(Inspection { .. }) => return Verdict::Hold(Reason::NotEmpty),
        }
    }
    Verdict::Delete(Authorised { key, uid, how: How::Delete })
}

fn prune_policy(mark: &Mark) -> PrunePolicy {
    PrunePolicy { prune: mark.prune, prune_adopted: mark.prune_adopted, ..PrunePolicy::LEAST }
}

/// Whether an object may be deleted to be created again at once, because a field of it is immutable. What ran is not created
/// again.
pub(in crate::core) fn may_replace(
    entry: &Entry,
    policy: &ApplyPolicy,
    (record, terminal): (Option<&AppliedRecord>, Option<Terminal>),
    uid: &Uid,
) -> Option<Authorised> {
    let kind = &entry.key.kind;
    let never = holds_others(kind) || kind.is("", "PersistentVolumeClaim");
    let created = record.is_some_and(|record| record.uid == *uid && record.origin == Origin::Created);
    let ran = matches!(terminal, Some(Terminal::Finished | Terminal::MayHaveRun));
    let once = policy.mode == ApplyMode::CreateOnly || ran;
    (policy.recreate == Recreate::OnImmutable && !never && !once && created).then(|| Authorised {
        key: entry.key.clone(),
        uid: uid.clone(),
        how: How::Delete,
    })
}

/// A Namespace or a CRD is deleted with everything in it.
pub(in crate::core) fn holds_others(kind: &GroupKind) -> bool {
    kind.is_namespace() || kind.is_definition()
}

fn is_system_namespace(key: &ObjectKey) -> bool {
    key.kind.is_namespace() && (&*key.name == "default" || key.name.starts_with("kube-"))
}

/// The wave of a removal whose entry is not known any more: what holds others goes last.
pub(in crate::core) fn wave_of(kind: &GroupKind) -> i32 {
    if holds_others(kind) { i32::MIN } else { 0 }
}

#[cfg(test)]
mod tests;
