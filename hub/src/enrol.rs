//! Enrolment: a token and a key become a SyncTarget.
//!
//! ```text
//!            status of the token          the SyncTarget                status of the token
//!  Unused ───── claimed by key ─────▶ made, carrying the key ─────▶ spent on key and its UID
//! ```
//!
//! Each write is conditional on what was read, so that of two agents with one token exactly one gets it, and a crash
//! between any two leaves what the same agent takes up by asking again. A spent token opens its own target only: when
//! that is deleted, the agent is not let in as another.

mod decide;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tideline_api::{EnrolmentToken, SyncTarget, SyncTargetSpec, TokenUse};
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{EnrolAnswer, EnrolRequest, Refusal, RefusalKind};
use tideline_common::{FIELD_MANAGER_HUB, HubId, TargetId};
use tideline_runtime::exit;
use tracing::{info, warn};

use self::decide::refused;
pub(crate) use self::decide::{Decision, NewTarget, TokenState, decide, proven_key};
use crate::engine::REVOKED_MAX;
use crate::object_name::is_object_name;

/// On a SyncTarget: the Ed25519 public key of its agent, in standard base64.
pub(crate) const AGENT_KEY_ANNOTATION: &str = "tideline.dev/agent-key";
/// On a SyncTarget: keys that its agent must not have again, in standard base64, separated by spaces. The hub remembers each
/// that it saw there, so taking one off gives it back to nobody.
pub(crate) const REVOKED_KEYS_ANNOTATION: &str = "tideline.dev/revoked-keys";
/// On a SyncTarget: the UID of the namespace kube-system of the cluster that its agent enrolled from.
pub(crate) const CLUSTER_ANNOTATION: &str = "tideline.dev/cluster";

/// On a SyncTarget that took over the agent of a deleted one: the UID of that, and its own, so that no SyncTarget that is made
/// from its manifest takes over anything.
pub(crate) const ADOPTS_ANNOTATION: &str = "tideline.dev/adopts";

/// How often an enrolment is looked at anew when others write at the same moment. An agent that has the token is
/// through after two writes of its own; more are by people who edit the token or the SyncTarget meanwhile.
const ATTEMPTS_MAX: usize = 5;
/// When an agent is to come back whom the root space could not serve.
const RETRY_AFTER_SECONDS: u64 = 2;

/// Why an attempt did not end with an answer.
enum Setback {
    /// Something changed since it was read: look again.
    Outdated,
    Refused(Refusal),
    Failed(kube::Error),
}

impl From<kube::Error> for Setback {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Outdated,
            // The token's own words are refused, and will be the next time.
            kube::Error::Api(status) if status.code == 400 || status.code == 422 => {
                Self::Refused(refused(format!("the SyncTarget of this token cannot be made: {}", status.message)))
            }
            _ => Self::Failed(error),
        }
    }
}

/// The public key of a token; none where there is no such token.
///
/// # Errors
///
/// When the root space cannot be read at the moment. Of a token that is there, nobody is told that it is not.
pub(crate) async fn token_key(root: &Client, name: &str) -> Result<Option<VerifyingKey>, kube::Error> {
    let key = |token: EnrolmentToken| {
        let bytes = STANDARD.decode(token.spec.public_key?).ok()?;
        VerifyingKey::from_bytes(&bytes).ok()
    };
    Ok(find_token(&Api::all(root.clone()), name).await?.and_then(key))
}

/// What [`REVOKED_KEYS_ANNOTATION`] is with these keys too.
pub(crate) fn with_revoked(target: &SyncTarget, keys: impl IntoIterator<Item = String>) -> String {
    let present = target.annotations().get(REVOKED_KEYS_ANNOTATION).map(String::as_str).unwrap_or_default();
    let mut all: Vec<_> = present.split_whitespace().map(str::to_owned).collect();
    for key in keys {
        all.retain(|present| *present != key);
        all.push(key);
    }
    // The hub remembers the others.
    let beyond = all.len().saturating_sub(REVOKED_MAX);
    all.drain(..beyond);
    all.join(" ")
}

