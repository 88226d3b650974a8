//! What is known of histories that are not this one, and what a person accepted of it.
//!
//! ```text
//!  an agent shows a set that is not of this history ──▶ broken ── `history accept` ──▶ whole, under a higher epoch
//!  a restored store is started                      ──▶              │
//!                                                         what was shown by then is covered, for ever
//! ```
//!
//! Where the hub's own signed word proves that it once gave what it does not know of now, no target may be told to remove
//! anything: who knows more is known of one target, and not of the others. Where an agent only claims it, that one waits.
//!
//! An accept covers what was shown before it and was seen by the person who gave it. What the former history asked to be
//! removed is asked for no more: nothing says whether a later one took it back. The objects are in no set then, and wait at
//! their clusters for an approval, and so does what was to go because a cluster was to leave service.

pub(super) mod records;
mod seen;

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tideline_common::{Digest, Epoch, ObjectKey, Revision, RevisionPoint, Shown, TargetId, Uid, Version};

use self::seen::{Seen, SeenSegments, is_within};
use super::Ledger;
use super::history::Lineage;
use crate::history_change::{Accepted, HistoryChange, Proof};

/// Whether a target may be told of its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetContinuity {
    /// What it knows of is part of this history.
    Whole { absence: Absence },
    /// It is not. Everything is kept, and no removal begins. `recorded`: an accept from now on covers what it shows.
    Broken { recorded: bool },
}

/// What it means that a set lacks what the former set of the same epoch had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    TakenOut,
    Unexplained,
}

/// A set that targets know of and this hub does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Who showed it last.
    pub target: TargetId,
    pub shown: Shown,
    /// The last revision before which the histories are the same, at most.
    pub after: Revision,
    /// Whether the hub's own word proves it.
    pub proven: bool,
}

/// A hub whose store was restored from a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Random: of each restore.
    pub id: String,
    /// When the backup was made, as a person reads it.
    pub made: String,
}

/// What an approval of deletions does not approve any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Void {
    /// It was given before a person accepted that history was lost, or is over.
    All,
    /// Something was assigned there since, or it was done.
    At(BTreeSet<ObjectKey>),
}

/// Of the last accept one record, and one of each target and of each segment that is known of: see [`records`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Broken {
    /// Of every target at least: one above all that was proven by the last accept.
    pub(super) epoch: Epoch,
    /// At the last accept. Tombstones up to here are void.
    pub(super) accepted: Revision,
    /// The highest epoch that the hub's own word proves.
    proven: Epoch,
    /// Up to which revision segments of other histories were proven by the hub's own word, and by whom last.
    seen: SeenSegments,
    /// What targets claim.
    claims: BTreeMap<TargetId, Claim>,
    /// Written by the restore.
    restored: Option<Restored>,
    /// The last restore that was accepted.
    accepted_restore: Option<String>,
    /// Targets whose leaving was said before the last accept, and was not taken back since.
    pub(super) leaving: BTreeSet<TargetId>,
    /// In which words a person let run last what may have run at a target, as their SHA-256: an annotation is as long as
    /// whoever writes it likes.
    released: BTreeMap<TargetId, Digest>,
    /// As one record, as older hubs wrote it; the first batch of a run writes it in parts.
    is_undivided: bool,
}

/// Whom it concerns that something of it is otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Concerned {
    All,
    Only(BTreeSet<TargetId>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    version: Version,
    point: RevisionPoint,
    after: Revision,
    covered: bool,
}

impl Void {
    pub fn covers(&self, key: &ObjectKey) -> bool {
        match self {
            Self::All => true,
            Self::At(keys) => keys.contains(key),
        }
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(keys), Self::At(more)) => Self::At(&keys | &more),
            (Self::All, _) | (_, Self::All) => Self::All,
        }
    }
}

/// What is void of approvals.
pub(super) type Voids = BTreeMap<Uid, Void>;

/// What a batch makes of it; none where nothing changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) broken: Option<Broken>,
    /// None where an approval is gone.
    pub(super) voids: BTreeMap<Uid, Option<Void>>,
    /// Those of them of which agents are to be told.
    pub(super) voided: BTreeSet<Uid>,
    pub(super) heeded: BTreeMap<Uid, Heeded>,
}

/// What becomes of the memory that an acceptance was heeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heeded {
    Now,
    /// Its object is gone.
    Forgotten,
}

