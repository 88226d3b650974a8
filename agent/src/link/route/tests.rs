use tideline_common::{Authority, EnrolmentToken, HubId};

use super::*;

fn authority(number: u8) -> Authority {
    Authority::from_der([number; 4]).unwrap()
}

fn locator() -> Locator {
    let token = EnrolmentToken {
        name: "store".to_owned(),
        urls: vec!["https://hub.example".parse().unwrap()],
        hub: HubId::from_uuid(uuid::Uuid::from_u128(1)),
        hub_key: vec![7; 32],
        authorities: vec![authority(1)],
        seed: vec![9; 32],
    };
    Locator::new(Addresses::of(&token), None).unwrap()
}

/// The hub announces this authority alone.
fn announce(locator: &mut Locator, number: u8) {
    locator.announced(&HubAddresses { urls: Vec::new(), authorities: vec![authority(number)] });
}

/// Neither the token's nor the announced one is a certificate.
#[test]
fn an_announced_authority_that_tls_cannot_use_cuts_nobody_off() {
    tideline_runtime::tls::install_provider();
    let route = HubRoute::new(locator(), GivenAuthorities::default(), Arc::default());
    let (before, _) = route.next().unwrap();
    announce(&mut lock(&route.locator), 2);
    let (after, _) = route.next().unwrap();
    assert!(after.trust > before.trust, "other authorities are to be trusted");
}

#[test]
fn a_client_that_cannot_be_made_takes_back_what_is_on_trial_and_is_made_again() {
    tideline_runtime::tls::install_provider();
    let mut locator = locator();
    announce(&mut locator, 2);
    for minute in 0..=24 * 60 {
        let from = locator.destination();
        locator.answered(Monotonic::from_millis(minute * 60_000), &from);
    }
    assert_eq!(locator.trusted().1.count(), 1, "what is announced no more is left out on trial");
    let route = HubRoute::new(locator, GivenAuthorities::default(), Arc::default());
    let failure = route.next_by(|_| Err(Error::NoCertificate)).unwrap_err();
    assert!(matches!(failure, LinkFailure::Unreachable { retry_after: None, .. }));
    assert_eq!(lock(&route.locator).trusted().1.count(), 2);
    assert!(route.next_by(|_| Err(Error::NoCertificate)).is_err(), "nothing is left to be taken back");
    route.next().unwrap();
}

#[test]
fn authorities_that_are_given_later_are_trusted_by_another_client() {
    tideline_runtime::tls::install_provider();
    let route = HubRoute::new(locator(), GivenAuthorities::default(), Arc::default());
    let (before, _) = route.next().unwrap();
    let given = GivenAuthorities::from_pem(crate::link::USABLE.as_bytes()).unwrap();
    route.trust(given.clone());
    let (after, _) = route.next().unwrap();
    assert!(after.trust > before.trust);
    let client = lock(&route.client);
    assert_eq!(client.made.as_ref().map(|made| made.trust), Some(after.trust));
    assert_eq!(client.given, given);
}

#[test]
fn an_answer_of_somebody_else_keeps_nobody_from_the_other_addresses() {
    tideline_runtime::tls::install_provider();
    let mut two = locator();
    two.announced(&HubAddresses { urls: vec!["https://other.example".to_owned()], authorities: Vec::new() });
    let route = HubRoute::new(two, GivenAuthorities::default(), Arc::default());
    let pause = Some(Duration::from_secs(90));
    let refused = || {
        let (from, _) = route.next().unwrap();
        let failure = LinkFailure::NotTheHub { message: "a maintenance page".to_owned(), retry_after: pause };
        match route.heard(&from, Err(failure)) {
            Err(LinkFailure::NotTheHub { retry_after, .. }) => retry_after,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(), None, "the other address was not tried");
    assert_eq!(refused(), pause);
}

/// The system trusts another authority since: a client that read its roots once never sees it.
#[test]
fn a_client_that_finds_the_hub_nowhere_is_made_anew_every_ten_minutes() {
    tideline_runtime::tls::install_provider();
    let mut two = locator();
    two.announced(&HubAddresses { urls: vec!["https://other.example".to_owned()], authorities: Vec::new() });
    let route = HubRoute::new(two, GivenAuthorities::default(), Arc::default());
    let is_made = || lock(&route.client).made.is_some();
    let late = || Monotonic::from_millis(route.now().as_millis() + 600_000);
    let miss = |now: Monotonic| {
        let (from, _) = route.next().unwrap();
        let mut locator = lock(&route.locator);
        locator.missed(&from, Missed::NotThere);
        route.renew_if_lost(&locator, now);
    };
    miss(late());
    assert!(is_made(), "it may be at the other address");
    miss(route.now());
    assert!(is_made(), "it is new");
    miss(late());
    assert!(!is_made());
    let (from, _) = route.next().unwrap();
    assert!(is_made());
    lock(&route.locator).answered(route.now(), &from);
    miss(late());
    assert!(is_made(), "it has answered since");
}
