//! Disks that are full or read-only: agent and hub say so, change nothing they cannot remember, and go on by themselves.
//!
//! These are real: a file system of some megabytes takes the place of a data directory, which needs root. Disks that
//! fail or hang are in `faulty_disk.rs`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use tideline_tests::{
    Binaries, EmbeddedCluster, Scratch, ask_health, ask_metric, eventually_ok, met_or_skipped, require_binaries,
    test_name,
};

use crate::harness::{Agent, Hub, NAMESPACE, SOON, Site, command, fails};

const MISSING: &str = "a file system of its own cannot be mounted; run as root";

/// A file system mounted as a data directory.
struct Disk {
    directory: PathBuf,
}

impl Disk {
    /// Mounts one over `directory`, with its content; `None` where that is not permitted.
    fn over(directory: &Path, megabytes: u32) -> Result<Option<Self>> {
        let kept = Scratch::new("kept")?;
        run("cp", &["-a".as_ref(), directory.join(".").as_ref(), kept.path().as_ref()])?;
        let size = format!("size={megabytes}m,mode=700");
        let options = ["-t", "tmpfs", "-o", &size, "tmpfs"].map(AsRef::as_ref);
        if run("mount", &[&options[..], &[directory.as_ref()]].concat()).is_err() {
            return Ok(None);
        }
        let disk = Self { directory: directory.to_owned() };
        run("cp", &["-a".as_ref(), kept.join(".").as_ref(), directory.as_ref()])?;
        Ok(Some(disk))
    }

    /// Takes all room, but `left` bytes.
    fn fill(&self, left: u64) -> Result<()> {
        let mut file = File::create(self.directory.join("taken"))?;
        let bytes = [1; 4096];
        loop {
            match file.write_all(&bytes) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => return Err(error.into()),
            }
        }
        let length = file.metadata()?.len();
        file.set_len(length.saturating_sub(left))?;
        Ok(())
    }

    fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.directory.join("taken"))?)
    }

    async fn remount(&self, how: &str) -> Result<()> {
        let options = format!("remount,{how}");
        eventually_ok(SOON, "the file system to be mounted anew", async || {
            run("mount", &["-o".as_ref(), options.as_ref(), self.directory.as_ref()])
        })
        .await
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A destructor cannot report; what uses it still releases it when it ends.
        let _ = run("umount", &["-l".as_ref(), self.directory.as_ref()]);
    }
}

fn run(command: &str, arguments: &[&std::ffi::OsStr]) -> Result<()> {
    let status = Command::new(command).args(arguments).stderr(Stdio::null()).status().context(command.to_owned())?;
    ensure!(status.success(), "{command} ended with {status}");
    Ok(())
}

/// A hub, a cluster and an agent that kept it, stopped, with its data directory on a disk of its own.
struct Stopped {
    hub: Hub,
    cluster: EmbeddedCluster,
    agent: Agent,
    /// Before the directory that it is mounted in.
    disk: Disk,
    _scratch: Scratch,
}

async fn stopped(test: &str, binaries: &Binaries) -> Result<Option<Stopped>> {
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let hub = Hub::start(binaries).await?;
    let mut agent = hub.agent("store", &cluster).await?;
    hub.place_config_maps().await?;
    hub.delivers("before", &cluster).await?;
    agent.process.terminate()?;
    agent.process.wait(SOON).await?;
    let disk = met_or_skipped(test, Disk::over(&agent.data_dir(), 48), MISSING)?;
    Ok(disk.map(|disk| Stopped { hub, cluster, agent, disk, _scratch: scratch }))
}

#[tokio::test]
async fn an_agent_whose_disk_is_full_at_its_start_observes_and_goes_on_when_there_is_room() -> Result<()> {
    let binaries = require_binaries!();
    let Some(Stopped { hub, cluster, mut agent, disk, _scratch }) = stopped(&test_name!(), &binaries).await? else {
        return Ok(());
    };
    let _none = fs::remove_file(agent.data_dir().join("journal.reserve"));
    disk.fill(0)?;
    agent.resume()?;
    agent.says("only observes").await?;
    agent.waits_for_its_journal().await?;
    disk.empty()?;
    agent.says("the journal can be opened now").await?;
    agent.is_ready().await?;
    hub.delivers("after", &cluster).await
}

#[tokio::test]
async fn an_agent_whose_disk_fills_up_says_so_and_goes_on_when_there_is_room() -> Result<()> {
    let binaries = require_binaries!();
    let Some(Stopped { hub, cluster, mut agent, disk, _scratch }) = stopped(&test_name!(), &binaries).await? else {
        return Ok(());
    };
    agent.resume()?;
    agent.is_ready().await?;
    // So it has a session of this hub, which it writes before its first use.
    hub.delivers("again", &cluster).await?;
    disk.fill(1 << 20)?;
    let mended = async {
        agent.says("kB left").await?;
        agent.waits_for_its_journal().await?;
        disk.empty()?;
        agent.says("the journal takes writes again").await
    };
    tokio::try_join!(hub.delivers("later", &cluster), mended)?;
    agent.is_ready().await
}

#[tokio::test]
async fn an_agent_whose_disk_is_read_only_observes_until_it_is_not() -> Result<()> {
    let binaries = require_binaries!();
    let Some(Stopped { hub, cluster, mut agent, disk, _scratch }) = stopped(&test_name!(), &binaries).await? else {
        return Ok(());
    };
    disk.remount("ro").await?;
    agent.resume()?;
    agent.says("only observes").await?;
    agent.waits_for_its_journal().await?;
    disk.remount("rw").await?;
    agent.says("the journal can be opened now").await?;
    agent.is_ready().await?;
    hub.delivers("after", &cluster).await
}

