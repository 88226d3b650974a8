//! The binary: arguments, logs, signals, exit code.

mod cli;
mod heap;

use std::process::ExitCode;

use clap::Parser;
use tideline_runtime::exit;

fn main() -> ExitCode {
    exit::on_panic();
    match cli::run(cli::Cli::parse()) {
        Ok(()) => exit::code("tideline-hub", Ok(())),
        Err(error) => exit::code("tideline-hub", Err(&error)),
    }
}
