use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tideline_common::{ApplyPolicy, Monotonic, ObjectKey, SpaceName, Uid};

use super::choice::Choice;
use super::counted::Counted;
use super::inventory::{News, Reach, set};
use super::listing::Listing;
use super::object::{Object, State};
use super::problems::Problems;
use super::rule::{Candidate, PlacementRule, SpaceRule};
use super::types::Types;
use super::{Assignment, Change, GroupResource, PlacementId, SourceId};
use crate::clean::{Content, Destination, Labels, Refusal, Source};

/// Rules that were superseded before a space was read to the end once: edits of the first seconds of a run. With more, the
/// oldest are not looked at.
const UNREAD_RULES_MAX: usize = 1_000;
/// Policies of one Placement that its objects share: one for each of its clauses, and for each set of clauses that select an
/// object together. With more, some objects have a copy of their own.
const POLICIES_MAX: usize = 16;

/// One space: its objects, its Placements, and which of those select which of these.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) name: SpaceName,
    /// None until the hub's operator says what the space may do: until then nothing in it is resolved.
    pub(super) rule: Option<Arc<SpaceRule>>,
    pub(super) reach: Reach,
    pub(super) allowed: RoaringBitmap,
    pub(super) placements: BTreeMap<Arc<str>, Placing>,
    pub(super) placement_list: Listing<Arc<str>>,
    /// What Placements with `numberOfTargets` chose, by name. A choice outlives its Placement for a while.
    pub(super) choices: BTreeMap<Arc<str>, Choice>,
    /// What an older hub knew by UID, until the Placement of that is known.
    pub(super) former_choices: BTreeMap<Uid, RoaringBitmap>,
    pub(super) objects: Vec<Option<Box<Object>>>,
    free: Vec<u32>,
    pub(super) by_key: HashMap<(GroupResource, ObjectKey), u32>,
    pub(super) namespaces: HashMap<Arc<str>, Namespace>,
    pub(super) listings: BTreeMap<GroupResource, Listing<u32>>,
    types: Types,
    /// Of the ledger, beside another source of the same key: left by a crash.
    strays: BTreeMap<SourceId, Assignment>,
    /// Assigned sources that are gone from the space.
    pub(super) leaving: BTreeMap<SourceId, Leaving>,
    /// Objects to resolve anew.
    pub(super) dirty: RoaringBitmap,
    /// Of those, what a drain has taken up and not come to yet.
    pub(super) unresolved: RoaringBitmap,
    /// Those of them by whose policies has not been noted yet how they are kept.
    pub(super) unsaid: RoaringBitmap,
    /// Whether it was read to the end in this run, and what is wanted of its objects is noted as it changes.
    pub(super) is_resolved: bool,
    /// Rules of Placements that were deleted or changed before everything was resolved by them.
    pub(super) unread: VecDeque<Arc<PlacementRule>>,
    /// Whether rules changed since it was last worked out which targets they reach.
    pub(super) reaches_otherwise: bool,
    /// Namespaces whose labels were never readable: nobody knows what selects what is in them, and so all of it stays.
    pub(super) unlabelled: BTreeSet<Arc<str>>,
    /// Of those of which nothing else is known.
    unknown_namespaces: Listing<Arc<str>>,
    /// Placements that are there and of which not even the UID is known.
    pub(super) unknown_placements: BTreeSet<Arc<str>>,
    /// Objects that ask for Locations by annotation.
    pub(super) direct: RoaringBitmap,
    pub(super) news: News,
    /// Changes that need no resolving.
    pub(super) ready_changes: Vec<Change>,
}

