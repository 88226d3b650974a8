//! The forms that targets get an object in, and how several become one.

use std::collections::BTreeMap;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::ApplyPolicy;

use super::{Assignment, Variant};
use crate::clean::{Destination, Input, Labels};

/// One form of an object, and the targets that are to get it so.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) policy: Arc<ApplyPolicy>,
    pub(super) input: Input,
    pub(super) targets: RoaringBitmap,
}

/// By destination, over sets of targets that are disjoint at each.
pub(super) type Forms = BTreeMap<Destination, Vec<Form>>;

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

/// The labels that an object had when this was made of it.
pub(super) fn labels_of(assignment: &Assignment) -> Labels {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Text {
        metadata: Metadata,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Metadata {
        labels: Labels,
    }
    let explicit = assignment.variants.iter().find(|variant| !variant.implied);
    let text = explicit.and_then(|variant| serde_json::from_str::<Text>(&variant.input.text).ok());
    text.unwrap_or_default().metadata.labels
}
