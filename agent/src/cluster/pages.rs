//! Lists, page by page. The continue token pins the revision of the first page, so that all pages together are consistent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;

use super::metadata::Metadata;

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page<T> {
    metadata: ListMeta,
    /// Null where there are none, for some kinds.
    items: Option<Vec<T>>,
}

/// An item of which only the metadata was asked for.
#[derive(Deserialize)]
pub(super) struct Item<M = Metadata> {
    pub(super) metadata: M,
}

impl<T> Page<T> {
    /// The items of a page, and where the next one is, if there is one. `first` is the address of the first one, with a query.
    pub(super) fn turn(self, first: &str) -> (Vec<T>, Option<String>) {
        let token = self.metadata.continue_.filter(|token| !token.is_empty());
        let next = token.map(|token| format!("{first}&continue={}", form_escaped(&token)));
        (self.items.unwrap_or_default(), next)
    }
}

/// A continue token is base64url; escaped all the same, because nothing says that it must be.
pub(super) fn form_escaped(text: &str) -> String {
    let escaped = |b: u8| {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) { char::from(b).to_string() } else { format!("%{b:02X}") }
    };
    text.bytes().map(escaped).collect()
}