impl Ledger {
    /// Whether a target may be told of its set whose agent shows this.
    pub fn continuity(&self, target: TargetId, shown: Option<Shown>) -> TargetContinuity {
        let epoch = self.epoch(target).unwrap_or_default();
        self.broken.continuity(target, epoch, shown, |shown| self.lineage(shown))
    }

    /// Whether nobody may be told of any set until a person accepts that history was lost.
    pub fn is_broken(&self) -> bool {
        self.broken.is_for_all()
    }

    /// What targets know of that this hub does not, as far as no person has accepted that.
    pub fn missing(&self) -> impl Iterator<Item = Missing> {
        self.broken.missing()
    }

    /// What the agent of a target claims to know of and this hub does not, as far as no person has accepted that.
    pub fn claimed(&self, target: TargetId) -> Option<Shown> {
        let claim = self.broken.claims.get(&target).filter(|claim| !claim.covered)?;
        Some(Shown { version: claim.version, point: claim.point })
    }

    /// Whether this is a restored store that no person has accepted yet.
    pub fn restored(&self) -> Option<&Restored> {
        self.broken.restored()
    }

    /// Whether it was said before the last accept that a target is to leave service.
    pub fn leaving_is_unexplained(&self, target: TargetId) -> bool {
        self.broken.leaving.contains(&target)
    }

    /// What an approval of deletions does not approve any more.
    pub fn void(&self, approval: &Uid) -> Option<&Void> {
        self.voids.get(approval)
    }

    /// Approvals of which something is void, as far as they are not known to be gone.
    pub fn voided(&self) -> impl Iterator<Item = &Uid> {
        self.voids.keys()
    }

    /// Objects by which a person accepted something, once, as far as they are not known to be gone.
    pub fn heeded(&self) -> impl Iterator<Item = &Uid> {
        self.heeded.iter()
    }

    /// The last revision before which this history and the one that is shown are the same, at most.
    fn common(&self, shown: Shown) -> Revision {
        let open = self.segments().next_back().map_or(Revision::default(), |open| open.first);
        let before = |revision: Revision| Revision(revision.0.saturating_sub(1));
        match self.lineage(shown) {
            Lineage::Other { reaches: Some(reaches) } => reaches,
            Lineage::Same | Lineage::SameSegment | Lineage::Other { reaches: None } => {
                before(open).min(before(shown.version.revision))
            }
        }
    }
}

impl Draft {
    /// Targets whose leaving was said before the last accept, that of this batch included.
    pub(super) fn leaving(&self, ledger: &Ledger) -> RoaringBitmap {
        let broken = self.broken.as_ref().unwrap_or(&ledger.broken);
        broken.leaving.iter().filter_map(|target| ledger.index_of(*target)).collect()
    }

    fn void(&mut self, ledger: &Ledger, approval: Uid, at: BTreeSet<ObjectKey>) {
        let known = self.voids.get(&approval).cloned().unwrap_or_else(|| ledger.voids.get(&approval).cloned());
        let void = Void::At(at);
        self.voids.insert(approval, Some(known.map_or(void.clone(), |known| known.or(void))));
    }

    /// Returns whether tombstones become void.
    pub(super) fn take(&mut self, ledger: &Ledger, change: HistoryChange) -> bool {
        match change {
            HistoryChange::Shown { target, shown, proof } => {
                let after = ledger.common(shown);
                self.change(ledger, |broken| broken.record(target, shown, proof, after));
            }
            HistoryChange::Accept { object, accepted } => {
                if !self.heed(ledger, object) {
                    return false;
                }
                let epoch = ledger.targets.values().map(|target| target.epoch).max().unwrap_or_default();
                let mut done = false;
                self.change(ledger, |broken| done = broken.accept(&accepted, epoch, ledger.revision));
                if done {
                    self.voided.extend(accepted.approvals.iter().cloned());
                    self.voids.extend(accepted.approvals.into_iter().map(|approval| (approval, Some(Void::All))));
                }
                return done;
            }
            HistoryChange::AcceptanceGone(object) => {
                self.heeded.insert(object, Heeded::Forgotten);
            }
            HistoryChange::Stays(target) => self.change(ledger, |broken| {
                broken.leaving.remove(&target);
            }),
            HistoryChange::Unclaimed(target) => self.change(ledger, |broken| {
                if broken.claims.get(&target).is_some_and(|claim| !claim.covered) {
                    broken.claims.remove(&target);
                }
            }),
            HistoryChange::Assigned { approval, at } => {
                self.voided.insert(approval.clone());
                self.void(ledger, approval, at);
            }
            HistoryChange::Spent { approval, at } => self.void(ledger, approval, at),
            HistoryChange::Over(approval) => {
                self.voided.insert(approval.clone());
                self.voids.insert(approval, Some(Void::All));
            }
            HistoryChange::ApprovalGone(approval) => {
                self.voids.insert(approval, None);
            }
        }
        false
    }

