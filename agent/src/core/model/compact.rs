//! A place at which nothing is under way, as little as can be kept of it: what follows from the entry that it was written
//! from, or is to be written from, is not kept again.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_common::health::Health;
use tideline_common::wire::v1::{Progress, Terminal};
use tideline_common::{Digest, Entry, EntryState, Mark, Monotonic, Origin, Prune, PruneAdopted, Reason, Uid};
use uuid::Uuid;

use super::live_status::{LiveStatus, Status};
use super::object::{Live, Me, Object, Outcome, ReportDigest};
use super::presence::Presence;
use super::seen::Seen;
use super::shared::Shared;
use super::turn::Turn;
use super::work_state::{AtRest, WorkState};
use crate::core::interface::effect::ListId;
use crate::core::interface::observed::ListedItem;
use crate::core::interface::write::{AppliedRecord, ChangeDetector};

/// Some 160 bytes, where an [`Object`] with all that it points to has ten times as many.
#[derive(Debug)]
pub(in crate::core) struct Compact {
    /// As it was applied, or is to be.
    entry: Arc<Entry>,
    assigned: Assigned,
    /// None of what was never applied.
    record: Option<CompactRecord>,
    seen: Option<CompactSeen>,
    health: Health,
    message: Arc<str>,
    /// Of the source.
    observed_generation: Option<NonZeroU32>,
    /// What few objects have has its text.
    status: Status<()>,
    tried: bool,
    progress: Progress,
    queued: Option<i32>,
    terminal: Option<Terminal>,
    /// What few objects have.
    rare: Option<Box<Rare>>,
    listed_in: ListId,
    told: Option<ReportDigest>,
}

/// When the entry was assigned that an object stands as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assigned {
    Still,
    /// Another is by now, or none.
    Before,
}

/// What the journal knows beside the entry.
#[derive(Debug)]
struct CompactRecord {
    uid: Uuid,
    managed: Option<Digest>,
    generation: u32,
    resource_version: u64,
    origin: Origin,
    posted: bool,
    /// Its wave was recorded; journals of older builds lack it.
    waved: bool,
}

/// What the watch shows in another way than the journal.
#[derive(Debug)]
struct CompactSeen {
    /// Whose mark it carries.
    me: Arc<Me>,
    /// Marks of older builds do not.
    names_policy: bool,
    prune: Prune,
    prune_adopted: PruneAdopted,
    resource_version: u64,
    observed_generation: Option<NonZeroU32>,
    labelled: bool,
    managed_elsewhere: bool,
}

#[derive(Debug)]
struct Rare {
    /// Of the Pods of a Job.
    template: Option<Digest>,
    /// The policy that the mark names, where it is not that of the entry: what is written is the same.
    written_as: Option<Digest>,
    /// Until it was reported.
    status: Option<Arc<RawValue>>,
    trouble: Option<Trouble>,
}

/// Why something is not as its entry says, and when it is tried again.
#[derive(Debug)]
struct Trouble {
    reason: Option<Reason>,
    /// Shared by all that fail, or wait, for the same.
    message: Arc<str>,
    failures: u32,
    until: Option<Monotonic>,
    unshown: bool,
}

impl Rare {
    const fn is_empty(&self) -> bool {
        matches!(self, Self { template: None, written_as: None, status: None, trouble: None })
    }
}

impl Compact {
    /// Compacts an object that stands as `entry` says; none if there is more to it.
    pub(in crate::core) fn of(
        object: &Object,
        entry: &Arc<Entry>,
        me: Option<&Arc<Me>>,
        messages: &mut Shared,
    ) -> Option<Self> {
        let Object {
            record,
            unrecorded: 0,
            presence,
            work,
            corrections: (0, Monotonic::START),
            outcome: Outcome { progress, reason, message: said },
            terminal,
            live: Live { health, message, observed_generation, status },
            listed_in,
            drift: None,
            told,
            unexplained: None,
            stood_as: _,
        } = object
        else {
            return None;
        };
        let AtRest { turn, tried, failures } = work.at_rest()?;
        let (queued, until) = match turn {
            Turn::Idle => (None, None),
            Turn::Queued { wave } => (Some(wave), None),
            Turn::Waiting { until } => (None, Some(until)),
        };
        if !presence.is_plain() {
            return None;
        }
        let seen = presence.seen();
        let named = seen.and_then(|seen| seen.mark.as_ref()?.policy);
        let written_as = named.filter(|policy| *policy != entry.policy);
        let seen = match seen {
            Some(seen) => Some(CompactSeen::of(seen, record.as_ref()?, entry, me?)?),
            None => None,
        };
        let terminal = match terminal {
            Some((source, fact)) if *source == entry.source.uid => Some(*fact),
            Some(_) => return None,
            None => None,
        };
        let text = status.get().text().map(Arc::clone);
        let status = status.get().and_then(|_text| Some(()));
        let unshown = presence.is_unshown();
        let fine = reason.is_none() && said.is_empty() && failures == 0 && until.is_none() && !unshown;
        let trouble = || Trouble { reason: *reason, message: messages.shared(said), failures, until, unshown };
        let trouble = (!fine).then(trouble);
        let template = record.as_ref().and_then(|record| record.template);
        let rare = Rare { template, written_as, status: text, trouble };
        let record = match record {
            Some(record) => Some(CompactRecord::of(record, entry)?),
            None => None,
        };
        Some(Self {
            entry: Arc::clone(entry),
            assigned: Assigned::Still,
            record,
            seen,
            health: *health,
            message: messages.shared(message),
            observed_generation: compact_generation(*observed_generation)?,
            status,
            tried,
            progress: *progress,
            queued,
            terminal,
            rare: (!rare.is_empty()).then(|| Box::new(rare)),
            listed_in: *listed_in,
            told: *told,
        })
    }

