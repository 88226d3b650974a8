//! The command lines: what `--help` shows, and the messages for wrong usage.

use anyhow::{Result, ensure};
use tideline_tests::{require_binaries, run_to_end};

use crate::harness::{AT_ONCE, command};

#[tokio::test]
async fn help_of_every_command_shows_an_example() -> Result<()> {
    let binaries = require_binaries!();
    let (hub, agent) = (binaries.hub(), binaries.agent());
    let commands: [(_, &[&str]); 8] = [
        (&hub, &[]),
        (&hub, &["serve"]),
        (&hub, &["token"]),
        (&hub, &["token", "create"]),
        (&hub, &["kubeconfig"]),
        (&hub, &["status"]),
        (&agent, &[]),
        (&agent, &["run"]),
    ];
    for (binary, args) in commands {
        let help = run_to_end(command(binary.clone(), args).arg("--help"), "", AT_ONCE).await?;
        ensure!(help.code()? == 0 && help.stderr.is_empty(), "{args:?} --help fails: {help:?}");
        let name = binary.file_name().unwrap_or_default().display().to_string();
        let (_, examples) = help.stdout.split_once("\nExample").unwrap_or_default();
        ensure!(examples.contains(&format!("{name} ")), "{name} {args:?} --help has no example: {}", help.stdout);
    }
    Ok(())
}

#[tokio::test]
async fn wrong_usage_is_exit_code_two_and_names_what_is_wrong() -> Result<()> {
    let binaries = require_binaries!();
    let (hub, agent) = (binaries.hub(), binaries.agent());
    let wrong: [(_, &[&str], &str); 9] = [
        (&hub, &["serve"], "--data-dir"),
        (&hub, &["serve", "--data-dir", "d", "--listen", "everywhere"], "--listen"),
        (&hub, &["serve", "--data-dir", "d", "--public-url", "http://hub.example.com"], "https://HOST"),
        (&hub, &["serve", "--data-dir", "d", "--stale-after", "soon"], "90s"),
        (&hub, &["token", "create", "store", "--labels", "tier"], "KEY=VALUE"),
        (&hub, &["token", "create"], "NAME"),
        (&hub, &["destroy"], "destroy"),
        (&agent, &["run"], "--data-dir"),
        (&agent, &["run", "--data-dir", "d", "--listen", "nowhere"], "ADDRESS:PORT, or off"),
    ];
    for (binary, args, part) in wrong {
        let end = run_to_end(&mut command(binary.clone(), args), "", AT_ONCE).await?;
        ensure!(end.code()? == 2 && end.stdout.is_empty(), "{args:?} is wrong usage: {end:?}");
        ensure!(end.stderr.contains(part), "{args:?} should be told of {part:?}: {}", end.stderr);
        ensure!(end.stderr.contains("--help"), "{args:?} should be told of --help: {}", end.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn the_agents_heap_is_set_to_give_back_what_is_free() -> Result<()> {
    let agent = require_binaries!().agent();
    let mut command = command(agent, &["--version"]);
    let end = run_to_end(command.env("_RJEM_MALLOC_CONF", "stats_print:true"), "", AT_ONCE).await?;
    for setting in ["opt.narenas: 1", "opt.tcache: false", "opt.dirty_decay_ms: 0"] {
        ensure!(end.stderr.contains(setting), "the heap should be set to {setting:?}: {}", end.stderr);
    }
    Ok(())
}
