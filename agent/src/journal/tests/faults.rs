//! What a bad disk does: truncation, zeroed pages, missing files; full, read-only and failing disks.
//!
//! File systems that are full or read-only are real ones, mounted by root; without root these tests say that they were
//! skipped. There is one that needs nobody: `/dev/full`, and `/proc/self/mem`, whose first page nobody may touch.
//!
//! sled that hangs holds a lock that all of its databases in a process share. A test that may hang runs in a process of its
//! own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::super::bodies::Numbers;
use super::super::slot::Activity;
use super::cuts::{just_switched, open, staged};
use super::*;
use crate::write_watchdog;

/// Longest wait for what takes a second.
const SOON: Duration = Duration::from_mins(1);

/// A file system of its own, of some megabytes.
struct Disk {
    directory: tempfile::TempDir,
}

impl Disk {
    /// None, said aloud, if it cannot be mounted.
    fn mounted(megabytes: u32) -> Result<Option<Self>, anyhow::Error> {
        let directory = tempfile::tempdir()?;
        let size = format!("size={megabytes}m");
        let mounted = run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], directory.path())?;
        if !mounted {
            eprintln!("SKIPPED: a disk of its own cannot be mounted; run as root");
            anyhow::ensure!(std::env::var("CI").is_err() || !is_root(), "root must be able to mount in CI");
            return Ok(None);
        }
        Ok(Some(Self { directory }))
    }

    fn journal(&self) -> std::path::PathBuf {
        self.directory.path().join("journal")
    }

    /// Takes all room but `left` bytes.
    fn fill(&self, left: u64) -> Result<(), anyhow::Error> {
        let disk = rustix::fs::statvfs(self.directory.path())?;
        let taken = (disk.f_bavail * disk.f_frsize).saturating_sub(left);
        fs::write(self.directory.path().join("taken"), vec![1; usize::try_from(taken)?])?;
        Ok(())
    }

    fn empty(&self) -> std::io::Result<()> {
        fs::remove_file(self.directory.path().join("taken"))
    }

    fn remount(&self, how: &str) -> Result<(), anyhow::Error> {
        // Threads of a journal that was just closed may have its files open for a moment.
        let until = std::time::Instant::now() + SOON;
        while !run("mount", &["-o", &format!("remount,{how}")], self.directory.path())? {
            anyhow::ensure!(std::time::Instant::now() < until, "remount,{how}");
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a thread of an engine may still close its files.
        let _ = run("umount", &["-l"], self.directory.path());
    }
}

fn run(command: &str, arguments: &[&str], path: &Path) -> std::io::Result<bool> {
    let outcome =
        std::process::Command::new(command).args(arguments).arg(path).stderr(std::process::Stdio::null()).status();
    match outcome {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        outcome => Ok(outcome?.success()),
    }
}

