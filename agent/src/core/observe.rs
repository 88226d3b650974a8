//! What is known of each object, and how it follows from what the cluster says.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_common::health::Health;
use tideline_common::wire::v1::{Progress, Terminal};
use tideline_common::{Digest, GroupKind, Mark, Monotonic, ObjectKey, Ownership, Reason, Uid};

use super::Core;
use super::drift::Drift;
use super::effect::{AppliedRecord, OpId, SurveyId};
use super::event::{Details, Observed, Served, Sighting};
use super::kinds::View;
use super::remove::JournalAge;

/// One place at the cluster: assigned, or ours, or to be removed.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) record: Option<AppliedRecord>,
    /// Writes of the record that are not on disk yet; what they say is not reported before.
    pub(super) unrecorded: u32,
    /// What the watch, or a write after it, showed.
    pub(super) seen: Option<Seen>,
    /// What a read, or a creation, found in its place: good for one decision, and until anything else is heard of it or done
    /// to it.
    pub(super) probe: Option<Seen>,
    /// A write found something else than was seen there; the next creation finds out what.
    pub(super) doubted: bool,
    /// A creation has found something there, or has ended without a word of what it did, and no list or watch has shown since
    /// what stands there. So that they show nothing does not say that nothing does.
    pub(super) unshown: bool,
    pub(super) flight: Option<OpId>,
    /// The present entry was tried, well or not.
    pub(super) tried: bool,
    /// The wave under which it is in the queue.
    pub(super) queued: Option<i32>,
    pub(super) failures: u32,
    pub(super) retry_at: Option<Monotonic>,
    /// Corrections in a row, and when the last was made: somebody may be undoing them.
    pub(super) corrections: (u32, Monotonic),
    pub(super) outcome: Outcome,
    /// Something that happened once, and for which source.
    pub(super) terminal: Option<(Uid, Terminal)>,
    pub(super) live: Live,
    /// The survey that sighted it last.
    pub(super) sighted: SurveyId,
    /// In what it differs from what was applied, where that is only to be reported.
    pub(super) drift: Option<Box<Drift>>,
    /// What the hub acknowledged last.
    pub(super) told: Option<Told>,
    /// The hub may have been told that it stands there for this source, and that nothing says why.
    pub(super) unexplained: Option<Uid>,
}

/// How the last try went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) progress: Progress,
    pub(super) reason: Option<Reason>,
    pub(super) message: String,
}

impl Default for Outcome {
    fn default() -> Self {
        Self { progress: Progress::Pending, reason: None, message: String::new() }
    }
}

/// What is reported of the live object.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) health: Health,
    pub(super) message: String,
    /// The source generation that the status is about.
    pub(super) observed_generation: Option<i64>,
    pub(super) status: Status,
}

#[derive(Debug, Default)]
pub(super) enum Status {
    #[default]
    None,
    Known(Arc<RawValue>),
    /// Reported and dropped, or not to be read so often in a row. It is read again if a report is due for another reason, or
    /// if the hub knows nothing of the object.
    Dropped {
        failed: u8,
    },
    /// Being read again.
    Awaited {
        failed: u8,
    },
    /// It could not be read, often or before the hub knew anything of the object: it is told without it, before that is tried
    /// again.
    Unreadable {
        failed: u8,
    },
}

/// A report by its digests, cut to 64 bits: that a change is taken for none happens once in 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) facts: u64,
    pub(super) status: Option<u64>,
}

/// What decisions are made from.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) uid: Uid,
    pub(super) resource_version: Arc<str>,
    pub(super) generation: i64,
    pub(super) managed: Option<Digest>,
    pub(super) mark: Option<Arc<Mark>>,
    pub(super) labelled: bool,
    pub(super) deleting: bool,
    pub(super) managed_elsewhere: bool,
    pub(super) observed_generation: Option<i64>,
    /// Which fields others manage. Known as long as some are left to them.
    pub(super) others: Option<Digest>,
}

impl From<&Observed> for Seen {
    fn from(observed: &Observed) -> Self {
        Self {
            uid: observed.uid.clone(),
            resource_version: Arc::clone(&observed.resource_version),
            generation: observed.generation,
            managed: observed.managed,
            mark: observed.mark.clone(),
            labelled: observed.labelled,
            deleting: observed.deleting,
            managed_elsewhere: observed.managed_elsewhere,
            observed_generation: observed.observed_generation,
            others: observed.others,
        }
    }
}

impl Seen {
    /// None if the details cannot be read.
    pub(super) fn of_sighting(sighting: &Sighting) -> Option<Self> {
        let Details { generation, managed, mark, deleting, managed_elsewhere, others } = sighting.details()?.clone();
        Some(Self {
            uid: sighting.uid.clone(),
            resource_version: Arc::clone(&sighting.resource_version),
            generation,
            managed,
            mark,
            labelled: sighting.labelled,
            deleting,
            managed_elsewhere,
            observed_generation: None,
            others,
        })
    }

