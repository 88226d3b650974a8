//! `stringData` of a Secret becomes `data` whichever way it is written, and what has no type is `Opaque`.

use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};
use tideline_apiserver::FeedEvent;

use super::harness::*;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ONE: &str = "/api/v1/namespaces/default/secrets/a";

fn secret(rest: &[(&str, Value)]) -> Value {
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    for (field, value) in rest {
        secret[*field] = value.clone();
    }
    secret
}

/// What is kept of a Secret, and the fields of each of its managers.
fn kept(secret: &Value) -> (Value, Vec<Value>) {
    assert!(secret["stringData"].is_null(), "{secret}");
    let entries = secret["metadata"]["managedFields"].as_array().expect("managers");
    (secret["data"].clone(), entries.iter().map(|entry| entry["fieldsV1"].clone()).collect())
}

#[tokio::test]
async fn strings_of_a_secret_become_its_data_whichever_way_they_are_written() {
    let api = Api::start().await;
    let made = api.post(SECRETS, &secret(&[("stringData", json!({"k": "0"}))])).await.ok();
    let owned = vec![json!({"f:data": {".": {}, "f:k": {}}})];
    assert_eq!(kept(&made), (json!({"k": "MA=="}), owned.clone()));
    for (nth, (method, media, body)) in [
        (
            Method::PUT,
            "application/json",
            secret(&[("stringData", json!({"k": "1"})), ("data", json!({"k": "", "l": ""}))]),
        ),
        (Method::PATCH, "application/merge-patch+json", json!({"stringData": {"k": "2"}})),
        (Method::PATCH, "application/strategic-merge-patch+json", json!({"stringData": {"k": "3"}})),
        (Method::PATCH, "application/json-patch+json", {
            json!([{"op": "add", "path": "/stringData", "value": {"k": "4"}}, {"op": "remove", "path": "/data/l"}])
        }),
    ]
    .into_iter()
    .enumerate()
    {
        let written = api.send(method, ONE, media, body.to_string()).await.ok();
        let becomes = ["MQ==", "Mg==", "Mw==", "NA=="][nth];
        assert_eq!((&written["data"]["k"], &written["stringData"]), (&json!(becomes), &Value::Null), "{media}");
        assert_eq!(api.get(ONE).await.ok(), written, "{media}");
    }
    assert_eq!(kept(&api.get(ONE).await.ok()), (json!({"k": "NA=="}), owned));
}

#[tokio::test]
async fn an_applier_owns_strings_as_on_a_real_server() {
    let api = Api::start().await;
    let path = format!("{ONE}?fieldManager=one");
    let both = secret(&[("stringData", json!({"k": "0", "l": "1"}))]);
    let made = api.apply(&path, &both).await.ok();
    let owned = json!({"f:stringData": {"f:k": {}, "f:l": {}}});
    assert_eq!(kept(&made), (json!({"k": "MA==", "l": "MQ=="}), vec![owned]));
    assert_eq!(api.apply(&path, &both).await.ok(), made, "the same once more is no write");
    // What others write since stays until it is applied again.
    api.merge(ONE, &json!({"data": {"k": "Mg=="}})).await.ok();
    assert_eq!(api.get(ONE).await.ok()["data"]["k"], "Mg==");
    let left_out = api.apply(&path, &secret(&[("stringData", json!({"k": "3"}))])).await.ok();
    assert_eq!(left_out["data"], json!({"k": "Mw==", "l": "MQ=="}));
}

#[tokio::test]
async fn strings_that_were_stored_do_not_hide_later_data() {
    let api = Api::start().await;
    let made = api.post(SECRETS, &secret(&[("data", json!({"k": "MA=="}))])).await.ok();
    let mut remnant = made.clone();
    remnant["stringData"] = json!({"l": "1"});
    api.overwrite("/secrets/default/a", remnant.to_string().into()).await;
    assert_eq!(kept(&api.get(ONE).await.ok()).0, json!({"k": "MA==", "l": "MQ=="}));
    let mut feed = api.server.feed(None);
    let fed = loop {
        if let FeedEvent::Object { resource, value, .. } = feed.next().await.expect("an event")
            && resource.kind == "Secret"
        {
            break value;
        }
    };
    assert_eq!((fed.get("stringData"), &fed["data"]), (None, &json!({"k": "MA==", "l": "MQ=="})));
    api.merge(ONE, &json!({"data": {"l": "Mg=="}})).await.ok();
    assert_eq!(kept(&api.get(ONE).await.ok()).0, json!({"k": "MA==", "l": "Mg=="}));
    let stored = api.overwrite("/secrets/default/a", "{}".into()).await;
    assert!(!String::from_utf8_lossy(&stored).contains("stringData"));
}

#[tokio::test]
async fn a_secret_without_a_type_is_opaque() {
    let api = Api::start().await;
    let made = api.post(SECRETS, &secret(&[])).await.ok();
    assert_eq!(api.put(ONE, &secret(&[("type", "Opaque".into())])).await.code, 200);
    assert_eq!(api.put(ONE, &secret(&[])).await.code, 200);
    assert_eq!(api.merge(ONE, &json!({"type": null})).await.code, 200);
    let refused = api.put(ONE, &secret(&[("type", "example.com/other".into())])).await;
    assert_eq!((refused.code, &refused.body["details"]["causes"][0]["field"]), (422, &json!("type")), "{made}");
}

#[tokio::test]
async fn an_immutable_secret_takes_no_data_that_it_did_not_have() {
    let api = Api::start().await;
    api.post(SECRETS, &secret(&[("immutable", true.into())])).await.ok();
    for change in [json!({"stringData": {"k": "0"}}), json!({"data": {"k": "MA=="}}), json!({"immutable": false})] {
        assert_eq!(api.merge(ONE, &change).await.failure().1, "Invalid", "{change}");
    }
    assert_eq!(api.merge(ONE, &json!({"metadata": {"labels": {"x": "y"}}})).await.code, 200);
}
