//! What tombstones carry.

use tideline_common::wire::v1::Decommission;
use tideline_common::{ApproveDeletions, PruneAdopted, Takeover};

use super::*;

const DELETE: PrunePolicy = PrunePolicy {
    prune: Prune::Delete,
    prune_adopted: PruneAdopted::Orphan,
    approve_deletions: ApproveDeletions::Ask,
    adopted: None,
};
const ORPHAN: PrunePolicy = PrunePolicy { prune: Prune::Orphan, ..DELETE };

fn assign_under(name: &str, uid: &str, policy: PrunePolicy, targets: &[u32]) -> Change {
    let PrunePolicy { prune, prune_adopted, approve_deletions, adopted: _ } = policy;
    let mut assignment = assigned("a", name, uid, name, targets);
    let policy = ApplyPolicy { prune, prune_adopted, approve_deletions, ..ApplyPolicy::default() };
    assignment.variants[0].policy = Arc::new(policy);
    Change::Assign(Box::new(assignment))
}

fn gone(uid: &str) -> Change {
    Change::Remove(id("a", uid))
}

/// By source, what a target is told when it asks for everything, and when it asks what changed since.
fn told(kept: &Kept, nth: u32, since: Version) -> [Vec<(String, PrunePolicy)>; 2] {
    let view = kept.ledger.target(target(nth)).unwrap();
    [None, Some(since)].map(|since| {
        let page = view.page(since, None, 10).unwrap();
        let told = page.tombstones.into_iter().map(|gone| (gone.tombstone.source.to_string(), gone.policy));
        told.collect()
    })
}

fn both(source: &str, policy: PrunePolicy) -> [Vec<(String, PrunePolicy)>; 2] {
    let told = vec![(source.to_owned(), policy)];
    [told.clone(), told]
}

#[test]
fn a_tombstone_carries_what_was_said_last_at_each_target() {
    let mut kept = Kept::with_targets(3);
    let since = kept.version(0);
    kept.change(vec![assign_under("x", "u", DELETE, &[0, 1, 2])]);
    let mut split = assigned("a", "x", "u", "x", &[0]);
    split.variants[0].policy = let_go();
    let in_advance = ApplyPolicy { approve_deletions: ApproveDeletions::InAdvance, ..ApplyPolicy::default() };
    split.variants.push(Variant { policy: Arc::new(in_advance), ..variant("x", false, &[1]) });
    // A namespace that is only implied is nobody's to delete, whatever is said of it.
    split.variants.push(variant("x", true, &[2]));
    kept.change(vec![Change::Assign(Box::new(split))]);
    kept.change(vec![gone("u")]);
    for _ in 0..2 {
        assert_eq!(told(&kept, 0, since), both("u", ORPHAN));
        let in_advance = PrunePolicy { approve_deletions: ApproveDeletions::InAdvance, ..DELETE };
        assert_eq!(told(&kept, 1, since), both("u", in_advance));
        assert_eq!(told(&kept, 2, since), both("u", ORPHAN));
        kept.restart();
    }
    check_sound(&kept.ledger);
}

/// Two of three clusters go out of service, of which one keeps what is there, and are in service again before their agents heard
/// of it.
#[test]
fn what_leaves_a_target_that_keeps_all_is_to_be_let_go_of() {
    let mut kept = Kept::with_targets(3);
    let since = kept.version(0);
    kept.change(vec![assign_under("x", "u", DELETE, &[0, 1, 2])]);
    let leaves = [(target(0), Decommission::Keep), (target(1), Decommission::Remove)];
    let leaves = leaves.into_iter().map(|(target, how)| Change::Retire(target, how));
    kept.change([gone("u")].into_iter().chain(leaves).collect());
    for _ in 0..2 {
        assert_eq!(told(&kept, 0, since), both("u", ORPHAN));
        assert_eq!(told(&kept, 1, since), both("u", DELETE));
        assert_eq!(told(&kept, 2, since), both("u", DELETE));
        kept.restart();
    }
    check_sound(&kept.ledger);
}

