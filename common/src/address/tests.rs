use super::{Authority, HubUrl};
use crate::limits::{AUTHORITY_BYTES_MAX, HUB_URL_BYTES_MAX};

#[test]
fn a_hub_url_has_a_host_and_nothing_that_paths_cannot_follow() {
    let read = |text: &str| text.parse::<HubUrl>().ok().map(|url| (url.to_string(), url.host().to_owned()));
    let some = |url: &str, host: &str| Some((url.to_owned(), host.to_owned()));
    assert_eq!(read("https://hub.example.com"), some("https://hub.example.com", "hub.example.com"));
    assert_eq!(read("https://hub:8443/tideline//"), some("https://hub:8443/tideline", "hub"));
    assert_eq!(read("https://[::1]:8443"), some("https://[::1]:8443", "::1"));
    for wrong in [
        "http://hub",
        "hub:8443",
        "https://",
        "https:///path",
        "https://:8443",
        "https://hub:0",
        "https://hub:eight",
        "https://hub:65536",
        "https://[::1",
        "https://[::1]x",
        "https://user@hub",
        "https://hub?x=1",
        "https://hub#x",
        "https://hub name",
    ] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
    assert_eq!(read(&format!("https://{}", "h".repeat(HUB_URL_BYTES_MAX))), None);
}

#[test]
fn an_authority_is_bounded() {
    assert!(Authority::from_der([]).is_none());
    assert!(Authority::from_der(vec![1; AUTHORITY_BYTES_MAX]).is_some());
    assert!(Authority::from_der(vec![1; AUTHORITY_BYTES_MAX + 1]).is_none());
}
