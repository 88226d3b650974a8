use super::*;

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

#[test]
fn an_unreferenced_body_is_dropped_once() {
    let [used, spare, other] = ["used", "spare", "other"].map(digest);
    let mut inputs = Inputs::new(BTreeSet::from([used, spare]));
    inputs.name(used);
    inputs.name(other);
    assert_eq!(inputs.take_all_unnamed(), [spare]);
    assert_eq!(inputs.take_all_unnamed(), []);
    assert!(inputs.is_stored(&used) && !inputs.is_stored(&spare) && !inputs.is_stored(&other));
}

#[test]
fn a_body_is_unreferenced_when_the_last_entry_drops_it() {
    let body = digest("body");
    let mut inputs = Inputs::default();
    inputs.name(body);
    inputs.name(body);
    inputs.keep(body);
    assert!(!inputs.unname(&body));
    assert_eq!(inputs.take_unnamed([body]), []);
    assert!(inputs.unname(&body));
    // What is named again is kept.
    inputs.name(body);
    assert_eq!(inputs.take_unnamed([body]), []);
    assert!(inputs.is_stored(&body));
    assert!(inputs.unname(&body));
    assert_eq!(inputs.take_unnamed([body]), [body]);
    assert!(!inputs.is_stored(&body) && !inputs.unname(&body));
}

#[test]
fn a_body_that_is_not_stored_is_not_dropped() {
    let body = digest("body");
    let mut inputs = Inputs::default();
    inputs.keep(body);
    inputs.lost(&body);
    inputs.name(body);
    assert!(!inputs.is_stored(&body));
    inputs.keep(body);
    inputs.lost(&body);
    assert!(!inputs.unname(&body));
    assert_eq!(inputs.take_all_unnamed(), []);
}

#[test]
fn packing_changes_nothing() {
    let mut inputs = Inputs::default();
    let all: Vec<Digest> = (0..1_000).map(|index| digest(&index.to_string())).collect();
    for input in &all {
        inputs.keep(*input);
        inputs.name(*input);
    }
    inputs.pack();
    assert!(all.iter().all(|input| inputs.is_stored(input) && inputs.unname(input)));
    assert_eq!(inputs.take_all_unnamed().len(), all.len());
}
