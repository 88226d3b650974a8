//! What an agent asks of the API server, as the executor answers it.

use std::sync::Arc;

use tideline_common::{
    ApplyPolicy, ConflictPolicy, Digest, Entry, Mark, ObjectKey, Origin, Ownership, Reason, Recreate, Uid,
};

use super::Cluster;
use super::objects::{Local, Managed, has_ttl};
use crate::core::{
    Applied, Compared, Created, Deleted, Difference, Earlier, Failure, FieldConflict, Inspected, LocalField, Marked,
    NotDone, Observed, Op, OpResult, Orphaned, OwnershipTransferred, Served, Values,
};

/// The one field of every object.
const FIELD: &str = "/data/a";

impl Cluster {
    pub fn execute(&mut self, op: &Op) -> OpResult {
        if let Some(failure) = self.faults.refuses(op) {
            self.refused_reads += u64::from(matches!(op, Op::Get { .. }));
            return op.failed(failure);
        }
        let result = self.carry_out(op);
        if self.faults.loses_answer(op) {
            return op.failed(Failure::new(Reason::Unavailable, "timeout").unanswered());
        }
        result
    }

    fn carry_out(&mut self, op: &Op) -> OpResult {
        match op {
            Op::Create { entry, policy, mark, ran, earlier } => {
                OpResult::Create(self.create(entry, policy, mark, *ran, *earlier))
            }
            Op::DryRunCreate { entry, .. } => OpResult::DryRunCreate(self.admits(&entry.key)),
            Op::Apply { entry, policy, mark, uid, local, .. } => {
                OpResult::Apply(self.apply(entry, policy, mark, uid, local))
            }
            Op::TransferOwnership { entry, mark, uid } => {
                OpResult::TransferOwnership(self.transfer_ownership(entry, mark, uid))
            }
            Op::ReTarget { key, seen, mark, .. } => OpResult::ReTarget(self.re_target(key, seen, mark)),
            Op::Delete { key, uid, .. } => OpResult::Delete(self.delete_of(key, uid)),
            Op::Orphan { key, uid, .. } => OpResult::Orphan(self.orphan(key, uid)),
            Op::Inspect { key, .. } => OpResult::Inspect(Ok(self.inspect(key))),
            Op::Compare { entry, uid, .. } => OpResult::Compare(self.compare(entry, uid)),
            Op::Get { key, .. } => {
                self.reads += 1;
                OpResult::Get(Ok(self.observed(key).map(Box::new)))
            }
        }
    }

    fn create(
        &mut self,
        entry: &Entry,
        policy: &ApplyPolicy,
        mark: &Arc<Mark>,
        ran: Option<Digest>,
        earlier: Earlier,
    ) -> Result<Created, Failure> {
        self.admits(&entry.key)?;
        if let Some(there) = self.observed(&entry.key) {
            return Ok(Created::Exists(Box::new(there)));
        }
        if ran.is_some() {
            assert_eq!(policy.recreate, Recreate::OnImmutable, "{} may not run anew", entry.key);
            if pod_template(entry) == ran {
                return Err(Failure::new(Reason::Vanished, "it ran with this Pod template"));
            }
        }
        if earlier == Earlier::Unanswered && has_ttl(&entry.key) {
            return Ok(Created::Vanished { template: pod_template(entry) });
        }
        if ran.is_some() {
            self.finished.remove(&entry.source.uid);
        }
        self.check_run(&entry.key, &entry.source.uid);
        let local = Local {
            input: Some(entry.input),
            managed: Some(Managed::posted(entry.input)),
            owner: Some(entry.source.uid.clone()),
            created: true,
            starting: self.faults.slow,
            ..self.new_object().marked(mark)
        };
        Ok(Created::Made(self.placed(entry, local)))
    }

    fn apply(
        &mut self,
        entry: &Entry,
        policy: &ApplyPolicy,
        mark: &Arc<Mark>,
        uid: &Uid,
        left: &[LocalField],
    ) -> Result<Applied, NotDone> {
        self.admits(&entry.key)?;
        let former = self.of_uid(&entry.key, uid)?;
        let mut applied = former.clone().marked(mark);
        let mut managed = Managed::applied(entry.input);
        if former.input.is_none() && left.iter().any(|left| left.assigned == entry.input) {
            // It stays as it is, and whose it is.
            managed.field_taken = true;
        } else {
            applied.generation += i64::from(former.input != Some(entry.input));
            applied.input = Some(entry.input);
        }
        applied.managed = Some(managed);
        if policy.conflicts == ConflictPolicy::Force {
            applied.rival = None;
        }
        // What counts as adopted once does so for good.
        applied.created &= mark.origin == Origin::Created;
        applied.owner = Some(entry.source.uid.clone());
        let conflict = |rival| FieldConflict { manager: format!("rival-{rival}"), field: FIELD.to_owned() };
        let conflicts = applied.rival.map(conflict).into_iter().collect();
        let same = |former: &Local| {
            let fields =
                (former.input, former.managed, former.rival) == (applied.input, applied.managed, applied.rival);
            fields && former.mark == applied.mark && former.label == applied.label
        };
        let observed = if same(former) {
            Box::new(Observed { template: pod_template(entry), ..former.observed(&entry.key, &self.agent) })
        } else {
            self.placed(entry, applied)
        };
        Ok(Applied { observed, conflicts })
    }

