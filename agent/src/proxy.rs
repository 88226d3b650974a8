//! The proxy that the environment names for the way to the hub, as the client of the hub understands it (hyper-util's
//! `Matcher::from_env`), which ignores an invalid URL without a message.

use std::fmt;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use tideline_common::HubUrl;

/// In order of precedence.
const VARIABLES: [[&str; 2]; 2] = [["HTTPS_PROXY", "https_proxy"], ["ALL_PROXY", "all_proxy"]];
/// Of requests that are not by HTTPS: none of the agent's.
const OF_HTTP: [&str; 2] = ["HTTP_PROXY", "http_proxy"];
/// Where none is used.
const EXCEPT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// What the environment says of proxies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    /// The variable, and the host and port that it names. No user and no password.
    pub(crate) in_use: Option<(&'static str, String)>,
    /// The variable that says where none is used, and what it says.
    except: Option<(&'static str, String)>,
    /// Variables that are set for nothing.
    pub(crate) ignored: Vec<Ignored>,
}

/// A variable that is set for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// It names no proxy that can be used.
    NoProxy(&'static str),
    /// Another has precedence.
    Other { name: &'static str, first: &'static str },
    /// It is of requests by HTTP, and there is no proxy for those by HTTPS.
    OfHttp(&'static str),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProxy(name) => write!(f, "{name} names no proxy and is ignored: write it as http://HOST:PORT"),
            Self::Other { name, first } => write!(f, "{name} is ignored: {first} is set, and says something else"),
            Self::OfHttp(name) => {
                write!(
                    f,
                    "{name} is ignored: the hub is asked by HTTPS. If it is reached by that proxy, set HTTPS_PROXY"
                )
            }
        }
    }
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
                Some((name, None)) => proxies.ignored.push(Ignored::NoProxy(name)),
                Some((_, Some(_))) | None => {}
            }
        }
        let is_set = |name: &&str| value(name).is_some_and(|value| !value.is_empty());
        if !VARIABLES.as_flattened().iter().any(&is_set) {
            proxies.ignored.extend(OF_HTTP.into_iter().find(is_set).map(Ignored::OfHttp));
        }
        proxies.except = EXCEPT.into_iter().find_map(|name| Some((name, value(name)?)));
        for [first, name] in VARIABLES.into_iter().chain([EXCEPT]) {
            if let (Some(in_use), Some(other)) = (value(first), value(name))
                && in_use != other
            {
                proxies.ignored.push(Ignored::Other { name, first });
            }
        }
        proxies
    }

    /// That the proxy is not used for this address, and why, if it is not.
    pub(crate) fn bypass(&self, url: &HubUrl) -> Option<String> {
        let ((variable, host), (except, addresses)) = (self.in_use.as_ref()?, self.except.as_ref()?);
        let matcher = Matcher::builder().all(format!("http://{host}")).no(addresses.as_str()).build();
        let is_used = matcher.intercept(&url.to_string().parse().ok()?).is_some();
        (!is_used).then(|| format!("{variable} is ignored for {url}: {except} names that address"))
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
    fn an_invalid_proxy_url_is_ignored_and_its_password_never_shown() {
        let used = |variable, host: &str| Some((variable, host.to_owned()));
        assert_eq!(of(&[]), Proxies::default());
        assert_eq!(of(&[("HTTPS_PROXY", "")]), Proxies::default());
        assert_eq!(of(&[("HTTPS_PROXY", "http://me:secret@proxy:3128")]).in_use, used("HTTPS_PROXY", "proxy:3128"));
        assert_eq!(of(&[("https_proxy", "proxy:3128")]).in_use, used("https_proxy", "proxy:3128"));
        assert_eq!(of(&[("HTTPS_PROXY", ""), ("https_proxy", "http://proxy:1")]).in_use, None);
        for wrong in ["http//proxy:3128", "http://", "proxy port 3128", "ftp://proxy", "socks5://proxy:1080"] {
            let proxies = of(&[("HTTPS_PROXY", wrong), ("ALL_PROXY", "http://other:1")]);
            assert_eq!(
                (proxies.in_use, proxies.ignored),
                (used("ALL_PROXY", "other:1"), vec![Ignored::NoProxy("HTTPS_PROXY")]),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_proxy_of_http_alone_is_said_to_be_ignored() {
        let one = ("http_proxy", "http://one:1");
        assert_eq!(of(&[one]).ignored, [Ignored::OfHttp("http_proxy")]);
        assert_eq!(of(&[("HTTP_PROXY", "http://two:2"), ("HTTPS_PROXY", ""), one]).ignored.len(), 1);
        assert_eq!(
            Ignored::OfHttp("HTTP_PROXY").to_string(),
            "HTTP_PROXY is ignored: the hub is asked by HTTPS. If it is reached by that proxy, set HTTPS_PROXY"
        );
        assert!(of(&[("HTTP_PROXY", "")]).ignored.is_empty());
        for other in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            assert!(of(&[one, (other, "http://two:2")]).ignored.is_empty(), "{other} is used");
        }
    }

    #[test]
    fn where_two_proxy_variables_differ_the_second_is_ignored() {
        let ignored =
            |variables: &[(&str, &str)]| of(variables).ignored.iter().map(ToString::to_string).collect::<Vec<_>>();
        let both = [("HTTPS_PROXY", "http://one:1"), ("https_proxy", "http://two:2")];
        assert_eq!(ignored(&both), ["https_proxy is ignored: HTTPS_PROXY is set, and says something else"]);
        assert_eq!(ignored(&[("NO_PROXY", ""), ("no_proxy", "hub.example")]).len(), 1);
        assert_eq!(ignored(&[("HTTPS_PROXY", ""), ("https_proxy", "http://two:2")]).len(), 1);
        assert!(ignored(&[("HTTPS_PROXY", "http://one:1"), ("https_proxy", "http://one:1")]).is_empty());
        assert!(ignored(&[("HTTPS_PROXY", "http://one:1"), ("ALL_PROXY", "http://two:2")]).is_empty(), "that is usual");
    }

    #[test]
    fn a_proxy_is_said_to_be_ignored_where_another_variable_excepts_the_hub() {
        let bypass = |no_proxy: &str, url: &str| {
            of(&[("HTTPS_PROXY", "http://me:secret@proxy:3128"), ("NO_PROXY", no_proxy)]).bypass(&url.parse().unwrap())
        };
        assert_eq!(
            bypass("example.com", "https://hub.example.com:8443").as_deref(),
            Some("HTTPS_PROXY is ignored for https://hub.example.com:8443: NO_PROXY names that address")
        );
        assert!(bypass("10.0.0.0/8", "https://10.1.2.3").is_some());
        assert_eq!(bypass("other.example", "https://hub.example.com"), None);
        assert_eq!(of(&[("NO_PROXY", "example.com")]).bypass(&"https://hub.example.com".parse().unwrap()), None);
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
