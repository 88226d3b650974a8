//! Everything that changes an object.
//!
//! Every write is the same loop: read, compute the new object, commit on condition that what was read is still there.
//! A write that changes nothing commits nothing and keeps the resource version.

mod admit;
mod collection;
mod patch;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tideline_store::{Commit, CommitOutcome, Compare, Item, Op, Revision};

pub(crate) use self::collection::delete_collection;
pub(crate) use self::patch::{merge, patch, scale_patch};
use crate::call::{Call, Place, Reply};
use crate::catalog::{CRD_GROUP, CRDS};
use crate::identity::Deletion;
use crate::negotiate::{self, Shape};
use crate::object::{CONTENT_FINALIZER, OWN_NAMESPACES};
use crate::query::{DeleteOptions, WriteOptions};
use crate::render::Renderer;
use crate::status::ApiError;
use crate::{body, keys, object};

/// How often a write that named no version starts over because another writer came first. With writers taking
/// turns each attempt lets at least one of them through.
const ATTEMPTS: usize = 32;

/// One write as it goes through the loop.
pub(crate) struct Write<'a> {
    pub(crate) call: &'a Call,
    pub(crate) place: &'a Place,
    pub(crate) options: WriteOptions,
    pub(crate) shape: Shape,
    pub(crate) subresource: &'a str,
    pub(crate) now: String,
}

/// How a commit ended.
enum Stored {
    Done(Reply),
    /// Something that the write was based on has changed.
    Again,
}

impl<'a> Write<'a> {
    pub(crate) fn new(call: &'a Call, place: &'a Place, subresource: &'a str) -> Result<Self, ApiError> {
        let shape = negotiate::shape(&call.headers)?;
        let options = WriteOptions::parse(&call.query)?;
        Ok(Self { call, place, options, shape, subresource, now: object::now() })
    }

    fn key(&self, name: &str) -> Bytes {
        self.place.key(&self.call.space.name, name)
    }

    async fn item(&self, name: &str) -> Result<Option<Item>, ApiError> {
        let item = self.call.inner.store.get(self.key(name)).await?;
        if let Some(item) = &item {
            self.call.take_up(&self.place.served, item.value.len()).await;
        }
        Ok(item)
    }

    fn too_contended(&self, name: &str) -> ApiError {
        let resource = &self.place.served.resource;
        ApiError::modified(&resource.group, &resource.plural, name)
    }

    /// The answer: the object as clients see it.
    fn reply(&self, code: StatusCode, object: Value) -> Reply {
        let served = &self.place.served;
        let value = Renderer::new(self.call, served, self.shape).single(object::present(served, object));
        Reply { code, ..Reply::ok(value) }
    }

    /// The condition under which an object may be made: its namespace is there and stays.
    async fn namespace_condition(&self, name: &str) -> Result<Option<Compare>, ApiError> {
        let Some(namespace) = self.place.namespace.as_deref() else { return Ok(None) };
        let key = keys::object(&self.call.space.name, "", "namespaces", None, namespace);
        let item = self.call.inner.store.get(key.clone()).await?;
        let item = item.ok_or_else(|| ApiError::not_found("", "namespaces", namespace))?;
        if object::is_terminating(&object::read(&item)?) {
            let resource = &self.place.served.resource;
            return Err(ApiError::namespace_terminating(&resource.group, &resource.plural, name, namespace));
        }
        Ok(Some(Compare::Modified(key, item.modified)))
    }

    /// Stores a new object.
    async fn store_new(&self, object: Value) -> Result<Stored, ApiError> {
        let name = object::name(&object).to_owned();
        if let Some(definition) = self.call.space.catalog().definition(&self.definition_name())
            && definition.is_terminating()
        {
            return Err(ApiError::method_not_allowed(
                "create not allowed while custom resource definition is terminating",
            ));
        }
        let namespace = self.namespace_condition(&name).await?;
        let key = self.key(&name);
        let value = object::write(object.clone(), &self.place.served, &[])?;
        if self.options.dry_run {
            return match self.call.inner.store.get(key).await? {
                Some(_) => Ok(Stored::Again),
                None => Ok(Stored::Done(self.reply(StatusCode::CREATED, object))),
            };
        }
        if let Some(error) = self.shortage() {
            // What is there already is told as ever.
            return if self.item(&name).await?.is_some() { Ok(Stored::Again) } else { Err(error) };
        }
        let mut compare = vec![Compare::Absent(key.clone())];
        compare.extend(namespace);
        match self.call.inner.store.commit(Commit { compare, ops: vec![Op::Put(key, value)] }).await? {
            CommitOutcome::Committed(revision) => {
                self.after_write().await?;
                Ok(Stored::Done(self.reply(StatusCode::CREATED, at_revision(object, revision))))
            }
            CommitOutcome::Conflict { .. } => Ok(Stored::Again),
        }
    }

