//! `tideline-hub ca`: replaces the authority that certifies the hub, without touching an agent.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tideline_hub::identity::{self, Rotation};

pub(super) const EXAMPLE: &str = "\
Example:
  tideline-hub ca prepare --data-dir /var/lib/tideline-hub/data   # then restart the hub: agents are told of the next CA
  tideline-hub ca switch --data-dir /var/lib/tideline-hub/data    # then restart it again: the next CA certifies it
  tideline-hub ca retire --data-dir /var/lib/tideline-hub/data    # then restart it again: the former CA is trusted no more

Wait between the steps until every agent was in contact: an agent that missed the first finds the hub again with --hub-ca
DIR/ca.crt, or with a new token. The hub's key, by which agents know it, stays. Run it as the hub's user or as root: whose file
identity.json was, it stays.";

const PREPARE_EXAMPLE: &str = "\
Example:
  tideline-hub ca prepare --data-dir /var/lib/tideline-hub/data && systemctl restart tideline-hub";

const SWITCH_EXAMPLE: &str = "\
Example:
  tideline-hub ca switch --data-dir /var/lib/tideline-hub/data && systemctl restart tideline-hub";

const RETIRE_EXAMPLE: &str = "\
Example:
  tideline-hub ca retire --data-dir /var/lib/tideline-hub/data && systemctl restart tideline-hub";

#[derive(Debug, Subcommand)]
pub(super) enum Ca {
    /// Make the next CA, and tell agents of it
    #[command(after_help = PREPARE_EXAMPLE)]
    Prepare(Hub),
    /// Have the next CA certify the hub; agents go on trusting the former
    #[command(after_help = SWITCH_EXAMPLE)]
    Switch(Hub),
    /// Have the former CA trusted no more
    #[command(after_help = RETIRE_EXAMPLE)]
    Retire(Hub),
}

#[derive(Debug, Args)]
pub(super) struct Hub {
    /// The data directory of the hub
    #[arg(long, env = "TIDELINE_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
}

/// Does one step, and returns what there is to say.
pub(super) fn run(step: &Ca) -> Result<String, identity::Error> {
    let (hub, rotation, then) = match step {
        Ca::Prepare(hub) => (
            hub,
            Rotation::Prepare,
            "the next CA is made. Restart the hub, wait until every agent was in contact, and go on with `ca switch`",
        ),
        Ca::Switch(hub) => (
            hub,
            Rotation::Switch,
            "the next CA certifies the hub from its next start on. Restart it, and give admin.kubeconfig to its users again. \
             Once every agent was in contact, end with `ca retire`",
        ),
        Ca::Retire(hub) => (
            hub,
            Rotation::Retire,
            "agents are told of the former CA no more from the next start of the hub on. Restart it",
        ),
    };
    identity::rotate(&hub.data_dir, rotation)?;
    Ok(format!("{then}\n"))
}
