//! Local changes that are not to be corrected: compared once, and reported field by field.
//!
//! Metadata shows that there is a change. What it is takes one read of the whole object, and no other until the metadata
//! changes again.
//!
//! Such a change stays when the object is applied for another reason: the journal knows the fields, and what was assigned to
//! each. Where another value is assigned, the source has changed since, and the field follows it.

use std::fmt::Write as _;
use std::sync::Arc;

use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyPolicy, Digest, Entry, Monotonic, ObjectKey, Reason};

use crate::core::Core;
use crate::core::decide::plan;
use crate::core::interface::effect::{Effects, Op};
use crate::core::interface::op_result::{Compared, Difference, Failure, NotDone, Values};
use crate::core::interface::write::{AppliedRecord, ChangeDetector, LocalField};
use crate::core::model::object::{Drift, Fingerprint, Me};
use crate::core::model::seen::Seen;
use crate::core::work::in_flight::{FollowUp, Purpose};

/// What a comparison found.
struct Differing<'a> {
    differences: &'a [Difference],
    total: usize,
    local: Arc<[LocalField]>,
    at: Arc<str>,
}

impl From<&Seen> for Fingerprint {
    fn from(seen: &Seen) -> Self {
        Self {
            managed: seen.managed,
            generation: seen.generation,
            version: (seen.generation == 0).then(|| Arc::clone(&seen.resource_version)),
            labelled: seen.labelled,
            marked: seen.mark.as_ref().map(|mark| Digest::of(mark.encode().as_bytes())),
        }
    }
}

impl Core {
    /// An object was changed locally, and the policy says to report that and no more.
    pub(in crate::core) fn drifted(
        &mut self,
        now: Monotonic,
        me: Me,
        entry: &Arc<Entry>,
        policy: Arc<ApplyPolicy>,
        seen: &Seen,
        out: &mut Effects,
    ) {
        let key = &entry.key;
        let Some(object) = self.model.objects.get_mut(key) else { return };
        if let Some(drift) = object.drift.as_ref().filter(|drift| drift.of == Fingerprint::from(seen)) {
            let message = drift.message.clone();
            object.work.succeed();
            self.conclude(now, key, Progress::Applied, Some(Reason::Drifted), message);
            return self.enqueue_removals(key);
        }
        let Some(record) = &object.record else { return };
        // Compared under the policy of the last apply: what a newer policy asks for is nobody's local change.
        let policy = self.model.policies.get(&record.policy).cloned().unwrap_or(policy);
        let mark = Arc::new(plan::mark_of(me, entry, &policy, record.origin));
        let op = Op::Compare { entry: Arc::clone(entry), policy, mark, uid: seen.uid.clone() };
        self.execute(now, key, Purpose::Compare, op, out);
    }

    /// The comparison ended.
    pub(in crate::core) fn compared(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        result: Result<Compared, NotDone>,
    ) -> FollowUp {
        match result {
            Ok(Compared { observed, differences, total, local, at }) => {
                let seen = Seen::from(&*observed);
                self.see(key, *observed);
                let news = self.model.desired.get(key).is_none()
                    || self.differs(now, key, &seen, Differing { differences: &differences, total, local, at });
                self.dirty(key, now);
                if news { FollowUp::Requeue } else { FollowUp::BackOff(None) }
            }
            Err(NotDone::Stale) => {
                self.dirty(key, now);
                FollowUp::Stale
            }
            Err(NotDone::Failed(Failure { reason, message, retry_after, fate: _ })) => {
                let message = format!("changed locally; comparing the fields failed: {message}");
                self.conclude(now, key, Progress::Applied, Some(Reason::Drifted), message);
                if reason == Reason::BodyMissing
                    && let Some(entry) = self.model.desired.get(key).cloned()
                {
                    self.body_is_missing(&entry);
                }
                FollowUp::BackOff(retry_after)
            }
        }
    }

    /// Records how an object differs. Returns whether another comparison may find something else.
    fn differs(&mut self, now: Monotonic, key: &ObjectKey, seen: &Seen, found: Differing<'_>) -> bool {
        let Differing { differences, total, local, at } = found;
        let Some(record) = self.model.objects.get(key).and_then(|object| object.record.clone()) else { return true };
        if record.uid != seen.uid {
            return true;
        }
        if total == 0 {
            // Nothing that was applied has changed: this state is the reference from now on.
            let owned = seen.managed == record.managed && record.change_detector == ChangeDetector::Owner;
            let former = record.clone();
            let record = AppliedRecord {
                managed: seen.managed,
                generation: seen.generation,
                resource_version: Arc::clone(&seen.resource_version),
                drifted: None,
                change_detector: if owned { ChangeDetector::Owner } else { ChangeDetector::Version },
                local: Arc::default(),
                ..record.clone()
            };
            let news = record != former;
            if news {
                self.model.set_record(key, record);
            } else {
                // Only its mark was changed, which is no part of what was applied.
                let message = "its mark was changed; every field of its source is as it was applied".to_owned();
                self.conclude(now, key, Progress::Applied, Some(Reason::Drifted), message);
            }
            return news;
        }
        let since = record.drifted.clone().unwrap_or(at);
        let record = AppliedRecord { drifted: Some(Arc::clone(&since)), local, ..record.clone() };
        let message = describe(&since, differences, total);
        self.model.set_record(key, record);
        if let Some(object) = self.model.objects.get_mut(key) {
            object.drift = Some(Box::new(Drift { of: Fingerprint::from(seen), message: message.clone() }));
        }
        self.conclude(now, key, Progress::Applied, Some(Reason::Drifted), message);
        true
    }
}

fn describe(since: &str, differences: &[Difference], total: usize) -> String {
    let mut text = format!("changed locally, seen first at {since}");
    let mut separator = ": ";
    for Difference { field, values } in differences {
        let _ = match values {
            Values::Are { assigned, found } => write!(text, "{separator}{field} is {found}, not {assigned}"),
            Values::Gone { assigned } => write!(text, "{separator}{field} is gone, not {assigned}"),
            Values::Redacted => write!(text, "{separator}{field} differs"),
        };
        separator = "; ";
    }
    match total.saturating_sub(differences.len()) {
        0 => {}
        more => {
            let _ = write!(text, "{separator}and {more} more");
        }
    }
    text
}

#[cfg(test)]
mod tests;
