//! Puts a desired set together from pages, as `tideline_common::wire::v1::DesiredRequest` describes.
//!
//! What is gathered is kept as changes relative to the accepted set, so that a small change costs little however large the
//! set.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::limits::DESIRED_OBJECTS_MAX;
use tideline_common::wire::v1::{Accepted, Attested, Decommission, DesiredPage, TerminalFact};
use tideline_common::{
    ApplyPolicy, Attestation, DesiredSet, Digest, Entry, ObjectKey, SetDigest, Tombstone, Unassignment, Version,
};

use crate::core::interface::write::RemovalPolicy;
use crate::core::model::change::Change;
use crate::core::model::key_ref::KeyRef;

/// What to ask next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) struct Question {
    pub(in crate::core) since: Option<Version>,
    pub(in crate::core) digest: Option<Digest>,
    pub(in crate::core) after: Option<ObjectKey>,
}

/// What a page led to.
#[derive(Debug)]
pub(in crate::core) enum Step {
    /// More is to be asked.
    Ask,
    Complete(Box<Change>),
    /// The set is the accepted one.
    NothingNew,
    /// What was gathered is of no use; everything must be requested anew.
    Again(SyncError),
    /// The answer must not be believed; the accepted set stays.
    Refuse(SyncError),
}

/// Why an answer was of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) enum SyncError {
    /// Digest or count of the whole differ from what the hub says.
    Incomplete,
    /// Older than what was accepted or already gathered: a replica that lags, or a hub that lost history.
    Older,
    /// The accepted version under another digest: the hub lost history.
    OtherHistory,
    /// A page that does not answer the request, or that leads nowhere.
    Unrelated,
    /// More entries than a target may have.
    TooLarge,
    /// An entry names a policy that was never sent.
    PolicyMissing,
}

#[derive(Debug)]
pub(in crate::core) struct Gather {
    /// The set that the changes are relative to; none for a snapshot.
    onto: Option<Accepted>,
    absence: Absence,
    changes: BTreeMap<KeyRef, Option<Arc<Entry>>>,
    digest: SetDigest,
    len: usize,
    policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    /// The latest of each key.
    tombstones: BTreeMap<ObjectKey, Unassignment>,
    terminal: Vec<TerminalFact>,
    /// As the last page has it.
    decommission: Decommission,
    walk: Walk,
}

/// What follows when a snapshot lacks an entry of the accepted set of the same epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core) enum Absence {
    /// It was unassigned.
    #[default]
    Removal,
    /// Nothing: the accepted set is not of the hub's history.
    Unexplained,
}

/// One pass over the pages of one question.
#[derive(Debug)]
struct Walk {
    since: Option<Version>,
    /// Whether `since` is the accepted set, and not the start of an earlier walk of this gathering.
    from_accepted: bool,
    after: Option<ObjectKey>,
    first: Option<At>,
    latest: Option<Version>,
}

#[derive(Clone, Copy, Debug)]
struct At {
    version: Version,
    attestation: Attestation,
    digest: Digest,
    total: u64,
}

impl Gather {
    /// Asks for what changed since the accepted set.
    pub(in crate::core) fn changes(accepted: Accepted, desired: &DesiredSet) -> Self {
        Self::begin(Some(accepted), desired.buckets().clone(), desired.len())
    }

    /// Asks for everything, of which this is known before a page says so.
    pub(in crate::core) fn everything(absence: Absence) -> Self {
        Self { absence, ..Self::begin(None, SetDigest::default(), 0) }
    }

    /// Asks for everything after a failure. Where the hub's delta on the accepted set does not lead to the hub's set, one of
    /// its changes is of a history that was lost, and later revisions hide it: then nothing is concluded from absence.
    pub(in crate::core) fn anew(&self, error: SyncError) -> Self {
        let contradicted = self.onto.is_some() && error == SyncError::Incomplete;
        let absence = if contradicted { Absence::Unexplained } else { self.absence };
        Self::everything(absence)
    }

    pub(in crate::core) fn absence(&self) -> Absence {
        self.absence
    }

    /// Whether everything is requested next, from its first page on.
    pub(in crate::core) fn begins_with_everything(&self) -> bool {
        self.walk.since.is_none() && self.walk.after.is_none()
    }

    fn begin(onto: Option<Accepted>, digest: SetDigest, len: usize) -> Self {
        let since = onto.map(|accepted| accepted.version);
        Self {
            onto,
            absence: Absence::Removal,
            changes: BTreeMap::new(),
            digest,
            len,
            policies: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            terminal: Vec::new(),
            decommission: Decommission::No,
            walk: Walk { since, from_accepted: true, after: None, first: None, latest: None },
        }
    }

