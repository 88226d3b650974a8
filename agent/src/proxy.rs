//! The proxy that the environment names for the way to the hub, as the client of the hub understands it (hyper-util's
//! `Matcher::from_env`): what is no URL there it ignores without a word.

use http::Uri;

/// In the order in which they are looked at.
const VARIABLES: [[&str; 2]; 2] = [["HTTPS_PROXY", "https_proxy"], ["ALL_PROXY", "all_proxy"]];

/// What the environment says of proxies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    /// The variable, and the host and port that it names. No user and no password.
    pub(crate) in_use: Option<(&'static str, String)>,
    /// Variables that name no proxy that can be used.
    pub(crate) ignored: Vec<&'static str>,
}

impl Proxies {
    pub(crate) fn of_environment() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(value: impl Fn(&str) -> Option<String>) -> Self {
        let mut proxies = Self::default();
        for names in VARIABLES {
            let set =
                names.into_iter().find_map(|name| Some((name, value(name)?))).filter(|(_, value)| !value.is_empty());
            match set.map(|(name, value)| (name, host_of(&value))) {
                Some((name, Some(host))) if proxies.in_use.is_none() => proxies.in_use = Some((name, host)),
                Some((name, None)) => proxies.ignored.push(name),
                Some((_, Some(_))) | None => {}
            }
        }
        proxies
    }

    /// What to do about a proxy that did not let a request through, by what the client says of it; none if it says nothing
    /// of a proxy.
    pub(crate) fn advice(&self, error: &str) -> Option<String> {
        let (variable, host) = self.in_use.as_ref()?;
        if error.contains("proxy authorization required") {
            Some(format!(
                "the proxy {host} answers 407: put its user and password into {variable}, as in http://USER:PASSWORD@{host}"
            ))
        } else if error.contains("tunnel error: unsuccessful") {
            Some(format!(
                "the proxy {host} does not let it pass: have it allow CONNECT to the hub, or name the hub in NO_PROXY"
            ))
        } else if error.contains("tunnel error: ") {
            Some(format!("the proxy {host} of {variable} cannot be reached, or is none"))
        } else {
            None
        }
    }
}

/// Where a proxy is; none if that is no URL of one.
fn host_of(value: &str) -> Option<String> {
    let uri: Uri = value.parse().ok()?;
    // The client is built without SOCKS.
    let is_known = uri.scheme_str().is_none_or(|scheme| ["http", "https"].contains(&scheme));
    let authority = uri.authority().filter(|_| is_known)?.as_str();
    Some(authority.rsplit('@').next().unwrap_or(authority).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Proxies {
        Proxies::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn what_is_no_url_is_ignored_and_no_password_is_shown() {
        let used = |variable, host: &str| Some((variable, host.to_owned()));
        assert_eq!(of(&[]), Proxies::default());
        assert_eq!(of(&[("HTTPS_PROXY", "")]), Proxies::default());
        assert_eq!(of(&[("HTTPS_PROXY", "http://me:secret@proxy:3128")]).in_use, used("HTTPS_PROXY", "proxy:3128"));
        assert_eq!(of(&[("https_proxy", "proxy:3128")]).in_use, used("https_proxy", "proxy:3128"));
        assert_eq!(of(&[("HTTPS_PROXY", ""), ("https_proxy", "http://proxy:1")]), Proxies::default());
        for wrong in ["http//proxy:3128", "http://", "proxy port 3128", "ftp://proxy", "socks5://proxy:1080"] {
            let proxies = of(&[("HTTPS_PROXY", wrong), ("ALL_PROXY", "http://other:1")]);
            assert_eq!(
                (proxies.in_use, proxies.ignored),
                (used("ALL_PROXY", "other:1"), vec!["HTTPS_PROXY"]),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_proxy_that_lets_nothing_pass_is_named() {
        let proxies = of(&[("HTTPS_PROXY", "http://me:secret@proxy:3128")]);
        let advice = |error: &str| proxies.advice(error).unwrap_or_default();
        assert!(advice("tunnel error: proxy authorization required").starts_with("the proxy proxy:3128 answers 407"));
        assert!(advice("tunnel error: unsuccessful").contains("allow CONNECT"));
        assert!(advice("tunnel error: failed to create underlying connection").contains("cannot be reached"));
        assert_eq!(advice("dns error"), "");
        assert!(!advice("tunnel error: proxy authorization required").contains("secret"));
    }
}
