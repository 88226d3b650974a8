use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use tideline_common::wire::v1::{Accepted, Attested};
use tideline_common::{
    Attestation, Digest, EnrolmentToken, Epoch, Revision, RevisionPoint, SessionName, Shown, TargetId, Version,
};
use uuid::Uuid;

use super::contents::{Contents, HubPin};
use super::merge::{Data, SessionStore, merge, onto};
use super::{Error, Found, Keeper, TargetName, TokenUse};
use crate::addresses::Addresses;

mod secret;

fn token(hub: u128) -> EnrolmentToken {
    EnrolmentToken {
        name: "store-1".to_owned(),
        urls: vec!["https://hub.example/tideline".parse().unwrap()],
        hub: tideline_common::HubId::from_uuid(Uuid::from_u128(hub)),
        hub_key: vec![7; 32],
        authorities: vec![tideline_common::Authority::from_der([1, 2, 3]).unwrap()],
        seed: vec![9; 32],
    }
}

fn target(number: u128) -> TargetName {
    TargetName { target: TargetId::from_uuid(Uuid::from_u128(number)), name: "store-1".to_owned() }
}

async fn open(directory: &Path, token: Option<&EnrolmentToken>) -> Result<Keeper, Error> {
    Found::load(directory, token, None, SessionStore::Directory).await?.keep()
}

#[tokio::test]
async fn the_key_stays_and_the_enrolment_is_kept() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let first = open(directory.path(), Some(&token(1))).await?;
    first.enrol(target(5), None).await?;
    first.keep_session(SessionName::new(3, 9), None).await?;
    let second = open(directory.path(), None).await?;
    assert_eq!(second.key().seed(), first.key().seed());
    assert_eq!((second.enrolled(), second.pin()), (Some(target(5)), first.pin()));
    assert_eq!(second.newest_session_and_floor(), (SessionName::new(3, 9), None));
    let mode = fs::metadata(directory.path().join("identity.json"))?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    Ok(())
}

#[tokio::test]
async fn without_token_and_identity_it_says_what_to_do() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let Err(error) = open(directory.path(), None).await else { panic!("an identity out of nothing") };
    assert!(error.to_string().contains("--token-file"), "{error}");
    Ok(())
}

#[tokio::test]
async fn another_hubs_token_is_used_before_enrolment_and_ignored_after() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let first = open(directory.path(), Some(&token(1))).await?;
    let second = open(directory.path(), Some(&token(2))).await?;
    assert_eq!(second.key().seed(), first.key().seed());
    assert_eq!(second.pin().hub, token(2).hub);
    assert_eq!(second.use_of(&token(1)), TokenUse::Taken, "it is not enrolled");
    second.enrol(target(5), None).await?;
    assert_eq!(second.use_of(&token(1)), TokenUse::OtherHub(token(1).hub));
    assert_eq!(second.use_of(&token(2)), TokenUse::SeenBefore);
    let found = Found::load(directory.path(), Some(&token(1)), None, SessionStore::Directory).await?;
    assert_eq!(found.token(), TokenUse::OtherHub(token(1).hub));
    assert_eq!(found.keep()?.pin(), second.pin(), "what runs is not stopped by it, and follows no other hub");
    Ok(())
}

#[tokio::test]
async fn a_new_token_of_the_pinned_hub_says_where_it_is_and_an_old_one_nothing() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let first = open(directory.path(), Some(&token(1))).await?;
    first.enrol(target(5), None).await?;
    let moved = |seed: u8, url: &str| EnrolmentToken {
        seed: vec![seed; 32],
        urls: vec![url.parse().expect("a URL")],
        ..token(1)
    };
    let other_key = EnrolmentToken { hub_key: vec![8; 32], ..moved(10, "https://else.example") };
    for (given, used, url) in [
        (token(1), TokenUse::SeenBefore, "https://hub.example/tideline"),
        (moved(10, "https://new.example"), TokenUse::Taken, "https://new.example"),
        (token(1), TokenUse::SeenBefore, "https://new.example"),
        (moved(10, "https://changed.example"), TokenUse::SeenBefore, "https://new.example"),
        (other_key, TokenUse::OtherHub(token(1).hub), "https://new.example"),
    ] {
        let found = Found::load(directory.path(), Some(&given), None, SessionStore::Directory).await?;
        assert_eq!(found.token(), used);
        let keeper = found.keep()?;
        assert_eq!(keeper.addresses().first().map(ToString::to_string).as_deref(), Some(url));
        assert_eq!((keeper.key().seed(), keeper.enrolled()), (first.key().seed(), Some(target(5))));
    }
    Ok(())
}

