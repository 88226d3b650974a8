//! The binary: arguments, logs, signals, exit code.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tideline_agent::Options;
use tideline_runtime::{Shutdown, exit, telemetry};

mod heap;

/// Threads that run tasks. The work waits for the network and the disk; each further thread costs memory.
const WORKERS: usize = 2;

/// Longest wait for threads once everything has ended. One may hang in a disk, and must not keep the process.
const END_MAX: Duration = Duration::from_secs(2);

/// Beside those of every process: another replica leads, or may.
const LEASE_LOST: u8 = 3;

/// Libraries log every failed try as an error; the agent says itself what is wrong, once.
const LOG: &str = "info,kube_client=off,kube_runtime=off,sled=warn";

const EXAMPLES: &str = "\
Examples:
  Join a hub with a token made there by `tideline-hub token create store-0042`:
    tideline-agent run --data-dir /var/lib/tideline --kubeconfig ~/.kube/config --token-file token

  Go on afterwards, inside the cluster:
    tideline-agent run --data-dir /var/lib/tideline

Exit codes: 0 done, 1 a failure that is said, 2 wrong usage, 3 the Lease was lost (--leader-elect), 70 a bug.";

/// Keeps a Kubernetes cluster as its Tideline hub says
#[derive(Debug, Parser)]
#[command(name = "tideline-agent", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the agent until SIGINT or SIGTERM
    #[command(after_help = EXAMPLES)]
    Run {
        #[command(flatten)]
        options: Options,
        /// What is logged: a level, or directives such as `info,tideline_agent=debug`
        #[arg(long, env = "TIDELINE_LOG", value_name = "FILTER", default_value = LOG)]
        log: String,
        /// How logs are written, to standard error
        #[arg(long, env = "TIDELINE_LOG_FORMAT", value_enum, default_value_t)]
        log_format: telemetry::Format,
    },
}

fn main() -> ExitCode {
    exit::on_panic();
    let Cli { command } = Cli::parse();
    let outcome = match command {
        Command::Run { options, log, log_format } => run(options, &log, log_format),
    };
    match outcome {
        Ok(()) => exit::code("tideline-agent", Ok(())),
        Err(error) => {
            let code = exit::code("tideline-agent", Err(error.as_ref()));
            match error.downcast_ref() {
                Some(tideline_agent::Error::LeaseLost(_)) => ExitCode::from(LEASE_LOST),
                _ => code,
            }
        }
    }
}

fn run(options: Options, log: &str, format: telemetry::Format) -> anyhow::Result<()> {
    telemetry::init(log, format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.on_signals()?;
        tideline_agent::run(options, shutdown.token().clone()).await?;
        Ok(())
    });
    runtime.shutdown_timeout(END_MAX);
    outcome
}
