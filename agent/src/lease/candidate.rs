//! Waits to acquire the Lease, then renews it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use tideline_common::Monotonic;
use tideline_runtime::health::{Health, ReadinessGate};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, info_span, warn};

use super::election::{Election, Loss, Move, RENEW_DEADLINE, RETRY_EVERY};
use super::record::Failure;

pub(crate) use super::record::LeaseRef;

/// Longest wait for the Lease to be released at the end. Without that the next leads a quarter of a minute later.
const RELEASE_MAX: Duration = Duration::from_secs(4);

/// A replica that does not lead yet.
#[derive(Debug)]
pub(crate) struct Candidate {
    reference: LeaseRef,
    election: Election<Timestamp>,
    /// Of the Lease as read last.
    version: String,
    start: Instant,
}

/// What one attempt came to.
enum LeaseObservation {
    Ours,
    NotOurs,
    /// Nothing is known: why.
    Blind(String),
    Lost(Loss),
}

impl Candidate {
    pub(crate) fn new(reference: LeaseRef) -> Self {
        // A Pod's own name, then what no other process has.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "agent" } else { host.trim() };
        let me = format!("{host}_{}", uuid::Uuid::new_v4());
        Self { reference, election: Election::new(me), version: String::new(), start: Instant::now() }
    }

    /// Waits until this replica leads. Cancel-safe, but that a Lease just taken runs out by itself then.
    pub(crate) async fn lead(mut self, health: &Health) -> Leading {
        let mut standing_by = None;
        let mut blind: Option<ReadinessGate> = None;
        let mut holder = None;
        loop {
            match self.read_and_act().await {
                LeaseObservation::Ours => break,
                LeaseObservation::Blind(why) => {
                    // It could not take over, so it is no use as a standby.
                    if blind.is_none() {
                        warn!("the Lease {} can neither be acquired nor read; retrying: {why}", self.reference);
                        blind = Some(health.gate("lease"));
                    }
                }
                LeaseObservation::NotOurs | LeaseObservation::Lost(_) => {
                    blind = None;
                    standing_by.get_or_insert_with(|| health.note("standby"));
                    let now = self.election.holder().map(str::to_owned);
                    if now.is_some() && now != holder {
                        info!(lease = %self.reference, holder = now, "standing by: another replica leads");
                        holder = now;
                    }
                }
            }
            sleep(RETRY_EVERY).await;
        }
        info!(lease = %self.reference, "this replica leads");
        Leading::begin(self)
    }

    /// Reads the Lease, and does what follows.
    async fn read_and_act(&mut self) -> LeaseObservation {
        let read = self.reference.read().await;
        match read {
            Ok(Some(stored)) => {
                self.version = stored.version;
                self.election.see(self.now(), Some(stored.record));
            }
            Ok(None) => self.election.see(self.now(), None),
            Err(Failure::Conflict) => return LeaseObservation::NotOurs,
            Err(Failure::Refused(why)) => return LeaseObservation::Blind(why),
        }
        self.act().await
    }

    /// Makes the move that follows from the Lease as read last.
    async fn act(&mut self) -> LeaseObservation {
        let begun = self.now();
        let written = match self.election.next(begun, Timestamp::now()) {
            Move::Create(record) => self.reference.create(&record).await,
            Move::Replace(record) => self.reference.replace(&self.version, &record).await,
            Move::Wait => return LeaseObservation::NotOurs,
            Move::Lost(loss) => return LeaseObservation::Lost(loss),
        };
        match written {
            Ok(stored) => {
                self.version = stored.version;
                self.election.wrote(begun, stored.record);
                LeaseObservation::Ours
            }
            Err(Failure::Conflict) => LeaseObservation::NotOurs,
            Err(Failure::Refused(why)) => LeaseObservation::Blind(why),
        }
    }

