use super::Reason;

#[test]
fn the_documentation_says_what_each_reason_means() {
    let text = include_str!("../../../docs/reasons.md");
    let missing = Reason::ALL.iter().filter(|reason| !text.contains(&format!("`{reason}`")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&Reason>::new());
}
