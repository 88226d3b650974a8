//! Messages as bytes, and the query of a desired request as text: pure functions that both sides call.
//!
//! A message travels as JSON ([`MEDIA_TYPE`]) or, where that is worth it, as JSON compressed with raw deflate
//! ([`MEDIA_TYPE_DEFLATE`]). The query of `GET /link/v1/desired` holds, in this order and each only if it is there:
//!
//! | name | value |
//! |---|---|
//! | `session` | the session's number; always there |
//! | `since` | `EPOCH.REVISION`, as [`Version`] is written |
//! | `digest` | 64 hexadecimal digits |
//! | `after` | the JSON of an [`ObjectKey`] in base64url without padding (RFC 4648 §5) |
//! | `wait` | seconds; absent for zero |
//! | `approved` | `COUNT` or `COUNT.LIST`, the list as 64 hexadecimal digits |
//! | `shown` | `EPOCH.REVISION.SEGMENT.ID`, as [`Shown`](crate::Shown) is written |
//! | `history` | `Broken`; absent where the agent was not told so |
//!
//! No value holds a character that a URL would have to escape, so that every proxy passes on exactly what is signed.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{Read, Write as _};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::v1::{
    ApprovedHeld, Continuity, Decommission, DesiredRequest, MEDIA_TYPE, MEDIA_TYPE_DEFLATE, SessionRequest,
};
use crate::ids::{InvalidId, SessionName, TargetId, Version};
use crate::limits::{LINK_MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::mark::FORMERS_MAX;
use crate::object::ObjectKey;

/// Bytes from which a message is compressed: less fits one packet beside the headers either way.
const COMPRESS_BYTES_MIN: usize = 1 << 10;
/// Bytes read of a query: a key's base64 (253-byte names, 63-byte kinds) and digits stay below 2 KiB.
pub const QUERY_BYTES_MAX: usize = 4 << 10;

/// What is wrong with bytes that should be a message, or with a query.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the message has the media type {0:?}; this build reads {MEDIA_TYPE} and {MEDIA_TYPE_DEFLATE}")]
    MediaType(String),
    #[error("the message is larger than {0} bytes")]
    TooLarge(usize),
    #[error("cannot decompress the message")]
    Inflate(#[source] std::io::Error),
    #[error("cannot read the message")]
    Json(#[from] serde_json::Error),
    #[error("the query is longer than {QUERY_BYTES_MAX} bytes")]
    QueryTooLong,
    #[error("the query lacks {0}")]
    QueryLacks(&'static str),
    #[error("the query has {0} twice")]
    QueryTwice(&'static str),
    #[error("the query's {name} cannot be read: {why}")]
    QueryValue { name: &'static str, why: String },
}

/// Writes a message: its media type and its bytes, compressed from 1 KiB on.
///
/// # Errors
///
/// The message cannot be written as JSON, or is larger than [`LINK_MESSAGE_BYTES_MAX`].
pub fn encode<T: Serialize + ?Sized>(message: &T) -> Result<(&'static str, Vec<u8>), Error> {
    let json = serde_json::to_vec(message)?;
    if json.len() > LINK_MESSAGE_BYTES_MAX {
        return Err(Error::TooLarge(LINK_MESSAGE_BYTES_MAX));
    }
    if json.len() < COMPRESS_BYTES_MIN {
        return Ok((MEDIA_TYPE, json));
    }
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(json.len() / 4), Compression::fast());
    encoder.write_all(&json).map_err(Error::Inflate)?;
    Ok((MEDIA_TYPE_DEFLATE, encoder.finish().map_err(Error::Inflate)?))
}

/// Reads an answer. `media_type` is the `Content-Type`; its parameters are ignored. Neither the bytes given nor what they
/// inflate to may exceed [`LINK_MESSAGE_BYTES_MAX`].
///
/// # Errors
///
/// The media type is none of ours, the bytes are too many or damaged, or they are no such message.
pub fn decode<T: DeserializeOwned>(media_type: &str, bytes: &[u8]) -> Result<T, Error> {
    read(&unpack(LINK_MESSAGE_BYTES_MAX, media_type, bytes)?)
}

/// The JSON of a request, for [`read`]. It may have `most` bytes, sent and inflated, which bounds what it costs to read it;
/// none has more than [`REQUEST_BYTES_MAX`].
///
/// # Errors
///
/// The media type is none of ours, or the bytes are too many or damaged.
pub fn unpack_request<'a>(most: usize, media_type: &str, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
    unpack(most.min(REQUEST_BYTES_MAX), media_type, bytes)
}

/// Reads what [`unpack_request`] gave.
///
/// # Errors
///
/// The JSON is no such message.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    Ok(serde_json::from_slice(json)?)
}

fn unpack<'a>(most: usize, media_type: &str, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
    if bytes.len() > most {
        return Err(Error::TooLarge(most));
    }
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(MEDIA_TYPE) {
        Ok(Cow::Borrowed(bytes))
    } else if essence.eq_ignore_ascii_case(MEDIA_TYPE_DEFLATE) {
        inflate(most, bytes).map(Cow::Owned)
    } else {
        Err(Error::MediaType(essence.chars().take(80).collect()))
    }
}

fn inflate(most: usize, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut json = Vec::new();
    // One byte beyond the bound tells a message that just fits from one that does not.
    DeflateDecoder::new(bytes).take(most as u64 + 1).read_to_end(&mut json).map_err(Error::Inflate)?;
    if json.len() > most { Err(Error::TooLarge(most)) } else { Ok(json) }
}

/// Writes the query of a desired request, without the question mark.
pub fn desired_query(request: &DesiredRequest) -> String {
    let DesiredRequest { session, since, digest, after, wait_seconds, approved, decommission, shown, history, stands } =
        request;
    let mut query = format!("session={session}");
    let mut put = |name: &str, value: &dyn Display| {
        write!(query, "&{name}={value}").expect("a String takes any text");
    };
    if let Some(since) = since {
        put("since", since);
    }
    if let Some(digest) = digest {
        put("digest", digest);
    }
    if let Some(after) = after {
        let json = serde_json::to_vec(after).expect("a key has only strings");
        put("after", &URL_SAFE_NO_PAD.encode(json));
    }
    if *wait_seconds > 0 {
        put("wait", wait_seconds);
    }
    match approved {
        ApprovedHeld { list: Some(list), count } => put("approved", &format_args!("{count}.{list}")),
        ApprovedHeld { list: None, count: 0 } => {}
        ApprovedHeld { list: None, count } => put("approved", count),
    }
    if *decommission != Decommission::No {
        put("decommission", &decommission.as_str());
    }
    if let Some(shown) = shown {
        put("shown", shown);
    }
    if *history != Continuity::Whole {
        put("history", &"Broken");
    }
    if let Some(stands) = stands {
        put("stands", stands);
    }
    query
}

/// A session's query: what the agent was before, the latest last. It is read before the key is known that signs the request.
pub fn session_query(request: &SessionRequest) -> String {
    let formers: Vec<_> = request.formers.iter().map(ToString::to_string).collect();
    if formers.is_empty() { String::new() } else { format!("formers={}", formers.join(".")) }
}

/// The targets that a session's query names. Invalid ones are ignored, and so are more than an agent has.
pub fn parse_session_query(query: &str) -> Vec<TargetId> {
    let formers = query.split('&').find_map(|pair| pair.strip_prefix("formers=")).unwrap_or_default();
    formers.split('.').take(FORMERS_MAX).filter_map(|former| former.parse().ok()).collect()
}

/// Reads the query of a desired request, without the question mark. Names that are not known are ignored.
///
/// # Errors
///
/// A parameter is missing or cannot be read.
pub fn parse_desired_query(query: &str) -> Result<DesiredRequest, Error> {
    if query.len() > QUERY_BYTES_MAX {
        return Err(Error::QueryTooLong);
    }
    let (mut session, mut since, mut digest, mut after) = (None, None, None, None);
    let (mut wait, mut approved, mut decommission) = (None, None, None);
    let (mut shown, mut history, mut stands) = (None, None, None);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "session" => set(&mut session, "session", parse_session(value), value)?,
            "since" => set(&mut since, "since", parse::<Version>(value), value)?,
            "digest" => set(&mut digest, "digest", parse(value), value)?,
            "after" => set(&mut after, "after", parse_key(value), value)?,
            "wait" => set(&mut wait, "wait", parse(value), value)?,
            "approved" => set(&mut approved, "approved", parse_approved(value), value)?,
            "decommission" => set(&mut decommission, "decommission", Ok(parse_decommission(value)), value)?,
            "shown" => set(&mut shown, "shown", parse(value), value)?,
            "history" => set(&mut history, "history", Ok(Continuity::Broken), value)?,
            "stands" => set(&mut stands, "stands", parse(value), value)?,
            _ => {}
        }
    }
    Ok(DesiredRequest {
        session: session.ok_or(Error::QueryLacks("session"))?,
        since,
        digest,
        after,
        wait_seconds: wait.unwrap_or(0),
        approved: approved.unwrap_or_default(),
        decommission: decommission.unwrap_or_default(),
        shown,
        history: history.unwrap_or_default(),
        stands,
    })
}

/// Sets a value at its path, once.
fn set<T>(slot: &mut Option<T>, name: &'static str, value: Result<T, String>, text: &str) -> Result<(), Error> {
    let value = value.map_err(|why| {
        let text: String = text.chars().take(80).collect();
        Error::QueryValue { name, why: format!("{why}: {text:?}") }
    })?;
    if slot.replace(value).is_some() { Err(Error::QueryTwice(name)) } else { Ok(()) }
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn parse_session(text: &str) -> Result<SessionName, String> {
    text.parse().map_err(|InvalidId { why, .. }| why.to_owned())
}

fn parse_approved(text: &str) -> Result<ApprovedHeld, String> {
    let (count, list) = match text.split_once('.') {
        Some((count, list)) => (count, Some(parse(list)?)),
        None => (text, None),
    };
    Ok(ApprovedHeld { list, count: parse(count)? })
}

fn parse_decommission(text: &str) -> Decommission {
    let known = [Decommission::No, Decommission::Keep, Decommission::Remove];
    known.into_iter().find(|known| known.as_str() == text).unwrap_or(Decommission::Unknown)
}

fn parse_key(text: &str) -> Result<ObjectKey, String> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| "it is not base64url without padding".to_owned())?;
    serde_json::from_slice(&json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
