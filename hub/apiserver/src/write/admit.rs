//! What the server itself sets, keeps and checks in a written object.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{Value, json};
use tideline_store::Item;

use super::Write;
use crate::call::{Call, Place};
use crate::catalog::{CRD_GROUP, CRDS, CUSTOM_CLEANUP, Definition, Source};
use crate::fieldmanager::{self, Writer};
use crate::negotiate::Format;
use crate::schema::field_error::FieldErrors;
use crate::schema::validate::validate_object;
use crate::status::{ApiError, Cause};
use crate::{body, object, string_data, structural};

/// Bytes of a generated name before its suffix: 63 in all, so that the name is also a label.
const GENERATED_PREFIX_MAX: usize = 58;
/// The letters of generated names: no vowels and nothing that looks like another.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// New finalizers that a refusal names: those that come first.
const FINALIZERS_TOLD_MAX: usize = 20;

/// Gives an object the namespace of its request, and refuses another one.
pub(super) fn check_namespace(place: &Place, mut object: Value) -> Result<Value, ApiError> {
    let found = object::namespace(&object).unwrap_or_default().to_owned();
    match place.namespace.as_deref() {
        Some(wanted) if found.is_empty() => {
            object::metadata(&mut object).insert("namespace".into(), wanted.into());
        }
        Some(wanted) if found != wanted => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        None if !found.is_empty() && !place.served.resource.namespaced => {
            object::metadata(&mut object).remove("namespace");
        }
        Some(_) | None => {}
    }
    Ok(object)
}

/// Whether the name of a new object was left to the server.
pub(super) fn wants_generated_name(format: Format, body: &Bytes) -> bool {
    body::parse(format, body).is_ok_and(|document| object::name(&document.value).is_empty())
}

