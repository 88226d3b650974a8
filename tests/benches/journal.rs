//! What the agent's journal costs: a first sync into it, opening it with nothing changed, a set in which everything changed and
//! one in which everything is removed, and memory and disk at rest; and a year at a site, as fast as the disk takes it.
//!
//! Each step is a process of its own, so that one does not show the other's memory.

#[path = "shared/gate.rs"]
mod gate;
#[path = "../../agent/src/heap.rs"]
mod heap;
#[path = "journal/year.rs"]
mod year;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::{from_value, json};
use tideline_agent::core::{Loaded, RemovalPolicy, Write};
use tideline_agent::journal::Journal;
use tideline_common::wire::v1::{Accepted, Attested};
use tideline_common::{
    ApplyPolicy, Attestation, DesiredSet, Digest, Entry, EntryState, Epoch, GroupKind, ObjectKey, Origin, Revision,
    RevisionPoint, Shown, SourceRef, SpaceName, TargetId, Tombstone, Version,
};
use tideline_tests::Scratch;
use tokio::time::sleep;
use uuid::Uuid;

const MEBIBYTE: f64 = 1_048_576.0;
/// Bodies and records that come in one write, as an agent at work has them.
const BODIES_AT_ONCE: usize = 512;
const RECORDS_AT_ONCE: usize = 32;
/// Until the journal has given back what it needs no more.
const REST: Duration = Duration::from_secs(50);

