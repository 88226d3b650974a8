//! Removals that people have approved, and objects that they have released, as they are told to agents: per target one list,
//! which every approval in force adds to, named by what it holds.
//!
//! No I/O, no clock: the objects that hold the approvals are read by `ingest`, and made by `removals::approve`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::limits::APPROVED_PAGE_REMOVALS_MAX;
use tideline_common::wire::v1::{ApprovedHeld, ApprovedPage};
use tideline_common::{Digest, Hasher, Monotonic, TargetId, Tombstone, Uid};

/// One approval: a list of removals at one target, until it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub target: TargetId,
    /// When it ends by the calendar, in seconds since 1970: another end makes it another approval.
    pub expires: i64,
    /// The same, as time that passes here.
    pub until: Monotonic,
    pub removals: Arc<[Tombstone]>,
    /// They are let go of: the objects stay, without their marks.
    pub releases: bool,
}

/// Every approval in force.
#[derive(Clone, Debug)]
pub struct Approvals {
    /// By the object that holds it.
    all: BTreeMap<Uid, Approval>,
    /// The same by target: every commit asks for those of the targets that it concerns.
    of_targets: BTreeMap<TargetId, BTreeSet<Uid>>,
    ends: BTreeSet<(Monotonic, Uid)>,
    lists: BTreeMap<TargetId, List>,
    /// Those that approve nothing any more, whatever they say later.
    over: BTreeSet<Uid>,
    /// Of them, those that are over since [`Approvals::take_over`].
    over_since: Vec<Uid>,
    /// While they are read: those seen so far. None when all of them are known.
    listing: Option<BTreeSet<Uid>>,
    /// One was seen that cannot be read, and nobody knows which it is.
    any_is_unknown: bool,
}

/// All that is approved at one target.
#[derive(Clone, Debug)]
struct List {
    name: Digest,
    total: u64,
}

impl Default for Approvals {
    /// Nothing was read yet.
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            of_targets: BTreeMap::new(),
            ends: BTreeSet::new(),
            lists: BTreeMap::new(),
            over: BTreeSet::new(),
            over_since: Vec::new(),
            listing: Some(BTreeSet::new()),
            any_is_unknown: false,
        }
    }
}

impl Approvals {
    /// An approval is there, or is another now. Returns the targets whose lists changed.
    #[must_use]
    pub fn put(&mut self, now: Monotonic, object: Uid, approval: Approval) -> Vec<TargetId> {
        self.saw(&object);
        let former = self.all.get(&object).cloned();
        let mut changed = self.take(&object);
        if approval.until <= now {
            self.end(&object);
        }
        if approval.until > now && !approval.removals.is_empty() && !self.over.contains(&object) {
            let says =
                |approval: &Approval| (approval.target, approval.expires, approval.removals.clone(), approval.releases);
            let read_again = former.as_ref().map(says) == Some(says(&approval));
            if read_again {
                // How long that is from now was measured a little differently, and is no news to anybody.
                changed.clear();
            } else {
                changed.insert(approval.target);
            }
            self.ends.insert((approval.until, object.clone()));
            self.of_targets.entry(approval.target).or_default().insert(object.clone());
            self.all.insert(object, approval);
        }
        self.relist(changed)
    }

    /// An approval is there and cannot be read. It is over: nobody could tell what to strike from it meanwhile.
    #[must_use]
    pub fn unreadable(&mut self, object: &Uid) -> Vec<TargetId> {
        self.saw(object);
        self.end(object);
        let changed = self.take(object);
        self.relist(changed)
    }

    /// One is there that may be any: what is over of those that are not seen stays so.
    pub fn saw_unknown(&mut self) {
        self.any_is_unknown = true;
    }

    /// Whether it is being read which there are, and this one was not seen.
    pub fn is_unseen(&self, object: &Uid) -> bool {
        !self.any_is_unknown && self.listing.as_ref().is_some_and(|seen| !seen.contains(object))
    }

