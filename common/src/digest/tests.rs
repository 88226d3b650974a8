use proptest::prelude::*;

use super::{Digest, Hasher, ItemHash, SetDigest};
use crate::{GroupKind, ObjectKey};

fn item(n: u16) -> ItemHash {
    let key = ObjectKey::new(GroupKind::new("", "ConfigMap"), "default", n.to_string());
    ItemHash::new(&key, Digest::of(&n.to_be_bytes()))
}

proptest! {
    #[test]
    fn set_digest_depends_on_members_not_on_history(mut members in prop::collection::btree_set(0u16..500, 0..400), gone in 500u16..600) {
        let mut forwards = SetDigest::default();
        forwards.add(item(gone));
        for member in &members {
            forwards.add(item(*member));
        }
        forwards.remove(item(gone));
        let mut backwards = SetDigest::default();
        for member in members.iter().rev() {
            backwards.add(item(*member));
        }
        prop_assert_eq!(&forwards, &backwards);
        prop_assert_eq!(forwards.digest(), backwards.digest());

        // However many it once had.
        let mut shrunk = forwards.clone();
        for other in 600..1_200 {
            shrunk.add(item(other));
        }
        for other in 600..1_200 {
            shrunk.remove(item(other));
        }
        prop_assert_eq!(&forwards, &shrunk);
        prop_assert_eq!(forwards.digest(), shrunk.digest());
        prop_assert_eq!(forwards.summary(), shrunk.summary());

        let taken = members.pop_first();
        if let Some(taken) = taken {
            backwards.remove(item(taken));
            prop_assert_ne!(forwards.digest(), backwards.digest());
        }
    }

    #[test]
    fn text_of_a_digest_reads_back(bytes in any::<[u8; 32]>()) {
        let digest = Digest::from_bytes(bytes);
        prop_assert_eq!(digest.to_string().parse(), Ok(digest));
    }
}

#[test]
fn fields_cannot_shift_into_each_other() {
    let hash = |fields: [&str; 2]| {
        let mut hasher = Hasher::new("test");
        hasher.field(fields[0].as_bytes()).field(fields[1].as_bytes());
        hasher.finish()
    };
    assert_ne!(hash(["ab", "c"]), hash(["a", "bc"]));
}

#[test]
fn empty_set_digest_is_fixed_for_ever() {
    expect_test::expect!["12ac93c3eeea486669d1aa2160d71c8b580fd2979d808676ac91f3498817e325"]
        .assert_eq(&SetDigest::default().digest().to_string());
}
