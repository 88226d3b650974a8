//! How long targets keep what nothing wants there any more.

use std::collections::BTreeMap;
use std::time::Duration;

use roaring::RoaringBitmap;
use tideline_common::Monotonic;

use crate::clean::Destination;

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

/// Until when targets keep an object, by what its namespace is called there.
pub(super) type Deadlines = BTreeMap<Destination, Vec<(Monotonic, RoaringBitmap)>>;

/// Which of an object's removals wait.
pub(super) struct Settling {
    pub(super) before: Deadlines,
    pub(super) after: Deadlines,
    pub(super) settle: Settle,
    pub(super) now: Monotonic,
    /// Targets that leave nothing.
    pub(super) held: RoaringBitmap,
}

impl Settling {
    /// Of the targets that are being left, those that are not left yet.
    pub(super) fn keep(&mut self, destination: &Destination, leaving: RoaringBitmap) -> RoaringBitmap {
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
