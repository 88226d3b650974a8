//! Associated objects, where a Placement asks for them: which kinds are watched for that, their counts, and when those are
//! reported.
//!
//! ```text
//!  entries, what stands in their place ─▶ wanted ─▶ Effect::Follow
//!                                            │
//!  Followed: Listing, Seen, Gone, Listed ─▶ aggregate ─▶ due, at most every 30 seconds ─▶ report
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::associated::Made;
use tideline_common::wire::v1::{AssociatedReport, TargetCondition};
use tideline_common::{AssociatedKind, Digest, Monotonic, ObjectKey, Reason, Uid};

use super::rate::Rate;
use crate::core::Core;
use crate::core::counts::Counts;
use crate::core::interface::effect::{Depth, Effect, Effects, Follow, Timer};
use crate::core::interface::event::AssociatedNews;
use crate::core::model::Model;

mod aggregate;
mod wanted;

use aggregate::{Aggregate, KEPT_MAX, Touched};
use wanted::{follows, is_link};

/// Between two reports of counts of one object, however often they change: a Pod that crashes all the time makes two reports
/// in a minute, of less than a kilobyte each.
const SAY_EVERY_SECONDS: u64 = 30;
/// Between two lists of a kind that are made because something was asked for late.
const LIST_EVERY: Duration = Duration::from_mins(1);
/// What nobody asks for any more is dropped after so long, all at once.
const SWEEP_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(in crate::core) struct Associates {
    aggregate: Aggregate,
    /// How many policies want each kind, and for how much of it.
    needs: Counts<(AssociatedKind, Depth)>,
    /// How many there are in each namespace.
    namespaces: Counts<Arc<str>>,
    watches: BTreeMap<AssociatedKind, Watch>,
    changed: bool,
    /// Objects to evaluate again.
    told_of: BTreeSet<ObjectKey>,
    /// Kinds of which objects may exist that were seen before they were asked for.
    missed: BTreeSet<AssociatedKind>,
    /// Objects for which a kind was watched before they asked for it, and the last watch by then: what was made of them counts
    /// once a later one has listed it. At most one for each object and kind.
    behind: BTreeMap<ObjectKey, BTreeMap<AssociatedKind, u32>>,
    list_at: Option<Monotonic>,
    sweep_at: Option<Monotonic>,
    /// The objects whose counts were reported lately, and those with changes.
    rate: Rate<Arc<ObjectKey>, (), SAY_EVERY_SECONDS>,
    told: BTreeMap<ObjectKey, ReportedCounts>,
    runs: u32,
    timer: Option<Monotonic>,
}

/// What the hub acknowledged, and for which source; no digest if it may have forgotten.
#[derive(Clone, Debug)]
struct ReportedCounts {
    source: Uid,
    digest: Option<Digest>,
}

#[derive(Debug)]
struct Watch {
    follow: Follow,
    view: View,
}

#[derive(Debug)]
enum View {
    Unlisted,
    Current,
    /// The last counts still hold, until it is listed again.
    Lost(Reason, String),
    /// It may not be watched, or is not served, so that nothing is known.
    Refused(Reason, String),
}

impl Associates {
    fn need(&mut self, key: &ObjectKey, follows: &wanted::Wanted) {
        for (kind, depth) in follows {
            self.needs.up((*kind, *depth));
        }
        self.namespaces.up(Arc::clone(&key.namespace));
        self.changed = true;
    }

    fn unneed(&mut self, key: &ObjectKey, follows: &wanted::Wanted) {
        for (kind, depth) in follows {
            self.needs.down(&(*kind, *depth));
        }
        self.namespaces.down(&key.namespace);
        self.changed = true;
    }

    /// Whether an object's counts of a kind are complete: that kind was listed since it was asked for, and those on the way to
    /// it.
    fn is_known(&self, key: &ObjectKey, kind: AssociatedKind, follows: &wanted::Wanted) -> bool {
        let is_leaf = kind == AssociatedKind::Pods;
        let links = follows.keys().filter(|link| is_leaf && is_link(**link));
        let behind = self.behind.get(key);
        links.chain([&kind]).all(|kind| {
            let listed =
                self.watches.get(kind).is_some_and(|watch| matches!(watch.view, View::Current | View::Lost(..)));
            listed && !behind.is_some_and(|behind| behind.contains_key(kind))
        })
    }

    /// These kinds were watched before this object asked for them: they are listed again, and known of it then.
    fn miss(&mut self, key: &ObjectKey, kinds: impl IntoIterator<Item = AssociatedKind>) {
        for kind in kinds {
            self.missed.insert(kind);
            self.behind.entry(key.clone()).or_default().insert(kind, self.runs);
        }
    }