/// What [`ADOPTS_ANNOTATION`] says where `heir` takes over the agent of `former`.
pub(crate) fn adopts(former: TargetId, heir: TargetId) -> String {
    format!("{former} {heir}")
}

/// Whose agent `heir` takes over by the word of that annotation; none if it was written for another SyncTarget.
pub(crate) fn read_adopts(word: &str, heir: TargetId) -> Option<TargetId> {
    let (former, own) = word.split_once(' ')?;
    let own: TargetId = own.parse().ok()?;
    former.parse().ok().filter(|_| own == heir)
}

/// Enrols an agent that proved the token. `former` are the keys that agents of a SyncTarget had.
pub(crate) async fn enrol(
    root: &Client,
    request: EnrolRequest,
    hub: HubId,
    former: &(dyn Fn(TargetId) -> Vec<String> + Sync),
) -> Result<EnrolAnswer, Refusal> {
    let edge = Edge { tokens: Api::all(root.clone()), targets: Api::all(root.clone()), request: &request, hub, former };
    for _ in 0..ATTEMPTS_MAX {
        match edge.attempt(Timestamp::now()).await {
            Ok(answer) => return Ok(answer),
            Err(Setback::Outdated) => {}
            Err(Setback::Refused(refusal)) => {
                warn!(token = request.token, why = refusal.message, "an enrolment is refused");
                return Err(refusal);
            }
            Err(Setback::Failed(error)) => {
                warn!(token = request.token, error = exit::chain(&error), "an enrolment could not be done");
                return Err(busy());
            }
        }
    }
    warn!(token = request.token, "an enrolment could not be done: its objects change too often");
    Err(busy())
}

/// One enrolment and where its objects are.
struct Edge<'a> {
    tokens: Api<EnrolmentToken>,
    targets: Api<SyncTarget>,
    request: &'a EnrolRequest,
    hub: HubId,
    former: &'a (dyn Fn(TargetId) -> Vec<String> + Sync),
}