/// Whether this process is there for one test alone. If not, it has just been run in one that is.
fn alone(name: &str) -> Result<bool, anyhow::Error> {
    const ALONE: &str = "TIDELINE_TEST_ALONE";
    if std::env::var(ALONE).is_ok_and(|test| test == name) {
        return Ok(true);
    }
    let mut command = std::process::Command::new(std::env::current_exe()?);
    let test = format!("journal::tests::faults::{name}");
    let ended = command.args([&test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, name).output()?;
    eprint!("{}", String::from_utf8_lossy(&ended.stderr));
    anyhow::ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    Ok(false)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

/// Opens a journal after damage: it has all of what was written, or it was moved aside, or nothing was written.
fn opens_whole_or_empty(path: &Path, entries: &[Arc<Entry>], what: &str) -> Result<(), anyhow::Error> {
    let (journal, loaded) = Journal::open(path).map_err(|error| anyhow::anyhow!("{what}: {error}"))?;
    if loaded.accepted.is_some() {
        assert!(loaded.entries == entries, "{what}: {} of {} entries", loaded.entries.len(), entries.len());
    } else {
        // Bodies may be there: they are written before the set.
        assert!(loaded.entries.is_empty() && loaded.applied.is_empty(), "{what}: something of a set that is not there");
    }
    for entry in entries.iter().filter(|entry| loaded.bodies.contains(&entry.input)) {
        // A body that was hit says so and is fetched again; it never is another.
        match journal.body(entry.input) {
            Ok(text) => assert!(entries.iter().zip(0..).any(|(one, n)| one == entry && text == body(n)), "{what}"),
            Err(error) => assert!(matches!(error, Error::Damaged(_) | Error::NoBody(_)), "{what}: {error}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_log_cut_anywhere_is_read_whole_or_not_at_all() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let (path, copy) = (directory.path().join("journal"), directory.path().join("copy"));
    let entries = filled(&path, 400).await?;
    let length = fs::metadata(path.join("db"))?.len();
    for step in 0..24 {
        copy_directory(&path, &copy)?;
        // Not at even places: amid headers, keys, values.
        let at = length * step / 24 + (step * 37) % 512;
        fs::OpenOptions::new().write(true).open(copy.join("db"))?.set_len(at.min(length))?;
        if step % 2 == 0 {
            remove_snapshots(&copy)?;
        }
        opens_whole_or_empty(&copy, &entries, &format!("cut at {at} of {length}"))?;
        clear(directory.path(), &copy)?;
    }
    Ok(())
}

#[tokio::test]
async fn pages_of_zeros_or_noise_are_noticed() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let (path, copy) = (directory.path().join("journal"), directory.path().join("copy"));
    let entries = filled(&path, 400).await?;
    let length = usize::try_from(fs::metadata(path.join("db"))?.len())?;
    for (step, byte) in (0..16).zip([0, 0xff, 0x55].into_iter().cycle()) {
        copy_directory(&path, &copy)?;
        let mut bytes = fs::read(copy.join("db"))?;
        let at = length / 16 * step;
        let end = (at + 4096).min(length);
        bytes[at..end].fill(byte);
        fs::write(copy.join("db"), bytes)?;
        if step % 2 == 0 {
            remove_snapshots(&copy)?;
        }
        let what = format!("{byte:#x} at {at} of {length}");
        opens_whole_or_empty(&copy, &entries, &what)?;
        takes_writes_or_begins_anew(&copy, &entries, &what).await?;
        clear(directory.path(), &copy)?;
    }
    Ok(())
}

/// Writes every body anew and drops every one, then accepts: a write that damage prevents has the next opening begin
/// another journal, which takes them all.
async fn takes_writes_or_begins_anew(path: &Path, entries: &[Arc<Entry>], what: &str) -> Result<(), anyhow::Error> {
    let drop_all = Write::DropBodies(entries.iter().map(|entry| entry.input).collect());
    let writes = [bodies(entries), vec![drop_all], vec![accept(8, entries, entries, Vec::new())]];
    let (journal, _) = Journal::open(path)?;
    let taken = takes(&journal, &writes, what).await?;
    drop(journal);
    if !taken {
        let (journal, loaded) = Journal::open(path)?;
        assert!(is_empty(&loaded), "{what}: the damaged one is opened again");
        assert!(takes(&journal, &writes, what).await?, "{what}: another journal");
    }
    let revision = reopened(path)?.accepted.map(|accepted| accepted.set.version.revision);
    assert_eq!(revision, Some(Revision(8)), "{what}");
    Ok(())
}

/// Writes as the core does, which tries again until it succeeds. Returns false if the journal ended over it.
async fn takes(journal: &Journal, writes: &[Vec<Write>], what: &str) -> Result<bool, anyhow::Error> {
    for write in writes {
        let mut tries = 0;
        while let Err(error) = journal.write(write.clone()).await {
            if journal.ended() {
                return Ok(false);
            }
            tries += 1;
            anyhow::ensure!(tries < 5, "{what}: {error} again and again");
        }
    }
    Ok(true)
}

/// No opening reads bodies, so that nothing notices before one of them is written or read.
#[tokio::test]
async fn a_rotten_page_of_bodies_has_another_journal_begun_when_it_is_to_be_written() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 400).await?;
    // Once more, so that there is a snapshot, and the log is not read from its beginning.
    drop(Journal::open(&path)?);
    let mut log = fs::read(path.join("db"))?;
    let rotten = [entries[200].input.as_bytes().as_slice(), &record::deflate(body(200).as_bytes())].concat();
    let found = |(at, bytes): (usize, &[u8])| (bytes == rotten).then_some(at);
    let places: Vec<_> = log.windows(rotten.len()).enumerate().filter_map(found).collect();
    assert!(!places.is_empty());
    for at in places {
        log[at..at + rotten.len()].fill(0x55);
    }
    fs::write(path.join("db"), log)?;
    let (journal, loaded) = Journal::open(&path)?;
    assert_eq!(loaded.entries, entries, "it is opened as if nothing were wrong");
    assert!(matches!(journal.body(entries[200].input), Err(Error::Damaged(_))));
    drop(journal);
    takes_writes_or_begins_anew(&path, &entries, "rotten").await?;
    assert!(directory.path().join("journal.damaged-1/damaged").exists(), "the damage goes with its journal");
    assert!(!path.join("damaged").exists());
    Ok(())
}

#[tokio::test]
async fn a_journal_that_was_removed_while_it_was_open_ends_and_another_is_begun() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 20).await?;
    let (journal, _) = Journal::open(&path)?;
    fs::remove_dir_all(&path)?;
    let writes = [bodies(&entries)];
    assert!(!takes(&journal, &writes, "removed").await?);
    drop(journal);
    let (journal, loaded) = Journal::open(&path)?;
    assert!(is_empty(&loaded));
    assert!(takes(&journal, &writes, "begun").await?);
    Ok(())
}

