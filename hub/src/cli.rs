//! The command line: what can be said, and what each command does with the library.

mod approve;
mod ca;
mod confirm;
mod history;
mod release;
mod status;
mod table;
mod targets;
mod unassign;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use serde_json::json;
use tideline_common::SpaceName;
use tideline_hub::backup::{Keys, Outcome};
use tideline_hub::kubeconfig::{self, Access};
use tideline_hub::token::{self, TokenRequest};
use tideline_hub::{Options, backup, duration};
use tideline_runtime::{Shutdown, environment, telemetry};

const EXAMPLES: &str = "\
Examples:
  Run a hub:
    tideline-hub serve --data-dir /var/lib/tideline-hub --public-url https://hub.example.com:8443

  Beside it, let a cluster join, and see how everything does:
    export KUBECONFIG=/var/lib/tideline-hub/admin.kubeconfig
    tideline-hub token create store-0042 --labels region=eu,tier=shop > token
    tideline-hub status

Exit codes: 0 done, 1 a failure that is said, 2 wrong usage, 70 a bug.";

const SERVE_EXAMPLE: &str = "\
Example:
  tideline-hub serve --data-dir /var/lib/tideline-hub --public-url https://hub.example.com:8443

The directory is made if there is none. When the hub serves, DIR/admin.kubeconfig has a context for each space:
  kubectl --kubeconfig /var/lib/tideline-hub/admin.kubeconfig --context root get synctargets";

const TOKEN_EXAMPLE: &str = "\
Example:
  tideline-hub token create store-0042 --labels region=eu,tier=shop --expires 24h > token";

const CREATE_EXAMPLE: &str = "\
Example:
  tideline-hub token create store-0042 --labels region=eu,tier=shop --expires 24h > token
  tideline-agent run --data-dir /var/lib/tideline --kubeconfig ~/.kube/config --token-file token

The token is a secret, is shown this once, and lets one agent in. That agent's cluster becomes the SyncTarget NAME.";

const KUBECONFIG_EXAMPLE: &str = "\
Example:
  (umask 077; tideline-hub kubeconfig default > default.kubeconfig)
  kubectl --kubeconfig default.kubeconfig apply -f storefront.yaml

It holds the same credentials as the kubeconfig that it is made from, so it is a secret.";

const STATUS_EXAMPLE: &str = "\
Example:
  tideline-hub status default
  tideline-hub status --output json | jq '.rollups[] | select(.counts.failed > 0) | .source'";

const BACKUP_EXAMPLE: &str = "\
Example:
  tideline-hub backup /backups/hub-2026-11-23 --data-dir /var/lib/tideline-hub
  tideline-hub restore /backups/hub-2026-11-23 --data-dir /var/lib/tideline-hub-restored

Run restore as the user of the hub, or give that user the directory afterwards (chown -R).

A hub on a copied directory does not know that it went back in time. It notices when an agent shows a newer set; if no such
agent calls, it never notices. So use backup and restore. If you must start on a copy, run `tideline-hub status` before you
delete or unassign anything.";