fn generated_name(prefix: &str) -> String {
    let mut end = prefix.len().min(GENERATED_PREFIX_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let random = uuid::Uuid::new_v4();
    let suffix = random.as_bytes()[..5].iter().map(|byte| SUFFIX_LETTERS[usize::from(*byte) % SUFFIX_LETTERS.len()]);
    format!("{}{}", &prefix[..end], suffix.map(char::from).collect::<String>())
}

impl Call {
    /// The process itself asks, not a client.
    pub(super) fn is_own(&self) -> bool {
        self.identity == crate::identity::Identity::system()
    }
}

impl Write<'_> {
    pub(super) fn writer<'a>(&'a self, manager: &'a str, ignored: &'a fieldmanager::Set) -> Writer<'a> {
        Writer {
            manager,
            api_version: &self.place.served.api_version,
            subresource: self.subresource,
            now: &self.now,
            ignored,
        }
    }

    pub(super) fn manager(&self) -> &str {
        self.options.field_manager.as_deref().unwrap_or_else(|| self.call.default_manager())
    }

    pub(super) fn invalid(&self, name: &str, errors: &FieldErrors) -> ApiError {
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason().into(),
                message: error.message(),
                field: error.path.clone(),
            })
            .collect();
        let resource = &self.place.served.resource;
        ApiError::invalid(&resource.group, &resource.kind, name, causes).and_more(errors.more())
    }

    fn ignored(&self) -> fieldmanager::Set {
        fieldmanager::ignored_fields(self.place.served.has_status(), self.subresource)
    }

    /// A POSTed object as it is to be stored, and warnings.
    pub(super) fn admit_new(&self, mut object: Value) -> Result<(Value, Vec<String>), ApiError> {
        string_data::encode(&mut object);
        let metadata = object::metadata(&mut object);
        if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty()
            && let Some(prefix) =
                metadata.get("generateName").and_then(Value::as_str).filter(|prefix| !prefix.is_empty())
        {
            let name = generated_name(prefix);
            metadata.insert("name".into(), name.into());
        }
        self.stamp_new(&mut object);
        let warnings = self.finish(&mut object, None)?;
        let ignored = self.ignored();
        let Some(ty) = self.place.served.type_of() else { return Ok((object, warnings)) };
        let written = fieldmanager::track_update(ty, None, &object, &self.writer(self.manager(), &ignored));
        Ok((written.object, warnings))
    }

    /// Sets what the server alone decides in a new object.
    pub(super) fn stamp_new(&self, object: &mut Value) {
        let served = &self.place.served;
        let metadata = object::metadata(object);
        for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            metadata.remove(field);
        }
        metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".into(), self.now.clone().into());
        if served.has_generation() {
            metadata.insert("generation".into(), 1.into());
        }
        if served.has_status()
            && let Some(object) = object.as_object_mut()
        {
            object.remove("status");
        }
        if served.is_namespace() && object.pointer("/spec/finalizers").is_some() {
            super::hold_content(object);
        }
    }

    /// A PUT or patched object as it is to be stored, and warnings.
    pub(super) fn admit_changed(&self, old: &Item, object: Value) -> Result<(Value, Vec<String>), ApiError> {
        let served = &self.place.served;
        let stored = object::convert(served, object::read(old)?);
        let mut object = object;
        string_data::encode(&mut object);
        object::strip_defaults(served, &stored, &mut object);
        let warnings = self.keep(&stored, &mut object)?;
        let ignored = self.ignored();
        let Some(ty) = served.type_of() else { return Ok((object, warnings)) };
        let written = fieldmanager::track_update(ty, Some(&stored), &object, &self.writer(self.manager(), &ignored));
        Ok((written.object, warnings))
    }

    /// An object of which a subresource wrote fields outside of its own part (`scale` writes the spec).
    pub(super) fn admit_merged(&self, old: &Item, mut object: Value) -> Result<Value, ApiError> {
        let served = &self.place.served;
        let stored = object::convert(served, object::read(old)?);
        object::strip_defaults(served, &stored, &mut object);
        let whole = Write { subresource: "", now: self.now.clone(), options: self.options.clone(), ..*self };
        whole.keep(&stored, &mut object)?;
        let ignored = fieldmanager::ignored_fields(served.has_status(), "");
        let Some(ty) = served.type_of() else { return Ok(object) };
        Ok(fieldmanager::track_update(ty, Some(&stored), &object, &self.writer(self.manager(), &ignored)).object)
    }

    /// Everything about a changed object but its managed fields: what clients cannot change stays as it was.
    pub(super) fn keep(&self, stored: &Value, object: &mut Value) -> Result<Vec<String>, ApiError> {
        let served = &self.place.served;
        let name = object::name(stored).to_owned();
        let asked = object::uid(object);
        if !asked.is_empty() && asked != object::uid(stored) {
            let why = format!(
                "Precondition failed: UID in precondition: {asked}, UID in object meta: {}",
                object::uid(stored)
            );
            return Err(ApiError::conflict(&served.resource.group, &served.resource.plural, &name, &why));
        }
        match self.subresource {
            "" if served.has_status() => copy(stored, object, "status"),
            "" => {}
            subresource => keep_all_but(subresource, stored, object),
        }
        if let Some(field) = self.call.filled(served) {
            object::keep_at(object, field.path(), stored);
        }
        if served.is_namespace() && self.subresource != "finalize" {
            object::keep_at(object, &["spec", "finalizers"], stored);
        }
        keep_metadata(stored, object);
        self.check_finalizers(stored, object)?;
        self.check_immutable(stored, object)?;
        if served.is_crd()
            && self.call.space.is_protected(&name)
            && !self.call.is_own()
            && stored["spec"] != object["spec"]
        {
            return Err(ApiError::forbidden(CRD_GROUP, CRDS, &name, "this definition is part of the space"));
        }
        let warnings = self.finish(object, Some(stored))?;
        if served.has_generation() && self.subresource != "status" && differs(stored, object) {
            let generation = stored.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
            object::metadata(object).insert("generation".into(), (generation + 1).into());
        }
        Ok(warnings)
    }

    /// Defaults, status of definitions, and validation, in a new or changed object.
    pub(super) fn finish(&self, object: &mut Value, old: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let served = &self.place.served;
        let name = object::name(object).to_owned();
        if let Source::Custom(custom) = &served.source {
            structural::apply_defaults(custom.ty.root(), object)
                .map_err(|too_many| ApiError::too_large(too_many.to_string()))?;
        }
        let mut warnings = Vec::new();
        if let Some(ty) = served.type_of() {
            let errors = validate_object(ty, object, served.resource.namespaced);
            if !errors.is_empty() {
                return Err(self.invalid(&name, &errors));
            }
        }
        if served.is_crd() {
            warnings = self.finish_definition(object, old)?;
        }
        Ok(warnings)
    }

    fn finish_definition(&self, crd: &mut Value, old: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let name = object::name(crd).to_owned();
        if old.is_none() {
            let metadata = object::metadata(crd);
            let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = finalizers.as_array_mut()
                && !list.iter().any(|one| one == CUSTOM_CLEANUP)
            {
                list.push(CUSTOM_CLEANUP.into());
            }
        }
        let catalog = self.call.space.catalog();
        Definition::refresh_status(crd, catalog.definitions(), &self.now);
        match Definition::compile(crd) {
            Ok(definition) => Ok(definition.warnings().to_vec()),
            Err(errors) => Err(self.invalid(&name, &errors)),
        }
    }

    fn check_finalizers(&self, stored: &Value, object: &Value) -> Result<(), ApiError> {
        if !object::is_terminating(stored) {
            return Ok(());
        }
        let old: BTreeSet<&str> = object::finalizers(stored).collect();
        let added: Vec<&str> =
            object::finalizers(object).filter(|one| !old.contains(one)).take(FINALIZERS_TOLD_MAX).collect();
        if added.is_empty() {
            return Ok(());
        }
        let message = format!(
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{added:?}"
        );
        let resource = &self.place.served.resource;
        Err(ApiError::invalid(
            &resource.group,
            &resource.kind,
            object::name(stored),
            vec![Cause { reason: "FieldValueForbidden".into(), message, field: "metadata.finalizers".into() }],
        ))
    }

    /// The immutable fields that clients meet in practice.
    fn check_immutable(&self, stored: &Value, object: &Value) -> Result<(), ApiError> {
        let resource = &self.place.served.resource;
        let mut causes = Vec::new();
        let mut must_stay = |field: &str, message: String| {
            causes.push(Cause { reason: "FieldValueInvalid".into(), message, field: field.into() });
        };
        let changed =
            |pointer: &str| stored.pointer(pointer).is_some() && stored.pointer(pointer) != object.pointer(pointer);
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("", "configmaps" | "secrets") => {
                let frozen = stored["immutable"] == true;
                let differs = |field: &str| stored.get(field) != object.get(field);
                if frozen && ["data", "binaryData", "immutable"].into_iter().any(differs) {
                    must_stay("data", "Forbidden: field is immutable when `immutable` is set".into());
                }
                if resource.plural == "secrets" && secret_type(stored) != secret_type(object) {
                    must_stay("type", format!("Invalid value: {:?}: field is immutable", secret_type(object)));
                }
            }
            ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets") if changed("/spec/selector") => {
                must_stay(
                    "spec.selector",
                    format!("Invalid value: {}: field is immutable", object["spec"]["selector"]),
                );
            }
            (CRD_GROUP, CRDS) => {
                // Objects are known by their kind as soon as there may be any, as kube-apiserver has it.
                let kind = Definition::kind_of(stored).map(|_| "names/kind");
                for field in ["group", "scope"].into_iter().chain(kind) {
                    let path = format!("/spec/{field}");
                    if changed(&path) {
                        let value = object.pointer(&path).unwrap_or(&Value::Null);
                        let name = path[1..].replace('/', ".");
                        must_stay(&name, format!("Invalid value: {value}: field is immutable"));
                    }
                }
            }
            ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") if changed("/roleRef") => {
                must_stay("roleRef", format!("Invalid value: {}: cannot change roleRef", object["roleRef"]));
            }
            _ => {}
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(&resource.group, &resource.kind, object::name(stored), causes))
    }
}