/// It was to be emptied, which its agent may have heard or not, and then to keep what is left.
#[test]
fn a_target_that_is_to_keep_what_it_was_told_to_delete_hears_so() {
    let mut kept = Kept::with_targets(2);
    let since = kept.version(0);
    kept.change(vec![assign_under("x", "u", DELETE, &[0, 1]), assign_under("y", "v", ORPHAN, &[0])]);
    kept.change(vec![gone("u")]);
    let told_before = kept.version(0);
    kept.change(vec![Change::LetGo(target(0))]);
    for _ in 0..2 {
        assert_eq!(told(&kept, 0, since), both("u", ORPHAN));
        assert_eq!(told(&kept, 0, told_before), both("u", ORPHAN), "also to who heard the former word");
        assert_eq!(told(&kept, 1, since), both("u", DELETE));
        kept.restart();
    }
    check_sound(&kept.ledger);
    let version = kept.version(0);
    kept.change(vec![Change::LetGo(target(0))]);
    assert_eq!(kept.version(0), version, "said again it changes nothing");
}

/// Changes that come while another batch is written are planned at once.
#[test]
fn what_was_said_in_one_batch_with_the_removal_counts() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign_under("x", "u", DELETE, &[0, 1])]);
    let since = kept.version(0);
    kept.change(vec![assign_under("x", "u", ORPHAN, &[0]), gone("u")]);
    assert_eq!(told(&kept, 0, since), both("u", ORPHAN));
    assert_eq!(told(&kept, 1, since), both("u", DELETE), "nothing else was said there");
}

#[test]
fn a_later_tombstone_replaces_an_earlier_one_of_its_place() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![assign_under("x", "first", DELETE, &[0])]);
    let since = kept.version(0);
    kept.change(vec![gone("first")]);
    kept.change(vec![assign_under("x", "second", ORPHAN, &[0])]);
    assert_eq!(told(&kept, 0, since), both("first", DELETE), "the agent may not have heard of it");
    kept.change(vec![gone("second")]);
    assert_eq!(told(&kept, 0, since), both("second", ORPHAN));
    // Handed over, and then gone: the agent may still have the first.
    kept.change(vec![assign_under("x", "third", ORPHAN, &[0])]);
    kept.change(vec![gone("third"), assign_under("x", "fourth", DELETE, &[0])]);
    kept.change(vec![gone("fourth")]);
    let adopted = PrunePolicy { adopted: Some(Takeover::IfUnmanaged), ..DELETE };
    assert_eq!(told(&kept, 0, since), both("fourth", adopted), "it was let go of in between");
    kept.restart();
    check_sound(&kept.ledger);
    assert_eq!(told(&kept, 0, since)[0], both("fourth", adopted)[0]);
}

/// What let go of it said that nothing is taken over, so that nothing of ours stood there after it.
#[test]
fn a_tombstone_says_by_what_right_it_might_have_been_taken_over() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![assign_under("x", "u", ORPHAN, &[0])]);
    let since = kept.version(0);
    kept.change(vec![gone("u")]);
    let mut never = assigned("a", "x", "u", "x", &[0]);
    never.variants[0].policy = Arc::new(ApplyPolicy {
        takeover: Takeover::Never,
        prune_adopted: PruneAdopted::AsCreated,
        ..ApplyPolicy::default()
    });
    kept.change(vec![Change::Assign(Box::new(never))]);
    kept.change(vec![gone("u")]);
    let refused = PrunePolicy { prune_adopted: PruneAdopted::AsCreated, adopted: Some(Takeover::Never), ..DELETE };
    assert_eq!(told(&kept, 0, since), both("u", refused));
    kept.restart();
    assert!(refused.orphans());
    assert_eq!(told(&kept, 0, since)[0], both("u", refused)[0]);
}

/// The first may have spared what others manage, which no later one may have taken over either.
#[test]
fn what_a_removal_may_have_spared_is_spared_by_the_next() {
    let mut kept = Kept::with_targets(1);
    let since = kept.version(0);
    kept.change(vec![assign_under("x", "u", ORPHAN, &[0])]);
    kept.change(vec![gone("u")]);
    let as_created = PrunePolicy { prune_adopted: PruneAdopted::AsCreated, ..DELETE };
    let spares = PrunePolicy { adopted: Some(Takeover::IfUnmanaged), ..as_created };
    for _ in 0..3 {
        kept.change(vec![assign_under("x", "u", as_created, &[0])]);
        kept.change(vec![gone("u")]);
        assert_eq!(told(&kept, 0, since), both("u", spares));
    }
    assert!(!spares.deletes(false, true) && spares.deletes(false, false));
}

