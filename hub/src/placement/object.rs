use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tideline_common::{ApplyPolicy, Impersonation, Monotonic, ObjectKey, SourceRef};

use super::{Assignment, Input, SourceId, Variant};
use crate::clean::{Content, Labels, Outbound, Refusal};

/// One object of a space, with what was last said of it to the ledger.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: SourceId,
    pub(super) key: ObjectKey,
    pub(super) labels: Arc<Labels>,
    pub(super) state: State,
    /// The Placements that select it, and how each would have it kept.
    pub(super) matches: BTreeMap<Arc<str>, Arc<ApplyPolicy>>,
    pub(super) emitted: Option<Assignment>,
    /// Targets that nothing selects any more, and until when they keep it nevertheless.
    settling: Vec<(Monotonic, RoaringBitmap)>,
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
pub(super) struct Wanted {
    /// By Placements and annotation, over disjoint targets.
    pub(super) explicit: Vec<(Arc<ApplyPolicy>, RoaringBitmap)>,
    /// Of a namespace: the targets that hold anything in it.
    pub(super) implied: Option<ImpliedNamespace>,
    pub(super) impersonate: Option<Impersonation>,
    /// Targets that exist; what is assigned to any other is dropped at once.
    pub(super) existing: RoaringBitmap,
    pub(super) schedulable: RoaringBitmap,
}

pub(super) struct ImpliedNamespace {
    pub(super) input: Input,
    pub(super) policy: Arc<ApplyPolicy>,
    pub(super) targets: RoaringBitmap,
}

/// How removals wait that no deletion of the source caused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settle {
    /// Until something that cannot be read can be.
    Frozen,
    For(Duration),
}

impl Object {
    pub(super) fn new(id: SourceId, key: ObjectKey, emitted: Option<Assignment>) -> Self {
        Self {
            id,
            key,
            labels: Arc::default(),
            state: State::Restored,
            matches: BTreeMap::new(),
            emitted,
            settling: Vec::new(),
        }
    }

    pub(super) fn restored(assignment: Assignment) -> Self {
        Self::new(assignment.id.clone(), assignment.key.clone(), Some(assignment))
    }

    /// Takes in the object's latest form. Returns whether that may change anything.
    pub(super) fn take(&mut self, labels: Arc<Labels>, content: Content) -> bool {
        match (&mut self.state, content) {
            (State::Readable { outbound, problem }, Content::Outbound(new)) => {
                if *outbound == new && problem.is_none() && self.labels == labels {
                    return false;
                }
                (*outbound, *problem) = (new, None);
                self.labels = labels;
            }
            // What was readable stands, labels included.
            (State::Readable { problem, .. }, Content::Unreadable(refusal)) => *problem = Some(refusal),
            (state, content) => {
                *state = match content {
                    Content::Outbound(outbound) => State::Readable { outbound, problem: None },
                    Content::NeverPlaced(_) => State::NeverPlaced,
                    Content::Unreadable(refusal) => State::Unreadable(refusal),
                };
                self.labels = labels;
            }
        }
        true
    }

    pub(super) fn asks_for_locations(&self) -> bool {
        matches!(&self.state, State::Readable { outbound, .. } if !outbound.assigned_locations.is_empty())
    }

    /// Targets that it is assigned to as the ledger knows it.
    pub(super) fn emitted_targets(&self) -> RoaringBitmap {
        self.emitted.as_ref().map(Assignment::targets).unwrap_or_default()
    }

    /// Resolves the object to its assignment as it is to be from now on; without targets it is assigned nowhere. Returns the next
    /// moment at which that changes by itself.
    pub(super) fn resolve(
        &mut self,
        wanted: Wanted,
        settle: Settle,
        now: Monotonic,
    ) -> (Option<Assignment>, Option<Monotonic>) {
        let outbound = match &self.state {
            State::Restored | State::Unreadable(_) => return (self.emitted.clone(), None),
            State::NeverPlaced => None,
            State::Readable { outbound, .. } => Some(outbound.clone()),
        };
        let Wanted { explicit, implied, impersonate, existing, schedulable } = wanted;
        let had = self.emitted_targets();
        let usable = schedulable | &had;
        let mut settling = Settling { before: std::mem::take(&mut self.settling), after: Vec::new(), settle, now };
        let mut taken = RoaringBitmap::new();
        let mut forms: Vec<(bool, Arc<ApplyPolicy>, RoaringBitmap)> = Vec::new();
        for (policy, targets) in explicit {
            let targets = targets & &usable & &existing;
            taken |= &targets;
            forms.push((false, policy, targets));
        }
        self.keep_former(false, &existing, &mut taken, &mut forms, &mut settling);
        if let Some(implied) = &implied {
            let targets = (&implied.targets & &existing) - &taken;
            taken |= &targets;
            forms.push((true, implied.policy.clone(), targets));
        }
        self.keep_former(true, &existing, &mut taken, &mut forms, &mut settling);
        self.settling = settling.after;
        let next = self.settling.iter().map(|(deadline, _)| *deadline).min();
        (self.assignment(outbound.as_ref(), implied.map(|implied| implied.input), impersonate, forms), next)
    }