#[tokio::test]
async fn a_changed_byte_is_damage() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    open(directory.path(), Some(&token(1))).await?;
    let path = directory.path().join("identity.json");
    let text = fs::read_to_string(&path)?;
    fs::write(&path, text.replace("hub.example", "hub.examplf"))?;
    assert!(matches!(open(directory.path(), None).await, Err(Error::Damaged { .. })));
    fs::write(&path, text.replace("\"schema\":1", "\"schema\":2").replace(env!("CARGO_PKG_VERSION"), "9.1.0"))?;
    let newer = open(directory.path(), None).await.map(drop).unwrap_err();
    assert!(matches!(&newer, Error::Newer { found: 2, by, .. } if by == "9.1.0"), "{newer}");
    assert!(newer.to_string().contains("Run version 9.1.0, or a newer one"), "{newer}");
    assert!(fs::read_to_string(&path)?.contains("9.1.0"), "it is left alone");
    fs::write(&path, "")?;
    assert!(matches!(open(directory.path(), None).await, Err(Error::Damaged { .. })));
    Ok(())
}

fn contents(seed: u8, enrolled: Option<u128>, session: u64, revision: Option<u64>) -> Contents {
    Contents {
        seed: Digest::from_bytes([seed; 32]),
        pin: HubPin::of(&token(1)).unwrap(),
        addresses: Addresses::of(&token(1)),
        enrolled: enrolled.map(target),
        generation: 0,
        formers: Vec::new(),
        next_seed: None,
        token: None,
        inherited: None,
        cluster: None,
        session: if session == 0 { SessionName::default() } else { SessionName::new(session, 9) },
        floor: revision.map(|revision| {
            let version = Version { epoch: Epoch(1), revision: Revision(revision) };
            let shown = Shown { version, point: RevisionPoint::NOWHERE };
            let attestation = Attestation::unsigned(target(5).target, shown);
            Attested { set: Accepted { version, digest: Digest::of(&revision.to_be_bytes()) }, attestation }
        }),
    }
}

#[test]
fn a_copy_that_was_active_since_makes_the_other_outdated() {
    let ours = || Some(contents(1, Some(5), 3, Some(7)));
    let data = |secret, file| merge(secret, file, SessionStore::Directory).unwrap().unwrap().data;
    assert_eq!(data(ours(), ours()), Data::Current);
    assert_eq!(data(None, ours()), Data::Current);
    assert_eq!(data(ours(), None), Data::Outdated, "an empty data directory, or that of an identity that was removed");
    assert_eq!(data(Some(contents(1, Some(5), 4, Some(7))), ours()), Data::Outdated);
    assert_eq!(data(Some(contents(1, Some(5), 3, Some(8))), ours()), Data::Outdated);
    assert_eq!(data(Some(contents(1, Some(5), 2, Some(6))), ours()), Data::Current, "the file is written first");
    assert_eq!(data(Some(contents(2, Some(5), 1, None)), ours()), Data::Outdated, "the Secret is the truth");
    assert_eq!(data(Some(contents(2, None, 0, None)), ours()), Data::Current, "who is enrolled stays so");
}

#[test]
fn two_targets_are_no_identity() {
    let two = merge(Some(contents(1, Some(5), 3, None)), Some(contents(2, Some(6), 3, None)), SessionStore::Directory)
        .unwrap_err();
    assert_eq!((two.secret, two.file), (target(5).target, target(6).target));
}

fn any_contents() -> impl Strategy<Value = Option<Contents>> {
    let enrolled = proptest::option::of(Just(5_u128));
    let some = (0..2_u8, enrolled, 0..4_u64, proptest::option::of(0..4_u64));
    proptest::option::of(
        some.prop_map(|(seed, enrolled, session, revision)| contents(seed, enrolled, session, revision)),
    )
}

