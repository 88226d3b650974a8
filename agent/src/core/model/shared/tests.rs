use std::sync::Arc;

use super::{Shared, TEXT_BYTES_MAX};
use crate::core::tests::{entry, key};

#[test]
fn entries_share_what_they_have_alike() {
    let mut shared = Shared::default();
    let mut entries = ["a", "b"].map(|name| Arc::new(entry(&key("apps", "Deployment", name), 1, 1)));
    let before = entries.clone().map(|entry| (*entry).clone());
    for entry in &mut entries {
        shared.entry(entry);
    }
    let [first, second] = &entries;
    assert_eq!([&**first, &**second], [&before[0], &before[1]], "nothing else changes");
    assert!(Arc::ptr_eq(&first.key.kind.kind, &second.key.kind.kind));
    assert!(Arc::ptr_eq(&first.key.namespace, &second.key.namespace));
    assert!(Arc::ptr_eq(&first.version, &second.version));
    assert!(!Arc::ptr_eq(&first.key.name, &second.key.name));
}

#[test]
fn equal_messages_are_stored_once() {
    let mut shared = Shared::default();
    let [first, second, other] = ["1 of 2", "1 of 2", "2 of 2"].map(|text| shared.shared(text));
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!([&*second, &*other], ["1 of 2", "2 of 2"]);
}

#[test]
fn of_long_messages_the_last_alone_is_remembered() {
    let mut shared = Shared::default();
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    let other = "y".repeat(TEXT_BYTES_MAX + 1);
    let [first, second, _, later] = [&long, &long, &other, &long].map(|text| shared.shared(text));
    assert!(Arc::ptr_eq(&first, &second) && *first == *long);
    assert!(!Arc::ptr_eq(&first, &later) && *later == *long);
    assert!(shared.texts.is_empty());
}
