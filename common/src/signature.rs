//! HTTP message signatures (RFC 9421) with one fixed list of components, over content digests (RFC 9530).
//!
//! A request covers its method, *logical* path (without any prefix that a proxy adds or removes), query and content; a
//! response its status and content, and echoes the request's nonce, which ties it to that one request. Algorithm
//! Ed25519. `created` is written, for people and for the agent's plausibility check of its own clock, and never judged.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::digest::Digest;

pub const CONTENT_DIGEST: &str = "content-digest";
pub const SIGNATURE_INPUT: &str = "signature-input";
pub const SIGNATURE: &str = "signature";

const LABEL: &str = "tideline";
const TAG: &str = "tideline-link-v1";
const REQUEST_COMPONENTS: &str = r#"("@method" "@path" "@query" "content-digest")"#;
const RESPONSE_COMPONENTS: &str = r#"("@status" "content-digest")"#;
/// Bytes of a signature header that are looked at; ours have about 200.
const HEADER_BYTES_MAX: usize = 1024;
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
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() == 32 { Ok(Self(bytes.to_vec())) } else { Err(Error::Key(bytes.len())) }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
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
    #[error("the signature covers other components than {0}")]
    Components(&'static str),
    #[error("the content is not what {CONTENT_DIGEST} says")]
    Content,
    #[error("the signature is not by this key")]
    Signature,
    #[error("the answer is to another request")]
    Nonce,
    #[error("an Ed25519 public key has 32 bytes, not {0}")]
    Key(usize),
}

/// The parts of a request that its signature covers.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    /// The logical path, from `/link/` on.
    pub path: &'a str,
    /// Without the question mark; empty for none.
    pub query: &'a str,
    pub content: &'a [u8],
}

/// The parts of a response that its signature covers.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    pub status: u16,
    pub content: &'a [u8],
}

/// Who signs, when, and which exchange it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// The target's id, the token's name, or the hub's id.
    pub key_id: &'a str,
    /// Seconds since 1970 by the signer's clock.
    pub created: u64,
    pub nonce: &'a str,
}

/// The values of the three headers of a signed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    pub content_digest: String,
    pub signature_input: String,
    pub signature: String,
}

/// The three headers as they came, before anything is believed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawHeaders<'a> {
    pub content_digest: Option<&'a str>,
    pub signature_input: Option<&'a str>,
    pub signature: Option<&'a str>,
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
    let digest = content_digest(request.content);
    headers(key, REQUEST_COMPONENTS, &request_lines(request, &digest), digest, parameters)
}

pub fn sign_response(key: &SigningKey, response: Response<'_>, parameters: Parameters<'_>) -> Headers {
    let digest = content_digest(response.content);
    headers(key, RESPONSE_COMPONENTS, &response_lines(response, &digest), digest, parameters)
}

/// Reads who claims to have signed, to look up the key.
pub fn claims(raw: RawHeaders<'_>) -> Result<Claims, Error> {
    let input = raw.signature_input.ok_or(Error::Missing(SIGNATURE_INPUT))?;
    Ok(parse_input(input)?.claims)
}

/// Checks that `request` was signed by `key`, whole.
pub fn verify_request(key: &VerifyingKey, request: Request<'_>, raw: RawHeaders<'_>) -> Result<Claims, Error> {
    let digest = content_digest(request.content);
    verify(key, REQUEST_COMPONENTS, &request_lines(request, &digest), &digest, raw)
}

/// Checks that `response` was signed by `key` in answer to the request with `nonce`.
pub fn verify_response(
    key: &VerifyingKey,
    response: Response<'_>,
    raw: RawHeaders<'_>,
    nonce: &str,
) -> Result<Claims, Error> {
    let digest = content_digest(response.content);
    let claims = verify(key, RESPONSE_COMPONENTS, &response_lines(response, &digest), &digest, raw)?;
    if claims.nonce == nonce { Ok(claims) } else { Err(Error::Nonce) }
}

fn content_digest(content: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Digest::of(content).as_bytes()))
}

/// The lines of the signature base (RFC 9421 §2.5) but the last.
fn request_lines(request: Request<'_>, digest: &str) -> String {
    let Request { method, path, query, content: _ } = request;
    format!("\"@method\": {method}\n\"@path\": {path}\n\"@query\": ?{query}\n\"content-digest\": {digest}\n")
}

fn response_lines(response: Response<'_>, digest: &str) -> String {
    format!("\"@status\": {}\n\"content-digest\": {digest}\n", response.status)
}

fn base(lines: &str, parameters: &str) -> String {
    format!("{lines}\"@signature-params\": {parameters}")
}

fn headers(
    key: &SigningKey,
    components: &str,
    lines: &str,
    content_digest: String,
    Parameters { key_id, created, nonce }: Parameters<'_>,
) -> Headers {
    let parameters =
        format!("{components};created={created};keyid=\"{key_id}\";alg=\"ed25519\";nonce=\"{nonce}\";tag=\"{TAG}\"");
    let signature = key.sign(&base(lines, &parameters));
    Headers {
        content_digest,
        signature_input: format!("{LABEL}={parameters}"),
        signature: format!("{LABEL}=:{signature}:"),
    }
}

fn verify(
    key: &VerifyingKey,
    components: &'static str,
    lines: &str,
    content_digest: &str,
    raw: RawHeaders<'_>,
) -> Result<Claims, Error> {
    if raw.content_digest.ok_or(Error::Missing(CONTENT_DIGEST))? != content_digest {
        return Err(Error::Content);
    }
    let input = parse_input(raw.signature_input.ok_or(Error::Missing(SIGNATURE_INPUT))?)?;
    if input.components != components {
        return Err(Error::Components(components));
    }
    let signature = raw
        .signature
        .ok_or(Error::Missing(SIGNATURE))?
        .strip_prefix(LABEL)
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

/// Reads the one form of `Signature-Input` that is written here; others are refused, not interpreted.
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
    if !rest.is_empty() || algorithm != "ed25519" || tag != TAG {
        return Err(malformed());
    }
    Ok(Input { components, parameters, claims: Claims { key_id, created, nonce } })
}

#[cfg(test)]
mod tests;
