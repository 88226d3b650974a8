use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tideline_common::Revision;
use tideline_common::wire::v1::Terminal;

use super::TargetIndex;

/// Sources that are assigned nowhere any more of which is remembered that they ran. A record of one takes some 300 bytes,
/// and more the more targets it ran at. With more of them, those are forgotten that left first: should such a source be
/// assigned again as the same object, it runs again.
pub const DEPARTED_MAX: usize = 20_000;

/// What happened once at targets, of one source at one destination, and must not happen there again: also where an agent
/// has lost its memory of it, and this hub was started anew since it was told. That something ran, or may have, outlives the
/// assignment; and that it may run all the same, for an agent may still hold it back that was away when that was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Happened {
    /// Targets that are gone stay in it until the next start.
    facts: BTreeMap<Terminal, RoaringBitmap>,
    /// When it left a target last.
    pub(super) left: Revision,
}

impl Happened {
    pub(super) fn new(facts: impl IntoIterator<Item = (Terminal, RoaringBitmap)>, left: Revision) -> Self {
        let mut happened = Self { facts: facts.into_iter().collect(), left };
        happened.tidy();
        happened
    }

    /// By fact, over disjoint and non-empty sets of targets.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Terminal, &RoaringBitmap)> {
        self.facts.iter().map(|(fact, targets)| (*fact, targets))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Where that is so.
    pub(super) fn of(&self, fact: Terminal) -> RoaringBitmap {
        self.facts.get(&fact).cloned().unwrap_or_default()
    }

    pub(super) fn at(&self, target: TargetIndex) -> Option<Terminal> {
        self.iter().find(|(_, targets)| targets.contains(target)).map(|(fact, _)| fact)
    }

    /// A target's agent says so, or what is known of another target is `inherited` by this one. Whether that is news: what
    /// finished has finished, whatever is heard later, and what is known here is newer than what is inherited.
    pub(super) fn hear(&mut self, target: TargetIndex, fact: Terminal, inherited: bool) -> bool {
        let known = self.at(target);
        let newer = !inherited || known.is_none() || fact == Terminal::Finished;
        let is_news = newer && fact.is_news_after(known);
        if is_news {
            self.note(target, fact);
        }
        is_news
    }

    /// The last fact is the one that counts.
    pub(super) fn note(&mut self, target: TargetIndex, fact: Terminal) {
        self.note_all(&RoaringBitmap::from_iter([target]), fact);
    }

    pub(super) fn note_all(&mut self, targets: &RoaringBitmap, fact: Terminal) {
        self.forget(targets);
        *self.facts.entry(fact).or_default() |= targets;
        self.tidy();
    }

    pub(super) fn forget(&mut self, targets: &RoaringBitmap) {
        for there in self.facts.values_mut() {
            *there -= targets;
        }
        self.tidy();
    }

    /// The source left these targets. What ran there has run, and what may have run still may; all else begins anew if it
    /// comes back.
    pub(super) fn leave(&mut self, targets: &RoaringBitmap, at: Revision) {
        let stays = self.iter().filter(|(fact, _)| outlives_assignment(*fact));
        let stays = stays.fold(RoaringBitmap::new(), |all, (_, targets)| all | targets);
        self.forget(&(targets - &stays));
        if !stays.is_disjoint(targets) {
            self.left = at;
        }
    }

    /// Whether anything is known of any of these.
    pub(super) fn is_known_at(&self, targets: &RoaringBitmap) -> bool {
        self.facts.values().any(|there| !there.is_disjoint(targets))
    }

    /// As small as it can be in memory, while it changes no more.
    pub(super) fn optimize(&mut self) {
        for there in self.facts.values_mut() {
            there.optimize();
        }
    }

    /// Keeps to what is known of `held`, and to what outlives the assignment at `known` targets.
    pub(super) fn restrict(&mut self, held: &RoaringBitmap, known: &RoaringBitmap) {
        for (fact, there) in &mut self.facts {
            *there &= if outlives_assignment(*fact) { known } else { held };
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        self.facts.retain(|_, targets| !targets.is_empty());
    }
}

/// Whether it stays known where its source is not assigned any more.
pub(super) fn outlives_assignment(fact: Terminal) -> bool {
    match fact {
        // That a Job was started does so until its agent has removed it: what that found gone, it says, has finished.
        Terminal::Finished | Terminal::Started | Terminal::MayHaveRun | Terminal::Released => true,
        Terminal::CreatedOnce | Terminal::Unknown => false,
    }
}
