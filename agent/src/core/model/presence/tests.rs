use tideline_common::Uid;
use uuid::Uuid;

use super::*;

fn uid(number: u128) -> Uid {
    Uid::from_uuid(Uuid::from_u128(number))
}

fn seen(number: u128, version: &str) -> Seen {
    Seen {
        uid: uid(number),
        resource_version: version.into(),
        generation: 1,
        managed: None,
        mark: None,
        labelled: true,
        deleting: false,
        illegible: false,
        managed_elsewhere: false,
        observed_generation: None,
        others: None,
    }
}

fn version(presence: &Presence) -> Option<&str> {
    presence.seen().map(|seen| &*seen.resource_version)
}

#[test]
fn what_is_shown_ends_every_doubt() {
    let mut presence = Presence::default();
    presence.doubt();
    presence.may_be_unshown();
    assert!(presence.is_doubted() && presence.is_unshown() && !presence.is_plain());
    presence.show(seen(1, "5"));
    assert_eq!(version(&presence), Some("5"));
    assert!(presence.is_plain() && !presence.is_unshown());
}

#[test]
fn what_a_list_shows_twice_is_as_good_as_shown() {
    let mut presence = Presence::default();
    presence.may_be_unshown();
    presence.doubt();
    presence.list(seen(1, "5"));
    assert_eq!(version(&presence), Some("5"));
    assert!(presence.is_plain() && !presence.is_unshown());
}

#[test]
fn what_is_doubted_is_not_seen_and_stays_in_doubt_while_nothing_shows_it() {
    let mut presence = Presence::from(Some(seen(1, "5")));
    presence.doubt();
    assert_eq!(version(&presence), None);
    presence.hide();
    assert!(presence.is_doubted());
}

#[test]
fn what_is_hidden_is_not_doubted() {
    let mut presence = Presence::from(Some(seen(1, "5")));
    presence.hide();
    assert!(presence.seen().is_none() && presence.is_plain());
}

#[test]
fn only_what_was_seen_vanishes() {
    let mut presence = Presence::from(Some(seen(1, "5")));
    assert!(!presence.vanish(&uid(2)));
    assert_eq!(version(&presence), Some("5"));
    assert!(presence.vanish(&uid(1)));
    assert!(presence.seen().is_none() && presence.is_plain());
    assert!(!presence.vanish(&uid(1)));
}

#[test]
fn a_probe_is_good_for_one_decision() {
    let mut presence = Presence::default();
    presence.probe(seen(1, "5"));
    assert!(presence.seen().is_none() && !presence.is_plain());
    assert!(presence.take_probe().is_some());
    assert!(presence.take_probe().is_none() && presence.is_plain());
}

#[test]
fn a_probe_ends_with_what_is_heard_of_its_object_or_done_to_it() {
    let after = |change: fn(&mut Presence)| {
        let mut presence = Presence::default();
        presence.probe(seen(1, "5"));
        change(&mut presence);
        presence.take_probe().map(|probe| probe.resource_version)
    };
    assert_eq!(after(Presence::begin_write), None);
    assert_eq!(after(|presence| presence.show(seen(1, "6"))), None);
    assert_eq!(after(Presence::doubt), None);
    // The cluster may have been set back.
    assert_eq!(after(|presence| presence.list(seen(1, "4"))), None);
    assert_eq!(after(|presence| assert!(!presence.vanish(&uid(1)))), None);
    // Nothing newer is said of it by any of these.
    assert_eq!(after(|presence| presence.show(seen(1, "5"))).as_deref(), Some("5"));
    assert_eq!(after(|presence| presence.show(seen(2, "6"))).as_deref(), Some("5"));
    assert_eq!(after(Presence::hide).as_deref(), Some("5"));
}

#[test]
fn what_a_creation_found_is_not_doubted_and_no_watch_has_shown_it() {
    let mut presence = Presence::default();
    presence.doubt();
    presence.found_by_creation(seen(1, "5"));
    assert!(!presence.is_doubted() && presence.is_unshown() && presence.seen().is_none());
    assert_eq!(presence.take_probe().map(|probe| probe.uid), Some(uid(1)));
    presence.clear_unshown();
    assert!(presence.is_plain() && !presence.is_unshown());
}

/// The watch tells of it before the answer comes.
#[test]
fn what_is_seen_stays_so_when_a_creation_finds_it() {
    let mut presence = Presence::from(Some(seen(1, "5")));
    presence.found_by_creation(seen(1, "5"));
    assert_eq!(version(&presence), Some("5"));
    assert!(presence.is_unshown());
}
