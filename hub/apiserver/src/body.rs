//! Request bodies: size, format, kind, unknown and duplicate fields.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use crate::catalog::{Served, Source};
use crate::extent::{self, READ_DEPTH_MAX};
use crate::negotiate::Format;
use crate::query::FieldValidation;
use crate::schema::validate;
use crate::status::ApiError;
use crate::{protobuf, structural};

/// Largest request body, as in kube-apiserver.
pub const BODY_BYTES_MAX: usize = 3 << 20;

/// Reads a whole body.
pub(crate) async fn collect(body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            Err(ApiError::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}")))
        }
        Err(error) => Err(ApiError::bad_request(format!("the body cannot be read: {error}"))),
    }
}

/// A document without regard to what it is.
pub(crate) struct Document {
    pub(crate) value: Value,
    duplicates: Vec<String>,
}

/// Decodes JSON, YAML, or the protobuf of a built-in kind.
pub(crate) fn parse(format: Format, bytes: &[u8]) -> Result<Document, ApiError> {
    match format {
        Format::Json => {
            let decoded = validate::decode(bytes).map_err(|error| {
                ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
            })?;
            Ok(Document { value: decoded.value, duplicates: decoded.duplicates })
        }
        Format::Protobuf => {
            let value = protobuf::decode(bytes).map_err(|error| match error {
                // Custom resources have no protobuf form anywhere.
                error @ protobuf::Error::UnknownKind { .. } => {
                    let mut refused = ApiError::unsupported_media_type("");
                    refused.message = error.to_string();
                    refused
                }
                error @ (protobuf::Error::NoMagic
                | protobuf::Error::Malformed
                | protobuf::Error::TooDeep
                | protobuf::Error::NotUtf8) => ApiError::bad_request(error.to_string()),
            })?;
            Ok(Document { value, duplicates: Vec::new() })
        }
        Format::Yaml => {
            // A body of JSON is YAML too; the JSON decoder is stricter and faster.
            if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
                && let Ok(decoded) = validate::decode(bytes)
            {
                return Ok(Document { value: decoded.value, duplicates: decoded.duplicates });
            }
            let value = serde_saphyr::from_slice(bytes)
                .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
            if !extent::fits(&value, READ_DEPTH_MAX, &mut 0) {
                let message = format!("error decoding YAML: it is nested more than {READ_DEPTH_MAX} levels deep");
                return Err(ApiError::bad_request(message));
            }
            Ok(Document { value, duplicates: Vec::new() })
        }
    }
}

/// Decodes an object of `served`, and gives the warnings that go back to the client.
pub(crate) fn decode(
    served: &Served,
    document: Document,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiError> {
    let Document { mut value, duplicates } = document;
    check_kind(&mut value, &served.api_version, &served.resource.kind)?;
    let warnings = conform(served, &mut value, validation, duplicates)?;
    Ok((value, warnings))
}

/// Checks that a document is what the request's path says, and fills in what it leaves out.
pub(crate) fn check_kind(value: &mut Value, api_version: &str, kind: &str) -> Result<(), ApiError> {
    let Some(object) = value.as_object_mut() else {
        return Err(ApiError::bad_request("the object provided is unrecognized: a JSON object is expected"));
    };
    let found = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if !found.is_empty() && found != api_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({api_version})"
        )));
    }
    let found = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    if !found.is_empty() && found != kind {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        return Err(ApiError::bad_request(format!("{found} in version {version:?} cannot be handled as a {kind}")));
    }
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(())
}

/// Brings a value into the shape of its type: unknown fields go (or are refused), values must have their field's type.
pub(crate) fn conform(
    served: &Served,
    value: &mut Value,
    validation: FieldValidation,
    duplicates: Vec<String>,
) -> Result<Vec<String>, ApiError> {
    let unknown = match &served.source {
        Source::BuiltIn(ty) => {
            validate::drop_nulls(*ty, value);
            validate::drop_unknown_fields(*ty, value)
        }
        Source::Custom(custom) => {
            let unknown = structural::prune(custom.ty.root(), value);
            structural::prune_nulls(custom.ty.root(), value);
            unknown
        }
        Source::Virtual(_) | Source::Review => Vec::new(),
    };
    let unknown = unknown.into_iter().map(|path| format!("unknown field {path:?}"));
    let problems: Vec<String> =
        duplicates.into_iter().map(|path| format!("duplicate field {path:?}")).chain(unknown).collect();
    let kind = &served.resource.kind;
    let handled = || format!("{kind} in version {:?} cannot be handled as a {kind}", served.version);
    if validation == FieldValidation::Strict && !problems.is_empty() {
        let all = problems.join(", ");
        return Err(ApiError::bad_request(if served.is_custom() {
            format!("strict decoding error: {all}")
        } else {
            format!("{}: strict decoding error: {all}", handled())
        }));
    }
    let checked = match &served.source {
        Source::BuiltIn(ty) => validate::check_types(*ty, value),
        Source::Custom(custom) => structural::conform_metadata(custom.ty.root(), value),
        Source::Virtual(_) | Source::Review => Ok(()),
    };
    checked.map_err(|mismatch| ApiError::bad_request(format!("{}: {mismatch}", handled())))?;
    Ok(if validation == FieldValidation::Warn { problems } else { Vec::new() })
}