    pub(in crate::core) fn question(&self) -> Question {
        let Walk { since, from_accepted, after, .. } = &self.walk;
        let begins = *from_accepted && after.is_none();
        Question {
            since: *since,
            digest: self.onto.filter(|_| begins).map(|accepted| accepted.digest),
            after: after.clone(),
        }
    }

    /// Whether nothing was gathered yet, so that the hub may take its time to answer.
    pub(in crate::core) fn may_wait(&self) -> bool {
        self.walk.from_accepted && self.walk.after.is_none() && self.onto.is_some()
    }

    /// The hub says that nothing changed since the version asked about.
    pub(in crate::core) fn nothing_new(&mut self, last: &LastAccepted<'_>) -> Step {
        if self.walk.after.is_some() || self.walk.since.is_none() {
            Step::Again(SyncError::Unrelated)
        } else if self.walk.from_accepted {
            Step::NothingNew
        } else {
            match self.walk.first {
                Some(at) => self.complete(at, last),
                None => Step::Again(SyncError::Unrelated),
            }
        }
    }

    /// Takes a page. `last` is the accepted set that changes are relative to.
    pub(in crate::core) fn page(&mut self, page: DesiredPage, last: &LastAccepted<'_>) -> Step {
        if let Err(step) = self.check(&page, last) {
            return step;
        }
        let at = At { version: page.at, attestation: page.attestation, digest: page.digest, total: page.total };
        let next = page.next.clone();
        let first_page = self.walk.after.is_none();
        if first_page {
            self.walk.first = Some(at);
        }
        self.walk.latest = Some(at.version);
        self.take(page, last);
        if self.len > DESIRED_OBJECTS_MAX {
            return Step::Refuse(SyncError::TooLarge);
        }
        match next {
            Some(cursor) => {
                self.walk.after = Some(cursor);
                Step::Ask
            }
            None if first_page => self.complete(at, last),
            None => {
                // The pages are of different revisions: changes since the first are requested until they fit one page.
                let began = self.walk.first.map(|at| at.version);
                self.walk = Walk {
                    since: began,
                    from_accepted: false,
                    after: None,
                    first: self.walk.first,
                    latest: Some(at.version),
                };
                Step::Ask
            }
        }
    }

    fn check(&self, page: &DesiredPage, last: &LastAccepted<'_>) -> Result<(), Step> {
        if let Some(accepted) = last.floor {
            if page.at < accepted.version {
                return Err(Step::Refuse(SyncError::Older));
            }
            if page.at == accepted.version && page.digest != accepted.digest {
                return Err(Step::Refuse(SyncError::OtherHistory));
            }
        }
        if self.walk.latest.is_some_and(|latest| page.at < latest) {
            return Err(Step::Again(SyncError::Older));
        }
        let stuck = page.next.as_ref().is_some_and(|next| self.walk.after.as_ref().is_some_and(|after| next <= after));
        // A delta never leads from one epoch into the next.
        let crossed = self.walk.since.is_some_and(|since| since.epoch != page.at.epoch);
        if page.snapshot != self.walk.since.is_none() || stuck || crossed {
            return Err(Step::Again(SyncError::Unrelated));
        }
        Ok(())
    }

    fn take(&mut self, page: DesiredPage, last: &LastAccepted<'_>) {
        let DesiredPage { snapshot, entries, tombstones, policies, terminal, decommission, .. } = page;
        self.decommission = decommission;
        if page.absence_unexplained {
            self.absence = Absence::Unexplained;
        }
        if !snapshot {
            // Nothing is assigned there any more, whichever source this set still has there: another between the two may have
            // come and gone unseen.
            for Unassignment { tombstone: Tombstone { key, .. }, .. } in &tombstones {
                if self.present(key, last).is_some() {
                    self.change(key.into(), None, last);
                }
            }
        }
        for entry in entries {
            // Assigned again since an earlier page had its tombstone; what is still to be known of that comes with the entry.
            self.tombstones.remove(&entry.key);
            self.change(KeyRef::Of(Arc::clone(&entry)), Some(entry), last);
        }
        self.tombstones.extend(tombstones.into_iter().map(|gone| (gone.tombstone.key.clone(), gone)));
        self.policies.extend(policies);
        self.terminal.extend(terminal);
    }

