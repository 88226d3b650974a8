//! The requests that the steps of one operation send for its object.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use tideline_common::{ConflictPolicy, Digest, FIELD_MANAGER, Impersonation, ObjectKey, Reason, Uid};

use super::super::exempt::Exempt;
use super::super::failure::{Failure, Refused};
use super::super::metadata::ManagedFields;
use super::super::object::{Object, assignable};
use super::super::request::{Call, MERGE_PATCH, Want, answer, call, read, unreadable};
use super::super::resource::Resource;
use super::super::{Scope, decode, fields};
use super::{Executor, Stopped};
use crate::core::{FieldConflict, Observed};

const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// Rounds of taking out fields that are others' from an unforced apply. One is enough unless managers change meanwhile.
const CONFLICT_ROUNDS_MAX: usize = 3;

/// Rounds of reading an object and rewriting its managedFields. A new object is written by its controllers, but not as fast as
/// this for long.
pub(super) const REWRITE_ROUNDS_MAX: usize = 4;

/// What the steps of one operation share.
pub(super) struct Target<'a> {
    pub(super) executor: &'a Executor,
    pub(super) resource: Arc<Resource>,
    pub(super) key: &'a ObjectKey,
    /// The path of the object.
    pub(super) path: String,
    pub(super) impersonate: Option<&'a Impersonation>,
}

