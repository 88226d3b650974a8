//! `release`: what is withheld from one cluster for a reason that only a person can settle.

use clap::{Args, ValueEnum};
use serde_json::json;
use tideline_common::SpaceName;
use tideline_hub::kubeconfig::{self, Access};
use tideline_hub::{release, sync_target};

use super::{Common, Output};

pub(super) const EXAMPLE: &str = "\
Example:
  tideline-hub status
  tideline-hub release store-0042 --reason MayHaveRun

After history was lost and accepted, a Job that was assigned before, and a Pod that ends by itself, does not run at a cluster
whose agent does not know of it: it may have run already. This lets all of them run that are withheld at the cluster now, once;
to have one not run, delete it in its space instead. Nothing else at the cluster changes.";

/// Why something is withheld.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Withheld {
    /// It runs once, and may have run before history was lost
    #[value(name = "MayHaveRun")]
    MayHaveRun,
}

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The SyncTarget
    target: String,
    /// What is let go on: all that is withheld for this reason
    #[arg(long, env = "TIDELINE_REASON", value_enum)]
    reason: Withheld,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    SyncTarget(#[from] sync_target::Error),
}

/// Does it, and returns what is to be printed.
pub(super) async fn run(
    Arguments { target, reason, common: Common { hub, output } }: &Arguments,
) -> Result<String, Error> {
    let root = Access::read(hub.kubeconfig.as_deref())?.client(&SpaceName::root()).await?;
    let waits = match reason {
        Withheld::MayHaveRun => release::release(&root, target).await?,
    };
    Ok(match output {
        Output::Text if waits => format!("Released: what may have run at {target} runs there now, once.\n"),
        Output::Text => {
            format!(
                "Nothing is known to be withheld from {target} for that reason. What is and is not shown yet runs there now.\n"
            )
        }
        Output::Json => super::pretty(&json!({"released": target, "waited": waits})),
    })
}