/// The type of a Secret: one without is `Opaque`, as the default on read says it.
fn secret_type(secret: &Value) -> &str {
    Some(object::text(secret, "/type")).filter(|of| !of.is_empty()).unwrap_or("Opaque")
}

/// Sets a part of an object to what it was.
fn copy(from: &Value, to: &mut Value, part: &str) {
    let Some(object) = to.as_object_mut() else { return };
    match from.get(part) {
        Some(value) => object.insert(part.into(), value.clone()),
        None => object.remove(part),
    };
}

/// Through a subresource only its part of the object is written, and managed fields with it.
fn keep_all_but(subresource: &str, stored: &Value, object: &mut Value) {
    let mut kept = stored.clone();
    match subresource {
        "status" | "approval" => copy(object, &mut kept, "status"),
        "finalize" => match object.pointer("/spec/finalizers") {
            // Its writer left what is filled in on a read as it was read.
            None if stored.pointer("/spec/finalizers").is_none() => {}
            written => {
                let finalizers = written.cloned().unwrap_or_else(|| json!([]));
                object::set_at(&mut kept, &["spec", "finalizers"], finalizers);
            }
        },
        _ => {}
    }
    *object = kept;
}

fn keep_metadata(stored: &Value, object: &mut Value) {
    let metadata = object::metadata(object);
    let fixed = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "resourceVersion",
    ];
    for field in fixed {
        match stored["metadata"].get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    metadata.remove("selfLink");
}

/// Whether anything changed that counts as a new generation: all but metadata and status.
fn differs(stored: &Value, object: &Value) -> bool {
    let counted = |value: &Value| {
        let fields = value.as_object().into_iter().flatten();
        fields
            .filter(|(name, _)| !matches!(name.as_str(), "metadata" | "status" | "apiVersion" | "kind"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    counted(stored) != counted(object)
}
