use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::{ApplyPolicy, Impersonation, Monotonic, ObjectKey, SourceRef};

use super::form::{Form, Forms, PolicyOrder, labels_of, restate};
use super::matches::Matches;
use super::settling::{Deadlines, Settle, Settling};
use super::{Assignment, SourceId, Variant};
use crate::bitmap::fit;
use crate::clean::{
    Content, Destination, Input, Labels, NamespaceMapping, Outbound, Refusal, Source, default_wave,
    refers_to_namespaces, rendered,
};

/// One object of a space, with what was last said of it to the ledger.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: SourceId,
    pub(super) key: ObjectKey,
    pub(super) labels: Arc<Labels>,
    pub(super) state: State,
    /// The Placements that select it, and how each would have it kept.
    pub(super) matches: Matches,
    /// With the policies that are in force, which may be later ones than the ledger has.
    pub(super) emitted: Option<Assignment>,
    /// Whether the ledger has not been told of all policies in `emitted`.
    pub(super) restated: bool,
    /// Whether it was resolved in this run.
    pub(super) heard: bool,
    /// Targets that nothing selects any more, and until when they keep it nevertheless.
    settling: Deadlines,
}

#[derive(Debug)]
pub(super) enum State {
    /// The ledger has it; its space has not been heard of yet. Nothing about it is decided.
    Restored,
    NeverPlaced,
    /// With the last form that could be read, and why a later one cannot.
    Readable {
        outbound: Outbound,
        problem: Option<Refusal>,
    },
    /// There never was a form that could be read; what the ledger has stays.
    Unreadable(Refusal),
}

/// What is wanted of an object at this moment.
pub(super) struct Wanted<'a> {
    /// By Placements and annotation, over targets that are disjoint at each destination.
    pub(super) explicit: Forms,
    /// Of a namespace: what the targets have that hold anything in it.
    pub(super) implied: BTreeMap<Destination, Form>,
    pub(super) impersonate: Option<Arc<Impersonation>>,
    /// Targets that exist; what is assigned to any other is dropped at once.
    pub(super) existing: &'a RoaringBitmap,
    pub(super) schedulable: &'a RoaringBitmap,
    /// Targets of Placements that cannot say where it is to be: what these have of it stays.
    pub(super) held: RoaringBitmap,
}

impl Object {
    pub(super) fn new(id: SourceId, key: ObjectKey, emitted: Option<Assignment>) -> Self {
        Self {
            id,
            key,
            labels: Arc::default(),
            state: State::Restored,
            matches: Matches::default(),
            heard: emitted.is_none(),
            emitted,
            restated: false,
            settling: BTreeMap::new(),
        }
    }

    pub(super) fn restored(assignment: Assignment) -> Self {
        Self::new(assignment.id.clone(), assignment.key.clone(), Some(assignment))
    }

    /// Takes in the object's latest form.
    pub(super) fn take(&mut self, labels: Option<Arc<Labels>>, mut content: Content) {
        let labels = labels.unwrap_or_else(|| self.labels.clone());
        if let (Content::Outbound(outbound), Some(emitted)) = (&mut content, &self.emitted)
            && let Some(same) = emitted.variants.iter().find(|variant| variant.input == outbound.input)
        {
            // After a start the ledger has the text already.
            outbound.input = same.input.clone();
        }
        match (&mut self.state, content) {
            (State::Readable { outbound, problem }, Content::Outbound(new)) => {
                (*outbound, *problem) = (new, None);
                self.labels = labels;
            }
            // What was readable stands, labels included.
            (State::Readable { problem, .. }, Content::Unreadable(refusal)) => *problem = Some(refusal),
            (state, content) => {
                self.labels = labels;
                *state = match content {
                    Content::Outbound(outbound) => State::Readable { outbound, problem: None },
                    Content::NeverPlaced(_) => State::NeverPlaced,
                    Content::Unreadable(refusal) => {
                        // What was readable to an earlier run stands likewise.
                        if let Some(assignment) = &self.emitted {
                            self.labels = Arc::new(labels_of(assignment));
                        }
                        State::Unreadable(refusal)
                    }
                };
            }
        }
    }

