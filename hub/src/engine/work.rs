//! What is gathered, planned, written and put in force: the one way in which the ledger changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::wire::v1::Decommission;
use tideline_common::{Monotonic, Revision, Shown, TargetId};
use tracing::warn;

use super::last_known::LastKnown;
use super::remembered::RememberedTarget;
use super::{Answer, Engine};
use crate::ledger::{Batch, Committed, Fresh, Ledger, Lineage};
use crate::link::core::{self as link, HolderRecord, RequestId};
use crate::placement::{Change, SourceId};

/// Who holds a target, to be persisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderWrite {
    pub target: TargetId,
    /// A later one of the same target has a higher number.
    pub version: u64,
    pub record: Box<HolderRecord>,
}

/// What is to be planned, with the ledger that it follows.
#[derive(Debug)]
pub struct Gathered {
    ledger: Arc<Ledger>,
    changes: Vec<Change>,
    /// Assignments that may end without asking.
    allowance: u64,
    work: Work,
}

/// What must be persisted before anything of it is told.
#[derive(Debug, Default)]
pub struct Work {
    /// The ledger that the batch follows.
    ledger: Arc<Ledger>,
    pub batch: Option<Batch>,
    next: Option<Next>,
    /// Who holds targets, where that changed.
    pub holders: Vec<HolderWrite>,
    /// What is remembered of targets, where that changed.
    pub remembered: BTreeMap<TargetId, RememberedTarget>,
    /// What is known of SyncTargets, where that changed; none of those that are gone.
    pub inventory: BTreeMap<TargetId, Option<LastKnown>>,
    /// What acknowledges the batch's confirmed removals: the agent forgets them then.
    acknowledgements: Vec<(RequestId, Answer)>,
    /// Whose facts another target has once the batch is persisted.
    came: BTreeSet<(TargetId, TargetId)>,
}

/// The ledger as the batch leaves it.
#[derive(Debug)]
struct Next {
    ledger: Arc<Ledger>,
    committed: Committed,
    sources: BTreeSet<SourceId>,
    /// Assignments that end, and that are kept instead.
    unassigned: u64,
}

/// What an agent was handed and showed last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    handed: Option<Revision>,
    shown: Option<Shown>,
}

impl Gathered {
    /// Works out what the changes come to. That may take seconds, and needs no lock.
    pub fn plan(self, fresh: Fresh) -> Work {
        let Self { ledger, changes, allowance, mut work } = self;
        let batch = (!changes.is_empty()).then(|| ledger.plan_within(fresh, changes, allowance));
        let Some(batch) = batch.filter(|batch| !batch.is_empty()) else { return work };
        for (source, place) in batch.too_large() {
            warn!(
                space = %source.space,
                object = %place,
                "too many different or too long policies for one object; its assignments stay as they are until its Placements \
                 ask for less"
            );
        }
        if batch.kept() > 0 {
            let (assignments, of) = (batch.kept(), ledger.assigned());
            warn!(assignments, of, "one change unassigns too much to go without asking: it waits for an approval");
        }
        (work.ledger, work.batch) = (ledger, Some(batch));
        work
    }
}

impl Work {
    /// Whether [`Engine::committed`] has anything to do with it.
    pub fn is_empty(&self) -> bool {
        let Self { ledger: _, batch, next, holders, remembered, inventory, acknowledgements, came } = self;
        let silent = acknowledgements.is_empty() && came.is_empty();
        let records = holders.is_empty() && remembered.is_empty() && inventory.is_empty();
        batch.is_none() && next.is_none() && records && silent
    }

    /// All of it is written: makes the ledger that follows, and lets go of the records and of the ledger that it was planned on.
    /// That may take long, and needs no lock.
    #[must_use]
    pub fn written(mut self) -> Self {
        let Some(mut batch) = self.batch.take() else { return self };
        batch.forget_records();
        let unassigned = batch.unassigned() + batch.kept();
        let mut next = (*std::mem::take(&mut self.ledger)).clone();
        let mut committed = next.commit(batch).expect("it was planned on this ledger");
        let sources = std::mem::take(&mut committed.sources).into_iter().collect();
        self.next = Some(Next { ledger: Arc::new(next), committed, sources, unassigned });
        self
    }
}

impl Engine {
    /// Whether there is something to persist, besides what placement may say.
    pub fn has_work(&self) -> bool {
        !self.changes.is_empty()
            || !self.holders.is_empty()
            || !self.memory.is_saved()
            || !self.inventory.is_saved()
            || !self.acknowledgements.is_empty()
            || !self.came.is_empty()
    }