    /// The same by the entry that it was compacted by before, though another is assigned by now, or none.
    pub(in crate::core) fn as_it_stood(object: &Object, me: Option<&Arc<Me>>, messages: &mut Shared) -> Option<Self> {
        let compact = Self::of(object, object.stood_as.as_ref()?, me, messages)?;
        Some(Self { assigned: Assigned::Before, ..compact })
    }

    /// Whether it was tried and stands as it was recorded, which is as its entry says.
    pub(in crate::core) fn is_at_rest(&self) -> bool {
        self.assigned == Assigned::Still
            && self.tried
            && self.queued.is_none()
            && self.trouble().is_none()
            && self.seen.as_ref().is_some_and(|seen| seen.labelled)
    }

    /// Whether it waits for its next try.
    pub(in crate::core) fn is_waiting(&self) -> bool {
        self.trouble().is_some_and(|trouble| trouble.until.is_some())
    }

    fn trouble(&self) -> Option<&Trouble> {
        self.rare.as_deref()?.trouble.as_ref()
    }

    pub(in crate::core) const fn awaits_status(&self) -> bool {
        matches!(self.status, Status::Awaited { .. })
    }

    pub(in crate::core) const fn listed_in(&self) -> ListId {
        self.listed_in
    }

    /// Takes a listed item of what needs no work, applied as `entry` says, and as the watch told: nothing follows from it. False
    /// if it is of something else.
    pub(in crate::core) fn listed_again(&mut self, list: ListId, item: &ListedItem, entry: &Arc<Entry>) -> bool {
        let told = self.seen.as_ref().map(|seen| seen.resource_version);
        let same = self.is_at_rest()
            && self.progress == Progress::Applied
            && Arc::ptr_eq(&self.entry, entry)
            && entry.state == EntryState::Apply
            && self.record.as_ref().is_some_and(|record| item.uid.to_uuid() == Some(record.uid))
            && told.is_some_and(|told| compact_version(&item.resource_version) == Some(told));
        if same {
            self.listed_in = list;
        }
        same
    }

    pub(in crate::core) fn expand(&self) -> Object {
        let Self { entry, queued, tried, progress, listed_in, told, .. } = self;
        let rare = self.rare.as_deref();
        let template = rare.and_then(|rare| rare.template);
        let record = self.record.as_ref().map(|record| record.expand(entry, template));
        let written_as = rare.and_then(|rare| rare.written_as);
        let seen = self.seen.as_ref().zip(record.as_ref());
        let mut presence = Presence::from(seen.map(|(seen, record)| seen.expand(record, entry, written_as)));
        let mut outcome = Outcome { progress: *progress, ..Outcome::default() };
        let turn = queued.map_or(Turn::Idle, |wave| Turn::Queued { wave });
        let mut at_rest = AtRest { turn, tried: *tried, failures: 0 };
        if let Some(Trouble { reason, message, failures, until, unshown }) = self.trouble() {
            outcome = Outcome { reason: *reason, message: message.as_ref().to_owned(), ..outcome };
            at_rest.failures = *failures;
            at_rest.turn = until.map_or(turn, |until| Turn::Waiting { until });
            if *unshown {
                presence.may_be_unshown();
            }
        }
        let status = self.status.and_then(|()| rare?.status.clone());
        Object {
            record,
            presence,
            work: WorkState::from(at_rest),
            outcome,
            terminal: self.terminal.map(|fact| (entry.source.uid.clone(), fact)),
            live: Live {
                health: self.health,
                message: self.message.as_ref().to_owned(),
                observed_generation: expand_generation(self.observed_generation),
                status: LiveStatus::new(status),
            },
            listed_in: *listed_in,
            told: *told,
            stood_as: Some(Arc::clone(entry)),
            ..Object::default()
        }
    }
}

impl CompactRecord {
    /// None if it says something else than the entry does.
    fn of(record: &AppliedRecord, entry: &Entry) -> Option<Self> {
        Some(Self {
            resource_version: follows(record, entry)?,
            uid: record.uid.to_uuid()?,
            managed: record.managed,
            generation: record.generation.try_into().ok()?,
            origin: record.origin,
            posted: record.posted,
            waved: record.wave.is_some(),
        })
    }