    /// The watches from now on, if they differ from the present ones.
    fn take_change(&mut self, now: Monotonic) -> Option<BTreeMap<AssociatedKind, Follow>> {
        if self.aggregate.take_room() {
            self.missed.extend(self.watches.keys());
        }
        let lists = !self.missed.is_empty() && self.list_at.is_none_or(|at| at <= now);
        if !std::mem::take(&mut self.changed) && !lists {
            return None;
        }
        let namespace = match self.namespaces.keys().next() {
            Some(only) if self.namespaces.len() == 1 && !only.is_empty() => Some(Arc::clone(only)),
            Some(_) | None => None,
        };
        let mut wanted: BTreeMap<AssociatedKind, Depth> = BTreeMap::new();
        for (kind, depth) in self.needs.keys() {
            let known = wanted.entry(*kind).or_insert(*depth);
            *known = (*known).max(*depth);
        }
        let mut news = false;
        for kind in self.watches.keys().copied().filter(|kind| !wanted.contains_key(kind)).collect::<Vec<_>>() {
            self.watches.remove(&kind);
            self.aggregate.stop(kind);
            news = true;
        }
        for (kind, depth) in wanted {
            let same = |watch: &Watch| watch.follow.depth == depth && watch.follow.namespace == namespace;
            let again = lists && self.missed.contains(&kind);
            if !again && self.watches.get(&kind).is_some_and(same) {
                continue;
            }
            // A list that only repeats what the watch followed takes nothing from what is known, and may fail. Of a watch that
            // shows more, or elsewhere, nothing is known before its first list.
            let former = self.watches.remove(&kind).filter(same);
            self.runs += 1;
            let follow = Follow { depth, namespace: namespace.clone(), run: self.runs };
            self.watches.insert(kind, Watch { follow, view: former.map_or(View::Unlisted, |former| former.view) });
            self.missed.remove(&kind);
            news = true;
        }
        if lists {
            self.missed.clear();
            self.list_at = Some(now + LIST_EVERY);
        }
        news.then(|| self.watches.iter().map(|(kind, watch)| (*kind, watch.follow.clone())).collect())
    }

    /// Counts of an object changed: they are reported now, or when the interval is over.
    fn touch(&mut self, key: &Arc<ObjectKey>, now: Monotonic) {
        if self.aggregate.follows(key).is_none() {
            return;
        }
        self.rate.news(now, Arc::clone(key));
    }

    /// Whether the hub has counts of it.
    pub(super) fn has_told(&self, key: &ObjectKey) -> bool {
        self.told.contains_key(key)
    }

    /// The kinds that cannot be watched, counted by reason, with one of them named.
    pub(super) fn conditions(&self) -> Vec<TargetCondition> {
        let mut conditions: BTreeMap<Reason, TargetCondition> = BTreeMap::new();
        for (kind, watch) in &self.watches {
            if let View::Lost(reason, message) | View::Refused(reason, message) = &watch.view {
                let condition = conditions.entry(*reason).or_insert_with(|| TargetCondition {
                    reason: *reason,
                    count: 0,
                    message: format!("cannot watch {kind}, which a Placement asks to count: {message}"),
                });
                condition.count += 1;
            }
        }
        if self.aggregate.is_overflown() {
            let message = format!("more than {KEPT_MAX} objects belong to what is placed; counts of them are too low");
            conditions.insert(Reason::TooLarge, TargetCondition { reason: Reason::TooLarge, count: 1, message });
        }
        conditions.into_values().collect()
    }

    /// Counts of it are sent; unknown counts are not.
    pub(in crate::core) fn said(&mut self, now: Monotonic, key: &ObjectKey) {
        self.rate.said(now, Arc::new(key.clone()), ());
    }

    pub(in crate::core) fn timer_fired(&mut self) {
        self.timer = None;
    }

    /// A foreign object is adopted: its associated objects were seen before.
    pub(in crate::core) fn adopted(&mut self, key: &ObjectKey) {
        if let Some(follows) = self.aggregate.follows(key)
            && !self.aggregate.is_bound(key)
        {
            let kinds: Vec<_> = follows.keys().copied().collect();
            self.miss(key, kinds);
        }
    }