    /// Whether it approves nothing any more, whatever it says.
    pub fn is_over(&self, object: &Uid) -> bool {
        self.over.contains(object)
    }

    /// Those that are over since this was last asked.
    pub fn take_over(&mut self) -> Vec<Uid> {
        std::mem::take(&mut self.over_since)
    }

    /// An approval is gone.
    #[must_use]
    pub fn remove(&mut self, object: &Uid) -> Vec<TargetId> {
        self.over.remove(object);
        let changed = self.take(object);
        self.relist(changed)
    }

    /// Whether every approval that there is was read.
    pub fn is_known(&self) -> bool {
        self.listing.is_none()
    }

    /// The objects that hold approvals in force.
    pub fn objects(&self) -> impl Iterator<Item = &Uid> {
        self.all.keys()
    }

    /// What an approval in force approves; nothing of any other.
    pub fn removals(&self, object: &Uid) -> &[Tombstone] {
        self.all.get(object).map_or(&[], |approval| &approval.removals)
    }

    /// Every approval in force at a target: the object that holds it, and what it approves.
    pub fn of(&self, target: TargetId) -> impl Iterator<Item = (&Uid, &[Tombstone])> {
        self.listed(target).map(|(object, approval)| (object, &*approval.removals))
    }

    /// Whether anything is released at a target.
    pub fn releases_at(&self, target: TargetId) -> bool {
        self.listed(target).any(|(_, approval)| approval.releases)
    }

    fn listed(&self, target: TargetId) -> impl Iterator<Item = (&Uid, &Approval)> {
        let objects = self.of_targets.get(&target).into_iter().flatten();
        objects.filter_map(|object| Some((object, self.all.get(object)?)))
    }

