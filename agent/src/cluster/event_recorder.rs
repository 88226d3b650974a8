//! Records Kubernetes Events apart from everything else: nothing waits for one, and a lost one does no harm.
//!
//! They are of core/v1, with a count, as `kubectl describe` shows them: one for an object and a reason, which is found
//! again by its name, also by the next run of the agent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tideline_common::Digest;
use tideline_common::health::truncate;
use tideline_common::limits::MESSAGE_BYTES_MAX;
use tokio::sync::Notify;
use tracing::debug;

use super::failure::Refused;
use super::render::api_version;
use super::request::{Call, JSON, MERGE_PATCH, Want, call};
use crate::core::KubeEvent;

/// Events that wait to be recorded: of a fault of more objects at once only some get one.
const WAITING_MAX: usize = 256;
/// Between two of them, so that they are no load beside the work: five in a second.
const PAUSE: Duration = Duration::from_millis(200);
/// What speaks.
const REPORTER: &str = "tideline.dev/agent";
/// Where Events of objects without a namespace are.
const NAMESPACE: &str = "default";

/// What became of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Yes,
    /// The API server did not take it.
    No,
    /// Others came faster than they could be recorded.
    Dropped,
}

/// Takes Kubernetes Events at any time, and writes them at its own pace.
#[derive(Debug, Default)]
pub struct EventRecorder {
    waiting: Mutex<VecDeque<KubeEvent>>,
    more: Notify,
}

impl EventRecorder {
    /// Queues an Event. Where too many wait, the oldest is dropped for it, and returned.
    pub fn record(&self, kube_event: KubeEvent) -> Option<KubeEvent> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = if waiting.len() >= WAITING_MAX { waiting.pop_front() } else { None };
        waiting.push_back(kube_event);
        self.more.notify_one();
        dropped
    }

    /// Tells what comes, for ever, and says what became of each.
    pub async fn run(self: Arc<Self>, client: Client, told: impl Fn(Recorded)) {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(kube_event) = next else {
                self.more.notified().await;
                continue;
            };
            let mut pause = PAUSE;
            match put(&client, &kube_event).await {
                Ok(()) => told(Recorded::Yes),
                Err(refused) => {
                    let failure = refused.failure();
                    debug!(key = %kube_event.key, reason = %failure.reason, "an event was not taken: {}", failure.message);
                    pause = pause.max(failure.retry_after.unwrap_or_default());
                    told(Recorded::No);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Makes the Event, or counts up the one that is there.
async fn put(client: &Client, kube_event: &KubeEvent) -> Result<(), Refused> {
    let event = event(kube_event, &now());
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE);
    let collection = format!("/api/v1/namespaces/{namespace}/events");
    let there = format!("{collection}/{}", event["metadata"]["name"].as_str().unwrap_or_default());
    match send(client, Method::POST, collection, JSON, &event).await {
        Err(refused) if refused.is_already_there() => {}
        sent => return sent.map(drop),
    }
    let former: Value = call(client, Call::get(there.clone(), Want::Whole)).await?;
    let count = former["count"].as_u64().unwrap_or_default() + 1;
    let again = json!({"count": count, "lastTimestamp": event["lastTimestamp"], "message": event["message"]});
    send(client, Method::PATCH, there, MERGE_PATCH, &again).await.map(drop)
}

async fn send(
    client: &Client,
    method: Method,
    uri: String,
    media_type: &'static str,
    content: &Value,
) -> Result<Value, Refused> {
    let bytes = serde_json::to_vec(content).expect("a JSON value can be written");
    let content = Some((media_type, bytes));
    call(client, Call { method, uri, content, want: Want::Metadata, impersonate: None }).await
}

fn now() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}

fn event(kube_event: &KubeEvent, now: &str) -> Value {
    let KubeEvent { key, version, uid, reason, message } = kube_event;
    let namespace = if key.is_namespaced() { &*key.namespace } else { NAMESPACE };
    let uid = uid.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut message = message.clone();
    truncate(&mut message, MESSAGE_BYTES_MAX);
    let mut involved = json!({
        "apiVersion": api_version(&key.kind.group, version),
        "kind": &*key.kind.kind,
        "name": &*key.name,
    });
    if key.is_namespaced() {
        involved["namespace"] = json!(&*key.namespace);
    }
    if !uid.is_empty() {
        involved["uid"] = json!(uid);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name(&format!("{key} {uid} {reason}")), "namespace": namespace},
        "involvedObject": involved,
        "type": "Warning",
        "reason": reason.as_str(),
        "message": message,
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    })
}

/// Names of objects may hold what names of Events may not.
fn name(what: &str) -> String {
    format!("tideline.{}", Digest::of(what.as_bytes()))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use tideline_common::{GroupKind, ObjectKey, Reason};

    use super::*;

    fn kube_event(namespace: &str, name: &str) -> KubeEvent {
        let key = ObjectKey::new(GroupKind::new("rbac.authorization.k8s.io", "Role"), namespace, name);
        let uid = Some("u1".parse().expect("a UID"));
        KubeEvent { key, version: "v1".into(), uid, reason: Reason::Forbidden, message: "no".to_owned() }
    }

    #[test]
    fn an_event_names_its_object_so_that_describe_finds_it() {
        let event = event(&kube_event("shop", "system:reader"), "2026-01-02T03:04:05Z");
        expect![[r#"
            {
              "apiVersion": "v1",
              "count": 1,
              "firstTimestamp": "2026-01-02T03:04:05Z",
              "involvedObject": {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "name": "system:reader",
                "namespace": "shop",
                "uid": "u1"
              },
              "kind": "Event",
              "lastTimestamp": "2026-01-02T03:04:05Z",
              "message": "no",
              "metadata": {
                "name": "tideline.797c37049d16efbe80f74de086fb133222795a9ab9cc687143dd5c29047c6b4b",
                "namespace": "shop"
              },
              "reason": "Forbidden",
              "reportingComponent": "tideline.dev/agent",
              "source": {
                "component": "tideline.dev/agent"
              },
              "type": "Warning"
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&event).expect("JSON"));
    }

    #[test]
    fn the_oldest_gives_way_when_too_many_wait() {
        let recorder = EventRecorder::default();
        for i in 0..WAITING_MAX {
            assert_eq!(recorder.record(kube_event("shop", &i.to_string())), None);
        }
        assert_eq!(recorder.record(kube_event("shop", "last")), Some(kube_event("shop", "0")));
    }
}
