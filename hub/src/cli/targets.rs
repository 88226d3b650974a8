//! `targets`: which agents there are, and what is done about one: its key is revoked, its SyncTarget removed, or handed to it.

use clap::Subcommand;
use serde_json::json;
use tideline_api::AgentInstance;
use tideline_common::{InstanceId, SpaceName, TargetId};
use tideline_hub::agents::{self, Agent, AgentState};
use tideline_hub::duplicates::{self, Accepted};
use tideline_hub::kubeconfig::{self, Access};
use tideline_hub::printable;

use super::table::Table;
use super::{Common, Output, confirm};

pub(super) const EXAMPLE: &str = "\
Example:
  tideline-hub targets list
  tideline-hub targets revoke store-0042
  tideline-hub targets remove store-0042 --force
  tideline-hub targets adopt store-0042
  tideline-hub targets accept store-0042 --instance 3f9c2b7d10e8a645";

const LIST_EXAMPLE: &str = "\
Example:
  tideline-hub targets list
  tideline-hub targets list --output json | jq '.agents[] | select(.state == \"Deleted\")'";

const REVOKE_EXAMPLE: &str = "\
Example:
  tideline-hub targets revoke store-0042
  tideline-hub token create store-0042 > store-0042.token

The agent is refused from now on, and changes nothing at its cluster. Started with a new token it makes a new key and goes on;
what it placed stays as it is throughout. Removing the annotation tideline.dev/agent-key from a SyncTarget revokes nothing: the
agent is shut out until the annotation is back, and `targets list` says Withdrawn.";

const REMOVE_EXAMPLE: &str = "\
Example:
  tideline-hub targets remove store-0042

Without --force that is refused while its agent is at work. Nothing is taken from the cluster: its agent freezes. To empty the
cluster first, set spec.decommission to Remove.";

const ADOPT_EXAMPLE: &str = "\
Example:
  kubectl --context root create -f store-0042.yaml
  tideline-hub targets adopt store-0042

For a SyncTarget that was deleted by mistake and made again: its agent is frozen, and goes on with the new one. What it placed
keeps its UIDs, and nothing is removed for being absent from the first set. Compare the fingerprint with the one that the agent
logs, if you are not sure whose it is.";

const ACCEPT_EXAMPLE: &str = "\
Example:
  tideline-hub status
  tideline-hub targets accept store-0042 --instance 3f9c2b7d10e8a645