    /// The counts of one object, if they are news to the hub.
    pub(in crate::core) fn report(&self, model: &Model, key: &ObjectKey) -> Option<(AssociatedReport, Digest)> {
        let told = self.told.get(key);
        let made = self.made(key);
        let source = match model.desired.get(key) {
            Some(entry) if made.is_some() => entry.source.uid.clone(),
            // The hub has counts of a kind that is not followed any more.
            Some(_) | None => told?.source.clone(),
        };
        let report = AssociatedReport { key: key.clone(), source_uid: source, made: made.unwrap_or_default() };
        let digest = Digest::of(&serde_json::to_vec(&report).unwrap_or_default());
        let news = told.is_none_or(|told| told.digest != Some(digest));
        // Nothing is known, and the hub was told nothing else.
        let empty = report.made.is_empty() && told.is_none();
        (news && !empty).then_some((report, digest))
    }

    /// Everything that is asked for and known; nothing that is not followed.
    fn made(&self, key: &ObjectKey) -> Option<BTreeMap<AssociatedKind, Made>> {
        let follows = self.aggregate.follows(key)?;
        let mut found = self.aggregate.made(key);
        let asked = follows.iter().filter(|(_, depth)| **depth == Depth::Whole).map(|(kind, _)| *kind);
        let known = asked.filter(|kind| self.is_known(key, *kind, follows));
        Some(known.map(|kind| (kind, found.remove(&kind).unwrap_or_default())).collect())
    }

    /// The hub has a report, or may have it.
    pub(in crate::core) fn said_to_hub(&mut self, key: ObjectKey, source: Uid, digest: Option<Digest>) {
        if self.aggregate.follows(&key).is_none() && digest.is_some() {
            self.told.remove(&key);
        } else {
            self.told.insert(key, ReportedCounts { source, digest });
        }
    }

    pub(in crate::core) fn followed(&mut self, now: Monotonic, kind: AssociatedKind, run: u32, news: AssociatedNews) {
        let Some(watch) = self.watches.get_mut(&kind).filter(|watch| watch.follow.run == run) else {
            // Of a watch that was ended.
            return;
        };
        let mut touched = Touched::new();
        let aggregate = &mut self.aggregate;
        match news {
            AssociatedNews::Listing => aggregate.listing(kind),
            AssociatedNews::Seen(associates) => {
                for associate in associates {
                    aggregate.seen(kind, associate, &mut touched);
                }
            }
            AssociatedNews::Gone(uid) => aggregate.gone(kind, &uid, &mut touched),
            AssociatedNews::Listed => {
                aggregate.listed(kind, &mut touched);
                touched.extend(caught_up(&mut self.behind, kind, run));
                if !matches!(std::mem::replace(&mut watch.view, View::Current), View::Current) {
                    touched.extend(all_of(aggregate, kind));
                }
            }
            AssociatedNews::Unwatched { message } => {
                aggregate.listed(kind, &mut touched);
                touched.extend(caught_up(&mut self.behind, kind, run));
                let view = std::mem::replace(&mut watch.view, View::Lost(Reason::Forbidden, message));
                if matches!(view, View::Unlisted | View::Refused(..)) {
                    touched.extend(all_of(aggregate, kind));
                }
            }
            AssociatedNews::Lost { reason: reason @ (Reason::Forbidden | Reason::KindMissing), message } => {
                if !matches!(std::mem::replace(&mut watch.view, View::Refused(reason, message)), View::Refused(..)) {
                    touched.extend(all_of(aggregate, kind));
                }
            }
            AssociatedNews::Lost { reason, message } => match watch.view {
                View::Unlisted | View::Refused(..) => watch.view = View::Refused(reason, message),
                View::Current | View::Lost(..) => watch.view = View::Lost(reason, message),
            },
        }
        for key in touched {
            self.touch(&key, now);
        }
    }

    /// Something about an entry changed, or about the object under its key.
    pub(in crate::core) fn update(&mut self, model: &Model, key: &ObjectKey) {
        if self.aggregate.follows(key).is_some() || asked(model, key).is_some() {
            self.told_of.insert(key.clone());
        }
    }
}

/// This watch has listed a kind. Returns the objects of which that is known by that.
fn caught_up(
    behind: &mut BTreeMap<ObjectKey, BTreeMap<AssociatedKind, u32>>,
    kind: AssociatedKind,
    run: u32,
) -> Vec<Arc<ObjectKey>> {
    let mut known = Vec::new();
    behind.retain(|key, kinds| {
        if kinds.get(&kind).is_some_and(|before| *before < run) {
            kinds.remove(&kind);
            known.push(Arc::new(key.clone()));
        }
        !kinds.is_empty()
    });
    known
}