    /// Takes what is to be planned and persisted. Only one may be under way. None while there is more to gather than `most`
    /// objects: then it is to be called again.
    pub fn gather(&mut self, now: Monotonic, most: usize) -> Option<Gathered> {
        let late = self.index.is_late();
        let drained = self.index.drain_some(now, most)?;
        self.changes.extend(drained);
        self.dirty.described |= self.told;
        // What was told while this was drained comes with the next.
        self.told &= late;
        // What is to go soon counts too, so that of a namespace that goes object by object none goes before all are held.
        let allowance = self.fuse.allowance(now, self.ledger.assigned()).saturating_sub(self.index.leaving());
        let mut changes = std::mem::take(&mut self.changes);
        if !changes.is_empty() {
            changes.extend(self.retired().map(|(target, how)| Change::Retire(target, how)));
        }
        self.confirming = (false, self.confirming.0);
        let is_planned = !changes.is_empty();
        self.meanwhile = is_planned.then(BTreeMap::new);
        let work = Work {
            holders: std::mem::take(&mut self.holders),
            remembered: self.memory.take_unsaved(),
            inventory: self.inventory.take_unsaved(),
            acknowledgements: std::mem::take(&mut self.acknowledgements),
            came: std::mem::take(&mut self.came),
            ..Work::default()
        };
        let ledger = if is_planned { Arc::clone(&self.ledger) } else { Arc::default() };
        Some(Gathered { ledger, changes, allowance, work })
    }

    /// All of it, planned at once.
    pub fn work(&mut self, fresh: Fresh) -> Work {
        let gathered = self.gather(fresh.now, usize::MAX);
        gathered.map(|gathered| gathered.plan(fresh)).unwrap_or_default()
    }

    /// Targets that go out of service: that everything leaves them was said by whoever took them out.
    fn retired(&self) -> impl Iterator<Item = (TargetId, Decommission)> {
        self.targets.leaving().iter().map(|(target, how)| (*target, *how))
    }

    /// What was taken is persisted: makes it visible, and answers who waits for it. Returns the ledger that was in force, for
    /// whoever is to let go of it where nobody waits.
    pub fn committed(&mut self, now: Monotonic, work: Work) -> Arc<Ledger> {
        let former = Arc::clone(&self.ledger);
        let work = work.written();
        self.confirming.1 = false;
        for (id, answer) in work.acknowledgements {
            self.respond(id, answer);
        }
        let meanwhile = self.meanwhile.take().unwrap_or_default();
        if let Some(next) = work.next {
            self.publish(now, next, meanwhile);
        }
        self.inherited(work.came);
        for HolderWrite { target, version, record: _ } in work.holders {
            self.step(now, link::Event::HolderStored { target, version });
        }
        former
    }

    fn publish(&mut self, now: Monotonic, next: Next, meanwhile: BTreeMap<TargetId, Told>) {
        let Next { ledger, committed, mut sources, unassigned } = next;
        self.ledger = ledger;
        for (target, told) in meanwhile {
            self.note(target, told);
        }
        self.fuse.count(now, unassigned);
        let affected = committed.affected.iter().filter_map(|index| self.ledger.target_at(index));
        let affected: Vec<_> = affected.collect();
        self.dirty.targets.extend(affected.iter().copied());
        self.dirty.sources.append(&mut sources);
        // What is kept may be more or less by now.
        self.dirty.described = true;
        self.moved(committed.places);
        for (target, _) in committed.registered {
            self.place_target(target);
            self.hear(target);
            self.told = true;
        }
        self.ask_again(now, &affected);
        self.assigned_since(&affected);
        if let Some(concerned) = committed.history {
            self.history_changed(now, &concerned);
        }
        if !committed.voided.is_empty() {
            self.void_approvals(now, &committed.voided);
        }
        self.step(now, link::Event::Committed(affected));
    }

    /// What an agent was handed or showed is known at once, and again once a batch that is under way is in force.
    fn note(&mut self, target: TargetId, told: Told) {
        if self.ledger.index_of(target).is_none() {
            return;
        }
        let ledger = Arc::make_mut(&mut self.ledger);
        if let Some(revision) = told.handed {
            ledger.handed(target, revision);
        }
        if let Some(shown) = told.shown {
            ledger.confirmed(target, shown);
        }
        if let Some(meanwhile) = &mut self.meanwhile {
            let known = meanwhile.entry(target).or_default();
            *known = Told { handed: told.handed.or(known.handed), shown: told.shown.or(known.shown) };
        }
    }

    /// A target is handed its set of a revision.
    pub(super) fn handed(&mut self, target: TargetId, revision: Revision) {
        self.note(target, Told { handed: Some(revision), shown: None });
    }

    /// The agent of a target shows what it has accepted.
    pub(super) fn shown(&mut self, target: TargetId, shown: Shown) {
        // What another history has made is nothing that this one is to remember.
        if self.ledger.lineage(shown) == Lineage::Same {
            self.note(target, Told { handed: None, shown: Some(shown) });
        }
    }
}
