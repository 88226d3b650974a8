use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::limits::{LABEL_VALUE_BYTES_MAX, UID_BYTES_MAX};

/// A text that is not the identity it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a {what}: {why}")]
pub struct InvalidId {
    pub what: &'static str,
    pub value: String,
    pub why: &'static str,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::try_parse(text).map(Self).map_err(|_| InvalidId {
                    what: $what,
                    value: text.chars().take(80).collect(),
                    why: "it must be a UUID",
                })
            }
        }
    };
}

uuid_id!(
    /// A hub, whatever its address: made once, with its data directory.
    HubId,
    "hub id"
);
uuid_id!(
    /// A target: the UID of its SyncTarget. A recreated SyncTarget of the same name is another target.
    TargetId,
    "target id"
);
uuid_id!(
    /// One run of a hub's process. Random, so that nothing said to one run is taken by another.
    RunId,
    "run id"
);

uuid_id!(
    /// A segment of a hub's history: what one run of the hub committed within an hour. Random.
    SegmentId,
    "segment id"
);
uuid_id!(
    /// A revision, besides its number: of two histories that both have the number, each has another id. Random.
    RevisionId,
    "revision id"
);

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let digits = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                let number = u64::from_str_radix(text, 16).ok().filter(|_| digits);
                number.map(Self).ok_or_else(|| InvalidId {
                    what: $what,
                    value: text.chars().take(80).collect(),
                    why: "it must be 16 digits of 0-9 and a-f",
                })
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

random_id!(
    /// One session, among all that any hub ever gave under its number. Random, so that a hub which was set back does not give
    /// one twice.
    SessionId,
    "session id"
);
random_id!(
    /// One process of an agent. Random, made when it begins.
    InstanceId,
    "instance id"
);

/// No counter is above this: integers of Kubernetes and of stores have 63 bits. A thousand a second come to it in 292 million
/// years, so whoever claims more lies.
const COUNTER_MAX: u64 = i64::MAX.unsigned_abs();

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "u64", into = "u64")]
        pub struct $name(pub u64);

        impl $name {
            /// The one after it. There is always one: what others claim is bounded when it is read.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(if self.0 < COUNTER_MAX { self.0 + 1 } else { COUNTER_MAX })
            }
        }

        impl TryFrom<u64> for $name {
            type Error = InvalidId;

            fn try_from(number: u64) -> Result<Self, InvalidId> {
                let why = "it must be less than 2^63";
                let invalid = || InvalidId { what: $what, value: number.to_string(), why };
                (number <= COUNTER_MAX).then_some(Self(number)).ok_or_else(invalid)
            }
        }

        impl From<$name> for u64 {
            fn from(counter: $name) -> Self {
                counter.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let value = || text.chars().take(80).collect();
                let number: u64 =
                    text.parse().map_err(|_| InvalidId { what: $what, value: value(), why: "it must be a number" })?;
                number.try_into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Raised for every target whenever a person accepts that the hub lost history.
    Epoch,
    "epoch"
);
counter!(
    /// The ledger's commit number that last changed a target's desired set.
    Revision,
    "revision"
);
counter!(
    /// Counts the sessions of a target, whoever opened them.
    SessionNumber,
    "session number"
);

/// A session by name, as text `17.0123456789abcdef`. The default names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionName {
    pub number: SessionNumber,
    pub id: SessionId,
}

impl SessionName {
    pub const fn new(number: u64, id: u64) -> Self {
        Self { number: SessionNumber(number), id: SessionId(id) }
    }

    pub fn is_none(&self) -> bool {
        self.number == SessionNumber::default()
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.id)
    }
}

impl FromStr for SessionName {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            what: "session",
            value: text.chars().take(80).collect(),
            why: "it must be NUMBER.ID, the id of 16 digits of 0-9 and a-f",
        };
        let (number, id) = text.split_once('.').ok_or_else(invalid)?;
        let number = number.parse().map_err(|_| invalid())?;
        Ok(Self { number, id: id.parse().map_err(|_| invalid())? })
    }
}

impl TryFrom<String> for SessionName {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<SessionName> for String {
    fn from(name: SessionName) -> Self {
        name.to_string()
    }
}

/// Where in its history a target's desired set stands. Ordered: a higher epoch is newer than any revision before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    pub epoch: Epoch,
    pub revision: Revision,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.revision)
    }
}

