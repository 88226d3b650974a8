//! A cluster: as much of an API server, its controllers and its users as an agent can tell from one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_agent::core::{
    Applied, Compared, Created, Deleted, Difference, Failure, Inspected, ListedItem, LocalField, NotDone, Observed, Op,
    OpResult, Orphaned, OwnershipTransferred, Served, Values,
};
use tideline_common::health::Health;
use tideline_common::wire::v1::Terminal;
use tideline_common::{
    ApplyPolicy, Digest, Entry, Formers, GroupKind, Mark, ObjectKey, Origin, Owner, Ownership, Reason, Recreate,
    TargetId, Uid,
};

use crate::ids::{HUB, TARGET, is_definition, is_namespace, parse, widget};

/// What makes an object what it is.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "an object's properties are independent of each other")]
pub(crate) struct Local {
    pub(crate) uid: Uid,
    pub(crate) version: u64,
    generation: i64,
    /// What its fields say, if they say what an input says; none once somebody changed them.
    pub(crate) input: Option<Digest>,
    /// Our managedFields entry.
    managed: Option<Digest>,
    pub(crate) mark: Option<Arc<Mark>>,
    pub(crate) label: bool,
    pub(crate) deleting: bool,
    finalizer: bool,
    /// Somebody manages it declaratively.
    declarative: bool,
    observed_generation: i64,
    pub(crate) status: u64,
    /// The source for which an agent of ours wrote it last, whatever its mark says by now.
    pub(crate) owner: Option<Uid>,
    /// It stands because an agent of ours created it.
    pub(crate) created: bool,
    /// Of a Job: it ended.
    pub(crate) finished: bool,
}

/// What watches are told.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Put(Box<Observed>),
    Gone(ObjectKey, Uid),
    /// The kind is served, or is not any more.
    Served(GroupKind),
}

/// What a controller does in its own time.
#[derive(Clone, Debug)]
pub(crate) enum Chore {
    /// Observes the present generation.
    Observe(ObjectKey),
    /// Lets go of what is being deleted, and of what is in it.
    Finalize(ObjectKey),
}

#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) objects: BTreeMap<ObjectKey, Local>,
    /// Counts every write that changed anything.
    pub(crate) versions: u64,
    pub(crate) outage: Option<Reason>,
    pub(crate) news: Vec<News>,
    pub(crate) chores: Vec<Chore>,
    /// Sources whose Jobs ended here.
    pub(crate) finished: BTreeSet<Uid>,
    /// Those that a person lets run again.
    pub(crate) released: BTreeSet<Uid>,
    pub(crate) agents: Agents,
}

/// Whose marks are ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agents {
    pub(crate) target: TargetId,
    pub(crate) formers: Formers,
}

impl Default for Agents {
    fn default() -> Self {
        Self { target: parse(TARGET), formers: Formers::default() }
    }
}

impl Cluster {
    pub(crate) fn served(&self, kind: &GroupKind) -> Served {
        let defined = |key: &ObjectKey, local: &Local| is_definition(&key.kind) && !local.deleting;
        if *kind == widget() && !self.objects.iter().any(|(key, local)| defined(key, local)) {
            return Served::No;
        }
        Served::Yes { namespaced: !is_namespace(kind) && !is_definition(kind), status: is_deployment(kind) }
    }

    /// Everything of a kind that carries our label.
    pub(crate) fn list(&self, kind: &GroupKind) -> Vec<Observed> {
        let labelled = self.objects.iter().filter(|(key, local)| key.kind == *kind && local.label);
        labelled.map(|(key, local)| local.observed(key)).collect()
    }

    /// The metadata of the same.
    pub(crate) fn list_metadata(&self, kind: &GroupKind) -> Vec<ListedItem> {
        self.list(kind).into_iter().map(ListedItem::from).collect()
    }