    /// Whether a person says this for the first time. What was shown since is not meant by it, also where it would be covered.
    fn heed(&mut self, ledger: &Ledger, object: Uid) -> bool {
        let known = self.heeded.get(&object).map_or(ledger.heeded.contains(&object), |heeded| *heeded == Heeded::Now);
        if !known {
            self.heeded.insert(object, Heeded::Now);
        }
        !known
    }

    /// A target is gone, and what it said with it. What it proved stays proven.
    pub(super) fn forget(&mut self, ledger: &Ledger, target: TargetId) {
        self.change(ledger, |broken| {
            broken.leaving.remove(&target);
            broken.claims.remove(&target);
            broken.released.remove(&target);
        });
    }

    /// Whether these words are heard for the first time: what may have run since is not meant by them.
    pub(super) fn let_run(&mut self, ledger: &Ledger, target: TargetId, word: &str) -> bool {
        let word = Digest::of(word.as_bytes());
        let known = self.broken.as_ref().unwrap_or(&ledger.broken).released.get(&target);
        if known == Some(&word) {
            return false;
        }
        self.change(ledger, |broken| {
            broken.released.insert(target, word);
        });
        true
    }

    /// What an older hub wrote is written anew.
    pub(super) fn divide(&mut self, ledger: &Ledger) {
        if ledger.broken.is_undivided {
            self.change(ledger, |broken| broken.is_undivided = false);
        }
    }

    fn change(&mut self, ledger: &Ledger, change: impl FnOnce(&mut Broken)) {
        change(self.broken.get_or_insert_with(|| ledger.broken.clone()));
    }

    /// Drops what is as it was.
    pub(super) fn settle(mut self, ledger: &Ledger) -> Self {
        self.broken = self.broken.filter(|broken| *broken != ledger.broken);
        self.voids.retain(|approval, void| ledger.voids.get(approval) != void.as_ref());
        self.heeded.retain(|object, heeded| ledger.heeded.contains(object) != (*heeded == Heeded::Now));
        self
    }
}

impl Broken {
    /// Whether nobody may be told of any set.
    pub(super) fn is_for_all(&self) -> bool {
        self.restored.is_some() || !self.seen.are_covered()
    }

    pub(super) fn restored(&self) -> Option<&Restored> {
        self.restored.as_ref()
    }

    /// Whose continuity, or what is said of it, may be otherwise than by the former; none if nobody's is. In which words a person
    /// released what may have run is no part of either.
    pub(super) fn concerned(&self, former: &Self) -> Option<Concerned> {
        let Self { epoch, accepted, proven: _, seen, claims, restored, accepted_restore: _, leaving, .. } = self;
        let for_all = (epoch, accepted, restored) != (&former.epoch, &former.accepted, &former.restored)
            || self.is_for_all() != former.is_for_all();
        if for_all {
            return Some(Concerned::All);
        }
        // What more is shown while nobody is told of any set is news of who shows it alone.
        let showers = seen.by_id().iter().filter(|(segment, seen)| former.seen.get(**segment) != Some(seen));
        // What is claimed without proof is said of the one that claims it, whatever is so for all.
        let claimants = claims.keys().chain(former.claims.keys());
        let claimants = claimants.filter(|target| claims.get(target) != former.claims.get(target)).copied();
        let leaving = leaving.symmetric_difference(&former.leaving).copied();
        let targets: BTreeSet<_> = showers.map(|(_, seen)| seen.by).chain(claimants).chain(leaving).collect();
        (!targets.is_empty()).then_some(Concerned::Only(targets))
    }

    /// The store was restored, some time before it was loaded now.
    pub(super) fn restore(&mut self, restored: Option<Restored>) {
        self.restored = restored.filter(|restored| self.accepted_restore.as_ref() != Some(&restored.id));
    }

    /// What targets know of that this hub does not, as far as no person has accepted that.
    pub(super) fn missing(&self) -> impl Iterator<Item = Missing> {
        let seen = self.seen.uncovered().map(|(segment, seen)| Missing {
            target: seen.by,
            shown: Shown {
                version: Version { epoch: seen.epoch, revision: seen.revision },
                point: RevisionPoint { segment: *segment, id: RevisionPoint::NOWHERE.id },
            },
            after: seen.after,
            proven: true,
        });
        let claims = self.claims.iter().filter(|(_, claim)| !claim.covered).map(|(target, claim)| Missing {
            target: *target,
            shown: Shown { version: claim.version, point: claim.point },
            after: claim.after,
            proven: false,
        });
        seen.chain(claims)
    }

