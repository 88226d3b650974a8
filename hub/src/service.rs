//! What stands behind the link's HTTP edge: the engine for targets, the root space for enrolment.

use std::time::Duration;

use kube::Client;
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{EnrolAnswer, EnrolRequest, Refusal, RefusalKind};
use tideline_common::{HubId, TargetId};
use tideline_runtime::exit;
use tokio::time::timeout;
use tracing::warn;

use crate::engine::RememberedTarget;
use crate::enrol;
use crate::link::core::{Request, RequestId};
use crate::link::exchange::Silences;
use crate::link::http::{Reply, Service, Unverified};
use crate::shared::Shared;
use crate::summary::Breach;

/// How long an enrolment waits for the inventory to show the new target. It takes milliseconds; enrolling again is
/// idempotent.
const REGISTRATION_WAIT: Duration = Duration::from_secs(10);

pub(crate) struct LinkService {
    pub(crate) shared: Shared,
    pub(crate) hub: HubId,
    /// Of the root space.
    pub(crate) root: Client,
}

impl Service for LinkService {
    fn target_key(&self, target: TargetId) -> Result<VerifyingKey, Unverified> {
        self.shared.read(|engine| match engine.key_of(target) {
            Some(key) => Ok(key),
            None if engine.targets.is_known() => Err(Unverified::UnknownTarget),
            None => Err(Unverified::Starting),
        })
    }

    fn replaced_keys(&self, target: TargetId) -> Vec<VerifyingKey> {
        self.shared.read(|engine| engine.remembered(target).map_or_else(Vec::new, RememberedTarget::replaced_keys))
    }

    fn silences(&self, target: TargetId) -> Silences {
        self.shared.read(|engine| engine.targets.silences(target))
    }

    async fn token_key(&self, token: &str) -> Result<VerifyingKey, Unverified> {
        match enrol::token_key(&self.root, token).await {
            Ok(key) => key.ok_or(Unverified::UnknownToken),
            Err(error) => {
                warn!(error = exit::chain(&error), "cannot read an enrolment token");
                Err(Unverified::Unreadable)
            }
        }
    }

    async fn enrol(&self, request: EnrolRequest) -> Result<EnrolAnswer, Refusal> {
        let key = enrol::proven_key(&request)?;
        if self.shared.read(|engine| engine.is_revoked(&key)) {
            return Err(Refusal::new(RefusalKind::Revoked, "the key of this agent was revoked; it needs a new one"));
        }
        let former = |target| self.shared.read(|engine| engine.unrevoked_keys(target));
        let answer = enrol::enrol(&self.root, request, self.hub, &former).await?;
        // The agent's next request is to find its key known.
        let mut version = self.shared.version();
        // Not by `wait_for`, which keeps the counter from moving while it looks: who moves it has the engine.
        let known = async {
            while !self.shared.read(|engine| engine.is_registered(answer.target)) {
                if version.changed().await.is_err() {
                    break;
                }
            }
        };
        match timeout(REGISTRATION_WAIT, known).await {
            Ok(()) => Ok(answer),
            Err(_elapsed) => {
                Err(Refusal::new(RefusalKind::Busy, "the hub is slow to take in this target").retry_after(1))
            }
        }
    }

    fn breached(&self, target: TargetId, breach: Breach) {
        self.shared.step(|engine, now| engine.breached(now, target, breach));
    }

    fn clock_differs(&self, target: TargetId) {
        self.shared.step(|engine, now| engine.clock_differs(now, target));
    }

    async fn handle(&self, target: TargetId, request: Request) -> Result<Reply, Refusal> {
        let (id, answer) = self.shared.step(|engine, now| engine.request(now, target, request));
        // When the connection breaks, this future is dropped, and nobody is to be answered any more.
        let _abandon = Abandon { shared: &self.shared, target, id };
        answer
            .await
            .unwrap_or_else(|_closed| Err(Refusal::new(RefusalKind::Busy, "the hub is stopping").retry_after(1)))
    }
}

struct Abandon<'a> {
    shared: &'a Shared,
    target: TargetId,
    id: RequestId,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.shared.step(|engine, now| engine.abandon(now, self.target, self.id));
    }
}

#[cfg(test)]
mod tests;
