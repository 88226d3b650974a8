//! What of a report is taken in: of what is the target's own affair, as much as it may say.
//!
//! | word about | is |
//! |---|---|
//! | an object that is assigned here, or whose removal is not confirmed | taken in |
//! | anything else that is held under this target's own mark | taken in without a status, at most as many as a set has |
//! | anything else | dropped: it was unassigned lately, or it is invented |
//!
//! What is longer than an honest agent writes is cut, and what is more than the target has room for is dropped; both are a
//! [`Breach`]. So whoever has an agent's key can say wrong things of that target's own objects, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use tideline_common::health::truncate;
use tideline_common::limits::{
    ASSOCIATED_BYTES_MAX, DESIRED_OBJECTS_MAX, MESSAGE_BYTES_MAX, REPORT_PAGE_OBJECTS_MAX, STATUS_BYTES_MAX,
    STATUS_LEVELS_MAX,
};
use tideline_common::wire::v1::{AssociatedReport, ObjectReport, Progress, ReportedRequest, TargetCondition};
use tideline_common::{GroupKind, ObjectKey, Reason, Tombstone, Uid, nesting};

use super::TargetReports;
use crate::limits::{REPORTED_BYTES_BASE, REPORTED_BYTES_PER_OBJECT};

/// Whether a target goes out of service, as the inventory has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    InPlace,
    Leaving,
}

/// What a target has to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    Assigned,
    /// It is to be removed there, which the target has not confirmed.
    Leaving,
    Nothing,
}

/// The objects of a target, as the ledger has them.
pub trait Scope {
    /// How many are assigned.
    fn assigned(&self) -> usize;

    fn concern(&self, key: &ObjectKey, source: &Uid) -> Concern;
}

/// In what an agent said more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breach {
    /// Words in one message, whether it tells or asks, or of one kind about one object.
    Words,
    /// Bytes of a text, a status, or counts; levels of a status.
    Size,
    /// Objects that it holds and nobody assigned.
    Held,
    /// Bytes of all that is kept of it.
    Bytes,
    /// Words about what does not concern it.
    Invented,
    /// Bytes of one message.
    Message,
    /// Requests in a time, or their bytes.
    Rate,
}

/// What is left of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Screened {
    pub report: ReportedRequest,
    /// What is assigned, and gone by this report.
    pub gone_while_assigned: Vec<ObjectKey>,
    /// Words that were dropped because nothing here concerns the target.
    pub dropped: usize,
    /// Removals that were confirmed, of what is not to be removed. They mean nothing.
    pub unfounded: usize,
    pub breaches: BTreeSet<Breach>,
}

/// Takes from a report what may be taken in, given what is known of the target already.
pub fn screen(
    scope: &impl Scope,
    service: Service,
    known: Option<TargetReports<'_>>,
    report: ReportedRequest,
) -> Screened {
    let mut screen = Screen {
        scope,
        known,
        held: known.map_or(0, TargetReports::held_count),
        bytes: known.map_or(0, TargetReports::bytes),
        bytes_max: REPORTED_BYTES_BASE + REPORTED_BYTES_PER_OBJECT * scope.assigned(),
        said: BTreeSet::new(),
        dropped: 0,
        unfounded: 0,
        breaches: BTreeSet::new(),
    };
    let mut report = report;
    screen.words(&mut report.objects);
    screen.words(&mut report.associated);
    screen.words(&mut report.removed);
    screen.words(&mut report.terminal);
    screen.words(&mut report.overtaken);
    screen.conditions(&mut report.conditions);
    report.decommission = report.decommission.filter(|_| service == Service::Leaving);
    report.objects.retain_mut(|object| screen.object(object));
    report.associated.retain(|made| screen.associated(made));
    let stands: BTreeSet<_> = report.objects.iter().map(|object| (&object.key, &object.source_uid)).collect();
    report.removed.retain(|removal| {
        let both = stands.contains(&(&removal.key, &removal.source));
        if both {
            screen.breaches.insert(Breach::Words);
        }
        !both && screen.removal(&removal.key, &removal.source)
    });
    let assigned = |removal: &&Tombstone| scope.concern(&removal.key, &removal.source) == Concern::Assigned;
    let gone_while_assigned = report.removed.iter().filter(assigned).map(|removal| removal.key.clone()).collect();
    report.terminal.retain(|fact| scope.concern(&fact.key, &fact.source_uid) != Concern::Nothing);
    report.overtaken.retain(|removal| screen.removal(&removal.key, &removal.source));
    let Screen { dropped, unfounded, breaches, .. } = screen;
    Screened { report, gone_while_assigned, dropped, unfounded, breaches }
}