    /// Whether this is all that is known of it, and readable.
    pub(super) fn is(&self, source: &Source) -> bool {
        let Source { key: _, uid, labels, content } = source;
        match (&self.state, content) {
            (State::Readable { outbound, problem: None }, Content::Outbound(new)) => {
                self.id.uid == *uid && outbound == new && labels.as_ref().is_none_or(|labels| *labels == self.labels)
            }
            (_, _) => false,
        }
    }

    pub(super) fn asks_for_locations(&self) -> bool {
        matches!(&self.state, State::Readable { outbound, .. } if !outbound.assigned_locations.is_empty())
    }

    /// Its last form that could be read.
    pub(super) fn outbound(&self) -> Option<&Outbound> {
        match &self.state {
            State::Readable { outbound, .. } => Some(outbound),
            State::Restored | State::NeverPlaced | State::Unreadable(_) => None,
        }
    }

    /// Whether it is known what is to become of it.
    pub(super) fn is_readable(&self) -> bool {
        matches!(&self.state, State::Readable { .. } | State::NeverPlaced)
    }

    /// Targets that it is assigned to as the ledger knows it.
    fn emitted_targets(&self) -> RoaringBitmap {
        self.emitted.as_ref().map(Assignment::targets).unwrap_or_default()
    }

    /// The same, by what its namespace is called there.
    pub(super) fn emitted_by_destination(&self) -> BTreeMap<Destination, RoaringBitmap> {
        self.emitted.as_ref().map(Assignment::targets_by_destination).unwrap_or_default()
    }

    /// Resolves the object to its assignment as it is to be from now on; without targets it is assigned nowhere. Returns the next
    /// moment at which that changes by itself.
    pub(super) fn resolve(
        &mut self,
        wanted: Wanted<'_>,
        settle: Settle,
        now: Monotonic,
    ) -> (Option<Assignment>, Option<Monotonic>) {
        match &self.state {
            State::Restored => return (self.emitted.clone(), None),
            State::Unreadable(_) => {
                self.restate(&wanted.explicit, PolicyOrder::Last);
                return (self.emitted.clone(), None);
            }
            State::Readable { .. } | State::NeverPlaced => {}
        }
        let Wanted { explicit, implied, impersonate, existing, schedulable, held } = wanted;
        let usable = schedulable | self.emitted_targets();
        let former = self.emitted.iter().flat_map(|assignment| &assignment.variants);
        let destinations: BTreeSet<Destination> =
            former.map(|variant| &variant.destination).chain(explicit.keys()).chain(implied.keys()).cloned().collect();
        let mut settling =
            Settling { before: std::mem::take(&mut self.settling), after: BTreeMap::new(), settle, now, held };
        let mut variants = Vec::new();
        for destination in destinations {
            let implied = implied.get(&destination);
            let mut forming = Forming { destination, existing, taken: RoaringBitmap::new(), variants };
            for form in explicit.get(&forming.destination).into_iter().flatten() {
                forming.add(false, &form.policy, form.input.clone(), &form.targets & &usable);
            }
            self.keep_former(false, None, &mut forming, &mut settling);
            if let Some(Form { policy, input, targets }) = implied {
                forming.add(true, policy, input.clone(), targets.clone());
            }
            self.keep_former(true, implied, &mut forming, &mut settling);
            variants = forming.variants;
        }
        self.settling = settling.after;
        let next = self.settling.values().flatten().map(|(deadline, _)| *deadline).min();
        (self.assignment(impersonate, variants), next)
    }

    /// Has targets keep what they have by these policies from now on. Where none is wanted, the former stands.
    pub(super) fn restate(&mut self, wants: &Forms, order: PolicyOrder) {
        let Some(emitted) = &mut self.emitted else { return };
        self.restated |= restate(&mut emitted.variants, wants, order);
    }