    /// Keeps it until `stop`, then releases it; or says why it is not ours any more.
    async fn keep(mut self, until: watch::Sender<Instant>, stop: CancellationToken) -> Option<String> {
        let mut trouble: Option<String> = None;
        let mut next = Instant::now() + RETRY_EVERY;
        loop {
            let deadline = *until.borrow();
            // Both arms are cancel-safe, and neither awaits in its body.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(next.min(deadline)) => {}
            }
            // What was written last is what is there, unless another wrote: then it is read.
            let renewed = async {
                match self.act().await {
                    LeaseObservation::NotOurs => self.read_and_act().await,
                    observation => observation,
                }
            };
            let observation = match tokio::time::timeout_at(deadline, renewed).await {
                Ok(observation) => observation,
                Err(_elapsed) => LeaseObservation::Lost(Loss::NotRenewed),
            };
            match observation {
                LeaseObservation::Ours => {
                    trouble = None;
                    until.send_replace(self.ours_until());
                }
                LeaseObservation::NotOurs => {}
                LeaseObservation::Blind(why) => {
                    if trouble.replace(why.clone()).is_none() {
                        warn!("the Lease {} cannot be renewed; retrying: {why}", self.reference);
                    }
                }
                LeaseObservation::Lost(Loss::Taken { by }) => return Some(format!("{by} holds it now")),
                LeaseObservation::Lost(Loss::NotRenewed) => {
                    let why = trouble.unwrap_or_else(|| "the API server does not answer".to_owned());
                    return Some(format!("it could not be renewed for {} s: {why}", RENEW_DEADLINE.as_secs()));
                }
            }
            next = Instant::now() + RETRY_EVERY;
        }
        match timeout(RELEASE_MAX, self.release()).await {
            Ok(Ok(())) => info!(lease = %self.reference, "the Lease was released, for another replica to lead"),
            Ok(Err(why)) => warn!("the Lease {} was not released: {why}", self.reference),
            Err(_elapsed) => warn!("the Lease {} was not released: the API server does not answer", self.reference),
        }
        None
    }

    async fn release(&mut self) -> Result<(), String> {
        let Some(record) = self.election.release(Timestamp::now()) else { return Ok(()) };
        match self.reference.replace(&self.version, &record).await {
            Ok(_) => Ok(()),
            Err(Failure::Conflict) => Err("it was changed by another".to_owned()),
            Err(Failure::Refused(why)) => Err(why),
        }
    }

    fn ours_until(&self) -> Instant {
        let until = self.election.ours_until().unwrap_or(Monotonic::START);
        self.start + Duration::from_millis(until.as_millis())
    }

    fn now(&self) -> Monotonic {
        Monotonic::from_millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// A replica that leads, until it is asked to stop or the Lease is lost.
#[derive(Debug)]
pub(crate) struct Leading {
    term: Term,
    stop: CancellationToken,
    keeper: JoinHandle<()>,
}

/// How long this replica leads. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    lost: CancellationToken,
    why: Arc<OnceLock<String>>,
    until: watch::Receiver<Instant>,
}

impl Leading {
    fn begin(candidate: Candidate) -> Self {
        let (until, seen) = watch::channel(candidate.ours_until());
        let (stop, lost, why) = (CancellationToken::new(), CancellationToken::new(), Arc::new(OnceLock::new()));
        let term = Term { lost: lost.clone(), why: Arc::clone(&why), until: seen };
        let keep = candidate.keep(until, stop.clone());
        let keeper = async move {
            if let Some(reason) = keep.await {
                // Nobody else sets it.
                let _ = why.set(reason);
                lost.cancel();
            }
        };
        Self { term, stop, keeper: tokio::spawn(keeper.instrument(info_span!("lease"))) }
    }

    pub(crate) fn term(&self) -> Term {
        self.term.clone()
    }

    /// Releases the Lease, once nothing is done under it any more.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        // A panic there is told by its hook.
        let _ = self.keeper.await;
    }
}

impl Term {
    /// Whether this replica must do nothing more. Says so also where nobody was able to notice in time, as after the whole
    /// machine stood still.
    pub(crate) fn is_over(&self) -> bool {
        self.lost.is_cancelled() || *self.until.borrow() <= Instant::now()
    }

    /// Waits until the Lease is lost. Cancel-safe.
    pub(crate) async fn over(&self) {
        self.lost.cancelled().await;
    }

    /// Why it was lost.
    pub(crate) fn why(&self) -> String {
        self.why.get().cloned().unwrap_or_else(|| "this process stood still for too long".to_owned())
    }
}