Where a data directory or a machine was copied, several agents live with one identity. One keeps the cluster, the others are
frozen; `status` shows them. The one that is named takes over when it asks next, within ten minutes, and the others are
frozen then. Stop those that are not meant to be.";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show every agent that the hub knows, those of deleted SyncTargets too
    #[command(after_help = LIST_EXAMPLE)]
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Revoke the key of an agent, at once and for good
    #[command(after_help = REVOKE_EXAMPLE)]
    Revoke {
        /// The SyncTarget
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Delete a SyncTarget
    #[command(after_help = REMOVE_EXAMPLE)]
    Remove {
        /// The SyncTarget
        name: String,
        /// Also if its agent is at work
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Hand a SyncTarget that was made again to the agent of the one that was deleted
    #[command(after_help = ADOPT_EXAMPLE)]
    Adopt {
        /// The SyncTarget that has no agent
        name: String,
        /// The UID of the deleted SyncTarget [default: the one that had this name]
        #[arg(long, env = "TIDELINE_FROM", value_name = "UID")]
        from: Option<TargetId>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Say which of several agents with one identity is to keep the cluster
    #[command(after_help = ACCEPT_EXAMPLE)]
    Accept {
        /// The SyncTarget
        name: String,
        /// The agent that is to keep its cluster, by its ID as `status` shows it
        #[arg(long, env = "TIDELINE_INSTANCE", value_name = "ID")]
        instance: InstanceId,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    Agents(#[from] agents::Error),
    #[error(transparent)]
    Duplicates(#[from] duplicates::Error),
    #[error(transparent)]
    Confirm(#[from] confirm::Error),
}

/// Does it, and returns what is to be printed. What is asked goes to standard error.
pub(super) async fn run(command: &Command) -> Result<String, Error> {
    let (Command::List { common }
    | Command::Revoke { common, .. }
    | Command::Remove { common, .. }
    | Command::Adopt { common, .. }
    | Command::Accept { common, .. }) = command;
    let root = Access::read(common.hub.kubeconfig.as_deref())?.client(&SpaceName::root()).await?;
    let output = common.output;
    match command {
        Command::List { .. } => {
            let agents = agents::list(&root).await?;
            Ok(match output {
                Output::Text => table(&agents),
                Output::Json => super::pretty(&json!({"agents": agents})),
            })
        }
        Command::Revoke { name, .. } => {
            agents::revoke(&root, name).await?;
            let text = format!("Revoked. To let the cluster in again: tideline-hub token create {name}\n");
            Ok(done(output, text, "revoked", name))
        }
        Command::Remove { name, force, .. } => {
            agents::remove(&root, name, *force).await?;
            let text = "Removed. Its agent changes nothing at its cluster any more.\n";
            Ok(done(output, text.to_owned(), "removed", name))
        }
        Command::Adopt { name, from, yes, .. } => {
            let agent = agents::adoptable(&root, name, *from).await?;
            if agent.state == AgentState::Adopted {
                return Ok(adopted(output, name, &agent, "Nothing to do: this agent was adopted already."));
            }
            if !*yes {
                let question = format!("Hand SyncTarget {name} to this agent?");
                confirm::ask(&table(std::slice::from_ref(&agent)), &question, "tideline-hub targets list")?;
            }
            agents::adopt(&root, name, &agent).await?;
            Ok(adopted(output, name, &agent, &format!("Adopted: SyncTarget {name} has this agent from now on.")))
        }
        Command::Accept { name, instance, .. } => {
            let accepted = duplicates::accept(&root, name, *instance).await?;
            Ok(match output {
                Output::Json => super::pretty(&json!(accepted)),
                Output::Text => accepted_text(&accepted),
            })
        }
    }
}

fn done(output: Output, text: String, what: &str, name: &str) -> String {
    match output {
        Output::Text => text,
        Output::Json => super::pretty(&json!({what: name})),
    }
}

fn table(agents: &[Agent]) -> String {
    if agents.is_empty() {
        return "The hub knows no agent.\n".to_owned();
    }
    let mut table = Table::new(&["SYNCTARGET", "UID", "STATE", "FINGERPRINT", "CLUSTER", "LAST CONTACT"]);
    for agent in agents {
        let unknown = || "-".to_owned();
        let by = agent.deleted_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let at = agent.deleted_at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
        let state = match agent.state {
            AgentState::Enrolled => "Enrolled".to_owned(),
            AgentState::Revoked => "Revoked".to_owned(),
            AgentState::Withdrawn => "Withdrawn".to_owned(),
            AgentState::Unknown => "Unknown".to_owned(),
            AgentState::Deleted => format!("Deleted{by}{at}"),
            AgentState::Adopted => {
                format!("Adopted by {}", agent.adopted_by.map(|heir| heir.to_string()).unwrap_or_default())
            }
        };
        table.row([
            agent.name.clone(),
            agent.target.to_string(),
            state,
            agent.fingerprint.clone(),
            agent.cluster.clone().unwrap_or_else(unknown),
            agent.last_contact.map_or_else(unknown, |at| at.to_string()),
        ]);
    }
    table.to_string()
}

fn adopted(output: Output, name: &str, agent: &Agent, done: &str) -> String {
    match output {
        Output::Text => format!("{}\n{done} {}\n", table(std::slice::from_ref(agent)), adopted_text(agent)),
        Output::Json => super::pretty(&json!({"adopted": name, "agent": agent})),
    }
}

fn adopted_text(agent: &Agent) -> String {
    match &agent.upgrade {
        None => "It hears of it within ten minutes.".to_owned(),
        Some(upgrade) => format!("It stays frozen until it is upgraded: {upgrade}"),
    }
}

fn accepted_text(Accepted { target, instance, others }: &Accepted) -> String {
    let named = |instance: &AgentInstance| printable(&format!("{} on {}", instance.id, instance.host));
    let others: Vec<_> = others.iter().map(named).collect();
    let when = if instance.holds { "It keeps the cluster already" } else { "It takes over when it asks next" };
    format!(
        "{} is to keep the cluster of {target}. {when}. Stop the others, if they still run: {}\n",
        named(instance),
        others.join(", ")
    )
}

#[cfg(test)]
mod tests;