    /// Whether a target that has it would not have it by that assignment.
    pub(super) fn leaves_any(&self, by: Option<&Assignment>) -> bool {
        let after = by.map(Assignment::targets_by_destination).unwrap_or_default();
        let before = self.emitted_by_destination();
        before.iter().any(|(at, targets)| after.get(at).is_none_or(|after| !targets.is_subset(after)))
    }

    /// Keeps the forms that targets have and nothing wants any more, as long as they settle.
    fn keep_former(&self, implied: bool, form: Option<&Form>, forming: &mut Forming<'_>, settling: &mut Settling) {
        let former = self.emitted.iter().flat_map(|assignment| &assignment.variants);
        let of_these = |variant: &&Variant| variant.implied == implied && variant.destination == forming.destination;
        for variant in former.filter(of_these).collect::<Vec<_>>() {
            let leaving = (&variant.targets & forming.existing) - &forming.taken;
            let kept = settling.keep(&forming.destination, leaving);
            let input = match form {
                Some(form) => form.input.clone(),
                None if implied => variant.input.clone(),
                None => self.followed(variant),
            };
            forming.add(implied, &variant.policy, input, kept);
        }
    }

    /// What targets get for as long as they keep what nothing wants any more: the object's present form, unless it names
    /// namespaces, for nobody says any more what those are called there.
    fn followed(&self, variant: &Variant) -> Input {
        match &self.state {
            State::Readable { outbound, .. } if !refers_to_namespaces(&self.key.kind) => {
                rendered(&outbound.input, &self.key, &variant.destination, &NamespaceMapping::default())
            }
            State::Readable { .. } | State::Restored | State::NeverPlaced | State::Unreadable(_) => {
                variant.input.clone()
            }
        }
    }

    fn assignment(&self, impersonate: Option<Arc<Impersonation>>, mut variants: Vec<Variant>) -> Option<Assignment> {
        if variants.is_empty() {
            return None;
        }
        for variant in &mut variants {
            fit(&mut variant.targets);
        }
        variants.shrink_to_fit();
        variants.sort_by_cached_key(Variant::order);
        let (version, generation, wave) = match (&self.state, &self.emitted) {
            (State::Readable { outbound, .. }, _) => (outbound.version.clone(), outbound.generation, outbound.wave),
            (_, Some(former)) => (former.version.clone(), former.generation, former.wave),
            // A namespace that is never placed itself, and called otherwise at the targets.
            (_, None) => ("v1".into(), 0, default_wave(&self.key.kind)),
        };
        Some(Assignment {
            id: self.id.clone(),
            source: SourceRef {
                space: self.id.space.clone(),
                uid: self.id.uid.clone(),
                namespace: self.key.namespace.clone(),
                name: self.key.name.clone(),
            },
            key: self.key.clone(),
            version,
            generation,
            wave,
            impersonate,
            variants,
        })
    }
}

/// The forms of an object, as far as they are made, and what is taken at the destination that they are made for now.
struct Forming<'a> {
    destination: Destination,
    existing: &'a RoaringBitmap,
    taken: RoaringBitmap,
    variants: Vec<Variant>,
}

impl Forming<'_> {
    /// Gives a form to those targets that exist and have none yet.
    fn add(&mut self, implied: bool, policy: &Arc<ApplyPolicy>, input: Input, targets: RoaringBitmap) {
        let targets = (targets & self.existing) - &self.taken;
        if targets.is_empty() {
            return;
        }
        self.taken |= &targets;
        let destination = self.destination.clone();
        let made = Variant { destination, policy: policy.clone(), input, implied, targets };
        let same = |variant: &&mut Variant| {
            (variant.implied, &variant.destination, &variant.policy, &variant.input)
                == (made.implied, &made.destination, &made.policy, &made.input)
        };
        match self.variants.iter_mut().find(same) {
            Some(same) => same.targets |= made.targets,
            None => self.variants.push(made),
        }
    }
}
