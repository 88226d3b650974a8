//! One request to the hub, with what must be on disk before it is sent, and before anybody hears of its answer.

use tideline_common::Digest;
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{RefusalKind, SessionAnswer};

use crate::core::{Answer, LinkFailure, Request};
use crate::identity::{self, Keeper, TargetName};
use crate::link::Link;

/// Signs what enrols with the key that the agent will have then. Returns the key by which it asks, too.
pub(super) fn prove(identity: &Keeper, request: Request) -> (Request, VerifyingKey) {
    match request {
        Request::Enrol(request) => {
            let key = identity.enrolling_key();
            (Request::Enrol(request.proven(&key)), key.public())
        }
        request => (request, identity.key().public()),
    }
}

/// Keeps what an answer to who has shown this key says of who this agent is.
pub(super) async fn keep(
    identity: &Keeper,
    link: &Link,
    shown: &VerifyingKey,
    result: Result<Answer, LinkFailure>,
) -> Result<Answer, LinkFailure> {
    match result {
        Ok(Answer::Enrolled(answer)) => {
            let enrolled = TargetName { target: answer.target, name: answer.name.clone() };
            let kept = keep_target(identity, link, enrolled, link.token()).await;
            kept.map(|()| Answer::Enrolled(answer))
        }
        Ok(Answer::Session(SessionAnswer { handover: Some(ref handover), .. })) => {
            let enrolled = TargetName { target: handover.target, name: handover.name.clone() };
            keep_target(identity, link, enrolled, None).await.and(result)
        }
        Err(LinkFailure::Refused(refusal)) if refusal.refusal == RefusalKind::Revoked => {
            // With a token it enrols by a key that nobody has seen.
            let kept = identity.revoked(shown).await;
            Err(kept.map_or_else(|error| unkept(&error), |()| LinkFailure::Refused(refusal)))
        }
        result => result,
    }
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
    let message = format!("the hub has answered, but {}", tideline_runtime::exit::chain(error));
    LinkFailure::Unreachable { message, retry_after: None }
}
