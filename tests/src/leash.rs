//! A shell that outlives this process by a moment and ends what it left behind.
//!
//! A test binary that is killed, aborts, or keeps a cluster in a static runs no destructors. One guard per process
//! holds the list of process groups and directories in use; when its standard input closes, it kills and removes.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

const GUARD: &str = r#"
groups=''
while read -r verb what; do
  case $verb in
    group) groups="$groups $what" ;;
    ended)
      kept=''
      for group in $groups; do [ "$group" = "$what" ] || kept="$kept $group"; done
      groups=$kept ;;
    directory) set -- "$@" "$what" ;;
    removed)
      left=$#
      while [ "$left" -gt 0 ]; do
        [ "$1" = "$what" ] || set -- "$@" "$1"
        shift
        left=$((left - 1))
      done ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
[ "$#" -eq 0 ] || rm -rf -- "$@" 2>/dev/null || { sleep 1; rm -rf -- "$@"; }
"#;

static GUARDED: LazyLock<Mutex<Option<(Child, ChildStdin)>>> = LazyLock::new(|| Mutex::new(start()));

fn start() -> Option<(Child, ChildStdin)> {
    let mut guard = Command::new("sh")
        .args(["-c", GUARD, "leash"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C goes to the whole foreground group and must not end the guard before its work.
        .process_group(0)
        .spawn()
        .ok()?;
    let input = guard.stdin.take()?;
    Some((guard, input))
}

fn tell(verb: &str, what: impl Display) {
    let mut guarded = GUARDED.lock().unwrap_or_else(PoisonError::into_inner);
    // Without the guard only the tidying after a crash is lost; the destructors still do their work.
    if let Some((_, input)) = guarded.as_mut() {
        let _ = writeln!(input, "{verb} {what}");
    }
}

/// Has the process group killed if this process ends before [`group_ended`].
pub(crate) fn hold_group(leader: u32) {
    tell("group", leader);
}

/// Takes back [`hold_group`]; to be called before the leader is reaped, as its id may be given out again after.
pub(crate) fn group_ended(leader: u32) {
    tell("ended", leader);
}

/// Has the directory removed if this process ends before [`directory_removed`].
pub(crate) fn hold_directory(path: &Path) {
    tell("directory", path.display());
}

/// Takes back [`hold_directory`].
pub(crate) fn directory_removed(path: &Path) {
    tell("removed", path.display());
}

#[cfg(test)]
mod tests;