    pub(crate) fn execute(&mut self, op: &Op) -> OpResult {
        if let Some(reason) = self.outage {
            return op.failed(Failure::new(reason, "an outage"));
        }
        match op {
            Op::Create { entry, policy, mark, ran } => OpResult::Create(self.create(entry, policy, mark, *ran)),
            Op::DryRunCreate { entry, .. } => OpResult::DryRunCreate(self.admits(&entry.key)),
            Op::Apply { entry, mark, uid, local, .. } => OpResult::Apply(self.apply(entry, mark, uid, local)),
            Op::TransferOwnership { entry, mark, uid } => {
                OpResult::TransferOwnership(self.transfer_ownership(entry, mark, uid))
            }
            Op::ReTarget { key, seen, mark, .. } => OpResult::ReTarget(match self.objects.get(key) {
                Some(local) if local.uid == seen.uid && local.mark.as_ref() == Some(&seen.mark) => {
                    Ok(self.put(key, Local { mark: Some(Arc::clone(mark)), ..local.clone() }))
                }
                Some(_) | None => Err(NotDone::Stale),
            }),
            Op::Delete { key, uid, .. } => OpResult::Delete(match self.objects.get(key) {
                Some(local) if local.uid != *uid => Err(NotDone::Stale),
                Some(_) | None => Ok(self.delete(key)),
            }),
            Op::Orphan { key, uid, .. } => OpResult::Orphan(match self.objects.get(key) {
                None => Ok(Orphaned::Gone),
                Some(local) if local.uid != *uid => Err(NotDone::Stale),
                Some(local) => {
                    let orphan =
                        Local { mark: None, label: false, managed: None, owner: None, created: false, ..local.clone() };
                    self.put(key, orphan);
                    Ok(Orphaned::LetGo)
                }
            }),
            Op::Inspect { key, .. } => OpResult::Inspect(Ok(self.inspect(key))),
            Op::Compare { entry, uid, .. } => OpResult::Compare(self.compare(entry, uid)),
            Op::Get { key, .. } => OpResult::Get(Ok(self.objects.get(key).map(|local| Box::new(local.observed(key))))),
        }
    }

    fn create(
        &mut self,
        entry: &Entry,
        policy: &ApplyPolicy,
        mark: &Arc<Mark>,
        ran: Option<Digest>,
    ) -> Result<Created, Failure> {
        self.admits(&entry.key)?;
        if let Some(local) = self.objects.get(&entry.key) {
            return Ok(Created::Exists(Box::new(local.observed(&entry.key))));
        }
        if ran.is_some() {
            assert_eq!(policy.recreate, Recreate::OnImmutable, "{} may not run anew", entry.key);
            if pod_template(entry) == ran {
                return Err(Failure::new(Reason::Vanished, "it ran with this Pod template"));
            }
            self.finished.remove(&entry.source.uid);
        }
        self.check_run(&entry.key, &entry.source.uid);
        let local = Local {
            input: Some(entry.input),
            managed: Some(Digest::of(format!("post {}", entry.input).as_bytes())),
            mark: Some(Arc::clone(mark)),
            label: true,
            owner: Some(entry.source.uid.clone()),
            created: true,
            ..self.new_object(&entry.key)
        };
        Ok(Created::Made(self.placed(entry, local)))
    }

    fn apply(&mut self, entry: &Entry, mark: &Arc<Mark>, uid: &Uid, left: &[LocalField]) -> Result<Applied, NotDone> {
        self.admits(&entry.key)?;
        let local = self.objects.get(&entry.key).filter(|local| local.uid == *uid).ok_or(NotDone::Stale)?;
        let mut applied = local.clone();
        // It has one field, which is as its input says.
        if local.input.is_some() || left.iter().all(|left| left.assigned != entry.input) {
            applied.generation += i64::from(local.input != Some(entry.input));
            applied.input = Some(entry.input);
            applied.managed = Some(Digest::of(format!("apply {}", entry.input).as_bytes()));
        }
        applied.mark = Some(Arc::clone(mark));
        applied.label = true;
        // What counts as adopted once does so for good.
        applied.created &= mark.origin == Origin::Created;
        applied.owner = Some(entry.source.uid.clone());
        let same = local.input == applied.input
            && local.managed == applied.managed
            && local.mark == applied.mark
            && local.label;
        let observed = if same {
            Box::new(Observed { template: pod_template(entry), ..local.observed(&entry.key) })
        } else {
            self.placed(entry, applied)
        };
        Ok(Applied { observed, conflicts: Vec::new() })
    }

    fn transfer_ownership(
        &mut self,
        entry: &Entry,
        mark: &Arc<Mark>,
        uid: &Uid,
    ) -> Result<OwnershipTransferred, NotDone> {
        let local = self.objects.get(&entry.key).filter(|local| local.uid == *uid).ok_or(NotDone::Stale)?;
        if local.label && local.mark.as_ref() == Some(mark) {
            return Ok(OwnershipTransferred::Marked(Box::new(local.observed(&entry.key))));
        }
        let owner = Some(entry.source.uid.clone());
        let created = local.created && mark.origin == Origin::Created;
        let marked = Local { mark: Some(Arc::clone(mark)), label: true, owner, created, ..local.clone() };
        Ok(OwnershipTransferred::Marked(self.put(&entry.key, marked)))
    }

