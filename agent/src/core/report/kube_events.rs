//! Events on objects that differ from their source and keep failing. Success, and a failure that the next try fixes, get none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::wire::v1::Progress;
use tideline_common::{Monotonic, ObjectKey, Reason};

use crate::core::interface::effect::{Effect, Effects, KubeEvent};
use crate::core::model::Model;
use crate::core::model::removal::RemovalState;

/// Tries that must have failed before the first Event: what the next try fixes is no news.
const TRIES_MIN: u32 = 2;
/// Between two Events of one object for one reason.
const REPEAT_EVERY: Duration = Duration::from_mins(10);
/// Events that are remembered, so as not to be repeated too soon. A forgotten one is at worst recorded again.
const REMEMBERED_MAX: usize = 1024;
/// Events recorded in one step; a step concludes on few objects, unless a whole kind is affected.
const AT_ONCE_MAX: usize = 64;

#[derive(Debug, Default)]
pub(in crate::core) struct KubeEvents {
    told: BTreeMap<(ObjectKey, Reason), Monotonic>,
    oldest: BTreeSet<(Monotonic, ObjectKey, Reason)>,
    pending: Vec<KubeEvent>,
}

impl KubeEvents {
    /// Whether it is to be recorded now; remembers that it was.
    fn is_due(&mut self, now: Monotonic, key: &ObjectKey, reason: Reason) -> bool {
        if self.pending.len() >= AT_ONCE_MAX {
            return false;
        }
        let what = (key.clone(), reason);
        if let Some(last) = self.told.get(&what).copied() {
            if now.since(last) < REPEAT_EVERY {
                return false;
            }
            self.oldest.remove(&(last, what.0.clone(), reason));
        }
        self.oldest.insert((now, what.0.clone(), reason));
        self.told.insert(what, now);
        if self.told.len() > REMEMBERED_MAX
            && let Some((_, key, reason)) = self.oldest.pop_first()
        {
            self.told.remove(&(key, reason));
        }
        true
    }

    /// An object is to be tried again; if it failed before as well, that is recorded.
    pub(in crate::core) fn failed(&mut self, model: &Model, now: Monotonic, key: &ObjectKey) {
        let Some(object) = model.objects.get(key) else { return };
        let outcome = &object.outcome;
        let (Progress::Failed | Progress::Withheld, Some(reason)) = (outcome.progress, outcome.reason) else { return };
        if object.work.failures() >= TRIES_MIN {
            let message = format!("not kept as its source says: {}", outcome.message);
            self.record(model, now, key, reason, message);
        }
    }

    /// A removal is to be tried again; if it is held and was before, that is recorded.
    pub(in crate::core) fn held(
        &mut self,
        model: &Model,
        now: Monotonic,
        key: &ObjectKey,
        failures: u32,
        state: &RemovalState,
    ) {
        let RemovalState::Held(reason, message) = state else { return };
        if failures < TRIES_MIN {
            return;
        }
        let why = match (message.as_str(), reason) {
            ("", Reason::FuseHeld | Reason::HistoryLost | Reason::Restored) => {
                "it waits for `tideline-hub approve-deletions`"
            }
            ("", _) => "what is there may not be deleted",
            (message, _) => message,
        };
        self.record(model, now, key, *reason, format!("no longer assigned, and not deleted: {why}"));
    }

    pub(in crate::core) fn record(
        &mut self,
        model: &Model,
        now: Monotonic,
        key: &ObjectKey,
        reason: Reason,
        mut message: String,
    ) {
        if !is_notable(reason) || !self.is_due(now, key, reason) {
            return;
        }
        let entry = model.desired.get(key);
        if let Some(source) = entry.map(|entry| &entry.source) {
            let slash = if source.namespace.is_empty() { "" } else { "/" };
            message =
                format!("{message} (source: {}{slash}{} in space {})", source.namespace, source.name, source.space);
        }
        let version = entry.map_or_else(|| model.kinds.version(&key.kind), |entry| Arc::clone(&entry.version));
        let uid = model.objects.get(key).and_then(|object| {
            let seen = object.seen().map(|seen| seen.uid.clone());
            seen.or_else(|| object.record.as_ref().map(|record| record.uid.clone()))
        });
        self.pending.push(KubeEvent { key: key.clone(), version, uid, reason, message });
    }

    pub(in crate::core) fn flush(&mut self, out: &mut Effects) {
        out.extend(self.pending.drain(..).map(Effect::RecordEvent));
    }
}

/// Whether a person at the cluster can do something about it, or wants to know. An API server that is away or overloaded could
/// not record it, and a kind, namespace or body that is still to come is no fault.
fn is_notable(reason: Reason) -> bool {
    match reason {
        Reason::Conflict
        | Reason::Unmanaged
        | Reason::FieldConflict
        | Reason::Drifted
        | Reason::Undecodable
        | Reason::TooLarge
        | Reason::AgentTooOld
        | Reason::Invalid
        | Reason::Immutable
        | Reason::Forbidden
        | Reason::Denied
        | Reason::Webhook
        | Reason::NotEmpty
        | Reason::FuseHeld
        | Reason::HistoryLost
        | Reason::Restored
        | Reason::MayHaveRun
        | Reason::Vanished
        | Reason::Copy => true,
        Reason::Settling
        | Reason::NotAllowed
        | Reason::OtherNamespace
        | Reason::SourceUnreadable
        | Reason::NoTargets
        | Reason::NoObjects
        | Reason::KindMissing
        | Reason::NamespaceUnavailable
        | Reason::Throttled
        | Reason::Unavailable
        | Reason::BodyMissing
        | Reason::WaitingForWave
        | Reason::Finalizing
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
        | Reason::Suspended
        | Reason::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::key;

    #[test]
    fn one_object_is_told_of_once_in_a_while_for_each_reason() {
        let mut kube_events = KubeEvents::default();
        let (a, b) = (key("", "ConfigMap", "a"), key("", "ConfigMap", "b"));
        let start = Monotonic::START;
        assert!(kube_events.is_due(start, &a, Reason::Invalid));
        assert!(!kube_events.is_due(start + REPEAT_EVERY / 2, &a, Reason::Invalid));
        assert!(kube_events.is_due(start, &a, Reason::Forbidden) && kube_events.is_due(start, &b, Reason::Invalid));
        assert!(kube_events.is_due(start + REPEAT_EVERY, &a, Reason::Invalid));
        assert!(!kube_events.is_due(start + REPEAT_EVERY, &a, Reason::Invalid));
    }

    #[test]
    fn remembered_events_are_bounded_and_the_oldest_are_dropped_first() {
        let mut kube_events = KubeEvents::default();
        let keys: Vec<_> = (0..=REMEMBERED_MAX as u64).map(|i| key("", "ConfigMap", &format!("c{i}"))).collect();
        for (at, key) in (0..).zip(&keys) {
            assert!(kube_events.is_due(Monotonic::from_millis(at), key, Reason::Invalid));
        }
        assert_eq!((kube_events.told.len(), kube_events.oldest.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        let now = Monotonic::from_millis(2000);
        assert!(!kube_events.is_due(now, &keys[1], Reason::Invalid));
        assert!(kube_events.is_due(now, &keys[0], Reason::Invalid));
    }
}