    pub(super) fn continuity(
        &self,
        target: TargetId,
        epoch: Epoch,
        shown: Option<Shown>,
        lineage: impl FnOnce(Shown) -> Lineage,
    ) -> TargetContinuity {
        let continuity = shown.map_or(TargetContinuity::Whole { absence: Absence::TakenOut }, |shown| {
            let lineage = if shown.version.epoch > epoch { Lineage::Other { reaches: None } } else { lineage(shown) };
            match lineage {
                Lineage::Same => TargetContinuity::Whole { absence: Absence::TakenOut },
                Lineage::SameSegment => TargetContinuity::Whole { absence: Absence::Unexplained },
                // Of a lower epoch, so that nothing is concluded from what the next set lacks.
                Lineage::Other { .. } if self.covers(target, shown) => {
                    TargetContinuity::Whole { absence: Absence::Unexplained }
                }
                Lineage::Other { .. } => TargetContinuity::Broken { recorded: self.is_recorded(target, shown) },
            }
        });
        match continuity {
            TargetContinuity::Whole { .. } if self.is_for_all() => TargetContinuity::Broken { recorded: true },
            TargetContinuity::Whole { .. } | TargetContinuity::Broken { .. } => continuity,
        }
    }

    fn covers(&self, target: TargetId, Shown { version, point }: Shown) -> bool {
        let seen = self.seen.get(point.segment);
        let claimed = || {
            let claim = self.claims.get(&target);
            claim.is_some_and(|claim| claim.covered && claim.version == version && claim.point == point)
        };
        version.epoch < self.epoch && (seen.is_some_and(|seen| seen.covers(version)) || claimed())
    }

    fn is_recorded(&self, target: TargetId, Shown { version, point }: Shown) -> bool {
        let seen = self.seen.get(point.segment);
        let proven = seen.is_some_and(|seen| is_within(version, seen.version()));
        let claim = self.claims.get(&target);
        proven || claim.is_some_and(|claim| claim.version == version && claim.point == point)
    }

    /// Takes in what an agent shows and this history does not have.
    pub(super) fn record(&mut self, target: TargetId, shown: Shown, proof: Proof, after: Revision) {
        let Shown { version, point } = shown;
        if self.is_recorded(target, shown) {
            return;
        }
        match proof {
            Proof::OwnWord => {
                self.proven = self.proven.max(version.epoch);
                let news = Seen { revision: version.revision, epoch: version.epoch, by: target, after, covered: None };
                let seen = self.seen.get(point.segment).unwrap_or(&news);
                let (revision, epoch) = (seen.revision.max(news.revision), seen.epoch.max(news.epoch));
                let seen = Seen { revision, epoch, covered: seen.covered, ..news };
                self.seen.put(point.segment, seen);
            }
            Proof::Claim => {
                self.claims.insert(target, Claim { version, point, after, covered: false });
            }
        }
    }

    /// A person accepts what it has seen. `epoch` is the highest of any target.
    pub(super) fn accept(&mut self, accepted: &Accepted, epoch: Epoch, present: Revision) -> bool {
        let former = self.clone();
        for (segment, version) in &accepted.shown {
            if let Some(seen) = self.seen.get(*segment).cloned() {
                let former = seen.covered.unwrap_or_default();
                let covered = Some(Version {
                    epoch: former.epoch.max(version.epoch.min(seen.epoch)),
                    revision: former.revision.max(version.revision.min(seen.revision)),
                });
                self.seen.put(*segment, Seen { covered, ..seen });
            }
            let of_segment = |claim: &&mut Claim| claim.point.segment == *segment && is_within(claim.version, *version);
            self.claims.values_mut().filter(of_segment).for_each(|claim| claim.covered = true);
        }
        if self.restored.as_ref().is_some_and(|restored| accepted.restored.as_ref() == Some(&restored.id)) {
            self.accepted_restore = self.restored.take().map(|restored| restored.id);
        }
        // What was accepted before is not accepted anew.
        if *self == former {
            return false;
        }
        self.epoch = epoch.max(self.proven).max(self.epoch).next();
        self.accepted = present;
        self.leaving.extend(&accepted.leaving);
        true
    }
}