    /// Takes out what is void of these approvals. Returns the targets whose lists changed.
    #[must_use]
    pub fn strike<'a>(
        &mut self,
        objects: impl IntoIterator<Item = &'a Uid>,
        is_void: impl Fn(&Uid, &Tombstone) -> bool,
    ) -> Vec<TargetId> {
        let mut changed = BTreeSet::new();
        for object in objects {
            let Some(approval) = self.all.get_mut(object) else { continue };
            let left: Vec<_> = approval.removals.iter().filter(|removal| !is_void(object, removal)).cloned().collect();
            if left.len() < approval.removals.len() {
                approval.removals = left.into();
                changed.insert(approval.target);
            }
            // One that approves nothing any more would be an empty list, of which no page tells an agent that holds the
            // former one.
            if approval.removals.is_empty() {
                changed.extend(self.take(object));
            }
        }
        self.relist(changed)
    }

    /// They are read anew. What is known stays.
    pub fn begin_listing(&mut self) {
        self.listing = Some(BTreeSet::new());
        self.any_is_unknown = false;
    }

    /// Every approval that there is was seen; what was not is gone.
    #[must_use]
    pub fn end_listing(&mut self) -> Vec<TargetId> {
        let Some(seen) = self.listing.take() else { return Vec::new() };
        if !self.any_is_unknown {
            self.over.retain(|object| seen.contains(object));
        }
        let gone: Vec<_> = self.all.keys().filter(|object| !seen.contains(*object)).cloned().collect();
        let mut changed: BTreeSet<_> = gone.iter().flat_map(|object| self.take(object)).collect();
        // Nobody was told anything before, and no list was made.
        changed.extend(self.lists.keys().chain(self.of_targets.keys()));
        self.relist(changed)
    }

    /// When the next approval ends.
    pub fn next_end(&self) -> Option<Monotonic> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Ends what has come to its end, for good: neither another end nor a clock that is set back makes it approve anything again.
    #[must_use]
    pub fn expire(&mut self, now: Monotonic) -> Vec<TargetId> {
        let mut changed = BTreeSet::new();
        while let Some((_, object)) = self.ends.first().filter(|(at, _)| *at <= now).cloned() {
            self.end(&object);
            changed.extend(self.take(&object));
        }
        self.relist(changed)
    }

    /// What a target is to be told that holds this much; none if that is all, or if it is not known yet.
    ///
    /// What an approval does not approve any more is left out: what is assigned again by now, so that an agent that has not
    /// heard of that yet does not remove it, and what was done. It counts as told: whoever judges that must know of every set
    /// that the agent knows of.
    pub fn page(
        &self,
        now: Monotonic,
        target: TargetId,
        held: &ApprovedHeld,
        is_void: impl Fn(&Uid, &Tombstone) -> bool,
    ) -> Option<ApprovedPage> {
        if self.listing.is_some() {
            return None;
        }
        let Some(list) = self.lists.get(&target) else {
            return held.list.is_some().then(ApprovedPage::default);
        };
        let offset = if held.list == Some(list.name) { held.count } else { 0 };
        let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (object, approval) in self.listed(target) {
            // A page is of one approval, so that all of it ends at once.
            if let Some(rest) = approval.removals.get(skip..).filter(|rest| !rest.is_empty()) {
                let page = &rest[..rest.len().min(APPROVED_PAGE_REMOVALS_MAX)];
                let open = page.iter().filter(|removal| !is_void(object, removal)).cloned().collect();
                let (removals, releases) = if approval.releases { (Vec::new(), open) } else { (open, Vec::new()) };
                return Some(ApprovedPage {
                    list: Some(list.name),
                    offset,
                    count: page.len() as u64,
                    total: list.total,
                    expires_seconds: approval.until.since(now).as_secs(),
                    removals,
                    releases,
                });
            }
            skip -= approval.removals.len();
        }
        None
    }

    fn saw(&mut self, object: &Uid) {
        if let Some(seen) = &mut self.listing {
            seen.insert(object.clone());
        }
    }

    fn end(&mut self, object: &Uid) {
        if self.over.insert(object.clone()) {
            self.over_since.push(object.clone());
        }
    }

    fn take(&mut self, object: &Uid) -> BTreeSet<TargetId> {
        let Some(approval) = self.all.remove(object) else { return BTreeSet::new() };
        self.ends.remove(&(approval.until, object.clone()));
        if let Some(objects) = self.of_targets.get_mut(&approval.target) {
            objects.remove(object);
            if objects.is_empty() {
                self.of_targets.remove(&approval.target);
            }
        }
        [approval.target].into()
    }

    /// Makes the lists of these targets anew. While approvals are read, no list is told, and all are made once at the
    /// end.
    fn relist(&mut self, targets: BTreeSet<TargetId>) -> Vec<TargetId> {
        for target in targets.iter().filter(|_| self.listing.is_none()) {
            if self.of_targets.contains_key(target) {
                let total = self.listed(*target).map(|(_, approval)| approval.removals.len() as u64).sum();
                let list = List { name: name(self.listed(*target)), total };
                self.lists.insert(*target, list);
            } else {
                self.lists.remove(target);
            }
        }
        targets.into_iter().collect()
    }
}

/// Names a list by all that it holds: the same after a restart of the hub, and at every replica.
fn name<'a>(approvals: impl Iterator<Item = (&'a Uid, &'a Approval)>) -> Digest {
    let mut hasher = Hasher::new("tideline/approvals/v1");
    for (object, Approval { target: _, expires, until: _, removals, releases }) in approvals {
        let count = i64::try_from(removals.len()).unwrap_or(i64::MAX);
        hasher.field(object.text().as_bytes()).number(*expires).number(count).number(i64::from(*releases));
        for Tombstone { key, source } in removals.iter() {
            for text in [&*key.kind.group, &*key.kind.kind, &*key.namespace, &*key.name, &*source.text()] {
                hasher.field(text.as_bytes());
            }
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests;