    fn compare(&self, entry: &Entry, uid: &Uid) -> Result<Compared, NotDone> {
        let local = self.objects.get(&entry.key).filter(|local| local.uid == *uid).ok_or(NotDone::Stale)?;
        let total = usize::from(local.input != Some(entry.input) || local.mark.is_none() || !local.label);
        let field = LocalField { field: "/data/a".into(), assigned: entry.input };
        let values = Values::Are { assigned: "1".to_owned(), found: "2".to_owned() };
        Ok(Compared {
            observed: Box::new(local.observed(&entry.key)),
            differences: vec![Difference { field: "/data/a".to_owned(), values }; total],
            total,
            local: vec![field; usize::from(local.input != Some(entry.input))].into(),
            at: self.versions.to_string().into(),
        })
    }

    /// Puts what stands there as its source has it.
    fn placed(&mut self, entry: &Entry, local: Local) -> Box<Observed> {
        let mut observed = self.put(&entry.key, local);
        observed.template = pod_template(entry);
        observed
    }

    /// Whether anything can be written in this place.
    fn admits(&self, key: &ObjectKey) -> Result<(), Failure> {
        if self.served(&key.kind) == Served::No {
            return Err(Failure::new(Reason::KindMissing, "refused"));
        }
        if key.is_namespaced() && !self.has_namespace(&key.namespace) {
            return Err(Failure::new(Reason::NamespaceUnavailable, "refused"));
        }
        Ok(())
    }

    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.objects.iter().any(|(key, local)| is_namespace(&key.kind) && &*key.name == name && !local.deleting)
    }

    /// What is in a namespace, or of the kind that is defined.
    pub(crate) fn contents(&self, key: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys().filter(|inner| {
            (is_namespace(&key.kind) && inner.namespace == key.name)
                || (is_definition(&key.kind) && inner.kind == widget())
        })
    }

    fn inspect(&self, key: &ObjectKey) -> Inspected {
        let contents: Vec<_> = self.contents(key).collect();
        let ours = contents.iter().filter(|key| self.ownership(key) == Some(Ownership::Ours)).count() as u64;
        Inspected::Holds { foreign: contents.len() as u64 - ours, example: None, ours }
    }

    pub(crate) fn ownership(&self, key: &ObjectKey) -> Option<Ownership> {
        let mark = self.objects.get(key)?.mark.as_ref()?;
        let Agents { target, formers } = self.agents;
        Some(mark.ownership(Owner { hub: parse(HUB), target, formers }, key))
    }

    /// A request to delete an object: by an agent, or by anybody.
    pub(crate) fn delete(&mut self, key: &ObjectKey) -> Deleted {
        let Some(local) = self.objects.get(key) else { return Deleted::Gone };
        let waits = local.finalizer || is_namespace(&key.kind) || is_definition(&key.kind);
        if waits {
            if !local.deleting {
                let deleting = Local { deleting: true, ..local.clone() };
                self.put(key, deleting);
                self.chores.push(Chore::Finalize(key.clone()));
            }
            return Deleted::Finalizing;
        }
        self.remove(key);
        Deleted::Gone
    }

    pub(crate) fn do_chore(&mut self, chore: &Chore) {
        match chore {
            Chore::Observe(key) => {
                if let Some(local) = self.objects.get(key)
                    && local.observed_generation != local.generation
                {
                    let status = local.status + 1;
                    let observed = Local { observed_generation: local.generation, status, ..local.clone() };
                    self.put(key, observed);
                }
            }
            Chore::Finalize(key) => {
                if self.objects.get(key).is_some_and(|local| local.deleting) {
                    let contents: Vec<_> = self.contents(key).cloned().collect();
                    for inner in &contents {
                        self.remove(inner);
                    }
                    self.remove(key);
                }
            }
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(local) = self.objects.remove(key) else { return };
        self.versions += 1;
        if is_definition(&key.kind) {
            self.news.push(News::Served(widget()));
        }
        if local.label {
            self.news.push(News::Gone(key.clone(), local.uid));
        }
    }

    /// Somebody changes a field of ours.
    pub(crate) fn edit(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).cloned() {
            let managed = local.managed.map(|_| Digest::of(format!("edited {}", self.versions).as_bytes()));
            let generation = local.generation + 1;
            self.put(key, Local { input: None, managed, generation, ..local });
        }
    }

    /// Somebody takes the mark off, or the label, or both.
    pub(crate) fn strip(&mut self, key: &ObjectKey, mark: bool, label: bool) {
        if let Some(mut local) = self.objects.get(key).cloned() {
            if mark {
                local.mark = None;
            }
            local.label &= !label;
            local.managed = local.managed.map(|_| Digest::of(format!("stripped {}", self.versions).as_bytes()));
            self.put(key, local);
        }
    }

    pub(crate) fn progress(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).cloned() {
            let status = local.status + 1;
            self.put(key, Local { status, ..local });
        }
    }

    /// Somebody else's object, perhaps with a mark that was written for another.
    pub(crate) fn intrude(&mut self, key: &ObjectKey, mark: Option<Arc<Mark>>, declarative: bool) {
        if self.admits(key).is_ok() && !self.objects.contains_key(key) {
            let label = mark.is_some();
            let local = Local { mark, label, declarative, ..self.new_object(key) };
            self.put(key, local);
        }
    }

    /// A controller of somebody's holds on to it.
    pub(crate) fn hold(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).cloned() {
            self.put(key, Local { finalizer: true, ..local });
        }
    }

    fn new_object(&mut self, _key: &ObjectKey) -> Local {
        self.versions += 1;
        Local {
            uid: Uid::from_uuid(uuid::Uuid::from_u128(self.versions.into())),
            version: 0,
            generation: 1,
            input: None,
            managed: None,
            mark: None,
            label: false,
            deleting: false,
            finalizer: false,
            declarative: false,
            observed_generation: 0,
            status: 0,
            owner: None,
            created: false,
            finished: false,
        }
    }

    /// No Job runs twice, but where a person said so, and then once more.
    fn check_run(&mut self, key: &ObjectKey, source: &Uid) {
        let ran = is_job(&key.kind) && self.finished.contains(source);
        assert!(!ran || self.released.remove(source), "{key} of {source} runs again");
        self.finished.remove(source);
    }

    /// A Job ends.
    pub(crate) fn finish(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).filter(|local| !local.finished).cloned() {
            self.finished.extend(local.owner.clone());
            self.put(key, Local { finished: true, ..local });
        }
    }

    /// It ends and is collected, and no watch tells more of that than that it is gone.
    pub(crate) fn end_unseen(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get_mut(key) {
            local.finished = true;
            self.finished.extend(local.owner.clone());
            self.remove(key);
        }
    }

    /// What ended is collected, as by its time to live or by whoever has looked for it.
    pub(crate) fn collect(&mut self, key: &ObjectKey) {
        if self.objects.get(key).is_some_and(|local| local.finished) {
            self.remove(key);
        }
    }

    fn put(&mut self, key: &ObjectKey, mut local: Local) -> Box<Observed> {
        self.versions += 1;
        local.version = self.versions;
        if is_deployment(&key.kind) && local.observed_generation != local.generation {
            self.chores.push(Chore::Observe(key.clone()));
        }
        let observed = Box::new(local.observed(key));
        let former = self.objects.insert(key.clone(), local);
        if is_definition(&key.kind) {
            self.news.push(News::Served(widget()));
        }
        if observed.labelled {
            self.news.push(News::Put(observed.clone()));
        } else if former.is_some_and(|former| former.label) {
            self.news.push(News::Gone(key.clone(), observed.uid.clone()));
        }
        observed
    }
}

