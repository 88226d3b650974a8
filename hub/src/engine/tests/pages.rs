//! Outlines and reports, page by page.

use proptest::prelude::*;
use serde_json::value::RawValue;
use tideline_common::wire::v1::ObjectReport;

use super::*;
use crate::summary::tests::all_is_well;
use crate::summary::withheld_for_another;

pub(super) const ALL: PageBound = PageBound { rows: usize::MAX, looks: usize::MAX };

/// Pages of one list, as somebody reads them who lets others in between.
#[derive(Clone, Copy, Debug)]
enum View {
    Outlines,
    Lines,
}

impl Hub {
    pub(super) fn outlines(&self) -> Vec<SourceOutline> {
        let page = self.engine.outline_page(&space(), Within::Namespaces, None, ALL);
        page.rows.into_iter().map(|(_, outline)| outline).collect()
    }

    pub(super) fn lines(&self) -> Vec<ReportLine> {
        let page = self.engine.line_page(&space(), Within::Namespaces, None, None, ALL);
        page.rows.into_iter().map(|(_, line)| line).collect()
    }

    /// So many targets more, which have all that the first one has.
    fn with_targets(mut self, more: u8) -> Self {
        for nth in 1..=more {
            let id = format!("00000000-0000-4000-8000-0000000000{nth:02x}").parse().unwrap();
            self.engine.target_seen(self.now, Target { id, ..in_service(true) }, None);
            self.engine.call_target(self.now, id, &format!("t{nth}"));
        }
        self.persist();
        self.pass(SETTLE);
        self
    }

    /// The deletion of some reaches the ledger.
    pub(super) fn deleted(&mut self, objects: impl IntoIterator<Item = usize>) {
        objects.into_iter().for_each(|nth| self.delete(nth));
        self.persist();
        self.pass(SETTLE);
    }

    pub(super) fn adds(&mut self, name: &str, namespace: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "uid": format!("again-{namespace}-{name}")},
        });
        self.engine.index.apply(&space(), &config_maps(), clean::read(clean::SpaceServer::Embedded, &object).unwrap());
        self.persist();
        self.pass(SETTLE);
    }

    fn all_say_a_status(&mut self) {
        for (target, index) in self.engine.ledger.targets() {
            let view = self.engine.ledger.target(target).unwrap();
            let said = view.entries().map(|entry| ObjectReport {
                status: Some(RawValue::from_string("{}".to_owned()).unwrap().into()),
                ..withheld_for_another(&entry.key, &entry.source.uid)
            });
            let report = ReportedRequest { objects: said.collect(), ..all_is_well() };
            self.engine.summary.take(target, index, report);
        }
    }

    /// One page by the names of its rows, and where the next one begins.
    fn part(
        &self,
        view: View,
        within: Within<'_>,
        after: Option<&PagePosition>,
        bound: PageBound,
    ) -> (Vec<String>, Option<PagePosition>) {
        let names = |key: &ObjectKey, name: &str| format!("{}/{}{name}", key.namespace, key.name);
        match view {
            View::Outlines => {
                let Page { rows, next } = self.engine.outline_page(&space(), within, after, bound);
                (rows.iter().map(|(_, outline)| names(&outline.key, "")).collect(), next)
            }
            View::Lines => {
                let Page { rows, next } = self.engine.line_page(&space(), within, None, after, bound);
                (rows.iter().map(|(_, line)| names(&line.key, &format!(".{}", line.name()))).collect(), next)
            }
        }
    }

    fn pages(&self, view: View, within: Within<'_>, bound: PageBound) -> Vec<Vec<String>> {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let (names, next) = self.part(view, within, after.as_ref(), bound);
            pages.push(names);
            match next {
                Some(next) => after = Some(next),
                None => return pages,
            }
        }
    }
}

#[test]
fn a_list_is_in_the_order_of_places_and_a_namespace_is_a_part_of_it() {
    let mut hub = Hub::with(3);
    hub.adds("c1", "bar");
    hub.adds("z", "zoo");
    let whole = |view, within| hub.pages(view, within, ALL).concat();
    assert_eq!(whole(View::Outlines, Within::Namespaces), ["bar/c1", "shop/c0", "shop/c1", "shop/c2", "zoo/z"]);
    assert_eq!(whole(View::Outlines, Within::Namespace("shop")), ["shop/c0", "shop/c1", "shop/c2"]);
    assert_eq!(whole(View::Outlines, Within::Namespace("sho")), Vec::<String>::new());
    assert_eq!(whole(View::Outlines, Within::Cluster), Vec::<String>::new());
    assert_eq!(whole(View::Lines, Within::Namespace("zoo")), [format!("zoo/z.{}", target())]);
}

