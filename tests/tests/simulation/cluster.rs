//! A cluster: as much of an API server, its controllers and its users as an agent can tell from one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_agent::core::{Difference, LocalField, Observed, Op, OpResult, Served, Sighting, Values};
use tideline_common::health::Health;
use tideline_common::wire::v1::Terminal;
use tideline_common::{
    Digest, Entry, Formers, GroupKind, Mark, ObjectKey, Origin, Owner, Ownership, Reason, Recreate, TargetId, Uid,
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
    pub(crate) fn survey(&self, kind: &GroupKind) -> Vec<Sighting> {
        self.list(kind).into_iter().map(Sighting::from).collect()
    }

    pub(crate) fn execute(&mut self, op: &Op) -> OpResult {
        let mut result = self.carry_out(op);
        if let (Op::Create { entry, .. } | Op::Apply { entry, .. }, OpResult::Written { observed, .. }) =
            (op, &mut result)
        {
            observed.template = pod_template(entry);
        }
        result
    }

    fn carry_out(&mut self, op: &Op) -> OpResult {
        if let Some(reason) = self.outage {
            return OpResult::Failed { reason, message: "an outage".to_owned(), retry_after: None };
        }
        match op {
            Op::Create { entry, policy, mark, ran } => {
                if let Some(refusal) = self.refusal(&entry.key) {
                    return refusal;
                }
                if let Some(local) = self.objects.get(&entry.key) {
                    return OpResult::Exists(Box::new(local.observed(&entry.key)));
                }
                if ran.is_some() {
                    assert_eq!(policy.recreate, Recreate::OnImmutable, "{} may not run anew", entry.key);
                    if pod_template(entry) == *ran {
                        let (reason, message) = (Reason::Vanished, "it ran with this Pod template".to_owned());
                        return OpResult::Failed { reason, message, retry_after: None };
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
                self.put(&entry.key, local)
            }
            Op::DryRunCreate { entry, .. } => self.refusal(&entry.key).unwrap_or(OpResult::WouldBeCreated),
            Op::Apply { entry, mark, uid, local: left, .. } => {
                if let Some(refusal) = self.refusal(&entry.key) {
                    return refusal;
                }
                let Some(local) = self.objects.get(&entry.key).filter(|local| local.uid == *uid) else {
                    return OpResult::PreconditionFailed;
                };
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
                if same {
                    return OpResult::Written { observed: Box::new(local.observed(&entry.key)), conflicts: Vec::new() };
                }
                self.put(&entry.key, applied)
            }
            Op::ReMark { entry, mark, uid } => {
                let Some(local) = self.objects.get(&entry.key).filter(|local| local.uid == *uid) else {
                    return OpResult::PreconditionFailed;
                };
                if local.label && local.mark.as_ref() == Some(mark) {
                    return OpResult::Written { observed: Box::new(local.observed(&entry.key)), conflicts: Vec::new() };
                }
                let owner = Some(entry.source.uid.clone());
                let created = local.created && mark.origin == Origin::Created;
                let marked = Local { mark: Some(Arc::clone(mark)), label: true, owner, created, ..local.clone() };
                self.put(&entry.key, marked)
            }
            Op::ReTarget { key, seen, mark, .. } => match self.objects.get(key) {
                Some(local) if local.uid == seen.uid && local.mark.as_ref() == Some(&seen.mark) => {
                    self.put(key, Local { mark: Some(Arc::clone(mark)), ..local.clone() })
                }
                Some(_) | None => OpResult::PreconditionFailed,
            },
            Op::Delete { key, uid, .. } => match self.objects.get(key) {
                None => OpResult::Gone,
                Some(local) if local.uid != *uid => OpResult::PreconditionFailed,
                Some(_) => self.delete(key),
            },
            Op::Orphan { key, uid, .. } => match self.objects.get(key) {
                None => OpResult::Gone,
                Some(local) if local.uid != *uid => OpResult::PreconditionFailed,
                Some(local) => {
                    let orphan =
                        Local { mark: None, label: false, managed: None, owner: None, created: false, ..local.clone() };
                    self.put(key, orphan)
                }
            },
            Op::Inspect { key, .. } => self.inspect(key),
            Op::Compare { entry, uid, .. } => match self.objects.get(&entry.key) {
                Some(local) if local.uid == *uid => {
                    let total = usize::from(local.input != Some(entry.input) || local.mark.is_none() || !local.label);
                    let field = LocalField { field: "/data/a".into(), assigned: entry.input };
                    let values = Values::Are { assigned: "1".to_owned(), found: "2".to_owned() };
                    OpResult::Compared {
                        observed: Box::new(local.observed(&entry.key)),
                        differences: vec![Difference { field: "/data/a".to_owned(), values }; total],
                        total,
                        local: vec![field; usize::from(local.input != Some(entry.input))].into(),
                        at: self.versions.to_string().into(),
                    }
                }
                Some(_) | None => OpResult::PreconditionFailed,
            },
            Op::Get { key, .. } => match self.objects.get(key) {
                None => OpResult::Gone,
                Some(local) => OpResult::Written { observed: Box::new(local.observed(key)), conflicts: Vec::new() },
            },
        }
    }

    /// Why nothing can be written in this place.
    fn refusal(&self, key: &ObjectKey) -> Option<OpResult> {
        let failed = |reason| OpResult::Failed { reason, message: "refused".to_owned(), retry_after: None };
        if self.served(&key.kind) == Served::No {
            return Some(failed(Reason::KindMissing));
        }
        let homeless = key.is_namespaced() && !self.has_namespace(&key.namespace);
        homeless.then(|| failed(Reason::NamespaceUnavailable))
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

    fn inspect(&self, key: &ObjectKey) -> OpResult {
        let contents: Vec<_> = self.contents(key).collect();
        let ours = contents.iter().filter(|key| self.ownership(key) == Some(Ownership::Ours)).count() as u64;
        OpResult::Emptiness { foreign: contents.len() as u64 - ours, example: None, ours }
    }

    pub(crate) fn ownership(&self, key: &ObjectKey) -> Option<Ownership> {
        let mark = self.objects.get(key)?.mark.as_ref()?;
        let Agents { target, formers } = self.agents;
        Some(mark.ownership(Owner { hub: parse(HUB), target, formers }, key))
    }

    /// A request to delete an object: by an agent, or by anybody.
    pub(crate) fn delete(&mut self, key: &ObjectKey) -> OpResult {
        let Some(local) = self.objects.get(key) else { return OpResult::Gone };
        let waits = local.finalizer || is_namespace(&key.kind) || is_definition(&key.kind);
        if waits {
            if !local.deleting {
                let deleting = Local { deleting: true, ..local.clone() };
                self.put(key, deleting);
                self.chores.push(Chore::Finalize(key.clone()));
            }
            return OpResult::Finalizing;
        }
        self.remove(key);
        OpResult::Gone
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
        if self.refusal(key).is_none() && !self.objects.contains_key(key) {
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

    fn put(&mut self, key: &ObjectKey, mut local: Local) -> OpResult {
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
        OpResult::Written { observed, conflicts: Vec::new() }
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
