use std::fs;
use std::os::unix::fs::PermissionsExt;

use tideline_common::{EnrolmentToken, TargetId};
use uuid::Uuid;

use super::{Error, Identity, TargetName};

fn token(hub: u128) -> EnrolmentToken {
    EnrolmentToken {
        name: "store-1".to_owned(),
        url: "https://hub.example/tideline".to_owned(),
        hub: tideline_common::HubId::from_uuid(Uuid::from_u128(hub)),
        hub_key: vec![7; 32],
        ca: vec![1, 2, 3],
        seed: vec![9; 32],
    }
}

fn target() -> TargetName {
    TargetName { target: TargetId::from_uuid(Uuid::from_u128(5)), name: "store-1".to_owned() }
}

#[test]
fn the_key_stays_and_the_enrolment_is_kept() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let mut first = Identity::open(directory.path(), Some(&token(1)))?;
    first.enrol(target())?;
    let second = Identity::open(directory.path(), None)?;
    assert_eq!(second.key().seed(), first.key().seed());
    assert_eq!((second.enrolled(), second.pin()), (Some(&target()), first.pin()));
    let mode = fs::metadata(directory.path().join("identity.json"))?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    Ok(())
}

#[test]
fn without_token_and_identity_it_says_what_to_do() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let Err(error) = Identity::open(directory.path(), None) else { panic!("an identity out of nothing") };
    assert!(error.to_string().contains("--token-file"), "{error}");
    Ok(())
}

#[test]
fn another_hubs_token_is_taken_before_enrolment_and_refused_after() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let first = Identity::open(directory.path(), Some(&token(1)))?;
    let mut second = Identity::open(directory.path(), Some(&token(2)))?;
    assert_eq!(second.key().seed(), first.key().seed());
    assert_eq!(second.pin().hub, token(2).hub);
    second.enrol(target())?;
    assert!(matches!(Identity::open(directory.path(), Some(&token(1))), Err(Error::OtherHub { .. })));
    Ok(())
}

#[test]
fn a_changed_byte_is_damage() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    Identity::open(directory.path(), Some(&token(1)))?;
    let path = directory.path().join("identity.json");
    let text = fs::read_to_string(&path)?;
    fs::write(&path, text.replace("hub.example", "hub.examplf"))?;
    assert!(matches!(Identity::open(directory.path(), None), Err(Error::Damaged { .. })));
    fs::write(&path, text.replace("\"schema\":1", "\"schema\":2"))?;
    assert!(matches!(Identity::open(directory.path(), None), Err(Error::Schema { found: 2, .. })));
    fs::write(&path, "")?;
    assert!(matches!(Identity::open(directory.path(), None), Err(Error::Damaged { .. })));
    Ok(())
}