impl Edge<'_> {
    async fn attempt(&self, now: Timestamp) -> Result<EnrolAnswer, Setback> {
        let token = find_token(&self.tokens, &self.request.token).await?;
        let state = token.as_ref().map(TokenState::from);
        match (decide(state.as_ref(), self.request, self.hub, now), token) {
            (Decision::Claim(target), Some(token)) => {
                // A name that is taken costs nobody the token.
                self.present(&target.name).await?;
                let token = self.record(token, None, now).await?;
                self.finish(token, &target, now).await
            }
            (Decision::Make(target), Some(token)) => self.finish(token, &target, now).await,
            (Decision::Again { name, target }, _) => self.again(&name, target).await,
            (Decision::Refuse(refusal), _) => Err(Setback::Refused(refusal)),
            // What was decided on is gone.
            (Decision::Claim(_) | Decision::Make(_), None) => Err(Setback::Outdated),
        }
    }

    async fn finish(&self, token: EnrolmentToken, wanted: &NewTarget, now: Timestamp) -> Result<EnrolAnswer, Setback> {
        let target = self.make(wanted).await?;
        let answer = self.answer(&target)?;
        self.record(token, Some(answer.target), now).await?;
        info!(sync_target = answer.name, uid = %answer.target, "an agent enrolled");
        Ok(answer)
    }

    async fn again(&self, name: &str, id: TargetId) -> Result<EnrolAnswer, Setback> {
        let answer = self.targets.get_opt(name).await?.and_then(|target| self.answer(&target).ok());
        match answer {
            Some(answer) if answer.target == id => Ok(answer),
            Some(_) | None => Err(Setback::Refused(refused(
                "the SyncTarget that this token was used for was deleted; to enrol the cluster anew, make another token",
            ))),
        }
    }

    /// Makes the SyncTarget, or finds the one that this agent made before, or takes one that waits for its agent.
    async fn make(&self, wanted: &NewTarget) -> Result<SyncTarget, Setback> {
        let key = STANDARD.encode(&self.request.agent_key);
        let cluster = self.request.facts.cluster.as_ref().map(ToString::to_string);
        let annotations = [(AGENT_KEY_ANNOTATION, Some(key.clone())), (CLUSTER_ANNOTATION, cluster)];
        let annotations = annotations.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let mut annotations: BTreeMap<_, _> = annotations.collect();
        match self.present(&wanted.name).await? {
            None => {
                let mut target = SyncTarget::new(&wanted.name, SyncTargetSpec::default());
                target.metadata.labels = Some(wanted.labels.clone());
                target.metadata.annotations = Some(annotations);
                Ok(self.targets.create(&create_params(), &target).await?)
            }
            Some(present) if present.annotations().contains_key(AGENT_KEY_ANNOTATION) => Ok(present),
            Some(waiting) => {
                // Who made the token wants this agent, and none that was there before.
                let mut former = waiting.uid().and_then(|uid| uid.parse().ok()).map_or_else(Vec::new, self.former);
                former.retain(|former| *former != key);
                if !former.is_empty() {
                    annotations.insert(REVOKED_KEYS_ANNOTATION.to_owned(), with_revoked(&waiting, former));
                }
                let version = waiting.resource_version();
                let claim = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER_HUB.to_owned()), ..PatchParams::default() };
                Ok(self.targets.patch(&wanted.name, &params, &Patch::Merge(&claim)).await?)
            }
        }
    }

    /// The SyncTarget of this name: none, this agent's, or one that was made by hand and has no agent yet.
    async fn present(&self, name: &str) -> Result<Option<SyncTarget>, Setback> {
        let present = self.targets.get_opt(name).await?;
        let owner = present.as_ref().and_then(|target| target.annotations().get(AGENT_KEY_ANNOTATION));
        if owner.is_some_and(|owner| *owner != STANDARD.encode(&self.request.agent_key)) {
            return Err(Setback::Refused(refused(format!(
                "the SyncTarget of this name has another agent; revoke that one's key (tideline-hub targets revoke {name}), or \
                 make a token of another name"
            ))));
        }
        Ok(present)
    }

    /// Writes into the token who has it, if it is still as it was read.
    async fn record(
        &self,
        mut token: EnrolmentToken,
        target: Option<TargetId>,
        now: Timestamp,
    ) -> Result<EnrolmentToken, Setback> {
        let name = token.name_any();
        let status = token.status.get_or_insert_default();
        status.used = true;
        status.used_by = Some(TokenUse {
            key: STANDARD.encode(&self.request.agent_key),
            target_uid: target.map(|target| target.to_string()),
            at: Some(Time(now.round(jiff::Unit::Second).unwrap_or(now))),
        });
        Ok(self.tokens.replace_status(&name, &create_params(), &token).await?)
    }

    fn answer(&self, target: &SyncTarget) -> Result<EnrolAnswer, Setback> {
        let id = target.uid().and_then(|uid| uid.parse().ok());
        let id =
            id.ok_or_else(|| Setback::Refused(refused("the SyncTarget of this token has no UID that names it")))?;
        Ok(EnrolAnswer { hub: self.hub, target: id, name: target.name_any() })
    }
}

/// A name from the network is looked at before it becomes part of a path.
async fn find_token(tokens: &Api<EnrolmentToken>, name: &str) -> Result<Option<EnrolmentToken>, kube::Error> {
    if is_object_name(name) { tokens.get_opt(name).await } else { Ok(None) }
}

fn create_params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER_HUB.to_owned()), ..PostParams::default() }
}

fn busy() -> Refusal {
    Refusal::new(RefusalKind::Busy, "the hub cannot enrol at the moment").retry_after(RETRY_AFTER_SECONDS)
}

#[cfg(test)]
mod tests;
