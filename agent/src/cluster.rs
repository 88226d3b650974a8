//! The workload cluster: what exists there, and operations on it.
//!
//! - [`connect`]: a client from a kubeconfig or from inside the cluster, never through a proxy.
//! - [`Kinds`]: which kinds the API server serves, and how.
//! - [`Watches`]: one list and watch per kind, scoped to our label, decoded into [`Observed`](crate::core::Observed) as it
//!   comes in; no object is kept.
//! - [`AssociatedWatchers`]: one list and watch per kind of associated objects, as long as something asks for it.
//! - [`MetadataList`]: one list of what there is of a kind under our label, for the patrol.
//! - [`probe_api_server`](fn@probe_api_server): whether the API server answers at all, as watches that are silent do not tell.
//! - [`Executor`]: carries out one [`Op`](crate::core::Op) at a time with as few requests as it takes.
//! - [`EventRecorder`]: Events on objects that go wrong, beside all else.
//!
//! Everything that judges is pure: [`decode`], [`compare`], [`render`], [`exempt`], [`fields`], [`failure`].

use std::sync::Arc;

use tideline_common::{Digest, MARK_LABEL};

use crate::core::ListedItem;

mod api_server_probe;
mod associated_watchers;
mod autoscaled;
mod compare;
mod connect;
mod deadlines;
mod decode;
mod definition;
mod discovery;
mod event_recorder;
mod execute;
mod exempt;
mod failure;
mod fields;
mod inspect;
mod kubeconfig;
mod metadata;
mod metadata_list;
mod object;
mod observe;
mod page_sizes;
mod pages;
mod render;
mod request;
mod resource;
mod watch;

pub use api_server_probe::{ApiServerProbe, probe_api_server};
pub use associated_watchers::AssociatedWatchers;
pub use connect::{Answers, Error, connect, facts, facts_from_now};
pub use discovery::Kinds;
pub use event_recorder::{EventRecorder, Recorded};
pub use execute::Executor;
pub use kubeconfig::{AuthorityFile, KubeconfigFile};
pub use metadata_list::MetadataList;
pub use observe::Watches;

/// The hub and targets whose objects are ours.
pub use tideline_common::Owner as Scope;

/// Selects by label the objects that say they are ours, under the label of a former target too.
fn selector(scope: &Scope) -> String {
    let former: Vec<_> = scope.formers.iter().map(|target| target.to_string()).collect();
    if former.is_empty() {
        format!("{MARK_LABEL}={}", scope.target)
    } else {
        format!("{MARK_LABEL} in ({},{})", scope.target, former.join(","))
    }
}

/// Whether a label names this agent, or what it was.
fn is_ours(scope: &Scope, label: &str) -> bool {
    label.parse().is_ok_and(|target| scope.owns(target))
}

/// Whether a listed item is ours, or was copied here from another target of the same hub.
fn is_of_interest(scope: &Scope, item: &ListedItem) -> bool {
    let mark = || item.details()?.mark.as_ref();
    item.labelled || mark().is_some_and(|mark| mark.hub == scope.hub)
}

/// Where rendered objects come from: the journal.
pub trait Bodies: Send + Sync {
    /// Reads the text of an input, or says why it cannot.
    ///
    /// # Errors
    ///
    /// There is no such body, or it cannot be read now: see [`BodyError`].
    fn body(&self, input: Digest) -> Result<Arc<str>, BodyError>;
}

/// Why there is no body, for a person to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is not there, or damaged: it must come from the hub again.
    Missing(String),
    /// It cannot be read now.
    Unavailable(String),
}
