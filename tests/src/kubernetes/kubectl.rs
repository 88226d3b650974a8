//! The real kubectl, kept away from the settings and caches of whoever runs the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::process::{Finished, run_to_end};
use crate::scratch::Scratch;

/// Longest run of one command; a `wait` within it should ask for less.
const RUN_MAX: Duration = Duration::from_mins(2);

/// kubectl with a kubeconfig, and optionally a context of it.
#[derive(Clone, Debug)]
pub struct Kubectl {
    binary: PathBuf,
    kubeconfig: PathBuf,
    context: Option<String>,
    /// Discovery is cached per host and port for hours; ports return with other servers behind them.
    home: Arc<Scratch>,
}

impl Kubectl {
    pub(super) fn new(binary: PathBuf, kubeconfig: &Path) -> Result<Self> {
        let home = Arc::new(Scratch::new("kubectl")?);
        Ok(Self { binary, kubeconfig: kubeconfig.to_owned(), context: None, home })
    }

    /// Uses the context `name` of the kubeconfig instead of its current one.
    #[must_use]
    pub fn with_context(&self, name: &str) -> Self {
        Self { context: Some(name.to_owned()), ..self.clone() }
    }

    /// Runs to the end and returns the standard output.
    ///
    /// # Errors
    ///
    /// When the exit code is not 0; the message is what kubectl wrote to standard error.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.run_with_input(arguments, "").await
    }

    /// As [`Kubectl::run`], with `input` on standard input, for `-f -`.
    pub async fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let finished = self.try_run(arguments, input).await?;
        ensure!(
            finished.status.success(),
            "kubectl {}: {}: {}",
            arguments.join(" "),
            finished.status,
            finished.stderr.trim_end()
        );
        Ok(finished.stdout)
    }

    /// Runs to the end and returns all of it, for commands whose failure or exit code is the point.
    pub async fn try_run(&self, arguments: &[&str], input: &str) -> Result<Finished> {
        run_to_end(&mut self.command(arguments), input, RUN_MAX).await
    }

    /// Returns the command itself, for one that does not end (`get --watch`), to be given to
    /// [`Process`](crate::Process).
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments);
        if let Some(context) = &self.context {
            command.args(["--context", context]);
        }
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.join("cache"))
            .env("KUBERC", "off")
            .env_remove("KUBECTL_EXTERNAL_DIFF");
        command
    }
}