/// Of two changes of a Job about one is one of its Pod template.
fn pod_template(entry: &Entry) -> Option<Digest> {
    is_job(&entry.key.kind).then(|| Digest::of(&[entry.input.as_bytes()[0] % 2]))
}

/// Whether it is a Job that is deleted some time after it ended.
pub(crate) fn has_ttl(key: &ObjectKey) -> bool {
    is_job(&key.kind) && key.name.starts_with("ttl")
}

pub(crate) fn is_job(kind: &GroupKind) -> bool {
    kind.is("batch", "Job")
}

/// They have generations, a status, and Pods.
pub(crate) fn is_deployment(kind: &GroupKind) -> bool {
    kind.is("apps", "Deployment")
}

impl Local {
    /// How many Pods controllers made of it.
    pub(crate) fn pods(&self) -> u64 {
        self.status % 4
    }

    pub(crate) fn status_text(&self) -> String {
        format!("{{\"n\":{}}}", self.status)
    }

    fn terminal(&self, key: &ObjectKey) -> Option<Terminal> {
        if self.finished { Some(Terminal::Finished) } else { has_ttl(key).then_some(Terminal::Started) }
    }

    pub(crate) fn observed(&self, key: &ObjectKey) -> Observed {
        let has_generation = is_deployment(&key.kind);
        let status = has_generation.then(|| RawValue::from_string(self.status_text()).expect("it is JSON").into());
        Observed {
            key: key.clone(),
            uid: self.uid.clone(),
            resource_version: self.version.to_string().into(),
            generation: if has_generation { self.generation } else { 0 },
            managed: self.managed,
            mark: self.mark.clone(),
            labelled: self.label,
            deleting: self.deleting,
            health: if !has_generation || self.observed_generation == self.generation {
                Health::Ready
            } else {
                Health::Progressing
            },
            health_message: String::new(),
            observed_generation: has_generation.then_some(self.observed_generation),
            terminal: self.terminal(key),
            template: None,
            status,
            managed_elsewhere: self.declarative,
            others: None,
        }
    }
}
