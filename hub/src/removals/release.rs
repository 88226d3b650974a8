//! What runs once and was assigned before history was lost: nobody knows whether it has run. A person says that it is to run.

use jiff::Timestamp;
use kube::Client;
use tideline_api::SyncTarget;
use tideline_common::Reason;

use crate::sync_target::{self, annotate};

/// On a SyncTarget: that a person lets run what may have run there, and when that was said. A later word replaces it; the
/// same word is heeded once, and means nothing of what is withheld after it.
pub const RELEASED_ANNOTATION: &str = "tideline.dev/released";

/// Whether anything waits at a target because it may have run, as far as the hub has heard.
///
/// # Errors
///
/// Where the SyncTarget cannot be read.
pub async fn waits(root: &Client, target: &str) -> Result<bool, sync_target::Error> {
    Ok(waits_at(&sync_target::find(root, target).await?))
}

fn waits_at(target: &SyncTarget) -> bool {
    let conditions = target.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions.iter().any(|condition| condition.type_ == Reason::MayHaveRun.as_str())
}

/// Says that what may have run at a target is to run there. `root` is a client of the root space. Returns whether anything
/// waits for it, as far as the hub has heard.
///
/// # Errors
///
/// There is no such SyncTarget, or the request failed.
pub async fn release(root: &Client, target: &str) -> Result<bool, sync_target::Error> {
    let word = format!("{} {}", Reason::MayHaveRun, Timestamp::now());
    let say = |_: &SyncTarget| Ok::<_, sync_target::Error>([(RELEASED_ANNOTATION, Some(word.clone()))].into());
    let target = annotate(root, target, "write the release to the SyncTarget", say).await?;
    Ok(waits_at(&target))
}
