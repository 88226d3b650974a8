//! The three patch formats that rewrite a document: JSON patch (RFC 6902), merge patch (RFC 7386)
//! and Kubernetes' strategic merge patch. Server-side apply is `fieldmanager`.
//!
//! Work is bounded: a small patch cannot make a large document.

mod json;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub(crate) use self::json::json_patch;
pub(crate) use self::strategic::strategic_merge;
use crate::extent::DEPTH_MAX;

/// Operations in one JSON patch, as in kube-apiserver.
pub(crate) const JSON_PATCH_OPERATIONS_MAX: usize = 10_000;

/// Bytes that the copies of one JSON patch may add: twice what an object may hold (1.5 MiB).
pub(crate) const JSON_PATCH_COPIED_BYTES_MAX: usize = 3 << 20;

/// Values that the operations of one JSON patch move, or look through for their depth: 67 million take half a second. A thousand
/// operations at the front of a list of 60,000 items are within it.
pub(crate) const JSON_PATCH_STEPS_MAX: usize = 1 << 26;

/// Items in one list that a strategic merge patch merges: what an object holds of items of 200 bytes each, rounded down.
pub(crate) const MERGED_LIST_ITEMS_MAX: usize = 5_000;

/// Why a patch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// 400: the patch is not one.
    #[error("the patch is malformed: {0}")]
    Malformed(String),
    /// 413.
    #[error("the patch is too large: {0}")]
    TooLarge(String),
    /// 422.
    #[error("the patched object would be nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// 422: the patch is well-formed and cannot be applied to this document.
    #[error("the server rejected our request due to an error in our request: {0}")]
    Inapplicable(String),
}

impl Error {
    /// The HTTP status that the error is answered with.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooLarge(_) => 413,
            Self::TooDeep | Self::Inapplicable(_) => 422,
        }
    }
}

/// Applies a merge patch (RFC 7386): null removes, objects merge, all else replaces.
pub(crate) fn merge_patch(document: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut out = document.as_object().cloned().unwrap_or_default();
    for (name, value) in patch {
        if value.is_null() {
            out.remove(name);
            continue;
        }
        let merged = merge_patch(out.get(name).unwrap_or(&Value::Null), value);
        out.insert(name.clone(), merged);
    }
    Value::Object(out)
}
