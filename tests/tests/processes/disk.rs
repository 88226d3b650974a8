//! Disks that are full or read-only: the agent says so, changes nothing it cannot remember, and goes on by itself.
//!
//! These are real: a file system of some megabytes takes the place of the agent's data directory, which needs root. Disks that
//! fail or hang are in `faulty_disk.rs`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tideline_tests::{EmbeddedCluster, Scratch, eventually_ok, met_or_skipped, require_binaries, test_name};

use crate::harness::{Agent, Hub, SOON, Site};

const MISSING: &str = "a file system of its own cannot be mounted; run as root";

/// A file system mounted as a data directory.
struct Disk {
    directory: PathBuf,
}

impl Disk {
    /// Mounts one over `directory`, with its content; `None` where that is not permitted.
    fn over(directory: &Path) -> Result<Option<Self>> {
        let kept = Scratch::new("kept")?;
        run("cp", &["-a".as_ref(), directory.join(".").as_ref(), kept.path().as_ref()])?;
        let options = ["-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs"].map(AsRef::as_ref);
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

async fn stopped(test: &str, binaries: &tideline_tests::Binaries) -> Result<Option<Stopped>> {
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let hub = Hub::start(binaries).await?;
    let mut agent = hub.agent("store", &cluster).await?;
    hub.place_config_maps().await?;
    hub.delivers("before", &cluster).await?;
    agent.process.terminate()?;
    agent.process.wait(SOON).await?;
    let disk = met_or_skipped(test, Disk::over(&agent.data_dir()), MISSING)?;
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
