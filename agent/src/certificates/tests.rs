use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use super::*;
use crate::clock::BUILT;

/// The clocks of the machine.
const IN_1970: u64 = 3;
const IN_2050: u64 = 2_524_608_000;
/// A clock that may be right.
const NOW: u64 = BUILT.0 + 40 * DAY;
/// When [`NOT_YET`] begins.
const NEW_YEAR_2040: u64 = 2_208_988_800;
const DAY: u64 = 24 * HOUR;
const HOUR: u64 = 60 * 60;

/// From when to when, by year.
type Validity = (i32, i32);
/// Valid now, and for as long as that may be.
const VALID: Validity = (2020, 2045);
const NOT_YET: Validity = (2040, 2045);
const EXPIRED: Validity = (2019, 2020);

struct Signed {
    params: CertificateParams,
    key: KeyPair,
    der: CertificateDer<'static>,
}

fn sign(name: &str, (begins, ends): Validity, is_ca: bool, by: Option<&Signed>) -> Signed {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["hub.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(begins, 1, 1), date_time_ymd(ends, 1, 1));
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let certificate = match by {
        None => params.self_signed(&key).unwrap(),
        Some(by) => params.signed_by(&key, &Issuer::from_params(&by.params, &by.key)).unwrap(),
    };
    Signed { params, key, der: certificate.der().clone() }
}

/// A root that has ended, which is nobody's business: it is trusted by name.
fn root() -> Signed {
    sign("root", EXPIRED, true, None)
}

/// The root is a pinned one, or the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    Pinned,
    Systems,
}

/// The verdict on a chain, the certificate of the server first, by a clock, when the hub has just signed that time.
fn verify(root: Root, anchor: &Signed, chain: &[&Signed], clock: u64, hub: Option<u64>) -> Result<(), String> {
    tideline_runtime::tls::install_provider();
    let mut roots = RootCertStore::empty();
    roots.add(anchor.der.clone()).unwrap();
    let (pinned, system) = match root {
        Root::Pinned => (roots, RootCertStore::empty()),
        Root::Systems => (RootCertStore::empty(), roots),
    };
    let known = Arc::new(Clock::default());
    if let Some(hub) = hub {
        known.hub_says(hub);
    }
    let verifier = Verifier::of(pinned, system, known).unwrap();
    let (server, intermediates) = chain.split_first().unwrap();
    let intermediates: Vec<_> = intermediates.iter().map(|it| it.der.clone()).collect();
    let name = "hub.example".try_into().unwrap();
    let verified = verifier.verify_server_cert(&server.der, &intermediates, &name, &[], unix_time(UnixSeconds(clock)));
    verified.map(drop).map_err(|error| error.to_string())
}

#[test]
fn a_certificate_of_a_pinned_root_is_accepted_by_a_clock_in_1970_and_in_2050() {
    let root = root();
    for (clock, hub, validity, expected) in [
        // Before the hub was heard.
        (NOW, None, VALID, Ok(())),
        (IN_1970, None, VALID, Ok(())),
        (IN_2050, None, VALID, Ok(())),
        (IN_1970, None, NOT_YET, Ok(())),
        (IN_1970, None, EXPIRED, Err("certificate expired at 2020-01-01T00:00:00Z; it is judged as of 20")),
        (IN_2050, None, EXPIRED, Err("certificate expired at 2020-01-01T00:00:00Z; it is judged as of 20")),
        (NOW, None, EXPIRED, Err("certificate expired at 2020-01-01T00:00:00Z; it is judged as of 20")),
        // And after it.
        (NOW, Some(NOW), VALID, Ok(())),
        (IN_1970, Some(NOW), VALID, Ok(())),
        (IN_2050, Some(NOW), VALID, Ok(())),
        (IN_1970, Some(NOW), NOT_YET, Ok(())),
        (NOW, Some(NOW), NOT_YET, Ok(())),
        (NOW, Some(NOW), EXPIRED, Err("certificate expired at 2020-01-01T00:00:00Z; it is judged as of 20")),
        // The hub confirms a clock that is eight hours behind, and the certificate was renewed an hour ago.
        (NEW_YEAR_2040 - 7 * HOUR, Some(NEW_YEAR_2040 + HOUR), NOT_YET, Ok(())),
        // One that is eight hours ahead: the certificate has ended by the clock alone.
        (NEW_YEAR_2040 + 7 * HOUR, Some(NEW_YEAR_2040 - HOUR), (2020, 2040), Err("within a day of what the hub says")),
        // It ended after the build, and before what the hub says.
        (IN_1970, None, (2020, 2030), Ok(())),
        (IN_1970, Some(IN_2050 - 10 * 365 * DAY), (2020, 2030), Err("it is judged as of 2040-01-04")),
        // A hub with a wrong clock makes no certificate fail that the clock alone would accept, above all not the API
        // server's.
        (NOW, Some(IN_2050), VALID, Ok(())),
        (NOW, Some(IN_2050), EXPIRED, Err("and the hub says 2050-01-01T00:00:00Z: set the one that is wrong")),
    ] {
        let server = sign("server", validity, false, Some(&root));
        let outcome = verify(Root::Pinned, &root, &[&server], clock, hub);
        let is_so = match (&outcome, expected) {
            (Ok(()), Ok(())) => true,
            (Err(said), Err(part)) => said.contains(part),
            _ => false,
        };
        assert!(is_so, "{clock} with {hub:?}, {validity:?}: {outcome:?}, not {expected:?}");
    }
}

