//! Reads protobuf request bodies of built-in kinds.
//!
//! Go clients send them by default since client-go 0.35 (`kubectl create configmap` among them), and do not fall back
//! to another format. Only reading is done here: every client that sends protobuf also accepts JSON.
//!
//! The wire format is proto2 in the envelope of `runtime.Unknown`. Which field has which number comes from an embedded
//! table that `tests/kubernetes/protobuf` writes from the Go types.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages within messages; as deep as JSON may be.
const DEPTH_MAX: usize = 128;
/// Written by `tests/kubernetes/protobuf`.
const EMBEDDED: &[u8] = include_bytes!("../schema/protobuf-1.35.json.gz");

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_reader(GzDecoder::new(EMBEDDED)).expect("the embedded table is written by a tool and tested")
});

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("the body does not begin as a Kubernetes protobuf message")]
    NoMagic,
    #[error("the protobuf message is cut off or malformed")]
    Malformed,
    #[error("the protobuf message is nested too deeply")]
    TooDeep,
    #[error("a string of the protobuf message is not UTF-8")]
    NotUtf8,
    #[error("no protobuf form of {kind} in version {version:?} is known")]
    UnknownKind { version: String, kind: String },
}

#[derive(Deserialize)]
struct Table {
    kinds: HashMap<String, usize>,
    messages: Vec<Vec<Field>>,
}

/// Number, JSON name, type, flags, and the message of types that have one.
#[derive(Deserialize)]
struct Field(u32, String, Kind, u8, usize);

const REPEATED: u8 = 1;
const MAP: u8 = 2;
/// A zero is not written: the Go field is no pointer and says `omitempty`.
const OMIT_ZERO: u8 = 4;
/// The fields of the message stand in the object around it.
const INLINE: u8 = 8;

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
enum Kind {
    #[serde(rename = "s")]
    String,
    #[serde(rename = "b")]
    Boolean,
    #[serde(rename = "i")]
    Integer,
    #[serde(rename = "d")]
    Double,
    #[serde(rename = "y")]
    Bytes,
    #[serde(rename = "m")]
    Message,
    #[serde(rename = "w")]
    Strings,
    #[serde(rename = "T")]
    Time,
    #[serde(rename = "U")]
    MicroTime,
    #[serde(rename = "D")]
    Duration,
    #[serde(rename = "q")]
    Quantity,
    #[serde(rename = "x")]
    IntOrString,
    /// JSON text in field 1.
    #[serde(rename = "r")]
    Raw,
    #[serde(rename = "ob")]
    SchemaOrBool,
    #[serde(rename = "oa")]
    SchemaOrList,
    #[serde(rename = "os")]
    SchemaOrStrings,
}

