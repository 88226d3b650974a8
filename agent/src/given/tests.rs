use std::pin::pin;

use tideline_common::{EnrolmentToken, HubId};
use tokio::time::timeout;

use super::*;

fn token(seed: u8, hub_key: u8) -> EnrolmentToken {
    EnrolmentToken {
        name: "store".to_owned(),
        urls: vec!["https://hub.example".parse().unwrap()],
        hub: HubId::from_uuid(uuid::Uuid::from_u128(1)),
        hub_key: vec![hub_key; 32],
        authorities: Vec::new(),
        seed: vec![seed; 32],
    }
}

/// Whether what is put into the file in the place of the first token is noticed.
async fn is_noticed(put: impl FnOnce(&Path)) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, token(1, 7).to_string()).unwrap();
    let mut given = Given::read(Some(&path), HubAddress::default());
    let changed = given.file.take().unwrap();
    put(&path);
    let hub = HubPin::of(&token(1, 7)).unwrap();
    timeout(3 * LOOK_EVERY, changed.changed(&hub)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn another_token_of_the_hub_is_noticed_and_nothing_else_is() {
    assert!(is_noticed(|path| std::fs::write(path, token(2, 7).to_string()).unwrap()).await);
    assert!(!is_noticed(|_| ()).await, "the one that it began with");
    assert!(!is_noticed(|path| std::fs::write(path, token(2, 8).to_string()).unwrap()).await, "of another hub");
    assert!(!is_noticed(|path| std::fs::write(path, &token(2, 7).to_string()[..40]).unwrap()).await, "half of one");
    assert!(!is_noticed(|path| std::fs::remove_file(path).unwrap()).await);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_comes_after_the_start_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let file = Given::read(Some(&path), HubAddress::default()).file.unwrap();
    let hub = HubPin::of(&token(1, 7)).unwrap();
    let mut changed = pin!(file.changed(&hub));
    assert!(timeout(3 * LOOK_EVERY, &mut changed).await.is_err(), "there is none");
    std::fs::write(&path, token(1, 7).to_string()).unwrap();
    assert!(timeout(2 * LOOK_EVERY, changed).await.is_ok());
}
