//! What tests need from outside the tree, and what happens when it is absent: a skip that is said aloud and counted,
//! or, where a skip would hide a hole (CI), a failure.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};

use anyhow::Result;

/// Returns what was found; when nothing was, says that `test` is skipped and returns `None`.
///
/// The line goes to standard error past the capture of the test harness, and to the file named by
/// `TIDELINE_SKIP_LOG`, by which `tests/run` counts.
///
/// # Errors
///
/// When `found` is an error, and when nothing was found though it must be: under `CI=true` or
/// `TIDELINE_REQUIRE_KUBERNETES=1`.
pub fn met_or_skipped<T>(test: &str, found: Result<Option<T>>, missing: &str) -> Result<Option<T>> {
    if let Some(found) = found? {
        return Ok(Some(found));
    }
    for (variable, value) in [("CI", "true"), ("TIDELINE_REQUIRE_KUBERNETES", "1")] {
        if env::var(variable).is_ok_and(|set| set == value) {
            anyhow::bail!("{test} must not be skipped under {variable}={value}: {missing}");
        }
    }
    let line = format!("SKIPPED {test}: {missing}\n");
    // One write each, so that lines of tests running side by side stay whole.
    io::stderr().lock().write_all(line.as_bytes())?;
    if let Some(log) = env::var_os("TIDELINE_SKIP_LOG") {
        OpenOptions::new().create(true).append(true).open(log)?.write_all(line.as_bytes())?;
    }
    Ok(None)
}

/// Returns the path of the function whose inner item has the type name `inner`; used by [`test_name!`](crate::test_name).
pub fn enclosing_function(inner: &str) -> String {
    let outer = inner.rsplit_once("::").map_or(inner, |(outer, _)| outer);
    outer.replace("::{{closure}}", "")
}

/// Expands to the path of the surrounding function, as the test harness prints it.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        $crate::enclosing_function(::std::any::type_name_of_val(&here))
    }};
}

/// Expands to the [`Assets`](crate::kubernetes::Assets) of real Kubernetes, or returns `Ok(())` from the test after
/// saying that it is skipped. For tests that return `anyhow::Result<()>`.
#[macro_export]
macro_rules! require_kubernetes {
    () => {
        match $crate::met_or_skipped(
            &$crate::test_name!(),
            $crate::kubernetes::Assets::locate(),
            $crate::kubernetes::Assets::MISSING,
        )? {
            Some(assets) => assets,
            None => return Ok(()),
        }
    };
}

/// Expands to the [`Binaries`](crate::Binaries) under test, or returns `Ok(())` from the test after saying that it is
/// skipped. For tests that return `anyhow::Result<()>`.
#[macro_export]
macro_rules! require_binaries {
    () => {
        match $crate::met_or_skipped(&$crate::test_name!(), $crate::Binaries::locate(), $crate::Binaries::MISSING)? {
            Some(binaries) => binaries,
            None => return Ok(()),
        }
    };
}

#[cfg(test)]
mod tests;
