use super::{Format, init};
use crate::exit::chain;

#[test]
fn a_bad_filter_is_named_with_what_is_wrong_and_what_to_write() {
    let error = init("tideline_agent=loud", Format::Auto).expect_err("there is no such level");
    let text = chain(&error);
    assert!(text.starts_with("\"tideline_agent=loud\" is not a log filter; write a level such as `info`"), "{text}");
}

#[test]
fn init_may_be_repeated_and_still_checks_its_filter() {
    init("error", Format::Text).expect("it is a filter");
    init("info,tideline_agent=debug", Format::Json).expect("it is a filter");
    init("x=y=z", Format::Json).expect_err("it is no filter");
}
