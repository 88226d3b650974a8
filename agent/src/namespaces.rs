//! An agent may be kept to some namespaces, so that it needs rights in these alone.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tideline_common::ObjectKey;

/// Longest name of a namespace: a label of RFC 1123.
const NAME_MAX: usize = 63;

/// The namespaces that an agent keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All, and objects without a namespace.
    #[default]
    All,
    /// These, and nothing outside them: not the Namespace objects themselves either.
    Only(Arc<BTreeSet<Arc<str>>>),
}

/// The name of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespaceName(Arc<str>);

impl FromStr for NamespaceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let good = text.len() <= NAME_MAX
            && text.bytes().all(inner)
            && !text.is_empty()
            && !text.starts_with('-')
            && !text.ends_with('-');
        if good {
            Ok(Self(text.into()))
        } else {
            Err(format!("it must be the name of a namespace: at most {NAME_MAX} of a-z, 0-9 and -, such as shop"))
        }
    }
}

impl Namespaces {
    /// Those that are named; all if none is.
    pub fn only(names: impl IntoIterator<Item = NamespaceName>) -> Self {
        let names: BTreeSet<_> = names.into_iter().map(|NamespaceName(name)| name).collect();
        if names.is_empty() { Self::All } else { Self::Only(Arc::new(names)) }
    }

    pub fn keep(&self, key: &ObjectKey) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(&key.namespace),
        }
    }

    /// Where lists are asked for: once for all, or in each.
    pub fn each(&self) -> impl Iterator<Item = Option<&str>> {
        let (all, names) = match self {
            Self::All => (Some(None), None),
            Self::Only(names) => (None, Some(names)),
        };
        all.into_iter().chain(names.into_iter().flat_map(|names| names.iter().map(|name| Some(&**name))))
    }
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Only(names) => f.write_str(&names.iter().map(|name| &**name).collect::<Vec<_>>().join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tideline_common::GroupKind;

    use super::*;

    fn key(namespace: &str) -> ObjectKey {
        ObjectKey { kind: GroupKind::new("", "ConfigMap"), namespace: namespace.into(), name: "web".into() }
    }

    #[test]
    fn an_object_is_kept_only_if_its_namespace_is_listed() {
        let some = Namespaces::only(["shop", "till"].map(|name| name.parse().unwrap()));
        assert_eq!(["shop", "till", "other", ""].map(|name| some.keep(&key(name))), [true, true, false, false]);
        assert_eq!(some.each().collect::<Vec<_>>(), [Some("shop"), Some("till")]);
        assert_eq!(some.to_string(), "shop, till");
    }

    #[test]
    fn an_empty_list_keeps_every_namespace() {
        let all = Namespaces::only([]);
        assert!(all.keep(&key("")) && all.keep(&key("shop")));
        assert_eq!(all.each().collect::<Vec<_>>(), [None]);
    }

    #[test]
    fn an_invalid_namespace_name_is_refused() {
        for name in ["", "-a", "a-", "A", "a.b", "a/b", &"a".repeat(NAME_MAX + 1)] {
            assert!(name.parse::<NamespaceName>().is_err(), "{name:?}");
        }
        assert!("a".repeat(NAME_MAX).parse::<NamespaceName>().is_ok());
    }
}
