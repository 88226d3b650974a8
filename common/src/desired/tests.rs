use std::sync::Arc;

use super::{DesiredSet, Entry, EntryState, Impersonation};
use crate::{Digest, GroupKind, ObjectKey, Reason, SourceRef};

pub(crate) fn entry() -> Entry {
    Entry {
        key: ObjectKey::new(GroupKind::new("apps", "Deployment"), "shop", "web"),
        version: "v1".into(),
        source: SourceRef {
            space: "retail".parse().expect("a name"),
            uid: "6d5a5b6e-0000-4000-8000-000000000001".parse().expect("a UID"),
            namespace: "shop".into(),
            name: "web".into(),
        },
        generation: 3,
        state: EntryState::Apply,
        input: Digest::of(b"input"),
        policy: Digest::of(b"policy"),
        wave: 20,
        impersonate: None,
        implied: false,
    }
}

#[test]
fn every_field_of_an_entry_is_in_its_hash() {
    let account = Impersonation { namespace: "tideline".into(), name: "retail".into() };
    let changes: [fn(&mut Entry, &Impersonation); 11] = [
        |entry, _| entry.key.name = "api".into(),
        |entry, _| entry.version = "v2".into(),
        |entry, _| entry.source.uid = "another".parse().expect("a UID"),
        |entry, _| entry.source.name = "other".into(),
        |entry, _| entry.generation = 4,
        |entry, _| entry.state = EntryState::Withheld(Reason::Conflict),
        |entry, _| entry.input = Digest::of(b"other"),
        |entry, _| entry.policy = Digest::of(b"other"),
        |entry, _| entry.wave = 21,
        |entry, account| entry.impersonate = Some(Arc::new(account.clone())),
        |entry, _| entry.implied = true,
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut changed = entry();
        change(&mut changed, &account);
        assert_ne!(changed.hash(), entry().hash(), "change {index}");
    }
}

#[test]
fn entry_survives_json() {
    for state in [EntryState::Apply, EntryState::Hold(Reason::Settling), EntryState::Withheld(Reason::Conflict)] {
        let entry = Entry { state, ..entry() };
        let text = serde_json::to_string(&entry).expect("JSON");
        assert_eq!(serde_json::from_str::<Entry>(&text).expect("an entry"), entry, "{text}");
    }
}

#[test]
fn replacing_an_entry_replaces_it_in_the_digest() {
    let first = Arc::new(entry());
    let second = Arc::new(Entry { generation: 4, ..entry() });
    let mut set = DesiredSet::default();
    set.insert(Arc::clone(&first));
    set.insert(Arc::clone(&second));
    assert_eq!(set.digest(), DesiredSet::from_iter([second]).digest());
    set.remove(&first.key);
    assert_eq!(set.digest(), DesiredSet::default().digest());
}