proptest! {
    #[test]
    fn an_identity_never_goes_back_and_merging_again_changes_nothing(secret in any_contents(), file in any_contents()) {
        let Some(merged) = merge(secret.clone(), file.clone(), SessionStore::Directory).unwrap() else {
            prop_assert!(secret.is_none() && file.is_none());
            return Ok(());
        };
        let one = &merged.contents;
        for copy in [&secret, &file].into_iter().flatten().filter(|copy| copy.seed == one.seed) {
            let own = file.as_ref().filter(|file| file.seed == one.seed && !file.session.is_none());
            prop_assert!(one.session >= own.unwrap_or(copy).session);
            prop_assert!(one.floor.map(|it| it.set.version) >= copy.floor.map(|it| it.set.version));
            prop_assert!(one.enrolled.is_some() || copy.enrolled.is_none());
        }
        let again = merge(Some(one.clone()), Some(one.clone()), SessionStore::Directory).unwrap().unwrap();
        prop_assert_eq!(again.contents, merged.contents.clone());
        prop_assert_eq!(again.data, Data::Current);
    }

    #[test]
    fn an_identity_survives_its_text(some in any_contents()) {
        if let Some(some) = some {
            prop_assert_eq!(Contents::decode(&some.encode()).unwrap(), some);
        }
    }
}

#[test]
fn the_cluster_is_the_one_that_either_copy_names() {
    let of = |cluster: Option<&str>| {
        let cluster = cluster.map(|uid| uid.parse().unwrap());
        Some(Contents { cluster, ..contents(1, Some(5), 3, None) })
    };
    let merged = |secret, file| {
        merge(secret, file, SessionStore::Directory).unwrap().unwrap().contents.cluster.map(|uid| uid.to_string())
    };
    assert_eq!(merged(of(Some("a")), of(None)).as_deref(), Some("a"));
    assert_eq!(merged(of(None), of(Some("b"))).as_deref(), Some("b"));
    assert_eq!(merged(of(Some("a")), of(Some("b"))).as_deref(), Some("a"), "the Secret is the truth");
    assert_eq!(merged(of(None), of(None)), None);
}

#[test]
fn the_next_key_in_the_secret_outlasts_a_directory_that_does_not_know_it() {
    let next = |seed, next_seed: Option<u8>| Contents {
        next_seed: next_seed.map(|seed| Digest::from_bytes([seed; 32])),
        ..contents(seed, Some(5), 3, None)
    };
    let written = |there, ours: Contents| onto(&there, ours).next_seed.map(|seed| seed.as_bytes()[0]);
    assert_eq!(written(next(1, Some(7)), next(1, None)), Some(7));
    assert_eq!(written(next(1, Some(7)), next(1, Some(8))), Some(8));
    assert_eq!(written(next(1, Some(7)), next(7, None)), None, "the key was replaced");
}

#[test]
fn the_session_is_the_directorys_own_unless_replicas_share_the_secret() {
    let session = |secret, file, store| merge(secret, file, store).unwrap().unwrap().contents.session.number.0;
    let with = |session| Some(contents(1, Some(5), session, None));
    assert_eq!(session(with(7), with(3), SessionStore::Directory), 3, "another copy of the directory was offered 7");
    assert_eq!(session(with(3), with(7), SessionStore::Directory), 7);
    assert_eq!(session(with(7), None, SessionStore::Directory), 7, "a start without a directory");
    assert_eq!(session(with(7), with(0), SessionStore::Directory), 7);
    assert_eq!(session(with(7), with(3), SessionStore::Secret), 7);
}

#[tokio::test]
async fn a_session_that_a_later_process_wrote_stays() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let first = open(directory.path(), Some(&token(1))).await?;
    first.keep_session(SessionName::new(3, 9), None).await?;
    let second = open(directory.path(), None).await?;
    second.keep_session(SessionName::new(5, 9), None).await?;
    assert_eq!(first.read_stored_session().await?, SessionName::new(5, 9));
    assert_eq!(first.keep_session(SessionName::new(4, 9), None).await?, SessionName::new(5, 9));
    assert_eq!(second.read_stored_session().await?, SessionName::new(5, 9), "it was written over");
    Ok(())
}