/// The moment of verification is one for the whole chain.
#[test]
fn a_chain_is_judged_as_of_the_first_moment_at_which_all_of_it_has_begun() {
    let root = root();
    let chain = |server: Validity, middle: Validity| {
        let authority = sign("middle", middle, true, Some(&root));
        let server = sign("server", server, false, Some(&authority));
        verify(Root::Pinned, &root, &[&server, &authority], IN_1970, None)
    };
    chain((2040, 2041), (2035, 2045)).unwrap();
    chain((2035, 2045), (2040, 2041)).unwrap();
    let ended = chain((2040, 2041), (2035, 2039)).unwrap_err();
    assert!(ended.contains("certificate expired at 2039-01-01T00:00:00Z"), "{ended}");
}

#[test]
fn a_root_of_the_system_is_judged_by_the_clock_which_is_named_as_the_cause() {
    let root = root();
    let server = sign("server", VALID, false, Some(&root));
    let verify = |clock, hub| verify(Root::Systems, &root, &[&server], clock, hub);
    verify(NOW, None).unwrap();
    verify(NOW, Some(IN_2050)).unwrap();
    for (clock, hub, cause) in [
        (IN_1970, None, "the clock of this machine says 1970-01-01T00:00:03Z, which is before this version was built"),
        (IN_2050, None, "the clock of this machine says 2050-01-01T00:00:00Z, which no answer of the hub confirms"),
        (IN_2050, Some(NOW), "the clock of this machine says 2050-01-01T00:00:00Z, and the hub says 20"),
        (IN_2050, Some(IN_2050 + 8 * HOUR), "the clock of this machine says 2050-01-01T00:00:00Z, within a day of"),
    ] {
        let refused = verify(clock, hub).unwrap_err();
        assert!(
            refused.contains("authorities of the system are judged by the clock") && refused.contains(cause),
            "{refused}"
        );
        assert!(refused.contains("set "), "what to do: {refused}");
    }
}

#[test]
fn a_certificate_that_no_pinned_root_has_signed_may_be_of_the_systems_and_nobody_elses() {
    let (root, other) = (root(), sign("other root", EXPIRED, true, None));
    let server = sign("server", VALID, false, Some(&other));
    assert_eq!(
        verify(Root::Pinned, &root, &[&server], NOW, None).unwrap_err(),
        "invalid peer certificate: UnknownIssuer"
    );
    tideline_runtime::tls::install_provider();
    let roots = |of: &Signed| {
        let mut roots = RootCertStore::empty();
        roots.add(of.der.clone()).unwrap();
        roots
    };
    let verifier = Verifier::of(roots(&root), roots(&other), Arc::default()).unwrap();
    let verify = |name: &'static str, clock| {
        let at = unix_time(UnixSeconds(clock));
        verifier.verify_server_cert(&server.der, &[], &name.try_into().unwrap(), &[], at)
    };
    verify("hub.example", NOW).unwrap();
    verify("hub.example", IN_1970).unwrap_err();
    verify("other.example", NOW).unwrap_err();
    assert!(matches!(
        Verifier::of(RootCertStore::empty(), RootCertStore::empty(), Arc::default()),
        Err(Unusable::None(_))
    ));
}