/// Measures the agent's journal
#[derive(Parser)]
struct Arguments {
    /// Objects in it; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,50000")]
    objects: Vec<u32>,
    /// One step alone; a year at a site is none of the others
    #[arg(long, value_enum)]
    step: Option<Step>,
    #[arg(long, hide = true)]
    directory: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Step {
    Fill,
    Open,
    Change,
    Remove,
    /// A year at a site: what it takes on disk, against the bound and a file that is only appended to
    Year,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    let Some(Arguments { objects, step, directory }) = gate::arguments() else { return Ok(ExitCode::SUCCESS) };
    match (step, directory, objects.first()) {
        (Some(Step::Fill), Some(directory), Some(objects)) => fill(&directory, *objects).await?,
        (Some(Step::Open), Some(directory), Some(_)) => open(&directory).await?,
        (Some(Step::Change), Some(directory), Some(_)) => change(&directory).await?,
        (Some(Step::Remove), Some(directory), Some(_)) => remove(&directory).await?,
        (Some(Step::Year), None, Some(_)) => year::run(&objects).await?,
        _ => {
            println!(
                "| objects | step | seconds | RSS before, MB | RSS after | at rest | peak | disk, MB | written, MB |"
            );
            println!("|---|---|---|---|---|---|---|---|---|");
            for objects in objects {
                let directory = Scratch::new("journal")?;
                for step in ["fill", "open", "open", "change", "remove"] {
                    let mut command = Command::new(std::env::current_exe()?);
                    command.args(["--bench", "--step", step, "--objects", &objects.to_string()]);
                    ensure!(command.arg("--directory").arg(directory.path()).status()?.success(), "{step} failed");
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a set and its bodies, then reads each body and records it as applied.
async fn fill(directory: &Path, count: u32) -> Result<()> {
    let entries: Vec<_> = (0..count).map(entry).collect();
    let before = resident("VmRSS")?;
    let begun = Instant::now();
    let (journal, _) = Journal::open(&directory.join("journal"))?;
    write_bodies(&journal, &entries).await?;
    journal.write(vec![accept(1, &entries, Vec::new())]).await?;
    // In the order in which they are worked off: by key.
    for some in entries.chunks(RECORDS_AT_ONCE) {
        for entry in some {
            ensure!(!journal.body(entry.input)?.is_empty(), "a body has text");
        }
        journal.write(some.iter().map(|entry| applied(entry)).collect::<Result<Vec<_>>>()?).await?;
    }
    report("fill", count, begun.elapsed(), before, journal.bytes()).await
}

async fn open(directory: &Path) -> Result<()> {
    let before = resident("VmRSS")?;
    let begun = Instant::now();
    let (journal, loaded) = Journal::open(&directory.join("journal"))?;
    let took = begun.elapsed();
    let count = u32::try_from(loaded.entries.len())?;
    report("open", count, took, before, journal.bytes()).await?;
    drop(loaded);
    Ok(())
}

/// Writes a set with another body for each object, and drops the former bodies.
async fn change(directory: &Path) -> Result<()> {
    let before = resident("VmRSS")?;
    let begun = Instant::now();
    let (journal, Loaded { mut entries, .. }) = Journal::open(&directory.join("journal"))?;
    let former = entries.iter().map(|entry| entry.input).collect();
    for entry in &mut entries {
        let changed = Entry { input: Digest::of(entry.input.as_bytes()), ..Entry::clone(entry) };
        *entry = Arc::new(changed);
    }
    write_bodies(&journal, &entries).await?;
    journal.write(vec![accept(2, &entries, Vec::new())]).await?;
    journal.write(vec![Write::DropBodies(former)]).await?;
    report("change", u32::try_from(entries.len())?, begun.elapsed(), before, journal.bytes()).await
}

/// Writes an empty set with the removals of what was in the former, and drops its bodies.
async fn remove(directory: &Path) -> Result<()> {
    let before = resident("VmRSS")?;
    let begun = Instant::now();
    let (journal, Loaded { entries, .. }) = Journal::open(&directory.join("journal"))?;
    let mut writes = vec![accept(3, &[], entries.iter().map(|entry| entry.key.clone()).collect())];
    writes.extend(entries.iter().map(|entry| Write::Removing {
        tombstone: Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() },
        policy: RemovalPolicy::default(),
    }));
    journal.write(writes).await?;
    journal.write(vec![Write::DropBodies(entries.iter().map(|entry| entry.input).collect())]).await?;
    report("remove", u32::try_from(entries.len())?, begun.elapsed(), before, journal.bytes()).await
}

async fn write_bodies(journal: &Journal, entries: &[Arc<Entry>]) -> Result<()> {
    for (index, some) in entries.chunks(BODIES_AT_ONCE).enumerate() {
        let first = u32::try_from(index * BODIES_AT_ONCE)?;
        let body = |(n, entry): (u32, &Arc<Entry>)| Write::Body { input: entry.input, text: body(n) };
        journal.write((first..).zip(some).map(body).collect::<Vec<_>>()).await?;
    }
    Ok(())
}

/// The write that switches to the set of `entries`.
fn accept(revision: u64, entries: &[Arc<Entry>], remove: Vec<ObjectKey>) -> Write {
    let set: DesiredSet = entries.iter().cloned().collect();
    let version = Version { epoch: Epoch(1), revision: Revision(revision) };
    let shown = Shown { version, point: RevisionPoint::NOWHERE };
    let attestation = Attestation::unsigned(TargetId::from_uuid(uuid::Uuid::nil()), shown);
    let accepted = Attested { set: Accepted { version, digest: set.digest() }, attestation };
    Write::Accept {
        accepted: Box::new(accepted),
        put: entries.to_vec(),
        remove,
        policies: [Arc::new(ApplyPolicy::default())].map(|policy| (policy.digest(), policy)).into(),
    }
}

async fn report(step: &str, objects: u32, took: Duration, before: f64, bytes: u64) -> Result<()> {
    let after = resident("VmRSS")?;
    sleep(REST).await;
    let (rest, peak, written) = (resident("VmRSS")?, resident("VmHWM")?, written()?);
    println!(
        "| {objects} | {step} | {:.2} | {before:.1} | {after:.1} | {rest:.1} | {peak:.1} | {:.1} | {written:.1} |",
        took.as_secs_f64(),
        f64::from(u32::try_from(bytes >> 10)?) / 1024.0,
    );
    Ok(())
}

/// Megabytes of this process's memory.
fn resident(field: &str) -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().strip_suffix(" kB"));
    Ok(line.with_context(|| format!("there is no {field}"))?.parse::<f64>()? / 1024.0)
}

/// Megabytes that this process had written to disks.
fn written() -> Result<f64> {
    let counts = fs::read_to_string("/proc/self/io").or_else(|error| match error.kind() {
        // A kernel without accounting.
        io::ErrorKind::NotFound => Ok("write_bytes: 0".to_owned()),
        _ => Err(error),
    })?;
    let line = counts.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.context("there is no count of bytes written")?.parse::<f64>()? / MEBIBYTE)
}

fn entry(n: u32) -> Arc<Entry> {
    let (group, kind, version) = if n % 5 < 3 { ("", "ConfigMap", "v1") } else { ("apps", "Deployment", "v1") };
    let uid = Uuid::from_u128(u128::from(n) << 64 | 0x4000_8000_0000_0000);
    Arc::new(Entry {
        key: ObjectKey::new(GroupKind::new(group, kind), format!("bench-{:02}", n % 50), format!("object-{n:05}")),
        version: version.into(),
        source: SourceRef {
            space: SpaceName::root(),
            uid: uid.to_string().parse().expect("a UID"),
            namespace: format!("bench-{:02}", n % 50).into(),
            name: format!("object-{n:05}").into(),
        },
        generation: 1,
        state: EntryState::Apply,
        input: Digest::of(&n.to_be_bytes()),
        policy: ApplyPolicy::default().digest(),
        wave: 0,
        impersonate: None,
        implied: false,
    })
}

/// Of 1 KB or 2.5 KB, a third of which does not compress.
fn body(n: u32) -> Arc<str> {
    let size = if n % 5 < 3 { 1_000 } else { 2_500 };
    let mut text =
        format!("{{\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"object-{n:05}\"}},\"data\":{{\"text\":\"");
    let mut state = u64::from(n) + 1;
    while text.len() < size / 3 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let _infallible = write!(text, "{state:016x}");
    }
    while text.len() < size {
        text.push_str("the quick brown fox jumps over the lazy dog, ");
    }
    text.push_str("\"}}");
    text.into()
}

fn applied(entry: &Entry) -> Result<Write> {
    let record = json!({
        "uid": entry.source.uid, "version": entry.version, "source": entry.source.uid, "input": entry.input,
        "policy": entry.policy, "source_generation": 1, "managed": entry.input, "generation": 1,
        "resource_version": "123456", "origin": Origin::Created, "posted": true, "implied": false,
    });
    Ok(Write::Applied { key: entry.key.clone(), record: from_value(record)? })
}
