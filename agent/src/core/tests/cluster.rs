//! A cluster in memory: as much of an API server as the core can tell from one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_common::health::Health;
use tideline_common::{ConflictPolicy, Digest, GroupKind, HubId, Mark, ObjectKey, Reason, TargetId, Uid};
use uuid::Uuid;

use super::{heir, target_id, uid};
use crate::core::{
    Applied, Compared, Created, Deleted, Difference, Event, Failure, FieldConflict, Inspected, ListFailure, ListId,
    ListedItem, LocalField, NotDone, Observed, Op, OpResult, Orphaned, OwnershipTransferred, Served, Values,
};

#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
#[derive(Clone, Debug)]
pub(in crate::core) struct Local {
    pub(in crate::core) uid: Uid,
    version: u64,
    generation: i64,
    /// What its fields of ours hold; none once somebody else changed them.
    pub(in crate::core) input: Option<Digest>,
    /// Somebody else manages them, whatever they hold.
    taken: bool,
    /// The mark was written by itself since, so that our fields are in two entries.
    apart: bool,
    pub(in crate::core) mark: Option<Arc<Mark>>,
    /// Made by the agent and not by somebody else.
    pub(in crate::core) ours: bool,
    pub(in crate::core) deleting: bool,
    pub(in crate::core) status: u64,
    health: Health,
    /// Which other manager holds a field of it.
    pub(in crate::core) rival: Option<u8>,
}

#[derive(Debug, Default)]
pub(in crate::core) struct Cluster {
    pub(in crate::core) objects: BTreeMap<ObjectKey, Local>,
    versions: u64,
    watched: BTreeMap<GroupKind, Arc<str>>,
    /// What the watches will say, in order.
    pub(in crate::core) feed: VecDeque<Event>,
    /// The watches say nothing, and do not know it.
    pub(in crate::core) deaf: bool,
    pub(in crate::core) looks: u64,
    /// Kinds that cannot be listed.
    pub(in crate::core) unlistable: BTreeSet<GroupKind>,
    /// Kinds of which nothing is ever heard.
    pub(in crate::core) silent: BTreeSet<GroupKind>,
    /// What may not be read, nor listed.
    pub(in crate::core) unreadable: BTreeSet<ObjectKey>,
    /// How often one was asked for.
    pub(in crate::core) refused_reads: u64,
    /// How often something else was read, and how often a kind was listed.
    pub(in crate::core) reads: u64,
    pub(in crate::core) lists: u64,
    /// Whose metadata may not be written.
    pub(in crate::core) unwritable: BTreeSet<ObjectKey>,
    /// Whose removal is done, and not answered, the next time.
    pub(in crate::core) unanswered: BTreeSet<ObjectKey>,
    /// Whose mark somebody puts back at once.
    pub(in crate::core) keeps_marks: BTreeSet<ObjectKey>,
    /// What is created is not ready.
    pub(in crate::core) slow: bool,
    /// What is not finalized while it is in here; of the others one in five is, after a moment.
    pub(in crate::core) finalizers: BTreeSet<ObjectKey>,
}

impl Cluster {
    pub(in crate::core) fn watch(&mut self, kinds: BTreeMap<GroupKind, Arc<str>>) {
        for kind in kinds.keys() {
            if !self.watched.contains_key(kind) && !self.silent.contains(kind) {
                let served = Served::Yes { namespaced: &*kind.kind != "Namespace", status: true };
                self.feed.push_back(Event::Kind { kind: kind.clone(), served });
                self.list(kind);
            }
        }
        self.watched = kinds;
    }

    pub(in crate::core) fn restart_watches(&mut self) {
        self.feed.clear();
        self.watched.clear();
    }

