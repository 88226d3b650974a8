//! Temporary directories that do not outlive the test, however it ends.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::leash;

/// A temporary directory, readable by its owner only, removed on drop or when this process is gone.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
}

impl Scratch {
    /// Makes a directory whose name begins with `tideline-` and `purpose`.
    pub fn new(purpose: &str) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix(&format!("tideline-{purpose}-"))
            .tempdir()
            .context("making a temporary directory")?;
        leash::hold_directory(directory.path());
        Ok(Self { directory })
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of `name` in the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Told before the removal itself: if that fails there is nobody to tell.
        leash::directory_removed(self.directory.path());
    }
}

/// Copies a directory with all that is in it.
///
/// # Errors
///
/// When something cannot be read or written.
pub fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
