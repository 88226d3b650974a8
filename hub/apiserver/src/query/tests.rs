use super::*;

#[test]
fn a_timeout_of_zero_is_none() {
    let timeout = |query: &str| {
        let options = Query::parse(Some(query)).ok().and_then(|query| ListOptions::parse(&query).ok());
        options.expect("options").timeout
    };
    assert_eq!(timeout("watch=1&timeoutSeconds=0"), None);
    assert_eq!(timeout("watch=1"), None);
    assert_eq!(timeout("watch=1&timeoutSeconds=1"), Some(Duration::from_secs(1)));
}
