use serde_json::json;

use super::*;

fn record(holds: bool, others: usize) -> HolderRecord {
    let seen = [
        json!({"id": "0000000000000001", "host": "store-a", "address": "192.0.2.7", "since": 1_767_225_600}),
        json!({"id": "0000000000000002", "host": "store-b", "address": "192.0.2.8", "since": 1_767_229_200}),
        json!({"id": "0000000000000003", "host": "store-c", "since": 1_767_232_800}),
    ];
    let holder = if holds { &seen[0] } else { &json!(null) };
    serde_json::from_value(json!({"holder": holder, "others": seen[1..=others]})).unwrap()
}

#[test]
fn of_several_agents_a_person_reads_host_address_and_since_when() {
    let keeps = "0000000000000001 on store-a at 192.0.2.7 keeps the cluster since 2026-01-01T00:00:00Z";
    let second = "0000000000000002 on store-b at 192.0.2.8 is frozen since 2026-01-01T01:00:00Z";
    let third = "0000000000000003 on store-c is frozen since 2026-01-01T02:00:00Z";
    let unheard = "the one that keeps the cluster was not heard by this hub";
    for (record, expected) in [
        (record(true, 1), vec![keeps, second]),
        (record(true, 2), vec![keeps, second, third]),
        (record(false, 2), vec![second, third, unheard]),
    ] {
        let text = describe("store", &instances(&record));
        let (_, listed) = text.split_once(": ").unwrap();
        let (listed, rest) = listed.split_once(". ").unwrap();
        assert_eq!(listed.split("; ").collect::<Vec<_>>(), expected);
        assert!(rest.contains("targets accept store --instance"), "{rest}");
    }
    for record in [record(true, 0), record(false, 0)] {
        assert_eq!(instances(&record), []);
    }
}

#[test]
fn who_is_none_of_them_is_told_of_each_in_words_that_a_terminal_shows() {
    let status = json!({"instances": [{"id": "0000000000000001", "host": "a\u{1b}[2J\u{202e}", "holds": true}]});
    let metadata = json!({"name": "store"});
    let found = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "SyncTarget", "metadata": metadata, "spec": {}, "status": status,
    });
    let error = choose("store", &tideline_api::decode(found).unwrap(), InstanceId(7)).unwrap_err();
    assert!(error.to_string().ends_with("0000000000000001 on a [2J "), "{error:?}");
}

#[test]
fn who_holds_the_target_is_shown_first_and_alone_as_the_holder() {
    let shown = instances(&record(true, 2));
    let shown: Vec<_> = shown.iter().map(|it| (it.host.as_str(), it.address.as_deref(), it.holds)).collect();
    let (first, second) = (("store-a", Some("192.0.2.7"), true), ("store-b", Some("192.0.2.8"), false));
    assert_eq!(shown, [first, second, ("store-c", None, false)]);
}