#[test]
fn a_body_that_the_medium_refuses_twice_in_a_row_is_damaged() {
    let refused = super::super::bodies::Refused::default();
    let input = entry(1).input;
    let eio = || {
        let source = rustix::io::Errno::IO.into();
        Err(Error::Io { action: "read", path: "journal".into(), source })
    };
    assert!(matches!(refused.judge(input, eio()), Err(Error::Io { .. })), "it may pass");
    assert!(refused.judge(input, Ok(body(1))).is_ok());
    assert!(matches!(refused.judge(input, eio()), Err(Error::Io { .. })), "it passed");
    assert!(matches!(refused.judge(entry(2).input, eio()), Err(Error::Io { .. })), "another");
    assert!(matches!(refused.judge(input, eio()), Err(Error::Damaged(_))));
}

#[test]
fn damage_that_is_met_twice_in_a_row_stays() {
    let damaged = || Err(Error::Damaged("rotten".to_owned()));
    let mut damage = super::super::writer::Damage::default();
    assert!(damage.met_again(damaged()).is_none(), "it may pass");
    assert!(damage.met_again(Ok(())).is_none(), "it passed");
    assert!(damage.met_again(damaged()).is_none());
    assert!(damage.met_again(Err(Error::Write("full".to_owned()))).is_none(), "that says nothing of it");
    assert!(damage.met_again(damaged()).is_some());
}

/// A segment that says that it is another has sled panic.
#[tokio::test]
async fn a_journal_that_the_engine_panics_over_is_moved_aside() -> Result<(), anyhow::Error> {
    const SEGMENT: usize = super::super::engine::SEGMENT_BYTES;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 3_000).await?;
    let mut log = fs::read(path.join("db"))?;
    assert!(log.len() > 2 * SEGMENT, "{} bytes", log.len());
    log.copy_within(..SEGMENT, SEGMENT);
    fs::write(path.join("db"), log)?;
    remove_snapshots(&path)?;
    assert!(is_empty(&reopened(&path)?));
    assert!(directory.path().join("journal.damaged-1").exists());
    Ok(())
}

