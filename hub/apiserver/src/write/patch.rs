//! PATCH in its four forms.

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use tideline_store::Item;

use super::{ATTEMPTS, Stored, Write, admit};
use crate::call::{Call, Place, Reply};
use crate::catalog::Source;
use crate::fieldmanager::{self, ApplyError, Force};
use crate::negotiate::{self, Format, PatchKind};
use crate::schema::TypeRef;
use crate::status::{ApiError, Cause};
use crate::string_data;
use crate::{body, object, patch as patches};

pub(crate) async fn patch(
    call: &Call,
    place: &Place,
    name: &str,
    subresource: &str,
    bytes: Bytes,
) -> Result<Reply, ApiError> {
    let write = Write::new(call, place, subresource)?;
    let kind = negotiate::patch_kind(&call.headers)?;
    if kind == PatchKind::Apply {
        return write.apply(name, &bytes).await;
    }
    if write.options.force.is_some() {
        return Err(patch_option(
            "force",
            "FieldValueForbidden",
            "Forbidden: may not be specified for non-apply patch",
        ));
    }
    let served = &place.served;
    let patch = body::parse(Format::Json, &bytes)?;
    for _ in 0..ATTEMPTS {
        let item = write.item(name).await?.ok_or_else(|| served.not_found(name))?;
        let seen = object::present(served, object::read(&item)?);
        let mut patched = rewrite(kind, served.type_of(), &served.source, &seen, &patch.value)?;
        body::check_kind(&mut patched, &served.api_version, &served.resource.kind)?;
        let warnings = body::conform(served, &mut patched, write.options.field_validation, Vec::new())?;
        let version = object::text(&patched, "/metadata/resourceVersion").to_owned();
        write.check_version_if_named(name, &version, &item)?;
        if object::name(&patched) != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                object::name(&patched)
            )));
        }
        let patched = admit::check_namespace(place, patched)?;
        let (changed, more) = write.admit_changed(&item, patched)?;
        match write.store_changed(&item, changed).await? {
            Stored::Done(reply) => return Ok(reply.with_warnings(warnings).with_warnings(more)),
            Stored::Again => {}
        }
    }
    Err(write.too_contended(name))
}

