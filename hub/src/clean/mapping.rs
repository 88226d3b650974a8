//! Which namespaces objects are in at their targets.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::limits::LABEL_VALUE_BYTES_MAX;
use tideline_common::{ObjectKey, Reason};

use super::Refusal;

/// What the namespace of a source is called at a target, and of a namespace the name; none where it is as in the space.
pub type Destination = Option<Arc<str>>;

/// How a Placement names namespaces at its targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceMapping {
    /// Before every name that is not in `map`, but for those of the cluster's own namespaces.
    pub prefix: String,
    pub map: BTreeMap<String, String>,
}

impl From<tideline_api::NamespaceMapping> for NamespaceMapping {
    fn from(mapping: tideline_api::NamespaceMapping) -> Self {
        let tideline_api::NamespaceMapping { prefix, map } = mapping;
        Self { prefix, map }
    }
}

impl NamespaceMapping {
    /// Whether every namespace keeps its name.
    pub fn is_same(&self) -> bool {
        let Self { prefix, map } = self;
        prefix.is_empty() && map.iter().all(|(from, to)| from == to)
    }

    /// What a namespace is called at the targets, or why that cannot be.
    ///
    /// # Errors
    ///
    /// The name would be too long, or is one that nothing is placed into.
    pub fn namespace(&self, name: &str) -> Result<Destination, Refusal> {
        let mapped = match self.map.get(name) {
            Some(mapped) => mapped.clone(),
            // What refers to such a namespace means the target's own, and what is in it belongs there.
            None if name.starts_with("kube-") => return Ok(None),
            None => format!("{}{name}", self.prefix),
        };
        if mapped == name {
            return Ok(None);
        }
        if mapped == "default" || mapped.starts_with("kube-") {
            let message = format!(
                "spec.namespaceMapping has the namespace {name:?} become {mapped:?}, which every cluster has of its own; \
                 nothing is mapped to that"
            );
            return Err(Refusal { reason: Reason::NotAllowed, message });
        }
        if !is_label(&mapped) {
            let message = format!(
                "spec.namespaceMapping has the namespace {name:?} become {mapped:?}, which no namespace can be called: at \
                 most {LABEL_VALUE_BYTES_MAX} of a-z, 0-9 and -, no - at either end; name it in spec.namespaceMapping.map"
            );
            return Err(Refusal { reason: Reason::Invalid, message });
        }
        Ok(Some(mapped.into()))
    }

    /// Where an object is at the targets.
    ///
    /// # Errors
    ///
    /// As of [`namespace`](Self::namespace).
    pub fn destination(&self, key: &ObjectKey) -> Result<Destination, Refusal> {
        match name_in(key) {
            Some(namespace) if !self.is_same() => self.namespace(namespace),
            Some(_) | None => Ok(None),
        }
    }
}

/// The namespace that an object is in, or is.
fn name_in(key: &ObjectKey) -> Option<&str> {
    if key.kind.is("", "Namespace") { Some(&key.name) } else { key.is_namespaced().then_some(&*key.namespace) }
}

/// The place of an object at a target.
pub fn place_at(key: &ObjectKey, destination: &Destination) -> ObjectKey {
    match destination {
        None => key.clone(),
        Some(name) if key.kind.is("", "Namespace") => ObjectKey { name: name.clone(), ..key.clone() },
        Some(namespace) => ObjectKey { namespace: namespace.clone(), ..key.clone() },
    }
}

/// A DNS label (RFC 1123), as namespaces are named.
fn is_label(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (Some(&first), Some(&last)) = (name.as_bytes().first(), name.as_bytes().last()) else { return false };
    name.len() <= LABEL_VALUE_BYTES_MAX
        && is_letter(first)
        && is_letter(last)
        && name.bytes().all(|byte| is_letter(byte) || byte == b'-')
}

#[cfg(test)]
mod tests;
