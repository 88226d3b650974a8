use proptest::prelude::*;

use super::*;

const CONTENT: &[u8] = b"{\"seq\":1}";

fn request(digest: &str) -> Request<'_> {
    let run = "00000000-0000-4000-8000-000000000007=1";
    Request { method: "PUT", path: "/link/v1/reported", query: "", content_digest: digest, run }
}

fn parameters(nonce: &str) -> Parameters<'_> {
    Parameters { key_id: "3e7c2c1e-0000-4000-8000-000000000001", created: 1_700_000_000, nonce }
}

fn signed<'a>(request: Request<'a>, headers: &'a Headers) -> Signed<'a> {
    Signed { request, signature_input: &headers.signature_input, signature: &headers.signature }
}

fn agent() -> SigningKey {
    SigningKey::from_seed([7; 32])
}

fn hub() -> SigningKey {
    SigningKey::from_seed([9; 32])
}

#[test]
fn signed_request_verifies_and_names_its_signer() {
    let digest = content_digest(CONTENT);
    let headers = sign_request(&agent(), request(&digest), parameters("n1"));
    let claims = verify_request(&agent().public(), signed(request(&digest), &headers)).expect("it verifies");
    assert_eq!((claims.key_id.as_str(), claims.nonce.as_str()), (parameters("n1").key_id, "n1"));
}

#[test]
fn any_changed_part_of_a_request_is_refused() {
    let (digest, other) = (content_digest(CONTENT), content_digest(b"{\"seq\":2}"));
    let request = request(&digest);
    let headers = sign_request(&agent(), request, parameters("n1"));
    let changed = [
        Request { method: "POST", ..request },
        Request { path: "/link/v1/bodies", ..request },
        Request { query: "since=1.2", ..request },
        Request { content_digest: &other, ..request },
        Request { run: "-", ..request },
    ];
    for changed in changed {
        assert_eq!(verify_request(&agent().public(), signed(changed, &headers)), Err(Error::Signature));
    }
    assert_eq!(verify_request(&hub().public(), signed(request, &headers)), Err(Error::Signature));
}

#[test]
fn changed_parameters_are_refused() {
    let digest = content_digest(CONTENT);
    let mut headers = sign_request(&agent(), request(&digest), parameters("n1"));
    headers.signature_input = headers.signature_input.replace("n1", "n2");
    assert_eq!(verify_request(&agent().public(), signed(request(&digest), &headers)), Err(Error::Signature));
}

#[test]
fn an_answer_is_to_one_request_and_to_nobody_else() {
    let (digest, answer) = (content_digest(CONTENT), content_digest(b"{}"));
    let asked = request(&digest);
    let mine = sign_request(&agent(), asked, parameters("n1"));
    let response = Response { status: 410, content_digest: &answer, run: "00000000-0000-4000-8000-000000000007=2" };
    let headers = sign_response(&hub(), response, signed(asked, &mine), parameters("h1"));
    assert!(verify_response(&hub().public(), response, signed(asked, &mine), &headers).is_ok());

    // The same question of the same agent once more, and the same words in the name of another target, or under its nonce.
    let again = sign_request(&agent(), asked, parameters("n2"));
    let stolen = SigningKey::from_seed([8; 32]);
    let other = Parameters { key_id: "3e7c2c1e-0000-4000-8000-000000000002", ..parameters("n1") };
    // A made-up name over the same nonce, with a signature that is not by it.
    let made_up = Headers {
        signature_input: mine.signature_input.replace(parameters("n1").key_id, "3e7c2c1e-0000-4000-8000-000000000003"),
        ..mine.clone()
    };
    let others = [again, sign_request(&stolen, asked, parameters("n1")), sign_request(&stolen, asked, other), made_up];
    for other in &others {
        let swapped = verify_response(&hub().public(), response, signed(asked, other), &headers);
        assert_eq!(swapped, Err(Error::Signature));
    }
    // A signature alone does not name what it is of.
    let elsewhere = [
        Request { path: "/link/v1/desired", ..asked },
        Request { method: "GET", ..asked },
        Request { query: "session=1", ..asked },
        Request { run: "-", ..asked },
        Request { content_digest: &answer, ..asked },
    ];
    for elsewhere in elsewhere {
        let moved = verify_response(&hub().public(), response, signed(elsewhere, &mine), &headers);
        assert_eq!(moved, Err(Error::Signature));
    }
    for changed in [
        Response { status: 200, ..response },
        Response { content_digest: &digest, ..response },
        Response { run: "-", ..response },
    ] {
        let changed = verify_response(&hub().public(), changed, signed(asked, &mine), &headers);
        assert_eq!(changed, Err(Error::Signature));
    }
    let not_the_hub = verify_response(&agent().public(), response, signed(asked, &mine), &headers);
    assert_eq!(not_the_hub, Err(Error::Signature));
}

#[test]
fn request_signature_does_not_pass_for_a_response() {
    let digest = content_digest(CONTENT);
    let headers = sign_request(&hub(), request(&digest), parameters("n1"));
    let response = Response { status: 200, content_digest: &digest, run: "-" };
    assert_eq!(
        verify_response(&hub().public(), response, signed(request(&digest), &headers), &headers),
        Err(Error::Components(RESPONSE_COMPONENTS))
    );
}

#[test]
fn another_version_is_named() {
    let digest = content_digest(CONTENT);
    let mut headers = sign_request(&agent(), request(&digest), parameters("n1"));
    headers.signature_input = headers.signature_input.replace(TAG, "tideline-link-v9");
    let error = verify_request(&agent().public(), signed(request(&digest), &headers));
    assert_eq!(error, Err(Error::Version("tideline-link-v9".to_owned())));
}

/// A hub answers in the version that it was asked in. What it signs in another, older or newer, is no answer.
#[test]
fn a_genuine_answer_in_another_version_is_refused() {
    let (digest, answer) = (content_digest(CONTENT), content_digest(b"{}"));
    let asked = request(&digest);
    let mine = sign_request(&agent(), asked, parameters("n1"));
    let response = Response { status: 200, content_digest: &answer, run: "00000000-0000-4000-8000-000000000007=2" };
    for tag in ["tideline-link-v0", "tideline-link-v2"] {
        let of = format!("{RESPONSE_COMPONENTS};created=1;keyid=\"hub\";alg=\"ed25519\";nonce=\"h1\";tag=\"{tag}\"");
        let signature = hub().sign(&base(&response_lines(response, signed(asked, &mine)), &of));
        let headers = Headers { signature_input: format!("{LABEL}={of}"), signature: format!("{LABEL}=:{signature}:") };
        let verified = verify_response(&hub().public(), response, signed(asked, &mine), &headers);
        assert_eq!(verified, Err(Error::Version(tag.to_owned())));
    }
}

proptest! {
    #[test]
    fn garbage_headers_are_refused_without_panic(input in ".{0,80}", signature in ".{0,80}", long in any::<bool>()) {
        let digest = content_digest(CONTENT);
        let good = sign_request(&agent(), request(&digest), parameters("n1"));
        let input = if long { format!("{input}{}", "x".repeat(HEADER_BYTES_MAX)) } else { input };
        let prefixed = format!("tideline={input}");
        for (input, signature) in [
            (&*input, &*good.signature),
            (&*prefixed, &*good.signature),
            (&*good.signature_input, &*signature),
        ] {
            let garbage = Signed { request: request(&digest), signature_input: input, signature };
            prop_assert!(verify_request(&agent().public(), garbage).is_err());
        }
    }
}