    /// Stores a changed object, or removes it if nothing holds it any longer.
    async fn store_changed(&self, old: &Item, object: Value) -> Result<Stored, ApiError> {
        let served = &self.place.served;
        let gone = object::is_terminating(&object)
            && object::finalizers(&object).next().is_none()
            && !(served.is_namespace() && holds_content(&object));
        let op = if gone {
            Op::Delete(old.key.clone())
        } else {
            let value = object::write(object.clone(), served, &old.value)?;
            if value == object::stored(object::read(old)?, served).to_string() {
                return Ok(Stored::Done(self.reply(StatusCode::OK, at_revision(object, old.modified))));
            }
            Op::Put(old.key.clone(), value)
        };
        if self.options.dry_run {
            return Ok(Stored::Done(self.reply(StatusCode::OK, at_revision(object, old.modified))));
        }
        if !object::is_terminating(&object)
            && let Some(error) = self.shortage()
        {
            return Err(error);
        }
        let compare = vec![Compare::Modified(old.key.clone(), old.modified)];
        match self.call.inner.store.commit(Commit { compare, ops: vec![op] }).await? {
            CommitOutcome::Committed(revision) => {
                self.after_write().await?;
                Ok(Stored::Done(self.reply(StatusCode::OK, at_revision(object, revision))))
            }
            CommitOutcome::Conflict { .. } => Ok(Stored::Again),
        }
    }

    /// Why nothing may be made or changed at present, but by a deletion.
    fn shortage(&self) -> Option<ApiError> {
        let shortage = self.call.inner.store.shortage().filter(|_| !self.call.is_own());
        shortage.map(ApiError::from)
    }

    /// A changed definition is in force before its writer gets an answer.
    async fn after_write(&self) -> Result<(), ApiError> {
        if self.place.served.is_crd() {
            self.call.inner.refresh(&self.call.space).await?;
        }
        Ok(())
    }

    fn definition_name(&self) -> String {
        let resource = &self.place.served.resource;
        format!("{}.{}", resource.plural, resource.group)
    }
}

fn at_revision(mut object: Value, revision: Revision) -> Value {
    object::metadata(&mut object).insert("resourceVersion".into(), revision.0.to_string().into());
    object
}

/// Whether a namespace still has the finalizer that stands for its content.
pub(crate) fn holds_content(namespace: &Value) -> bool {
    namespace.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// Gives a namespace the finalizer that stands for its content, in whatever place it has among others.
fn hold_content(namespace: &mut Value) {
    if !namespace.get("spec").is_some_and(Value::is_object) {
        namespace["spec"] = json!({});
    }
    let finalizers = &mut namespace["spec"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(list) if list.iter().any(|one| one == CONTENT_FINALIZER) => {}
        Some(list) => list.push(CONTENT_FINALIZER.into()),
        None => *finalizers = json!([CONTENT_FINALIZER]),
    }
}

pub(crate) async fn create(call: &Call, place: &Place, bytes: Bytes) -> Result<Reply, ApiError> {
    let write = Write::new(call, place, "")?;
    let format = negotiate::body_format(&call.headers)?;
    let document = body::parse(format, &bytes)?;
    let (object, warnings) = body::decode(&place.served, document, write.options.field_validation)?;
    let object = admit::check_namespace(place, object)?;
    for attempt in 0..ATTEMPTS {
        let (object, more) = write.admit_new(object.clone())?;
        let name = object::name(&object).to_owned();
        match write.store_new(object).await? {
            Stored::Done(reply) => return Ok(reply.with_warnings(warnings).with_warnings(more)),
            // Either the object is there, or its namespace was written in the meantime.
            Stored::Again if write.item(&name).await?.is_some() => {
                let generated = attempt + 1 < GENERATED_NAME_ATTEMPTS && admit::wants_generated_name(format, &bytes);
                if !generated {
                    let resource = &place.served.resource;
                    return Err(ApiError::already_exists(&resource.group, &resource.plural, &name));
                }
            }
            Stored::Again => {}
        }
    }
    Err(write.too_contended(""))
}

/// Names tried for one `generateName`; as in kube-apiserver.
const GENERATED_NAME_ATTEMPTS: usize = 8;

pub(crate) async fn replace(
    call: &Call,
    place: &Place,
    name: &str,
    subresource: &str,
    bytes: Bytes,
) -> Result<Reply, ApiError> {
    let write = Write::new(call, place, subresource)?;
    let served = &place.served;
    let document = body::parse(negotiate::body_format(&call.headers)?, &bytes)?;
    let (object, warnings) = body::decode(served, document, write.options.field_validation)?;
    let object = admit::check_namespace(place, object)?;
    if object::name(&object) != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            object::name(&object)
        )));
    }
    let version = object::text(&object, "/metadata/resourceVersion").to_owned();
    for _ in 0..ATTEMPTS {
        let item = write.item(name).await?.ok_or_else(|| served.not_found(name))?;
        write.check_version(name, &version, &item)?;
        let (changed, more) = write.admit_changed(&item, object.clone())?;
        match write.store_changed(&item, changed).await? {
            Stored::Done(reply) => return Ok(reply.with_warnings(warnings).with_warnings(more)),
            Stored::Again => {}
        }
    }
    Err(write.too_contended(name))
}

