//! What a request path means.

use crate::query::{Plus, decode};
use crate::status::ApiError;

/// Where the spaces are in the paths of [`crate::ApiServer::router`].
pub(crate) const SPACES: &str = "/spaces/";

/// The place a request is about, once the space is taken off the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// `/livez`, `/readyz`, `/healthz`, each also with a named check below.
    Health,
    Version,
    OpenApiV2,
    /// `/openapi/v3`: the index.
    OpenApiIndex,
    /// `/openapi/v3/…`: one document.
    OpenApiV3(String),
    /// `/`: the list of paths.
    Root,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    GroupVersion {
        group: String,
        version: String,
    },
    Resource(ResourcePath),
}

/// A path below a group version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    /// Everything after the name, joined by `/`.
    pub(crate) subresource: Option<String>,
}

impl Path {
    /// Whether the answer is made of the schemas of all kinds, or of all of a group.
    pub(crate) fn is_openapi(&self) -> bool {
        match self {
            Self::OpenApiV2 | Self::OpenApiIndex | Self::OpenApiV3(_) => true,
            Self::Health
            | Self::Version
            | Self::Root
            | Self::CoreVersions
            | Self::Groups
            | Self::Group(_)
            | Self::GroupVersion { .. }
            | Self::Resource(_) => false,
        }
    }

    pub(crate) fn parse(path: &str) -> Result<Self, ApiError> {
        let mut segments = Vec::new();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            segments.push(decode(segment, Plus::Itself)?);
        }
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => Ok(Path::Root),
            ["livez" | "readyz" | "healthz", ..] => Ok(Path::Health),
            ["version"] => Ok(Path::Version),
            ["openapi", "v2"] => Ok(Path::OpenApiV2),
            ["openapi", "v3"] => Ok(Path::OpenApiIndex),
            ["openapi", "v3", rest @ ..] => Ok(Path::OpenApiV3(rest.join("/"))),
            ["api"] => Ok(Path::CoreVersions),
            ["apis"] => Ok(Path::Groups),
            ["apis", group] => Ok(Path::Group((*group).to_owned())),
            ["api", version] => Ok(Path::GroupVersion { group: String::new(), version: (*version).to_owned() }),
            ["apis", group, version] => {
                Ok(Path::GroupVersion { group: (*group).to_owned(), version: (*version).to_owned() })
            }
            ["api", version, rest @ ..] => ResourcePath::parse("", version, rest),
            ["apis", group, version, rest @ ..] => ResourcePath::parse(group, version, rest),
            _ => Err(ApiError::no_such_path()),
        }
    }
}

impl ResourcePath {
    fn parse(group: &str, version: &str, rest: &[&str]) -> Result<Path, ApiError> {
        if rest.first() == Some(&"watch") {
            return Err(ApiError::not_served("the deprecated /watch/ path; use the parameter watch=1,"));
        }
        // `namespaces/x/status` and `namespaces/x/finalize` are subresources of the namespace itself.
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            _ => (None, rest),
        };
        let (plural, rest) = rest.split_first().ok_or_else(ApiError::no_such_path)?;
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some((*name).to_owned()), None),
            [name, rest @ ..] => (Some((*name).to_owned()), Some(rest.join("/"))),
        };
        if name.as_deref().is_some_and(|name| matches!(name, "." | "..") || name.contains(['/', '%'])) {
            return Err(ApiError::bad_request("a name in a path may not be '.' or '..' nor contain '/' or '%'"));
        }
        if namespace.as_deref().is_some_and(|namespace| namespace.contains('/') || namespace == "-") {
            return Err(ApiError::no_such_path());
        }
        Ok(Path::Resource(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace,
            plural: (*plural).to_owned(),
            name,
            subresource,
        }))
    }
}

#[cfg(test)]
mod tests;