#[tokio::test]
async fn any_file_may_be_missing() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let (path, copy) = (directory.path().join("journal"), directory.path().join("copy"));
    let entries = filled(&path, 50).await?;
    // Once more, so that there is a snapshot.
    drop(Journal::open(&path)?);
    let mut names: Vec<_> = fs::read_dir(&path)?.map(|file| Ok(file?.file_name())).collect::<std::io::Result<_>>()?;
    names.sort();
    assert!(names.iter().any(|name| name.to_string_lossy().starts_with("snap.")), "{names:?}");
    for name in names {
        copy_directory(&path, &copy)?;
        let file = copy.join(&name);
        if file.is_dir() {
            fs::remove_dir_all(&file)?;
        } else {
            fs::remove_file(&file)?;
        }
        opens_whole_or_empty(&copy, &entries, &format!("without {name:?}"))?;
        clear(directory.path(), &copy)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_full_disk_refuses_writes_in_time_is_still_read_and_takes_them_again() -> Result<(), anyhow::Error> {
    let Some(disk) = Disk::mounted(48)? else { return Ok(()) };
    let entries = filled(&disk.journal(), 300).await?;
    let (journal, _) = Journal::open(&disk.journal())?;
    disk.fill(1 << 20)?;
    let refused = journal.write(vec![applied(1)]).await;
    assert!(matches!(&refused, Err(Error::Write(why)) if why.contains("kB left")), "{refused:?}");
    assert_eq!(journal.body(entries[7].input)?, body(7), "what is there can be read");
    disk.empty()?;
    journal.write(vec![applied(1)]).await?;
    drop(journal);
    let loaded = reopened(&disk.journal())?;
    assert_eq!((loaded.entries, loaded.applied.len()), (entries, 1));
    Ok(())
}

/// The floor keeps sled from meeting a full disk; others may fill it faster than it is checked.
#[tokio::test]
async fn an_engine_that_met_a_full_disk_ends_its_writes_and_is_opened_again() -> Result<(), anyhow::Error> {
    if !alone("an_engine_that_met_a_full_disk_ends_its_writes_and_is_opened_again")? {
        return Ok(());
    }
    let Some(disk) = Disk::mounted(32)? else { return Ok(()) };
    let entries = filled(&disk.journal(), 300).await?;
    let engine = Arc::new(super::super::engine::Engine::open(&disk.journal())?);
    disk.fill(0)?;
    // More than the segment that is there.
    let noise = |n: u32| (0..200_u32).map(|k| Digest::of(&(n + k).to_be_bytes()).to_string()).collect::<String>();
    let changes =
        (0..200).map(|n| record::put(super::super::change::Table::Bodies, n.to_string().into_bytes(), &noise(n)));
    let groups: Vec<_> = changes.map(|change| super::super::group::Group::from([change])).collect();
    let (done, outcome) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn({
        let engine = Arc::clone(&engine);
        move || done.send(engine.commit(&groups))
    });
    // Sled may have forgotten to wake the waiting caller.
    let outcome = match outcome.recv_timeout(Duration::from_secs(5)) {
        Ok(outcome) => outcome,
        Err(_hangs) => {
            engine.poke();
            outcome.recv_timeout(SOON)?
        }
    };
    assert!(matches!(outcome, Err(Error::Write(_))), "{outcome:?}");
    disk.empty()?;
    drop(engine);
    let (journal, loaded) = Journal::open(&disk.journal())?;
    let names: Vec<_> = fs::read_dir(disk.directory.path())?.flatten().map(|file| file.file_name()).collect();
    assert!(loaded.entries == entries, "what was acknowledged is there: {names:?}, {} entries", loaded.entries.len());
    journal.write(vec![applied(1)]).await?;
    Ok(())
}

#[tokio::test]
async fn a_full_disk_at_the_start_gives_up_the_reserve_and_is_read() -> Result<(), anyhow::Error> {
    let Some(disk) = Disk::mounted(64)? else { return Ok(()) };
    let entries = filled(&disk.journal(), 300).await?;
    drop(Journal::open(&disk.journal())?);
    assert!(disk.journal().with_extension("reserve").exists(), "the reserve is put aside where there is room");
    disk.fill(0)?;
    let (journal, loaded) = Journal::open(&disk.journal())?;
    assert_eq!(loaded.entries, entries);
    assert_eq!(journal.body(entries[7].input)?, body(7));
    assert!(journal.write(vec![applied(1)]).await.is_err());
    assert!(!disk.journal().with_extension("reserve").exists());
    disk.empty()?;
    journal.write(vec![applied(1)]).await?;
    Ok(())
}

#[tokio::test]
async fn a_full_disk_at_the_start_takes_the_room_of_journals_that_cannot_be_used() -> Result<(), anyhow::Error> {
    let Some(disk) = Disk::mounted(48)? else { return Ok(()) };
    let entries = filled(&disk.journal(), 300).await?;
    let aside = ["damaged-1", "newer"].map(|name| disk.journal().with_extension(name));
    for aside in &aside {
        fs::create_dir(aside)?;
        fs::write(aside.join("db"), vec![1; 4 << 20])?;
    }
    let _ = fs::remove_file(disk.journal().with_extension("reserve"));
    disk.fill(0)?;
    assert_eq!(reopened(&disk.journal())?.entries, entries);
    assert!(aside.iter().all(|aside| !aside.exists()));
    Ok(())
}

/// Each is as large as the journal was.
#[tokio::test]
async fn the_first_and_the_last_damaged_journals_are_kept() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    for n in 1..=4 {
        filled(&path, n).await?;
        fs::write(path.join("damaged"), format!("for the {n}. time"))?;
        assert!(is_empty(&reopened(&path)?));
    }
    let why = |n: u32| fs::read_to_string(directory.path().join(format!("journal.damaged-{n}/damaged")));
    assert_eq!((why(1)?.as_str(), why(2)?.as_str()), ("for the 1. time", "for the 4. time"));
    assert!(why(3).is_err());
    Ok(())
}