#[test]
fn what_was_to_be_let_go_of_is_remembered_while_its_place_is_assigned_again() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign_under("x", "u", ORPHAN, &[0, 1])]);
    let since = kept.version(0);
    kept.change(vec![gone("u")]);
    let tombstone = Tombstone { key: config_map("x"), source: "u".parse().unwrap() };
    kept.change(vec![Change::Confirm(target(1), kept.version(1), tombstone.clone())]);
    kept.change(vec![assign_under("x", "u", DELETE, &[0, 1])]);
    for _ in 0..2 {
        assert_eq!(told(&kept, 0, since), both("u", ORPHAN));
        assert_eq!(told(&kept, 1, since), [vec![], vec![]], "it was confirmed");
        assert_eq!((kept.ledger.removals().count(), kept.tombstones(0).len()), (0, 0), "nothing is being removed");
        check_sound(&kept.ledger);
        kept.restart();
    }
    // Once the agent knows, it is forgotten; and a word of that which comes late ends no later tombstone.
    let at = kept.version(0);
    let knows = || Change::Overtaken(target(0), at, tombstone.clone());
    kept.change(vec![knows()]);
    assert_eq!(told(&kept, 0, since), [vec![], vec![]]);
    kept.change(vec![gone("u")]);
    kept.change(vec![knows()]);
    assert_eq!(told(&kept, 0, since), both("u", DELETE));
}

/// The answer to the first was slow; meanwhile the source was assigned again, and taken out again.
#[test]
fn a_late_word_of_one_removal_confirms_no_later_one() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign_under("x", "u", DELETE, &[0, 1])]);
    let since = kept.version(0);
    kept.change(vec![gone("u")]);
    let (first, tombstone) = (kept.version(0), Tombstone { key: config_map("x"), source: "u".parse().unwrap() });
    let confirm = |nth, at| Change::Confirm(target(nth), at, tombstone.clone());
    // The second target never saw it again: its removal is the same one still.
    kept.change(vec![assign_under("x", "u", DELETE, &[0])]);
    kept.change(vec![gone("u")]);
    for _ in 0..2 {
        kept.change(vec![confirm(0, since), confirm(0, first), confirm(1, since)]);
        assert_eq!(told(&kept, 0, first), both("u", DELETE));
        assert_eq!(told(&kept, 1, since), both("u", DELETE), "it had not heard of it");
        check_sound(&kept.ledger);
        kept.restart();
    }
    kept.change(vec![confirm(0, kept.version(0)), confirm(1, first)]);
    assert_eq!((kept.tombstones(0), kept.tombstones(1)), (vec![], vec![]));
}

/// The agent may have been away: then it ends where one ends that saw it go and come back.
#[test]
fn what_was_moved_away_and_back_is_told_so_until_the_agent_knows() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign_under("x", "u", DELETE, &[0])]);
    let since = kept.version(0);
    kept.change(vec![assign_under("x", "u", DELETE, &[1])]);
    kept.change(vec![assign_under("x", "u", DELETE, &[0])]);
    for _ in 0..2 {
        assert_eq!(told(&kept, 0, since), both("u", DELETE));
        assert_eq!((kept.tombstones(0).len(), kept.tombstones(1).len()), (0, 1), "there it is not being removed");
        kept.restart();
    }
    let tombstone = Tombstone { key: config_map("x"), source: "u".parse().unwrap() };
    kept.change(vec![Change::Overtaken(target(0), kept.version(0), tombstone)]);
    assert_eq!(told(&kept, 0, since), [vec![], vec![]]);
}

/// What an agent says that was away is of the time before: by now it is to be created anew. A Job may have run.
#[test]
fn that_it_was_created_before_it_left_is_not_believed_once_it_is_back() {
    for (fact, stays) in [(Terminal::CreatedOnce, 0), (Terminal::Started, 1)] {
        let mut kept = Kept::with_targets(1);
        let created = || happened(0, &config_map("x"), &"u".parse().unwrap(), fact);
        kept.change(vec![assign_under("x", "u", DELETE, &[0]), created()]);
        let facts = |kept: &Kept| kept.ledger.target(target(0)).unwrap().facts().len();
        kept.change(vec![created()]);
        assert_eq!(facts(&kept), 1);
        kept.change(vec![gone("u")]);
        kept.change(vec![assign_under("x", "u", DELETE, &[0])]);
        kept.change(vec![created()]);
        assert_eq!(facts(&kept), stays);
        let tombstone = Tombstone { key: config_map("x"), source: "u".parse().unwrap() };
        kept.change(vec![Change::Overtaken(target(0), kept.version(0), tombstone), created()]);
        assert_eq!(facts(&kept), 1);
    }
}

