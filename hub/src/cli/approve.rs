//! `approve-deletions`: shows what a cluster holds, asks, and records the approval.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tideline_common::{Reason, SpaceName};
use tideline_hub::duration;
use tideline_hub::kubeconfig::{self, Access};
use tideline_hub::removals::approve::{self, Action, Approved, Held};
use tideline_hub::removals::held_deletions::HeldDeletion;

use super::table::Table;
use super::{Common, Output, confirm};

pub(super) const EXAMPLE: &str = "\
Example:
  tideline-hub approve-deletions store-0042 --list
  tideline-hub approve-deletions store-0042
  tideline-hub approve-deletions store-0042 --reason Restored

What came back (Restored) and what lost history left behind (HistoryLost) are not approved in one step. To keep them instead,
without their marks: tideline-hub release. What is listed and still not assigned may go; whatever comes after it waits again. An approval is withdrawn by deleting it:
  kubectl --context root get deletionapprovals";

/// Why a deletion waits for a person.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Waits {
    /// More goes at once than goes unasked
    #[value(name = "FuseHeld")]
    FuseHeld,
    /// History was lost, and nothing says why it is there
    #[value(name = "HistoryLost")]
    HistoryLost,
    /// Nothing assigns it, and it came back
    #[value(name = "Restored")]
    Restored,
}

