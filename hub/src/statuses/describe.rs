//! Writes the status of one of the hub's own objects, where it differs from what is there.

use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tideline_common::SpaceName;
use tideline_common::limits::POLL_WAIT_SECONDS_MAX;

use crate::last_contact::{ahead, whole_seconds};
use crate::patch::{self, Form};

/// How often a SyncTarget's lastContact is written while nothing else changes.
pub(super) const CONTACT_PERIOD: Duration = Duration::from_mins(10);
/// By how much a contact is later than what is stored of it if that is a period ago: either is up to a poll old when it is
/// looked at.
const AGED: Duration = Duration::from_secs(CONTACT_PERIOD.as_secs() - POLL_WAIT_SECONDS_MAX);

/// An object of the hub's own kinds whose status describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Described {
    pub(super) space: SpaceName,
    pub(super) resource: &'static str,
    pub(super) name: String,
}

/// What became of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Written,
    /// It was there already.
    Same,
}

/// Writes what differs from what is there, so that a hub that restarts writes nothing. The time of the last `contact` goes with
/// it, and makes a write by itself only if what is stored is old: whoever reads the object is shown the present one.
pub(super) async fn describe(
    client: &Client,
    what: &Described,
    status: &Value,
    contact: Option<Timestamp>,
) -> Result<Outcome, kube::Error> {
    let path = format!("/apis/tideline.dev/v1alpha1/{}/{}", what.resource, what.name);
    let request = Request::get(&path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let present: Value = client.request(request).await?;
    let mut status = status.clone();
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        for condition in conditions {
            date(condition, &present["status"]["conditions"]);
        }
    }
    // A merge patch leaves out what is null.
    let same = |(field, value): (&String, &Value)| present["status"].get(field).unwrap_or(&Value::Null) == value;
    let stored = &present["status"]["lastContact"];
    let later = contact.and_then(|contact| Some((contact, ahead(contact, stored, Timestamp::now())?)));
    let aged = later.is_some_and(|(_, ahead)| ahead >= AGED);
    if !aged && status.as_object().is_some_and(|status| status.iter().all(same)) {
        return Ok(Outcome::Same);
    }
    if let Some((contact, _)) = later {
        status["lastContact"] = json!(contact);
    }
    patch::send(client, &format!("{path}/status"), Form::Merge, &json!({"status": status}))
        .await
        .map(|_: Value| Outcome::Written)
}

/// Gives a condition the time since when it is so.
fn date(condition: &mut Value, present: &Value) {
    let former = present.as_array().into_iter().flatten().find(|former| former["type"] == condition["type"]);
    condition["lastTransitionTime"] = match former {
        Some(former) if former["status"] == condition["status"] => former["lastTransitionTime"].clone(),
        Some(_) | None => json!(whole_seconds(Timestamp::now())),
    };
}
