//! A Lease as it is stored, and one request about it at a time. Decides nothing.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tideline_common::FIELD_MANAGER;

use super::election;

/// By each holder's clock.
pub(super) type Record = election::Record<Timestamp>;

/// Longest wait for one answer: two tries and more fit before the deadline of a renewal.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// Where the Lease is.
#[derive(Clone)]
pub(crate) struct LeaseRef {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug)]
pub(super) enum Failure {
    /// It is not as it was read, or is there already.
    Conflict,
    Refused(String),
}

/// The Lease, and its version.
pub(super) struct Stored {
    pub(super) record: Record,
    pub(super) version: String,
}

impl LeaseRef {
    pub(super) async fn read(&self) -> Result<Option<Stored>, Failure> {
        Ok(answered(self.api().get_opt(&self.name)).await?.map(stored))
    }

    /// Makes the Lease, if there is none.
    pub(super) async fn create(&self, record: &Record) -> Result<Stored, Failure> {
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: Some(spec(record)),
        };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        answered(self.api().create(&params, &lease)).await.map(stored)
    }

    /// Replaces the Lease, if it is of this version.
    pub(super) async fn replace(&self, of: &str, record: &Record) -> Result<Stored, Failure> {
        let mut patch = json!({"metadata": {"resourceVersion": of}, "spec": spec(record)});
        if record.holder.is_none() {
            // Fields absent from a patch stay.
            patch["spec"]["holderIdentity"] = "".into();
        }
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        answered(self.api().patch(&self.name, &params, &Patch::Merge(&patch))).await.map(stored)
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

impl fmt::Display for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseRef({self})")
    }
}

fn spec(record: &Record) -> LeaseSpec {
    LeaseSpec {
        acquire_time: record.acquired.map(MicroTime),
        holder_identity: record.holder.clone(),
        lease_duration_seconds: record.duration.map(|it| i32::try_from(it.as_secs()).unwrap_or(i32::MAX)),
        lease_transitions: Some(record.transitions),
        renew_time: record.renewed.map(MicroTime),
        ..LeaseSpec::default()
    }
}

fn stored(lease: Lease) -> Stored {
    let spec = lease.spec.unwrap_or_default();
    let positive = |seconds: i32| u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let record = Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        duration: spec.lease_duration_seconds.and_then(positive),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
    };
    Stored { record, version: lease.metadata.resource_version.unwrap_or_default() }
}

async fn answered<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(ANSWER_MAX, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(match status.code {
            409 => Failure::Conflict,
            // Of a replacement: it was deleted since.
            404 if status.reason == "NotFound" && status.message.contains("leases") => Failure::Conflict,
            _ => Failure::Refused(status.message.clone()),
        }),
        Ok(Err(error)) => Err(Failure::Refused(tideline_runtime::exit::chain(&error))),
        Err(_elapsed) => Err(Failure::Refused("the API server does not answer".to_owned())),
    }
}