/// Decodes a body into the JSON that the client would have sent.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Error> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Error::NoMagic)?;
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in entries(envelope)? {
        match entry {
            (1, Wire::Bytes(meta)) => {
                for entry in entries(meta)? {
                    match entry {
                        (1, Wire::Bytes(text)) => utf8(text)?.clone_into(&mut version),
                        (2, Wire::Bytes(text)) => utf8(text)?.clone_into(&mut kind),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let id = match (kind.as_str(), version.contains('/')) {
        ("DeleteOptions", _) => "/v1/DeleteOptions".to_owned(),
        (_, true) => format!("{version}/{kind}"),
        (_, false) => format!("/{version}/{kind}"),
    };
    let Some(message) = TABLE.kinds.get(&id) else { return Err(Error::UnknownKind { version, kind }) };
    let mut object = Map::new();
    object.insert("apiVersion".into(), version.into());
    object.insert("kind".into(), kind.into());
    read_message(*message, raw, DEPTH_MAX, &mut object)?;
    Ok(Value::Object(object))
}

#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Error::Malformed)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::Malformed)
}

/// The fields of one message as they come.
fn entries(mut bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Error> {
    fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = bytes.split_at_checked(length).ok_or(Error::Malformed)?;
        *bytes = rest;
        Ok(taken)
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let number = u32::try_from(key >> 3).map_err(|_| Error::Malformed)?;
        let wire = match key & 7 {
            0 => Wire::Varint(varint(&mut bytes)?),
            1 => {
                let fixed = take(&mut bytes, 8)?.try_into().map_err(|_| Error::Malformed)?;
                Wire::Fixed64(u64::from_le_bytes(fixed))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| Error::Malformed)?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => {
                take(&mut bytes, 4)?;
                Wire::Fixed32
            }
            _ => return Err(Error::Malformed),
        };
        out.push((number, wire));
    }
    Ok(out)
}

fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8)
}

fn read_message(message: usize, bytes: &[u8], depth: usize, out: &mut Map<String, Value>) -> Result<(), Error> {
    let depth = depth.checked_sub(1).ok_or(Error::TooDeep)?;
    let fields = TABLE.messages.get(message).ok_or(Error::Malformed)?;
    for (number, wire) in entries(bytes)? {
        // Fields of newer versions are skipped, as an older server would.
        let Ok(at) = fields.binary_search_by_key(&number, |field| field.0) else { continue };
        let Field(_, name, kind, flags, inner) = &fields[at];
        if flags & INLINE != 0 {
            let Wire::Bytes(bytes) = wire else { return Err(Error::Malformed) };
            read_message(*inner, bytes, depth, out)?;
        } else if flags & MAP != 0 {
            let Wire::Bytes(entry) = wire else { return Err(Error::Malformed) };
            let (key, value) = map_entry(*kind, *inner, entry, depth)?;
            if let Some(map) = out.entry(name.as_str()).or_insert_with(|| Map::new().into()).as_object_mut() {
                map.insert(key, value);
            }
        } else if flags & REPEATED != 0 {
            let list = out.entry(name.as_str()).or_insert_with(|| Value::Array(Vec::new()));
            let Some(list) = list.as_array_mut() else { return Err(Error::Malformed) };
            match (kind, wire) {
                // A packed list of numbers.
                (Kind::Integer, Wire::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        list.push(varint(&mut packed)?.cast_signed().into());
                    }
                }
                (kind, wire) => list.push(value(*kind, *inner, wire, depth)?),
            }
        } else {
            let value = value(*kind, *inner, wire, depth)?;
            if flags & OMIT_ZERO == 0 || !is_zero(&value) {
                out.insert(name.clone(), value);
            }
        }
    }
    Ok(())
}

/// What Go's JSON leaves out: zeros, and structs in which nothing is set, which say no more than their absence.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn map_entry(kind: Kind, inner: usize, entry: &[u8], depth: usize) -> Result<(String, Value), Error> {
    let (mut key, mut found) = (String::new(), None);
    for entry in entries(entry)? {
        match entry {
            (1, Wire::Bytes(text)) => utf8(text)?.clone_into(&mut key),
            (2, wire) => found = Some(wire),
            _ => {}
        }
    }
    let empty = match kind {
        Kind::Boolean | Kind::Integer => Wire::Varint(0),
        _ => Wire::Bytes(&[]),
    };
    Ok((key, value(kind, inner, found.unwrap_or(empty), depth)?))
}

