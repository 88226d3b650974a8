//! A year at a site: what its journal takes on disk.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use tideline_agent::core::{RemovalPolicy, Write};
use tideline_agent::journal::{Journal, disk_bytes_max};
use tideline_common::ObjectKey;
use tideline_common::health::Health;
use tideline_common::wire::v1::{ObjectReport, Progress, Terminal};
use tideline_common::{Digest, Entry, Tombstone};
use tideline_tests::Scratch;

use super::{BODIES_AT_ONCE, MEBIBYTE, RECORDS_AT_ONCE, accept, applied, body, entry};

const DAYS: u32 = 365;
/// Of so many objects, one has another body each day.
const CHANGES_OF: u32 = 50;
/// Of so many objects, one goes each week, and another comes.
const GOES_OF: u32 = 100;
/// Days between two starts of the agent.
const RESTART_DAYS: u32 = 3;
/// Jobs that end each hour, and what is remembered of those of objects that went.
const JOBS_AN_HOUR: u32 = 4;
const RAN_MAX: u64 = 500;
/// How often the directory is measured while the year passes.
const MEASURED_EVERY: Duration = Duration::from_millis(5);

/// Prints a table with a row for each number of objects.
pub(super) async fn run(objects: &[u32]) -> Result<()> {
    println!(
        "| objects | live at most, MB | disk at most, MB | ratio | bound, MB | disk at the end, MB | appended only, MB | \
         writes | minutes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for objects in objects {
        let directory = Scratch::new("journal-year")?;
        let begun = Instant::now();
        let measure = Measure::begin(directory.path().to_owned())?;
        let mut site = Site::new(directory.path().join("journal"), *objects)?;
        site.begin().await?;
        for day in 0..DAYS {
            site.day(day).await?;
        }
        let Site { journal, live, appended, writes, .. } = site;
        drop(journal);
        let (most, last) = measure.end();
        let bound = disk_bytes_max(live);
        println!(
            "| {objects} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {writes} | {:.1} |",
            mebibytes(live),
            mebibytes(most),
            ratio(most, live),
            mebibytes(bound),
            mebibytes(last),
            mebibytes(appended),
            begun.elapsed().as_secs_f64() / 60.0
        );
        ensure!(most <= bound, "{most} bytes were taken, and {bound} is the bound for {live}");
    }
    Ok(())
}

struct Site {
    path: PathBuf,
    journal: Option<Journal>,
    /// By number; the body that each has is of that revision.
    entries: BTreeMap<u32, Arc<Entry>>,
    next: u32,
    revision: u64,
    ran: u64,
    passed: u64,
    live: u64,
    appended: u64,
    writes: u64,
}

impl Site {
    fn new(path: PathBuf, objects: u32) -> Result<Self> {
        let journal = Some(Journal::open(&path)?.0);
        let entries = (0..objects).map(|n| (n, entry(n))).collect();
        let (next, revision, ran, passed) = (objects, 0, 0, 0);
        Ok(Self { path, journal, entries, next, revision, ran, passed, live: 0, appended: 0, writes: 0 })
    }

    async fn begin(&mut self) -> Result<()> {
        let entries: Vec<_> = self.entries.values().cloned().collect();
        for (index, some) in entries.chunks(BODIES_AT_ONCE).enumerate() {
            let first = u32::try_from(index * BODIES_AT_ONCE)?;
            let body = |(n, entry): (u32, &Arc<Entry>)| Write::Body { input: entry.input, text: body(n) };
            self.write((first..).zip(some).map(body).collect()).await?;
        }
        self.switch(&entries, Vec::new(), Vec::new()).await?;
        self.apply(&entries).await
    }