impl From<Waits> for Reason {
    fn from(waits: Waits) -> Self {
        match waits {
            Waits::FuseHeld => Self::FuseHeld,
            Waits::HistoryLost => Self::HistoryLost,
            Waits::Restored => Self::Restored,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The SyncTarget whose cluster holds deletions
    target: String,
    /// Only show what is held, and why
    #[arg(long, env = "TIDELINE_LIST", value_parser = BoolishValueParser::new())]
    list: bool,
    /// Only what is held for this reason
    #[arg(long, env = "TIDELINE_APPROVAL_REASON", value_enum)]
    reason: Option<Waits>,
    /// Do not ask
    #[arg(long, conflicts_with = "list")]
    yes: bool,
    /// How long the approval holds, as 30m, 24h or 7d
    #[arg(long, env = "TIDELINE_APPROVAL_EXPIRES", value_name = "TIME", default_value = "24h", value_parser = duration)]
    expires: Duration,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    Approve(#[from] approve::Error),
    #[error(transparent)]
    Confirm(#[from] confirm::Error),
}

/// Does it, and returns what is to be printed. What is asked goes to standard error.
pub(super) async fn run(arguments: &Arguments) -> Result<String, Error> {
    let Arguments { target, list, reason, yes, expires, common: Common { hub, output } } = arguments;
    let root = Access::read(hub.kubeconfig.as_deref())?.client(&SpaceName::root()).await?;
    let mut held = approve::held(&root, target).await?;
    let reason = reason.map(Reason::from);
    if *list {
        held.deletions.retain(|deletion| reason.is_none_or(|reason| deletion.reason == Some(reason)));
        let waiting: Vec<_> = held.deletions.iter().filter(|deletion| deletion.waits_for_approval()).collect();
        let approvable = held.approvable(reason).unwrap_or(waiting);
        return Ok(print(*output, &held, &approvable, None));
    }
    let approvable = held.approvable(reason)?;
    if approvable.is_empty() {
        return Ok(print(*output, &held, &approvable, None));
    }
    if !*yes {
        let question = format!("Approve the deletion of these {} objects at {target}?", approvable.len());
        let look = format!("tideline-hub approve-deletions {target} --list");
        confirm::ask(&text(&held, &approvable), &question, &look)?;
    }
    let approved = approve::approve(&root, &held, &approvable, Action::Delete, *expires).await?;
    Ok(print(*output, &held, &approvable, Some(&approved)))
}

fn print(output: Output, held: &Held, approvable: &[&HeldDeletion], approved: Option<&Approved>) -> String {
    match (output, approved) {
        (Output::Json, _) => super::pretty(&as_json(held, approvable, approved)),
        (Output::Text, None) => text(held, approvable),
        (Output::Text, Some(approved)) => format!(
            "Approved until {}: the deletion of {} objects at {}. Its agent is told when it asks next.\n",
            approved.expires, approved.deletions, held.target
        ),
    }
}

fn text(held: &Held, approvable: &[&HeldDeletion]) -> String {
    if held.deletions.is_empty() && !held.reported {
        return format!("{} has not reported to this run of the hub: what is held there is not known.\n", held.target);
    }
    if held.deletions.is_empty() {
        return format!("No deletion is held at {}.\n", held.target);
    }
    let table = table(&held.deletions);
    let reasons: BTreeSet<_> = held.deletions.iter().filter_map(|deletion| deletion.reason).collect();
    let meanings = reasons.into_iter().map(|reason| format!("{reason}: {}\n", meaning(reason)));
    let meanings: String = meanings.collect();
    let waiting = held.deletions.iter().filter(|deletion| deletion.waits_for_approval()).count();
    let mut text = format!("{table}\n{meanings}");
    let _infallible = match (waiting, approvable.len() - waiting) {
        (0, _) => writeln!(text, "\nNone of these waits for an approval."),
        (waiting, 0) => writeln!(text, "\nWaiting for an approval: {waiting}."),
        (waiting, more) => {
            writeln!(text, "\nWaiting for an approval: {waiting}; {more} may follow when what is in them is gone.")
        }
    };
    text
}

/// What is held, and why.
pub(super) fn table<'a>(deletions: impl IntoIterator<Item = &'a HeldDeletion>) -> Table {
    let mut table = Table::new(&["KIND", "NAMESPACE", "NAME", "WHY"]);
    for deletion in deletions {
        let key = deletion.key();
        let namespace = if key.namespace.is_empty() { "-".to_owned() } else { key.namespace.to_string() };
        let mut why = deletion.reason.map_or_else(|| "-".to_owned(), |reason| reason.to_string());
        if !deletion.message.is_empty() {
            let _infallible = write!(why, ": {}", deletion.message);
        }
        table.row([key.kind.to_string(), namespace, key.name.to_string(), why]);
    }
    table
}

/// What holds a deletion for this reason, and what a person does about it.
fn meaning(reason: Reason) -> &'static str {
    match reason {
        Reason::FuseHeld => "more goes at once than goes unasked; approve it, if it is meant.",
        Reason::HistoryLost => {
            "this hub does not know why it is there, for history was lost; assign it again to keep it, release it, or approve its \
             deletion."
        }
        Reason::Restored => {
            "nothing assigns it, and it came back: from a backup, or because the API server was set back; assign it again to keep \
             it, release it, or approve its deletion."
        }
        Reason::NotEmpty => {
            "there is something in it that is not placed by this hub; it goes when that is gone, which no approval does."
        }
        Reason::Copy => "its mark was copied from another object; it is nobody's here, and no approval takes it away.",
        Reason::Finalizing => "finalizers of others keep it; whoever set them has to end their work.",
        Reason::OtherNamespace => {
            "its agent does not keep this namespace; have it keep that one, or delete the object by hand."
        }
        Reason::Forbidden => "the agent may not delete it; give it the right to, and it tries again by itself.",
        _ => "no approval frees it; the agent tries again by itself when that changes.",
    }
}

fn as_json(held: &Held, approvable: &[&HeldDeletion], approved: Option<&Approved>) -> Value {
    let deletions: Vec<_> = held
        .deletions
        .iter()
        .map(|deletion| {
            let HeldDeletion { target: _, object, reason, message } = deletion;
            let approvable = approvable.contains(&deletion);
            json!({"object": object, "reason": reason, "message": message, "approvable": approvable})
        })
        .collect();
    json!({
        "target": held.target, "targetUid": held.target_uid, "reported": held.reported, "deletions": deletions,
        "approval": approved,
    })
}

#[cfg(test)]
mod tests;