    /// A watch breaks, misses whatever it has not said, and is begun again.
    pub(in crate::core) fn lose_watch(&mut self, kind: &GroupKind) {
        if self.watched.contains_key(kind) {
            self.feed.retain(|event| !matches!(event, Event::Observed(observed) if observed.key.kind == *kind));
            self.feed.retain(|event| !matches!(event, Event::Vanished { key, .. } if key.kind == *kind));
            let message = "cut".to_owned();
            self.feed.push_back(Event::WatchLost { kind: kind.clone(), reason: Reason::Unavailable, message });
            self.list(kind);
        }
    }

    pub(in crate::core) fn list(&mut self, kind: &GroupKind) {
        self.lists += 1;
        if self.unreadable.iter().any(|key| key.kind == *kind) {
            let (reason, message) = (Reason::Forbidden, "no".to_owned());
            return self.feed.push_back(Event::WatchLost { kind: kind.clone(), reason, message });
        }
        let labelled = self.objects.iter().filter(|(key, local)| key.kind == *kind && local.is_labelled());
        let objects = labelled.map(|(key, local)| local.observed(key)).collect();
        self.feed.push_back(Event::Listed { kind: kind.clone(), objects });
    }

    pub(in crate::core) fn execute(&mut self, op: &Op) -> OpResult {
        if let Op::Delete { key, .. } | Op::Orphan { key, .. } = op
            && self.unanswered.remove(key)
        {
            self.execute(op);
            return op.failed(Failure::new(Reason::Unavailable, "timeout"));
        }
        match op {
            Op::Create { entry, mark, .. } => {
                if let Some(local) = self.objects.get(&entry.key) {
                    return OpResult::Create(Ok(Created::Exists(Box::new(local.observed(&entry.key)))));
                }
                let health = if self.slow { Health::Progressing } else { Health::Ready };
                let local = Local { ours: true, mark: Some(Arc::clone(mark)), health, ..self.make(Some(entry.input)) };
                OpResult::Create(Ok(Created::Made(self.put(&entry.key, local))))
            }
            Op::DryRunCreate { .. } => OpResult::DryRunCreate(Ok(())),
            Op::Apply { entry, policy, mark, uid, local: left, .. } => {
                let Some(local) = self.objects.get(&entry.key) else { return OpResult::Apply(Err(NotDone::Stale)) };
                if local.uid != *uid {
                    return OpResult::Apply(Err(NotDone::Stale));
                }
                let mut local = local.clone();
                if local.rival.is_some() && policy.conflicts == ConflictPolicy::Force {
                    local.rival = None;
                }
                let conflict = |rival| FieldConflict { manager: format!("rival-{rival}"), field: "/data/a".to_owned() };
                let conflicts: Vec<_> = local.rival.map(conflict).into_iter().collect();
                // It has one field, which is as its input says.
                if local.input.is_none() && left.iter().any(|left| left.assigned == entry.input) {
                    local.mark = Some(Arc::clone(mark));
                    let observed = self.put(&entry.key, local);
                    return OpResult::Apply(Ok(Applied { observed, conflicts: Vec::new() }));
                }
                if local.input != Some(entry.input) || local.taken || local.apart || local.mark.as_deref() != Some(mark)
                {
                    local.generation += i64::from(local.input != Some(entry.input));
                    local.input = Some(entry.input);
                    local.taken = false;
                    local.apart = false;
                    local.mark = Some(Arc::clone(mark));
                    self.put(&entry.key, local.clone());
                    local.version = self.versions;
                }
                OpResult::Apply(Ok(Applied { observed: Box::new(local.observed(&entry.key)), conflicts }))
            }
            Op::TransferOwnership { entry, .. } if self.keeps_marks.contains(&entry.key) => {
                OpResult::TransferOwnership(Ok(OwnershipTransferred::Marked(
                    self.put(&entry.key, self.objects[&entry.key].clone()),
                )))
            }
            Op::ReTarget { key, .. } if self.keeps_marks.contains(key) => {
                OpResult::ReTarget(Ok(self.put(key, self.objects[key].clone())))
            }
            Op::TransferOwnership { entry, mark, uid } => {
                OpResult::TransferOwnership(match self.objects.get(&entry.key) {
                    Some(local) if local.uid != *uid => Err(NotDone::Stale),
                    Some(local) if local.mark.as_ref() != Some(mark) => {
                        let local = Local { mark: Some(Arc::clone(mark)), apart: true, ..local.clone() };
                        Ok(OwnershipTransferred::Marked(self.put(&entry.key, local)))
                    }
                    Some(local) => Ok(OwnershipTransferred::Marked(Box::new(local.observed(&entry.key)))),
                    None => Err(NotDone::Stale),
                })
            }
            Op::ReTarget { key, .. } | Op::Orphan { key, .. } | Op::Delete { key, .. }
                if self.unwritable.contains(key) =>
            {
                op.failed(Failure::new(Reason::Forbidden, "no"))
            }
            Op::ReTarget { key, seen, mark, .. } => OpResult::ReTarget(match self.objects.get(key) {
                Some(local) if local.uid == seen.uid && local.mark.as_ref() == Some(&seen.mark) => {
                    let local = Local { mark: Some(Arc::clone(mark)), apart: true, ..local.clone() };
                    Ok(self.put(key, local))
                }
                Some(_) | None => Err(NotDone::Stale),
            }),
            Op::Delete { key, uid, .. } => OpResult::Delete(match self.objects.get(key) {
                None => Ok(Deleted::Gone),
                Some(local) if local.uid != *uid => Err(NotDone::Stale),
                Some(local) if !local.deleting && (local.version % 5 == 0 || self.finalizers.contains(key)) => {
                    let local = Local { deleting: true, ..local.clone() };
                    self.put(key, local);
                    Ok(Deleted::Finalizing)
                }
                Some(_) => {
                    self.delete(key);
                    Ok(Deleted::Gone)
                }
            }),
            Op::Orphan { key, uid, .. } => OpResult::Orphan(match self.objects.get(key) {
                None => Ok(Orphaned::Gone),
                Some(local) if local.uid != *uid => Err(NotDone::Stale),
                Some(local) => {
                    let local = Local { mark: None, ..local.clone() };
                    self.put(key, local);
                    Ok(Orphaned::LetGo)
                }
            }),
            Op::Inspect { key, .. } => {
                let inside = || self.objects.iter().filter(|(inner, _)| inner.namespace == key.name);
                let ours = inside().filter(|(_, local)| local.ours).count() as u64;
                let foreign = inside().count() as u64 - ours;
                OpResult::Inspect(Ok(Inspected::Holds { foreign, example: None, ours }))
            }
            Op::Compare { entry, uid, .. } => match self.objects.get(&entry.key) {
                Some(local) if local.uid == *uid => {
                    let total = usize::from(local.input != Some(entry.input) || local.mark.is_none());
                    let values = Values::Are { assigned: "1".to_owned(), found: "2".to_owned() };
                    let differences = vec![Difference { field: "/data/a".to_owned(), values }; total];
                    let fields = LocalField { field: "/data/a".into(), assigned: entry.input };
                    let fields = vec![fields; usize::from(local.input != Some(entry.input))].into();
                    let observed = Box::new(local.observed(&entry.key));
                    self.looks += 1;
                    let at = format!("look {}", self.looks).into();
                    OpResult::Compare(Ok(Compared { observed, differences, total, local: fields, at }))
                }
                Some(_) | None => OpResult::Compare(Err(NotDone::Stale)),
            },
            Op::Get { key, .. } if self.unreadable.contains(key) => {
                self.refused_reads += 1;
                op.failed(Failure::new(Reason::Forbidden, "no"))
            }
            Op::Get { key, .. } => {
                self.reads += 1;
                OpResult::Get(Ok(self.objects.get(key).map(|local| Box::new(local.observed(key)))))
            }
        }
    }

