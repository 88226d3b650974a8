//! HTTP message signatures (RFC 9421) with one fixed list of components, over content digests (RFC 9530).
//!
//! A request covers its method, *logical* path (without any prefix that a proxy adds or removes), query, content and the
//! numbers that keep it from being taken twice ([`crate::replay`]). A response covers its status, content and the hub's run,
//! and everything of the request that it answers (RFC 9421 §2.4), its signature with what that covers included: §7.3.7 of the
//! same says why the signature alone is not enough. So an answer to anybody else, or to another request of the same
//! agent, is none. Algorithm Ed25519. `created` is written, for people and for the agent's plausibility check of its own
//! clock, and never judged. The tag names the version of all this; a hub answers in the version that it was asked in, and no
//! other answer is taken. There is one so far. With a second, an agent must remember, with the hub that it has pinned, the
//! newest in which that has answered, and ask in no older one: whoever is between them could make it.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::digest::Digest;

pub const CONTENT_DIGEST: &str = "content-digest";
pub const SIGNATURE_INPUT: &str = "signature-input";
pub const SIGNATURE: &str = "signature";
/// Names runs of hubs, with numbers. See [`crate::replay`].
pub const RUN: &str = "tideline-run";

const LABEL: &str = "tideline";
const TAG: &str = "tideline-link-v1";
const REQUEST_COMPONENTS: &str = r#"("@method" "@path" "@query" "content-digest" "tideline-run")"#;
const RESPONSE_COMPONENTS: &str = concat!(
    r#"("@status" "content-digest" "tideline-run" "@method";req "@path";req "@query";req "content-digest";req "#,
    r#""tideline-run";req "signature-input";req "signature";req)"#
);
/// Bytes read of a signature header; ours have up to 400, and the runs of 16 replicas 930.
pub const HEADER_BYTES_MAX: usize = 1024;
/// Bytes of a nonce before encoding: no two requests of a key share one by chance.
pub const NONCE_BYTES: usize = 16;

/// An Ed25519 key that signs.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    seed: [u8; 32],
}

impl SigningKey {
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are an Ed25519 seed");
        Self { pair, seed }
    }

    /// The secret, to be kept.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    pub fn public(&self) -> VerifyingKey {
        VerifyingKey(self.pair.public_key().as_ref().to_vec())
    }

    /// Signs a statement of its own, outside of any message.
    pub(crate) fn sign_statement(&self, statement: &str) -> [u8; 64] {
        self.pair.sign(statement.as_bytes()).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }

    fn sign(&self, base: &str) -> String {
        STANDARD.encode(self.pair.sign(base.as_bytes()))
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public()).finish()
    }
}

/// An Ed25519 public key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VerifyingKey(Vec<u8>);

impl VerifyingKey {
    /// # Errors
    ///
    /// There are not 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() == 32 { Ok(Self(bytes.to_vec())) } else { Err(Error::Key(bytes.len())) }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn verify_statement(&self, statement: &str, signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.as_bytes()).verify(statement.as_bytes(), signature).is_ok()
    }

    /// What people compare: the first 16 bytes of the key's SHA-256, hexadecimal.
    pub fn fingerprint(&self) -> String {
        let mut text = Digest::of(&self.0).to_string();
        text.truncate(32);
        text
    }
}

impl std::fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VerifyingKey({})", self.fingerprint())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the header {0} is missing")]
    Missing(&'static str),
    #[error("the header {0} cannot be read")]
    Malformed(&'static str),
    #[error("the signature is of the version {0:?}; this build reads {TAG:?}")]
    Version(String),
    #[error("the signature covers other components than {0}")]
    Components(&'static str),
    #[error("the content is not what {CONTENT_DIGEST} says")]
    Content,
    #[error("the signature is not by this key, or not about this request")]
    Signature,
    #[error("an Ed25519 public key has 32 bytes, not {0}")]
    Key(usize),
}

/// The parts of a request that its signature covers. Of the content only the digest, so that the signature can be verified
/// before a byte of content is read.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    /// The logical path, from `/link/` on.
    pub path: &'a str,
    /// Without the question mark; empty for none.
    pub query: &'a str,
    /// As [`content_digest`] writes it.
    pub content_digest: &'a str,
    /// The value of [`RUN`].
    pub run: &'a str,
}

/// A request with its signature, by whomever it was made: what an answer is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    pub request: Request<'a>,
    pub signature_input: &'a str,
    pub signature: &'a str,
}

/// The parts of a response that its signature covers besides the request.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    pub status: u16,
    pub content_digest: &'a str,
    /// The value of [`RUN`].
    pub run: &'a str,
}

/// The signer, the time, and what makes this signature unique.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// The target's id, the token's name, or the hub's id.
    pub key_id: &'a str,
    /// Seconds since 1970 by the signer's clock.
    pub created: u64,
    pub nonce: &'a str,
}

/// The values of the two headers that make a message a signed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    pub signature_input: String,
    pub signature: String,
}

/// What a signature says of itself. Only to be believed once verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub key_id: String,
    pub created: u64,
    pub nonce: String,
}

/// Writes random bytes as a nonce.
pub fn nonce(random: [u8; NONCE_BYTES]) -> String {
    URL_SAFE_NO_PAD.encode(random)
}

pub fn sign_request(key: &SigningKey, request: Request<'_>, parameters: Parameters<'_>) -> Headers {
    headers(key, REQUEST_COMPONENTS, &request_lines(request), parameters)
}

/// Signs `response` as the answer to `to`, whether or not that was verified.
pub fn sign_response(key: &SigningKey, response: Response<'_>, to: Signed<'_>, parameters: Parameters<'_>) -> Headers {
    headers(key, RESPONSE_COMPONENTS, &response_lines(response, to), parameters)
}

