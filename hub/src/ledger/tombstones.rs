use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tideline_common::{PrunePolicy, Revision, SourceRef, Takeover, Uid};

use super::TargetIndex;
use super::claim::Form;

/// Targets that have not confirmed the removal of one source from one destination, by the policy that was last in force
/// there. Of all sources of a destination a target has at most one.
///
/// A target that has something there again stays until it has said that it knows: an agent that was away is to end where one
/// ends that saw what was there go. What was let go of counts as adopted, and what is made once is made again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tombstones {
    /// With the revision that took it out there. Over disjoint and non-empty sets of targets.
    policies: BTreeMap<(PrunePolicy, Revision), RoaringBitmap>,
    /// Whose removal it is. Records of older hubs do not say.
    pub(super) origin: Option<SourceRef>,
}

impl Tombstones {
    pub(super) fn new(origin: Option<SourceRef>) -> Self {
        Self { policies: BTreeMap::new(), origin }
    }

    pub(super) fn targets(&self) -> RoaringBitmap {
        self.policies.values().fold(RoaringBitmap::new(), |all, targets| all | targets)
    }

    /// Of one policy there may be several, of other revisions.
    pub(super) fn policies(&self) -> impl Iterator<Item = ((PrunePolicy, Revision), &RoaringBitmap)> {
        self.policies.iter().map(|(policy, targets)| (*policy, targets))
    }

    /// By which policy, and since when.
    pub(super) fn at(&self, target: TargetIndex) -> Option<(PrunePolicy, Revision)> {
        self.policies().find(|(_, targets)| targets.contains(target)).map(|(policy, _)| policy)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// `targets` must have no other policy here.
    pub(super) fn put(&mut self, policy: (PrunePolicy, Revision), targets: RoaringBitmap) {
        if !targets.is_empty() {
            *self.policies.entry(policy).or_default() |= targets;
        }
    }

    pub(super) fn remove(&mut self, targets: &RoaringBitmap) {
        self.narrow(|_, of| *of -= targets);
    }

    /// Of what was taken out after a revision nothing stays at `held`.
    pub(super) fn remove_later(&mut self, than: Revision, held: &RoaringBitmap) {
        self.narrow(|at, of| {
            if at > than {
                *of -= held;
            }
        });
    }

    /// A person accepted that history was lost, when it was at a revision: of what was to be removed by then stays what concerns
    /// these.
    pub(super) fn accepted(&mut self, until: Revision, kept: &RoaringBitmap) {
        self.narrow(|at, of| {
            if at <= until {
                *of &= kept;
            }
        });
    }

    pub(super) fn restrict(&mut self, to: &RoaringBitmap) {
        self.narrow(|_, of| *of &= to);
    }

    fn narrow(&mut self, which: impl Fn(Revision, &mut RoaringBitmap)) {
        self.policies.retain(|(_, at), targets| {
            which(*at, targets);
            !targets.is_empty()
        });
    }
}

/// Records at one destination the removal of what left it, at the targets that it left, as its forms said last, and as what
/// was to be removed there before and is not confirmed makes of that.
pub(super) fn record_removal<'f>(
    by_source: &mut BTreeMap<Uid, Tombstones>,
    (source, targets): (&Uid, &RoaringBitmap),
    forms: impl IntoIterator<Item = &'f Form>,
    (at, origin): (Revision, Option<SourceRef>),
) {
    let before: Vec<(PrunePolicy, RoaringBitmap)> = by_source
        .values()
        .flat_map(Tombstones::policies)
        .map(|((policy, _), of)| (policy, of & targets))
        .filter(|(_, of)| !of.is_empty())
        .collect();
    for tombstones in by_source.values_mut() {
        tombstones.remove(targets);
    }
    let tombstones = by_source.entry(source.clone()).or_insert_with(|| Tombstones::new(None));
    let mut left = targets.clone();
    let forms =
        forms.into_iter().map(|form| (form.entry.prune_policy(&form.policy), form.policy.takeover, &form.targets));
    // Whoever held it had a form there. Should nobody know it, nothing is destroyed.
    for (policy, takeover, of) in forms.chain([(PrunePolicy::LEAST, Takeover::Never, targets)]) {
        let mut here = of & &left;
        left -= &here;
        for (earlier, of) in &before {
            tombstones.put((policy.after(*earlier, takeover), at), &here & of);
            here -= of;
        }
        tombstones.put((policy, at), here);
    }
    tombstones.origin = origin.or(tombstones.origin.take());
}
