//! When the agent of a SyncTarget was heard last: known to the second, shown so, and stored every ten minutes at most.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tideline_apiserver::{FilledField, Identity};
use tideline_common::{FIELD_MANAGER_HUB, Monotonic, TargetId};

use crate::engine::Engine;
use crate::shared::Shared;

/// When its agent was heard last, served or not, in this run of the hub.
pub(crate) fn heard(engine: &Engine, target: TargetId, now: Monotonic, clock: Timestamp) -> Option<Timestamp> {
    let ago = now.since(engine.targets.last_asked(target)?);
    clock.checked_sub(ago).ok().map(whole_seconds)
}

pub(crate) fn whole_seconds(at: Timestamp) -> Timestamp {
    at.round(jiff::Unit::Second).unwrap_or(at)
}

/// How much later a contact was than the one that is stored; none if that is as late. One that is yet to come was written by a
/// clock that was wrong, and counts as none.
pub(crate) fn ahead(contact: Timestamp, stored: &Value, clock: Timestamp) -> Option<Duration> {
    let stored = stored.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    match stored.filter(|stored| *stored <= whole_seconds(clock)) {
        None => Some(Duration::MAX),
        Some(stored) => Duration::try_from(contact.duration_since(stored)).ok().filter(|ahead| !ahead.is_zero()),
    }
}

/// `.status.lastContact` of the SyncTargets of the root space, for everybody but the hub, who stores it.
struct LastContact {
    shared: Shared,
}

pub(crate) fn field(shared: &Shared) -> Arc<dyn FilledField> {
    Arc::new(LastContact { shared: shared.clone() })
}

impl FilledField for LastContact {
    fn resource(&self) -> (&'static str, &'static str) {
        (tideline_api::GROUP, "synctargets")
    }

    fn path(&self) -> &'static [&'static str] {
        &["status", "lastContact"]
    }

    fn is_shown_to(&self, reader: &Identity) -> bool {
        &*reader.user != FIELD_MANAGER_HUB
    }

    fn values(&self, objects: &[Value]) -> Vec<Option<Value>> {
        let id = |object: &Value| object["metadata"]["uid"].as_str()?.parse().ok();
        let ids: Vec<Option<TargetId>> = objects.iter().map(id).collect();
        let (now, clock) = (self.shared.now(), Timestamp::now());
        // Nothing but a look for each is done while everybody else waits.
        let heard: Vec<_> = self.shared.read(|engine| ids.iter().map(|id| heard(engine, (*id)?, now, clock)).collect());
        let shown = |(object, contact): (&Value, Option<Timestamp>)| {
            contact.filter(|contact| ahead(*contact, &object["status"]["lastContact"], clock).is_some())
        };
        objects.iter().zip(heard).map(|one| shown(one).map(|contact| json!(contact))).collect()
    }
}

#[cfg(test)]
mod tests;