#[tokio::test]
async fn a_handover_keeps_what_it_was_and_an_epoch_is_of_one_target() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let keeper = open(directory.path(), Some(&token(1))).await?;
    let (used, other) = (Digest::of(b"token"), Digest::of(b"another"));
    keeper.enrol(target(5), Some(used)).await?;
    keeper.enrol(target(6), None).await?;
    let again = open(directory.path(), None).await?;
    assert_eq!(again.formers().iter().collect::<Vec<_>>(), [target(5).target]);
    assert_eq!((again.enrolled(), again.token()), (Some(target(6)), Some(used)));
    assert_eq!(again.key().seed(), keeper.key().seed());
    // Back, and with a token of its own.
    again.enrol(target(5), Some(other)).await?;
    assert_eq!(again.formers().iter().collect::<Vec<_>>(), [target(6).target]);
    assert_eq!(again.token(), Some(other));
    assert_eq!(again.use_of(&token(1)), TokenUse::SeenBefore);
    again.enrol(target(5), Some(token(1).id())).await?;
    assert_eq!(again.use_of(&token(1)), TokenUse::Spent);
    Ok(())
}

#[tokio::test]
async fn a_revoked_key_is_replaced_once_a_token_is_taken_and_the_next_one_is_on_disk_before()
-> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let keeper = open(directory.path(), Some(&token(1))).await?;
    keeper.enrol(target(5), None).await?;
    let revoked = *keeper.key().seed();
    keeper.revoked(&keeper.key().public()).await?;
    keeper.revoked(&keeper.key().public()).await?;
    let next = *keeper.enrolling_key().await?.seed();
    assert_ne!(next, revoked);
    assert_eq!(*keeper.key().seed(), revoked, "it can still be told so");
    let again = open(directory.path(), None).await?;
    assert_eq!(*again.enrolling_key().await?.seed(), next);
    again.enrol(target(6), None).await?;
    assert_eq!(
        (*again.key().seed(), *again.enrolling_key().await?.seed()),
        (revoked, next),
        "it is handed over by its key"
    );
    again.enrol(target(5), Some(Digest::of(b"token"))).await?;
    assert_eq!((*again.key().seed(), *again.enrolling_key().await?.seed()), (next, next));
    Ok(())
}

/// The hub took the next key, its answer was lost, and a person revoked that key, too.
#[tokio::test]
async fn a_next_key_that_is_refused_gives_way_to_another() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let keeper = open(directory.path(), Some(&token(1))).await?;
    keeper.enrol(target(5), None).await?;
    let first = keeper.key().public();
    keeper.revoked(&first).await?;
    let second = keeper.enrolling_key().await?.public();
    keeper.revoked(&second).await?;
    let third = keeper.enrolling_key().await?.public();
    assert!(third != second && third != first);
    // A message to the first target, or to the second before that, comes late.
    keeper.revoked(&first).await?;
    keeper.revoked(&second).await?;
    assert_eq!(keeper.enrolling_key().await?.public(), third);
    let again = open(directory.path(), None).await?;
    assert_eq!(again.enrolling_key().await?.public(), third);
    assert_eq!(again.key().public(), first);
    Ok(())
}

/// The disk was full, and has room again.
#[tokio::test]
async fn a_failed_write_is_done_again_before_it_is_acknowledged() -> Result<(), anyhow::Error> {
    let parent = tempfile::tempdir()?;
    let (directory, aside) = (parent.path().join("data"), parent.path().join("aside"));
    std::fs::create_dir(&directory)?;
    let keeper = open(&directory, Some(&token(1))).await?;
    keeper.enrol(target(5), None).await?;
    std::fs::rename(&directory, &aside)?;
    keeper.revoked(&keeper.key().public()).await.unwrap_err();
    keeper.enrol(target(6), None).await.unwrap_err();
    keeper.enrolling_key().await.unwrap_err();
    std::fs::rename(&aside, &directory)?;
    keeper.enrol(target(6), None).await?;
    keeper.revoked(&keeper.key().public()).await?;
    let again = open(&directory, None).await?;
    assert_eq!(again.enrolled(), Some(target(6)));
    assert_eq!(again.enrolling_key().await?.seed(), keeper.enrolling_key().await?.seed());
    Ok(())
}

