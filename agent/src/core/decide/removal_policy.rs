//! Which policy a removal is under, where a set says one and the removal of another source is under way at the same place.

use std::collections::BTreeMap;

use tideline_common::{Entry, ObjectKey, Origin, Prune, PrunePolicy, Takeover};

use crate::core::interface::write::RemovalPolicy;
use crate::core::model::Model;
use crate::core::model::change::Change;

/// The last policy for a key counts for each removal that is under way there. A policy from before something was assigned
/// there again counts for its own source alone.
pub(in crate::core) fn resolve_policies(model: &Model, change: &mut Change) {
    let mut resolved = Vec::new();
    let put = change.put.iter().map(|entry| (&entry.key, Some(&entry.source.uid)));
    let changes = put.chain(change.remove.iter().map(|key| (key, None)));
    let changes: BTreeMap<_, _> = changes.filter(|_| !change.tombstones.is_empty()).collect();
    for (told, policy) in &change.tombstones {
        if let RemovalPolicy::Tombstone(policy) = *policy {
            // The present entry was to adopt an object that was due for orphaning, and has not yet.
            let policy = match model.desired.get(&told.key).filter(|_| model.is_overtaken(&told.key)) {
                Some(entry) => policy.overtaken(takeover_of(model, entry)),
                None => policy,
            };
            let policy = as_it_was_found(model, &told.key, policy);
            let kept = || model.desired.get(&told.key).map(|entry| &entry.source.uid);
            let assigned = changes.get(&told.key).copied().unwrap_or_else(kept);
            let open = model.open_removals_of(&told.key).map(|(tombstone, _)| tombstone);
            resolved.extend(open.chain([told]).map(|tombstone| {
                let replaced = assigned.is_some_and(|source| *source != tombstone.source) && !policy.orphans();
                let policy =
                    if replaced { RemovalPolicy::Absence(Some(policy)) } else { RemovalPolicy::Tombstone(policy) };
                (tombstone.clone(), policy)
            }));
        }
    }
    for entry in &change.put {
        for (tombstone, removal) in model.open_removals_of(&entry.key) {
            if let RemovalPolicy::Tombstone(policy) = removal.policy()
                && !policy.orphans()
                && tombstone.source != entry.source.uid
                && !change.tombstones.contains_key(tombstone)
            {
                resolved.push((tombstone.clone(), RemovalPolicy::Absence(Some(policy))));
            }
        }
    }
    for (tombstone, policy) in &change.tombstones {
        // It was due for orphaning, and then was assigned and unassigned again.
        if let RemovalPolicy::Absence(last) = policy
            && model.removals.get(tombstone).is_some_and(|removal| removal.policy().orphans())
        {
            let by = model.desired.get(&tombstone.key).map_or(Takeover::Never, |entry| takeover_of(model, entry));
            let last = last.unwrap_or(PrunePolicy::LEAST).overtaken(by);
            resolved.push((tombstone.clone(), RemovalPolicy::Absence(Some(last))));
        }
    }
    change.tombstones.extend(resolved);
}

/// The policy for removing an object. One that would be orphaned because it was adopted, or is managed by others, is
/// orphaned whatever is assigned to its key next, as if it had been created.
fn as_it_was_found(model: &Model, key: &ObjectKey, policy: PrunePolicy) -> PrunePolicy {
    let object = model.objects.get(key);
    let record = object.as_ref().and_then(|object| object.record.as_ref());
    let seen = object.as_ref().and_then(|object| object.seen());
    let origin = record.map(|record| record.origin).or(seen.and_then(|seen| Some(seen.mark.as_ref()?.origin)));
    let adopted = origin == Some(Origin::Adopted);
    let managed = !adopted && seen.is_some_and(|seen| seen.managed_elsewhere);
    if origin.is_some() && !policy.deletes(adopted, managed) {
        PrunePolicy { prune: Prune::Orphan, ..policy }
    } else {
        policy
    }
}

/// By what right an entry takes over foreign objects.
fn takeover_of(model: &Model, entry: &Entry) -> Takeover {
    let policy = model.policies.get(&entry.policy).map(|policy| policy.takeover);
    if entry.implied { Takeover::Always } else { policy.unwrap_or(Takeover::Never) }
}