/// A Placement with what it selects.
#[derive(Debug)]
pub(super) struct Placing {
    pub(super) uid: Uid,
    /// Of its spec, as it was last told.
    pub(super) generation: i64,
    /// The last that could be read.
    pub(super) rule: Option<Arc<PlacementRule>>,
    /// Those that its rule gave last, each once for all of the objects that have it.
    policies: Vec<Arc<ApplyPolicy>>,
    pub(super) problem: Option<String>,
    pub(super) reach: Reach,
    pub(super) targets: RoaringBitmap,
    pub(super) objects: RoaringBitmap,
    /// What each clause of its rule selects of them.
    pub(super) by_clause: Vec<RoaringBitmap>,
    /// As of when its objects were last resolved.
    pub(super) problems: Problems,
}

impl Placing {
    /// Of how many targets it takes its pick; none for all of them, or where that cannot be read.
    pub(super) fn number_of_targets(&self) -> Option<u32> {
        self.rule.as_ref()?.number_of_targets
    }

    fn unselect(&mut self, index: u32) {
        self.objects.remove(index);
        self.problems.remove(index);
        for selected in &mut self.by_clause {
            selected.remove(index);
        }
    }

    fn shared(&mut self, policy: ApplyPolicy) -> Arc<ApplyPolicy> {
        if let Some(known) = self.policies.iter().find(|known| ***known == policy) {
            return known.clone();
        }
        if self.policies.len() == POLICIES_MAX {
            self.policies.remove(0);
        }
        let policy = Arc::new(policy);
        self.policies.push(policy.clone());
        policy
    }
}

/// A source that is gone, and as the ledger still has it.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) assignment: Assignment,
    /// None until the next drain, which knows the time.
    until: Option<Monotonic>,
    /// Whether it was resolved in this run: if not, it may have been otherwise when it went.
    pub(super) heard: bool,
}

#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// None while the namespace itself is not known.
    pub(super) labels: Option<Arc<Labels>>,
    pub(super) object: Option<u32>,
    /// Objects in it.
    pub(super) members: RoaringBitmap,
    /// Targets that hold any of them, by what it is called there, each as often as it holds one.
    pub(super) implied: BTreeMap<Destination, Counted>,
}

impl Space {
    pub(super) fn new(name: SpaceName) -> Self {
        Self {
            name,
            rule: None,
            reach: Reach::default(),
            allowed: RoaringBitmap::new(),
            placements: BTreeMap::new(),
            placement_list: Listing::default(),
            choices: BTreeMap::new(),
            former_choices: BTreeMap::new(),
            objects: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            namespaces: HashMap::new(),
            listings: BTreeMap::new(),
            types: Types::default(),
            strays: BTreeMap::new(),
            leaving: BTreeMap::new(),
            dirty: RoaringBitmap::new(),
            unresolved: RoaringBitmap::new(),
            unsaid: RoaringBitmap::new(),
            is_resolved: false,
            unread: VecDeque::new(),
            reaches_otherwise: false,
            unlabelled: BTreeSet::new(),
            unknown_namespaces: Listing::default(),
            unknown_placements: BTreeSet::new(),
            direct: RoaringBitmap::new(),
            news: News::default(),
            ready_changes: Vec::new(),
        }
    }

    /// Whether everything that decides about its objects was read once. Before, nothing is resolved.
    pub(super) fn is_known(&self) -> bool {
        self.rule.is_some()
            && self.placement_list.complete()
            && self.listings.get(&namespaces()).is_some_and(Listing::complete)
    }

    /// Whether a Placement was never readable: nothing may be taken from any target then.
    pub(super) fn is_unreadable(&self) -> bool {
        let never_readable = || self.placements.values().any(|placing| placing.rule.is_none());
        self.placement_list.is_in_part() || !self.unknown_placements.is_empty() || never_readable()
    }

    /// Whether the labels of a namespace were never readable, its key included.
    pub(super) fn is_unlabelled(&self, name: &Arc<str>) -> bool {
        let is_labelled = || self.namespaces.get(name).is_some_and(|known| known.labels.is_some());
        let some_are_nameless = || self.listings.get(&namespaces()).is_some_and(Listing::is_in_part);
        self.unlabelled.contains(name) || !name.is_empty() && some_are_nameless() && !is_labelled()
    }

