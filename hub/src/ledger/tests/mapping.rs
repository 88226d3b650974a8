//! One source at several destinations.

use super::*;
use crate::ledger::SCHEMA;

/// The source `name` of space `a`, called so at these targets.
fn mapped(name: &str, at: &[(Option<&str>, &[u32])]) -> Change {
    let mut assignment = assigned("a", name, &format!("a-{name}"), name, &[]);
    let variants = at.iter().map(|(destination, targets)| {
        let body = format!("{name} {}", destination.unwrap_or("as it is"));
        Variant { destination: destination.map(Into::into), ..variant(&body, false, targets) }
    });
    assignment.variants = variants.collect();
    assignment.variants.sort_by_cached_key(Variant::order);
    Change::Assign(Box::new(assignment))
}

#[test]
fn a_source_may_be_at_two_places_of_one_target() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![mapped("x", &[(Some("east"), &[0, 1]), (Some("west"), &[1])])]);
    kept.restart();
    check_sound(&kept.ledger);
    assert_eq!(kept.keys(0), ["ConfigMap east/x from a"]);
    assert_eq!(kept.keys(1), ["ConfigMap east/x from a", "ConfigMap west/x from a"]);
    let view = kept.ledger.target(target(1)).unwrap();
    let west = ObjectKey { namespace: "west".into(), ..config_map("x") };
    assert_eq!(&*view.body(&west, Input::new("x west").digest).unwrap().text, "x west");
    let source = &view.entry(&west).unwrap().source;
    assert_eq!((&*source.namespace, &*source.name), ("shop", "x"), "where it comes from is as it was");
    let places: Vec<_> =
        kept.ledger.sources_from(&"a".parse().unwrap(), &config_map("x")).map(|view| view.key()).collect();
    assert_eq!(places.iter().map(|key| &*key.namespace).collect::<Vec<_>>(), ["east", "west"]);
}

#[test]
fn another_destination_is_a_removal_from_the_former_one() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![assign("a", "x", &[0])]);
    let before = kept.ledger.revision();
    let committed = kept.change(vec![mapped("x", &[(Some("east"), &[0])])]);
    assert_eq!((committed.revision, committed.sources), (before.next(), vec![id("a", "a-x")]));
    kept.restart();
    assert_eq!(kept.keys(0), ["ConfigMap east/x from a"]);
    assert_eq!(kept.tombstones(0), ["ConfigMap shop/x of a-x"]);
    assert_eq!(kept.records.0.keys().filter(|key| key.starts_with(b"ledger/source/")).count(), 1);
    kept.change(vec![assign("a", "x", &[0])]);
    assert_eq!(kept.tombstones(0), ["ConfigMap east/x of a-x"]);
    kept.change(vec![remove("a", "x")]);
    assert_eq!(kept.tombstones(0), ["ConfigMap east/x of a-x", "ConfigMap shop/x of a-x"]);
    assert_eq!(kept.ledger.sources_from(&"a".parse().unwrap(), &config_map("x")).count(), 0);
}

#[test]
fn another_source_at_the_destination_keeps_it() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![assign("b", "x", &[0])]);
    kept.change(vec![mapped("x", &[(None, &[0]), (Some("east"), &[0])])]);
    assert_eq!(kept.keys(0), ["ConfigMap east/x from a", "ConfigMap shop/x from b"]);
    let waiting: u64 = kept.ledger.source(&id("a", "a-x")).map(|view| view.waiting().len()).sum();
    assert_eq!(waiting, 1);
    kept.change(vec![remove("b", "x")]);
    assert_eq!(kept.keys(0), ["ConfigMap east/x from a", "ConfigMap shop/x from a"]);
}

#[test]
fn what_a_crash_left_of_several_destinations_is_told_anew() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![mapped("x", &[(Some("east"), &[0]), (Some("west"), &[0])])]);
    let old = kept.records.clone();
    let Change::Assign(mut assignment) = mapped("x", &[(Some("east"), &[0]), (Some("west"), &[0])]) else { panic!() };
    assignment.wave = 7;
    kept.change(vec![Change::Assign(assignment.clone())]);
    assert_eq!(kept.records.load().assignments(), [(*assignment).clone()]);
    let (west, record) = old.0.iter().find(|(key, _)| key.ends_with(b"/west")).unwrap();
    kept.records.0.insert(west.clone(), record.clone());
    kept.restart();
    assert_ne!(kept.ledger.assignments(), [(*assignment).clone()]);
    assert_ne!(kept.writes(vec![Change::Assign(assignment)]), 0);
}

/// As the first schema wrote it: no destinations, and the number 1 in the head.
#[test]
fn a_ledger_of_the_first_schema_is_read() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![assign("a", "x", &[0])]);
    let head = kept.records.0.get_mut(&b"ledger/head"[..]).unwrap();
    let written = String::from_utf8(head.clone()).unwrap();
    let first = written.replace(&format!("\"schema\":{SCHEMA}"), "\"schema\":1");
    assert_ne!(written, first);
    *head = first.into_bytes();
    kept.restart();
    assert_eq!(kept.keys(0), ["ConfigMap shop/x from a"]);
    kept.change(vec![mapped("x", &[(None, &[0]), (Some("east"), &[0])])]);
    kept.restart();
    assert_eq!(kept.keys(0), ["ConfigMap east/x from a", "ConfigMap shop/x from a"]);
}
