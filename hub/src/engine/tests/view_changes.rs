//! What a rollup or a report shows otherwise is among what changed. That is looked at in every test of the engine.

use super::*;

/// What readers have read.
#[derive(Debug)]
pub(super) struct Read {
    number: u64,
    rows: BTreeMap<ObjectKey, Row>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    outline: String,
    /// By name.
    lines: BTreeMap<String, String>,
}

impl Row {
    fn is_less_than(&self, other: &Self) -> bool {
        self.outline.is_empty() && !other.outline.is_empty()
            || !other.lines.keys().all(|name| self.lines.contains_key(name))
    }
}

impl Hub {
    /// Rollups believe targets as far as the link does.
    pub(super) fn believes_what_the_link_does(&self) {
        for (target, index) in self.engine.ledger.targets() {
            assert_eq!(self.engine.heard.of(index), self.engine.freshness(target), "{target}");
        }
    }

    fn rows(&self) -> BTreeMap<ObjectKey, Row> {
        let mut rows: BTreeMap<ObjectKey, Row> = BTreeMap::new();
        for within in [Within::Namespaces, Within::Cluster] {
            for (_, outline) in self.engine.outline_page(&space(), within, None, pages::ALL).rows {
                rows.entry(outline.key.clone()).or_default().outline = format!("{outline:?}");
            }
            for (_, line) in self.engine.line_page(&space(), within, None, None, pages::ALL).rows {
                let lines = &mut rows.entry(line.key.clone()).or_default().lines;
                lines.insert(line.name(), format!("{line:?}"));
            }
        }
        rows
    }

    /// Reads all that is shown, and holds it against what is said to have changed since it was read last.
    pub(super) fn reads_views(&mut self) {
        let changes = &self.engine.view_changes;
        let read = Read { number: changes.number(), rows: self.rows() };
        // Not over a restart.
        let former = self.read.take().filter(|former| former.number <= read.number);
        if let Some(former) = former
            && let ChangedPlaces::These(places) = changes.since(&space(), former.number)
        {
            let nothing = Row::default();
            for place in former.rows.keys().chain(read.rows.keys()) {
                let (before, after) = [&former, &read].map(|read| read.rows.get(place).unwrap_or(&nothing)).into();
                let change = places.iter().find(|changed| changed.place == *place).map(|changed| changed.change);
                assert!(before == after || change.is_some(), "{place}: {before:?} became {after:?}");
                assert!(
                    !after.is_less_than(before) || change == Some(PlaceChange::Diminished),
                    "{place}: {before:?} lost of itself"
                );
            }
        }
        self.read = Some(read);
    }
}

#[test]
fn a_change_is_told_of_its_place_alone() {
    let mut hub = Hub::with(50);
    let before = hub.engine.view_changes.number();
    hub.adds("c7", "bar");
    hub.deleted([3]);
    let places = match hub.engine.view_changes.since(&space(), before) {
        ChangedPlaces::These(places) => places,
        ChangedPlaces::Any { .. } => panic!("two of 51 changed"),
    };
    let places: Vec<_> = places.iter().map(|changed| changed.place.to_string()).collect();
    assert_eq!(places, ["ConfigMap bar/c7", "ConfigMap shop/c3"]);
    let elsewhere = "elsewhere".parse().unwrap();
    assert_eq!(hub.engine.view_changes.since(&elsewhere, before), ChangedPlaces::These(Vec::new()));
}