/// An agent that has lost its journal cannot say whether it ran, and is told so when it is assigned again.
#[test]
fn that_a_job_was_started_is_known_until_its_agent_has_removed_it() {
    let mut kept = Kept::with_targets(2);
    let started = |nth| happened(nth, &config_map("x"), &"u".parse().unwrap(), Terminal::Started);
    kept.change(vec![assign_under("x", "u", DELETE, &[0, 1])]);
    kept.change(vec![started(0), started(1)]);
    kept.change(vec![gone("u")]);
    kept.restart();
    let tombstone = Tombstone { key: config_map("x"), source: "u".parse().unwrap() };
    kept.change(vec![Change::Confirm(target(1), kept.version(1), tombstone)]);
    kept.change(vec![assign_under("x", "u", DELETE, &[0, 1])]);
    kept.restart();
    let facts = |nth| kept.ledger.target(target(nth)).unwrap().facts().len();
    assert_eq!((facts(0), facts(1)), (1, 0));
}

/// What was let go of because it was adopted is not deleted by what came there after it and could not adopt it.
#[test]
fn what_was_adopted_is_kept_by_what_might_not_have_taken_it_over() {
    let mut kept = Kept::with_targets(1);
    let as_created = PrunePolicy { prune_adopted: PruneAdopted::AsCreated, ..DELETE };
    let since = kept.version(0);
    kept.change(vec![assign_under("x", "u", DELETE, &[0])]);
    kept.change(vec![gone("u")]);
    kept.change(vec![assign_under("x", "u", as_created, &[0])]);
    kept.change(vec![gone("u")]);
    assert_eq!(told(&kept, 0, since), both("u", DELETE));
    kept.change(vec![Change::Confirm(
        target(0),
        kept.version(0),
        Tombstone { key: config_map("x"), source: "u".parse().unwrap() },
    )]);
    kept.change(vec![assign_under("x", "u", as_created, &[0])]);
    kept.change(vec![gone("u")]);
    assert_eq!(told(&kept, 0, since)[0], both("u", as_created)[0]);
}

/// Of many removals at once some are written before a crash, and all are planned again after it.
#[test]
fn what_an_earlier_removal_spared_outlives_a_crash_in_the_middle_of_the_next() {
    const MANY: usize = 150;
    let mut kept = Kept::with_targets(1);
    let each = |change: fn(&str) -> Change| (0..MANY).map(|n| change(&format!("n{n:03}"))).collect::<Vec<_>>();
    kept.change(each(|name| assign_under(name, name, ORPHAN, &[0])));
    kept.change(each(gone));
    kept.change(each(|name| assign_under(name, name, DELETE, &[0])));
    let batch = kept.ledger.plan(fresh(), each(gone));
    assert!(batch.chunks().len() > 2, "{} chunks", batch.chunks().len());
    for written in 0..=batch.chunks().len() {
        let mut crashed = Kept { ledger: Ledger::default(), records: kept.records.clone() };
        batch.chunks()[..written].iter().for_each(|chunk| crashed.records.write(chunk));
        crashed.restart();
        crashed.change(each(gone));
        let view = crashed.ledger.target(target(0)).unwrap();
        assert_eq!(view.tombstones().count(), MANY);
        let plain: Vec<_> = view.tombstones().filter(|gone| gone.policy.deletes(false, false)).collect();
        assert!(plain.is_empty(), "{} are to be deleted once {written} chunks are written", plain.len());
    }
}

/// The link carries at most 8 MiB, and this many tombstones on one page would be twelve.
#[test]
fn fifty_thousand_tombstones_come_in_pages() {
    const MANY: usize = 50_000;
    let mut kept = Kept::with_targets(1);
    let names: Vec<String> = (0..MANY).map(|n| format!("settings-of-something-{n:05}")).collect();
    kept.change(names.iter().map(|name| assign("a", name, &[0])).collect());
    kept.change(names.iter().map(|name| remove("a", name)).collect());
    let view = kept.ledger.target(target(0)).unwrap();
    let (mut after, mut told) = (None, 0);
    loop {
        let page = view.page(None, after.as_ref(), 2_000).unwrap();
        assert!(page.tombstones.len() <= 2_000);
        told += page.tombstones.len();
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(told, MANY);
}
