use super::*;

#[test]
fn a_clock_differs_that_is_more_than_a_day_from_this_one() {
    const DAY: u64 = 24 * 60 * 60;
    let now = 1_800_000_000;
    let key = SigningKey::from_seed([7; 32]);
    for (created, expected) in [(now, false), (now - DAY, false), (now + DAY, false), (0, true), (now + DAY + 1, true)]
    {
        let request =
            signature::Request { method: "GET", path: "/link/v1/desired", query: "", content_digest: "", run: "" };
        let Headers { signature_input, signature } =
            signature::sign_request(&key, request, Parameters { key_id: "target", created, nonce: "n" });
        let signed = Signed { request, signature_input: &signature_input, signature: &signature };
        assert_eq!(clock_differs(signed, now), expected, "{created}");
    }
}