struct Screen<'a, S> {
    scope: &'a S,
    known: Option<TargetReports<'a>>,
    held: usize,
    bytes: usize,
    bytes_max: usize,
    /// What this report has said so far.
    said: BTreeSet<(Kind, ObjectKey)>,
    dropped: usize,
    unfounded: usize,
    breaches: BTreeSet<Breach>,
}

/// What is said of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// How it does.
    Standing,
    /// What was made of it.
    Made,
}

impl<S: Scope> Screen<'_, S> {
    fn words<T>(&mut self, words: &mut Vec<T>) {
        if words.len() > REPORT_PAGE_OBJECTS_MAX {
            words.truncate(REPORT_PAGE_OBJECTS_MAX);
            self.breaches.insert(Breach::Words);
        }
    }

    /// What was said of a place before.
    fn said(&self, key: &ObjectKey) -> Option<&Arc<ObjectReport>> {
        self.known?.said(key)
    }

    /// What is kept of an object before this is said, and after it.
    fn weights(&self, report: &ObjectReport) -> (usize, usize) {
        self.known.map_or_else(|| (0, weight(report)), |known| known.weights(report))
    }

    /// Whether it is the first word about an object: an agent says one in a report. What room there is, is reckoned with what is
    /// known of the object from before.
    fn is_first(&mut self, kind: Kind, key: &ObjectKey) -> bool {
        let is_first = self.said.insert((kind, key.clone()));
        if !is_first {
            self.breaches.insert(Breach::Words);
        }
        is_first
    }

    /// One of each reason, as they are shown. What only the hub says of a target is not the agent's to say.
    fn conditions(&mut self, conditions: &mut Vec<TargetCondition>) {
        let mut seen = BTreeSet::new();
        conditions.retain_mut(|condition| {
            self.text(&mut condition.message);
            is_of_agents(condition.reason) && seen.insert(condition.reason)
        });
    }

    /// Whether something is to be removed there, or was said to stand there.
    fn removal(&mut self, key: &ObjectKey, source: &Uid) -> bool {
        let told = self.said(key).is_some_and(|object| object.source_uid == *source);
        match self.scope.concern(key, source) {
            Concern::Assigned | Concern::Leaving => true,
            Concern::Nothing => {
                self.unfounded += usize::from(!told);
                told
            }
        }
    }

    fn object(&mut self, object: &mut ObjectReport) -> bool {
        match self.scope.concern(&object.key, &object.source_uid) {
            Concern::Assigned | Concern::Leaving => {}
            Concern::Nothing if object.progress == Progress::DeletionHeld => {
                object.status = None;
                if key_bytes(&object.key) > KEY_BYTES_MAX {
                    self.breaches.insert(Breach::Size);
                    return false;
                }
                if !self.known.is_some_and(|known| known.is_held(&object.key)) {
                    if self.held >= DESIRED_OBJECTS_MAX {
                        self.breaches.insert(Breach::Held);
                        return false;
                    }
                    self.held += 1;
                }
            }
            Concern::Nothing => {
                self.dropped += 1;
                return false;
            }
        }
        if !self.is_first(Kind::Standing, &object.key) {
            return false;
        }
        self.text(&mut object.message);
        let too_large = |json: &str| json.len() > STATUS_BYTES_MAX || nesting(json) > STATUS_LEVELS_MAX;
        if object.status.as_ref().is_some_and(|status| too_large(status.get())) {
            self.breaches.insert(Breach::Size);
            without_status(object);
        }
        self.fits(object)
    }

    /// Whether there is room for it, if need be without its status. What is known of an object is heard to change, though a
    /// status that was said before still takes its room.
    fn fits(&mut self, object: &mut ObjectReport) -> bool {
        let (mut former, mut bytes) = self.weights(object);
        if !self.has_room(former, bytes) {
            self.breaches.insert(Breach::Bytes);
            without_status(object);
            (former, bytes) = self.weights(object);
        }
        let is_known = self.said(&object.key).is_some_and(|known| known.source_uid == object.source_uid);
        let stays = bytes > weight(object);
        self.takes(if is_known && stays { former.max(bytes) } else { former }, bytes)
    }

    /// Whether a word may have so many bytes where its former one had these. There is less room as soon as less is assigned, and
    /// what was said until then is kept: so what is no longer than before always has room.
    fn has_room(&self, former: usize, bytes: usize) -> bool {
        bytes <= former || self.bytes.saturating_sub(former) + bytes <= self.bytes_max
    }

    fn takes(&mut self, former: usize, bytes: usize) -> bool {
        let fits = self.has_room(former, bytes);
        if fits {
            self.bytes = self.bytes.saturating_sub(former) + bytes;
        }
        fits
    }

    fn associated(&mut self, made: &AssociatedReport) -> bool {
        match self.scope.concern(&made.key, &made.source_uid) {
            Concern::Assigned | Concern::Leaving => {}
            Concern::Nothing => {
                self.dropped += 1;
                return false;
            }
        }
        if !self.is_first(Kind::Made, &made.key) {
            return false;
        }
        let bytes = made_weight(made);
        if bytes > ASSOCIATED_BYTES_MAX + OVERHEAD_BYTES {
            self.breaches.insert(Breach::Size);
            return false;
        }
        let fits = self.takes(self.known.map_or(0, |known| known.made_weight(&made.key)), bytes);
        if !fits {
            self.breaches.insert(Breach::Bytes);
        }
        fits
    }

    fn text(&mut self, text: &mut String) {
        if text.len() > MESSAGE_BYTES_MAX {
            truncate(text, MESSAGE_BYTES_MAX);
            self.breaches.insert(Breach::Size);
        }
    }
}