    fn transfer_ownership(
        &mut self,
        entry: &Entry,
        mark: &Arc<Mark>,
        uid: &Uid,
    ) -> Result<OwnershipTransferred, NotDone> {
        let local = self.of_uid(&entry.key, uid)?;
        if local.deleting {
            return Ok(OwnershipTransferred::Finalizing);
        }
        let labelled = local.is_labelled_for(&self.agent);
        // Who may not write to a namespace that is only implied leaves it as it is.
        let left = entry.implied && self.faults.unwritable.contains(&entry.key);
        if left || (labelled && local.mark.as_ref() == Some(mark)) {
            return Ok(OwnershipTransferred::Marked(Box::new(local.observed(&entry.key, &self.agent))));
        }
        let created = local.created && mark.origin == Origin::Created;
        let local = Local { owner: Some(entry.source.uid.clone()), created, ..local.clone() };
        Ok(OwnershipTransferred::Marked(self.put_marked(&entry.key, local, mark)))
    }

    fn re_target(&mut self, key: &ObjectKey, seen: &Marked, mark: &Arc<Mark>) -> Result<Box<Observed>, NotDone> {
        let local = self.of_uid(key, &seen.uid)?;
        let there = local.observed(key, &self.agent);
        let same = (there.generation, there.managed) == (seen.generation, seen.managed) && !there.deleting;
        if !same || there.mark.as_ref() != Some(&seen.mark) {
            return Err(NotDone::Stale);
        }
        let local = local.clone();
        Ok(self.put_marked(key, local, mark))
    }

    /// Writes the mark and the label, and nothing else.
    fn put_marked(&mut self, key: &ObjectKey, local: Local, mark: &Arc<Mark>) -> Box<Observed> {
        if self.faults.keeps_marks.contains(key) {
            return self.put(key, local);
        }
        let managed = Some(Managed::marked(local.managed, mark));
        self.put(key, Local { managed, ..local.marked(mark) })
    }

    fn delete_of(&mut self, key: &ObjectKey, uid: &Uid) -> Result<Deleted, NotDone> {
        let Some(local) = self.objects.get_mut(key) else { return Ok(Deleted::Gone) };
        if local.uid != *uid {
            return Err(NotDone::Stale);
        }
        local.finalizer |= self.faults.finalizer_on_one_in.is_some_and(|many| local.version % many == 0);
        Ok(self.delete(key))
    }

    fn orphan(&mut self, key: &ObjectKey, uid: &Uid) -> Result<Orphaned, NotDone> {
        let Some(local) = self.objects.get(key) else { return Ok(Orphaned::Gone) };
        if local.uid != *uid || local.observed(key, &self.agent).is_anothers(self.agent) {
            return Err(NotDone::Stale);
        }
        let orphan = Local { mark: None, label: None, managed: None, owner: None, created: false, ..local.clone() };
        self.put(key, orphan);
        Ok(Orphaned::Done)
    }

    fn inspect(&self, key: &ObjectKey) -> Inspected {
        let Some(itself) = self.observed(key).map(Box::new) else { return Inspected::Gone };
        let (ours, foreign): (Vec<_>, Vec<_>) =
            self.contents(key).partition(|key| self.ownership(key) == Some(Ownership::Ours));
        let example = foreign.first().map(ToString::to_string);
        Inspected::Holds { foreign: foreign.len() as u64, example, ours: ours.len() as u64, itself }
    }

    fn compare(&mut self, entry: &Entry, uid: &Uid) -> Result<Compared, NotDone> {
        let local = self.of_uid(&entry.key, uid)?;
        let changed = local.input != Some(entry.input);
        let total = usize::from(changed || local.mark.is_none() || local.label.is_none());
        let template = pod_template(entry).filter(|_| total == 0);
        let observed = Box::new(Observed { template, ..local.observed(&entry.key, &self.agent) });
        let field = LocalField { field: FIELD.into(), assigned: entry.input };
        let values = Values::Are { assigned: "1".to_owned(), found: "2".to_owned() };
        self.comparisons += 1;
        Ok(Compared {
            observed,
            differences: vec![Difference { field: FIELD.to_owned(), values }; total],
            total,
            local: vec![field; usize::from(changed)].into(),
            at: format!("comparison {}", self.comparisons).into(),
        })
    }

    /// Puts what stands there as its source has it.
    fn placed(&mut self, entry: &Entry, local: Local) -> Box<Observed> {
        let mut observed = self.put(&entry.key, local);
        observed.template = pod_template(entry);
        observed
    }

    fn of_uid(&self, key: &ObjectKey, uid: &Uid) -> Result<&Local, NotDone> {
        self.objects.get(key).filter(|local| local.uid == *uid).ok_or(NotDone::Stale)
    }

    /// Whether anything can be written in this place.
    pub(super) fn admits(&self, key: &ObjectKey) -> Result<(), Failure> {
        if self.served(&key.kind) == Served::No {
            return Err(Failure::new(Reason::KindMissing, "refused"));
        }
        if key.is_namespaced() && !self.has_namespace(&key.namespace) {
            return Err(Failure::new(Reason::NamespaceUnavailable, "refused"));
        }
        Ok(())
    }

    /// No Job runs twice, but where a person said so, and then once more.
    fn check_run(&mut self, key: &ObjectKey, source: &Uid) {
        let ran = key.kind.is_job() && self.finished.contains(source);
        assert!(!ran || self.released.remove(source), "{key} of {source} runs again");
        self.finished.remove(source);
    }
}

/// Of two changes of a Job about one is one of its Pod template.
fn pod_template(entry: &Entry) -> Option<Digest> {
    entry.key.kind.is_job().then(|| Digest::of(&[entry.input.as_bytes()[0] % 2]))
}
