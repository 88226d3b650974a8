use super::*;

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

#[test]
fn what_is_held_and_named_by_nothing_is_given_up_once() {
    let [used, spare, other] = ["used", "spare", "other"].map(digest);
    let mut inputs = Inputs::new(BTreeSet::from([used, spare]));
    inputs.name(used);
    inputs.name(other);
    assert_eq!(inputs.take_all_unnamed(), [spare]);
    assert_eq!(inputs.take_all_unnamed(), []);
    assert!(inputs.is_held(&used) && !inputs.is_held(&spare) && !inputs.is_held(&other));
}

#[test]
fn a_body_is_unnamed_when_the_last_entry_lets_go_of_it() {
    let body = digest("body");
    let mut inputs = Inputs::default();
    inputs.name(body);
    inputs.name(body);
    inputs.hold(body);
    assert!(!inputs.unname(&body));
    assert_eq!(inputs.take_unnamed([body]), []);
    assert!(inputs.unname(&body));
    // What is named again is kept.
    inputs.name(body);
    assert_eq!(inputs.take_unnamed([body]), []);
    assert!(inputs.is_held(&body));
    assert!(inputs.unname(&body));
    assert_eq!(inputs.take_unnamed([body]), [body]);
    assert!(!inputs.is_held(&body) && !inputs.unname(&body));
}

#[test]
fn what_is_not_held_is_not_to_be_dropped() {
    let body = digest("body");
    let mut inputs = Inputs::default();
    inputs.hold(body);
    inputs.lost(&body);
    inputs.name(body);
    assert!(!inputs.is_held(&body));
    inputs.hold(body);
    inputs.lost(&body);
    assert!(!inputs.unname(&body));
    assert_eq!(inputs.take_all_unnamed(), []);
}

#[test]
fn packing_changes_nothing() {
    let mut inputs = Inputs::default();
    let all: Vec<Digest> = (0..1_000).map(|index| digest(&index.to_string())).collect();
    for input in &all {
        inputs.hold(*input);
        inputs.name(*input);
    }
    inputs.pack();
    assert!(all.iter().all(|input| inputs.is_held(input) && inputs.unname(input)));
    assert_eq!(inputs.take_all_unnamed().len(), all.len());
}