    pub(super) fn selecting(&self, source: &SourceId, place: &ObjectKey) -> impl Iterator<Item = &Arc<str>> {
        let index = self.by_key.get(&(source.resource.clone(), place.clone()));
        let same = index.and_then(|index| self.object(*index)).filter(|object| object.id == *source);
        same.into_iter().flat_map(|object| object.matches.names())
    }

    pub(super) fn object(&self, index: u32) -> Option<&Object> {
        self.objects.get(index as usize)?.as_deref()
    }

    pub(super) fn object_mut(&mut self, index: u32) -> Option<&mut Object> {
        self.objects.get_mut(index as usize)?.as_deref_mut()
    }

    pub(super) fn all_dirty(&mut self) {
        let all = self.by_key.values().copied().collect();
        self.mark(&all);
    }

    /// What is wanted of these objects may be otherwise.
    pub(super) fn mark(&mut self, objects: &RoaringBitmap) {
        self.dirty |= objects;
        self.unsaid |= objects;
    }

    /// Takes over what the ledger has of this space.
    pub(super) fn restore(&mut self, assignment: Assignment) {
        let place = (assignment.id.resource.clone(), assignment.key.clone());
        if self.by_key.contains_key(&place) {
            self.strays.insert(assignment.id.clone(), assignment);
            return;
        }
        self.insert(place, Object::restored(assignment));
    }

    pub(super) fn apply(&mut self, resource: &GroupResource, mut source: Source) {
        let resource = &self.types.share(resource, &mut source);
        if let Some((same, _)) = self.namespaces.get_key_value(&source.key.namespace) {
            source.key.namespace = same.clone();
        }
        let place = (resource.clone(), source.key.clone());
        if let Some(&index) = self.by_key.get(&place)
            && self.object(index).is_some_and(|object| object.id.uid != source.uid)
        {
            self.remove(index);
        }
        let index = if let Some(&index) = self.by_key.get(&place) {
            index
        } else {
            let id = SourceId { space: self.name.clone(), resource: resource.clone(), uid: source.uid.clone() };
            let back = self.leaving.remove(&id).map(|leaving| leaving.assignment);
            let emitted = back.or_else(|| self.strays.remove(&id));
            self.insert(place, Object::new(id, source.key.clone(), emitted))
        };
        self.listings.entry(resource.clone()).or_default().saw(index);
        let Source { key: _, uid: _, labels, content } = source;
        self.take(index, labels, content);
    }

    /// A source and its place, and what version its resource was last seen in, in the words that are kept anyway.
    pub(super) fn known_as(&self, source: &SourceId, place: &ObjectKey) -> Option<(&SourceId, &ObjectKey, &Arc<str>)> {
        let index = self.by_key.get(&(source.resource.clone(), place.clone()))?;
        let object = self.object(*index).filter(|object| object.id == *source)?;
        Some((&object.id, &object.key, self.types.version(&source.resource)?))
    }

    /// An object is there, and nothing of it can be read but where it is: what is known of it stands.
    pub(super) fn unreadable(&mut self, resource: &GroupResource, key: &ObjectKey, refusal: Refusal) {
        if let Some(&index) = self.by_key.get(&(resource.clone(), key.clone())) {
            self.listings.entry(resource.clone()).or_default().saw(index);
            self.take(index, None, Content::Unreadable(refusal));
        } else if key.kind.is("", "Namespace") {
            self.unknown_namespaces.saw(key.name.clone());
            self.unlabelled.insert(key.name.clone());
        }
    }

