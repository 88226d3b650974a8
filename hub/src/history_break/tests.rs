use super::*;

fn unknown(target: String, revision: u64) -> HistoryBreak {
    let (segment, epoch) = ("s".to_owned(), Epoch(1));
    HistoryBreak::SetUnknown { target, segment, epoch, revision: Revision(revision), after: Revision(70), proven: true }
}

#[test]
fn of_many_unknown_sets_the_highest_are_named() {
    let breaks: Vec<_> = (100..10_100).map(|nth| unknown(format!("shop-{nth}"), nth)).collect();
    let sentence = sentence(&breaks).unwrap();
    let named = "shop-10099 (at 1.10099), shop-10098 (at 1.10098), shop-10097 (at 1.10097), shop-10096 (at 1.10096), \
                 shop-10095 (at 1.10095), and 9995 more, shown by tideline-hub history show.";
    assert!(sentence.contains(named), "{sentence}");
}

#[test]
fn as_many_as_are_named_leave_out_none() {
    let breaks: Vec<_> = (1..=5).map(|nth| unknown(format!("shop-{nth}"), nth)).collect();
    let sentence = sentence(&breaks).unwrap();
    assert!((1..=5).all(|nth| sentence.contains(&format!("shop-{nth} (at 1.{nth})"))), "{sentence}");
    assert!(!sentence.contains("more"), "{sentence}");
}
