use tideline_common::signature::SigningKey;
use tideline_common::wire::v1::Terminal;
use tideline_common::{GroupKind, ObjectKey};

use super::*;

fn key(seed: u8) -> VerifyingKey {
    SigningKey::from_seed([seed; 32]).public()
}

fn target() -> TargetId {
    "00000000-0000-4000-8000-000000000000".parse().unwrap()
}

/// Once enrolled with key 1.
fn memory() -> Memory {
    let mut memory = Memory::default();
    memory.shows(target(), "store-1", Some(&key(1)), None);
    memory
}

fn refusal(memory: &Memory) -> Option<String> {
    memory
        .get(target())
        .and_then(RememberedTarget::refusal)
        .map(|refusal| format!("{:?}: {}", refusal.refusal, refusal.message))
}

#[test]
fn a_target_that_never_had_an_agent_is_not_remembered() {
    let mut memory = Memory::default();
    memory.shows(target(), "by-hand", None, None);
    memory.deleted(target(), Deletion::default(), Vec::new());
    assert!(memory.get(target()).is_none() && memory.is_saved());
}

#[test]
fn a_key_is_revoked_by_name_and_for_good() {
    let mut memory = memory();
    assert_eq!(refusal(&memory), None);
    assert!(memory.revoke(target(), "store-1", &key(1)));
    memory.shows(target(), "store-1", None, None);
    assert_eq!(refusal(&memory).as_deref(), Some("Revoked: the key of this agent, of SyncTarget store-1, was revoked"));
    assert_eq!(memory.get(target()).and_then(RememberedTarget::known_key), Some(key(1)), "its agent can be told");
    assert!(!memory.revoke(target(), "store-1", &key(1)), "no news");
    memory.shows(target(), "store-1", Some(&key(2)), None);
    assert_eq!(refusal(&memory), None);
    let barred = |memory: &Memory| [1, 2, 3].map(|seed| memory.bars(target(), &key(seed)));
    assert_eq!(barred(&memory), [true, false, false]);
    let again = Memory::new(memory.take_unsaved());
    assert_eq!(barred(&again), [true, false, false], "after a restart too");
    assert_eq!(again.get(target()).map(RememberedTarget::replaced_keys), Some(vec![key(1)]), "its agent can be told");
}

#[test]
fn a_key_that_is_dropped_or_set_back_is_the_agents_again_when_it_is_there_again() {
    let mut memory = memory();
    for shown in [None, Some(key(2)), None] {
        memory.shows(target(), "store-1", shown.as_ref(), None);
        assert_eq!(refusal(&memory).is_some(), shown.is_none(), "{shown:?}");
        assert!(!memory.is_revoked(&key(1)));
    }
    memory.shows(target(), "store-1", Some(&key(1)), None);
    assert_eq!(refusal(&memory), None);
    assert!(!memory.bars(target(), &key(1)));
    let replaced = memory.get(target()).map(RememberedTarget::replaced_keys);
    assert_eq!(replaced, Some(vec![key(2)]), "and whoever has the other is told");
}

#[test]
fn what_is_revoked_at_one_target_says_nothing_against_another_that_had_it_before() {
    let other = TargetId::from_uuid(uuid::Uuid::from_u128(7));
    let mut memory = memory();
    // Somebody copies a manifest with its annotations, and revokes the copy.
    memory.shows(other, "copy", Some(&key(1)), None);
    memory.revoke(other, "copy", &key(1));
    assert!(!memory.bars(target(), &key(1)), "the original keeps it");
    assert!(memory.bars(other, &key(1)));
    let third = TargetId::from_uuid(uuid::Uuid::from_u128(8));
    assert!(memory.bars(third, &key(1)), "and nobody gets it anew");
}

#[test]
fn keys_that_are_remembered_are_bounded() {
    let mut memory = memory();
    for seed in 0..200 {
        memory.shows(target(), "store-1", Some(&key(seed)), None);
        if seed % 2 == 0 {
            memory.revoke(target(), "store-1", &key(seed));
        }
    }
    let remembered = memory.get(target()).unwrap();
    assert_eq!((remembered.former.len(), remembered.revoked.len()), (FORMER_MAX, REVOKED_MAX));
    assert_eq!(remembered.replaced_keys().len(), TOLD_MAX);
}

#[test]
fn a_deletion_says_by_whom_and_when_as_far_as_that_is_known() {
    let deleted = |deletion: Deletion| {
        let mut memory = memory();
        memory.deleted(target(), deletion, Vec::new());
        refusal(&memory).unwrap()
    };
    assert_eq!(deleted(Deletion::default()), "TargetGone: the SyncTarget store-1 was deleted");
    let at = Some("2026-11-23T03:00:00.5Z".parse().unwrap());
    assert_eq!(
        deleted(Deletion { at, by: Some("admin".to_owned()), heard: None }),
        "TargetGone: the SyncTarget store-1 was deleted by admin at 2026-11-23T03:00:01Z"
    );
}

#[test]
fn a_revoked_target_leaves_no_facts_and_another_no_more_than_are_remembered() {
    let key_of = |nth: usize| ObjectKey::new(GroupKind::new("batch", "Job"), "shop", format!("j{nth}"));
    let ran = |count: usize| -> Vec<TerminalFact> {
        let source_uid: Uid = "s".parse().unwrap();
        let fact = |nth| TerminalFact { key: key_of(nth), source_uid: source_uid.clone(), fact: Terminal::Finished };
        (0..count).map(fact).collect()
    };
    for (revoked, count, remembered) in [(false, 2, 2), (false, RAN_MAX + 3, RAN_MAX), (true, RAN_MAX + 3, 0)] {
        let mut memory = memory();
        if revoked {
            memory.revoke(target(), "store-1", &key(1));
        }
        let beyond = memory.deleted(target(), Deletion::default(), ran(count));
        assert_eq!(memory.get(target()).unwrap().ran.len(), remembered);
        assert_eq!(beyond, if revoked { 0 } else { count - remembered });
    }
}

#[test]
fn only_what_changed_is_saved() {
    let mut memory = memory();
    assert_eq!(memory.take_unsaved().len(), 1);
    memory.shows(target(), "store-1", Some(&key(1)), None);
    assert!(memory.is_saved(), "a heartbeat of the SyncTarget writes nothing");
    memory.deleted(target(), Deletion::default(), Vec::new());
    memory.deleted(target(), Deletion { by: Some("nobody".to_owned()), ..Deletion::default() }, Vec::new());
    assert_eq!(memory.take_unsaved()[&target()].deleted, Some(Deletion::default()));
}
