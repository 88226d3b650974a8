use super::*;
use crate::certificates::Authority as Made;
use tideline_store::Revision;

use crate::identity::{Rotation, rotate};

fn url(text: &str) -> HubUrl {
    text.parse().unwrap()
}

fn ca_pem() -> String {
    Made::create(tideline_common::HubId::from_uuid(uuid::Uuid::new_v4())).unwrap().certificate_pem().to_owned()
}

#[test]
fn agents_and_clients_are_told_of_the_public_authorities_and_of_the_hubs_own() {
    tideline_runtime::tls::install_provider();
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::open(dir.path(), Revision(0)).unwrap();
    let (here, public) = (url("https://127.0.0.1:8443"), url("https://hub.example.com"));
    let plain = Addresses::new(&[], None, &identity, here.clone()).unwrap();
    assert_eq!(plain.first(), &here);
    assert!(plain.announcement().urls.is_empty(), "an agent is told of no address that is only where the hub listens");
    assert_eq!(plain.authorities, [Authority::from_der(identity.authority.certificate_der()).unwrap()]);
    assert_eq!(plain.client_bundle.as_deref(), Some(identity.authority.certificate_pem()));

    let file = dir.path().join("proxy.pem");
    let proxy = ca_pem();
    fs::write(&file, &proxy).unwrap();
    let given = PublicCa::File(file.clone());
    let proxied = Addresses::new(std::slice::from_ref(&public), Some(&given), &identity, here.clone()).unwrap();
    assert_eq!((proxied.first(), proxied.announcement().urls), (&public, vec![public.to_string()]));
    assert_eq!(proxied.authorities, [plain.authorities[0].clone(), own_authorities(&proxy)[0].clone()]);
    let bundle = format!("{}{proxy}", identity.authority.certificate_pem());
    assert_eq!(proxied.client_bundle, Some(bundle));
    assert!(proxied.names("0.0.0.0:8443".parse().unwrap()).contains("hub.example.com"));

    let known = Addresses::new(&[public], Some(&PublicCa::System), &identity, here.clone()).unwrap();
    assert_eq!((known.authorities, known.client_bundle), (plain.authorities, None));

    let five = vec![here.clone(); 5];
    assert!(matches!(Addresses::new(&five, None, &identity, here.clone()), Err(Error::Urls(5))));
    fs::write(&file, proxy.repeat(3)).unwrap();
    let many = Addresses::new(&[], Some(&given), &identity, here.clone());
    assert!(matches!(many, Err(Error::Authorities { found: 3, .. })));
    fs::write(&file, "no certificate").unwrap();
    assert!(matches!(Addresses::new(&[], Some(&given), &identity, here), Err(Error::NoCertificate(_))));
}

/// An agent leaves such a certificate out, and does not reach the hub that relies on it.
#[test]
fn a_certificate_that_agents_cannot_use_is_refused_at_the_start() {
    tideline_runtime::tls::install_provider();
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::open(dir.path(), Revision(0)).unwrap();
    let file = dir.path().join("proxy.pem");
    let given = PublicCa::File(file.clone());
    let refused = |pem: &str| {
        fs::write(&file, pem).unwrap();
        Addresses::new(&[], Some(&given), &identity, url("https://127.0.0.1:1")).unwrap_err()
    };
    let (usable, framed) = (ca_pem(), "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n");
    let unusable = refused(&format!("{usable}{framed}"));
    assert!(matches!(unusable, Error::Unusable { number: 2, .. }), "{unusable}");
    assert!(unusable.to_string().contains("certificate 2") && unusable.to_string().contains("proxy.pem"), "{unusable}");
    let cut = refused(&usable[..usable.len() / 2]);
    assert!(matches!(cut, Error::Damaged { .. }), "{cut}");
}

#[test]
fn an_authority_is_announced_before_it_certifies_and_after() {
    tideline_runtime::tls::install_provider();
    let dir = tempfile::tempdir().unwrap();
    let told = || {
        let identity = Identity::open(dir.path(), Revision(0)).unwrap();
        let own = Authority::from_der(identity.authority.certificate_der()).unwrap();
        let addresses = Addresses::new(&[], None, &identity, url("https://127.0.0.1:1")).unwrap();
        (own, addresses.authorities)
    };
    let (first, only) = told();
    assert_eq!(only, std::slice::from_ref(&first));
    assert!(rotate(dir.path(), Rotation::Switch).is_err(), "nobody was told of another");
    assert!(rotate(dir.path(), Rotation::Retire).is_err());
    rotate(dir.path(), Rotation::Prepare).unwrap();
    assert!(rotate(dir.path(), Rotation::Prepare).is_err(), "one at a time");
    let (own, both) = told();
    assert_eq!((&own, both.len(), &both[0]), (&first, 2, &first));
    let second = both[1].clone();
    rotate(dir.path(), Rotation::Switch).unwrap();
    assert!(rotate(dir.path(), Rotation::Prepare).is_err(), "the former is still announced");
    assert_eq!(told(), (second.clone(), vec![second.clone(), first]));
    rotate(dir.path(), Rotation::Retire).unwrap();
    assert_eq!(told(), (second.clone(), vec![second]));
}