    /// Everything of a kind that carries our label, in pages of two; or why not.
    pub(in crate::core) fn list_metadata(&self, id: ListId, kind: &GroupKind) -> Vec<Event> {
        if self.unlistable.contains(kind) {
            let failure = ListFailure { reason: Reason::Forbidden, message: "no".to_owned() };
            return vec![Event::ListEnded { list: id, result: Err(failure) }];
        }
        let labelled = self.objects.iter().filter(|(key, local)| key.kind == *kind && local.mark.is_some());
        let items: Vec<_> = labelled.map(|(key, local)| ListedItem::from(local.observed(key))).collect();
        let pages = items.chunks(2).map(|page| Event::ListPage { list: id, objects: page.to_vec() });
        pages.chain([Event::ListEnded { list: id, result: Ok(()) }]).collect()
    }

    /// What was slow has become ready.
    pub(in crate::core) fn become_ready(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).cloned() {
            self.put(key, Local { health: Health::Ready, ..local });
        }
    }

    /// An object with our own mark, of a source that is not assigned.
    pub(in crate::core) fn plant(&mut self, key: &ObjectKey, like: &ObjectKey) {
        self.plant_of(key, like, "s99");
    }

    pub(in crate::core) fn plant_of(&mut self, key: &ObjectKey, like: &ObjectKey, source: &str) {
        let mut mark = (**self.objects[like].mark.as_ref().unwrap()).clone();
        mark.local = key.clone();
        mark.source.uid = uid(source);
        let local = Local { mark: Some(Arc::new(mark)), ..self.make(None) };
        self.put(key, local);
    }

    /// What the agent made of this source before, and was deleted since.
    pub(in crate::core) fn restore_from_backup(&mut self, key: &ObjectKey, like: &ObjectKey, source: &str) {
        self.plant_of(key, like, source);
        let local = self.objects.get_mut(key).expect("it was planted");
        local.ours = true;
    }

    /// What another target has in this place, restored here.
    pub(in crate::core) fn carry(&mut self, key: &ObjectKey, like: &ObjectKey) {
        let mut mark = (**self.objects[like].mark.as_ref().unwrap()).clone();
        mark.local = key.clone();
        mark.target = TargetId::from_uuid(Uuid::from_u128(99));
        let local = Local { mark: Some(Arc::new(mark)), ..self.make(None) };
        self.put(key, local);
    }

    /// Another hub's agent takes the object over: it is the same, under that one's mark and label.
    pub(in crate::core) fn seize(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).cloned() {
            let mut mark = (**local.mark.as_ref().unwrap()).clone();
            mark.hub = HubId::from_uuid(Uuid::from_u128(98));
            mark.target = TargetId::from_uuid(Uuid::from_u128(99));
            self.put(key, Local { mark: Some(Arc::new(mark)), ..local });
        }
    }

    pub(in crate::core) fn delete(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.remove(key)
            && local.is_labelled()
        {
            self.tell(&key.kind.clone(), Event::Vanished { key: key.clone(), uid: local.uid });
        }
    }

    /// The controllers whose finalizers hold objects let go of them.
    pub(in crate::core) fn finalize(&mut self) {
        let held = |key: &ObjectKey| self.finalizers.contains(key);
        let deleting = self.objects.iter().filter(|(key, local)| local.deleting && !held(key));
        for key in deleting.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.delete(&key);
        }
    }

    pub(in crate::core) fn strip(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).cloned() {
            self.put(key, Local { mark: None, ..local });
        }
    }

    /// Counts the writes so far, by whomever.
    pub(in crate::core) fn versions(&self) -> u64 {
        self.versions
    }

    /// Somebody changes a field of ours.
    pub(in crate::core) fn edit(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).cloned() {
            self.put(key, Local { input: None, taken: true, generation: local.generation + 1, ..local });
        }
    }

    /// Who changed a field of ours changes it again, to what it was.
    pub(in crate::core) fn put_back(&mut self, key: &ObjectKey, input: Digest) {
        if let Some(local) = self.objects.get(key).cloned() {
            self.put(key, Local { input: Some(input), generation: local.generation + 1, ..local });
        }
    }

    /// Somebody applies a field of ours, or lets go of it.
    pub(in crate::core) fn contest(&mut self, key: &ObjectKey, rival: Option<u8>) {
        if let Some(local) = self.objects.get(key).cloned() {
            self.put(key, Local { rival, ..local });
        }
    }

    pub(in crate::core) fn set_status(&mut self, key: &ObjectKey, status: u64) {
        if let Some(local) = self.objects.get(key).cloned() {
            self.put(key, Local { status, ..local });
        }
    }

    /// Somebody takes the mark off and leaves the label.
    pub(in crate::core) fn unmark(&mut self, key: &ObjectKey) {
        let Some(local) = self.objects.get_mut(key) else { return };
        local.mark = None;
        self.versions += 1;
        local.version = self.versions;
        let observed = Observed { labelled: true, ..local.observed(key) };
        self.tell(&key.kind, Event::Observed(Box::new(observed)));
    }

    /// Somebody else's object, managed by other means.
    pub(in crate::core) fn intrude(&mut self, key: &ObjectKey) {
        if !self.objects.contains_key(key) {
            let local = self.make(None);
            self.put(key, local);
        }
    }

    fn make(&mut self, input: Option<Digest>) -> Local {
        self.versions += 1;
        Local {
            uid: Uid::from_uuid(Uuid::from_u128(self.versions.into())),
            version: 0,
            generation: 1,
            input,
            taken: false,
            apart: false,
            mark: None,
            ours: false,
            deleting: false,
            status: 0,
            health: Health::Ready,
            rival: None,
        }
    }

    fn put(&mut self, key: &ObjectKey, mut local: Local) -> Box<Observed> {
        self.versions += 1;
        local.version = self.versions;
        let observed = local.observed(key);
        let labelled = local.is_labelled();
        let uid = local.uid.clone();
        let former = self.objects.insert(key.clone(), local);
        if labelled {
            self.tell(&key.kind, Event::Observed(Box::new(observed.clone())));
        } else if former.is_some_and(|former| former.is_labelled()) {
            self.tell(&key.kind, Event::Vanished { key: key.clone(), uid });
        }
        Box::new(observed)
    }

    fn tell(&mut self, kind: &GroupKind, event: Event) {
        if self.watched.contains_key(kind) && !self.deaf {
            self.feed.push_back(event);
        }
    }
}

