//! The images of `deploy/container` contain enough to run, and `deploy/` sets the limits of the Pods.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tideline_tests::{
    EmbeddedCluster, Process, Scratch, ask_health, eventually_ok, free_port, met_or_skipped, require_binaries,
    run_to_end, test_name,
};

use crate::harness::SOON;

const MISSING: &str = "another root directory needs root";
/// As the images and the manifests run it.
const USER: &str = "65532:65532";

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

/// The root directory of an image, on this machine.
struct Image {
    binary: String,
    scratch: Scratch,
}

impl Image {
    async fn of(binary: &Path) -> Result<Self> {
        let scratch = Scratch::new("image")?;
        let mut command = Command::new(deploy("container/rootfs"));
        let made = run_to_end(command.arg(binary).arg(scratch.join("root")), "", SOON).await?;
        ensure!(made.code()? == 0, "{}", made.stderr);
        let binary = binary.file_name().and_then(|name| name.to_str()).context("a name")?;
        Ok(Self { binary: format!("/usr/local/bin/{binary}"), scratch })
    }

    /// A command in it, as the user of the image, with the environment of the image.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt");
        command.arg(format!("--userspec={USER}")).arg(self.path("")).arg(&self.binary).args(arguments);
        command
    }

    async fn says(&self, arguments: &[&str]) -> Result<String> {
        let ended = run_to_end(&mut self.command(arguments), "", SOON).await?;
        ensure!(ended.code()? == 0, "{}", ended.stderr);
        Ok(ended.stdout)
    }

    /// Starts it, with a health port, and waits until it is ready.
    async fn start(&self, option: &str, arguments: &[&str]) -> Result<Process> {
        let port = free_port()?;
        let mut command = self.command(arguments);
        command.arg(format!("{option}={}", std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        let process = Process::spawn(&self.binary, &mut command, &self.scratch.join("log"))?.with_log_shown();
        eventually_ok(SOON, "readiness in the image", async || {
            let (code, body) = ask_health(port, "/readyz").await?;
            ensure!(code == 200, "{code}: {body}");
            Ok(())
        })
        .await
        .with_context(|| process.log_tail())?;
        Ok(process)
    }

    /// Puts a file where its user may read it.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        Ok(())
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.scratch.join("root").join(inside)
    }
}

#[tokio::test]
async fn both_run_with_nothing_but_what_is_in_their_images() -> Result<()> {
    let binaries = require_binaries!();
    let root = rustix::process::geteuid().is_root().then_some(());
    if met_or_skipped(&test_name!(), Ok(root), MISSING)?.is_none() {
        return Ok(());
    }
    let (hub, agent) = (Image::of(&binaries.hub()).await?, Image::of(&binaries.agent()).await?);
    ensure!(hub.says(&["--version"]).await?.starts_with("tideline-hub "), "the hub's version");
    ensure!(agent.says(&["--version"]).await?.starts_with("tideline-agent "), "the agent's version");
    for name in ["bin", "usr/bin", "root", "home"] {
        ensure!(!agent.path(name).exists(), "{name} is no part of an image");
    }

    let listen = format!("--listen=127.0.0.1:{}", free_port()?);
    let mut serves = hub.start("--health-listen", &["serve", "--data-dir=/tmp/data", &listen]).await?;
    let token = hub.says(&["token", "create", "store", "--kubeconfig=/tmp/data/admin.kubeconfig"]).await?;

    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    agent.put("tmp/token", token)?;
    agent.put("tmp/kubeconfig", fs::read(cluster.kubeconfig())?)?;
    let arguments = ["run", "--data-dir=/tmp/data", "--kubeconfig=/tmp/kubeconfig", "--token-file=/tmp/token"];
    let mut keeps = agent.start("--listen", &arguments).await?;
    for process in [&mut keeps, &mut serves] {
        process.terminate()?;
        ensure!(process.wait(SOON).await?.code() == Some(0), "{}", process.log_tail());
    }
    Ok(())
}

/// What the one container of a manifest asks for and is bounded by.
fn resources(manifest: &str) -> Result<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(deploy(manifest))?)?;
    let containers: Vec<_> = objects.iter().filter_map(|it| it.pointer("/spec/template/spec/containers/0")).collect();
    ensure!(containers.len() == 1, "{manifest} has {} workloads", containers.len());
    Ok(containers[0]["resources"].clone())
}

#[test]
fn manifests_say_what_each_needs_and_bound_its_memory_alone() -> Result<()> {
    for manifest in ["agent/agent.yaml", "hub/hub.yaml"] {
        let resources = resources(manifest)?;
        let mebibytes = |value: &Value| value.as_str().and_then(|it| it.strip_suffix("Mi")?.parse::<u32>().ok());
        let (requested, limit) =
            (mebibytes(&resources["requests"]["memory"]), mebibytes(&resources["limits"]["memory"]));
        ensure!(requested.is_some() && requested < limit, "{manifest}: {resources}");
        ensure!(resources["requests"]["cpu"].is_string(), "{manifest}: {resources}");
        ensure!(resources["limits"]["cpu"].is_null(), "{manifest}: a limit of CPU makes it late: {resources}");
    }
    Ok(())
}
