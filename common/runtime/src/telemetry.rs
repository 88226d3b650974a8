//! Logs: to standard error, as text on a terminal and as JSON otherwise.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, registry};

/// How logs are written, as command lines name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text on a terminal, JSON otherwise
    #[default]
    Auto,
    Text,
    Json,
}

#[derive(Debug, thiserror::Error)]
#[error("{filter:?} is not a log filter; write a level such as `info`, or `info,tideline_agent=debug`")]
pub struct FilterError {
    filter: String,
    source: ParseError,
}

/// Sends logs of this process to standard error. Where a subscriber is installed already (an embedder's, an earlier
/// run's), that one stays.
///
/// # Errors
///
/// The filter cannot be parsed.
pub fn init(filter: &str, format: Format) -> Result<(), FilterError> {
    let targets: Targets = filter.parse().map_err(|source| FilterError { filter: filter.to_owned(), source })?;
    let text = match format {
        Format::Auto => stderr().is_terminal(),
        Format::Text => true,
        Format::Json => false,
    };
    let (registry, lines) = (registry().with(targets), fmt::layer().with_writer(stderr));
    // An error means only that another subscriber was first.
    let _first = if text {
        registry.with(lines.with_ansi(stderr().is_terminal())).try_init()
    } else {
        let lines = lines.json().flatten_event(true).with_current_span(true).with_span_list(false);
        registry.with(lines).try_init()
    };
    Ok(())
}

#[cfg(test)]
mod tests;