    async fn day(&mut self, day: u32) -> Result<()> {
        let numbers: Vec<_> = self.entries.keys().copied().collect();
        let changing = numbers.iter().copied().filter(|n| (n + day).is_multiple_of(CHANGES_OF));
        self.change(&changing.collect::<Vec<_>>()).await?;
        for hour in 0..24 {
            self.hour(&numbers, day * 24 + hour).await?;
        }
        if day.is_multiple_of(7) {
            let going = numbers.iter().copied().filter(|n| (n + day / 7).is_multiple_of(GOES_OF));
            self.replace(&going.collect::<Vec<_>>()).await?;
        }
        if day.is_multiple_of(RESTART_DAYS) {
            self.restart()?;
        }
        Ok(())
    }

    /// Other bodies of some objects come, then the set that names them; then they are applied, and the former go.
    async fn change(&mut self, numbers: &[u32]) -> Result<()> {
        let (mut changed, mut former, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for n in numbers {
            let entry = self.entries.get_mut(n).context("it is assigned")?;
            former.push(entry.input);
            *entry = Arc::new(Entry { input: Digest::of(entry.input.as_bytes()), ..Entry::clone(entry) });
            let number = n.wrapping_add(u32::try_from(self.revision)?.wrapping_mul(7_919));
            bodies.push(Write::Body { input: entry.input, text: body(number) });
            changed.push(Arc::clone(entry));
        }
        self.write(bodies).await?;
        self.switch(&changed, Vec::new(), Vec::new()).await?;
        self.apply(&changed).await?;
        self.write(vec![Write::DropBodies(former)]).await
    }

    /// Some Jobs end, which the hub takes note of.
    async fn hour(&mut self, numbers: &[u32], hour: u32) -> Result<()> {
        let of = |job: u32| numbers[(hour * JOBS_AN_HOUR + job) as usize % numbers.len()];
        let jobs: Vec<_> = (0..JOBS_AN_HOUR).map(|job| Arc::clone(&self.entries[&of(job)])).collect();
        self.write(jobs.iter().map(|entry| Write::Unsent(Box::new(ended(entry)))).collect()).await?;
        let mut sent: Vec<_> = jobs.iter().map(|entry| Write::Sent { key: entry.key.clone() }).collect();
        self.passed += 1;
        sent.push(Write::Passed { number: self.passed, tombstone: tombstone(&jobs[0]) });
        sent.extend(self.passed.checked_sub(2).map(|number| Write::Lapsed { number }));
        self.write(sent).await
    }

    /// Some objects go, with what they left, and others come.
    async fn replace(&mut self, numbers: &[u32]) -> Result<()> {
        let gone: Vec<_> = numbers.iter().filter_map(|n| self.entries.remove(n)).collect();
        let mut come = Vec::new();
        for _ in &gone {
            let new = entry(self.next);
            self.write(vec![Write::Body { input: new.input, text: body(self.next) }]).await?;
            self.entries.insert(self.next, Arc::clone(&new));
            come.push(new);
            self.next += 1;
        }
        let removing =
            |entry: &Arc<Entry>| Write::Removing { tombstone: tombstone(entry), policy: RemovalPolicy::default() };
        let keys = gone.iter().map(|entry| entry.key.clone()).collect();
        self.switch(&come, keys, gone.iter().map(removing).collect()).await?;
        self.apply(&come).await?;
        let mut done = Vec::new();
        for entry in &gone {
            done.push(Write::Removed(tombstone(entry)));
            done.push(Write::Forgotten { key: entry.key.clone() });
            self.ran += 1;
            done.push(Write::Ran { number: self.ran, tombstone: tombstone(entry) });
            done.extend(self.ran.checked_sub(RAN_MAX).map(|number| Write::RanForgotten { number }));
        }
        self.write(done).await?;
        self.write(vec![Write::DropBodies(gone.iter().map(|entry| entry.input).collect())]).await
    }

    async fn switch(&mut self, put: &[Arc<Entry>], remove: Vec<ObjectKey>, with: Vec<Write>) -> Result<()> {
        self.revision += 1;
        let all: Vec<_> = self.entries.values().cloned().collect();
        let mut writes = vec![accept(self.revision, &all, remove)];
        if let Write::Accept { put: all, .. } = &mut writes[0] {
            *all = put.to_vec();
        }
        writes.extend(with);
        self.write(writes).await
    }

    async fn apply(&mut self, entries: &[Arc<Entry>]) -> Result<()> {
        for some in entries.chunks(RECORDS_AT_ONCE) {
            self.write(some.iter().map(|entry| applied(entry)).collect::<Result<_>>()?).await?;
        }
        Ok(())
    }

    async fn write(&mut self, writes: Vec<Write>) -> Result<()> {
        for write in &writes {
            self.appended += plain(write)?;
        }
        self.writes += 1;
        let journal = self.journal.as_ref().context("it is open")?;
        journal.write(writes).await?;
        self.live = self.live.max(journal.live_bytes());
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        // It is closed before it is opened.
        drop(self.journal.take());
        self.journal = Some(Journal::open(&self.path)?.0);
        Ok(())
    }
}

/// Bytes that a file takes to which the same is appended, and which nobody ever rewrites: each record as JSON, each body
/// compressed.
fn plain(write: &Write) -> Result<u64> {
    let json = match write {
        Write::Body { input, text } => {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes())?;
            return Ok((input.as_bytes().len() + encoder.finish()?.len()) as u64);
        }
        Write::Accept { accepted, put, remove, policies } => serde_json::to_vec(&(accepted, put, remove, policies)),
        Write::Applied { key, record } => serde_json::to_vec(&(key, record)),
        Write::Unsent(report) => serde_json::to_vec(report),
        Write::Forgotten { key } | Write::Sent { key } => serde_json::to_vec(key),
        Write::Removing { tombstone, policy } => serde_json::to_vec(&(tombstone, policy)),
        Write::Removed(tombstone) => serde_json::to_vec(tombstone),
        Write::Passed { number, tombstone } | Write::Ran { number, tombstone } => {
            serde_json::to_vec(&(number, tombstone))
        }
        Write::Lapsed { number } | Write::RanForgotten { number } => serde_json::to_vec(number),
        Write::DropBodies(inputs) => serde_json::to_vec(inputs),
        other => anyhow::bail!("the year has no {other:?}"),
    };
    Ok(json?.len() as u64)
}

