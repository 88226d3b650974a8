//! `approve-unassignments`: shows what the hub holds, asks, and records the approval.

use clap::Args;
use clap::builder::BoolishValueParser;
use serde_json::json;
use tideline_common::{Revision, SpaceName};
use tideline_hub::kubeconfig::{self, Access};
use tideline_hub::removals::held_unassignments::{self, HeldSource, HeldUnassignment};

use super::table::Table;
use super::{Common, Output, confirm};

pub(super) const EXAMPLE: &str = "\
Example:
  tideline-hub approve-unassignments --list
  tideline-hub approve-unassignments
  tideline-hub approve-unassignments --revision 71

What one change was to take from its targets is held under one revision. Undoing the change lets go of it as well: what
is wanted again is held no more.";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Only what was held at this revision [default: everything]
    #[arg(long, env = "TIDELINE_REVISION", value_name = "NUMBER")]
    revision: Option<u64>,
    /// Only show what is held
    #[arg(long, env = "TIDELINE_LIST", value_parser = BoolishValueParser::new())]
    list: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "list")]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    Held(#[from] held_unassignments::Error),
    #[error(transparent)]
    Confirm(#[from] confirm::Error),
}

/// Does it, and returns what is to be printed. What is asked goes to standard error.
pub(super) async fn run(arguments: &Arguments) -> Result<String, Error> {
    let Arguments { revision, list, yes, common: Common { hub, output } } = arguments;
    let root = Access::read(hub.kubeconfig.as_deref())?.client(&SpaceName::root()).await?;
    let mut held = held_unassignments::held(&root).await?;
    held.retain(|held| revision.is_none_or(|revision| held.revision == Revision(revision)));
    if *list || held.is_empty() {
        return Ok(print(*output, &held, None));
    }
    if !*yes {
        let look = "tideline-hub approve-unassignments --list";
        confirm::ask(&text(&held), "Approve that these are taken from the targets?", look)?;
    }
    let revisions = held.iter().map(|held| held.revision).collect();
    let approved = held_unassignments::approve(&root, &revisions).await?;
    Ok(print(*output, &held, Some(&approved)))
}

fn print(output: Output, held: &[HeldUnassignment], approved: Option<&[String]>) -> String {
    match (output, approved) {
        (Output::Json, _) => super::pretty(&json!({"held": held, "approvals": approved})),
        (Output::Text, None) => text(held),
        (Output::Text, Some(_)) => {
            let targets: u64 = held.iter().map(|held| held.targets.count).sum();
            format!("Approved: {} objects go from {targets} places. Agents are told when they ask next.\n", held.len())
        }
    }
}

fn text(held: &[HeldUnassignment]) -> String {
    if held.is_empty() {
        return "No unassignment is held.\n".to_owned();
    }
    let mut table = Table::new(&["REVISION", "SPACE", "KIND", "NAMESPACE", "NAME", "TARGETS", "SUCH AS"]);
    for HeldUnassignment { revision, source, namespace: called, targets } in held {
        let HeldSource { space, api_group, kind, namespace, name, uid: _ } = source;
        let dot = if api_group.is_empty() { "" } else { "." };
        let called = called.as_ref().map_or_else(String::new, |called| format!(" → {called}"));
        let namespace = if namespace.is_empty() { "-" } else { namespace };
        table.row([
            revision.to_string(),
            space.clone(),
            format!("{kind}{dot}{api_group}"),
            format!("{namespace}{called}"),
            name.clone(),
            targets.count.to_string(),
            targets.names.join(", "),
        ]);
    }
    format!("{table}\nNothing wants these there any more. They stay until somebody approves that they go.\n")
}

#[cfg(test)]
mod tests;
