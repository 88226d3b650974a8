use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tideline_common::{ApplyPolicy, Impersonation, Monotonic, ObjectKey, SourceRef};

use super::matches::Matches;
use super::wants::{Forms, labels_of};
use super::{Assignment, Destination, Input, NamespaceMapping, SourceId, Variant};
use crate::bitmap::fit;
use crate::clean::{Content, Labels, Outbound, Refusal, Source, default_wave, refers_to_namespaces, rendered};

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

type Deadlines = BTreeMap<Destination, Vec<(Monotonic, RoaringBitmap)>>;

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

/// One form of an object, and the targets that are to get it so.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) policy: Arc<ApplyPolicy>,
    pub(super) input: Input,
    pub(super) targets: RoaringBitmap,
}

/// When a policy that is wanted came, seen from one that was in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyOrder {
    /// It came later.
    Last,
    /// Nobody knows whether the former still was in force when the object was taken away: what destroys less stands.
    Unknown,
}

impl PolicyOrder {
    fn over(self, former: &Arc<ApplyPolicy>, wanted: &Arc<ApplyPolicy>) -> Arc<ApplyPolicy> {
        match self {
            Self::Last => wanted.clone(),
            Self::Unknown => Arc::new(ApplyPolicy {
                prune: former.prune.min(wanted.prune),
                prune_adopted: former.prune_adopted.min(wanted.prune_adopted),
                approve_deletions: former.approve_deletions.min(wanted.approve_deletions),
                ..(**former).clone()
            }),
        }
    }
}

/// Returns whether that changed anything.
pub(super) fn restate(variants: &mut Vec<Variant>, wants: &Forms, order: PolicyOrder) -> bool {
    let changes = |variant: &Variant| {
        let forms = wants.get(&variant.destination).into_iter().flatten();
        let otherwise = |form: &Form| order.over(&variant.policy, &form.policy) != variant.policy;
        !variant.implied && forms.filter(|form| !form.targets.is_disjoint(&variant.targets)).any(otherwise)
    };
    if !variants.iter().any(changes) {
        return false;
    }
    let mut after: Vec<Variant> = Vec::new();
    let mut put = |made: Variant| {
        let says = |of: &Variant| (of.implied, of.destination.clone(), of.policy.clone(), of.input.clone());
        match after.iter_mut().find(|known| says(known) == says(&made)) {
            Some(same) => same.targets |= made.targets,
            None if made.targets.is_empty() => {}
            None => after.push(made),
        }
    };
    for variant in std::mem::take(variants) {
        let mut rest = variant.targets.clone();
        for form in wants.get(&variant.destination).into_iter().flatten().filter(|_| !variant.implied) {
            let targets = &rest & &form.targets;
            rest -= &targets;
            put(Variant { policy: order.over(&variant.policy, &form.policy), targets, ..variant.clone() });
        }
        put(Variant { targets: rest, ..variant });
    }
    after.sort_by_cached_key(Variant::order);
    *variants = after;
    true
}

/// How removals wait that no deletion of the source caused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settle {
    /// Until something that cannot be read can be.
    Frozen,
    For(Duration),
}

impl Settle {
    pub(super) fn is_frozen(self) -> bool {
        matches!(self, Self::Frozen)
    }
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

/// Which of an object's removals wait.
struct Settling {
    before: Deadlines,
    after: Deadlines,
    settle: Settle,
    now: Monotonic,
    /// Targets that leave nothing.
    held: RoaringBitmap,
}

impl Settling {
    /// Of the targets that are being left, those that are not left yet.
    fn keep(&mut self, destination: &Destination, leaving: RoaringBitmap) -> RoaringBitmap {
        let Settle::For(time) = self.settle else { return leaving };
        let mut kept = &leaving & &self.held;
        let leaving = leaving - &kept;
        let mut fresh = leaving.clone();
        let mut after = Vec::new();
        for (deadline, targets) in self.before.get(destination).into_iter().flatten() {
            fresh -= targets;
            let waiting = targets & &leaving;
            if *deadline > self.now && !waiting.is_empty() {
                kept |= &waiting;
                after.push((*deadline, waiting));
            }
        }
        if !time.is_zero() && !fresh.is_empty() {
            kept |= &fresh;
            after.push((self.now + time, fresh));
        }
        if !after.is_empty() {
            self.after.entry(destination.clone()).or_default().append(&mut after);
        }
        kept
    }
}

/// Merges what several Placements want of one object at one destination: per set of Placements that want it, one form. Where
/// they have it differ in more than its policy, the first does.
pub(super) fn merged(wants: impl IntoIterator<Item = Form>) -> Vec<Form> {
    let mut groups: Vec<Form> = Vec::new();
    for Form { policy, input, mut targets } in wants {
        let mut split = Vec::new();
        for known in &mut groups {
            let both = &known.targets & &targets;
            if both.is_empty() || (known.policy == policy && known.input == input) {
                continue;
            }
            known.targets -= &both;
            targets -= &both;
            let policy = Arc::new(known.policy.merge(&policy));
            split.push(Form { policy, input: known.input.clone(), targets: both });
        }
        split.push(Form { policy, input, targets });
        for form in split.into_iter().filter(|form| !form.targets.is_empty()) {
            match groups.iter_mut().find(|known| known.policy == form.policy && known.input == form.input) {
                Some(known) => known.targets |= form.targets,
                None => groups.push(form),
            }
        }
        groups.retain(|known| !known.targets.is_empty());
    }
    groups
}
