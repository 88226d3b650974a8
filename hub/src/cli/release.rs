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

After lost history was accepted, a Job (or a Pod that ends by itself) that was assigned before and that the cluster's agent does
not know is withheld: it may have run already. This runs everything that is withheld at the cluster for that reason, once. To
keep one from running, delete it in its space first. Nothing else at the cluster changes.";

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
                "The hub knows of nothing that is withheld from {target} for that reason. If something is withheld there that \
                 was not reported yet, it runs now, once.\n"
            )
        }
        Output::Json => super::pretty(&json!({"released": target, "waited": waits})),
    })
}
