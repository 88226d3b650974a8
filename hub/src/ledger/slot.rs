//! Who holds one destination key on which targets, and what that changes.

use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::{ItemHash, Uid};

use super::claim::Claim;
use super::missing_capabilities::MissingCapabilities;

/// Decides anew who holds the destination where.
///
/// `claims` are in the order of admission, each with what it held so far (disjoint). A holder keeps what it still claims;
/// what is free goes to the first that claims it. An implied namespace holds only where nothing explicit is claimed.
pub(super) fn settle(claims: &mut [Claim]) {
    let explicit: Vec<_> = claims.iter().map(Claim::explicit).collect();
    let implied: Vec<_> = claims.iter().map(Claim::implied).collect();
    let mut taken = RoaringBitmap::new();
    let mut held = vec![RoaringBitmap::new(); claims.len()];
    for wanted in [&explicit, &implied] {
        for ((claim, wanted), held) in claims.iter().zip(wanted).zip(&mut held) {
            let kept = (&claim.held & wanted) - &taken;
            taken |= &kept;
            *held |= kept;
        }
        for (wanted, held) in wanted.iter().zip(&mut held) {
            let free = wanted - &taken;
            taken |= &free;
            *held |= free;
        }
    }
    for (claim, held) in claims.iter_mut().zip(held) {
        claim.held = held;
    }
}

/// How the sets of targets differ at one destination key, before and after.
#[derive(Clone, Debug, Default)]
pub(super) struct Difference {
    /// Entries that targets lose, by their hash.
    pub(super) lost: Vec<(ItemHash, RoaringBitmap)>,
    /// Entries that targets gain.
    pub(super) gained: Vec<(ItemHash, RoaringBitmap)>,
    /// Targets that had nothing here and now have.
    pub(super) joined: RoaringBitmap,
    /// Targets that have nothing here any more, by the source they had.
    pub(super) left: Vec<(Uid, RoaringBitmap)>,
    /// Targets that have another source's entry here now, by the source they had.
    pub(super) handed_over: Vec<(Uid, RoaringBitmap)>,
    /// Targets that have something here now, and not what they had.
    pub(super) updated: RoaringBitmap,
}

impl Difference {
    pub(super) fn between(
        (before, lacked): (&[Arc<Claim>], &MissingCapabilities),
        (after, lacking): (&[Arc<Claim>], &MissingCapabilities),
    ) -> Self {
        let mut lost = holdings(before, lacked);
        let mut gained = holdings(after, lacking);
        for (hash, had) in &mut lost {
            for (_, has) in gained.iter_mut().filter(|(other, _)| other == hash) {
                let same = &*had & &*has;
                *had -= &same;
                *has -= same;
            }
        }
        lost.retain(|(_, targets)| !targets.is_empty());
        gained.retain(|(_, targets)| !targets.is_empty());
        let (had, has) = (all_held(before), all_held(after));
        let by_source = |targets: &dyn Fn(&Claim) -> RoaringBitmap| -> Vec<_> {
            let by_source = before.iter().map(|claim| (claim.id.source.uid.clone(), targets(claim)));
            by_source.filter(|(_, targets)| !targets.is_empty()).collect()
        };
        let left = by_source(&|claim| &claim.held - &has);
        let handed_over = by_source(&|claim| {
            let kept = after.iter().find(|other| other.id == claim.id).map(|other| &other.held);
            kept.map_or_else(|| claim.held.clone(), |kept| &claim.held - kept) & &has
        });
        let updated = gained.iter().fold(RoaringBitmap::new(), |all, (_, targets)| all | targets);
        Self { lost, gained, joined: has - had, left, handed_over, updated }
    }
}

pub(super) fn all_held(claims: &[Arc<Claim>]) -> RoaringBitmap {
    claims.iter().fold(RoaringBitmap::new(), |all, claim| all | &claim.held)
}

/// Where what is assigned is kept as its source says: what was to be removed there before says how that finds the place. What is
/// made once would be made anew by it.
pub(super) fn held_continuously(claims: &[Arc<Claim>]) -> RoaringBitmap {
    claims.iter().fold(RoaringBitmap::new(), |all, claim| all | (&claim.held - claim.made_once()))
}

/// Entries as they are told, by their hash.
fn holdings(claims: &[Arc<Claim>], lacking: &MissingCapabilities) -> Vec<(ItemHash, RoaringBitmap)> {
    let mut holdings = Vec::new();
    for claim in claims {
        for form in &claim.forms {
            let mut targets = &form.targets & &claim.held;
            if let Some((instead, from)) = form.withheld(lacking, &targets) {
                targets -= &from;
                holdings.push((instead.hash, from));
            }
            if !targets.is_empty() {
                holdings.push((form.hash, targets));
            }
        }
    }
    holdings
}
