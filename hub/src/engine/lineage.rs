//! As which target an agent goes on that asks as another. Pure.

use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{Handover, SessionRequest};
use tideline_common::{Capability, FORMERS_MAX, TargetId};

/// What a hub knows of its targets, as far as handovers depend on it.
pub trait Lineage {
    /// The key by which the agent of a target is known, though that may have been deleted.
    fn key(&self, target: TargetId) -> Option<VerifyingKey>;
    /// The name of a target that is in the inventory, if its agent has this key.
    fn name(&self, target: TargetId, key: &VerifyingKey) -> Option<String>;
    /// The target that the agent of this one was handed to.
    fn heir(&self, target: TargetId) -> Option<TargetId>;
}

/// What is said to who asks for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// It is the target as which it asks, or nobody knows better.
    Here,
    Elsewhere(Handover),
    /// Elsewhere, too; but it would take such an answer for a session, so it is told what it was told before: that it is shut
    /// out.
    TooOld {
        heir: TargetId,
        name: String,
    },
}

/// Where the agent that asks, and was found as `found` by its verified key, belongs.
pub fn belongs(lineage: &impl Lineage, found: TargetId, request: &SessionRequest) -> Belongs {
    let asked_as = request.asked_as.unwrap_or(found);
    let Some(key) = lineage.key(found) else { return Belongs::Here };
    let name = |target| lineage.name(target, &key);
    if asked_as == found && name(found).is_some() {
        return Belongs::Here;
    }
    let mut known = std::iter::once(found).chain(request.formers.iter().rev().copied());
    let heir = known.find_map(|target| {
        let heir = last_heir(lineage, target)?;
        Some((heir, name(heir)?))
    });
    match heir {
        None => Belongs::Here,
        Some((heir, name)) if !request.capabilities.has(Capability::Handover) => Belongs::TooOld { heir, name },
        Some((target, name)) => {
            Belongs::Elsewhere(Handover { key: key.as_bytes().to_vec(), former: asked_as, target, name })
        }
    }
}

/// To whom the agent of a target was handed in the end; itself if to nobody.
fn last_heir(lineage: &impl Lineage, target: TargetId) -> Option<TargetId> {
    let mut at = target;
    for _ in 0..=FORMERS_MAX {
        match lineage.heir(at) {
            Some(heir) => at = heir,
            None => return Some(at),
        }
    }
    None
}