    /// Whether a decision could differ; a change of status alone makes no difference.
    fn decides_like(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.generation == other.generation
            && self.managed == other.managed
            && self.labelled == other.labelled
            && self.deleting == other.deleting
            && self.mark == other.mark
    }

    /// Whether this is an earlier state of the same object. Resource versions of one object are comparable where they
    /// are decimal numbers (KEP-5504); where they are not, what comes later is taken to be later.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.uid == other.uid && self.is_before(&other.resource_version)
    }

    /// Whether this is from before a resource version of the same object.
    pub(super) fn is_before(&self, version: &str) -> bool {
        let number = |version: &str| version.parse::<u128>().ok();
        number(&self.resource_version).zip(number(version)).is_some_and(|(this, other)| this < other)
    }
}

impl Core {
    pub(super) fn kind_served(&mut self, now: Monotonic, kind: &GroupKind, served: Served) {
        if self.kinds.served(kind, served) {
            if served == Served::No {
                self.unsee(kind, |_| true);
                self.copies.listed(kind, &BTreeSet::new());
            }
            self.enqueue_kind(now, kind);
        }
    }

    pub(super) fn watch_lost(&mut self, now: Monotonic, kind: &GroupKind, reason: Reason, message: String) {
        let unlisted = self.kinds.view_of(kind) == View::Unlisted;
        let blinded = reason == Reason::Forbidden && !self.kinds.is_forbidden(kind);
        self.kinds.lost(kind, reason, message);
        for key in self.keys_of(kind) {
            self.fold_if_many();
            if blinded {
                self.dirty(&key, now);
            }
            // The list that was to bring its status does not come.
            if let Some(object) = self.objects.get_mut(&key)
                && let Status::Awaited { failed } = object.live.status
            {
                object.live.status = Status::Dropped { failed };
                self.dirty(&key, now);
            }
        }
        if unlisted {
            self.enqueue_kind(now, kind);
        }
    }

    pub(super) fn listed(&mut self, now: Monotonic, kind: &GroupKind, objects: Vec<Observed>) {
        if !self.kinds.is_needed(kind) {
            return;
        }
        self.kinds.listed(kind);
        let before = self.restored.has_listed(kind);
        let listed: BTreeSet<ObjectKey> = objects.iter().map(|observed| observed.key.clone()).collect();
        self.unsee(kind, |key| !listed.contains(key));
        self.copies.listed(kind, &listed);
        for observed in objects {
            self.take_in(now, observed, before);
        }
        self.restored.listed(kind);
        self.enqueue_kind(now, kind);
    }

    pub(super) fn observed(&mut self, now: Monotonic, observed: Observed) {
        let listed = self.restored.has_listed(&observed.key.kind);
        self.take_in(now, observed, listed);
    }

    /// A list or a watch shows an object. `listed` says that everything of its kind was looked at before.
    fn take_in(&mut self, now: Monotonic, observed: Observed, listed: bool) {
        let key = observed.key.clone();
        if !self.kinds.is_needed(&key.kind) {
            return;
        }
        let ownership = self.me().zip(observed.mark.as_ref()).map(|(me, mark)| mark.ownership(me, &key));
        if ownership == Some(Ownership::Copy) {
            self.copies.found(&key, &observed.uid);
        } else {
            self.copies.cleared(&key);
        }
        // Copies and strangers that only carry our label are none of our business otherwise.
        if ownership != Some(Ownership::Ours) && !self.objects.contains_key(&key) {
            return;
        }
        self.may_have_come_back(&key, &observed.uid, observed.mark.as_deref(), listed);
        let news = self.see(&key, observed);
        let waits = self.objects.get(&key).is_some_and(|object| object.retry_at.is_some());
        // What waits for its retry is not tried sooner because its status changes.
        if news || !waits {
            self.enqueue(&key);
        }
        self.dirty(&key, now);
        if key.kind.is("", "Namespace") {
            self.wake_namespace(&key.name);
        }
    }

    /// Takes a look at an object into account, unless a later one was. Returns whether it could change a decision.
    pub(super) fn see(&mut self, key: &ObjectKey, observed: Observed) -> bool {
        let source = self.desired.get(key).map(|entry| entry.source.uid.clone());
        let set_back = self.shows_set_back(key, observed.mark.as_deref());
        let object = self.objects.at(key);
        let seen = Seen::from(&observed);
        if object.seen.as_ref().is_some_and(|former| seen.is_older_than(former)) {
            return false;
        }
        let news = !object.seen.as_ref().is_some_and(|former| former.decides_like(&seen));
        if object.probe.as_ref().is_some_and(|probe| probe.is_older_than(&seen)) {
            object.probe = None;
        }
        object.seen = Some(seen);
        object.doubted = false;
        object.unshown = false;
        if set_back {
            self.journal_age = JournalAge::SetBack;
        }
        object.live.health = observed.health;
        object.live.message = observed.health_message;
        object.live.status = observed.status.map_or(Status::None, Status::Known);
        object.translate_generation();
        self.tell_gates(key);
        self.tell_associates(key);
        self.undoubt(key);
        let source = observed.mark.as_ref().map(|mark| mark.source.uid.clone()).or(source);
        if let Some((source, fact)) = source.zip(observed.terminal) {
            self.note_terminal(key, source, fact);
        }
        news
    }

