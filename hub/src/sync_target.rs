//! The SyncTarget that an administrator names, from wherever a kubeconfig is: found, and annotated.

use std::collections::BTreeMap;

use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tideline_api::SyncTarget;

use crate::kubeconfig::RequestError;
use crate::patch::{self, Form};

/// On an object of the root space that may be deleted though it is in use: its UID, so that no copy of the manifest says it too.
pub(crate) const FORCE_ANNOTATION: &str = "tideline.dev/remove";
/// How often what is written to a SyncTarget is decided anew because others write the same annotations at the same moment.
/// Only people and enrolments write those.
pub(crate) const ATTEMPTS_MAX: usize = 5;

/// Annotations that are written, by name; none is taken away.
pub(crate) type Annotations = BTreeMap<&'static str, Option<String>>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no SyncTarget {0:?}; kubectl --context root get synctargets lists them")]
    NoTarget(String),
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
}

/// `root` is a client of the root space.
pub(crate) async fn find(root: &Client, name: &str) -> Result<SyncTarget, Error> {
    let found = Api::<SyncTarget>::all(root.clone()).get_opt(name).await;
    let found = found.map_err(|error| Error::Request { operation: "read the SyncTarget", source: error.into() })?;
    found.ok_or_else(|| Error::NoTarget(name.to_owned()))
}

/// Writes the annotations that are decided upon a SyncTarget as it is, and returns it as it is then; null takes one away.
///
/// Of the SyncTarget nothing needs to be as it was but its UID and these annotations. Its status changes with what its agent
/// says; whoever has the key of that one must not be able to keep it from being revoked by saying much.
pub(crate) async fn annotate<E: From<Error>>(
    root: &Client,
    name: &str,
    operation: &'static str,
    decide: impl Fn(&SyncTarget) -> Result<Annotations, E>,
) -> Result<SyncTarget, E> {
    let mut attempts = 1;
    loop {
        let target = find(root, name).await?;
        let steps = steps(&target, &decide(&target)?);
        let path = format!("/apis/{}/{}/synctargets/{name}", tideline_api::GROUP, tideline_api::VERSION);
        match patch::send(root, &path, Form::Json, &steps).await {
            Err(error) if patch::is_outdated(&error) && attempts < ATTEMPTS_MAX => attempts += 1,
            Err(error) => return Err(Error::Request { operation, source: error.into() }.into()),
            Ok(annotated) => return Ok(annotated),
        }
    }
}

fn steps(target: &SyncTarget, annotations: &Annotations) -> Value {
    let mut steps = vec![patch::test(&["metadata", "uid"], &json!(target.uid()))];
    if target.metadata.annotations.is_none() {
        steps.push(patch::test(&["metadata", "annotations"], &Value::Null));
        steps.push(patch::add(&["metadata", "annotations"], &json!({})));
    }
    for (name, value) in annotations {
        let (path, former) = (["metadata", "annotations", name], target.annotations().get(*name));
        steps.push(patch::test(&path, &json!(former)));
        match value {
            Some(value) => steps.push(patch::add(&path, &json!(value))),
            None => steps.extend(former.map(|_| patch::remove(&path))),
        }
    }
    steps.into()
}
