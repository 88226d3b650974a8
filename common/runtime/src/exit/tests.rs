use super::chain;

#[derive(Debug, thiserror::Error)]
#[error("cannot open the journal")]
struct Outer(#[source] Inner);

#[derive(Debug, thiserror::Error)]
#[error("cannot read snap.1: {0}")]
struct Inner(#[source] std::io::Error);

#[test]
fn every_cause_is_said_once() {
    let error = Outer(Inner(std::io::Error::other("bad disk")));
    assert_eq!(chain(&error), "cannot open the journal: cannot read snap.1: bad disk");
}
