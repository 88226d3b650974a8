use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

use anyhow::{Context, Result};

use super::start;

fn sleeper() -> Result<Child> {
    Ok(Command::new("sleep").arg("600").process_group(0).spawn()?)
}

#[test]
fn processes_and_directories_of_a_dead_owner_are_killed_and_removed() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let [held, released] = ["held directory", "released directory"].map(|name| parent.path().join(name));
    fs::create_dir(&held)?;
    fs::create_dir(&released)?;
    let mut left = sleeper()?;
    let mut ended = sleeper()?;

    let (mut guard, mut input) = start().context("no guard")?;
    writeln!(input, "directory {}", held.display())?;
    writeln!(input, "directory {}", released.display())?;
    writeln!(input, "group {}", ended.id())?;
    writeln!(input, "group {}", left.id())?;
    writeln!(input, "ended {}", ended.id())?;
    writeln!(input, "removed {}", released.display())?;
    drop(input);
    assert!(guard.wait()?.success());

    assert_eq!(left.wait()?.signal(), Some(9));
    assert!(ended.try_wait()?.is_none(), "a process that was let go was killed");
    ended.kill()?;
    ended.wait()?;
    assert!(!held.exists());
    assert!(released.exists(), "a directory that was let go was removed");
    Ok(())
}
