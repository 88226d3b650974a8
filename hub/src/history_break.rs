//! What clusters know of and this hub does not, and what that means, in words for people.

use serde::{Deserialize, Serialize};
use tideline_common::{Epoch, Revision, Version};

/// Unknown sets that a sentence names, the highest.
const NAMED_MAX: usize = 5;

/// Why targets keep what they have, and begin no removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all_fields = "camelCase")]
pub enum HistoryBreak {
    /// A cluster was given a set that this hub does not know of.
    SetUnknown {
        /// The SyncTarget that showed it last.
        target: String,
        segment: String,
        epoch: Epoch,
        revision: Revision,
        /// Up to here this hub's history may be the same.
        after: Revision,
        /// Whether the hub's own signed word proves it, so that it concerns all targets.
        proven: bool,
    },
    /// The store was restored from a backup.
    Restored { id: String, made: String },
}

/// What concerns all targets, in one sentence for people: what is so, and what follows. None where nothing is proven.
pub fn sentence(breaks: &[HistoryBreak]) -> Option<String> {
    let restored = breaks.iter().find_map(|found| match found {
        HistoryBreak::Restored { made, .. } => Some(made.as_str()),
        HistoryBreak::SetUnknown { .. } => None,
    });
    let unknown = breaks.iter().filter_map(|found| match found {
        HistoryBreak::SetUnknown { target, epoch, revision, after, proven: true, .. } => {
            Some((Version { epoch: *epoch, revision: *revision }, *after, target.as_str()))
        }
        HistoryBreak::SetUnknown { .. } | HistoryBreak::Restored { .. } => None,
    });
    say(restored, say_unknown(unknown))
}

/// What agents claim and do not prove, each with its target. It concerns that one alone.
pub fn claims(breaks: &[HistoryBreak]) -> impl Iterator<Item = (&str, String)> {
    breaks.iter().filter_map(|found| match found {
        HistoryBreak::SetUnknown { target, epoch, revision, proven: false, .. } => {
            Some((target.as_str(), claim(target, Version { epoch: *epoch, revision: *revision })))
        }
        HistoryBreak::SetUnknown { .. } | HistoryBreak::Restored { .. } => None,
    })
}

/// What the agent of a target claims and does not prove.
pub(crate) fn claim(target: &str, version: Version) -> String {
    format!(
        "its agent claims a set (at {version}) that this hub does not know of, and shows no word of this hub for it. Nothing is \
         rolled out to its cluster or removed there until this is settled; other clusters are not affected. If somebody \
         else may have its key: tideline-hub targets revoke {target}; if the agent is as it should be: tideline-hub history \
         accept, which makes approvals void everywhere"
    )
}

/// Unknown sets come with the revision up to which the histories are the same, and with who showed them.
fn say_unknown<'a>(unknown: impl Iterator<Item = (Version, Revision, &'a str)>) -> Option<String> {
    let (mut highest, mut count) = (Vec::new(), 0_usize);
    let mut since: Option<Revision> = None;
    for (version, after, target) in unknown {
        count += 1;
        since = Some(since.map_or(after, |since| since.min(after)));
        let place = highest.partition_point(|(higher, _)| *higher >= version);
        highest.insert(place, (version, target));
        highest.truncate(NAMED_MAX);
    }
    since.map(|since| {
        let mut known: Vec<_> = highest.iter().map(|(version, target)| format!("{target} (at {version})")).collect();
        if count > NAMED_MAX {
            known.push(format!("and {} more, shown by tideline-hub history show", count - NAMED_MAX));
        }
        format!("Clusters were given sets after revision {since} that this hub does not know of: {}.", known.join(", "))
    })
}

/// That the hub was restored from a backup of then, and what it does not know of.
pub(crate) fn say(restored: Option<&str>, unknown: Option<String>) -> Option<String> {
    let restored = restored.map(|made| format!("This hub was restored from a backup of {made}."));
    let what: Vec<_> = restored.into_iter().chain(unknown).collect();
    (!what.is_empty()).then(|| {
        format!(
            "{} Nothing is rolled out or removed until this is settled. If another directory or machine holds the newer \
             store, stop this hub and start it there; if it is lost: tideline-hub history accept",
            what.join(" ")
        )
    })
}

#[cfg(test)]
mod tests;