impl Target<'_> {
    pub(super) async fn send(
        &self,
        method: Method,
        uri: String,
        media_type: &'static str,
        content: &impl Serialize,
    ) -> Result<Object, Refused> {
        let bytes = serde_json::to_vec(content).expect("JSON can be written");
        let want = Want::for_decode(&self.resource);
        let call_ = Call { method, uri, content: Some((media_type, bytes)), want, impersonate: self.impersonate };
        call(&self.executor.client, call_).await
    }

    /// The absence of a namespace is reported in the words used for objects in it.
    pub(super) fn is_namespace_gone(&self, refused: &Refused) -> bool {
        self.key.kind.is_namespace() && !refused.is_kind_missing() && is_missing(refused)
    }

    /// Reads the object as it is decoded; None if it is not there.
    pub(super) async fn read(&self) -> Result<Option<Object>, Refused> {
        self.read_as(Want::for_decode(&self.resource)).await
    }

    pub(super) async fn read_metadata(&self) -> Result<Option<Object>, Refused> {
        self.read_as(Want::Metadata).await
    }

    pub(super) async fn read_as(&self, want: Want) -> Result<Option<Object>, Refused> {
        self.read_text(want).await?.map(|text| read(&text)).transpose()
    }

    /// The object of this UID, and all of it that may differ from what is assigned.
    pub(super) async fn read_to_compare(&self, want: Want, uid: &Uid) -> Result<(Object, Value), Stopped> {
        let text = self.read_text(want).await?.ok_or(Stopped::Stale)?;
        let live = Some(read::<Object>(&text)?).filter(|live| live.is(uid)).ok_or(Stopped::Stale)?;
        Ok((live, assignable(&text).map_err(|error| unreadable(&error))?))
    }

    pub(super) async fn read_text(&self, want: Want) -> Result<Option<Bytes>, Refused> {
        let get = Call::get(self.path.clone(), want).impersonating(self.impersonate);
        match answer(&self.executor.client, get).await {
            Ok(text) => Ok(Some(text)),
            Err(refused) if refused.is_object_missing() || self.is_namespace_gone(&refused) => Ok(None),
            Err(refused) => Err(self.judge(refused)),
        }
    }

    /// Applies, and leaves out fields of others where the policy says so.
    pub(super) async fn apply(
        &self,
        object: &Value,
        conflicts: ConflictPolicy,
    ) -> Result<(Object, Vec<FieldConflict>), Stopped> {
        let force = conflicts == ConflictPolicy::Force;
        let uri = format!("{}?fieldManager={FIELD_MANAGER}&force={force}", self.path);
        let mut object = Cow::Borrowed(object);
        let mut left = Vec::new();
        for _ in 0..CONFLICT_ROUNDS_MAX {
            let refused = match self.send(Method::PATCH, uri.clone(), APPLY_PATCH, &object).await {
                Ok(applied) => return Ok((applied, left)),
                Err(refused) => refused,
            };
            let found = refused.field_conflicts();
            let mut removed = false;
            for conflict in found {
                // Several managers may hold one field; it is left out once and reported for each.
                removed |= fields::remove_named(object.to_mut(), &conflict.field);
                left.push(conflict);
            }
            if !removed {
                return Err(self.judge_apply(refused));
            }
        }
        Err(Failure::new(Reason::FieldConflict, "field managers change faster than it can be applied").into())
    }

    /// Has our managers hold what each is to hold from now on. Returns what the first one is to apply.
    pub(super) async fn prepare(&self, object: Value, exempt: &Exempt, uid: &Uid) -> Result<Value, Stopped> {
        let want = if exempt.is_empty() { Want::Metadata } else { Want::Whole };
        for _ in 0..REWRITE_ROUNDS_MAX {
            let (live, found) = self.read_to_compare(want, uid).await?;
            let mut sent = object.clone();
            let kept = exempt.take_out(&mut sent, &found, live.managed())?;
            match self.divide(&live, kept.as_ref()).await {
                Err(Stopped::Outdated) => {}
                divided => return divided.map(|()| sent),
            }
        }
        Err(Stopped::Outdated)
    }

    /// Has our second manager hold just these of our fields, and the first all others, as applied.
    pub(super) async fn divide(&self, live: &Object, kept: Option<&Value>) -> Result<(), Stopped> {
        if let Some(managed) = fields::divide(live.managed(), kept)? {
            self.rewrite(live, &managed, &json!({})).await?;
        }
        Ok(())
    }

    pub(super) async fn claim_from_others(&self, applied: Object) -> Result<Object, Stopped> {
        match fields::claim_from_others(applied.managed())? {
            None => Ok(applied),
            Some(managed) => self.rewrite(&applied, &managed, &json!({})).await,
        }
    }

    /// Replaces managedFields, with further changes of the metadata, if the object is still of the version that was read.
    pub(super) async fn rewrite(
        &self,
        read: &Object,
        managed: &[ManagedFields],
        changes: &Value,
    ) -> Result<Object, Stopped> {
        let none = [ManagedFields::default()];
        // An empty list means "as it was" to the API server; one empty entry means none.
        let managed_fields = if managed.is_empty() { &none } else { managed };
        let resource_version = read.metadata.resource_version.as_deref();
        let uri = format!("{}?fieldManager={FIELD_MANAGER}", self.path);
        let patch = Rewrite { metadata: RewrittenMetadata { changes, managed_fields, resource_version } };
        self.send(Method::PATCH, uri, MERGE_PATCH, &patch).await.map_err(|refused| match refused.is_object_missing() {
            true => Stopped::Stale,
            false if refused.is_stale() => Stopped::Outdated,
            false => self.judge(refused).into(),
        })
    }

    /// The object as its source has it, with the Pod template of this digest.
    pub(super) fn observed(
        &self,
        scope: &Scope,
        object: Object,
        template: Option<Digest>,
    ) -> Result<Box<Observed>, Failure> {
        let mut observed = self.decode(scope, object)?;
        observed.template = template;
        Ok(observed)
    }

    pub(super) fn decode(&self, scope: &Scope, object: Object) -> Result<Box<Observed>, Failure> {
        decode::decode(scope, &self.resource, object)
            .map(Box::new)
            .ok_or_else(|| Failure::unavailable("the API server answered with something that is no object"))
    }

    /// An apply that is pinned to a UID meets another object, or none.
    pub(super) fn judge_apply(&self, refused: Refused) -> Stopped {
        if refused.is_object_missing() || refused.is_stale() { Stopped::Stale } else { self.judge(refused).into() }
    }

    /// A kind that was served and is not: discovery is out of date.
    pub(super) fn judge(&self, refused: Refused) -> Refused {
        if refused.is_kind_missing() {
            self.executor.kinds.forget(&self.key.kind.group);
        }
        refused
    }
}

/// A patch, as text: who manages which field is sent back as it came.
#[derive(Serialize)]
struct Rewrite<'a> {
    metadata: RewrittenMetadata<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RewrittenMetadata<'a> {
    #[serde(flatten)]
    changes: &'a Value,
    managed_fields: &'a [ManagedFields],
    resource_version: Option<&'a str>,
}

pub(super) fn is_missing(refused: &Refused) -> bool {
    matches!(refused, Refused::Status { code: 404, .. }) && !refused.failure().is_refused()
}
