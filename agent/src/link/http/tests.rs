use super::*;

/// A certificate of an authority, which TLS can use.
pub(crate) const USABLE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBkjCCATmgAwIBAgIUd8NOC23gosim3Abx9C9PqlfM0nswCgYIKoZIzj0EAwIw\n\
HjEcMBoGA1UEAwwTYXV0aG9yaXR5IG9mIGEgdGVzdDAgFw0yNjExMjMxNDI3NDJa\n\
GA8yMTI2MTAzMDE0Mjc0MlowHjEcMBoGA1UEAwwTYXV0aG9yaXR5IG9mIGEgdGVz\n\
dDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOGRFbT4IM08T7XMbBbduZlgtHit\n\
yPCZSkfWJYd2fGWk15oHMVwSTwTW4LvsXt9HwZvIKRy0gGkCnbLHHfDdR+KjUzBR\n\
MB0GA1UdDgQWBBRPfRUExzKYFQ7QMMooiEE5rfrp8TAfBgNVHSMEGDAWgBRPfRUE\n\
xzKYFQ7QMMooiEE5rfrp8TAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cA\n\
MEQCIDTGTRuNrAN3QR3yn4zyzLs8tHsTS9ozYYaF5chb5W0/AiBiAlfLX05lUZp9\n\
I2FxTrXsNttR6Uwj3BvzpJl1pYj/vg==\n\
-----END CERTIFICATE-----\n";
/// The frame of one, around what no certificate is.
const UNUSABLE: &str = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";

fn authority(pem: &str) -> Authority {
    Authority::from_der(tls::certificates(pem.as_bytes()).unwrap().remove(0)).unwrap()
}

#[test]
fn an_authority_that_tls_cannot_use_is_left_out_and_named_and_the_others_are_trusted() {
    tls::install_provider();
    let known = [authority(UNUSABLE), authority(USABLE)];
    let given = GivenAuthorities::from_pem(format!("{UNUSABLE}{USABLE}").as_bytes()).unwrap();
    let trusted = Trusted::new(known.iter(), &given);
    assert_eq!(trusted.certificates.len(), 2);
    let named = Digest::of(known[0].der()).to_string();
    let [announced, of_file] = trusted.unusable() else { panic!("{:?}", trusted.unusable()) };
    assert!(announced.contains("the hub or a token named") && announced.contains(&named), "{announced}");
    assert!(of_file.contains("--hub-ca") && of_file.contains(&named), "{of_file}");
    Http::new(&trusted, &Arc::default()).unwrap();
}

#[test]
fn a_file_is_of_use_if_one_certificate_in_it_is() {
    let read = |pem: &str| GivenAuthorities::from_pem(pem.as_bytes());
    assert!(read(USABLE).is_ok() && read(&format!("{UNUSABLE}text\n{USABLE}")).is_ok());
    assert!(matches!(read("no certificate"), Err(Error::NoCertificate)));
    assert!(matches!(read(UNUSABLE), Err(Error::NoneUsable(_))));
    let half = &USABLE[..USABLE.len() / 2];
    assert!(matches!(read(&format!("{USABLE}{half}")), Err(Error::Pem(_))), "it is being written");
}
