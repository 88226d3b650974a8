//! The way to the hub: which address is asked, over a client that trusts those who may certify it, and what came of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tideline_common::Monotonic;
use tideline_common::wire::v1::HubAddresses;
use tracing::info;

use super::exchange::Said;
use super::http::{Error, GivenAuthorities, Http, Unanswered};
use crate::addresses::{Addresses, Destination, Locator, Missed, TrustRevision};
use crate::core::LinkFailure;

/// Where the hub may be.
#[derive(Debug)]
pub(super) struct HubRoute {
    locator: Mutex<Locator>,
    given: GivenAuthorities,
    /// The client in use; another one is made when other authorities are to be trusted.
    client: Mutex<(TrustRevision, Http)>,
    start: Instant,
}

impl HubRoute {
    pub(super) fn new(locator: Locator, given: GivenAuthorities) -> Result<Self, Error> {
        let (trust, authorities) = locator.trusted();
        let http = Http::new(authorities, &given)?;
        let client = Mutex::new((trust, http));
        Ok(Self { locator: Mutex::new(locator), given, client, start: Instant::now() })
    }

    /// Where the next request goes, and what sends it.
    pub(super) fn next(&self) -> Result<(Destination, Http), Error> {
        let locator = lock(&self.locator);
        let destination = locator.destination();
        let mut client = lock(&self.client);
        if client.0 != destination.trust {
            let (trust, authorities) = locator.trusted();
            *client = (trust, Http::new(authorities, &self.given)?);
        }
        Ok((destination, client.1.clone()))
    }

    /// Nothing came back from there.
    pub(super) fn unanswered(&self, from: &Destination, unanswered: Unanswered) -> LinkFailure {
        let Unanswered { missed, failure } = unanswered;
        lock(&self.locator).missed(from, missed);
        failure
    }

    /// What came back from there is the hub's answer, or nothing that may be believed. Where the hub says how it is reached,
    /// that is taken in.
    pub(super) fn heard(&self, from: &Destination, said: Option<&Said>) {
        let mut locator = lock(&self.locator);
        let Some(said) = said else { return locator.missed(from, Missed::NotThere) };
        let now = Monotonic::from_millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX));
        if locator.answered(now, from) {
            info!(url = %from.url, "the hub answers at another of its addresses");
        }
        if let Some(addresses) = &said.addresses
            && locator.announced(addresses)
        {
            let HubAddresses { urls, authorities } = addresses;
            info!(
                urls = urls.join(" "),
                authorities = authorities.len(),
                "the hub says where it is reached from now on"
            );
        }
    }

    /// The addresses, if they are not what they were when this was asked last.
    pub(super) fn take_unsaved(&self) -> Option<Addresses> {
        lock(&self.locator).take_unsaved()
    }
}

/// What is guarded is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