/// Carries Kubernetes objects from a centre to many clusters, and their state back
#[derive(Debug, Parser)]
#[command(name = "tideline-hub", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the hub until SIGINT or SIGTERM
    #[command(after_help = SERVE_EXAMPLE)]
    Serve(Serve),
    /// Make the tokens with which agents join
    #[command(subcommand, after_help = TOKEN_EXAMPLE)]
    Token(Token),
    /// Print a kubeconfig of one space
    #[command(after_help = KUBECONFIG_EXAMPLE)]
    Kubeconfig {
        /// The space
        space: SpaceName,
        #[command(flatten)]
        hub: Hub,
    },
    /// Show how the clusters do, and the objects that one space places on them
    #[command(after_help = STATUS_EXAMPLE)]
    Status {
        /// The space whose objects are shown
        #[arg(default_value = "default")]
        space: SpaceName,
        #[command(flatten)]
        common: Common,
    },
    /// Replace the CA that certifies the hub
    #[command(subcommand, after_help = ca::EXAMPLE)]
    Ca(ca::Ca),
    /// Show agents, revoke their keys, remove their SyncTargets, or hand them one that was made again
    #[command(subcommand, after_help = targets::EXAMPLE)]
    Targets(targets::Command),
    /// Approve deletions that a cluster holds because they are many, or because nothing explains them
    #[command(after_help = approve::EXAMPLE)]
    ApproveDeletions(approve::Arguments),
    /// Approve that objects are taken from targets, where one change takes so many that the hub holds it
    #[command(after_help = unassign::EXAMPLE)]
    ApproveUnassignments(unassign::Arguments),
    /// Write the hub, its store and its keys, into one file; it may be running
    #[command(after_help = BACKUP_EXAMPLE)]
    Backup {
        /// The file, which must not be there
        file: PathBuf,
        /// The data directory of the hub
        #[arg(long, env = "TIDELINE_DATA_DIR", value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Make a hub of a backup, in a data directory without one
    #[command(after_help = BACKUP_EXAMPLE)]
    Restore {
        /// What `backup` wrote
        file: PathBuf,
        /// The data directory of the new hub
        #[arg(long, env = "TIDELINE_DATA_DIR", value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Keep at a cluster what came back or was left behind, or run what may have run before history was lost
    #[command(after_help = release::EXAMPLE)]
    Release(release::Arguments),
    /// Show and accept lost history: clusters hold newer sets than this hub, as after a restore
    #[command(subcommand, after_help = history::EXAMPLE)]
    History(history::Command),
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    options: Options,
    /// What is logged: a level, or directives such as `info,tideline_hub=debug`
    #[arg(long, env = "TIDELINE_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
    /// How logs are written, to standard error
    #[arg(long, env = "TIDELINE_LOG_FORMAT", value_enum, default_value_t)]
    log_format: telemetry::Format,
}

#[derive(Debug, Subcommand)]
enum Token {
    /// Make a token for one cluster, and print it
    #[command(after_help = CREATE_EXAMPLE)]
    Create {
        /// The name of the token, and of the SyncTarget that the cluster becomes
        name: String,
        /// The labels of the SyncTarget, by which Locations and Placements select it
        #[arg(long, env = "TIDELINE_LABELS", value_name = "K=V,…", value_parser = labels, default_value = "")]
        labels: Labels,
        /// How long the token may be used, as 90s, 30m, 24h or 7d
        #[arg(long, env = "TIDELINE_EXPIRES", value_name = "TIME", default_value = "24h", value_parser = duration)]
        expires: Duration,
        #[command(flatten)]
        hub: Hub,
        /// How it is printed; text is the token alone
        #[arg(long, short, env = "TIDELINE_OUTPUT", value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// How a command finds its hub.
#[derive(Debug, Args)]
struct Hub {
    /// An admin.kubeconfig of the hub [default: $KUBECONFIG]
    #[arg(long, env = "TIDELINE_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// What most commands are told besides.
#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    hub: Hub,
    /// How it is printed
    #[arg(long, short, env = "TIDELINE_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Labels as written on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Labels(BTreeMap<String, String>);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    LogFilter(#[from] telemetry::FilterError),
    #[error("the operating system gives no threads or signals")]
    System(#[source] io::Error),
    #[error(transparent)]
    Hub(#[from] tideline_hub::Error),
    #[error(transparent)]
    Token(#[from] token::Error),
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error(transparent)]
    Ca(#[from] tideline_hub::identity::Error),
    #[error(transparent)]
    Status(#[from] status::Error),
    #[error(transparent)]
    Approve(#[from] approve::Error),
    #[error(transparent)]
    Unassign(#[from] unassign::Error),
    #[error(transparent)]
    Targets(#[from] targets::Error),
    #[error(transparent)]
    Release(#[from] release::Error),
    #[error(transparent)]
    History(#[from] history::Error),
    #[error(transparent)]
    Backup(#[from] tideline_hub::backup::Error),
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> Result<(), Error> {
    match cli.command {
        Command::Serve(Serve { options, log, log_format }) => {
            telemetry::init(&log, log_format)?;
            environment::say_ignored(&Cli::command());
            serve(options)
        }
        Command::Token(Token::Create { name, labels: Labels(labels), expires, hub: Hub { kubeconfig }, output }) => {
            let token = block_on(token::create(TokenRequest { kubeconfig, name, labels, expires }))??;
            let text = match output {
                Output::Text => format!("{token}\n"),
                Output::Json => {
                    let name = &token.name;
                    pretty(&json!({"name": name, "hub": token.hub, "urls": token.urls, "token": token.to_string()}))
                }
            };
            print(&text)
        }
        Command::Kubeconfig { space, hub } => print(&Access::read(hub.kubeconfig.as_deref())?.kubeconfig(&space)?),
        Command::Status { space, common: Common { hub, output } } => {
            let access = Access::read(hub.kubeconfig.as_deref())?;
            let status = block_on(status::read(&access, &space))??;
            print(&match output {
                Output::Text => status.text(jiff::Timestamp::now()),
                Output::Json => pretty(&status.json()),
            })
        }
        Command::Ca(step) => print(&ca::run(&step)?),
        Command::ApproveDeletions(arguments) => print(&block_on(approve::run(&arguments))??),
        Command::Targets(command) => print(&block_on(targets::run(&command))??),
        Command::ApproveUnassignments(arguments) => print(&block_on(unassign::run(&arguments))??),
        Command::Backup { file, data_dir } => {
            backup::backup(&data_dir, &file, jiff::Timestamp::now())?;
            print(&format!("Written to {}. It holds the hub's keys and every Secret of its spaces.\n", file.display()))
        }
        Command::Restore { file, data_dir } => {
            let Outcome { made, keys } = backup::restore(&file, &data_dir)?;
            let keys = match keys {
                Keys::OfBackup => "",
                Keys::Kept => {
                    "The identity.json that was there is kept: it is of this hub, and may be newer than the backup's. "
                }
            };
            print(&format!(
                "Restored the backup of {made}. {keys}When the hub is started on {}, clusters keep what they have until somebody accepts \
                 that what came after is lost: tideline-hub history accept\n",
                data_dir.display()
            ))
        }
        Command::Release(arguments) => print(&block_on(release::run(&arguments))??),
        Command::History(command) => print(&block_on(history::run(&command))??),
    }
}

fn serve(options: Options) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::System)?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.on_signals().map_err(Error::System)?;
        Ok(tideline_hub::run(options, shutdown.token().clone()).await?)
    })
}

/// Runs one short command; a second thread would have nothing to do.
fn block_on<T>(command: impl Future<Output = T>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::System)?;
    Ok(runtime.block_on(command))
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough, as `head` has.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(Error::Output),
    }
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn labels(text: &str) -> Result<Labels, String> {
    let mut labels = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| format!("{pair:?} must be KEY=VALUE, as region=eu,tier=shop"))?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("the label {key:?} is given twice"));
        }
    }
    Ok(Labels(labels))
}

#[cfg(test)]
mod tests;