    fn expand(&self, entry: &Entry, template: Option<Digest>) -> AppliedRecord {
        let Self { uid, managed, generation, resource_version, origin, posted, waved } = self;
        AppliedRecord {
            uid: Uid::from_uuid(*uid),
            version: Arc::clone(&entry.version),
            source: entry.source.uid.clone(),
            input: entry.input,
            policy: entry.policy,
            source_generation: entry.generation,
            managed: *managed,
            generation: i64::from(*generation),
            resource_version: resource_version.to_string().into(),
            origin: *origin,
            posted: *posted,
            implied: entry.implied,
            orphaning: false,
            wave: waved.then_some(entry.wave),
            impersonate: entry.impersonate.clone(),
            drifted: None,
            change_detector: ChangeDetector::Owner,
            left: None,
            local: Arc::default(),
            template,
        }
    }
}

impl CompactSeen {
    /// None if what is seen is not what was recorded, under the mark that goes with it.
    fn of(seen: &Seen, record: &AppliedRecord, entry: &Entry, me: &Arc<Me>) -> Option<Self> {
        let Seen {
            uid,
            resource_version,
            generation,
            managed,
            mark: Some(mark),
            // It was read.
            illegible: _,
            labelled,
            deleting: false,
            managed_elsewhere,
            observed_generation,
            // Nothing is left to them.
            others: _,
        } = seen
        else {
            return None;
        };
        let Mark { v: 1, hub, target, source, local, generation: marked, input, policy, prune, prune_adopted, origin } =
            &**mark
        else {
            return None;
        };
        let same = *uid == record.uid
            && *generation == record.generation
            && *managed == record.managed
            && (*hub, *target) == (me.hub, me.target)
            && *source == entry.source
            && *local == entry.key
            && *marked == entry.generation
            && *input == entry.input
            && *origin == record.origin;
        same.then_some(())?;
        Some(Self {
            me: Arc::clone(me),
            names_policy: policy.is_some(),
            prune: *prune,
            prune_adopted: *prune_adopted,
            resource_version: compact_version(resource_version)?,
            observed_generation: compact_generation(*observed_generation)?,
            labelled: *labelled,
            managed_elsewhere: *managed_elsewhere,
        })
    }

    fn expand(&self, record: &AppliedRecord, entry: &Entry, written_as: Option<Digest>) -> Seen {
        let Self {
            me,
            prune,
            prune_adopted,
            resource_version,
            observed_generation,
            labelled,
            managed_elsewhere,
            names_policy,
        } = self;
        Seen {
            uid: record.uid.clone(),
            resource_version: resource_version.to_string().into(),
            generation: record.generation,
            managed: record.managed,
            mark: Some(Arc::new(Mark {
                v: 1,
                hub: me.hub,
                target: me.target,
                source: entry.source.clone(),
                local: entry.key.clone(),
                generation: entry.generation,
                input: entry.input,
                policy: names_policy.then(|| written_as.unwrap_or(entry.policy)),
                prune: *prune,
                prune_adopted: *prune_adopted,
                origin: record.origin,
            })),
            illegible: false,
            labelled: *labelled,
            deleting: false,
            managed_elsewhere: *managed_elsewhere,
            observed_generation: expand_generation(*observed_generation),
            others: None,
        }
    }
}

/// The resource version of a record that says nothing else than its entry does.
fn follows(record: &AppliedRecord, entry: &Entry) -> Option<u64> {
    let AppliedRecord {
        uid: _,
        version,
        source,
        input,
        policy,
        source_generation,
        managed: _,
        generation: _,
        resource_version,
        origin: _,
        posted: _,
        implied,
        orphaning: false,
        wave,
        impersonate,
        drifted: None,
        change_detector: ChangeDetector::Owner,
        left: None,
        local,
        template: _,
    } = record
    else {
        return None;
    };
    let same = *version == entry.version
        && *source == entry.source.uid
        && *input == entry.input
        && *policy == entry.policy
        && *source_generation == entry.generation
        && *implied == entry.implied
        && *impersonate == entry.impersonate
        && wave.is_none_or(|wave| wave == entry.wave)
        && local.is_empty();
    same.then(|| compact_version(resource_version))?
}

/// Those of API servers are decimal numbers.
fn compact_version(version: &str) -> Option<u64> {
    let number: u64 = version.parse().ok()?;
    let canonical = version.len() == 1 || !version.starts_with(['0', '+']);
    canonical.then_some(number)
}

/// None if it cannot be compacted.
#[expect(clippy::option_option, reason = "whether it can be compact, and whether there is any")]
fn compact_generation(generation: Option<i64>) -> Option<Option<NonZeroU32>> {
    match generation {
        None => Some(None),
        Some(generation) => NonZeroU32::new(generation.try_into().ok()?).map(Some),
    }
}

fn expand_generation(generation: Option<NonZeroU32>) -> Option<i64> {
    generation.map(|generation| i64::from(generation.get()))
}

#[cfg(test)]
mod tests;
