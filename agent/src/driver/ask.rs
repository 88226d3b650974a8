//! One request to the hub, with what must be on disk before it is sent, and before anybody hears of its answer.

use tideline_common::Digest;
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{EnrolRequest, RefusalKind, SessionAnswer};
use tideline_runtime::exit::chain;
use tracing::warn;

use crate::core::{Answer, LinkFailure, Request};
use crate::identity::{self, Keeper, TargetName};
use crate::link::Link;

/// Sends it, and stores what the answer says of this agent's identity.
pub(super) async fn ask(identity: &Keeper, link: &Link, request: Request) -> (Request, Result<Answer, LinkFailure>) {
    let (request, shown) = match request {
        Request::Enrol(enrols) => match prove(identity, enrols).await {
            Ok((proven, key)) => (Request::Enrol(proven), key),
            Err((enrols, failure)) => return (Request::Enrol(enrols), Err(failure)),
        },
        request => (request, link.public_key()),
    };
    let result = match link.send(&request).await {
        Err(failure) => Err(refused(identity, &shown, failure).await),
        Ok(answer) => keep(identity, link, answer).await,
    };
    (request, result)
}

/// Signs what enrols with the key that the agent will have then, and returns that key. A key that is not on disk is shown to
/// nobody.
async fn prove(
    identity: &Keeper,
    request: EnrolRequest,
) -> Result<(EnrolRequest, VerifyingKey), (EnrolRequest, LinkFailure)> {
    match identity.enrolling_key().await {
        Ok(key) => Ok((request.proven(&key), key.public())),
        Err(error) => {
            let message = format!("no token is shown before its agent's key is on disk: {}", chain(&error));
            Err((request, LinkFailure::Unreachable { message, retry_after: None }))
        }
    }
}

/// What the core is to hear of a failure. That the hub accepts the key no more it hears in any case: a disk that takes no
/// writes is no reason to go on changing the cluster.
async fn refused(identity: &Keeper, shown: &VerifyingKey, failure: LinkFailure) -> LinkFailure {
    if let LinkFailure::Refused(refusal) = &failure
        && refusal.refusal == RefusalKind::Revoked
        && let Err(error) = identity.revoked(shown).await
    {
        warn!("the hub revoked this agent's key, and the next key could not be saved: {}", chain(&error));
    }
    failure
}

async fn keep(identity: &Keeper, link: &Link, answer: Answer) -> Result<Answer, LinkFailure> {
    match &answer {
        Answer::Enrolled(enrolled) => {
            let enrolled = TargetName { target: enrolled.target, name: enrolled.name.clone() };
            keep_target(identity, link, enrolled, link.token()).await?;
        }
        Answer::Session(SessionAnswer { handover: Some(handover), .. }) => {
            let enrolled = TargetName { target: handover.target, name: handover.name.clone() };
            keep_target(identity, link, enrolled, None).await?;
        }
        Answer::Session(_) | Answer::Desired(_) | Answer::Bodies(_) | Answer::Reported(_) => {}
    }
    Ok(answer)
}

/// The identity is on disk before the core hears of it.
async fn keep_target(
    identity: &Keeper,
    link: &Link,
    enrolled: TargetName,
    token: Option<Digest>,
) -> Result<(), LinkFailure> {
    let target = enrolled.target;
    identity.enrol(enrolled, token).await.map_err(|error| unkept(&error))?;
    link.speak_as(identity.key(), target);
    Ok(())
}

fn unkept(error: &identity::Error) -> LinkFailure {
    let message = format!("the hub has answered, but {}", chain(error));
    LinkFailure::Unreachable { message, retry_after: None }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tideline_common::EnrolmentToken;
    use tideline_common::wire::v1::{ClusterFacts, Refusal};

    use super::*;
    use crate::identity::{Found, SessionStore};

    fn token() -> EnrolmentToken {
        EnrolmentToken {
            name: "store".to_owned(),
            urls: vec!["https://hub.example".parse().unwrap()],
            hub: tideline_common::HubId::from_uuid(uuid::Uuid::from_u128(1)),
            hub_key: vec![7; 32],
            authorities: Vec::new(),
            seed: vec![9; 32],
        }
    }

    /// The refusal freezes the agent; the token is shown once there is a key for it that outlives the process.
    #[tokio::test]
    async fn a_disk_that_takes_no_writes_hides_no_refusal_and_shows_no_token() {
        let parent = tempfile::tempdir().unwrap();
        let (directory, aside) = (parent.path().join("data"), parent.path().join("aside"));
        fs::create_dir(&directory).unwrap();
        let found = Found::load(&directory, Some(&token()), None, SessionStore::Directory).await.unwrap();
        let keeper = found.keep().unwrap();
        let revoked = keeper.key().public();
        fs::rename(&directory, &aside).unwrap();
        let refusal = Refusal::new(RefusalKind::Revoked, "revoked");
        let heard = refused(&keeper, &revoked, LinkFailure::Refused(refusal.clone())).await;
        assert!(matches!(heard, LinkFailure::Refused(heard) if heard == refusal));
        let (token, hub) = ("store".to_owned(), token().hub);
        let (agent_key, proof) = (Vec::new(), Vec::new());
        let enrols = EnrolRequest { token, agent_key, hub, facts: ClusterFacts::default(), proof };
        let (enrols, failure) = prove(&keeper, enrols).await.map(drop).unwrap_err();
        assert!(matches!(failure, LinkFailure::Unreachable { .. }), "{failure:?}");
        fs::rename(&aside, &directory).unwrap();
        let (_, shown) = prove(&keeper, enrols).await.map_err(|(_, failure)| failure).unwrap();
        assert_ne!(shown, revoked);
        let found = Found::load(&directory, None, None, SessionStore::Directory).await.unwrap();
        assert_eq!(found.keep().unwrap().enrolling_key().await.unwrap().public(), shown);
    }
}