/// The Secret could not be written when its key was revoked.
#[test]
fn a_key_that_may_be_on_its_way_to_the_hub_is_not_lost_with_the_secret() {
    let secret = contents(1, Some(5), 3, Some(7));
    let file = Contents { next_seed: Some(Digest::from_bytes([9; 32])), ..secret.clone() };
    for store in [SessionStore::Directory, SessionStore::Secret] {
        let merged = merge(Some(secret.clone()), Some(file.clone()), store).unwrap().unwrap();
        assert_eq!(merged.contents.next_seed, file.next_seed);
    }
    let other = Contents { next_seed: Some(Digest::from_bytes([8; 32])), ..secret };
    let merged = |store| merge(Some(other.clone()), Some(file.clone()), store).unwrap().unwrap().contents.next_seed;
    assert_eq!((merged(SessionStore::Directory), merged(SessionStore::Secret)), (file.next_seed, other.next_seed));
}

/// One of the two copies was written before the process ended, or on another node.
#[test]
fn the_newer_of_two_copies_of_one_lineage_is_used() {
    let first = Contents { generation: 1, ..contents(1, Some(5), 3, Some(7)) };
    let mut adopted = first.clone();
    adopted.become_target(target(6), None);
    assert_eq!((adopted.generation, adopted.floor, adopted.inherited), (2, None, first.floor));
    let mut back = adopted.clone();
    back.become_target(target(5), None);
    let mut rekeyed = Contents { next_seed: Some(Digest::from_bytes([9; 32])), ..first.clone() };
    rekeyed.become_target(target(5), Some(Digest::of(b"token")));
    for newer in [&adopted, &back, &rekeyed] {
        let merged = |secret: &Contents, file: &Contents| {
            merge(Some(secret.clone()), Some(file.clone()), SessionStore::Directory).unwrap().unwrap()
        };
        for older in [&first, &adopted].into_iter().filter(|older| older.generation < newer.generation) {
            assert_eq!(merged(older, newer).contents, *newer);
            assert_eq!(merged(older, newer).data, Data::Current, "the file is written first");
            assert_eq!(merged(newer, older).contents, *newer);
            assert_eq!(merged(newer, older).data, Data::Outdated);
        }
    }
    // The session is that of the session store: this directory may be a copy of that of the agent that was adopted.
    let later = Contents { session: SessionName::new(12, 0), ..adopted.clone() };
    let of = |store| merge(Some(later.clone()), Some(first.clone()), store).unwrap().unwrap().contents;
    assert_eq!(of(SessionStore::Directory), Contents { session: first.session, ..adopted.clone() });
    assert_eq!(of(SessionStore::Secret), later);
    let stranger = Contents { generation: 4, ..contents(2, Some(8), 3, None) };
    assert!(merge(Some(stranger), Some(adopted), SessionStore::Directory).is_err(), "of no lineage of ours");
}

/// The Secret could not be read when the agent was handed over directly to what it had become last, or to what came before.
#[test]
fn an_agent_that_was_handed_over_in_two_ways_goes_on_as_one_of_them_and_names_the_other() {
    let first = Contents { generation: 1, ..contents(1, Some(5), 3, Some(7)) };
    let after = |targets: &[u128], session: u64| {
        let mut contents = first.clone();
        for nth in targets {
            contents.become_target(target(*nth), None);
        }
        Contents { session: SessionName::new(session, 9), ..contents }
    };
    let merged = |secret: &Contents, file: &Contents, store| {
        let merged = merge(Some(secret.clone()), Some(file.clone()), store).unwrap().unwrap();
        assert_eq!(merged.data, Data::Outdated, "it may be of either");
        let again = merge(Some(secret.clone()), Some(merged.contents.clone()), store).unwrap().unwrap();
        assert_eq!(again.contents, merged.contents, "the file is written first");
        merged.contents
    };
    let of = |nth: u128| target(nth).target;
    for (secret, file, goes_on, formers) in [
        (after(&[6], 4), after(&[7], 5), 7, [5, 6].map(of).to_vec()),
        (after(&[6], 5), after(&[7], 4), 6, [5, 7].map(of).to_vec()),
        (after(&[6], 4), after(&[7], 4), 6, [5, 7].map(of).to_vec()),
        (after(&[6], 4), after(&[7, 8], 6), 8, [5, 7, 6].map(of).to_vec()),
        (after(&[6, 7], 5), after(&[8], 6), 8, [5, 6, 7].map(of).to_vec()),
    ] {
        for store in [SessionStore::Directory, SessionStore::Secret] {
            let one = merged(&secret, &file, store);
            assert_eq!((one.enrolled, one.formers), (Some(target(goes_on)), formers.clone()));
            assert!(one.generation > secret.generation.max(file.generation), "the other copy is known to be older");
            let session =
                if store == SessionStore::Directory { file.session } else { secret.session.max(file.session) };
            assert_eq!((one.session, one.floor, one.inherited), (session, None, first.floor));
        }
    }
    let (secret, file) = (after(&[6], 4), after(&[7], 5));
    let cluster = |contents: &Contents, uid: &str| Contents { cluster: Some(uid.parse().unwrap()), ..contents.clone() };
    for (secret, file, why) in [
        (Contents { seed: Digest::from_bytes([9; 32]), ..secret.clone() }, file.clone(), "one key would be lost"),
        (cluster(&secret, "a"), cluster(&file, "b"), "they are of two clusters"),
        (Contents { formers: vec![of(9)], ..secret.clone() }, file.clone(), "they have no target in common"),
        (Contents { pin: HubPin::of(&token(2)).unwrap(), ..secret }, file, "they are of two hubs"),
    ] {
        assert!(merge(Some(secret), Some(file), SessionStore::Directory).is_err(), "{why}");
    }
}

