//! The binary: arguments, logs, signals, exit code.

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use tideline_agent::Options;
use tideline_runtime::{Shutdown, environment, exit, telemetry};

mod heap;

/// Threads that run tasks. The work waits for the network and the disk; each further thread costs memory.
const WORKERS: usize = 2;

/// Longest wait for threads once everything has ended. One may hang in a disk, and must not keep the process.
const END_MAX: Duration = Duration::from_secs(2);

/// Beside those of every process: another replica leads, or may.
const LEASE_LOST: u8 = 3;

/// Libraries log every failed attempt as an error; the agent itself says what is wrong, once.
const LOG: &str = "info,kube_client=off,kube_runtime=off,sled=warn";

const EXAMPLES: &str = "\
Examples:
  Join a hub, on a machine beside the cluster, with a token made there by `tideline-hub token create store-0042`:
    tideline-agent run --data-dir /var/lib/tideline-agent --kubeconfig ~/.kube/config --token-file store-0042.token

  Start it again once it has enrolled; the token is not needed any more:
    tideline-agent run --data-dir /var/lib/tideline-agent --kubeconfig ~/.kube/config

  In a Pod of the cluster that it keeps, leave out --kubeconfig.

Exit codes: 0 done, 1 a failure (standard error says which), 2 wrong usage, 3 the Lease was lost (--leader-elect), 70 a bug.";

/// Applies what a Tideline hub assigns to a Kubernetes cluster, keeps it so, and reports its state
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
    environment::say_ignored(&Cli::command());
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    /// What has no value on the command line has one there.
    #[test]
    fn every_flag_is_an_environment_variable() {
        fn flags(command: &clap::Command) {
            let named =
                |flag: &&clap::Arg| !flag.is_positional() && !["help", "version"].contains(&flag.get_id().as_str());
            for flag in command.get_arguments().filter(named) {
                let name = format!("{} --{}", command.get_name(), flag.get_id());
                let variable = flag.get_env().unwrap_or_else(|| panic!("{name}"));
                assert!(variable.to_string_lossy().starts_with("TIDELINE_"), "{name}");
                if !matches!(flag.get_action(), clap::ArgAction::SetTrue) {
                    continue;
                }
                for (said, expected) in [("1", true), ("0", false), ("true", true), ("false", false)] {
                    let said = format!("--{}={said}", flag.get_long().expect("every flag has a long name"));
                    let reads = clap::Command::new("reads").arg(flag.clone().action(clap::ArgAction::Set));
                    let read =
                        reads.try_get_matches_from(["reads", &said]).unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert_eq!(read.get_one(flag.get_id().as_str()), Some(&expected), "{name}: {said}");
                }
            }
            command.get_subcommands().for_each(flags);
        }
        flags(&Cli::command());
    }
}
