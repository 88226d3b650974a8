//! Where everything lives in the store. This file is the only one that spells a key.
//!
//! ```text
//! /registry/<space>/!                                            the space record
//! /registry/<space>/<group or "core">/<resource>/<namespace or "-">/<name>   one object
//! ```
//!
//! - One prefix holds everything, so one watcher sees everything.
//! - The record of a space sorts before its objects: `!` is less than any character of a group.
//! - The version is not part of the key: an object is one object in whatever version it is served.
//! - `core` cannot collide with a custom group (those hold a dot) and `-` is no namespace name.
//! - A name may hold any character but `/` and `%`; a namespace is a DNS label.

use bytes::Bytes;
use tideline_store::KeyRange;

/// Everything the server keeps.
pub(crate) const PREFIX: &str = "/registry/";
const RECORD: &str = "!";
const CORE: &str = "core";
const NO_NAMESPACE: &str = "-";

/// A key, read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    Space(&'a str),
    Object { space: &'a str, group: &'a str, plural: &'a str, namespace: Option<&'a str>, name: &'a str },
}

impl<'a> Key<'a> {
    pub(crate) fn parse(key: &'a [u8]) -> Option<Self> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?;
        let (space, rest) = rest.split_once('/')?;
        if rest == RECORD {
            return Some(Key::Space(space));
        }
        let mut parts = rest.splitn(4, '/');
        let (group, plural, namespace, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Key::Object {
            space,
            group: if group == CORE { "" } else { group },
            plural,
            namespace: (namespace != NO_NAMESPACE).then_some(namespace),
            name,
        })
    }
}

/// Group and plural of an object's key, also of one whose rest cannot be read.
pub(crate) fn resource_of(key: &[u8]) -> Option<(&str, &str)> {
    let rest = key.strip_prefix(PREFIX.as_bytes())?;
    let mut parts = rest.splitn(4, |byte| *byte == b'/').skip(1);
    let group = std::str::from_utf8(parts.next()?).ok()?;
    let plural = std::str::from_utf8(parts.next()?).ok()?;
    Some((if group == CORE { "" } else { group }, plural))
}

/// Everything of every space.
pub(crate) fn everything() -> KeyRange {
    prefix(PREFIX)
}

/// The record and all objects of one space.
pub(crate) fn space(space: &str) -> KeyRange {
    prefix(&format!("{PREFIX}{space}/"))
}

/// The first key after everything of one space.
pub(crate) fn after_space(space: &str) -> Bytes {
    Bytes::from(format!("{PREFIX}{space}0"))
}

pub(crate) fn space_record(space: &str) -> Bytes {
    Bytes::from(format!("{PREFIX}{space}/{RECORD}"))
}

/// All objects of one resource, in one namespace or in all.
pub(crate) fn resource(space: &str, group: &str, plural: &str, namespace: Option<&str>) -> KeyRange {
    let group = group_segment(group);
    match namespace {
        Some(namespace) => prefix(&format!("{PREFIX}{space}/{group}/{plural}/{namespace}/")),
        None => prefix(&format!("{PREFIX}{space}/{group}/{plural}/")),
    }
}

pub(crate) fn object(space: &str, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> Bytes {
    let group = group_segment(group);
    let namespace = namespace.unwrap_or(NO_NAMESPACE);
    Bytes::from(format!("{PREFIX}{space}/{group}/{plural}/{namespace}/{name}"))
}

/// The smallest key greater than `key`.
pub(crate) fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Bytes::from(next)
}

fn group_segment(group: &str) -> &str {
    if group.is_empty() { CORE } else { group }
}

/// All keys that start with `prefix`, which ends in `/`: `0` is the character after it.
fn prefix(prefix: &str) -> KeyRange {
    let end = format!("{}0", prefix.strip_suffix('/').unwrap_or(prefix));
    KeyRange { start: Bytes::from(prefix.to_owned()), end: Bytes::from(end) }
}

#[cfg(test)]
mod tests;
