//! Enrolment: a token and a key become a SyncTarget.
//!
//! The SyncTarget is the lock: its name is the token's, and it carries the key of the one agent that speaks for it. So
//! two agents with one token have exactly one winner, and a crash at any point leaves what the same agent may repeat.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tideline_api::{EnrolmentToken, SyncTarget, SyncTargetSpec};
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{EnrolAnswer, EnrolRequest, Refusal, RefusalKind};
use tideline_common::{FIELD_MANAGER_HUB, HubId};
use tideline_runtime::exit;
use tracing::{info, warn};

/// On a SyncTarget: the Ed25519 public key of its agent, in standard base64.
pub const AGENT_KEY_ANNOTATION: &str = "tideline.dev/agent-key";
/// On a SyncTarget: the UID of the namespace kube-system of the cluster that its agent enrolled from.
pub const CLUSTER_ANNOTATION: &str = "tideline.dev/cluster";

/// What becomes of a request whose signature proves the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The token is good and unused, or was used by this very key.
    Admit,
    Refuse(&'static str),
}

/// Decides by the token alone.
pub fn decide(token: &EnrolmentToken, request: &EnrolRequest, hub: HubId, now: Timestamp) -> Decision {
    let used_by = token.status.as_ref().and_then(|status| status.used_by.as_ref());
    if request.hub != hub {
        Decision::Refuse("the token is for another hub")
    } else if let Some(used) = used_by {
        // It may have expired since: the one who used it may go on asking.
        if used.key == STANDARD.encode(&request.agent_key) {
            Decision::Admit
        } else {
            Decision::Refuse("the token was used by another agent; make a new one for this agent")
        }
    } else if token.spec.expires.0 <= now {
        Decision::Refuse("the token has expired; make a new one")
    } else {
        Decision::Admit
    }
}

/// The public key of a token.
pub(crate) async fn token_key(root: &Client, name: &str) -> Option<VerifyingKey> {
    let token = Api::<EnrolmentToken>::all(root.clone()).get_opt(name).await.ok()??;
    let bytes = STANDARD.decode(token.spec.public_key?).ok()?;
    VerifyingKey::from_bytes(&bytes).ok()
}

/// Enrols an agent that proved the token.
pub(crate) async fn enrol(root: &Client, request: EnrolRequest, hub: HubId) -> Result<EnrolAnswer, Refusal> {
    let tokens = Api::<EnrolmentToken>::all(root.clone());
    let token = tokens.get(&request.token).await.map_err(|error| busy(&error))?;
    if let Decision::Refuse(why) = decide(&token, &request, hub, Timestamp::now()) {
        warn!(token = request.token, why, "an enrolment is refused");
        return Err(refused(why));
    }
    if VerifyingKey::from_bytes(&request.agent_key).is_err() {
        return Err(refused("the agent's key is not an Ed25519 public key"));
    }
    let target = admit(root, &token, &request).await?;
    let uid = target.uid().unwrap_or_default();
    let id = uid.parse().map_err(|_| refused("the SyncTarget has no usable UID"))?;
    let used = json!({"status": {"used": true, "usedBy": {
        "key": STANDARD.encode(&request.agent_key), "targetUid": uid, "at": Time(now()),
    }}});
    if token.status.as_ref().and_then(|status| status.used_by.as_ref()).is_none() {
        let patch = Patch::Merge(&used);
        tokens.patch_status(&request.token, &params(), &patch).await.map_err(|error| busy(&error))?;
        info!(target = target.name_any(), uid, "an agent enrolled");
    }
    Ok(EnrolAnswer { hub, target: id, name: target.name_any() })
}

/// Makes the SyncTarget, or finds the one that this agent made before, or takes one that waits for its agent.
async fn admit(root: &Client, token: &EnrolmentToken, request: &EnrolRequest) -> Result<SyncTarget, Refusal> {
    let targets = Api::<SyncTarget>::all(root.clone());
    let name = &token.spec.target_name;
    let key = STANDARD.encode(&request.agent_key);
    let mut target = SyncTarget::new(name, SyncTargetSpec::default());
    target.metadata.labels = Some(token.spec.labels.clone());
    let annotations = target.annotations_mut();
    annotations.insert(AGENT_KEY_ANNOTATION.to_owned(), key.clone());
    if let Some(cluster) = &request.facts.cluster {
        annotations.insert(CLUSTER_ANNOTATION.to_owned(), cluster.to_string());
    }
    let create = PostParams { field_manager: Some(FIELD_MANAGER_HUB.to_owned()), ..PostParams::default() };
    match targets.create(&create, &target).await {
        Ok(target) => return Ok(target),
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(busy(&error)),
    }
    let present = targets.get(name).await.map_err(|error| busy(&error))?;
    match present.annotations().get(AGENT_KEY_ANNOTATION) {
        Some(known) if *known == key => Ok(present),
        Some(_) => Err(refused(
            "a SyncTarget of this name belongs to another agent; delete it, or make a token under another name",
        )),
        None => {
            // Made by hand, before its agent. The version makes sure that only one agent takes it.
            let claim = json!({"metadata": {
                "resourceVersion": present.resource_version(), "annotations": target.annotations(),
            }});
            targets.patch(name, &params(), &Patch::Merge(&claim)).await.map_err(|error| busy(&error))
        }
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER_HUB.to_owned()), ..PatchParams::default() }
}

fn now() -> Timestamp {
    let now = Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now)
}

fn refused(message: &str) -> Refusal {
    Refusal { refusal: RefusalKind::TokenRefused, message: message.to_owned(), retry_after_seconds: None }
}

fn busy(error: &kube::Error) -> Refusal {
    warn!(error = exit::chain(error), "an enrolment could not be done");
    let message = "the hub cannot enrol at the moment".to_owned();
    Refusal { refusal: RefusalKind::Busy, message, retry_after_seconds: Some(1) }
}

#[cfg(test)]
mod tests;
