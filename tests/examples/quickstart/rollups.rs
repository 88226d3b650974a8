//! Rollups as the hub shows them: the virtual resource that `kubectl get rollups` reads.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use tideline_common::rollup::Counts;

use crate::manifests::Manifest;

const ENDPOINT: &str = "/apis/summary.tideline.dev/v1alpha1";

/// The state of one object over all of its targets.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Rollup {
    #[serde(skip)]
    pub(crate) title: String,
    pub(crate) counts: Counts,
    #[serde(default)]
    pub(crate) worst: Vec<Worst>,
}

/// A target where the object does not do well.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Worst {
    pub(crate) target: Option<String>,
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
}

impl Rollup {
    /// Reads the rollup of an object from the space that `client` speaks to.
    pub(crate) async fn read(client: &Client, manifest: &Manifest) -> Result<Self> {
        let name = manifest.rollup();
        let path = match manifest.object.namespace() {
            Some(namespace) => format!("{ENDPOINT}/namespaces/{namespace}/rollups/{name}"),
            None => format!("{ENDPOINT}/clusterrollups/{name}"),
        };
        let request = http::Request::get(path).body(Vec::new())?;
        let rollup: Self =
            client.request(request).await.with_context(|| format!("no rollup of {}", manifest.title()))?;
        ensure!(rollup.counts.is_consistent(), "the rollup of {} does not add up: {rollup:?}", manifest.title());
        Ok(Self { title: manifest.title(), ..rollup })
    }

    /// Whether every one of `expected` targets holds what is desired now, and does well with it.
    pub(crate) fn is_ready_on(&self, expected: u64) -> bool {
        let Counts { expected: assigned, applied, ready, stale, deleting, .. } = self.counts;
        (assigned, applied, ready, stale, deleting) == (expected, expected, expected, 0, 0)
    }

    /// Says in one line why it is not well, for the one that waits.
    pub(crate) fn complaint(&self) -> String {
        let Self { title, counts, worst } = self;
        let mut text = format!(
            "{title}: {} expected, {} applied, {} ready, {} stale",
            counts.expected, counts.applied, counts.ready, counts.stale
        );
        if let Some(Worst { target, reason, message }) = worst.first() {
            let target = target.as_deref().unwrap_or("a target");
            let _infallible = write!(text, "; {target}: {reason} {message}");
        }
        text
    }
}

/// Draws rollups as a table.
pub(crate) fn table(rollups: &[Rollup]) -> String {
    let width = rollups.iter().map(|rollup| rollup.title.len()).max().unwrap_or(0);
    let mut text = format!("{:<width$}  expected  applied  ready  stale\n", "");
    for Rollup { title, counts, .. } in rollups {
        let Counts { expected, applied, ready, stale, .. } = counts;
        let _infallible = writeln!(text, "{title:<width$}  {expected:>8}  {applied:>7}  {ready:>5}  {stale:>5}");
    }
    text
}
