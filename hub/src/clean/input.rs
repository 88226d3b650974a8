use std::sync::Arc;

use tideline_common::{Digest, Hasher};

/// An object's text as it travels, and what names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Compact JSON with sorted keys.
    pub text: Arc<str>,
    pub digest: Digest,
}

impl Input {
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let mut hasher = Hasher::new("tideline/input/v1");
        // The second field is for transforms that are done when a body is fetched; there are none. What is done to the
        // text before, such as putting it into another namespace, is in it.
        hasher.field(text.as_bytes()).field(b"");
        Self { digest: hasher.finish(), text }
    }
}
