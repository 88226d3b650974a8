use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::path::{FieldPath, FieldPathError, merge};
use crate::digest::Hasher;
use crate::limits::{REPORT_PATH_BYTES_MAX, REPORT_PATHS_MAX};

/// How much of an object's state an agent sends back. Ordered from the least to the most.
///
/// Whatever the class, an agent reports everything by which the hub judges that a set is applied and that nothing runs twice:
/// progress, its reason and message, the input that was applied, terminal facts, and removals.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "Fields<'static>")]
pub enum ReportClass {
    /// Only the above. Health is not reported, so the hub counts the object as applied and of unknown health, and never as
    /// ready.
    Nothing,
    /// Also health, what explains it, and the observed generation.
    Health,
    /// Also these parts of the status.
    Paths(StatusPaths),
    /// Also the whole status.
    #[default]
    Status,
}

/// Parts of a status: at least one path, at most [`REPORT_PATHS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusPaths(BTreeSet<StatusPath>);

/// A [`FieldPath`] below `.status`, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StatusPath(String);

/// Why paths do not name parts of a status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatusPathError {
    #[error("cannot read the path {path:?}")]
    Path { path: String, source: FieldPathError },
    #[error("the path {0:?} is not below /status")]
    Elsewhere(String),
    #[error("a path of {0} bytes; at most {REPORT_PATH_BYTES_MAX}")]
    Long(usize),
    #[error("{0} paths; from 1 to {REPORT_PATHS_MAX}")]
    Count(usize),
}

impl ReportClass {
    /// Whether anything of the status is sent.
    pub const fn has_body(&self) -> bool {
        match self {
            Self::Status | Self::Paths(_) => true,
            Self::Health | Self::Nothing => false,
        }
    }

    /// Whether health is sent.
    pub const fn has_health(&self) -> bool {
        match self {
            Self::Status | Self::Paths(_) | Self::Health => true,
            Self::Nothing => false,
        }
    }

    /// The class where two ask: the larger. Paths that are too many together become the whole status.
    #[must_use]
    pub(super) fn merge(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Paths(these), Self::Paths(those)) => {
                StatusPaths::of(&these.0 | &those.0).map_or(Self::Status, Self::Paths)
            }
            (this, that) => this.max(that).clone(),
        }
    }

    pub(super) fn is_status(&self) -> bool {
        *self == Self::Status
    }

    const fn as_str(&self) -> &'static str {
        match self {
            Self::Status => "Status",
            Self::Paths(_) => "Paths",
            Self::Health => "Health",
            Self::Nothing => "Nothing",
        }
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        let paths = match self {
            Self::Paths(StatusPaths(paths)) => Some(paths),
            Self::Status | Self::Health | Self::Nothing => None,
        };
        paths.into_iter().flatten().map(|StatusPath(path)| path.as_str())
    }

    /// Distinguishes classes. The whole status leaves no trace in the hash, so that what is named by such a hash keeps its
    /// name.
    pub fn hash_into(&self, hasher: &mut Hasher) {
        if self.is_status() {
            return;
        }
        hasher.field(b"report").field(self.as_str().as_bytes());
        for path in self.paths() {
            hasher.field(path.as_bytes());
        }
    }
}

impl StatusPaths {
    /// # Errors
    ///
    /// A path is malformed, not below `/status`, or one too many.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<Self, StatusPathError> {
        Self::of(paths.into_iter().map(StatusPath::new).collect::<Result<_, _>>()?)
    }

    fn of(paths: BTreeSet<StatusPath>) -> Result<Self, StatusPathError> {
        if (1..=REPORT_PATHS_MAX).contains(&paths.len()) {
            Ok(Self(paths))
        } else {
            Err(StatusPathError::Count(paths.len()))
        }
    }

    /// The part of a status that the paths name. Along one of the paths, the part reads like the whole: maps keep their names,
    /// items of lists their positions, and the field by which an item is chosen stays in it. Empty if nothing is there.
    pub fn cut(&self, status: Value) -> Value {
        let object = Value::Object([("status".to_owned(), status)].into_iter().collect());
        let mut kept = Value::Null;
        for StatusPath(path) in &self.0 {
            if let Some(part) = FieldPath::parse(path).ok().and_then(|path| path.kept(&object)) {
                merge(&mut kept, part);
            }
        }
        let status = kept.as_object_mut().and_then(|object| object.remove("status"));
        status.unwrap_or_else(|| Value::Object(serde_json::Map::new()))
    }
}

impl StatusPath {
    fn new(path: &str) -> Result<Self, StatusPathError> {
        if path.len() > REPORT_PATH_BYTES_MAX {
            return Err(StatusPathError::Long(path.len()));
        }
        let parsed =
            FieldPath::parse(path).map_err(|source| StatusPathError::Path { path: path.to_owned(), source })?;
        if parsed.is_below("status") {
            Ok(Self(path.to_owned()))
        } else {
            Err(StatusPathError::Elsewhere(path.to_owned()))
        }
    }
}

/// The layout on the wire.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields<'a> {
    class: Cow<'a, str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<Cow<'a, str>>,
}

impl From<ReportClass> for Fields<'static> {
    fn from(class: ReportClass) -> Self {
        Self { class: class.as_str().into(), paths: class.paths().map(|path| path.to_owned().into()).collect() }
    }
}

impl<'de> Deserialize<'de> for ReportClass {
    /// For a class that this build does not know, the whole status is sent, which contains it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Fields { class, paths } = Fields::deserialize(deserializer)?;
        Ok(match &*class {
            "Nothing" => Self::Nothing,
            "Health" => Self::Health,
            "Paths" => StatusPaths::new(paths.iter().map(|path| &**path)).map_or(Self::Status, Self::Paths),
            _ => Self::Status,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
