//! `history`: shows what clusters know of and the hub does not, asks, and records that a person accepts it.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tideline_common::{SpaceName, Version};
use tideline_hub::agents::{self, Agent, AgentState};
use tideline_hub::history;
use tideline_hub::history_break::{self, HistoryBreak};
use tideline_hub::kubeconfig::{self, Access};

use super::table::Table;
use super::{Common, Output, confirm};

pub(super) const EXAMPLE: &str = "\
Example:
  tideline-hub history show
  tideline-hub history accept

After a restore, or on a copy of its directory, a hub does not know the newest sets of its clusters. They keep what they have
and remove nothing. If the newer store still exists, stop this hub and start it on that store. If it is lost, accept: clusters
then follow this hub. What it does not assign stays until its deletion is approved, also what was being removed before; earlier
approvals are void. Jobs that are assigned now and unknown to their cluster wait for `release`. A Job that is placed there later
runs, even if it ran there in the lost history.";

/// What each column of the table says.
const COLUMNS: &str = "\
CLUSTER HAS: the newest set that the agent of the target shows, as EPOCH.REVISION.
HUB HAS IT UP TO: what came before is the same at the hub and at the cluster; what came after it this hub does not know of.
STOPS: where nothing is rolled out or removed until this is settled.";

/// Claims that are spelled out below the table, which has all.
const CLAIMS_MAX: usize = 10;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show what clusters know of and this hub does not
    #[command(after_help = "Example:\n  tideline-hub history show --output json")]
    Show(Show),
    /// Accept that it is lost: clusters follow what this hub holds now
    #[command(after_help = "Example:\n  tideline-hub history accept --yes")]
    Accept(Accept),
}

#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(super) struct Accept {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    common: Common,
}

/// Who was heard since the hub was started: what the others know of, nobody can say.
#[derive(Clone, Copy, Debug)]
struct Heard {
    agents: usize,
    of: usize,
}

impl Heard {
    fn among(agents: &[Agent]) -> Self {
        let enrolled = || agents.iter().filter(|agent| agent.state == AgentState::Enrolled);
        Self { agents: enrolled().filter(|agent| agent.last_contact.is_some()).count(), of: enrolled().count() }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    History(#[from] history::Error),
    #[error(transparent)]
    Agents(#[from] agents::Error),
    #[error(transparent)]
    Confirm(#[from] confirm::Error),
}

/// Does it, and returns what is to be printed. What is asked goes to standard error.
pub(super) async fn run(command: &Command) -> Result<String, Error> {
    let (Command::Show(Show { common }) | Command::Accept(Accept { common, .. })) = command;
    let Common { hub, output } = common;
    let root = Access::read(hub.kubeconfig.as_deref())?.client(&SpaceName::root()).await?;
    let breaks = history::breaks(&root).await?;
    let heard = Heard::among(&agents::list(&root).await?);
    let yes = match command {
        Command::Show(_) => return Ok(print(*output, &breaks, heard, None)),
        Command::Accept(_) if breaks.is_empty() => return Ok(print(*output, &breaks, heard, None)),
        Command::Accept(Accept { yes, .. }) => *yes,
    };
    if !yes {
        let question = "Accept that what these clusters know of is lost, and have all clusters follow this hub?";
        confirm::ask(&text(&breaks, heard), question, "tideline-hub history show")?;
    }
    let accepted = history::accept(&root, &breaks).await?;
    Ok(print(*output, &breaks, heard, Some(&accepted)))
}

fn print(output: Output, breaks: &[HistoryBreak], heard: Heard, accepted: Option<&[String]>) -> String {
    match (output, accepted) {
        (Output::Json, _) => super::pretty(&as_json(breaks, heard, accepted)),
        (Output::Text, None) => text(breaks, heard),
        (Output::Text, Some(_)) => {
            "Accepted. Clusters follow this hub when they ask next; what then waits for an approval is \
                                    shown by: tideline-hub status\n"
                .to_owned()
        }
    }
}

fn as_json(breaks: &[HistoryBreak], heard: Heard, accepted: Option<&[String]>) -> Value {
    let Heard { agents, of } = heard;
    json!({"breaks": breaks, "heard": agents, "agents": of, "acceptances": accepted})
}

fn text(breaks: &[HistoryBreak], heard: Heard) -> String {
    let Heard { agents, of } = heard;
    let others = (agents < of).then(|| {
        format!(
            "{agents} of {of} agents were heard since the hub was started; what the others know of is not known yet.\n"
        )
    });
    let others = others.unwrap_or_default();
    if breaks.is_empty() {
        let whole = if agents < of { "Nothing is missing so far" } else { "The history is whole" };
        return format!("{whole}: no cluster that was heard knows of anything that this hub does not.\n{others}");
    }
    let mut table = Table::new(&["CAUSE", "TARGET", "CLUSTER HAS", "HUB HAS IT UP TO", "STOPS"]);
    for found in breaks {
        let row = match found {
            HistoryBreak::SetUnknown { target, segment: _, epoch, revision, after, proven } => {
                let version = Version { epoch: *epoch, revision: *revision };
                let concerns = if *proven { "all targets" } else { "this target" };
                let cause = if *proven { "set unknown to this hub" } else { "set claimed, not proven" };
                let up_to = format!("revision {after}");
                [cause.to_owned(), target.clone(), version.to_string(), up_to, concerns.to_owned()]
            }
            HistoryBreak::Restored { id: _, made } => {
                let (cause, none) = ("restored from a backup".to_owned(), "-".to_owned());
                [cause, none.clone(), none, format!("the backup of {made}"), "all targets".to_owned()]
            }
        };
        table.row(row);
    }
    let mut text = format!("{table}\n{COLUMNS}\n");
    let claims = history_break::claims(breaks).take(CLAIMS_MAX).map(|(target, claim)| format!("{target}: {claim}"));
    for paragraph in history_break::sentence(breaks).into_iter().chain(claims) {
        let _infallible = writeln!(text, "\n{paragraph}");
    }
    if !others.is_empty() {
        let _infallible = write!(text, "\n{others}");
    }
    text
}

#[cfg(test)]
mod tests;
