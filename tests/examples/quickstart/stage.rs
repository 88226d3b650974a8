//! What the audience sees.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use anyhow::Result;
use tideline_tests::eventually_ok;
use tokio::time::Instant;

/// Columns before the elapsed time.
const WIDTH: usize = 96;
/// Longest wait for anything: all of the demonstration takes less on two cores.
const WAIT_MAX: Duration = Duration::from_secs(40);

/// Prints chapters, and in them what is done, with the time since the start.
pub(crate) struct Stage {
    began: Instant,
    chapters: Cell<usize>,
}

impl Stage {
    /// Opens with a title and a note below it.
    pub(crate) fn open(title: &str, note: &str) -> Self {
        println!("\n{title}\n{note}");
        Self { began: Instant::now(), chapters: Cell::new(0) }
    }

    /// Begins a part of the demonstration.
    pub(crate) fn chapter(&self, title: &str) {
        self.chapters.set(self.chapters.get() + 1);
        println!("\n{:>2}. {title}", self.chapters.get());
    }

    /// Says what is so, and since when.
    pub(crate) fn done(&self, what: &str) {
        println!("    ✓ {} {:>6.2} s", pad(what), self.began.elapsed().as_secs_f64());
    }

    /// Prints text of several lines as it is.
    pub(crate) fn show(text: &str) {
        println!();
        for line in text.lines() {
            println!("      {line}");
        }
    }

    /// Says the last word.
    pub(crate) fn end(&self, what: &str) {
        println!("\n{} {:>6.2} s", pad(what), self.began.elapsed().as_secs_f64());
    }

    /// Polls until `probe` succeeds, prints what is still missing whenever that changes, and prints `what` when it is so.
    ///
    /// # Errors
    ///
    /// When the time is up; the message says what was awaited and what was seen last.
    pub(crate) async fn until<T>(&self, what: &str, mut probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let shown = RefCell::new(String::new());
        let seen = eventually_ok(WAIT_MAX, what, async || {
            let outcome = probe().await;
            if let Err(missing) = &outcome {
                let missing = format!("{missing:#}");
                if *shown.borrow() != missing {
                    println!("    … {missing}");
                    shown.replace(missing);
                }
            }
            outcome
        })
        .await?;
        self.done(what);
        Ok(seen)
    }
}

/// Fills up with dots to the column of the times.
fn pad(text: &str) -> String {
    let missing = WIDTH.saturating_sub(text.chars().count());
    format!("{text} {}", "·".repeat(missing))
}
