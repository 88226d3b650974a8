//! Disks that fail or hang under a running agent: it says so, loses nothing, and goes on by itself, or ends so that it can
//! be started again.
//!
//! No medium breaks on demand, so a library between the agent and its disk fails; see `faulty_disk.c`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use tideline_tests::{Binaries, Scratch, eventually_ok, require_binaries, run_to_end};

use crate::harness::{NAMESPACE, SOON, Site};

/// By Kubernetes, unless a manifest says otherwise, and none does.
const KILLED_AFTER: Duration = Duration::from_secs(30);
/// The agent waits 70 s for its disk, and ends within some.
const GIVEN_UP: Duration = Duration::from_secs(110);

/// The fault.
#[derive(Clone, Copy, Debug)]
enum Fault {
    WritesFail,
    SyncsFail,
    /// And syncs.
    WritesHang,
    ReadsFail,
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::WritesFail => "writes-fail",
            Self::SyncsFail => "syncs-fail",
            Self::WritesHang => "writes-hang",
            Self::ReadsFail => "reads-fail",
        }
    }
}

/// The library, built, and the file that controls it.
struct FaultyDisk {
    dir: Scratch,
}

impl FaultyDisk {
    async fn built() -> Result<Self> {
        let dir = Scratch::new("faulty-disk")?;
        let source = dir.join("faulty_disk.c");
        fs::write(&source, include_str!("faulty_disk.c"))?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(dir.join("faulty_disk.so")).arg(&source);
        let built = run_to_end(&mut cc, "", SOON).await?;
        ensure!(built.status.success(), "{}", built.stderr);
        Ok(Self { dir })
    }

    /// What a process is started with to meet it below `path`.
    fn environment(&self, path: &Path) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.dir.join("faulty_disk.so").into()),
            ("TIDELINE_FAULTS", self.dir.path().into()),
            ("TIDELINE_FAULTY", path.into()),
        ]
    }

    fn begin(&self, fault: Fault) -> Result<()> {
        let _none = fs::remove_file(self.hits());
        Ok(fs::write(self.dir.join(fault.name()), "")?)
    }

    fn end(&self, fault: Fault) -> Result<()> {
        Ok(fs::remove_file(self.dir.join(fault.name()))?)
    }

    fn hits(&self) -> PathBuf {
        self.dir.join("hits")
    }

    /// Waits until something was hit since the fault began.
    async fn strikes(&self) -> Result<()> {
        eventually_ok(SOON, "the disk to be used", async || fs::metadata(self.hits())).await?;
        Ok(())
    }
}

/// A site whose agent kept its cluster before its disk was replaced by a faulty one, stopped.
async fn stopped(binaries: &Binaries, path: impl FnOnce(PathBuf) -> PathBuf) -> Result<(Site, FaultyDisk)> {
    let disk = FaultyDisk::built().await?;
    let mut site = Site::start(binaries).await?;
    site.hub.place_config_maps().await?;
    site.delivers("before").await?;
    site.agent.process.terminate()?;
    site.agent.process.wait(SOON).await?;
    let path = path(site.agent.data_dir());
    site.agent.environ(disk.environment(&path));
    Ok((site, disk))
}

/// Starts the agent again, with the disk at work until it has a session of this hub, which it writes before its first use.
async fn goes_on(site: &mut Site) -> Result<()> {
    site.agent.resume()?;
    site.agent.is_ready().await?;
    site.delivers("again").await
}

/// All of it is in the journal: without the hub the agent recreates what is deleted while it is down.
async fn remembers(site: &mut Site, names: &[&str]) -> Result<()> {
    site.agent.process.kill()?;
    site.hub.process.kill()?;
    let config_maps = Api::<ConfigMap>::namespaced(site.cluster.client(), NAMESPACE);
    for name in names {
        config_maps.delete(name, &DeleteParams::default()).await?;
    }
    site.agent.resume()?;
    for name in names {
        eventually_ok(SOON, &format!("{name} to be back"), async || config_maps.get(name).await).await?;
    }
    Ok(())
}