/// Applies a patch that is no apply to what the client sees.
fn rewrite(
    kind: PatchKind,
    ty: Option<TypeRef<'_>>,
    source: &Source,
    seen: &Value,
    patch: &Value,
) -> Result<Value, ApiError> {
    let built_in = matches!(source, Source::BuiltIn(_));
    match (kind, ty) {
        (PatchKind::Json, _) => patches::json_patch(seen, patch).map_err(|error| refused(&error)),
        (PatchKind::Merge, _) if !patch.is_object() => Err(no_object()),
        (PatchKind::Merge, _) => Ok(patches::merge_patch(seen, patch)),
        (PatchKind::Strategic, Some(ty)) if built_in => {
            patches::strategic_merge(ty, seen, patch).map_err(|error| refused(&error))
        }
        (PatchKind::Strategic | PatchKind::Apply, _) => Err(ApiError::unsupported_media_type(
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
    }
}

/// The scale of an object after a patch of it.
pub(crate) fn scale_patch(call: &Call, scale: &Value, bytes: &[u8]) -> Result<Value, ApiError> {
    let kind = negotiate::patch_kind(&call.headers)?;
    let patch = body::parse(Format::Yaml, bytes)?.value;
    match kind {
        PatchKind::Json => patches::json_patch(scale, &patch).map_err(|error| refused(&error)),
        PatchKind::Merge | PatchKind::Strategic | PatchKind::Apply if !patch.is_object() => Err(no_object()),
        // A scale has no lists, so a strategic merge and an apply come to a merge.
        PatchKind::Merge | PatchKind::Strategic | PatchKind::Apply => Ok(patches::merge_patch(scale, &patch)),
    }
}

fn no_object() -> ApiError {
    ApiError::bad_request("the patch is malformed: a merge patch must be an object")
}

fn refused(error: &patches::Error) -> ApiError {
    match error.status() {
        400 => ApiError::bad_request(error.to_string()),
        413 => ApiError::too_large(error.to_string()),
        _ => {
            let mut refused = ApiError::invalid("", "", "", Vec::new());
            refused.message = error.to_string();
            refused
        }
    }
}

fn patch_option(field: &str, reason: &str, message: &str) -> ApiError {
    ApiError::invalid(
        "meta.k8s.io",
        "PatchOptions",
        "",
        vec![Cause { reason: reason.into(), message: message.into(), field: field.into() }],
    )
}

impl Write<'_> {
    async fn apply(&self, name: &str, bytes: &[u8]) -> Result<Reply, ApiError> {
        let served = &self.place.served;
        if self.options.field_manager.is_none() {
            return Err(patch_option(
                "fieldManager",
                "FieldValueRequired",
                "Required value: is required for apply patch",
            ));
        }
        let document = body::parse(Format::Yaml, bytes)?;
        let (applied, warnings) = self.applied(name, document)?;
        let version = object::text(&applied, "/metadata/resourceVersion").to_owned();
        for _ in 0..ATTEMPTS {
            let outcome = match self.item(name).await? {
                Some(item) => {
                    self.check_version_if_named(name, &version, &item)?;
                    self.apply_to(&item, &applied).await?
                }
                None if !self.subresource.is_empty() => return Err(served.not_found(name)),
                None if !object::uid(&applied).is_empty() || !version.is_empty() => {
                    let resource = &served.resource;
                    let why = "the object does not exist, and uid or resourceVersion was given";
                    return Err(ApiError::conflict(&resource.group, &resource.plural, name, why));
                }
                None => self.apply_new(&applied).await?,
            };
            match outcome {
                Stored::Done(reply) => return Ok(reply.with_warnings(warnings)),
                Stored::Again => {}
            }
        }
        Err(self.too_contended(name))
    }

    /// What the client wants, checked against the request's path.
    fn applied(&self, name: &str, document: body::Document) -> Result<(Value, Vec<String>), ApiError> {
        let served = &self.place.served;
        for field in ["apiVersion", "kind"] {
            if object::text(&document.value, &format!("/{field}")).is_empty() {
                return Err(ApiError::bad_request(format!("invalid object type: {field} is required for apply patch")));
            }
        }
        let (mut applied, warnings) = body::decode(served, document, self.options.field_validation)?;
        applied = admit::check_namespace(self.place, applied)?;
        let found = object::name(&applied);
        if !found.is_empty() && found != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({found}) does not match the name on the URL ({name})"
            )));
        }
        object::metadata(&mut applied).insert("name".into(), name.into());
        if let Some(field) = self.call.filled(served) {
            // Who applies what was read owns nothing of it, and meets no other owner.
            object::keep_at(&mut applied, field.path(), &Value::Null);
        }
        Ok((applied, warnings))
    }

    fn merged(&self, live: Option<&Value>, applied: &Value) -> Result<fieldmanager::Written, ApiError> {
        let served = &self.place.served;
        let ty = served.type_of().ok_or_else(ApiError::no_such_path)?;
        let ignored = fieldmanager::ignored_fields(served.has_status(), self.subresource);
        let force = if self.options.force == Some(true) { Force::Yes } else { Force::No };
        fieldmanager::apply(ty, live, applied, &self.writer(self.manager(), &ignored), force).map_err(|error| {
            match error {
                ApplyError::Conflicts(conflicts) => {
                    let message = conflicts.to_string();
                    let causes = conflicts.told.into_iter().map(|conflict| Cause {
                        reason: "FieldManagerConflict".into(),
                        message: conflict.message(),
                        field: conflict.field,
                    });
                    ApiError::apply_conflict(message, causes.collect())
                }
                error @ (ApplyError::ManagedFieldsInPatch | ApplyError::Patch { .. }) => {
                    ApiError::bad_request(error.to_string())
                }
                error @ (ApplyError::Live { .. } | ApplyError::ManagedFields(_)) => {
                    ApiError::internal(error.to_string())
                }
            }
        })
    }

    async fn apply_new(&self, applied: &Value) -> Result<Stored, ApiError> {
        let mut object = self.merged(None, applied)?.object;
        string_data::encode(&mut object);
        let managed = object["metadata"]["managedFields"].take();
        self.stamp_new(&mut object);
        let warnings = self.finish(&mut object, None)?;
        if !managed.is_null() {
            object::metadata(&mut object).insert("managedFields".into(), managed);
        }
        Ok(match self.store_new(object).await? {
            Stored::Done(reply) => Stored::Done(Reply { code: StatusCode::CREATED, ..reply }.with_warnings(warnings)),
            Stored::Again => Stored::Again,
        })
    }

    async fn apply_to(&self, item: &Item, applied: &Value) -> Result<Stored, ApiError> {
        let stored = object::convert(&self.place.served, object::read(item)?);
        let written = self.merged(Some(&stored), applied)?;
        if !written.changed {
            return self.store_changed(item, stored).await;
        }
        let mut object = written.object;
        string_data::encode(&mut object);
        let managed = object["metadata"].get("managedFields").cloned();
        let warnings = self.keep(&stored, &mut object)?;
        let metadata = object::metadata(&mut object);
        match managed {
            Some(managed) => metadata.insert("managedFields".into(), managed),
            None => metadata.remove("managedFields"),
        };
        // What became of strings, and what is kept as it was, may have been all that differed.
        let object = fieldmanager::unless_same(&stored, object).object;
        Ok(match self.store_changed(item, object).await? {
            Stored::Done(reply) => Stored::Done(reply.with_warnings(warnings)),
            Stored::Again => Stored::Again,
        })
    }
}

/// Merges a small patch into an object on behalf of a subresource, and gives the object as clients see it.
pub(crate) async fn merge(
    call: &Call,
    place: &Place,
    name: &str,
    subresource: &str,
    patch: &Value,
) -> Result<Value, ApiError> {
    let write = Write { shape: crate::negotiate::Shape::Object, ..Write::new(call, place, "")? };
    let tracked = Write { subresource, now: write.now.clone(), options: write.options.clone(), ..write };
    let served = &place.served;
    for _ in 0..ATTEMPTS {
        let item = write.item(name).await?.ok_or_else(|| served.not_found(name))?;
        let seen = object::present(served, object::read(&item)?);
        let patched = patches::merge_patch(&seen, patch);
        let version = object::text(&patched, "/metadata/resourceVersion").to_owned();
        write.check_version_if_named(name, &version, &item)?;
        let changed = tracked.admit_merged(&item, patched)?;
        match write.store_changed(&item, changed).await? {
            Stored::Done(Reply { content: crate::call::Content::Json(object), .. }) => return Ok(object),
            Stored::Done(_) => return Err(ApiError::internal("a write answered with something that is no object")),
            Stored::Again => {}
        }
    }
    Err(write.too_contended(name))
}
