//! `release`: what waits at one cluster for a word that only a person can give, and stays.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kube::Client;
use serde_json::{Value, json};
use tideline_common::{Reason, SpaceName};
use tideline_hub::kubeconfig::{self, Access};
use tideline_hub::removals::approve::{self, Action, Approved, Held};
use tideline_hub::removals::held_deletions::HeldDeletion;
use tideline_hub::removals::release;
use tideline_hub::{duration, history, sync_target};

use super::approve::table;
use super::{Common, Output, confirm};

pub(super) const EXAMPLE: &str = "\
Example:
  tideline-hub status
  tideline-hub release store-0042 --reason Restored
  tideline-hub release store-0042 --reason MayHaveRun

Restored, HistoryLost: objects that carry the mark of this hub and that nothing assigns, because they came back from a backup or
because history was lost. They stay at the cluster as they are, without the mark, and are nobody's from then on. To have them
deleted instead: tideline-hub approve-deletions.

MayHaveRun: after lost history was accepted, a Job (or a Pod that ends by itself) that was assigned before and that the cluster's
agent does not know is withheld: it may have run already. This runs everything that is withheld at the cluster for that reason,
once. To keep one from running, delete it in its space first. Nothing else at the cluster changes.";

/// Why something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Waits {
    /// Nothing assigns it, and it came back: it stays, without the mark
    #[value(name = "Restored")]
    Restored,
    /// History was lost, and nothing says why it is there: it stays, without the mark
    #[value(name = "HistoryLost")]
    HistoryLost,
    /// It runs once, and may have run before history was lost: it runs now
    #[value(name = "MayHaveRun")]
    MayHaveRun,
}

impl Waits {
    const ALL: [Self; 3] = [Self::Restored, Self::HistoryLost, Self::MayHaveRun];

    fn reason(self) -> Reason {
        match self {
            Self::Restored => Reason::Restored,
            Self::HistoryLost => Reason::HistoryLost,
            Self::MayHaveRun => Reason::MayHaveRun,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The SyncTarget
    target: String,
    /// What is released: all that waits for this reason. May be left out where all waits for one
    #[arg(long, env = "TIDELINE_REASON", value_enum)]
    reason: Option<Waits>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// How long the cluster's agent may take to hear of it, as 30m, 24h or 7d; not for MayHaveRun
    #[arg(long, env = "TIDELINE_RELEASE_EXPIRES", value_name = "TIME", default_value = "24h", value_parser = duration)]
    expires: Duration,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    SyncTarget(#[from] sync_target::Error),
    #[error(transparent)]
    Approve(#[from] approve::Error),
    #[error(transparent)]
    Confirm(#[from] confirm::Error),
    #[error(transparent)]
    History(#[from] history::Error),
    #[error("history is broken, so that it is not known what the clusters hold rightly: see tideline-hub history show")]
    HistoryBroken,
    #[error("{target} waits for several reasons, and they are not settled in one step: name one with --reason: {}", .reasons.join(", "))]
    SeveralReasons { target: String, reasons: Vec<&'static str> },
}

/// Does it, and returns what is to be printed. What is asked goes to standard error.
pub(super) async fn run(arguments: &Arguments) -> Result<String, Error> {
    let Arguments { target, reason, yes, expires, common: Common { hub, output } } = arguments;
    let root = Access::read(hub.kubeconfig.as_deref())?.client(&SpaceName::root()).await?;
    if *reason == Some(Waits::MayHaveRun) {
        return let_run(&root, *output, target).await;
    }
    let held = approve::held(&root, target).await?;
    let reason = match reason {
        Some(reason) => *reason,
        None => match only_reason(target, &held, release::waits(&root, target).await?)? {
            Some(reason) => reason,
            None => return Ok(released(*output, &held, &[], None)),
        },
    };
    match reason {
        Waits::MayHaveRun => return let_run(&root, *output, target).await,
        Waits::HistoryLost if !history::breaks(&root).await?.is_empty() => return Err(Error::HistoryBroken),
        Waits::HistoryLost | Waits::Restored => {}
    }
    let releasable = held.releasable(reason.reason());
    if releasable.is_empty() {
        return Ok(released(*output, &held, &[], None));
    }
    if !*yes {
        let count = releasable.len();
        let question =
            format!("Release these {count} objects at {target}? They stay there and are not Tideline's any more.");
        let look = format!("tideline-hub approve-deletions {target} --list --reason {}", reason.reason());
        confirm::ask(&table(releasable.iter().copied()).to_string(), &question, &look)?;
    }
    let approved = approve::approve(&root, &held, &releasable, Action::Release, *expires).await?;
    Ok(released(*output, &held, &releasable, Some(&approved)))
}

/// For what something waits at a target, if it is one thing.
fn only_reason(target: &str, held: &Held, may_have_run: bool) -> Result<Option<Waits>, Error> {
    let waits = |it: &Waits| held.holds(it.reason()) || may_have_run && *it == Waits::MayHaveRun;
    match &*Waits::ALL.into_iter().filter(waits).collect::<Vec<_>>() {
        [] => Ok(None),
        [reason] => Ok(Some(*reason)),
        several => {
            let reasons = several.iter().map(|waits| waits.reason().as_str()).collect();
            Err(Error::SeveralReasons { target: target.to_owned(), reasons })
        }
    }
}

/// Has what may have run run there.
async fn let_run(root: &Client, output: Output, target: &str) -> Result<String, Error> {
    let waits = release::release(root, target).await?;
    Ok(match output {
        Output::Text if waits => format!("Released: what may have run at {target} runs there now, once.\n"),
        Output::Text => {
            format!(
                "The hub knows of nothing that is withheld from {target} for that reason. If something is withheld there that \
                 was not reported yet, it runs now, once.\n"
            )
        }
        Output::Json => super::pretty(&json!({"released": target, "waited": waits})),
    })
}

fn released(output: Output, held: &Held, releasable: &[&HeldDeletion], approved: Option<&Approved>) -> String {
    let target = &held.target;
    match (output, approved) {
        (Output::Json, _) => {
            let objects: Vec<Value> = releasable.iter().map(|held| json!(held.object)).collect();
            super::pretty(&json!({
                "target": target, "targetUid": held.target_uid, "reported": held.reported, "objects": objects,
                "release": approved,
            }))
        }
        (Output::Text, Some(approved)) => {
            let mut said = format!("Released: {} objects at {target}. ", approved.deletions);
            let _infallible = writeln!(
                said,
                "Its agent is told when it asks next, until {}; it takes away their marks, and they stay.",
                approved.expires
            );
            said
        }
        (Output::Text, None) if !held.reported => {
            format!("{target} has not reported to this run of the hub: what waits there is not known.\n")
        }
        (Output::Text, None) => format!("Nothing waits at {target} that could be released.\n"),
    }
}