async fn goes_on_after(fault: Fault, binaries: &Binaries) -> Result<()> {
    let (mut site, disk) = stopped(binaries, |data_dir| data_dir).await?;
    goes_on(&mut site).await?;
    disk.begin(fault)?;
    let Site { hub, cluster, agent, .. } = &mut site;
    let mended = async {
        agent.says("Input/output error").await?;
        agent.waits_for_its_journal().await?;
        disk.end(fault)?;
        agent.says("the journal takes writes again").await
    };
    tokio::try_join!(hub.delivers("later", cluster), mended)?;
    agent.is_ready().await?;
    hub.delivers("after", cluster).await?;
    ensure!(!agent.data_dir().join("journal.damaged-1").exists(), "what is there is not damaged");
    remembers(&mut site, &["before", "later", "after"]).await
}

#[tokio::test]
async fn an_agent_whose_disk_fails_to_write_says_so_and_goes_on_when_it_works() -> Result<()> {
    goes_on_after(Fault::WritesFail, &require_binaries!()).await
}

#[tokio::test]
async fn an_agent_whose_disk_fails_to_sync_says_so_and_goes_on_when_it_works() -> Result<()> {
    goes_on_after(Fault::SyncsFail, &require_binaries!()).await
}

#[tokio::test]
async fn an_agent_whose_journal_cannot_be_read_begins_another_and_writes_nothing_twice() -> Result<()> {
    let binaries = require_binaries!();
    let (mut site, disk) = stopped(&binaries, |data_dir| data_dir.join("journal")).await?;
    let config_maps = Api::<ConfigMap>::namespaced(site.cluster.client(), NAMESPACE);
    let before = config_maps.get("before").await?;
    disk.begin(Fault::ReadsFail)?;
    site.agent.resume()?;
    site.agent.says("cannot be used (cannot open").await?;
    site.delivers("later").await?;
    site.agent.is_ready().await?;
    disk.end(Fault::ReadsFail)?;
    assert_eq!(config_maps.get("before").await?.metadata.resource_version, before.metadata.resource_version);
    remembers(&mut site, &["before", "later"]).await
}

#[tokio::test]
async fn an_agent_whose_disk_hangs_says_so_and_ends_to_be_started_again() -> Result<()> {
    let mut hanging = Hanging::once_ready(&require_binaries!()).await?;
    let agent = &mut hanging.site.agent;
    agent.says("journal write blocked").await?;
    agent.waits_for_its_journal().await?;
    let status = agent.process.wait(GIVEN_UP).await?;
    ensure!(status.code() == Some(1), "it ended with {status}");
    agent.says("The agent must be started again").await?;
    hanging.over().await
}

#[tokio::test]
async fn an_agent_that_is_asked_to_stop_while_its_disk_hangs_ends_before_it_is_killed() -> Result<()> {
    let mut hanging = Hanging::once_ready(&require_binaries!()).await?;
    hanging.ends_when_asked().await?;
    hanging.over().await
}

/// The journal is not open yet, and what opens it hears of no stop.
#[tokio::test]
async fn an_agent_whose_disk_hangs_at_its_start_ends_before_it_is_killed() -> Result<()> {
    let mut hanging = Hanging::from_the_start(&require_binaries!()).await?;
    hanging.ends_when_asked().await?;
    hanging.over().await
}

/// An agent whose writes hang, with an object that was placed before.
struct Hanging {
    site: Site,
    disk: FaultyDisk,
}

impl Hanging {
    async fn from_the_start(binaries: &Binaries) -> Result<Self> {
        let (mut site, disk) = stopped(binaries, |data_dir| data_dir).await?;
        disk.begin(Fault::WritesHang)?;
        site.agent.resume()?;
        Ok(Self { site, disk })
    }

    async fn once_ready(binaries: &Binaries) -> Result<Self> {
        let (mut site, disk) = stopped(binaries, |data_dir| data_dir).await?;
        goes_on(&mut site).await?;
        disk.begin(Fault::WritesHang)?;
        site.hub.makes("later").await?;
        Ok(Self { site, disk })
    }

    async fn ends_when_asked(&mut self) -> Result<()> {
        self.disk.strikes().await?;
        self.site.agent.process.terminate()?;
        self.site.agent.process.wait(KILLED_AFTER).await?;
        Ok(())
    }

    /// The agent is started again with a disk that works, and goes on.
    async fn over(mut self) -> Result<()> {
        self.disk.end(Fault::WritesHang)?;
        self.site.agent.resume()?;
        self.site.delivers("after").await?;
        remembers(&mut self.site, &["before", "after"]).await
    }
}
