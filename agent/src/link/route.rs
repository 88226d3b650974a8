//! The way to the hub: the address to ask, a client that trusts its authorities, and the outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tideline_common::Monotonic;
use tideline_common::wire::v1::HubAddresses;
use tideline_runtime::exit::chain;
use tracing::{info, warn};

use super::exchange::VerifiedAnswer;
use super::http::{Error, GivenAuthorities, Http, Trusted, Unanswered};
use crate::addresses::{Addresses, Destination, Locator, Missed, TrustRevision};
use crate::certificates::Clock;
use crate::core::LinkFailure;

/// How old a client is at least that is given up for another where the hub answers at none of its addresses. What the system
/// trusts is read when a client is made, and may have changed since.
const RENEW_AFTER: Duration = Duration::from_mins(10);

/// Where the hub may be.
#[derive(Debug)]
pub(super) struct HubRoute {
    locator: Mutex<Locator>,
    client: Mutex<InUse>,
    clock: Arc<Clock>,
    start: Instant,
}

/// The client in use; another one is made when other authorities are to be trusted, or may be.
#[derive(Debug, Default)]
struct InUse {
    /// Trusted beside those that the locator names.
    given: GivenAuthorities,
    /// None as long as none could be made.
    made: Option<Made>,
    /// The authorities of which those that cannot be used were logged.
    logged: Option<TrustRevision>,
}

#[derive(Debug)]
struct Made {
    trust: TrustRevision,
    at: Monotonic,
    http: Http,
}

impl HubRoute {
    /// Makes no client yet.
    pub(super) fn new(locator: Locator, given: GivenAuthorities, clock: Arc<Clock>) -> Self {
        let client = Mutex::new(InUse { given, ..InUse::default() });
        Self { locator: Mutex::new(locator), client, clock, start: Instant::now() }
    }

    /// Trusts these from now on, instead of those that were given before.
    pub(super) fn trust(&self, given: GivenAuthorities) {
        // Kept across both: a client of the new revision is made with these.
        let mut locator = lock(&self.locator);
        lock(&self.client).given = given;
        locator.others_are_trusted();
    }

    /// Makes the client for the next request, unless it is there.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        self.client(&lock(&self.locator), |trusted| Http::new(trusted, &self.clock)).map(drop)
    }

    /// Where the next request goes, and what sends it.
    pub(super) fn next(&self) -> Result<(Destination, Http), LinkFailure> {
        self.next_by(|trusted| Http::new(trusted, &self.clock))
    }

    /// Without a client nobody is reached: what is on trial is taken back, or the next address has its turn.
    fn next_by(&self, make: impl FnOnce(&Trusted) -> Result<Http, Error>) -> Result<(Destination, Http), LinkFailure> {
        let mut locator = lock(&self.locator);
        let destination = locator.destination();
        match self.client(&locator, make) {
            Ok(http) => Ok((destination, http)),
            Err(error) => {
                locator.missed(&destination, Missed::NotThere);
                Err(LinkFailure::Unreachable { message: chain(&error), retry_after: None })
            }
        }
    }

    /// A client that trusts the present authorities.
    fn client(&self, locator: &Locator, make: impl FnOnce(&Trusted) -> Result<Http, Error>) -> Result<Http, Error> {
        let (trust, authorities) = locator.trusted();
        let mut client = lock(&self.client);
        if let Some(made) = &client.made
            && made.trust == trust
        {
            return Ok(made.http.clone());
        }
        let trusted = Trusted::new(authorities, &client.given);
        if client.logged.replace(trust) != Some(trust) {
            for unusable in trusted.unusable() {
                warn!("the certificate of an authority cannot be used and is left out: {unusable}");
            }
        }
        let http = make(&trusted)?;
        client.made = Some(Made { trust, at: self.now(), http: http.clone() });
        Ok(http)
    }

    /// Nothing came back from there.
    pub(super) fn unanswered(&self, from: &Destination, unanswered: Unanswered) -> LinkFailure {
        let Unanswered { missed, failure } = unanswered;
        let mut locator = lock(&self.locator);
        locator.missed(from, missed);
        self.renew_if_lost(&locator, self.now());
        failure
    }

    /// Has another client made, where the hub may have been missed for what this one trusts.
    fn renew_if_lost(&self, locator: &Locator, now: Monotonic) {
        if locator.is_lost() {
            lock(&self.client).made.take_if(|made| now.since(made.at) >= RENEW_AFTER);
        }
    }

    fn now(&self) -> Monotonic {
        Monotonic::from_millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// What came back from there is the hub's answer, or nothing that may be believed. Where the hub says how it is reached,
    /// that is taken in. Returns what is left of it to act upon: what is not the hub's keeps nobody from its other addresses.
    pub(super) fn heard(
        &self,
        from: &Destination,
        said: Result<VerifiedAnswer, LinkFailure>,
    ) -> Result<VerifiedAnswer, LinkFailure> {
        let mut locator = lock(&self.locator);
        let said = match said {
            Ok(said) => said,
            Err(failure) => {
                locator.missed(from, Missed::NotThere);
                return Err(if locator.is_lost() { failure } else { failure.without_pause() });
            }
        };
        self.clock.hub_says(said.signed_at);
        if locator.answered(self.now(), from) {
            info!(url = %from.url, "the hub answers at another of its addresses");
        }
        if let Some(addresses) = &said.addresses
            && locator.announced(addresses)
        {
            let HubAddresses { urls, authorities } = addresses;
            let authorities = authorities.len();
            if urls.is_empty() {
                info!(authorities, "the hub announced new certificate authorities, and no other addresses");
            } else {
                info!(urls = urls.join(" "), authorities, "the hub announced new addresses");
            }
        }
        Ok(said)
    }

    /// The addresses, if they changed since the last call.
    pub(super) fn take_unsaved(&self) -> Option<Addresses> {
        lock(&self.locator).take_unsaved()
    }
}

/// The guarded state is consistent between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
