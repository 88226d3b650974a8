//! Which version of the hub wrote its data directory last: to name the one that reads what this one cannot.

use std::fs;
use std::io;
use std::path::Path;

use crate::identity::write_private;

/// Every version, however old, reads and writes this file: a version's name and a line end.
const FILE: &str = "written-by";
/// Bytes of a version's name; more is no version.
const VERSION_BYTES_MAX: usize = 64;

/// None where no version said so.
pub(crate) fn read(dir: &Path) -> Option<String> {
    let text = fs::read_to_string(dir.join(FILE)).ok()?;
    let version: String = text.chars().filter(char::is_ascii_graphic).take(VERSION_BYTES_MAX).collect();
    (!version.is_empty()).then_some(version)
}

/// Whether any version wrote its data there: there was a store then, or one is being restored.
pub(crate) fn is_in(dir: &Path) -> io::Result<bool> {
    dir.join(FILE).try_exists()
}

/// Says that this version writes there from now on. Only after everything there was read: whoever cannot read it has
/// written nothing.
pub(crate) fn write(dir: &Path) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    if read(dir).as_deref() == Some(version) {
        return Ok(());
    }
    write_private(&dir.join(FILE), format!("{version}\n").as_bytes())
}