    fn present<'a>(&'a self, key: &ObjectKey, last: &LastAccepted<'a>) -> Option<&'a Arc<Entry>> {
        match self.changes.get(key) {
            Some(change) => change.as_ref(),
            None if self.onto.is_some() => last.desired.get(key),
            None => None,
        }
    }

    fn change(&mut self, name: KeyRef, entry: Option<Arc<Entry>>, last: &LastAccepted<'_>) {
        if let Some(hash) = self.present(name.key(), last).map(|former| former.hash()) {
            self.digest.remove(hash);
            self.len -= 1;
        }
        if let Some(entry) = &entry {
            self.digest.add(entry.hash());
            self.len += 1;
        }
        self.changes.insert(name, entry);
    }

    fn complete(&mut self, at: At, last: &LastAccepted<'_>) -> Step {
        if self.len as u64 != at.total || self.digest.digest() != at.digest {
            return Step::Again(SyncError::Incomplete);
        }
        let (accepted, decommission) = (Accepted { version: at.version, digest: at.digest }, self.decommission);
        if decommission != Decommission::No && self.len > 0 {
            return Step::Again(SyncError::Unrelated);
        }
        if self.onto == Some(accepted) && self.tombstones.is_empty() && decommission == last.decommission {
            return Step::NothingNew;
        }
        let mut put = Vec::new();
        let mut remove = Vec::new();
        let changes = std::mem::take(&mut self.changes);
        if self.onto.is_none() {
            remove.extend(last.desired.iter().map(|(key, _)| key).filter(|key| !changes.contains_key(*key)).cloned());
        }
        for (name, change) in changes {
            let former = last.desired.get(name.key());
            match change {
                Some(entry) if former != Some(&entry) => put.push(entry),
                None if former.is_some() => remove.push(name.key().clone()),
                Some(_) | None => {}
            }
        }
        let policies = std::mem::take(&mut self.policies);
        let named =
            |entry: &Arc<Entry>| policies.contains_key(&entry.policy) || last.policies.contains_key(&entry.policy);
        if !put.iter().all(named) {
            return Step::Again(SyncError::PolicyMissing);
        }
        let mut tombstones: BTreeMap<Tombstone, RemovalPolicy> = BTreeMap::new();
        let same_epoch = last.accepted.is_some_and(|former| former.version.epoch == at.version.epoch);
        if same_epoch && self.absence == Absence::Removal {
            let absent = remove.iter().filter_map(|key| last.desired.get(key));
            // So is a source whose key is another's by now. Its object changes owner, and until that is done it is this
            // source's: the other may be gone before.
            let replaced = put.iter().filter_map(|entry| {
                let former = last.desired.get(&entry.key)?;
                (former.source.uid != entry.source.uid).then_some(former)
            });
            let last_policy = |entry: &Entry| last.policies.get(&entry.policy).map(|policy| entry.prune_policy(policy));
            tombstones.extend(absent.chain(replaced).map(|entry| {
                let removal = Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() };
                (removal, RemovalPolicy::Absence(last_policy(entry)))
            }));
        }
        let mut left_at = BTreeMap::new();
        for (key, Unassignment { tombstone, policy, at }) in std::mem::take(&mut self.tombstones) {
            left_at.insert(key.clone(), at);
            // It counts for its key: also for what this set had there last.
            let absent = last.desired.get(&key).map(|entry| entry.source.uid.clone());
            let absent =
                absent.map(|source| Tombstone { key, source }).filter(|absent| tombstones.contains_key(absent));
            for removal in absent.into_iter().chain([tombstone]) {
                tombstones.insert(removal, RemovalPolicy::Tombstone(policy));
            }
        }
        let terminal = std::mem::take(&mut self.terminal);
        let accepted = Attested { set: accepted, attestation: at.attestation };
        Step::Complete(Box::new(Change {
            accepted,
            put,
            remove,
            policies,
            tombstones,
            left_at,
            terminal,
            decommission,
        }))
    }
}

/// What was accepted last.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct LastAccepted<'a> {
    pub(in crate::core) accepted: Option<Accepted>,
    /// The newest set that was ever accepted; newer than `accepted` where that was lost.
    pub(in crate::core) floor: Option<Accepted>,
    pub(in crate::core) decommission: Decommission,
    pub(in crate::core) desired: &'a DesiredSet,
    pub(in crate::core) policies: &'a BTreeMap<Digest, Arc<ApplyPolicy>>,
}

#[cfg(test)]
mod tests;
