//! Which targets a Placement with `numberOfTargets` has chosen, and for how long.
//!
//! A choice belongs to the name of its Placement: `kubectl replace --force` makes another Placement of that name, and moves
//! nothing. A chosen target that is not selected any more keeps its place for as long as removals wait
//! ([`super::SETTLE`]), and so does the whole choice when its Placement is gone, or has no number any more.
//!
//! ```text
//!  chosen ──not selected──▶ Noticed ──drain──▶ Until ──settled──▶ Over ──▶ another is chosen
//!     ▲                        │  ▲             │ │
//!     └────selected again──────┴──┼─────────────┘ │
//!                                 └──unreadable───┘
//! ```

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tideline_common::{Hasher, Monotonic, SpaceName};

use super::inventory::Inventory;
use super::settling::Settle;

/// The choice of one Placement.
#[derive(Debug, Default)]
pub(super) struct Choice {
    targets: RoaringBitmap,
    /// Those of them that are not eligible.
    absent: BTreeMap<u32, Absence>,
    /// Until when it outlives its Placement. None while that is there and has a `numberOfTargets`, or had until after the last
    /// drain.
    orphaned: Option<Monotonic>,
}

/// How long a chosen target that is not eligible keeps its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Absence {
    /// Until the next drain says, which knows the time.
    #[default]
    Noticed,
    Until(Monotonic),
    /// No longer.
    Over,
}

/// What is chosen from.
pub(super) struct Candidates<'a> {
    pub(super) space: &'a SpaceName,
    pub(super) placement: &'a str,
    pub(super) number: u32,
    /// What the Placement selects and its space may place to.
    pub(super) eligible: &'a RoaringBitmap,
    pub(super) inventory: &'a Inventory,
    /// Whether something that decides what is eligible was never readable: then no target loses its place.
    pub(super) frozen: bool,
}

impl Choice {
    pub(super) fn new(targets: RoaringBitmap) -> Self {
        Self { targets, ..Self::default() }
    }

    /// Everything that is chosen, eligible or not.
    pub(super) fn targets(&self) -> &RoaringBitmap {
        &self.targets
    }

    /// Whether a chosen target is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Brings the choice up to date, and returns the chosen targets that are eligible. What was chosen stays chosen; places that
    /// are free are given by rendezvous hashing, so that the same is chosen whatever the order of events.
    pub(super) fn choose(&mut self, from: &Candidates<'_>) -> RoaringBitmap {
        let number = u64::from(from.number);
        let keeps_place = |index: &u32| {
            let is_over =
                !from.frozen && !from.eligible.contains(*index) && self.absent.get(index) == Some(&Absence::Over);
            from.inventory.is_in_service(*index) && !is_over
        };
        self.targets = self.targets.iter().filter(keeps_place).collect();
        if self.targets.len() > number && !from.frozen {
            let mut kept = from.best(&(&self.targets & from.eligible), number);
            kept |= from.best(&(&self.targets - from.eligible), number - kept.len());
            self.targets = kept;
        } else if self.targets.len() < number {
            let free = (from.eligible & &from.inventory.schedulable) - &self.targets;
            self.targets |= from.best(&free, number - self.targets.len());
        }
        let absent = &self.targets - from.eligible;
        self.absent.retain(|index, _| absent.contains(*index));
        for index in &absent {
            self.absent.entry(index).or_default();
        }
        from.best(&(&self.targets & from.eligible), number)
    }

    /// Notes that time has passed while the Placement is there and has a number. Returns whether [`Choice::choose`] is to be called. Says when
    /// the next wait ends that begins now.
    pub(super) fn settle(&mut self, settle: Settle, now: Monotonic, mut deadline: impl FnMut(Monotonic)) -> bool {
        self.orphaned = None;
        let Settle::For(time) = settle else {
            self.absent.values_mut().for_each(|absence| *absence = Absence::Noticed);
            return false;
        };
        let mut is_over = false;
        for absence in self.absent.values_mut() {
            if *absence == Absence::Noticed {
                *absence = Absence::Until(now + time);
                deadline(now + time);
            }
            if matches!(absence, Absence::Until(until) if *until <= now) {
                *absence = Absence::Over;
            }
            is_over |= *absence == Absence::Over;
        }
        is_over
    }

    /// The same while there is no such Placement. Returns whether the choice is to be forgotten.
    pub(super) fn outlive(&mut self, settle: Settle, now: Monotonic, mut deadline: impl FnMut(Monotonic)) -> bool {
        // Nobody says meanwhile what is selected.
        self.absent.values_mut().for_each(|absence| *absence = Absence::Noticed);
        let Settle::For(time) = settle else {
            self.orphaned = None;
            return false;
        };
        let until = *self.orphaned.get_or_insert_with(|| {
            deadline(now + time);
            now + time
        });
        until <= now
    }
}

impl Candidates<'_> {
    /// At most so many of these, by rank.
    fn best(&self, of: &RoaringBitmap, count: u64) -> RoaringBitmap {
        if of.len() <= count {
            return of.clone();
        }
        let mut ranked: Vec<_> = of.iter().map(|index| (self.rank(index), index)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        ranked.into_iter().take(usize::try_from(count).unwrap_or(usize::MAX)).map(|(_, index)| index).collect()
    }

    fn rank(&self, index: u32) -> [u8; 32] {
        let mut hasher = Hasher::new("tideline/choice/v2");
        hasher.field(self.space.as_str().as_bytes()).field(self.placement.as_bytes());
        if let Some(target) = self.inventory.targets.get(&index) {
            hasher.field(target.id.as_bytes());
        }
        *hasher.finish().as_bytes()
    }
}
