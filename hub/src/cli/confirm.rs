//! Whether a person means it: asked on standard error, answered at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("nobody can be asked, for standard input is no terminal; say --yes, or look first: {look}")]
    Unasked { look: String },
    #[error("nothing was changed")]
    Declined,
    #[error("cannot read the answer")]
    Answer(#[source] io::Error),
}

/// Shows what the question is about, and asks it. `look` is the command that shows the same and asks nothing.
pub(super) fn ask(about: &str, question: &str, look: &str) -> Result<(), Error> {
    if !io::stdin().is_terminal() {
        return Err(Error::Unasked { look: look.to_owned() });
    }
    eprint!("{about}{question} [y/N] ");
    io::stderr().flush().map_err(Error::Answer)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Error::Answer)?;
    if is_yes(&answer) { Ok(()) } else { Err(Error::Declined) }
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_yes_is_yes() {
        assert!(["y\n", "Yes\n", " YES "].into_iter().all(is_yes));
        assert!(!["", "\n", "n\n", "yess\n", "no"].into_iter().any(is_yes));
    }
}
