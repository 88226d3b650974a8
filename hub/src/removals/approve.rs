//! Approving deletions that clusters hold, and releasing what they would delete, from wherever an administrator's kubeconfig is.
//!
//! What is held is read as the virtual resource `helddeletions` of the root space; an approval is one or several
//! DeletionApprovals there, each with a part of the list. The hub tells them to the agent, signed as everything it says.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tideline_api::{ApprovedDeletion, DeletionApproval, DeletionApprovalSpec, UnassignmentApproval};
use tideline_common::{GroupKind, Monotonic, ObjectKey, Reason, TargetId, Tombstone};
use tideline_runtime::exit;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::agents;
use crate::kubeconfig::RequestError;
use crate::removal_guards::Approval;
use crate::removals::held_deletions::{HeldDeletion, TARGET_LABEL, label};
use crate::sync_target;
use crate::virtual_resources::Unreadable;

/// An approval that is good for longer is a policy; the Placement is the place for that.
const EXPIRES_MAX: Duration = Duration::from_hours(30 * 24);
/// How long an approval that ended can still be looked at.
const KEPT: Duration = Duration::from_hours(24);
/// How often those that ended are looked for.
const SWEEP: Duration = Duration::from_hours(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    SyncTarget(#[from] sync_target::Error),
    #[error("an approval can be given for at most {} days; what may always go is said by the Placement: apply.approveDeletions", EXPIRES_MAX.as_secs() / 86_400)]
    Expires,
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    Agent(#[from] agents::Error),
    #[error(
        "{target} holds objects that came back (Restored) and objects that lost history left behind (HistoryLost), and they are \
         not settled in one step: name one with --reason"
    )]
    SeveralReasons { target: String },
}

/// What becomes of what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Delete,
    /// It stays, without its mark.
    Release,
}

/// What one cluster holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// The SyncTarget's name.
    pub target: String,
    pub target_uid: String,
    /// Whether the cluster has reported to this run of the hub. If not, what it holds is not known.
    pub reported: bool,
    /// In the order of their keys.
    pub deletions: Vec<HeldDeletion>,
}

/// An approval as it was recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Approved {
    /// The DeletionApprovals that hold it.
    pub names: Vec<String>,
    pub expires: Timestamp,
    pub deletions: usize,
}

impl Held {
    /// What an approval would be of: all that waits for one, for this reason if one is named, and what may follow when that is
    /// gone. None where nothing waits.
    ///
    /// # Errors
    ///
    /// [`Error::SeveralReasons`] where what came back and what was left behind wait, and no reason is named: who looks at one
    /// does not mean the other.
    pub fn approvable(&self, reason: Option<Reason>) -> Result<Vec<&HeldDeletion>, Error> {
        let waits = |held: &HeldDeletion| held.waits_for_approval() && reason.is_none_or(|it| held.reason == Some(it));
        if !self.deletions.iter().any(waits) {
            return Ok(Vec::new());
        }
        if reason.is_none() && self.holds(Reason::Restored) && self.holds(Reason::HistoryLost) {
            return Err(Error::SeveralReasons { target: self.target.clone() });
        }
        let follows = |held: &&HeldDeletion| waits(held) || held.reason == Some(Reason::NotEmpty);
        Ok(self.deletions.iter().filter(follows).collect())
    }

    /// What nothing at the hub explains, for this reason: it can be released.
    pub fn releasable(&self, reason: Reason) -> Vec<&HeldDeletion> {
        self.deletions.iter().filter(|held| held.reason == Some(reason)).collect()
    }

    /// Whether anything is held for this reason.
    pub fn holds(&self, reason: Reason) -> bool {
        self.deletions.iter().any(|held| held.reason == Some(reason))
    }
}

/// Reads what a cluster holds, as it last reported it. `root` is a client of the root space.
///
/// # Errors
///
/// There is no such SyncTarget, the request failed, or an answer cannot be read.
pub async fn held(root: &Client, target: &str) -> Result<Held, Error> {
    let failed = |operation| move |error: kube::Error| Error::Request { operation, source: error.into() };
    let found = sync_target::find(root, target).await?;
    let uid = found.uid().ok_or_else(|| sync_target::Error::NoTarget(target.to_owned()))?;
    let params = match label(target) {
        Some(label) => ListParams::default().labels(&format!("{TARGET_LABEL}={label}")),
        None => ListParams::default(),
    };
    let all = HeldDeletion::api(root).list(&params).await.map_err(failed("list the deletions that are held"))?;
    let mut deletions: Vec<_> = all.items.into_iter().map(HeldDeletion::read).collect::<Result<_, _>>()?;
    deletions.retain(|held| held.target.uid == uid);
    deletions.sort_by_key(HeldDeletion::key);
    let reported = agents::has_reported(root, &uid).await?;
    Ok(Held { target: target.to_owned(), target_uid: uid, reported, deletions })
}

