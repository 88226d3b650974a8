//! What counts against a journal, and for how long it is waited for.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::super::opening::{
    Opening, STILL_MAX, Seen, Standstill, carried, is_uninterruptible, once_more, open_counted,
};
use super::*;

/// Says to a process where to die over an opening. Without it, that is a test like others, and nothing to do.
const DIRECTORY: &str = "TIDELINE_TEST_OPENING";

#[test]
fn a_process_that_dies_over_an_opening() -> Result<(), anyhow::Error> {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return Ok(()) };
    Opening::new(&Path::new(&directory).join("journal")).begin()?;
    std::process::abort()
}

fn die_over(directory: &Path) -> std::io::Result<()> {
    let name = "journal::tests::opening::a_process_that_dies_over_an_opening";
    let mut command = Command::new(std::env::current_exe()?);
    command.args([name, "--exact", "--test-threads=1"]).env(DIRECTORY, directory);
    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    assert!(!ended.success(), "it dies");
    Ok(())
}

#[tokio::test]
async fn a_journal_that_three_processes_died_over_is_set_aside() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 3).await?;
    for deaths in 1..=3 {
        die_over(directory.path())?;
        assert_eq!(Opening::new(&path).deaths(), deaths);
        if deaths == 2 {
            assert!(!is_empty(&reopened(&path)?), "two may be chance");
            assert_eq!(Opening::new(&path).deaths(), 0, "it came back");
            die_over(directory.path())?;
            die_over(directory.path())?;
        }
    }
    assert!(is_empty(&reopened(&path)?));
    assert!(directory.path().join("journal.damaged-1").exists());
    assert!(is_empty(&reopened(&path)?), "the new one stays");
    assert!(!directory.path().join("journal.damaged-2").exists());
    Ok(())
}

#[tokio::test]
async fn deaths_of_an_earlier_boot_do_not_count() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 3).await?;
    for before in ["7\nanother-boot\n", "7\n", "what?\n", ""] {
        fs::write(path.with_extension("opening"), before)?;
        assert!(!is_empty(&reopened(&path)?), "{before:?}");
    }
    for _death in 0..2 {
        die_over(directory.path())?;
    }
    let noted = fs::read_to_string(path.with_extension("opening"))?;
    let (deaths, boot) = noted.split_once('\n').expect("it has two lines");
    assert!(deaths == "2" && !boot.trim().is_empty(), "{noted:?}");
    Ok(())
}

#[tokio::test]
async fn an_opening_that_was_asked_to_stop_does_not_count() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 3).await?;
    for deaths in [0, 1, 2] {
        let opening = Opening::new(&path);
        opening.begin()?;
        assert_eq!(Opening::new(&path).deaths(), deaths + 1, "while it is under way");
        opening.withdraw();
        assert_eq!(Opening::new(&path).deaths(), deaths, "those before still do");
        assert!(matches!(opening.begin(), Err(Error::Stopped)), "it is not begun once more");
        die_over(directory.path())?;
    }
    Ok(())
}

/// The disk hangs where deaths are noted, too: in a pipe that nobody reads from.
#[tokio::test]
async fn a_stop_does_not_wait_for_a_hanging_disk() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    die_over(directory.path())?;
    let opening = Opening::new(&path);
    opening.begin()?;
    let marker = path.with_extension("opening");
    fs::remove_file(&marker)?;
    anyhow::ensure!(Command::new("mkfifo").arg(&marker).status()?.success(), "mkfifo");
    let (done, withdrawn) = std::sync::mpsc::sync_channel::<()>(0);
    std::thread::spawn(move || {
        opening.withdraw();
        drop(done);
    });
    let ended = withdrawn.recv_timeout(Duration::from_secs(10));
    assert_eq!(ended, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));

    let stop = CancellationToken::new();
    stop.cancel();
    let opening = tokio::task::spawn_blocking(move || Journal::open_or_wait(&path, &stop).map(drop));
    let stopped = tokio::time::timeout(Duration::from_secs(10), opening).await??;
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    Ok(())
}

#[tokio::test]
async fn an_opening_that_was_given_up_moves_nothing_aside() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 3).await?;
    fs::write(path.join("damaged"), "rotten")?;
    die_over(directory.path())?;
    let opening = Opening::new(&path);
    opening.withdraw();
    let outcome = open_counted(&opening).map(drop);
    assert!(matches!(outcome, Err(Error::Stopped)), "{outcome:?}");
    assert_eq!(Opening::new(&path).deaths(), 1);
    assert!(path.exists() && !directory.path().join("journal.damaged-1").exists());
    Ok(())
}

#[tokio::test]
async fn an_i_o_error_beside_the_journal_is_not_damage_of_it() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 3).await?;
    // Its first page is nobody's: an input/output error.
    std::os::unix::fs::symlink("/proc/self/mem", path.with_extension("opening"))?;
    let (journal, _) = Journal::open_or_wait(&path, &CancellationToken::new())?;
    assert!(journal.away().is_some_and(|why| why.contains("journal.opening")), "{:?}", journal.away());
    fs::remove_file(path.with_extension("opening"))?;
    assert!(!is_empty(&reopened(&path)?), "it waits for the disk");
    assert!(!directory.path().join("journal.damaged-1").exists());

    let opening = Opening::new(&path);
    opening.begin()?;
    fs::remove_file(path.with_extension("opening"))?;
    fs::create_dir(path.with_extension("opening"))?;
    // Nothing that could answer the opening.
    opening.end();
    Ok(())
}