    fn take(&mut self, index: u32, labels: Option<Arc<Labels>>, content: Content) {
        let Some(object) = self.object_mut(index) else { return };
        object.take(labels.clone(), content);
        let namespace = object.key.kind.is("", "Namespace").then(|| object.key.name.clone());
        if object.asks_for_locations() {
            self.direct.insert(index);
        } else {
            self.direct.remove(index);
        }
        self.dirty.insert(index);
        self.unsaid.insert(index);
        self.match_object(index);
        if let Some(name) = namespace {
            self.apply_namespace(&name, labels, index);
        }
    }

    pub(super) fn delete(&mut self, resource: &GroupResource, key: &ObjectKey) {
        if let Some(&index) = self.by_key.get(&(resource.clone(), key.clone())) {
            self.remove(index);
        } else if key.kind.is("", "Namespace") && self.unlabelled.contains(&key.name) {
            self.label_namespace(&key.name, None);
        }
    }

    pub(super) fn source_at(&self, resource: &GroupResource, key: &ObjectKey) -> Option<&SourceId> {
        let index = self.by_key.get(&(resource.clone(), key.clone()))?;
        self.object(*index).map(|object| &object.id)
    }

    pub(super) fn reset(&mut self, resource: &GroupResource) {
        self.listings.entry(resource.clone()).or_default().reset();
        if resource.is("", "namespaces") {
            self.unknown_namespaces.reset();
        }
    }

    pub(super) fn listed(&mut self, resource: &GroupResource) {
        let known: Vec<u32> =
            self.by_key.iter().filter(|((of, _), _)| of == resource).map(|(_, index)| *index).collect();
        let listing = self.listings.entry(resource.clone()).or_default();
        let was_in_part = listing.is_in_part();
        for index in listing.finish(known) {
            self.remove(index);
        }
        let strays: Vec<_> = self.strays.keys().filter(|id| id.resource == *resource).cloned().collect();
        for id in strays {
            self.strays.remove(&id);
            self.ready_changes.push(Change::Remove(id));
        }
        if resource.is("", "namespaces") {
            if was_in_part {
                self.all_dirty();
            }
            let has_object = |name: &Arc<str>| self.namespaces.get(name).is_some_and(|known| known.object.is_some());
            let unknown: Vec<_> = self.unlabelled.iter().filter(|name| !has_object(name)).cloned().collect();
            for name in self.unknown_namespaces.finish(unknown) {
                self.label_namespace(&name, None);
            }
        }
    }

