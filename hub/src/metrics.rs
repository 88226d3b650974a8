//! What a hub counts, read from its state when it is scraped.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tideline_common::rollup::Freshness;
use tideline_runtime::health;

use crate::committer::{StoreHealth, StoreState};
use crate::link::refusals::{Refusals, RefusedAs};
use crate::listener::{Closed, Peers};
use crate::shared::Shared;

/// The hub's registry.
pub(crate) fn registry(shared: &Shared, peers: &Peers, refusals: &Arc<Refusals>, store: &StoreHealth) -> Registry {
    let mut registry = Registry::default();
    health::register_process(&mut registry, "hub", env!("CARGO_PKG_VERSION"));
    let own = registry.sub_registry_with_prefix("tideline_hub");
    own.register(
        "state_held_seconds",
        "How long the hub's state was held at a time, so that whoever else asked for it waited",
        shared.held(),
    );
    own.register_collector(Box::new(State(shared.clone())));
    own.register_collector(Box::new(Connections(peers.clone())));
    own.register_collector(Box::new(Refused(Arc::clone(refusals))));
    own.register_collector(Box::new(Storing(store.clone())));
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
            (engine.ledger.sources_len(), engine.ledger.removals().count(), held, engine.ledger.revision())
        });
        let mut family = encoder.encode_descriptor(
            "targets",
            "Targets by whether they were heard from within their deadline",
            None,
            MetricType::Gauge,
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
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Connections(Peers);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

const fn reason(closed: Closed) -> &'static str {
    match closed {
        Closed::Unverified => "unverified",
        Closed::Network => "network",
        Closed::Key => "key",
        Closed::Idle => "idle",
        Closed::Late => "late",
    }
}

impl Collector for Connections {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let census = self.0.census();
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mut family = encoder.encode_descriptor(
            "connections",
            "Open connections by who was verified on them",
            None,
            MetricType::Gauge,
        )?;
        for (state, count) in [
            ("unverified", census.counts.unverified),
            ("agent", census.counts.agents),
            ("administrator", census.counts.administrators),
        ] {
            ConstGauge::new(signed(count)).encode(family.encode_family(&StateLabel { state })?)?;
        }
        let mut family = encoder.encode_descriptor(
            "connections_gave_way",
            "Connections that the hub closed: unverified or of a network that had its share, for newer ones; idle ones of a \
             key that had its share, or of all, for others; late to show whose they are",
            None,
            MetricType::Counter,
        )?;
        for closed in [Closed::Unverified, Closed::Network, Closed::Key, Closed::Idle, Closed::Late] {
            let count = census.closed.get(&closed).copied().unwrap_or_default();
            ConstCounter::new(count).encode(family.encode_family(&ReasonLabel { reason: reason(closed) })?)?;
        }
        let gauge = ConstGauge::new(signed(census.body_bytes));
        let help = "Bytes of requests that are being received";
        gauge.encode(encoder.encode_descriptor("receiving_bytes", help, None, MetricType::Gauge)?)
    }
}

#[derive(Debug)]
struct Storing(StoreHealth);

impl Collector for Storing {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = self.0.state();
        let help = "Whether the store takes writes: 1 for the state that it is in";
        let mut family = encoder.encode_descriptor("store_state", help, None, MetricType::Gauge)?;
        for state in StoreState::ALL {
            let label = StateLabel { state: state.as_str() };
            ConstGauge::new(i64::from(state == now)).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Refused(Arc<Refusals>);

const fn refused_as(refused: RefusedAs) -> &'static str {
    match refused {
        RefusedAs::Unverified => "unverified",
        RefusedAs::Replayed => "replayed",
        RefusedAs::Flood => "flood",
        RefusedAs::Busy => "busy",
        RefusedAs::TooLarge => "too_large",
        RefusedAs::Malformed => "malformed",
        RefusedAs::TokenRefused => "token_refused",
        RefusedAs::ShutOut => "shut_out",
        RefusedAs::SessionOver => "session_over",
    }
}

impl Collector for Refused {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.counts();
        let mut family = encoder.encode_descriptor(
            "link_requests_refused",
            "Requests of agents, and in the name of agents, that the hub refused: of nobody known; with a number that is not \
             free, which each agent has once for each run of the hub; of a key that sends much too fast; of who is shut out, or \
             has another session or a used token; to come back later; and for what they say",
            None,
            MetricType::Counter,
        )?;
        for refused in RefusedAs::ALL {
            let count = counts.get(&refused).copied().unwrap_or_default();
            ConstCounter::new(count).encode(family.encode_family(&ReasonLabel { reason: refused_as(refused) })?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_for_a_refusal_is_shown_before_the_first() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Refused(Arc::default())));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let shown: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let reasons = RefusedAs::ALL.map(refused_as);
        let expected = reasons.map(|reason| format!("link_requests_refused_total{{reason=\"{reason}\"}} 0"));
        assert_eq!(shown, expected);
    }
}
