use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::ledger::Ledger;
use crate::link::core::Config;
use crate::removal_guards::{Fuse, UNASSIGN_LIMIT};

/// Numbers up to a bound; of each ten one is not there.
#[derive(Debug)]
struct Numbers;

const NUMBERS: u32 = 2_345;

impl RootKind for Numbers {
    const KIND: &'static str = "Number";
    const PLURAL: &'static str = "numbers";
    const COLUMNS: &'static [ColumnText] = &[];

    type Position = u32;
    type Row = BTreeMap<String, u32>;

    fn rows(_: &Engine, _: Monotonic, after: Option<&u32>, most: usize) -> Vec<(u32, Self::Row)> {
        let behind = (0..NUMBERS).filter(|number| number % 10 != 3 && after.is_none_or(|after| number > after));
        behind.take(most).map(|number| (number, BTreeMap::from([("number".to_owned(), number)]))).collect()
    }

    fn name(row: &Self::Row) -> String {
        format!("n{}", row["number"])
    }
}

fn numbers() -> Arc<dyn VirtualResource> {
    let (settle, fuse) = (Duration::from_secs(10), Fuse::new(UNASSIGN_LIMIT));
    let engine = Engine::new(Config::default(), settle, fuse, Ledger::default(), BTreeMap::new());
    resource::<Numbers>(&Shared::new(engine))
}

#[tokio::test]
async fn every_row_is_in_one_page_and_is_found_by_its_name() {
    let numbers = numbers();
    for rows in [1_000, 2_110, 2_111, 2_112, 5_000] {
        let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let request = PageRequest { namespace: None, group: None, wanted: &[], after: after.as_deref(), rows };
            let Page { objects, next } = numbers.list("root", &request).unwrap();
            names.extend(objects.iter().map(|listed| listed.object["metadata"]["name"].as_str().unwrap().to_owned()));
            pages += 1;
            after = next;
            if after.is_none() {
                break;
            }
        }
        let all: Vec<_> = (0..NUMBERS).filter(|number| number % 10 != 3).map(|number| format!("n{number}")).collect();
        assert_eq!(names, all);
        assert!(pages <= all.len() / rows + 1, "{pages}");
    }
    for (name, number) in [("n0", 0), ("n499", 499), ("n1000", 1_000), ("n2344", 2_344)] {
        assert_eq!(numbers.get("root", None, name).unwrap()["number"], number);
    }
    assert!(["n3", "n2345", "x"].iter().all(|name| numbers.get("root", None, name).is_none()));
}

#[tokio::test]
async fn a_position_that_was_never_told_is_refused() {
    let request = PageRequest { namespace: None, group: None, wanted: &[], after: Some("{"), rows: 1 };
    assert_eq!(numbers().list("root", &request).unwrap_err(), UnknownKey);
}
