use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::{Process, run_at_terminal, run_to_end};
use crate::{Scratch, eventually};

const LIMIT: Duration = Duration::from_secs(10);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[tokio::test]
async fn exit_code_and_log_are_kept() -> Result<()> {
    let scratch = Scratch::new("process")?;
    let mut process = Process::spawn("it", &mut shell("echo out; echo err >&2; exit 3"), &scratch.join("log"))?;
    assert_eq!(process.wait(LIMIT).await?.code(), Some(3));
    assert_eq!(process.log(), "out\nerr\n");
    assert!(process.terminate().is_err(), "a signal was sent to a process that has ended");
    Ok(())
}

#[tokio::test]
async fn killing_takes_the_whole_group() -> Result<()> {
    let scratch = Scratch::new("process")?;
    let child = scratch.join("child");
    let script = format!("sleep 600 & echo $! >{}; wait", child.display());
    let mut process = Process::spawn("it", &mut shell(&script), &scratch.join("log"))?;
    let pid: u32 =
        eventually(LIMIT, "the child's id", async || std::fs::read_to_string(&child).ok()?.trim().parse().ok()).await?;
    assert!(process.resident_bytes()? > 0);
    assert!(process.cpu_time()? < LIMIT);
    process.kill()?;
    assert_eq!(process.wait(LIMIT).await?.signal(), Some(9));
    eventually(LIMIT, "the child's end", async || {
        // A killed orphan may stay a zombie for as long as its new parent likes.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    })
    .await
}

#[tokio::test]
async fn a_wait_that_is_too_long_ends_with_the_log() -> Result<()> {
    let scratch = Scratch::new("process")?;
    let mut process = Process::spawn("it", &mut shell("echo stuck; sleep 600"), &scratch.join("log"))?;
    eventually(LIMIT, "output", async || (!process.log().is_empty()).then_some(())).await?;
    let error = process.wait(Duration::from_millis(100)).await.expect_err("it sleeps");
    assert!(format!("{error:#}").contains("stuck"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn a_command_gets_its_input_and_gives_both_outputs() -> Result<()> {
    let finished = run_to_end(&mut shell("cat; echo no >&2; exit 4"), "in", LIMIT).await?;
    assert_eq!((finished.code()?, finished.stdout.as_str(), finished.stderr.as_str()), (4, "in", "no\n"));
    Ok(())
}

#[tokio::test]
async fn a_command_that_asks_is_at_a_terminal_and_gets_the_answer() -> Result<()> {
    let mut asks = shell("[ -t 0 ] && printf 'sure? ' >&2 && read -r answer && echo \"$answer\"");
    let finished = run_at_terminal(&mut asks, "sure?", "yes", LIMIT).await?;
    assert_eq!((finished.code()?, finished.stdout.as_str(), finished.stderr.as_str()), (0, "yes\n", "sure? "));
    let silent = run_at_terminal(&mut shell("echo no >&2"), "sure?", "yes", LIMIT).await.expect_err("it asks nothing");
    assert!(format!("{silent:#}").contains("no"), "{silent:#}");
    Ok(())
}
