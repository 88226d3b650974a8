//! Child processes that a test may kill, pause, await and measure.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::wait::eventually;
use crate::{Scratch, leash};

/// Bytes of log quoted in a failure: the last forty lines or so.
const LOG_TAIL_BYTES: usize = 6_000;

/// A running child in a process group of its own, with its output in a log file. Killed, with its group, on drop.
///
/// It also dies with the test binary, should that be killed before it can clean up.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    exit: Option<ExitStatus>,
    show_log_on_drop: bool,
}

impl Process {
    /// Starts `command`, appending its standard output and error to the file `log`.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening the log of {name}, {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name} ({})", command.get_program().display()))?;
        leash::hold_group(child.id());
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), exit: None, show_log_on_drop: false })
    }

    /// Prints the end of the log when dropped. The test harness captures it and shows it if the test fails.
    #[must_use]
    pub fn with_log_shown(mut self) -> Self {
        self.show_log_on_drop = true;
        self
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns all that the process wrote so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map_or_else(|error| format!("(no log: {error})"), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the end of what the process wrote, headed by its name.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let from = log.ceil_char_boundary(log.len().saturating_sub(LOG_TAIL_BYTES));
        format!("--- end of the log of {} ---\n{}\n---", self.name, log[from..].trim_end())
    }

    /// Returns how the process ended, or `None` while it runs.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        if self.exit.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            leash::group_ended(self.child.id());
            self.exit = Some(status);
        }
        Ok(self.exit)
    }

    /// Waits until the process ends by itself.
    ///
    /// # Errors
    ///
    /// When it still runs after `limit`; the message carries the end of its log.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let ended = eventually(limit, &what, async || self.exit_status().transpose()).await;
        ended.with_context(|| self.log_tail())?
    }

    /// Kills the process and its group at once (kill −9) and reaps it. Does nothing if it has ended.
    pub fn kill(&mut self) -> Result<()> {
        if self.exit_status()?.is_none() {
            self.signal(Signal::KILL)?;
            leash::group_ended(self.child.id());
            self.exit = Some(self.child.wait()?);
        }
        Ok(())
    }

    /// Asks the process to stop (SIGTERM).
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Freezes the process: its connections stay open and silent.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen process go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Returns the resident memory of the process (VmRSS), in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.memory("VmRSS")
    }

    /// Returns the most memory that the process ever had resident (VmHWM), in bytes.
    pub fn peak_bytes(&self) -> Result<u64> {
        self.memory("VmHWM")
    }

    fn memory(&self, field: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().strip_suffix(" kB"))
            .with_context(|| format!("{path} has no {field}; {} has ended", self.name))?;
        Ok(kibibytes.parse::<u64>()? * 1024)
    }

    /// Returns the processor time that the process used so far, in user and kernel mode.
    pub fn cpu_time(&self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        // proc_pid_stat(5): the name, second and in parentheses, may hold blanks; utime and stime are fields 14 and 15.
        let (_, rest) = stat.rsplit_once(')').with_context(|| format!("{path} has no name"))?;
        let ticks: u64 = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(str::parse::<u64>)
            .sum::<Result<u64, _>>()
            .with_context(|| format!("{path} is not as expected"))?;
        Ok(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second()))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        if self.exit.is_some() {
            bail!("{} has ended already", self.name);
        }
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| anyhow!("{} has no process id", self.name))?;
        kill_process_group(group, signal).with_context(|| format!("sending {signal:?} to {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A destructor cannot report; what is left is killed when this process ends.
        let _ = self.kill();
        if self.show_log_on_drop {
            eprintln!("{}", self.log_tail());
        }
    }
}

/// What a process that ran to its end left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Returns the exit code.
    ///
    /// # Errors
    ///
    /// When a signal ended the process.
    pub fn code(&self) -> Result<i32> {
        self.status.code().with_context(|| format!("ended by a signal: {}; {}", self.status, self.stderr))
    }
}

/// Runs `command` with `input` on its standard input, and returns its output.
///
/// # Errors
///
/// When it cannot be started or still runs after `limit`; then it is killed. An exit code other than 0 is no error.
pub async fn run_to_end(command: &mut Command, input: &str, limit: Duration) -> Result<Finished> {
    let scratch = Scratch::new("output")?;
    File::create_new(scratch.join("stdin"))?.write_all(input.as_bytes())?;
    let stdin = File::open(scratch.join("stdin"))?;
    let mut process = begin(command, stdin.into(), &scratch)?;
    let status = process.wait(limit).await?;
    finished(status, &scratch)
}

/// Runs `command` at a terminal of its own, where somebody says `answer` once it has asked `question` on standard error.
///
/// # Errors
///
/// When it cannot be started, ends without the question, or still runs after `limit`; then it is killed.
pub async fn run_at_terminal(command: &mut Command, question: &str, answer: &str, limit: Duration) -> Result<Finished> {
    let scratch = Scratch::new("output")?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags).context("opening a pseudo-terminal")?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let stdin = ioctl_tiocgptpeer(&terminal, flags)?;
    let mut process = begin(command, stdin.into(), &scratch)?;
    let what = format!("the question {question:?}");
    let asked = eventually(limit, &what, async || {
        let ended = process.exit_status().is_ok_and(|status| status.is_some());
        (ended || process.log().contains(question)).then_some(())
    });
    asked.await.with_context(|| process.log_tail())?;
    ensure!(process.log().contains(question), "it ended without {what}: {}", process.log_tail());
    let mut person = File::from(terminal);
    person.write_all(format!("{answer}\n").as_bytes())?;
    let status = process.wait(limit).await?;
    finished(status, &scratch)
}

/// Starts a command whose output goes to files: nothing has to be drained while waiting, and a grandchild cannot hold the wait
/// up as it could with a pipe.
fn begin(command: &mut Command, stdin: Stdio, output: &Scratch) -> Result<Process> {
    let name = command.get_program().display().to_string();
    let open = |name: &str| File::create_new(output.join(name));
    let child = command
        .stdin(stdin)
        .stdout(open("stdout")?)
        .stderr(open("stderr")?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    leash::hold_group(child.id());
    Ok(Process { name, child, log: output.join("stderr"), exit: None, show_log_on_drop: false })
}

fn finished(status: ExitStatus, output: &Scratch) -> Result<Finished> {
    let read =
        |name: &str| -> Result<String> { Ok(String::from_utf8_lossy(&fs::read(output.join(name))?).into_owned()) };
    Ok(Finished { status, stdout: read("stdout")?, stderr: read("stderr")? })
}

#[cfg(test)]
mod tests;
