//! The Secret: read, made, and replaced if it is still as it was read. Decides nothing.

use std::fmt;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tideline_common::FIELD_MANAGER;

use super::contents::{Contents, Unreadable};

/// The key in the Secret under which the identity is, in the text that the file has too.
const KEY: &str = "identity.json";
const TYPE: &str = "tideline.dev/identity";
/// Longest wait for one answer of the API server.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Where the agent's own Secret is.
#[derive(Clone)]
pub(crate) struct SecretRef {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The present content.
#[derive(Debug)]
pub(super) enum Stored {
    Nothing,
    Contents { contents: Box<Contents>, version: String },
    Unreadable { why: Unreadable, version: String },
}

#[derive(Debug)]
pub(super) enum Failure {
    /// The agent may not. Only a person, or a renewal of its rights, changes that.
    NotAllowed(String),
    /// It is not as it was read, or is there already.
    Conflict,
    Unavailable(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another writer keeps changing it"),
            Self::NotAllowed(why) | Self::Unavailable(why) => f.write_str(why),
        }
    }
}

impl SecretRef {
    pub(super) async fn read(&self) -> Result<Stored, Failure> {
        let Some(secret) = answered(self.api().get_opt(&self.name)).await? else { return Ok(Stored::Nothing) };
        let version = version(&secret);
        let bytes = secret.data.as_ref().and_then(|data| data.get(KEY)).map(|bytes| bytes.0.as_slice());
        let damaged = || Unreadable::Damaged(format!("it has no data {KEY:?}"));
        Ok(match bytes.ok_or_else(damaged).and_then(Contents::decode) {
            Ok(contents) => Stored::Contents { contents: Box::new(contents), version },
            Err(why) => Stored::Unreadable { why, version },
        })
    }

    /// Makes the Secret, if there is none, and returns its version.
    pub(super) async fn create(&self, contents: &Contents) -> Result<String, Failure> {
        let secret = Secret {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            type_: Some(TYPE.to_owned()),
            data: Some([(KEY.to_owned(), ByteString(contents.encode()))].into()),
            ..Secret::default()
        };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        answered(self.api().create(&params, &secret)).await.map(|secret| version(&secret))
    }

    /// Replaces what is there, if it is of this version, and returns the new one.
    pub(super) async fn replace(&self, of: &str, contents: &Contents) -> Result<String, Failure> {
        let patch = json!({
            "metadata": {"resourceVersion": of},
            "data": {KEY: ByteString(contents.encode())},
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        answered(self.api().patch(&self.name, &params, &Patch::Merge(&patch))).await.map(|secret| version(&secret))
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretRef({self})")
    }
}

fn version(secret: &Secret) -> String {
    secret.metadata.resource_version.clone().unwrap_or_default()
}

async fn answered<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(ANSWER_MAX, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(match status.code {
            409 => Failure::Conflict,
            // 404 answers a creation where there is no such namespace, and a replacement of what was deleted since.
            404 if status.reason == "NotFound" && status.message.contains("secrets ") => Failure::Conflict,
            // Credentials that are not accepted are renewed: that says nothing about rights.
            403 | 404 | 405 | 422 => Failure::NotAllowed(status.message.clone()),
            _ => Failure::Unavailable(status.message.clone()),
        }),
        Ok(Err(error)) => Err(Failure::Unavailable(tideline_runtime::exit::chain(&error))),
        Err(_elapsed) => Err(Failure::Unavailable("the API server does not answer".to_owned())),
    }
}