impl Core {
    /// Follows the present policy for the present object.
    fn associate(&mut self, now: Monotonic, key: &ObjectKey) {
        let follows =
            asked(&self.model, key).map(|asked| follows(&key.kind, asked)).filter(|follows| !follows.is_empty());
        let former = self.reporting.associates.aggregate.follows(key).cloned();
        match (former, follows) {
            (None, None) => return,
            (Some(former), None) => return self.dismiss(now, key, &former),
            (Some(former), Some(follows)) if former == follows => {}
            (former, Some(follows)) => {
                if let Some(former) = &former {
                    self.reporting.associates.unneed(key, former);
                }
                self.reporting.associates.need(key, &follows);
                // Associated objects that exist already were seen before anybody asked for them.
                let there = self
                    .model
                    .objects
                    .get(key)
                    .is_some_and(|object| object.seen().is_some() || object.record.is_some());
                if there {
                    let followed = |kind| former.as_ref().is_some_and(|former| former.contains_key(kind));
                    let watched = |kind: &&AssociatedKind| self.reporting.associates.watches.contains_key(kind);
                    let missed: Vec<_> =
                        follows.keys().filter(watched).filter(|kind| !followed(kind)).copied().collect();
                    self.reporting.associates.miss(key, missed);
                }
                if former.is_some() {
                    self.reporting.associates.sweep_at.get_or_insert(now + SWEEP_AFTER);
                }
                self.reporting.associates.aggregate.ask(key, follows);
            }
        }
        let uid = self.model.uid_of_ours(key);
        if self.reporting.associates.aggregate.bind(key, uid.as_ref()) {
            self.reporting.associates.touch(&Arc::new(key.clone()), now);
        }
    }

    fn dismiss(&mut self, now: Monotonic, key: &ObjectKey, former: &wanted::Wanted) {
        self.reporting.associates.unneed(key, former);
        self.reporting.associates.aggregate.dismiss(key);
        self.reporting.associates.behind.remove(key);
        self.reporting.associates.rate.forget(key);
        self.reporting.associates.sweep_at.get_or_insert(now + SWEEP_AFTER);
        if self.reporting.associates.told.contains_key(key) {
            self.reporting.reports.associated(key, now);
        }
    }

    /// Updates watches, drops what is no longer asked for, reports what is due, and schedules the next.
    pub(in crate::core) fn flush_associated(&mut self, now: Monotonic, out: &mut Effects) {
        for key in std::mem::take(&mut self.reporting.associates.told_of) {
            self.associate(now, &key);
        }
        if self.reporting.associates.sweep_at.is_some_and(|at| at <= now) {
            self.reporting.associates.sweep_at = None;
            self.reporting.associates.aggregate.sweep();
        }
        if let Some(follow) = self.reporting.associates.take_change(now) {
            out.push(Effect::Follow(follow));
        }
        for key in self.reporting.associates.rate.take(now, self.phase) {
            self.reporting.reports.associated(&key, now);
        }
        let due = self.reporting.associates.rate.next_due();
        let list = self.reporting.associates.list_at.filter(|_| !self.reporting.associates.missed.is_empty());
        let next = [due, list, self.reporting.associates.sweep_at].into_iter().flatten().min();
        if let Some(at) = next
            && self.reporting.associates.timer != Some(at)
        {
            self.reporting.associates.timer = Some(at);
            out.push(Effect::SetTimer { timer: Timer::Associated, at });
        }
    }

    /// The hub forgot what it was told, or another session began.
    pub(in crate::core) fn repeat_associated(&mut self, now: Monotonic) {
        let Associates { aggregate, told, .. } = &mut self.reporting.associates;
        told.retain(|key, _| aggregate.follows(key).is_some());
        for told in told.values_mut() {
            told.digest = None;
        }
        for (key, _) in aggregate.roots() {
            self.reporting.reports.associated(key, now);
        }
    }
}

/// What a Placement asks to be counted of an object.
fn asked<'a>(model: &'a Model, key: &ObjectKey) -> Option<&'a BTreeSet<AssociatedKind>> {
    // An excluded namespace is never read: nothing is known of such an object, nor of what was made of it.
    if !model.kinds.keeps(key) {
        return None;
    }
    let policy = model.policies.get(&model.desired.get(key)?.policy)?;
    Some(&policy.associated).filter(|asked| !asked.is_empty())
}

/// Every object for which a kind is followed.
fn all_of(aggregate: &Aggregate, kind: AssociatedKind) -> Vec<Arc<ObjectKey>> {
    aggregate.roots().filter(|(_, follows)| follows.contains_key(&kind)).map(|(key, _)| Arc::clone(key)).collect()
}

#[cfg(test)]
mod tests;