    /// Keeps the forms that targets have and nothing wants any more, as long as they settle.
    fn keep_former(
        &self,
        implied: bool,
        existing: &RoaringBitmap,
        taken: &mut RoaringBitmap,
        forms: &mut Vec<(bool, Arc<ApplyPolicy>, RoaringBitmap)>,
        settling: &mut Settling,
    ) {
        let former = self.emitted.iter().flat_map(|assignment| &assignment.variants);
        for variant in former.filter(|variant| variant.implied == implied) {
            let leaving = (&variant.targets & existing) - &*taken;
            let kept = settling.keep(leaving);
            *taken |= &kept;
            forms.push((implied, variant.policy.clone(), kept));
        }
    }

    fn assignment(
        &self,
        outbound: Option<&Outbound>,
        implied: Option<Input>,
        impersonate: Option<Impersonation>,
        forms: Vec<(bool, Arc<ApplyPolicy>, RoaringBitmap)>,
    ) -> Option<Assignment> {
        let former = |implied: bool| {
            let variants = self.emitted.iter().flat_map(|assignment| &assignment.variants);
            variants.filter(|variant| variant.implied == implied).map(|variant| variant.input.clone()).next()
        };
        let explicit_input = outbound.map(|outbound| outbound.input.clone()).or_else(|| former(false));
        let implied_input = implied.or_else(|| former(true));
        let mut variants: Vec<Variant> = Vec::new();
        for (implied, policy, targets) in forms.into_iter().filter(|(_, _, targets)| !targets.is_empty()) {
            let input = if implied { &implied_input } else { &explicit_input };
            let input = input.clone().expect("a form is of the present object or of what was emitted");
            match variants.iter_mut().find(|variant| variant.implied == implied && variant.policy == policy) {
                Some(same) => same.targets |= targets,
                None => variants.push(Variant { policy, input, implied, targets }),
            }
        }
        if variants.is_empty() {
            return None;
        }
        variants.sort_by_cached_key(Variant::order);
        let emitted = self.emitted.as_ref();
        let version = outbound.map(|outbound| outbound.version.clone());
        Some(Assignment {
            id: self.id.clone(),
            source: SourceRef {
                space: self.id.space.clone(),
                uid: self.id.uid.clone(),
                namespace: self.key.namespace.clone(),
                name: self.key.name.clone(),
            },
            key: self.key.clone(),
            version: version.or_else(|| emitted.map(|former| former.version.clone()))?,
            generation: outbound
                .map(|outbound| outbound.generation)
                .or_else(|| emitted.map(|former| former.generation))?,
            wave: outbound.map(|outbound| outbound.wave).or_else(|| emitted.map(|former| former.wave))?,
            impersonate,
            variants,
        })
    }
}

/// Which of an object's removals wait.
struct Settling {
    before: Vec<(Monotonic, RoaringBitmap)>,
    after: Vec<(Monotonic, RoaringBitmap)>,
    settle: Settle,
    now: Monotonic,
}

impl Settling {
    /// Of the targets that are being left, those that are not left yet.
    fn keep(&mut self, leaving: RoaringBitmap) -> RoaringBitmap {
        let Settle::For(time) = self.settle else { return leaving };
        let mut kept = RoaringBitmap::new();
        let mut fresh = leaving.clone();
        for (deadline, targets) in &self.before {
            fresh -= targets;
            let waiting = targets & &leaving;
            if *deadline > self.now && !waiting.is_empty() {
                kept |= &waiting;
                self.after.push((*deadline, waiting));
            }
        }
        if !time.is_zero() && !fresh.is_empty() {
            kept |= &fresh;
            self.after.push((self.now + time, fresh));
        }
        kept
    }
}

/// Merges what several Placements want of one object: per set of Placements that want it, one policy.
pub(super) fn merged<'a>(
    wants: impl IntoIterator<Item = (&'a Arc<ApplyPolicy>, RoaringBitmap)>,
) -> Vec<(Arc<ApplyPolicy>, RoaringBitmap)> {
    let mut groups: Vec<(Arc<ApplyPolicy>, RoaringBitmap)> = Vec::new();
    for (policy, mut targets) in wants {
        let mut split = Vec::new();
        for (known, group) in &mut groups {
            let both = &*group & &targets;
            if both.is_empty() || known == policy {
                continue;
            }
            *group -= &both;
            targets -= &both;
            split.push((Arc::new(known.merge(policy)), both));
        }
        split.push((policy.clone(), targets));
        for (policy, targets) in split.into_iter().filter(|(_, targets)| !targets.is_empty()) {
            match groups.iter_mut().find(|(known, _)| *known == policy) {
                Some((_, group)) => *group |= targets,
                None => groups.push((policy, targets)),
            }
        }
        groups.retain(|(_, group)| !group.is_empty());
    }
    groups
}
