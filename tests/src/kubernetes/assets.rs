//! Where the binaries of Kubernetes are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};

use super::Kubectl;

/// Builds the binaries or says where they would be; the one module that knows the cache.
const BUILD_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kubernetes/build");

/// A directory with etcd, kube-apiserver, kube-controller-manager and kubectl.
#[derive(Clone, Debug)]
pub struct Assets {
    directory: PathBuf,
}

impl Assets {
    /// What to do when [`Assets::locate`] finds nothing.
    pub const MISSING: &str = "no Kubernetes binaries; run tests/kubernetes/build (once, about ten minutes), set \
                               TIDELINE_BUILD_KUBERNETES=1 to have the first test do so, or set KUBEBUILDER_ASSETS";

    /// Finds the binaries: `KUBEBUILDER_ASSETS` if it is complete, else the cache of `tests/kubernetes/build` if that has run.
    /// With `TIDELINE_BUILD_KUBERNETES=1` it is run now, which takes minutes; with `TIDELINE_WITHOUT_KUBERNETES=1` nothing is
    /// searched.
    ///
    /// # Errors
    ///
    /// When the script cannot be run, or was to build and failed.
    pub fn locate() -> Result<Option<Self>> {
        static LOCATED: OnceLock<Result<Option<Assets>, String>> = OnceLock::new();
        let located = LOCATED.get_or_init(|| {
            let is_set = |variable| env::var(variable).is_ok_and(|value| value == "1");
            if is_set("TIDELINE_WITHOUT_KUBERNETES") {
                return Ok(None);
            }
            ask(is_set("TIDELINE_BUILD_KUBERNETES")).map_err(|error| format!("{error:#}"))
        });
        located.clone().map_err(|error| anyhow!(error))
    }

    /// Returns the path of the binary `name`.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns a kubectl that speaks to what `kubeconfig` names.
    pub fn kubectl(&self, kubeconfig: &Path) -> Result<Kubectl> {
        Kubectl::new(self.binary("kubectl"), kubeconfig)
    }
}

fn ask(build: bool) -> Result<Option<Assets>> {
    let mut command = Command::new(BUILD_SCRIPT);
    if !build {
        command.arg("--where");
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {BUILD_SCRIPT}"))?;
    let directory = PathBuf::from(String::from_utf8(output.stdout)?.trim_end());
    match (output.status.success(), build) {
        (true, _) => Ok(Some(Assets { directory })),
        (false, false) => Ok(None),
        (false, true) => bail!("{BUILD_SCRIPT} failed: {}", output.status),
    }
}
