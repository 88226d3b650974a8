//! What a peer sends and nobody knows is not kept while a message is read.

#![expect(unsafe_code, reason = "an allocator that counts is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    BodiesAnswer, BodiesRequest, EnrolAnswer, EnrolRequest, NumberRefused, Refusal, ReportedAnswer, ReportedRequest,
    SessionAnswer, SessionRequest,
};
use tideline_common::{Entry, Unassignment};

thread_local! {
    /// Bytes that this thread was given in all.
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is the system's; the count allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.with(|allocated| allocated.set(allocated.get() + layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Nested values in each unknown field.
const VALUES: usize = 100_000;

/// A golden message.
fn golden(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1").join(format!("{name}.json"));
    serde_json::from_slice(&fs::read(path).expect("the golden file is there")).expect("it is JSON")
}

/// How many objects a message has, itself included.
fn objects(message: &Value) -> usize {
    match message {
        Value::Object(fields) => 1 + fields.values().map(objects).sum::<usize>(),
        Value::Array(items) => items.iter().map(objects).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Adds to the object at `position`, counted as [`objects`] does, a field that nobody knows.
fn pad(message: &mut Value, position: &mut usize) {
    match message {
        Value::Object(fields) => {
            if *position == 0 {
                let nested: Vec<_> = (0..VALUES).map(|_| Value::Array(Vec::new())).collect();
                fields.insert("fieldOfTomorrow".to_owned(), serde_json::json!({ "nested": nested }));
            }
            *position = position.wrapping_sub(1);
            fields
                .iter_mut()
                .filter(|(name, _)| *name != "fieldOfTomorrow")
                .for_each(|(_, value)| pad(value, position));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| pad(item, position)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reads a message with more than it knows in each of its objects in turn. What is kept as text (`status`) is copied twice; an
/// object whose names are data (`made`, `phases`) may refuse a name.
fn check<T: DeserializeOwned>(name: &str, message: &Value) {
    for position in 0..objects(message) {
        let mut padded = message.clone();
        pad(&mut padded, &mut position.clone());
        let json = serde_json::to_vec(&padded).expect("it is JSON");
        let before = ALLOCATED.get();
        let read = codec::read::<T>(&json);
        let allocated = ALLOCATED.get() - before;
        assert!(allocated <= 3 * json.len(), "{name}, object {position}: {allocated} bytes to read {}", json.len());
        assert!(position > 0 || read.is_ok(), "{name}: what is not known is ignored");
    }
}

#[test]
fn reading_what_nobody_knows_allocates_no_more_than_was_sent() {
    check::<EnrolRequest>("enrol-request", &golden("enrol-request"));
    check::<SessionRequest>("session-request", &golden("session-request"));
    check::<BodiesRequest>("bodies-request", &golden("bodies-request"));
    check::<ReportedRequest>("reported-request", &golden("reported-request"));
    check::<EnrolAnswer>("enrol-answer", &golden("enrol-answer"));
    check::<SessionAnswer>("session-answer", &golden("session-answer"));
    check::<BodiesAnswer>("bodies-answer", &golden("bodies-answer"));
    check::<ReportedAnswer>("reported-answer", &golden("reported-answer"));
    check::<NumberRefused>("number-refused", &golden("number-refused"));
    check::<Refusal>("refusal", &golden("refusal"));
    let page = golden("desired-page");
    check::<Vec<Entry>>("entries", &page["entries"]);
    check::<Vec<Unassignment>>("tombstones", &page["tombstones"]);
}