/// Neither is enrolled; the file was given a token of another hub since.
#[test]
fn addresses_stay_with_the_hub_that_they_lead_to() {
    let of = |hub: u128, url: &str| {
        let token = EnrolmentToken { urls: vec![url.parse().unwrap()], ..token(hub) };
        let (pin, mut addresses) = (HubPin::of(&token).unwrap(), Addresses::of(&token));
        // The later a copy was changed, the newer are its addresses.
        if hub == 2 {
            addresses.take(&EnrolmentToken { seed: vec![8; 32], ..token });
        }
        Contents { pin, addresses, ..contents(1, None, 0, None) }
    };
    let (one, two) = (of(1, "https://one.example"), of(2, "https://two.example"));
    for (secret, file) in [(&one, &two), (&two, &one)] {
        let merged =
            merge(Some(secret.clone()), Some(file.clone()), SessionStore::Directory).unwrap().unwrap().contents;
        assert_eq!((merged.pin, merged.addresses), (secret.pin.clone(), secret.addresses.clone()));
    }
}

/// It was replaced, and set back to before a set that the other copy knows of.
#[test]
fn merging_copies_of_one_target_never_lowers_the_newest_set() {
    let older = Contents { generation: 1, ..contents(1, Some(5), 3, Some(7)) };
    let newer = Contents { generation: 2, ..contents(2, Some(5), 4, Some(5)) };
    for (secret, file) in [(&older, &newer), (&newer, &older)] {
        let merged = merge(Some(secret.clone()), Some(file.clone()), SessionStore::Directory).unwrap().unwrap();
        assert_eq!((merged.contents.seed, merged.contents.floor), (newer.seed, older.floor));
        assert_eq!(merged.data, Data::Outdated);
    }
}

#[tokio::test]
async fn an_agent_that_ends_while_enrolling_shows_the_same_key_for_the_same_token_again() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let given = token(1);
    let first = open(directory.path(), Some(&given)).await?.enrolling_key().await?.public();
    let again = open(directory.path(), Some(&given)).await?;
    assert_eq!(again.enrolling_key().await?.public(), first);
    again.enrol(target(5), Some(given.id())).await?;
    assert_eq!(again.key().public(), first);
    // Revoked, and given another token: the next key is one for as long as that is shown, and the one in use stays.
    again.revoked(&first).await?;
    let next = again.enrolling_key().await?.public();
    let anew = EnrolmentToken { seed: vec![3; 32], ..token(1) };
    for used in [TokenUse::Taken, TokenUse::SeenBefore] {
        let found = Found::load(directory.path(), Some(&anew), None, SessionStore::Directory).await?;
        assert_eq!(found.token(), used);
        let keeper = found.keep()?;
        assert_eq!((&keeper.key().public(), &keeper.enrolling_key().await?.public()), (&first, &next));
    }
    let last = open(directory.path(), Some(&anew)).await?;
    last.enrol(target(5), Some(anew.id())).await?;
    assert_eq!(last.key().public(), next);
    Ok(())
}
