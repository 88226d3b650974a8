//! Content negotiation: what a client can read, and what it sent.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::status::ApiError;

/// What the answer to a read looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Object,
    Table,
    PartialMetadata,
}

/// Which discovery document is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiscoveryShape {
    Legacy,
    Aggregated,
}

/// How the OpenAPI v2 document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenApiV2Format {
    Json,
    Protobuf,
}

pub(crate) const OPENAPI_V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// As Go clients ask for it, though `@` may not stand in a media type.
const OPENAPI_V2_PROTOBUF_DEPRECATED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
pub(crate) const JSON: &str = "application/json";
pub(crate) const AGGREGATED_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<(&str, &str)> =
            parts.filter_map(|part| part.split_once('=')).map(|(name, value)| (name.trim(), value.trim())).collect();
        let quality =
            parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, value)| value.parse().ok()).unwrap_or(1.0);
        Self { media, parameters, quality }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    fn is_json(&self) -> bool {
        matches!(self.media, "application/json" | "application/*" | "*/*")
    }
}

/// The clauses of all Accept headers, best first; those of equal quality in the client's order.
fn accepted(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|text| Clause::parse(text.trim()))
        .filter(|clause| !clause.media.is_empty() && clause.quality > 0.0)
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

/// Chooses the shape of a read's answer, or refuses with 406.
pub(crate) fn shape(headers: &HeaderMap) -> Result<Shape, ApiError> {
    let clauses = accepted(headers);
    if clauses.is_empty() {
        return Ok(Shape::Object);
    }
    let chosen = clauses.iter().filter(|clause| clause.is_json()).find_map(|clause| {
        let meta = clause.get("g") == Some("meta.k8s.io") && matches!(clause.get("v"), Some("v1" | "v1beta1"));
        match clause.get("as") {
            None => Some(Shape::Object),
            Some("Table") if meta => Some(Shape::Table),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if meta => Some(Shape::PartialMetadata),
            Some(_) => None,
        }
    });
    chosen.ok_or_else(|| ApiError::not_acceptable(JSON))
}

/// Chooses the discovery document; version v2 only, older clients take the legacy one.
pub(crate) fn discovery_shape(headers: &HeaderMap) -> Result<DiscoveryShape, ApiError> {
    let clauses = accepted(headers);
    if clauses.is_empty() {
        return Ok(DiscoveryShape::Legacy);
    }
    let chosen = clauses.iter().filter(|clause| clause.is_json()).find_map(|clause| match clause.get("as") {
        None => Some(DiscoveryShape::Legacy),
        Some("APIGroupDiscoveryList")
            if clause.get("g") == Some("apidiscovery.k8s.io") && clause.get("v") == Some("v2") =>
        {
            Some(DiscoveryShape::Aggregated)
        }
        Some(_) => None,
    });
    chosen.ok_or_else(|| ApiError::not_acceptable(JSON))
}

/// Chooses how the OpenAPI v2 document is written, or refuses with 406.
pub(crate) fn openapi_v2_format(headers: &HeaderMap) -> Result<OpenApiV2Format, ApiError> {
    let clauses = accepted(headers);
    if clauses.is_empty() {
        return Ok(OpenApiV2Format::Json);
    }
    let chosen = clauses.iter().find_map(|clause| match clause.media {
        OPENAPI_V2_PROTOBUF | OPENAPI_V2_PROTOBUF_DEPRECATED => Some(OpenApiV2Format::Protobuf),
        _ if clause.is_json() => Some(OpenApiV2Format::Json),
        _ => None,
    });
    chosen.ok_or_else(|| ApiError::not_acceptable(&format!("{JSON}, {OPENAPI_V2_PROTOBUF}")))
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// The kinds of patch, by media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The format of the body of a create, update or delete. Without a content type it is JSON.
pub(crate) fn body_format(headers: &HeaderMap) -> Result<Format, ApiError> {
    match media_type(headers) {
        "" | JSON => Ok(Format::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// The kind of patch in the body.
pub(crate) fn patch_kind(headers: &HeaderMap) -> Result<PatchKind, ApiError> {
    match media_type(headers) {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        _ => Err(ApiError::unsupported_media_type(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, \
             application/strategic-merge-patch+json",
        )),
    }
}

#[cfg(test)]
mod tests;
