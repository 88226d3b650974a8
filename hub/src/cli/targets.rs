//! `targets`: the clusters' records, and what a person decides about them.

use clap::{Args, Subcommand};
use serde_json::json;
use tideline_common::{InstanceId, SpaceName};
use tideline_hub::duplicates::{self, Accepted};
use tideline_hub::kubeconfig::{self, Access};

use super::{Hub, Output};

pub(super) const EXAMPLE: &str = "\
Example:
  tideline-hub status
  tideline-hub targets accept store-0042 --instance 3f9c2b7d10e8a645";

const ACCEPT_EXAMPLE: &str = "\
Example:
  tideline-hub status
  tideline-hub targets accept store-0042 --instance 3f9c2b7d10e8a645

Where a data directory or a machine was copied, several agents live with one identity. One keeps the cluster, the others are
frozen; `status` shows them. The one that is named takes over when it asks next, within ten minutes, and the others are
frozen then. Stop those that are not meant to be.";

#[derive(Debug, Subcommand)]
pub(super) enum Targets {
    /// Say which of several agents with one identity is to keep the cluster
    #[command(after_help = ACCEPT_EXAMPLE)]
    Accept(Accept),
}

#[derive(Debug, Args)]
pub(super) struct Accept {
    /// The SyncTarget
    name: String,
    /// The agent that is to keep its cluster, by its ID as `status` shows it
    #[arg(long, env = "TIDELINE_INSTANCE", value_name = "ID")]
    instance: InstanceId,
    #[command(flatten)]
    hub: Hub,
    /// How it is printed
    #[arg(long, short, env = "TIDELINE_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    Duplicates(#[from] duplicates::Error),
}

/// Does it, and returns what is to be printed.
pub(super) async fn run(targets: &Targets) -> Result<String, Error> {
    match targets {
        Targets::Accept(Accept { name, instance, hub, output }) => {
            let root = Access::read(hub.kubeconfig.as_deref())?.client(&SpaceName::root()).await?;
            let accepted = duplicates::accept(&root, name, *instance).await?;
            Ok(match output {
                Output::Json => super::pretty(&json!(accepted)),
                Output::Text => text(&accepted),
            })
        }
    }
}

fn text(Accepted { target, instance, others }: &Accepted) -> String {
    let others: Vec<_> = others.iter().map(|other| format!("{} on {}", other.id, other.host)).collect();
    let (id, host) = (&instance.id, &instance.host);
    let when = if instance.holds { "It keeps the cluster already" } else { "It takes over when it asks next" };
    format!(
        "{id} on {host} is to keep the cluster of {target}. {when}. Stop the others, if they still run: {}\n",
        others.join(", ")
    )
}