    fn insert(&mut self, place: (GroupResource, ObjectKey), object: Object) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.objects.push(None);
            u32::try_from(self.objects.len() - 1).expect("memory ends before four billion objects")
        });
        if object.key.is_namespaced() {
            let name = object.key.namespace.clone();
            let namespace = self.namespaces.entry(name.clone()).or_default();
            namespace.members.insert(index);
            self.holders_changed(&name, &BTreeMap::new(), &object.emitted_by_destination());
        }
        self.objects[index as usize] = Some(Box::new(object));
        self.by_key.insert(place, index);
        index
    }

    /// The object is gone from the space.
    fn remove(&mut self, index: u32) {
        let Some(object) = self.objects.get_mut(index as usize).and_then(Option::take).map(|object| *object) else {
            return;
        };
        for name in object.matches.names() {
            if let Some(placing) = self.placements.get_mut(name) {
                placing.unselect(index);
            }
        }
        self.by_key.remove(&(object.id.resource.clone(), object.key.clone()));
        self.dirty.remove(index);
        self.unsaid.remove(index);
        self.direct.remove(index);
        if object.key.kind.is("", "Namespace") {
            self.namespaces.entry(object.key.name.clone()).or_default().object = None;
            self.label_namespace(&object.key.name, None);
        }
        if let Some(namespace) = self.namespaces.get_mut(&object.key.namespace) {
            namespace.members.remove(index);
        }
        self.holders_changed(&object.key.namespace, &object.emitted_by_destination(), &BTreeMap::new());
        if let Some(assignment) = object.emitted {
            if object.restated {
                self.ready_changes.push(Change::Assign(Box::new(assignment.clone())));
            }
            self.leaving.insert(object.id, Leaving { assignment, until: None, heard: object.heard });
        }
        self.free.push(index);
    }

    /// The removals of sources that are gone and whose time is over, or whose key another source has taken. While one has
    /// the key that is not `resolved` yet, the removal waits for what that one is assigned to. Notes new deadlines.
    pub(super) fn leave(
        &mut self,
        now: Monotonic,
        grace: Duration,
        resolved: bool,
        mut deadline: impl FnMut(Monotonic),
    ) -> Vec<Change> {
        let mut leaving = std::mem::take(&mut self.leaving);
        let gone = leaving.extract_if(.., |id, leaving| {
            let until = *leaving.until.get_or_insert_with(|| {
                deadline(now + grace);
                now + grace
            });
            let successor = self.by_key.get(&(id.resource.clone(), leaving.assignment.key.clone()));
            match successor.and_then(|index| self.object(*index)) {
                Some(successor) if successor.emitted.is_some() => true,
                // Nobody knows what it would be assigned to.
                Some(successor) if matches!(successor.state, State::Unreadable(_)) => false,
                Some(_) => resolved && until <= now,
                // Nothing goes by a policy that may have been changed while nobody looked.
                None => (resolved || leaving.heard) && until <= now,
            }
        });
        let changes = gone.map(|(id, _)| Change::Remove(id)).collect();
        self.leaving = leaving;
        changes
    }

    /// Assignments that end when the sources that are gone have been waited for.
    pub(super) fn leaving(&self) -> u64 {
        let variants = self.leaving.values().flat_map(|leaving| &leaving.assignment.variants);
        variants.filter(|variant| variant.asks()).map(|variant| variant.targets.len()).sum()
    }

    /// Without `labels`, which cannot be read then, the last good ones stand.
    fn apply_namespace(&mut self, name: &Arc<str>, labels: Option<Arc<Labels>>, object: u32) {
        let namespace = self.namespaces.entry(name.clone()).or_default();
        namespace.object = Some(object);
        if labels.is_some() {
            self.label_namespace(name, labels);
        } else if namespace.labels.is_none() {
            self.unlabelled.insert(name.clone());
        }
    }

    /// Without `labels`, the namespace itself is not known any more.
    fn label_namespace(&mut self, name: &Arc<str>, labels: Option<Arc<Labels>>) {
        let thawed = self.unlabelled.remove(name);
        let namespace = self.namespaces.entry(name.clone()).or_default();
        if namespace.labels != labels {
            namespace.labels = labels;
            for index in namespace.members.clone() {
                self.match_object(index);
            }
        }
        if thawed && let Some(members) = self.namespaces.get(name).map(|namespace| namespace.members.clone()) {
            self.mark(&members);
        }
    }

    /// Of an object in a namespace: the targets that hold it are others now. Whoever holds anything there has the namespace.
    pub(super) fn holders_changed(
        &mut self,
        namespace: &Arc<str>,
        before: &BTreeMap<Destination, RoaringBitmap>,
        after: &BTreeMap<Destination, RoaringBitmap>,
    ) {
        let Some(namespace) = self.namespaces.get_mut(namespace) else { return };
        let nothing = RoaringBitmap::new();
        let mut changed = false;
        for (at, after) in after {
            let more = after - before.get(at).unwrap_or(&nothing);
            if !more.is_empty() {
                changed |= namespace.implied.entry(at.clone()).or_default().add(&more);
            }
        }
        for (at, before) in before {
            let fewer = before - after.get(at).unwrap_or(&nothing);
            let counted = namespace.implied.get_mut(at).filter(|_| !fewer.is_empty());
            changed |= counted.is_some_and(|counted| counted.subtract(&fewer));
        }
        if changed {
            namespace.implied.retain(|_, counted| !counted.is_empty());
            self.dirty.extend(namespace.object);
        }
    }

    /// Works out again which Placements select an object.
    fn match_object(&mut self, index: u32) {
        let names: Vec<_> = self.placements.keys().cloned().collect();
        for name in names {
            self.match_one(&name, index);
        }
    }

    fn match_one(&mut self, name: &Arc<str>, index: u32) {
        let Some(placing) = self.placements.get_mut(name) else { return };
        let Some(object) = self.objects.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let namespace = self.namespaces.get(&object.key.namespace);
        let policy = match (&placing.rule, &object.state) {
            (Some(rule), State::Readable { .. } | State::Unreadable(_)) => {
                let candidate = Candidate {
                    resource: &object.id.resource,
                    key: &object.key,
                    labels: &object.labels,
                    namespace_labels: namespace.and_then(|namespace| namespace.labels.as_deref()),
                };
                let clauses = rule.objects.iter().zip(&mut placing.by_clause);
                let selecting = clauses.filter_map(|(clause, selected)| {
                    let selects = clause.selects(candidate);
                    set(selected, index, selects);
                    selects.then_some(clause)
                });
                rule.merged(selecting, || format!("{}/{name}", self.name))
            }
            (None, _) | (Some(_), State::Restored | State::NeverPlaced) => None,
        };
        if object.matches.get(name).map(|known| &**known) == policy.as_ref() {
            return;
        }
        if let Some(policy) = policy {
            object.matches.insert(name.clone(), placing.shared(policy));
            placing.objects.insert(index);
        } else {
            object.matches.remove(name);
            placing.unselect(index);
        }
        self.dirty.insert(index);
        self.unsaid.insert(index);
    }

    pub(super) fn apply_placement(&mut self, name: &str, uid: Uid, rule: Result<PlacementRule, String>) {
        let name: Arc<str> = name.into();
        self.placement_list.saw(name.clone());
        self.take_over_choice(&name, &uid);
        if self.placements.get(&name).is_some_and(|known| known.uid != uid) {
            self.delete_placement(&name);
        }
        let unreadable = self.is_unreadable();
        let was_unknown = self.unknown_placements.remove(&name);
        let placing = self.placements.entry(name.clone()).or_insert_with(|| Placing {
            uid,
            generation: 0,
            rule: None,
            policies: Vec::new(),
            problem: None,
            reach: Reach::default(),
            targets: RoaringBitmap::new(),
            objects: RoaringBitmap::new(),
            by_clause: Vec::new(),
            problems: Problems::default(),
        });
        match rule {
            Err(problem) => placing.problem = Some(problem),
            Ok(rule) => {
                placing.problem = None;
                if placing.rule.as_deref() == Some(&rule) {
                    return;
                }
                let mapped_otherwise = placing.rule.as_ref().is_some_and(|known| known.mapping != rule.mapping);
                placing.by_clause = vec![RoaringBitmap::new(); rule.objects.len()];
                let former = placing.rule.replace(Arc::new(rule));
                placing.policies.clear();
                placing.reach.forget();
                self.reaches_otherwise = true;
                if mapped_otherwise {
                    self.dirty |= &placing.objects;
                    self.unsaid |= &placing.objects;
                }
                let objects: Vec<_> = self.by_key.values().copied().collect();
                for index in objects {
                    self.match_one(&name, index);
                }
                self.superseded(former);
            }
        }
        if was_unknown {
            self.forget_former_choices();
        }
        if unreadable && !self.is_unreadable() {
            self.all_dirty();
        }
    }

    /// The Placement is there and cannot be read: its last good form stays in force, if it has one.
    pub(super) fn placement_unreadable(&mut self, name: &str, why: String) {
        let name: Arc<str> = name.into();
        self.placement_list.saw(name.clone());
        match self.placements.get_mut(&name) {
            Some(placing) => placing.problem = Some(why),
            None => {
                self.unknown_placements.insert(name);
            }
        }
    }

    pub(super) fn delete_placement(&mut self, name: &str) {
        let unreadable = self.is_unreadable();
        if self.unknown_placements.remove(name) {
            self.forget_former_choices();
        }
        if let Some(placing) = self.placements.remove(name) {
            for index in &placing.objects {
                if let Some(object) = self.object_mut(index) {
                    object.matches.remove(name);
                }
            }
            self.mark(&placing.objects);
            self.superseded(placing.rule);
        }
        if unreadable && !self.is_unreadable() {
            self.all_dirty();
        }
    }

    /// Whether what is wanted of any object may be otherwise than was noted, and not only for who is selected.
    pub(super) fn has_unsaid(&self) -> bool {
        self.reaches_otherwise || !self.is_resolved || !self.unsaid.is_empty()
    }

    /// What was wanted is noted from now on.
    pub(super) fn resolved(&mut self) {
        self.is_resolved = true;
        if !self.unread.is_empty() && !self.has_restored() {
            self.unread.clear();
        }
    }

    /// Whether there is anything of a kind that was not read to the end in this run: nothing matches it until then.
    fn has_restored(&self) -> bool {
        self.objects.iter().flatten().any(|object| matches!(object.state, State::Restored))
    }

    /// Nobody says any more what may be placed from here, and what is said meanwhile is not noted.
    pub(super) fn lose_rule(&mut self) {
        self.rule = None;
        self.is_resolved = false;
        for object in self.objects.iter_mut().flatten() {
            object.heard = object.emitted.is_none();
        }
    }

    /// A rule is no more. What it wanted is noted, unless there is what it could not be matched with yet.
    fn superseded(&mut self, rule: Option<Arc<PlacementRule>>) {
        if !self.is_resolved || self.has_restored() {
            self.unread.extend(rule);
            if self.unread.len() > UNREAD_RULES_MAX {
                self.unread.pop_front();
            }
        }
    }

    pub(super) fn placements_listed(&mut self) {
        let known: Vec<_> = self.placements.keys().chain(&self.unknown_placements).cloned().collect();
        if self.placement_list.is_in_part() {
            self.all_dirty();
        }
        for name in self.placement_list.finish(known) {
            self.delete_placement(&name);
        }
        self.forget_former_choices();
    }

    /// What an older hub knew by the UID of a Placement that is there no more; none of that while one is there that may be any.
    fn forget_former_choices(&mut self) {
        let may_be_there = !self.unknown_placements.is_empty() || self.placement_list.is_in_part();
        if may_be_there || !self.placement_list.complete() {
            return;
        }
        for uid in std::mem::take(&mut self.former_choices).into_keys() {
            self.forget_former_choice(uid);
        }
    }

    /// What an older hub knew by the UID of a Placement is known by its name from now on.
    fn take_over_choice(&mut self, name: &Arc<str>, uid: &Uid) {
        let Some(chosen) = self.former_choices.remove(uid) else { return };
        if !self.choices.contains_key(name) {
            self.put_choice(name, &RoaringBitmap::new(), Choice::new(chosen));
        }
        self.forget_former_choice(uid.clone());
    }

    fn forget_former_choice(&mut self, uid: Uid) {
        let placement = PlacementId::Former { space: self.name.clone(), uid };
        self.ready_changes.push(Change::Choose { placement, chosen: RoaringBitmap::new() });
    }

    /// `before` is what the ledger has of it.
    pub(super) fn put_choice(&mut self, name: &Arc<str>, before: &RoaringBitmap, choice: Choice) {
        let chosen = choice.targets().clone();
        if chosen.is_empty() {
            self.choices.remove(name);
        } else {
            self.choices.insert(name.clone(), choice);
        }
        if chosen != *before {
            let placement = PlacementId::Named { space: self.name.clone(), name: name.clone() };
            self.ready_changes.push(Change::Choose { placement, chosen });
        }
    }
}

fn namespaces() -> GroupResource {
    GroupResource::new("", "namespaces")
}
