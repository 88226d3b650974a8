//! When a bench runs at all.

use std::env;

use clap::Parser;

/// Returns the arguments of a bench under `cargo bench`, and nothing under `cargo test --benches`, which starts the
/// same program without `--bench`: minutes of measuring in a dev build would be no test.
pub(crate) fn arguments<A: Parser>() -> Option<A> {
    let given: Vec<_> = env::args_os().collect();
    if !given.iter().any(|argument| argument == "--bench") {
        eprintln!("a bench measures only under cargo bench");
        return None;
    }
    Some(A::parse_from(given.into_iter().filter(|argument| argument != "--bench")))
}