impl Write<'_> {
    /// Optimistic concurrency: a version that was named must be the present one.
    fn check_version(&self, name: &str, version: &str, item: &Item) -> Result<(), ApiError> {
        let served = &self.place.served;
        if version.is_empty() || version == "0" {
            return if served.unconditional_update() {
                Ok(())
            } else {
                Err(ApiError::invalid(
                    &served.resource.group,
                    &served.resource.kind,
                    name,
                    vec![crate::status::Cause {
                        reason: "FieldValueInvalid".into(),
                        message: "Invalid value: 0: must be specified for an update".into(),
                        field: "metadata.resourceVersion".into(),
                    }],
                ))
            };
        }
        self.check_version_if_named(name, version, item)
    }

    fn check_version_if_named(&self, name: &str, version: &str, item: &Item) -> Result<(), ApiError> {
        let resource = &self.place.served.resource;
        if version.is_empty() || crate::query::parse_resource_version(version)? == item.modified.0 {
            return Ok(());
        }
        Err(ApiError::modified(&resource.group, &resource.plural, name))
    }
}

pub(crate) async fn delete(call: &Call, place: &Place, name: &str, bytes: Bytes) -> Result<Reply, ApiError> {
    let write = Write::new(call, place, "")?;
    let options = delete_options(call, &bytes)?;
    write.delete(name, &options).await
}

fn delete_options(call: &Call, bytes: &Bytes) -> Result<DeleteOptions, ApiError> {
    let document =
        if bytes.is_empty() { None } else { Some(body::parse(negotiate::body_format(&call.headers)?, bytes)?.value) };
    DeleteOptions::parse(&call.query, document.as_ref())
}

