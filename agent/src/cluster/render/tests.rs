use serde_json::{Value, json};
use tideline_common::{
    Digest, Entry, EntryState, GroupKind, HubId, Mark, ObjectKey, Origin, Prune, PruneAdopted, SourceRef, SpaceName,
    TargetId,
};
use uuid::Uuid;

use super::*;

fn key() -> ObjectKey {
    ObjectKey::new(GroupKind::new("apps", "Deployment"), "shop", "web")
}

fn source() -> SourceRef {
    SourceRef {
        space: SpaceName::root(),
        uid: "source".parse().expect("a UID"),
        namespace: "shop".into(),
        name: "web".into(),
    }
}

fn entry() -> Entry {
    Entry {
        key: key(),
        version: "v1".into(),
        source: source(),
        generation: 3,
        state: EntryState::Apply,
        input: Digest::of(b"input"),
        policy: Digest::of(b"policy"),
        wave: 0,
        impersonate: None,
        implied: false,
    }
}

fn mark() -> Mark {
    Mark {
        v: 1,
        hub: HubId::from_uuid(Uuid::from_u128(1)),
        target: TargetId::from_uuid(Uuid::from_u128(2)),
        source: source(),
        local: key(),
        generation: 3,
        input: Digest::of(b"input"),
        policy: None,
        prune: Prune::Delete,
        prune_adopted: PruneAdopted::Orphan,
        origin: Origin::Created,
    }
}

fn body(metadata: &Value) -> String {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 2}}).to_string()
}

#[test]
fn the_mark_is_put_beside_what_is_there() -> Result<(), Error> {
    let text = body(&json!({"name": "web", "namespace": "shop", "labels": {"app": "web"}, "annotations": null,
        "uid": "x", "resourceVersion": "7", "managedFields": []}));
    let object = render(&text, &entry(), &Additions::default(), &mark())?;
    assert_eq!(
        object["metadata"],
        json!({
            "name": "web",
            "namespace": "shop",
            "labels": {"app": "web", "tideline.dev/agent": mark().target.to_string()},
            "annotations": {"tideline.dev/source": mark().encode()},
        })
    );
    assert_eq!(object["spec"], json!({"replicas": 2}));
    Ok(())
}

#[test]
fn a_body_of_another_object_is_refused() {
    for metadata in [json!({"name": "other", "namespace": "shop"}), json!({"name": "web"}), json!([])] {
        assert!(
            matches!(render(&body(&metadata), &entry(), &Additions::default(), &mark()), Err(Error::Other { .. })),
            "{metadata}"
        );
    }
    assert!(matches!(render("{", &entry(), &Additions::default(), &mark()), Err(Error::Decode(_))));
    let labels = body(&json!({"name": "web", "namespace": "shop", "labels": 3}));
    assert!(matches!(render(&labels, &entry(), &Additions::default(), &mark()), Err(Error::Decode(_))));
}

#[test]
fn no_policy_takes_away_what_an_object_is_and_whose() -> Result<(), Error> {
    let text = body(&json!({"name": "web", "namespace": "shop", "labels": {"app": "web"}}));
    let whole = render(&text, &entry(), &Additions::default(), &mark())?;
    let mut left = whole.clone();
    left["metadata"]["labels"] = json!({"app": "web"});
    left["metadata"]["annotations"] = Value::Null;
    left["metadata"]["name"] = Value::Null;
    complete(&mut left, &entry(), &mark())?;
    assert_eq!(left, whole);
    left = json!({"spec": {"replicas": 2}});
    complete(&mut left, &entry(), &mark())?;
    left["metadata"]["labels"]["app"] = json!("web");
    assert_eq!(left, whole);
    Ok(())
}

#[test]
fn labels_of_the_source_win_over_labels_that_a_placement_adds() -> Result<(), Error> {
    let text = body(&json!({"name": "web", "namespace": "shop", "labels": {"team": "source"}}));
    let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let additions =
        Additions { labels: pairs(&[("team", "added"), ("tier", "added")]), annotations: pairs(&[("note", "added")]) };
    let object = render(&text, &entry(), &additions, &mark())?;
    let label = |name: &str| object["metadata"]["labels"][name].clone();
    assert_eq!((label("team"), label("tier")), (json!("source"), json!("added")));
    assert_eq!(object["metadata"]["annotations"]["note"], "added");
    Ok(())
}