#[tokio::test]
async fn without_room_to_open_it_the_journal_is_away_until_there_is() -> Result<(), anyhow::Error> {
    let Some(disk) = Disk::mounted(32)? else { return Ok(()) };
    let entries = filled(&disk.journal(), 300).await?;
    let _ = fs::remove_file(disk.journal().with_extension("reserve"));
    disk.fill(0)?;
    let (journal, loaded) = Journal::open_or_wait(&disk.journal(), &CancellationToken::new())?;
    assert!(journal.away().is_some_and(|why| why.contains("kB left")), "{:?}", journal.away());
    assert!(is_empty(&loaded));
    assert!(matches!(journal.write(vec![applied(1)]).await, Err(Error::Away(_))));
    assert!(matches!(journal.body(entries[7].input), Err(Error::Away(_))));
    let again = tokio::spawn(journal.open_when_possible(CancellationToken::new()));
    disk.empty()?;
    let (journal, loaded) = tokio::time::timeout(SOON, again).await???;
    assert_eq!(loaded.entries, entries);
    journal.write(vec![applied(1)]).await?;
    Ok(())
}

/// sled that meets a full disk may hang, and nobody wakes an opening.
#[tokio::test]
async fn a_switch_is_finished_only_where_there_is_room_for_it() -> Result<(), anyhow::Error> {
    let Some(disk) = Disk::mounted(48)? else { return Ok(()) };
    let (second, _) = just_switched(&disk.journal()).await?;
    let _ = fs::remove_file(disk.journal().with_extension("reserve"));
    disk.fill((4 << 20) + (64 << 10))?;
    let before = staged(&disk.journal())?;
    let (journal, _) = Journal::open_or_wait(&disk.journal(), &CancellationToken::new())?;
    assert!(journal.away().is_some_and(|why| why.contains("kB left")), "{:?}", journal.away());
    let slot = open(&disk.journal(), 600)?;
    slot.leave_unfinished();
    let refused = slot.mend();
    assert!(matches!(refused, Err(Error::Space { .. })), "{refused:?}");
    drop(slot);
    assert_eq!(staged(&disk.journal())?, before);
    disk.empty()?;
    assert_eq!(reopened(&disk.journal())?.entries, second);
    assert_eq!(staged(&disk.journal())?, 0);
    Ok(())
}

#[tokio::test]
async fn on_a_read_only_disk_the_journal_is_away_until_it_can_be_written() -> Result<(), anyhow::Error> {
    let Some(disk) = Disk::mounted(48)? else { return Ok(()) };
    let entries = filled(&disk.journal(), 300).await?;
    disk.remount("ro")?;
    let (journal, _) = Journal::open_or_wait(&disk.journal(), &CancellationToken::new())?;
    assert!(journal.away().is_some_and(|why| why.contains("Read-only")), "{:?}", journal.away());
    let again = tokio::spawn(journal.open_when_possible(CancellationToken::new()));
    disk.remount("rw")?;
    let (_journal, loaded) = tokio::time::timeout(SOON, again).await???;
    assert_eq!(loaded.entries, entries);
    Ok(())
}

#[tokio::test]
async fn a_journal_that_is_out_of_date_is_not_read_where_it_cannot_be_removed_yet() -> Result<(), anyhow::Error> {
    let Some(disk) = Disk::mounted(48)? else { return Ok(()) };
    filled(&disk.journal(), 300).await?;
    disk.remount("ro")?;
    let (journal, loaded) = Journal::discard_or_wait(&disk.journal())?.expect("nothing can be removed");
    assert!(journal.away().is_some_and(|why| why.contains("Read-only")), "{:?}", journal.away());
    assert!(is_empty(&loaded) && disk.journal().exists());
    let again = tokio::spawn(journal.open_when_possible(CancellationToken::new()));
    disk.remount("rw")?;
    let (journal, loaded) = tokio::time::timeout(SOON, again).await???;
    assert!(is_empty(&loaded), "another was at work since");
    journal.write(vec![applied(1)]).await?;
    Ok(())
}

