//! kill −9, again and again, of a process that writes sets and prints what was acknowledged.
//!
//! The process is this test binary, started anew to run one test: [`a_writer_for_another_process`].

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use super::*;

/// Says to the writer where it writes. Without it, it is a test like others, and nothing to do.
const DIRECTORY: &str = "TIDELINE_TEST_JOURNAL";
const KILLS: u32 = 12;
/// Objects of a set: enough that some switches are in parts.
const OBJECTS: u32 = 400;
/// Removals that come with each set: too many to be written with it in one.
const REMOVALS: u32 = 300;

/// The set of one revision: its last objects change from one to the next, and every seventh changes in all.
fn set(revision: u64) -> Vec<Arc<Entry>> {
    let whole = revision / 7;
    (0..OBJECTS)
        .map(|n| {
            let mut entry = Entry::clone(&entry(n));
            let changed = if n >= OBJECTS - 20 { revision } else { whole };
            entry.input = Digest::of(format!("{n} {changed}").as_bytes());
            Arc::new(entry)
        })
        .collect()
}

#[tokio::test]
async fn a_writer_for_another_process() -> Result<(), anyhow::Error> {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return Ok(()) };
    let (journal, loaded) = Journal::open(&Path::new(&directory).join("journal"))?;
    let mut revision = loaded.accepted.map_or(0, |accepted| accepted.set.version.revision.0);
    loop {
        revision += 1;
        let (former, new) = (set(revision - 1), set(revision));
        let changed: Vec<_> = new.iter().filter(|entry| revision == 1 || !former.contains(entry)).cloned().collect();
        let text = |entry: &Arc<Entry>| Write::Body { input: entry.input, text: entry.input.to_string().into() };
        journal.write(changed.iter().map(text).collect::<Vec<_>>()).await?;
        let removals = (0..REMOVALS).map(removing);
        journal
            .write(std::iter::once(accept(revision, &new, &changed, Vec::new())).chain(removals).collect::<Vec<_>>())
            .await?;
        let unnamed = former.iter().filter(|entry| revision > 1 && !new.contains(entry)).map(|entry| entry.input);
        let mut done = vec![Write::DropBodies(unnamed.collect()), applied(1)];
        done.extend((0..REMOVALS).map(|n| Write::Removed(tombstone(n))));
        journal.write(done).await?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {revision}")?;
        out.flush()?;
    }
}

fn writer(directory: &Path) -> std::io::Result<Child> {
    let name = "journal::tests::crash::a_writer_for_another_process";
    let mut command = Command::new(std::env::current_exe()?);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(DIRECTORY, directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let mut former = 0;
    for kill in 0..KILLS {
        let mut child = writer(directory.path())?;
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut acknowledged = former;
        // At different moments: after so many acknowledgements, and some of the way to the next.
        let mut left = 1 + kill % 5;
        for line in output.lines() {
            let line = line?;
            let Some((_, revision)) = line.split_once("acknowledged ") else { continue };
            acknowledged = revision.trim().parse()?;
            left -= 1;
            if left == 0 {
                break;
            }
        }
        assert_eq!(left, 0, "the writer ended by itself");
        let until = std::time::Instant::now() + std::time::Duration::from_micros(u64::from(kill) * 700);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        child.kill()?;
        child.wait()?;

        let (journal, loaded) = Journal::open(&path)?;
        let accepted = loaded.accepted.expect("a set was acknowledged");
        let revision = accepted.set.version.revision.0;
        assert!(revision >= acknowledged, "kill {kill}: {revision} is there, {acknowledged} was acknowledged");
        assert!(loaded.entries == set(revision), "kill {kill}: the entries are not the set {revision}");
        let removals = loaded.removing.len();
        assert!(removals == 0 || removals == REMOVALS as usize, "kill {kill}: {removals} removals");
        for entry in &loaded.entries {
            assert_eq!(*journal.body(entry.input)?, *entry.input.to_string(), "kill {kill}");
        }
        assert!(!directory.path().join("journal.damaged-1").exists(), "kill {kill}");
        former = revision;
    }
    Ok(())
}