fn tombstone(entry: &Entry) -> Tombstone {
    Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() }
}

fn ended(entry: &Entry) -> ObjectReport {
    ObjectReport {
        key: entry.key.clone(),
        source_uid: entry.source.uid.clone(),
        progress: Progress::Applied,
        reason: None,
        message: "it ran".to_owned(),
        input: Some(entry.input),
        health: Health::Ready,
        observed_generation: Some(1),
        terminal: Some(Terminal::Finished),
        status: None,
    }
}

/// Measures a directory on a thread of its own, for a journal that is written anew takes most while that lasts.
struct Measure {
    directory: PathBuf,
    most: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Measure {
    fn begin(directory: PathBuf) -> Result<Self> {
        let (most, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::Builder::new().name("measure".to_owned()).spawn({
            let (directory, most, ended) = (directory.clone(), Arc::clone(&most), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    most.fetch_max(bytes(&directory), Ordering::Relaxed);
                    std::thread::sleep(MEASURED_EVERY);
                }
            }
        })?;
        Ok(Self { directory, most, ended, thread })
    }

    /// Returns the most that it took, and what it takes now.
    fn end(self) -> (u64, u64) {
        self.ended.store(true, Ordering::Relaxed);
        // It ends by itself, and what it measured is there whatever became of it.
        let _ = self.thread.join();
        (self.most.load(Ordering::Relaxed), bytes(&self.directory))
    }
}

/// Bytes below a directory. What goes meanwhile takes none.
fn bytes(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |file: fs::DirEntry| match file.metadata() {
        Ok(found) if found.is_dir() => bytes(&file.path()),
        Ok(found) => found.len(),
        Err(_gone) => 0,
    };
    files.map(size).sum()
}

fn mebibytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) * 1_024.0 / MEBIBYTE
}

fn ratio(most: u64, live: u64) -> f64 {
    mebibytes(most) / mebibytes(live)
}
