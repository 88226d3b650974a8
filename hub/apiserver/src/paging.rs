//! Lists that a client reads page by page.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::status::ApiError;

/// Objects in one page that a client asks for; with more it gets this many and a continue token.
pub(crate) const LIMIT_MAX: usize = 5_000;

/// A continue token as clients see it.
pub(crate) fn encode_token(token: &impl Serialize) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(json!(token).to_string())
}

pub(crate) fn decode_token<T: DeserializeOwned>(text: &str) -> Option<T> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub(crate) fn foreign_token() -> ApiError {
    ApiError::bad_request("continue key is not valid: it was not made by this server")
}

pub(crate) fn expired_token() -> ApiError {
    ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You must start a new list \
         without the continue parameter.",
    )
}