    /// The same of an object that was read, whatever its labels. What is not ours any more is not kept: no watch would tell of
    /// its end.
    pub(super) fn look_at(&mut self, key: &ObjectKey, observed: Observed) {
        let known = self.objects.get(key).is_some_and(|object| object.record.is_some());
        if observed.labelled || known {
            self.see(key, observed);
        } else if let Some(object) = self.objects.get_mut(key) {
            object.unsee();
        }
    }

    pub(super) fn vanished(&mut self, now: Monotonic, key: &ObjectKey, uid: &Uid) {
        self.copies.vanished(key, uid);
        if self.restored.is(key, uid) {
            self.came_back_no_more(key);
        }
        let Some(object) = self.objects.get_mut(key) else { return };
        if object.probe.as_ref().is_some_and(|probe| probe.uid == *uid) {
            object.probe = None;
        }
        if object.seen.as_ref().is_some_and(|seen| seen.uid == *uid) {
            object.unsee();
            self.tell_gates(key);
            self.tell_associates(key);
            self.enqueue(key);
            self.dirty(key, now);
            self.forget_if_empty(key);
        }
    }

    /// Every key of a kind of which something is known, in order.
    pub(super) fn keys_of(&self, kind: &GroupKind) -> Vec<ObjectKey> {
        let from = ObjectKey::new(kind.clone(), "", "");
        self.objects.keys_from(&from).take_while(|key| key.kind == *kind).cloned().collect()
    }

    fn unsee(&mut self, kind: &GroupKind, gone: impl Fn(&ObjectKey) -> bool) {
        for key in self.keys_of(kind) {
            if gone(&key) {
                self.fold_if_many();
                self.came_back_no_more(&key);
                if let Some(object) = self.objects.get_mut(&key) {
                    object.unsee();
                }
                self.tell_gates(&key);
                self.tell_associates(&key);
                self.forget_if_empty(&key);
            }
        }
    }

    fn enqueue_kind(&mut self, now: Monotonic, kind: &GroupKind) {
        for key in self.keys_of(kind) {
            self.enqueue(&key);
            self.dirty(&key, now);
        }
    }
}

impl Object {
    /// What is known to stand there is not believed any more, until it is looked at.
    pub(super) fn doubt(&mut self) {
        self.unsee();
        self.doubted = true;
    }

    /// What happened once to it, as this source's.
    pub(super) fn happened(&self, source: &Uid) -> Option<Terminal> {
        self.terminal.as_ref().filter(|(of, _)| of == source).map(|(_, fact)| *fact)
    }

    /// Under which wave it is in the queue and what the hub was told, if nothing else is known of it.
    pub(super) fn blank(&self) -> Option<(Option<i32>, Option<Told>)> {
        let Self {
            record: None,
            unrecorded: 0,
            seen: None,
            probe: None,
            doubted: false,
            unshown: false,
            flight: None,
            tried: false,
            queued,
            failures: 0,
            retry_at: None,
            corrections: (0, Monotonic::START),
            outcome: Outcome { progress: Progress::Pending, reason: None, message },
            terminal: None,
            live: Live { health: Health::Unknown, message: said, observed_generation: None, status: Status::None },
            sighted: SurveyId(0),
            drift: None,
            told,
            unexplained: None,
        } = self
        else {
            return None;
        };
        (message.is_empty() && said.is_empty()).then_some((*queued, *told))
    }

    /// Whether the object of this UID is what was seen here, or what the journal knows.
    pub(super) fn is_known_as(&self, uid: &Uid) -> bool {
        let seen = self.seen.as_ref().map(|seen| &seen.uid);
        let recorded = self.record.as_ref().map(|record| &record.uid);
        seen == Some(uid) || recorded == Some(uid)
    }

    pub(super) fn unsee(&mut self) {
        self.seen = None;
        self.live = Live { observed_generation: self.live.observed_generation, ..Live::default() };
    }

    /// The local controller has seen our last apply: what it says now is about that source generation.
    pub(super) fn translate_generation(&mut self) {
        if let (Some(record), Some(seen)) = (&self.record, &self.seen)
            && record.uid == seen.uid
            && seen.observed_generation.is_some_and(|observed| observed >= record.generation)
        {
            self.live.observed_generation = Some(record.source_generation);
        }
    }
}
