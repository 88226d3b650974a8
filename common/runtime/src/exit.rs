//! How a process ends: one message, one exit code.

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

/// A failure that was printed. Wrong usage is 2, by clap; a bug is 70, by [`on_panic`] (sysexits.h: EX_SOFTWARE).
pub const FAILURE: u8 = 1;
pub const BUG: u8 = 70;

/// An error with its causes, each once: `cannot open the journal: the disk is full`.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Some libraries print their cause themselves.
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            let _infallible = write!(text, ": {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// What `main` returns: nothing said for success, one line for a failure.
pub fn code(program: &str, result: Result<(), &(dyn Error + 'static)>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {}", chain(error));
            ExitCode::from(FAILURE)
        }
    }
}

/// Ends the process with [`BUG`] after a panic on any thread, so that a supervisor starts it again, instead of going on
/// with a part missing. For binaries; an embedder keeps its own hook.
pub fn on_panic() {
    let former = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        former(panic);
        std::process::exit(i32::from(BUG));
    }));
}

#[cfg(test)]
mod tests;