impl Write<'_> {
    pub(crate) async fn delete(&self, name: &str, options: &DeleteOptions) -> Result<Reply, ApiError> {
        let served = &self.place.served;
        for _ in 0..ATTEMPTS {
            let item = self.item(name).await?.ok_or_else(|| served.not_found(name))?;
            let deleted = match self.place.read(&self.call.space.name, name, &item) {
                Ok(object) => {
                    self.check_deletable(name, &object, options)?;
                    self.delete_item(&item, object, options).await?
                }
                Err(_unreadable) if options.ignore_store_read_error => {
                    self.delete_unreadable(name, &item, options).await?
                }
                Err(error) => return Err(error),
            };
            match deleted {
                Stored::Done(reply) => return Ok(reply),
                Stored::Again => {}
            }
        }
        Err(self.too_contended(name))
    }

    /// Deletes what cannot be read, with all that it may have said of who holds it.
    async fn delete_unreadable(&self, name: &str, item: &Item, options: &DeleteOptions) -> Result<Stored, ApiError> {
        let resource = &self.place.served.resource;
        if options.uid.is_some() || options.resource_version.is_some() {
            let why = "preconditions cannot be checked of an object that cannot be read";
            return Err(ApiError::conflict(&resource.group, &resource.plural, name, why));
        }
        if !options.dry_run && !self.options.dry_run {
            let compare = vec![Compare::Modified(item.key.clone(), item.modified)];
            let commit = Commit { compare, ops: vec![Op::Delete(item.key.clone())] };
            if let CommitOutcome::Conflict { .. } = self.call.inner.store.commit(commit).await? {
                return Ok(Stored::Again);
            }
            let (space, user) = (&*self.call.space.name, &*self.call.identity.user);
            tracing::warn!(
                space,
                resource = resource.plural,
                name,
                user,
                "an object that could not be read is deleted"
            );
            self.after_write().await?;
        }
        let object = object::by_key(&self.place.served, &item.key, item.modified);
        Ok(Stored::Done(Reply::ok(self.success(&object))))
    }

    fn check_deletable(&self, name: &str, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
        let served = &self.place.served;
        let resource = &served.resource;
        let found = [
            ("UID", &options.uid, "/metadata/uid"),
            ("ResourceVersion", &options.resource_version, "/metadata/resourceVersion"),
        ];
        for (what, asked, pointer) in found {
            let own = object::text(object, pointer);
            if asked.as_ref().is_some_and(|asked| asked != own) {
                let asked = asked.as_deref().unwrap_or_default();
                let why = format!("Precondition failed: {what} in precondition: {asked}, {what} in object meta: {own}");
                return Err(ApiError::conflict(&resource.group, &resource.plural, name, &why));
            }
        }
        if served.is_namespace() && OWN_NAMESPACES.contains(&name) {
            return Err(ApiError::forbidden("", "namespaces", name, "this namespace may not be deleted"));
        }
        if served.is_crd() && self.call.space.is_protected(name) && !self.call.is_own() {
            return Err(ApiError::forbidden(CRD_GROUP, CRDS, name, "this definition is part of the space"));
        }
        if let Some(admission) = &self.call.space.admission {
            let (identity, group) = (&self.call.identity, resource.group.as_str());
            let dry_run = options.dry_run || self.options.dry_run;
            let deletion = Deletion { identity, group, resource: &resource.plural, object, dry_run };
            admission.deletes(&deletion).map_err(|why| ApiError::forbidden(group, &resource.plural, name, &why))?;
        }
        Ok(())
    }

    async fn delete_item(&self, item: &Item, mut object: Value, options: &DeleteOptions) -> Result<Stored, ApiError> {
        let served = &self.place.served;
        let dry_run = options.dry_run || self.options.dry_run;
        let held = object::finalizers(&object).next().is_some() || served.is_namespace();
        if !held {
            if !dry_run {
                let compare = vec![Compare::Modified(item.key.clone(), item.modified)];
                let commit = Commit { compare, ops: vec![Op::Delete(item.key.clone())] };
                if let CommitOutcome::Conflict { .. } = self.call.inner.store.commit(commit).await? {
                    return Ok(Stored::Again);
                }
                self.after_write().await?;
            }
            return Ok(Stored::Done(Reply::ok(self.success(&object))));
        }
        if object::is_terminating(&object) {
            return Ok(Stored::Done(self.reply(StatusCode::OK, object)));
        }
        begin_deletion(&mut object, &self.now);
        if served.is_namespace() {
            terminate_namespace(&mut object);
        } else if served.is_crd() {
            crate::catalog::set_condition(
                &mut object,
                "Terminating",
                "True",
                "InstanceDeletionPending",
                "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                &self.now,
            );
        }
        if dry_run {
            return Ok(Stored::Done(self.reply(StatusCode::OK, object)));
        }
        self.store_changed(item, object).await
    }

    /// What a real server answers to a deletion that is done.
    fn success(&self, object: &Value) -> Value {
        let resource = &self.place.served.resource;
        let mut details = json!({"name": object::name(object), "kind": resource.plural, "uid": object::uid(object)});
        if !resource.group.is_empty() {
            details["group"] = resource.group.clone().into();
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }
}

/// Marks an object as going; whoever holds it by a finalizer sees it and acts.
pub(crate) fn begin_deletion(object: &mut Value, now: &str) {
    let metadata = object::metadata(object);
    metadata.insert("deletionTimestamp".into(), now.into());
    metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

fn terminate_namespace(object: &mut Value) {
    // Earlier versions let it be patched away; then what is in the namespace stayed behind.
    hold_content(object);
    if !object.get("status").is_some_and(Value::is_object) {
        object["status"] = json!({});
    }
    object["status"]["phase"] = "Terminating".into();
}