/// Reads the claimed signer, to find the key.
///
/// # Errors
///
/// The signature input is malformed, or of another version.
pub fn claims(signature_input: &str) -> Result<Claims, Error> {
    Ok(parse_input(signature_input)?.claims)
}

/// Checks that `signed` was signed by `key`, whole. The content is still to be compared with the digest.
///
/// # Errors
///
/// A component is missing or malformed, or the signature is not the key's.
pub fn verify_request(key: &VerifyingKey, signed: Signed<'_>) -> Result<Claims, Error> {
    let Signed { request, signature_input, signature } = signed;
    verify(key, REQUEST_COMPONENTS, &request_lines(request), signature_input, signature)
}

/// Checks that `response` was signed by `key` in answer to `to`, and to nothing else. The content is still to be compared
/// with the digest.
///
/// # Errors
///
/// A component is missing or malformed, the signature is not the key's, or it answers another request.
pub fn verify_response(
    key: &VerifyingKey,
    response: Response<'_>,
    to: Signed<'_>,
    headers: &Headers,
) -> Result<Claims, Error> {
    let Headers { signature_input, signature } = headers;
    verify(key, RESPONSE_COMPONENTS, &response_lines(response, to), signature_input, signature)
}

/// The value of [`CONTENT_DIGEST`] (RFC 9530).
pub fn content_digest(content: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Digest::of(content).as_bytes()))
}

/// The lines of the signature base (RFC 9421 §2.5) but the last.
fn request_lines(request: Request<'_>) -> String {
    let Request { method, path, query, content_digest, run } = request;
    format!(
        "\"@method\": {method}\n\"@path\": {path}\n\"@query\": ?{query}\n\"content-digest\": {content_digest}\n\
         \"tideline-run\": {run}\n"
    )
}

fn response_lines(response: Response<'_>, to: Signed<'_>) -> String {
    let Response { status, content_digest, run } = response;
    let Signed { request, signature_input, signature } = to;
    let Request { method, path, query, content_digest: asked, run: numbers } = request;
    format!(
        "\"@status\": {status}\n\"content-digest\": {content_digest}\n\"tideline-run\": {run}\n\
         \"@method\";req: {method}\n\"@path\";req: {path}\n\"@query\";req: ?{query}\n\
         \"content-digest\";req: {asked}\n\"tideline-run\";req: {numbers}\n\
         \"signature-input\";req: {signature_input}\n\"signature\";req: {signature}\n"
    )
}

fn base(lines: &str, parameters: &str) -> String {
    format!("{lines}\"@signature-params\": {parameters}")
}

fn headers(
    key: &SigningKey,
    components: &str,
    lines: &str,
    Parameters { key_id, created, nonce }: Parameters<'_>,
) -> Headers {
    let parameters =
        format!("{components};created={created};keyid=\"{key_id}\";alg=\"ed25519\";nonce=\"{nonce}\";tag=\"{TAG}\"");
    let signature = key.sign(&base(lines, &parameters));
    Headers { signature_input: format!("{LABEL}={parameters}"), signature: format!("{LABEL}=:{signature}:") }
}

fn verify(
    key: &VerifyingKey,
    components: &'static str,
    lines: &str,
    signature_input: &str,
    signature: &str,
) -> Result<Claims, Error> {
    let input = parse_input(signature_input)?;
    if input.components != components {
        return Err(Error::Components(components));
    }
    let signature = Some(signature)
        .filter(|text| text.len() <= HEADER_BYTES_MAX)
        .and_then(|text| text.strip_prefix(LABEL))
        .and_then(|rest| rest.strip_prefix("=:"))
        .and_then(|rest| rest.strip_suffix(':'))
        .and_then(|text| STANDARD.decode(text).ok())
        .ok_or(Error::Malformed(SIGNATURE))?;
    UnparsedPublicKey::new(&ED25519, key.as_bytes())
        .verify(base(lines, input.parameters).as_bytes(), &signature)
        .map_err(|_| Error::Signature)?;
    Ok(input.claims)
}

struct Input<'a> {
    components: &'a str,
    /// Everything after the label: the last line of the signature base repeats it to the letter.
    parameters: &'a str,
    claims: Claims,
}

/// Reads the one syntax of `Signature-Input` that is written here; others are refused, not interpreted.
fn parse_input(header: &str) -> Result<Input<'_>, Error> {
    let malformed = || Error::Malformed(SIGNATURE_INPUT);
    if header.len() > HEADER_BYTES_MAX {
        return Err(malformed());
    }
    let parameters = header.strip_prefix(LABEL).and_then(|rest| rest.strip_prefix('=')).ok_or_else(malformed)?;
    let end = parameters.find(')').ok_or_else(malformed)? + 1;
    let (components, mut rest) = parameters.split_at(end);

    let mut next = |name: &str, close: &str| -> Result<String, Error> {
        let value = rest.strip_prefix(name).ok_or_else(malformed)?;
        let end = value.find(close).ok_or_else(malformed)?;
        rest = &value[end + close.len()..];
        Ok(value[..end].to_owned())
    };
    let created = next(";created=", ";")?.parse().map_err(|_| malformed())?;
    let key_id = next("keyid=\"", "\"")?;
    let algorithm = next(";alg=\"", "\"")?;
    let nonce = next(";nonce=\"", "\"")?;
    let tag = next(";tag=\"", "\"")?;
    if tag != TAG {
        return Err(Error::Version(tag.chars().take(40).collect()));
    }
    if !rest.is_empty() || algorithm != "ed25519" {
        return Err(malformed());
    }
    Ok(Input { components, parameters, claims: Claims { key_id, created, nonce } })
}

#[cfg(test)]
mod tests;
