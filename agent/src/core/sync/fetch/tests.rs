use super::*;
use crate::core::tests::{attested, entry, key};

use tideline_common::Version;
use tideline_common::wire::v1::{Accepted, Decommission};

const TEXT: &str = "{\"kind\":\"ConfigMap\"}";

fn input(n: usize) -> Digest {
    Digest::of(&n.to_be_bytes())
}

fn fetch(count: usize) -> Fetch {
    let change = Change {
        accepted: attested(Accepted { version: Version::default(), digest: Digest::of(b"") }),
        put: Vec::new(),
        remove: Vec::new(),
        policies: BTreeMap::new(),
        tombstones: BTreeMap::new(),
        left_at: BTreeMap::new(),
        terminal: Vec::new(),
        decommission: Decommission::No,
    };
    let wanted = |n| {
        let entry = entry(&key("", "ConfigMap", &format!("c{n}")), 1, 1);
        Arc::new(Entry { input: input(n), ..entry })
    };
    Fetch::new(Box::new(change), (0..count).map(wanted).collect())
}

fn part(n: usize, from: usize, to: usize) -> Body {
    Body {
        input: input(n),
        sha256: Digest::of(TEXT.as_bytes()),
        size: TEXT.len() as u64,
        offset: from as u64,
        text: TEXT[from..to].to_owned(),
    }
}

fn answer(bodies: Vec<Body>) -> BodiesAnswer {
    BodiesAnswer { bodies, outdated: Vec::new() }
}

#[test]
fn a_bounded_number_of_bounded_requests_is_in_flight() {
    let mut fetch = fetch(10 * BODIES_PER_REQUEST);
    let asked: Vec<usize> = (0..10).map_while(|id| fetch.next(RequestId(id))).map(|wanted| wanted.len()).collect();
    assert_eq!(asked, [BODIES_PER_REQUEST; BODY_REQUESTS_MAX]);
}

#[test]
fn bodies_that_did_not_fit_or_failed_are_requested_again() {
    let mut fetch = fetch(3);
    fetch.next(RequestId(1)).unwrap();
    let fetched = fetch.answered(RequestId(1), answer(vec![part(0, 0, TEXT.len())]));
    assert_eq!(fetched.bodies, [(input(0), TEXT.into())]);
    assert_eq!(fetch.next(RequestId(2)).unwrap().len(), 2);
    fetch.failed(RequestId(2));
    assert!(!fetch.is_done());
    assert_eq!(fetch.next(RequestId(3)).unwrap().len(), 2);
    fetch.answered(RequestId(3), answer(vec![part(1, 0, TEXT.len()), part(2, 0, TEXT.len())]));
    assert!(fetch.is_done());
}

#[test]
fn parts_are_resumed_and_checked_as_a_whole() {
    let mut fetch = fetch(1);
    fetch.next(RequestId(1)).unwrap();
    assert!(fetch.answered(RequestId(1), answer(vec![part(0, 0, 5)])).progress);
    assert_eq!(fetch.next(RequestId(2)).unwrap()[0].offset, 5);
    assert_eq!(fetch.answered(RequestId(2), answer(vec![part(0, 5, TEXT.len())])).bodies.len(), 1);
}

#[test]
fn parts_that_do_not_make_the_whole_are_dropped() {
    let mut fetch = fetch(1);
    fetch.next(RequestId(1)).unwrap();
    fetch.answered(RequestId(1), answer(vec![part(0, 0, 5)]));
    fetch.next(RequestId(2)).unwrap();
    let mut bad = part(0, 5, TEXT.len());
    bad.text = bad.text.replace('M', "m");
    let fetched = fetch.answered(RequestId(2), answer(vec![bad]));
    assert!(fetched.bodies.is_empty() && !fetched.progress);
    assert_eq!(fetch.next(RequestId(3)).unwrap()[0].offset, 0);
}

#[test]
fn an_answer_with_nothing_is_no_progress() {
    let mut fetch = fetch(1);
    fetch.next(RequestId(1)).unwrap();
    assert!(!fetch.answered(RequestId(1), answer(Vec::new())).progress);
}
