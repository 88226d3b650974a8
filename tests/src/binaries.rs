//! Tideline's binaries, for tests of what only a process has: exit codes, kill −9, ports, memory.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The directory with the binaries under test.
#[derive(Clone, Debug)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// What to do when [`Binaries::locate`] finds nothing.
    pub const MISSING: &str = "TIDELINE_BIN_DIR is not set; build tideline-hub and tideline-agent and point it at \
                               them (an absolute path), or use tests/run";

    /// Finds the binaries by `TIDELINE_BIN_DIR`; `None` when it is not set.
    ///
    /// # Errors
    ///
    /// When it is set and a binary is missing: a wrong path must not pass for a wish to skip.
    pub fn locate() -> Result<Option<Self>> {
        let Some(directory) = env::var_os("TIDELINE_BIN_DIR").map(PathBuf::from) else {
            return Ok(None);
        };
        Self::at(directory).context("TIDELINE_BIN_DIR is set").map(Some)
    }

    /// The binaries of a directory.
    ///
    /// # Errors
    ///
    /// When they are not there.
    pub fn at(directory: PathBuf) -> Result<Self> {
        // Cargo runs each test in its package's folder, not where a variable was written.
        ensure!(directory.is_absolute(), "{} is not absolute", directory.display());
        let found = Self { directory };
        for binary in [found.hub(), found.agent()] {
            ensure!(binary.is_file(), "{} does not exist", binary.display());
        }
        Ok(found)
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of `tideline-hub`.
    pub fn hub(&self) -> PathBuf {
        self.directory.join("tideline-hub")
    }

    /// Returns the path of `tideline-agent`.
    pub fn agent(&self) -> PathBuf {
        self.directory.join("tideline-agent")
    }
}