/// Sets the size of the largest file that a process may write.
fn limit_files(process: u32, bytes: &str) -> Result<()> {
    run("prlimit", &[format!("--pid={process}").as_ref(), format!("--fsize={bytes}").as_ref()])
}

#[tokio::test]
async fn an_agent_that_may_not_write_large_files_lives_and_goes_on_when_it_may() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    let Site { hub, cluster, agent, .. } = &mut site;
    hub.place_config_maps().await?;
    hub.delivers("before", cluster).await?;
    let journal = fs::metadata(agent.data_dir().join("journal/db"))?.len();
    // Below the journal, and above the log, which is to go on.
    let limit = journal / 2;
    ensure!((agent.process.log().len() as u64) < limit / 2, "the log is as large as the journal of {journal} bytes");
    let allowed = "unlimited:unlimited";
    limit_files(agent.process.id(), &format!("{limit}:unlimited"))?;
    let mended = async {
        agent.says("File too large").await?;
        agent.waits_for_its_journal().await?;
        limit_files(agent.process.id(), allowed)?;
        agent.says("the journal takes writes again").await
    };
    tokio::try_join!(hub.delivers("later", cluster), mended)?;
    agent.is_ready().await?;
    hub.delivers("after", cluster).await
}

/// Of the hub: its reserve of 64 MiB, what has to be free beside it, and some for its store.
const HUB_MEGABYTES: u32 = 128;

/// A hub and its agent at work, with the data directory of the hub on a disk of its own.
async fn hub_on_a_disk(test: &str, binaries: &Binaries) -> Result<Option<(Site, Disk)>> {
    let mut site = Site::start(binaries).await?;
    site.hub.place_config_maps().await?;
    site.delivers("before").await?;
    site.delivers("more").await?;
    site.hub.process.terminate()?;
    site.hub.process.wait(SOON).await?;
    let Some(disk) = met_or_skipped(test, Disk::over(&site.hub.data_dir(), HUB_MEGABYTES), MISSING)? else {
        return Ok(None);
    };
    site.hub.resume().await?;
    let reserve = site.hub.data_dir().join("store.reserve");
    eventually_ok(SOON, "the reserve", async || {
        ensure!(fs::metadata(&reserve)?.blocks() * 512 >= 64 << 20, "it takes no room");
        Ok(())
    })
    .await?;
    Ok(Some((site, disk)))
}

/// It says that it waits for room, is read, and deletes this ConfigMap in the cluster, and makes none.
async fn serves_deletions_alone(site: &Site, name: &str) -> Result<()> {
    let health = site.hub.health;
    eventually_ok(SOON, "the hub to wait for room", async || {
        let (code, body) = ask_health(health, "/readyz").await?;
        ensure!(code == 503 && body.contains("room on the disk"), "/readyz says {code}: {body}");
        let full = ask_metric(health, "tideline_hub_store_state{state=\"full\"}").await?;
        ensure!(full == Some(1), "{full:?}");
        ensure!(ask_health(health, "/livez").await?.0 == 200, "it lives");
        Ok(())
    })
    .await?;
    let space = Api::<ConfigMap>::namespaced(site.hub.client("default").await?, NAMESPACE);
    space.get(name).await?;
    let refused = site.hub.makes("new").await.err().context("it made something")?;
    ensure!(format!("{refused:#}").contains("its disk is full"), "{refused:#}");
    space.delete(name, &DeleteParams::default()).await?;
    let there = Api::<ConfigMap>::namespaced(site.cluster.client(), NAMESPACE);
    eventually_ok(SOON, &format!("{name} to be removed"), async || {
        ensure!(there.get_opt(name).await?.is_none(), "it is there");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hub_whose_disk_is_full_at_its_start_serves_deletions_and_goes_on_when_there_is_room() -> Result<()> {
    let binaries = require_binaries!();
    let Some((mut site, disk)) = hub_on_a_disk(&test_name!(), &binaries).await? else { return Ok(()) };
    site.hub.process.kill()?;
    disk.fill(0)?;
    site.hub.begin()?;
    serves_deletions_alone(&site, "before").await?;
    disk.empty()?;
    site.hub.serves().await?;
    site.delivers("after").await
}

#[tokio::test]
async fn a_hub_whose_disk_fills_up_serves_deletions_and_goes_on_when_there_is_room() -> Result<()> {
    let binaries = require_binaries!();
    let Some((mut site, disk)) = hub_on_a_disk(&test_name!(), &binaries).await? else { return Ok(()) };
    disk.fill(0)?;
    // What meets it first is written into the room of the reserve.
    for nth in 0..1_000 {
        if site.hub.makes(&format!("n{nth:03}")).await.is_err() {
            break;
        }
    }
    serves_deletions_alone(&site, "before").await?;
    disk.empty()?;
    site.hub.serves().await?;
    site.delivers("after").await
}

#[tokio::test]
async fn a_hub_is_not_begun_on_a_disk_without_room() -> Result<()> {
    let binaries = require_binaries!();
    let dir = Scratch::new("hub")?;
    let Some(_disk) = met_or_skipped(&test_name!(), Disk::over(dir.path(), 48), MISSING)? else { return Ok(()) };
    let data_dir = dir.path().display().to_string();
    let mut hub = command(binaries.hub(), &["serve", "--data-dir", &data_dir, "--listen", "127.0.0.1:0"]);
    hub.args(["--health-listen", "127.0.0.1:0"]);
    fails(&mut hub, 1, &["there is no room for a hub", &data_dir, "of 96 that are needed"]).await?;
    ensure!(fs::read_dir(dir.path())?.next().is_none(), "nothing is begun");
    Ok(())
}