#[test]
fn a_page_ends_where_it_has_looked_at_enough() {
    let mut hub = Hub::with(6).with_targets(3);
    let lengths = |hub: &Hub, view, rows, looks| -> Vec<usize> {
        let pages = hub.pages(view, Within::Namespaces, PageBound { rows, looks });
        pages.iter().map(Vec::len).collect()
    };
    // Each object is one look, and the set of its four copies another.
    assert_eq!(lengths(&hub, View::Outlines, 4, 1_000), [4, 2]);
    assert_eq!(lengths(&hub, View::Outlines, 100, 6), [3, 3]);
    hub.all_say_a_status();
    // Each of the copies is one too, for its status differs.
    assert_eq!(lengths(&hub, View::Outlines, 100, 12), [2, 2, 2]);
    assert_eq!(lengths(&hub, View::Outlines, 100, 1), [1; 6]);
    let lengths = |view, rows, looks| lengths(&hub, view, rows, looks);
    assert_eq!(lengths(View::Lines, 9, 1_000), [9, 9, 6], "in the midst of an object");
    assert_eq!(lengths(View::Lines, 1, 1), [1; 24]);
}

#[test]
fn what_one_target_says_is_read_without_the_others() {
    let hub = Hub::with(6).with_targets(3);
    let of = |name| {
        let Page { rows, next } =
            hub.engine.line_page(&space(), Within::Namespaces, Some(name), None, PageBound { rows: 100, looks: 13 });
        assert_eq!(next, None, "an object is a look, and each line of it another");
        rows.into_iter().map(|(_, line)| line.name()).collect::<Vec<_>>()
    };
    assert_eq!(of("t2"), ["t2"; 6]);
    assert_eq!(of("t4"), Vec::<String>::new());
}

#[test]
fn what_comes_and_goes_between_pages_moves_nothing_else() {
    let mut hub = Hub::with(6).with_targets(3);
    let bound = PageBound { rows: 10, looks: 1_000 };
    let (first, next) = hub.part(View::Lines, Within::Namespaces, None, bound);
    assert_eq!(first[8..], [format!("shop/c2.{}", target()), "shop/c2.t1".to_owned()]);
    // What comes before the place where it goes on is not seen any more, what comes behind it is.
    hub.adds("a", "bar");
    hub.adds("c20", "shop");
    let mut rest = Vec::new();
    let mut after = next;
    while let Some(position) = after {
        let (names, next) = hub.part(View::Lines, Within::Namespaces, Some(&position), bound);
        rest.extend(names);
        after = next;
        // The first time, with `c2`, `c20` and `c3` done.
        hub.engine.target_gone(hub.now, target(), Deletion::default());
        hub.persist();
    }
    assert_eq!(rest[..2], ["shop/c2.t2", "shop/c2.t3"]);
    // The rest of `c2`, two whole objects, and two that the target has left.
    assert_eq!(rest.len(), 2 + 2 * 4 + 2 * 3, "{rest:?}");
    let seen: BTreeSet<_> = first.iter().chain(&rest).collect();
    assert_eq!(seen.len(), first.len() + rest.len(), "nothing twice");
}

#[test]
fn what_is_deleted_stays_in_its_place_until_targets_have_removed_it() {
    let mut hub = Hub::with(100);
    let before = hub.pages(View::Lines, Within::Namespaces, ALL).concat();
    hub.deleted([3]);
    assert_eq!(hub.removals(), 1);
    assert_eq!(hub.pages(View::Lines, Within::Namespaces, ALL).concat(), before);
    assert_eq!(hub.lines().iter().filter(|line| line.leaving).count(), 1);
    // One that is made anew in that place is there once.
    hub.adds("c3", "shop");
    assert_eq!(hub.pages(View::Lines, Within::Namespaces, ALL).concat(), before);
    assert_eq!(hub.outlines().len(), 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn pages_of_any_size_are_the_whole_list(
        objects in 1_usize..30,
        targets in 0_u8..5,
        gone in proptest::collection::btree_set(0_usize..30, 0..4),
        again in any::<bool>(),
        (rows, looks) in (1_usize..40, 1_usize..60),
    ) {
        let mut hub = Hub::with(objects).with_targets(targets);
        hub.deleted(gone.iter().copied().filter(|nth| *nth < objects));
        if again {
            hub.adds("c0", "shop");
            hub.adds("c0", "bar");
        }
        for within in [Within::Namespaces, Within::Namespace("shop"), Within::Cluster] {
            for view in [View::Outlines, View::Lines] {
                let whole = hub.pages(view, within, ALL).concat();
                let pages = hub.pages(view, within, PageBound { rows, looks });
                prop_assert!(pages.iter().all(|page| page.len() <= rows));
                prop_assert_eq!(pages.concat(), whole);
            }
        }
        // Each is what is read by its name, and nothing else is there.
        for outline in hub.outlines() {
            let one = hub.engine.outline_of(&space(), &outline.key).unwrap();
            prop_assert_eq!((one.source, one.overview.counts), (outline.source, outline.overview.counts));
        }
        for line in hub.lines() {
            let one = hub.engine.report_line_of(&space(), &line.key, &line.name()).unwrap();
            prop_assert_eq!((one.source, one.target, one.leaving), (line.source, line.target, line.leaving));
        }
        let known: BTreeSet<_> = hub.outlines().into_iter().map(|outline| outline.key).collect();
        for place in (0..objects).map(key) {
            prop_assert_eq!(known.contains(&place), hub.engine.outline_of(&space(), &place).is_some());
        }
    }
}