/// sled that could not write the file of a large value waits for it when it is closed, and nobody can wake it.
#[tokio::test]
async fn a_journal_that_hangs_says_so_in_time_and_lets_the_process_end() -> Result<(), anyhow::Error> {
    if !alone("a_journal_that_hangs_says_so_in_time_and_lets_the_process_end")? {
        return Ok(());
    }
    let Some(disk) = Disk::mounted(48)? else { return Ok(()) };
    let entries = filled(&disk.journal(), 300).await?;
    let (journal, _) = Journal::open(&disk.journal())?;
    anyhow::ensure!(run("mount", &["-t", "tmpfs", "-o", "ro", "tmpfs"], &disk.journal().join("blobs"))?, "mount");
    let large: Arc<str> = (0..20_000_u32).map(|n| Digest::of(&n.to_be_bytes()).to_string()).collect::<String>().into();
    let write = || journal.write(vec![Write::Body { input: Digest::of(b"large"), text: Arc::clone(&large) }]);
    let refused = write().await;
    assert!(matches!(refused, Err(Error::Write(_))), "{refused:?}");
    assert_eq!(journal.disk(), write_watchdog::Disk::Answers);
    assert_eq!(journal.body(entries[7].input)?, body(7), "what is there can be read");
    // Nothing is closed while the disk does not take a byte: the content could not be read any more.
    let probe = disk.journal().with_extension("probe");
    fs::create_dir(&probe)?;
    let refused = write().await;
    assert!(matches!(&refused, Err(Error::Write(why)) if why.contains("journal.probe")), "{refused:?}");
    assert_eq!(journal.body(entries[7].input)?, body(7));
    fs::remove_dir(&probe)?;
    let hangs = write().await;
    assert!(matches!(hangs, Err(Error::Stuck)), "{hangs:?}");
    assert_eq!(journal.disk(), write_watchdog::Disk::Stuck);
    let begun = std::time::Instant::now();
    drop(journal);
    assert!(begun.elapsed() < SOON, "nobody waits for it");
    Ok(())
}

#[tokio::test]
async fn a_file_that_takes_no_byte_is_of_the_disk_and_not_damage() -> Result<(), anyhow::Error> {
    if !alone("a_file_that_takes_no_byte_is_of_the_disk_and_not_damage")? {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    fs::create_dir(&path)?;
    symlink("/dev/full", path.join("conf"))?;
    let (journal, _) = Journal::open_or_wait(&path, &CancellationToken::new())?;
    assert!(journal.away().is_some_and(|why| why.contains("No space left")), "{:?}", journal.away());
    assert!(!directory.path().join("journal.damaged-1").exists(), "what is there is left alone");
    Ok(())
}

#[tokio::test]
async fn a_file_that_the_medium_refuses_is_moved_aside_once_it_did_so_twice() -> Result<(), anyhow::Error> {
    if !alone("a_file_that_the_medium_refuses_is_moved_aside_once_it_did_so_twice")? {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    fs::create_dir(&path)?;
    // Its first page is nobody's: an input/output error.
    symlink("/proc/self/mem", path.join("conf"))?;
    let (journal, loaded) = Journal::open(&path)?;
    assert!(is_empty(&loaded));
    assert!(directory.path().join("journal.damaged-1").exists());
    journal.write(vec![applied(1)]).await?;
    Ok(())
}

#[tokio::test]
async fn files_that_vanish_while_it_is_open_are_never_replaced_by_new_ones() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 20).await?;
    let engine = super::super::engine::Engine::open(&path)?;
    let slot = super::super::slot::Slot::new(&path, engine, Numbers::default(), 0, u64::MAX);
    fs::rename(&path, directory.path().join("elsewhere"))?;
    assert!(slot.renew().is_err());
    let _ = slot.tidy(Activity::AtRest);
    assert!(!path.exists());
    Ok(())
}

fn remove_snapshots(path: &Path) -> std::io::Result<()> {
    for file in fs::read_dir(path)? {
        let file = file?;
        if file.file_name().to_string_lossy().starts_with("snap.") {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// Removes a copy and what became of it.
fn clear(directory: &Path, copy: &Path) -> std::io::Result<()> {
    fs::remove_dir_all(copy)?;
    for n in 1..3 {
        let aside = directory.join(format!("copy.damaged-{n}"));
        if aside.exists() {
            fs::remove_dir_all(aside)?;
        }
    }
    Ok(())
}