/// Records that this is to become of these objects and no others.
///
/// # Errors
///
/// [`Error::Expires`] for more than thirty days, and what the hub refuses.
pub async fn approve(
    root: &Client,
    held: &Held,
    deletions: &[&HeldDeletion],
    action: Action,
    expires: Duration,
) -> Result<Approved, Error> {
    if expires > EXPIRES_MAX {
        return Err(Error::Expires);
    }
    let end = Timestamp::now().saturating_add(expires).unwrap_or(Timestamp::MAX);
    let end = end.round(jiff::Unit::Second).unwrap_or(end);
    let mut names = Vec::new();
    for part in deletions.chunks(DeletionApprovalSpec::DELETIONS_MAX) {
        let objects = part.iter().map(|held| held.object.clone()).collect();
        // Lists of their own: who does not know of releases must not take one for a deletion.
        let (deletions, releases) = match action {
            Action::Delete => (objects, Vec::new()),
            Action::Release => (Vec::new(), objects),
        };
        let (target_name, target_uid) = (held.target.clone(), held.target_uid.clone());
        let spec = DeletionApprovalSpec { target_name, target_uid, expires: Time(end), deletions, releases };
        let mut object = DeletionApproval::new("", spec);
        object.metadata.name = None;
        object.metadata.generate_name = Some(format!("{}-", held.target));
        let made = Api::<DeletionApproval>::all(root.clone()).create(&PostParams::default(), &object).await;
        let made = made.map_err(|error| Error::Request { operation: "record the approval", source: error.into() })?;
        names.push(made.name_any());
    }
    Ok(Approved { names, expires: end, deletions: deletions.len() })
}

/// An approval as the root space shows it, with how long it still is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    target: TargetId,
    expires: i64,
    left: Duration,
    removals: Arc<[Tombstone]>,
    releases: bool,
}

impl Read {
    pub(crate) fn from(self, now: Monotonic) -> Approval {
        let Self { target, expires, left, removals, releases } = self;
        Approval { target, expires, until: now + left, removals, releases }
    }
}

/// Reads an approval; or says why it cannot be one. A part that cannot be meant is no reason to believe the rest.
pub(crate) fn read(approval: &DeletionApproval, now: Timestamp) -> Result<Read, String> {
    let DeletionApprovalSpec { target_name, target_uid, expires, deletions, releases } = &approval.spec;
    let objects = match (&**deletions, &**releases) {
        (deletions, []) => deletions,
        ([], releases) => releases,
        (_, _) => return Err("it lists deletions and releases; give each an approval of its own".to_owned()),
    };
    let target = target_uid.parse().map_err(|_| format!("the UID of the target {target_name} is none"))?;
    let removal = |deletion: &ApprovedDeletion| {
        let ApprovedDeletion { api_group, kind, namespace, name, source_uid } = deletion;
        let kind = GroupKind::new(api_group.as_str(), kind.as_str());
        let source = source_uid.parse().map_err(|_| format!("the source of {kind} {namespace}/{name} has no UID"))?;
        Ok(Tombstone { key: ObjectKey::new(kind, namespace.as_str(), name.as_str()), source })
    };
    // No more than it had when it was made: the clock may have been set back since.
    let made = approval.creation_timestamp().map_or(now, |made| made.0.max(now));
    Ok(Read {
        target,
        expires: expires.0.as_second(),
        left: expires.0.duration_since(made).try_into().unwrap_or_default(),
        removals: objects.iter().map(removal).collect::<Result<_, String>>()?,
        releases: !releases.is_empty(),
    })
}

/// Deletes approvals that ended, until `shutdown`.
pub(crate) async fn sweep(root: Client, shutdown: CancellationToken) -> Result<(), std::convert::Infallible> {
    loop {
        if let Err(error) = sweep_once(&root, Timestamp::now()).await {
            warn!(error = exit::chain(&error), "cannot delete DeletionApprovals that ended; trying again later");
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_none() {
            return Ok(());
        }
    }
}

async fn sweep_once(root: &Client, now: Timestamp) -> Result<(), kube::Error> {
    sweep_kind(root, now, |approval: &DeletionApproval| Some(approval.spec.expires.0)).await?;
    // Those did their work when they were made.
    sweep_kind(root, now, |approval: &UnassignmentApproval| Some(approval.creation_timestamp()?.0)).await
}

async fn sweep_kind<K>(root: &Client, now: Timestamp, end: impl Fn(&K) -> Option<Timestamp>) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::all(root.clone());
    for approval in api.list(&ListParams::default()).await? {
        let kept = KEPT.try_into().unwrap_or(jiff::SignedDuration::MAX);
        if end(&approval).is_none_or(|end| now.duration_since(end) < kept) {
            continue;
        }
        let this = Preconditions { uid: approval.uid(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
        match api.delete(&approval.name_any(), &params).await {
            Ok(_) => {}
            // Gone, or another by now.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