impl FromStr for Version {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid =
            || InvalidId { what: "version", value: text.chars().take(80).collect(), why: "it must be EPOCH.REVISION" };
        let (epoch, revision) = text.split_once('.').ok_or_else(invalid)?;
        Ok(Self { epoch: epoch.parse().map_err(|_| invalid())?, revision: revision.parse().map_err(|_| invalid())? })
    }
}

/// The name of a space: an RFC 1123 label, so that it fits a URL path and a label value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SpaceName(Arc<str>);

impl SpaceName {
    /// Holds the inventory and the hub's own configuration.
    pub fn root() -> Self {
        Self("root".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SpaceName {
    type Error = InvalidId;

    fn try_from(value: String) -> Result<Self, InvalidId> {
        let inner = value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if value.is_empty()
            || value.len() > LABEL_VALUE_BYTES_MAX
            || !inner
            || value.starts_with('-')
            || value.ends_with('-')
        {
            return Err(InvalidId {
                what: "space name",
                value: value.chars().take(80).collect(),
                why: "it must be 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
            });
        }
        Ok(Self(value.into()))
    }
}

impl FromStr for SpaceName {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::try_from(text.to_owned())
    }
}

impl From<SpaceName> for String {
    fn from(name: SpaceName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for SpaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SpaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A Kubernetes object's `metadata.uid`: opaque, not always a UUID.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uid(Form);

/// Each text has one canonical spelling. Those of API servers are UUIDs, of which there are several for every object.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    Uuid(Uuid),
    Text(Arc<str>),
}

/// A UID as text.
enum UidText<'a> {
    Written([u8; Hyphenated::LENGTH]),
    Borrowed(&'a str),
}

impl Uid {
    pub fn text(&self) -> impl Deref<Target = str> {
        match &self.0 {
            Form::Uuid(uuid) => {
                let mut text = [0; Hyphenated::LENGTH];
                uuid.hyphenated().encode_lower(&mut text);
                UidText::Written(text)
            }
            Form::Text(text) => UidText::Borrowed(text),
        }
    }

    /// The sixteen bytes of a UUID, if this is one and just as [`Uid::from_uuid`] writes it.
    pub fn to_uuid(&self) -> Option<Uuid> {
        match self.0 {
            Form::Uuid(uuid) => Some(uuid),
            Form::Text(_) => None,
        }
    }

    /// In lower case with hyphens, as API servers do.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(Form::Uuid(uuid))
    }
}

impl Deref for UidText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Written(text) => str::from_utf8(text).expect("digits and hyphens"),
            Self::Borrowed(text) => text,
        }
    }
}

impl Ord for Uid {
    /// By their texts.
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            // Digits of one case, at the same positions.
            (Form::Uuid(uuid), Form::Uuid(other)) => uuid.cmp(other),
            (Form::Text(_), _) | (_, Form::Text(_)) => (*self.text()).cmp(&*other.text()),
        }
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl TryFrom<String> for Uid {
    type Error = InvalidId;

    fn try_from(value: String) -> Result<Self, InvalidId> {
        if value.is_empty() || value.len() > UID_BYTES_MAX {
            return Err(InvalidId {
                what: "UID",
                value: value.chars().take(80).collect(),
                why: "it must be 1 to 128 bytes",
            });
        }
        let mut text = [0; Hyphenated::LENGTH];
        Ok(Self(match Uuid::try_parse(&value) {
            Ok(uuid) if *uuid.hyphenated().encode_lower(&mut text) == *value => Form::Uuid(uuid),
            Ok(_) | Err(_) => Form::Text(value.into()),
        }))
    }
}

impl FromStr for Uid {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::try_from(text.to_owned())
    }
}

impl From<Uid> for String {
    fn from(uid: Uid) -> Self {
        uid.text().to_owned()
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_is_read_that_no_store_could_keep() {
        let (highest, more) = (i64::MAX.to_string(), (1_u64 << 63).to_string());
        for (number, is_read) in [(&highest, true), (&more, false)] {
            let read = [
                serde_json::from_str::<Epoch>(number).is_ok(),
                serde_json::from_str::<Revision>(number).is_ok(),
                serde_json::from_str::<SessionNumber>(number).is_ok(),
                format!("{number}.1").parse::<Version>().is_ok(),
                format!("1.{number}").parse::<Version>().is_ok(),
                format!("{number}.0123456789abcdef").parse::<SessionName>().is_ok(),
            ];
            assert_eq!(read, [is_read; 6], "{number}");
        }
        let last: Revision = highest.parse().unwrap();
        assert_eq!(serde_json::to_string(&last.next()).unwrap(), highest);
    }
}
