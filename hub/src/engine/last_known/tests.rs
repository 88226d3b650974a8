use super::*;

fn target() -> TargetId {
    "00000000-0000-4000-8000-000000000000".parse().unwrap()
}

fn known(tier: &str) -> LastKnown {
    LastKnown { name: "t".to_owned(), labels: [("tier".to_owned(), tier.to_owned())].into(), ..LastKnown::default() }
}

#[test]
fn only_what_changed_is_saved() {
    let mut inventory = Inventory::default();
    for (tier, news) in [("shop", true), ("shop", false), ("depot", true), ("shop", true)] {
        inventory.seen(target(), known(tier));
        assert_eq!(
            inventory.take_unsaved(),
            news.then(|| (target(), Some(known(tier)))).into_iter().collect(),
            "{tier}"
        );
    }
    let mut next = Inventory::new([(target(), known("shop"))].into());
    next.seen(target(), known("shop"));
    assert!(next.is_saved(), "nor at the next start");
    next.gone(target());
    next.gone(target());
    assert_eq!(next.take_unsaved(), [(target(), None)].into());
}

#[test]
fn what_another_version_wrote_is_read() {
    let read: LastKnown = serde_json::from_str(r#"{"name": "t", "newer": 1}"#).unwrap();
    assert_eq!(read, LastKnown { name: "t".to_owned(), ..LastKnown::default() });
    let leaving = LastKnown { decommission: Decommission::Keep, unschedulable: true, ..known("shop") };
    let text = serde_json::to_string(&leaving).unwrap();
    assert_eq!(serde_json::from_str::<LastKnown>(&text).unwrap(), leaving);
}
