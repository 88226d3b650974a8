//! What a hub counts, read from its state when it is scraped.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tideline_common::rollup::Freshness;
use tideline_runtime::health;

use crate::shared::Shared;

/// The hub's registry.
pub(crate) fn registry(shared: &Shared) -> Registry {
    let mut registry = Registry::default();
    health::register_process(&mut registry, "hub", env!("CARGO_PKG_VERSION"));
    registry.sub_registry_with_prefix("tideline_hub").register_collector(Box::new(State(shared.clone())));
    registry
}

#[derive(Debug)]
struct State(Shared);

/// Labels from a closed enum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FreshnessLabel {
    freshness: &'static str,
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (mut fresh, mut stale, mut unheard) = (0i64, 0i64, 0i64);
        let (sources, removals, held, revision) = self.0.read(|engine| {
            for (target, _) in engine.targets.iter() {
                match engine.freshness(target) {
                    Freshness::Fresh => fresh += 1,
                    Freshness::Stale => stale += 1,
                    Freshness::Unheard => unheard += 1,
                }
            }
            let held: u64 = engine.ledger.kept().map(|source| source.kept().len()).sum();
            (engine.ledger.sources().count(), engine.ledger.removals().count(), held, engine.ledger.revision())
        });
        let mut family = encoder.encode_descriptor(
            "targets",
            "Targets by whether they were heard from within their deadline",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for (freshness, count) in [("fresh", fresh), ("stale", stale), ("unheard", unheard)] {
            ConstGauge::new(count).encode(family.encode_family(&FreshnessLabel { freshness })?)?;
        }
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for (name, help, value) in [
            ("placed_objects", "Objects that are assigned to any target", signed(sources)),
            ("unconfirmed_removals", "Removals that some target has not confirmed", signed(removals)),
            (
                "held_unassignments",
                "Assignments that nothing wants any more, held until a person approves that they end",
                i64::try_from(held).unwrap_or(i64::MAX),
            ),
            ("ledger_revision", "The last commit of the ledger", i64::try_from(revision.0).unwrap_or(i64::MAX)),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                prometheus_client::metrics::MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}
