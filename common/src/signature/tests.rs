use super::*;

const REQUEST: Request<'static> =
    Request { method: "PUT", path: "/link/v1/reported", query: "", content: b"{\"seq\":1}" };

fn parameters(nonce: &str) -> Parameters<'_> {
    Parameters { key_id: "3e7c2c1e-0000-4000-8000-000000000001", created: 1_700_000_000, nonce }
}

fn raw(headers: &Headers) -> RawHeaders<'_> {
    RawHeaders {
        content_digest: Some(&headers.content_digest),
        signature_input: Some(&headers.signature_input),
        signature: Some(&headers.signature),
    }
}

#[test]
fn signed_request_verifies_and_names_its_signer() {
    let key = SigningKey::from_seed([7; 32]);
    let headers = sign_request(&key, REQUEST, parameters("n1"));
    let claims = verify_request(&key.public(), REQUEST, raw(&headers)).expect("it verifies");
    assert_eq!((claims.key_id.as_str(), claims.nonce.as_str()), (parameters("n1").key_id, "n1"));
}

#[test]
fn any_changed_part_of_a_request_is_refused() {
    let key = SigningKey::from_seed([7; 32]);
    let headers = sign_request(&key, REQUEST, parameters("n1"));
    let changed = [
        Request { method: "POST", ..REQUEST },
        Request { path: "/link/v1/bodies", ..REQUEST },
        Request { query: "since=1.2", ..REQUEST },
    ];
    for request in changed {
        assert_eq!(verify_request(&key.public(), request, raw(&headers)), Err(Error::Signature));
    }
    let other_content = Request { content: b"{\"seq\":2}", ..REQUEST };
    assert_eq!(verify_request(&key.public(), other_content, raw(&headers)), Err(Error::Content));
    let other_key = SigningKey::from_seed([8; 32]).public();
    assert_eq!(verify_request(&other_key, REQUEST, raw(&headers)), Err(Error::Signature));
}

#[test]
fn changed_parameters_are_refused() {
    let key = SigningKey::from_seed([7; 32]);
    let mut headers = sign_request(&key, REQUEST, parameters("n1"));
    headers.signature_input = headers.signature_input.replace("n1", "n2");
    assert_eq!(verify_request(&key.public(), REQUEST, raw(&headers)), Err(Error::Signature));
}

#[test]
fn response_to_another_request_is_refused() {
    let key = SigningKey::from_seed([9; 32]);
    let response = Response { status: 200, content: b"{}" };
    let headers = sign_response(&key, response, parameters("n1"));
    assert!(verify_response(&key.public(), response, raw(&headers), "n1").is_ok());
    assert_eq!(verify_response(&key.public(), response, raw(&headers), "n2"), Err(Error::Nonce));
    let other = Response { status: 409, ..response };
    assert_eq!(verify_response(&key.public(), other, raw(&headers), "n1"), Err(Error::Signature));
}

#[test]
fn request_signature_does_not_pass_for_a_response() {
    let key = SigningKey::from_seed([9; 32]);
    let headers = sign_request(&key, REQUEST, parameters("n1"));
    let response = Response { status: 200, content: REQUEST.content };
    assert_eq!(
        verify_response(&key.public(), response, raw(&headers), "n1"),
        Err(Error::Components(RESPONSE_COMPONENTS))
    );
}

#[test]
fn garbage_headers_are_refused_without_panic() {
    let key = SigningKey::from_seed([9; 32]).public();
    let long = "x".repeat(HEADER_BYTES_MAX + 1);
    for input in ["", "tideline", "tideline=", "tideline=()", "tideline=();created=x;", "other=()", &long] {
        let raw = RawHeaders {
            content_digest: Some(&content_digest(REQUEST.content)),
            signature_input: Some(input),
            signature: Some("tideline=:AAAA:"),
        };
        assert_eq!(verify_request(&key, REQUEST, raw), Err(Error::Malformed(SIGNATURE_INPUT)), "{input:.20}");
    }
    assert_eq!(verify_request(&key, REQUEST, RawHeaders::default()), Err(Error::Missing(CONTENT_DIGEST)));
}