/// Whether an agent gives this reason for its target as a whole: what it makes of the hub's answers and of its own disk, what
/// stands in its cluster and waits there, and why a kind cannot be watched, which its API server says.
fn is_of_agents(reason: Reason) -> bool {
    match reason {
        Reason::HistoryLost
        | Reason::TooLarge
        | Reason::WaitingForWave
        | Reason::Copy
        | Reason::Unavailable
        | Reason::Forbidden
        | Reason::KindMissing
        | Reason::NamespaceUnavailable
        | Reason::Conflict
        | Reason::FieldConflict
        | Reason::Invalid
        | Reason::Immutable
        | Reason::Denied
        | Reason::Webhook
        | Reason::Throttled
        // Also what a newer one calls otherwise.
        | Reason::Unknown => true,
        Reason::Settling
        | Reason::NotAllowed
        | Reason::SourceUnreadable
        | Reason::Undecodable
        | Reason::AgentTooOld
        | Reason::NoTargets
        | Reason::NoObjects
        | Reason::Unmanaged
        | Reason::Drifted
        | Reason::BodyMissing
        | Reason::MayHaveRun
        | Reason::Vanished
        | Reason::OtherNamespace
        | Reason::Finalizing
        | Reason::NotEmpty
        | Reason::FuseHeld
        | Reason::Restored
        | Reason::Stale
        | Reason::Fenced
        | Reason::DuplicateAgent
        | Reason::Quarantined
        | Reason::TargetGone
        | Reason::TooMuchReported
        | Reason::ClockImplausible
        | Reason::StatusPinned
        | Reason::StatusTooLarge
        | Reason::Ready
        | Reason::Progressing
        | Reason::Failed
        | Reason::Suspended => false,
    }
}

fn without_status(object: &mut ObjectReport) {
    if object.status.take().is_some() {
        object.reason = object.reason.or(Some(Reason::StatusTooLarge));
    }
}

/// Bytes that keeping one word costs besides its texts: the struct, its places in maps, and what the allocator adds.
const OVERHEAD_BYTES: usize = 384;
/// The same of a status of which only the size is kept.
const LEFT_OVERHEAD_BYTES: usize = 256;

/// Bytes that a word is kept in, about.
pub(super) fn weight(object: &ObjectReport) -> usize {
    OVERHEAD_BYTES + 2 * key_bytes(&object.key) + object.message.len() + status_bytes(object)
}

/// None where there is no status.
pub(super) fn status_bytes(object: &ObjectReport) -> usize {
    object.status.as_ref().map_or(0, |status| status.get().len())
}

/// Bytes that a status is counted as which no word says any more, with its places in maps. None where there is no status.
pub(super) fn left_weight(object: &ObjectReport) -> usize {
    object.status.as_ref().map_or(0, |status| LEFT_OVERHEAD_BYTES + key_bytes(&object.key) + status.get().len())
}

pub(super) fn made_weight(made: &AssociatedReport) -> usize {
    let counts = made.made.values().map(|made| serde_json::to_vec(made).map_or(0, |bytes| bytes.len()));
    OVERHEAD_BYTES + key_bytes(&made.key) + counts.sum::<usize>()
}

/// Bytes of the names in a key: of an object, its namespace, group and kind, which Kubernetes bounds by 253 each.
const KEY_BYTES_MAX: usize = 4 * 253;

fn key_bytes(key: &ObjectKey) -> usize {
    let ObjectKey { kind: GroupKind { group, kind }, namespace, name } = key;
    group.len() + kind.len() + namespace.len() + name.len()
}

#[cfg(test)]
mod tests;
