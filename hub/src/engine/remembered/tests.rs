use tideline_common::signature::SigningKey;

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
    memory.deleted(target(), Deletion::default());
    assert!(memory.get(target()).is_none() && memory.is_saved());
}

#[test]
fn a_key_that_is_taken_away_or_replaced_is_revoked_for_good() {
    let mut memory = memory();
    assert_eq!(refusal(&memory), None);
    memory.shows(target(), "store-1", None, None);
    assert_eq!(refusal(&memory).as_deref(), Some("Revoked: the key of this agent, of SyncTarget store-1, was revoked"));
    assert_eq!(memory.get(target()).and_then(RememberedTarget::known_key), Some(key(1)), "its agent can be told");
    memory.shows(target(), "store-1", Some(&key(2)), None);
    assert_eq!(refusal(&memory), None);
    memory.shows(target(), "store-1", Some(&key(3)), None);
    let revoked = |memory: &Memory| [1, 2, 3].map(|seed| memory.is_revoked(&key(seed)));
    assert_eq!(revoked(&memory), [true, true, false]);
    let again = Memory::new(memory.take_unsaved());
    assert_eq!(revoked(&again), [true, true, false], "after a restart too");
}

#[test]
fn a_deletion_says_by_whom_and_when_as_far_as_that_is_known() {
    let deleted = |deletion: Deletion| {
        let mut memory = memory();
        memory.deleted(target(), deletion);
        refusal(&memory).unwrap()
    };
    assert_eq!(deleted(Deletion::default()), "TargetGone: the SyncTarget store-1 was deleted");
    let at = Some("2026-11-23T03:00:00.5Z".parse().unwrap());
    assert_eq!(
        deleted(Deletion { at, by: Some("admin".to_owned()) }),
        "TargetGone: the SyncTarget store-1 was deleted by admin at 2026-11-23T03:00:01Z"
    );
}

#[test]
fn only_what_changed_is_saved() {
    let mut memory = memory();
    assert_eq!(memory.take_unsaved().len(), 1);
    memory.shows(target(), "store-1", Some(&key(1)), None);
    assert!(memory.is_saved(), "a heartbeat of the SyncTarget writes nothing");
    memory.deleted(target(), Deletion::default());
    memory.deleted(target(), Deletion { at: None, by: Some("nobody".to_owned()) });
    assert_eq!(memory.take_unsaved()[&target()].deleted, Some(Deletion::default()));
}