impl Local {
    pub(in crate::core) fn status_text(&self) -> String {
        format!("{{\"n\":{}}}", self.status)
    }

    /// As if nobody had changed it.
    pub(in crate::core) fn restore(&mut self, input: Option<Digest>) {
        self.input = input;
        self.taken = false;
        self.generation = 1;
    }

    /// The label names the target that the mark does.
    fn is_labelled(&self) -> bool {
        let ours = [target_id(), heir(0), heir(1)];
        self.mark.as_ref().is_some_and(|mark| ours.contains(&mark.target))
    }

    fn observed(&self, key: &ObjectKey) -> Observed {
        let has_generation = &*key.kind.kind == "Deployment";
        Observed {
            key: key.clone(),
            uid: self.uid.clone(),
            resource_version: self.version.to_string().into(),
            generation: if has_generation { self.generation } else { 0 },
            managed: match self.input {
                Some(input) if !self.taken && self.apart => Some(Digest::of(&[input.as_bytes(), &[1][..]].concat())),
                Some(input) if !self.taken => Some(Digest::of(input.as_bytes())),
                Some(_) | None => self.ours.then(|| Digest::of(b"edited")),
            },
            mark: self.mark.clone(),
            labelled: self.is_labelled(),
            deleting: self.deleting,
            health: self.health,
            health_message: if self.health == Health::Ready { String::new() } else { "it starts".to_owned() },
            observed_generation: has_generation.then_some(self.generation),
            terminal: None,
            template: None,
            status: Some(Arc::from(RawValue::from_string(self.status_text()).unwrap())),
            managed_elsewhere: !self.ours,
            others: self.rival.map(|rival| Digest::of(&[rival])),
        }
    }
}