fn value(kind: Kind, inner: usize, wire: Wire<'_>, depth: usize) -> Result<Value, Error> {
    match (kind, wire) {
        (Kind::Integer, Wire::Varint(number)) => Ok(number.cast_signed().into()),
        (Kind::Boolean, Wire::Varint(number)) => Ok((number != 0).into()),
        (Kind::Double, Wire::Fixed64(bits)) => Ok(f64::from_bits(bits).into()),
        (Kind::String, Wire::Bytes(bytes)) => Ok(utf8(bytes)?.into()),
        (Kind::Bytes, Wire::Bytes(bytes)) => Ok(BASE64_STANDARD.encode(bytes).into()),
        (Kind::Message, Wire::Bytes(bytes)) => object(inner, bytes, depth),
        (Kind::Strings, Wire::Bytes(bytes)) => {
            let items = entries(bytes)?.into_iter().map(|(_, wire)| value(Kind::String, 0, wire, depth));
            items.collect::<Result<Vec<_>, _>>().map(Value::from)
        }
        (Kind::Quantity, Wire::Bytes(bytes)) => Ok(first_text(bytes)?.into()),
        (Kind::Raw, Wire::Bytes(bytes)) => {
            let text = first_text(bytes)?;
            if text.is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_str(&text).map_err(|_| Error::Malformed)
        }
        (Kind::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes),
        (Kind::Time, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ"),
        (Kind::MicroTime, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S%.6fZ"),
        (Kind::Duration, Wire::Bytes(bytes)) => {
            let nanoseconds = number(&entries(bytes)?, 1);
            Ok(format!("{}s", std::time::Duration::from_nanos(nanoseconds.unsigned_abs()).as_secs_f64()).into())
        }
        (Kind::SchemaOrBool | Kind::SchemaOrList | Kind::SchemaOrStrings, Wire::Bytes(bytes)) => {
            schema_or(kind, inner, bytes, depth)
        }
        (_, Wire::Varint(_) | Wire::Fixed64(_) | Wire::Fixed32 | Wire::Bytes(_)) => Err(Error::Malformed),
    }
}

fn object(message: usize, bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let mut object = Map::new();
    read_message(message, bytes, depth, &mut object)?;
    Ok(object.into())
}

/// The text in field 1 of a message that wraps one.
fn first_text(bytes: &[u8]) -> Result<String, Error> {
    for entry in entries(bytes)? {
        if let (1, Wire::Bytes(text)) = entry {
            return Ok(utf8(text)?.to_owned());
        }
    }
    Ok(String::new())
}

fn number(entries: &[(u32, Wire<'_>)], field: u32) -> i64 {
    let found = entries.iter().rev().find_map(|entry| match entry {
        (number, Wire::Varint(value)) if *number == field => Some(value.cast_signed()),
        _ => None,
    });
    found.unwrap_or(0)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Error> {
    let entries = entries(bytes)?;
    if number(&entries, 1) == 0 {
        return Ok(number(&entries, 2).into());
    }
    for entry in &entries {
        if let (3, Wire::Bytes(text)) = entry {
            return Ok(utf8(text)?.into());
        }
    }
    Ok("".into())
}

fn time(bytes: &[u8], format: &str) -> Result<Value, Error> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let entries = entries(bytes)?;
    let nanoseconds = i32::try_from(number(&entries, 2)).map_err(|_| Error::Malformed)?;
    let time = jiff::Timestamp::new(number(&entries, 1), nanoseconds).map_err(|_| Error::Malformed)?;
    Ok(time.strftime(format).to_string().into())
}

/// The unions of CustomResourceDefinition schemas, each with a JSON form of its own.
fn schema_or(kind: Kind, schema: usize, bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let (mut allows, mut one, mut many) = (false, None, Vec::new());
    for entry in entries(bytes)? {
        match (kind, entry) {
            (Kind::SchemaOrBool, (1, Wire::Varint(value))) => allows = value != 0,
            (Kind::SchemaOrBool, (2, Wire::Bytes(bytes)))
            | (Kind::SchemaOrList | Kind::SchemaOrStrings, (1, Wire::Bytes(bytes))) => {
                one = Some(object(schema, bytes, depth)?);
            }
            (Kind::SchemaOrList, (2, Wire::Bytes(bytes))) => many.push(object(schema, bytes, depth)?),
            (Kind::SchemaOrStrings, (2, Wire::Bytes(text))) => many.push(utf8(text)?.into()),
            _ => {}
        }
    }
    Ok(match (one, kind) {
        (Some(one), _) => one,
        (None, Kind::SchemaOrBool) => allows.into(),
        (None, _) => many.into(),
    })
}

#[cfg(test)]
mod tests;