/// It hangs in a pipe that nobody writes to.
#[tokio::test]
async fn an_opening_that_hangs_ends_when_it_is_asked_to_stop_and_does_not_count() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    fs::create_dir(&path)?;
    anyhow::ensure!(Command::new("mkfifo").arg(path.join("conf")).status()?.success(), "mkfifo");
    let stop = CancellationToken::new();
    let opening = tokio::task::spawn_blocking({
        let (path, stop) = (path.clone(), stop.clone());
        move || Journal::open_or_wait(&path, &stop).map(drop)
    });
    let until = Instant::now() + Duration::from_mins(1);
    while Opening::new(&path).deaths() == 0 {
        anyhow::ensure!(Instant::now() < until && !opening.is_finished(), "it does not hang");
        tokio::task::yield_now().await;
    }
    stop.cancel();
    assert!(matches!(opening.await?, Err(Error::Stopped)));
    assert_eq!(Opening::new(&path).deaths(), 0);
    Ok(())
}

/// It hangs in the reserve, a pipe that is opened and not read from.
#[tokio::test]
async fn the_work_right_after_reading_a_journal_counts_as_opening() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 3).await?;
    let reserve = path.with_extension("reserve");
    let _ = fs::remove_file(&reserve);
    anyhow::ensure!(Command::new("mkfifo").arg(&reserve).status()?.success(), "mkfifo");
    let stop = CancellationToken::new();
    let opening = tokio::task::spawn_blocking({
        let (path, stop) = (path.clone(), stop.clone());
        move || Journal::open_or_wait(&path, &stop).map(drop)
    });
    // Comes back when the other end is opened.
    let pipe = tokio::task::spawn_blocking(move || fs::File::open(reserve)).await??;
    assert_eq!(Opening::new(&path).deaths(), 1);
    stop.cancel();
    assert!(matches!(opening.await?, Err(Error::Stopped)));
    assert_eq!(Opening::new(&path).deaths(), 0);
    drop(pipe);
    Ok(())
}

#[tokio::test]
async fn a_crash_once_it_was_moved_aside_leaves_nothing_to_move() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    for _death in 0..3 {
        die_over(directory.path())?;
    }
    assert!(is_empty(&reopened(&path)?));
    assert_eq!(Opening::new(&path).deaths(), 0);
    assert!(!directory.path().join("journal.damaged-1").exists());
    Ok(())
}

#[test]
fn a_single_i_o_error_is_retried() {
    let eio = || Error::Io { action: "read", path: "journal".into(), source: rustix::io::Errno::IO.into() };
    let tried = |refusals: u32, error: fn() -> Error| {
        let mut tries = 0;
        let outcome = once_more(Path::new("journal"), || {
            tries += 1;
            if tries > refusals { Ok(()) } else { Err(error()) }
        });
        (tries, outcome.is_ok())
    };
    assert_eq!(tried(0, eio), (1, true));
    assert_eq!(tried(1, eio), (2, true));
    assert_eq!(tried(2, eio), (2, false));
    assert_eq!(tried(1, || Error::Damaged("rotten".to_owned())), (1, false), "what is damaged stays so");
}

#[test]
fn an_opening_takes_as_long_as_something_moves() {
    let begun = Instant::now();
    let mut standstill = Standstill { moved: 0, since: begun };
    let step = STILL_MAX * 9 / 10;
    let mut now = begun;
    for moved in 1..100 {
        now += step;
        assert!(!standstill.lasts(now, Seen::Moved(moved)));
    }
    // What a thread counted goes when it ends: less is movement too.
    now += step;
    assert!(!standstill.lasts(now, Seen::Moved(7)));
    assert!(!standstill.lasts(now + STILL_MAX, Seen::Moved(7)));
    assert!(standstill.lasts(now + STILL_MAX + Duration::from_millis(1), Seen::Moved(7)));
}

#[test]
fn an_opening_that_waits_for_the_disk_is_not_given_up() {
    let begun = Instant::now();
    let mut standstill = Standstill { moved: 7, since: begun };
    let answered = begun + 10 * STILL_MAX;
    assert!(!standstill.lasts(answered, Seen::InTheDisk));
    assert!(!standstill.lasts(answered + STILL_MAX, Seen::Moved(7)), "it may go on now");
    assert!(standstill.lasts(answered + STILL_MAX + Duration::from_millis(1), Seen::Moved(7)));

    assert!(is_uninterruptible("81 (sled-io-7) D 1 81 81 0 -1 4194560"));
    assert!(is_uninterruptible("81 (a) S (b) D 1 81 81 0 -1 4194560"));
    for other in ["81 (sled-io-7) S 1 81", "81 (D) R 1 81", "81 (D", ""] {
        assert!(!is_uninterruptible(other), "{other:?}");
    }
}

#[test]
fn reads_and_writes_of_the_engine_count_as_progress_of_an_opening() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("some");
    let (begin, begun) = std::sync::mpsc::sync_channel(0);
    let (end, ended) = std::sync::mpsc::sync_channel::<()>(0);
    let thread = std::thread::Builder::new().name("sled-io-7".to_owned()).spawn(move || {
        begin.send(carried()).expect("it is waited for");
        fs::write(&path, vec![b'x'; 100_000]).and_then(|()| fs::read(&path)).expect("the disk takes it");
        begin.send(0).expect("it is waited for");
        // Until all cases are checked.
        let _closed = ended.recv();
    })?;
    let before = begun.recv()?;
    begun.recv()?;
    let counts = fs::read_to_string("/proc/thread-self/io").is_ok();
    let after = carried();
    drop(end);
    thread.join().expect("no panic");
    assert!(!counts || after >= before + 200_000, "{before} became {after}");
    Ok(())
}
