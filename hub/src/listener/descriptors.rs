//! How many files, connections included, this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

use crate::limits::DESCRIPTORS_WANTED;

/// Raises the limit as far as this process may, and returns it. Most systems begin with 1,024 for programs that know no
/// better, and let every program raise that.
pub(crate) fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = DESCRIPTORS_WANTED as u64;
    let reachable = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let mut limit = current.unwrap_or(u64::MAX);
    if limit < reachable {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), maximum }) {
            Ok(()) => limit = reachable,
            Err(error) => warn!(%error, limit, reachable, "cannot raise the limit of open files"),
        }
    }
    if limit < wanted {
        warn!(
            limit,
            wanted,
            "the limit of open files bounds the connections of agents; raise it (LimitNOFILE= of systemd, ulimit -n)"
        );
    }
    usize::try_from(limit).unwrap_or(usize::MAX)
}
