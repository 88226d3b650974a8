//! The workload cluster: what is there, and what is done to it.
//!
//! - [`connect`]: a client from a kubeconfig or from inside the cluster, never through a proxy.
//! - [`Kinds`]: which kinds the API server serves, and how.
//! - [`Watches`]: one list and watch per kind, scoped to our label, folded into [`Observed`](crate::core::Observed) as it
//!   comes in; no object is kept.
//! - [`Followers`]: one list and watch per kind of what was made of placed objects, as long as something asks for it.
//! - [`Survey`]: one look at what there is of a kind under our label, for the patrol.
//! - [`pulse`](fn@pulse): whether the API server answers at all, as watches that are silent do not tell.
//! - [`Executor`]: carries out one [`Op`](crate::core::Op) at a time with as few requests as it takes.
//! - [`Teller`]: Events on objects that go wrong, beside all else.
//!
//! Everything that judges is pure: [`fold`], [`compare`], [`render`], [`exempt`], [`fields`], [`failure`].

use std::sync::Arc;

use tideline_common::{Digest, MARK_LABEL};

use crate::core::Sighting;

mod autoscaled;
mod compare;
mod connect;
mod deadlines;
mod discovery;
mod execute;
mod exempt;
mod failure;
mod fields;
mod fold;
mod follow;
mod inspect;
mod kubeconfig;
mod object;
mod observe;
mod pages;
mod pulse;
mod render;
mod request;
mod resource;
mod survey;
mod tell;
mod watch;

pub use connect::{Answers, Error, connect, facts, facts_from_now};
pub use discovery::Kinds;
pub use execute::Executor;
pub use follow::Followers;
pub use kubeconfig::{AuthorityFile, KubeconfigFile};
pub use observe::Watches;
pub use pulse::{Pulse, pulse};
pub use survey::Survey;
pub use tell::{Teller, Told};

/// Whose objects are ours.
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

/// Whether a sighting is of ours, or of what was copied here from another target of the same hub.
fn is_of_interest(scope: &Scope, sighting: &Sighting) -> bool {
    let mark = || sighting.details()?.mark.as_ref();
    sighting.labelled || mark().is_some_and(|mark| mark.hub == scope.hub)
}

/// Where rendered objects come from: the journal.
pub trait Bodies: Send + Sync {
    /// Reads the text of an input, or says why it cannot.
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
