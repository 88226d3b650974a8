use std::pin::pin;

use tideline_common::{EnrolmentToken, HubId};
use tokio::time::timeout;

use super::*;
use crate::link::USABLE;

fn token(seed: u8) -> EnrolmentToken {
    EnrolmentToken {
        name: "store".to_owned(),
        urls: vec!["https://hub.example".parse().unwrap()],
        hub: HubId::from_uuid(uuid::Uuid::from_u128(1)),
        hub_key: vec![7; 32],
        authorities: Vec::new(),
        seed: vec![seed; 32],
    }
}

/// Whether the agent restarts after `put` has changed the file, where each token is of this use to it.
async fn is_noticed(used: TokenUse, put: impl FnOnce(&Path)) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, token(1).to_string()).unwrap();
    let file = StartInput::read(Some(&path), HubAddress::default()).file.unwrap();
    put(&path);
    timeout(3 * CHECK_EVERY, file.changed(|_| used)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn only_another_usable_token_is_noticed() {
    let another = |path: &Path| std::fs::write(path, token(2).to_string()).unwrap();
    assert!(is_noticed(TokenUse::Taken, another).await);
    assert!(is_noticed(TokenUse::SeenBefore, another).await, "it may let the agent in by now");
    assert!(!is_noticed(TokenUse::Spent, another).await);
    assert!(!is_noticed(TokenUse::OtherHub(token(2).hub), another).await);
    assert!(!is_noticed(TokenUse::Taken, |_| ()).await, "the one that it began with");
    let half = |path: &Path| std::fs::write(path, &token(2).to_string()[..40]).unwrap();
    assert!(!is_noticed(TokenUse::Taken, half).await);
    assert!(!is_noticed(TokenUse::Taken, |path| std::fs::remove_file(path).unwrap()).await);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_comes_after_the_start_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let file = StartInput::read(Some(&path), HubAddress::default()).file.unwrap();
    let mut changed = pin!(file.changed(|_| TokenUse::Taken));
    assert!(timeout(3 * CHECK_EVERY, &mut changed).await.is_err(), "there is none");
    std::fs::write(&path, token(1).to_string()).unwrap();
    assert!(timeout(2 * CHECK_EVERY, changed).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_token_that_is_in_use_may_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let put = |seed: u8| std::fs::write(&path, token(seed).to_string()).unwrap();
    put(1);
    let file = StartInput::read(Some(&path), HubAddress::default()).file.unwrap();
    let used =
        |found: &EnrolmentToken| if found.id() == token(2).id() { TokenUse::Spent } else { TokenUse::SeenBefore };
    let mut changed = pin!(file.changed(used));
    for seed in [2, 1, 2, 1] {
        put(seed);
        assert!(timeout(3 * CHECK_EVERY, &mut changed).await.is_err(), "{seed}");
    }
    put(3);
    assert!(timeout(2 * CHECK_EVERY, changed).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn authorities_that_come_or_change_after_the_start_are_noticed_and_the_former_outlive_a_bad_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.crt");
    let address = HubAddress { hub_ca: Some(path.clone()), ..HubAddress::default() };
    let input = StartInput::read(None, address);
    assert_eq!(input.unreadable.len(), 1, "there is none");
    let mut file = input.authorities_file.unwrap();
    assert!(timeout(3 * CHECK_EVERY, file.changed()).await.is_err());
    let read = |pem: &str| GivenAuthorities::from_pem(pem.as_bytes()).unwrap();
    let (one, two) = (USABLE.to_owned(), USABLE.repeat(2));
    for pem in [&one, &two, &one] {
        std::fs::write(&path, pem).unwrap();
        assert_eq!(timeout(2 * CHECK_EVERY, file.changed()).await.unwrap(), read(pem));
        assert!(timeout(3 * CHECK_EVERY, file.changed()).await.is_err(), "once");
    }
    for bad in ["", "no certificate", &two[..two.len() - 40]] {
        std::fs::write(&path, bad).unwrap();
        assert!(timeout(3 * CHECK_EVERY, file.changed()).await.is_err(), "{bad}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(timeout(3 * CHECK_EVERY, file.changed()).await.is_err());
    std::fs::write(&path, &one).unwrap();
    assert!(timeout(3 * CHECK_EVERY, file.changed()).await.is_err(), "it is what is trusted");
}
