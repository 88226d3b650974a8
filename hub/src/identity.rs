//! Who this hub is: made at first start, kept in one file of the data directory, never changed by itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tideline_common::HubId;
use tideline_common::signature::SigningKey;
use uuid::Uuid;

use crate::certificates::{self, Authority};

const FILE: &str = "identity.json";
/// The layout of the file; another one is refused.
const SCHEMA: u32 = 1;

/// The hub's identity: what agents pin, and what administrators log in with.
#[derive(Debug)]
pub struct Identity {
    pub hub: HubId,
    /// Signs every response on the link.
    pub key: SigningKey,
    /// Issues the certificate of the hub's own TLS listener.
    pub authority: Authority,
    /// The bearer token of `admin.kubeconfig`.
    pub admin_token: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {operation} {path}")]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} cannot be read as this hub's identity; restore it from a backup: agents trust no other")]
    Damaged { path: PathBuf },
    #[error(
        "{path} has schema version {found}, this build knows {SCHEMA}; run the version that wrote it, or a newer one"
    )]
    Schema { path: PathBuf, found: u32 },
    #[error(transparent)]
    Certificate(#[from] certificates::Error),
    #[error("the system gives no random bytes")]
    Random,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    schema: u32,
    hub: HubId,
    seed: String,
    ca_certificate: String,
    ca_key: String,
    admin_token: String,
}

#[derive(Deserialize)]
struct Header {
    schema: u32,
}

impl Identity {
    /// Reads the identity of `dir`, or makes one where there is none.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::create(dir, &path),
            Err(source) => return Err(Error::Io { operation: "read", path, source }),
        };
        let damaged = || Error::Damaged { path: path.clone() };
        let Header { schema } = serde_json::from_str(&text).map_err(|_| damaged())?;
        if schema != SCHEMA {
            return Err(Error::Schema { path, found: schema });
        }
        let record: Record = serde_json::from_str(&text).map_err(|_| damaged())?;
        let seed = STANDARD.decode(&record.seed).ok().and_then(|seed| <[u8; 32]>::try_from(seed).ok());
        Ok(Self {
            hub: record.hub,
            key: SigningKey::from_seed(seed.ok_or_else(damaged)?),
            authority: Authority::read(&record.ca_certificate, &record.ca_key)?,
            admin_token: record.admin_token,
        })
    }

    fn create(dir: &Path, path: &Path) -> Result<Self, Error> {
        let hub =
            HubId::from_uuid(Uuid::from_bytes(uuid::Builder::from_random_bytes(random()?).into_uuid().into_bytes()));
        let identity = Self {
            hub,
            key: SigningKey::from_seed(random()?),
            authority: Authority::create(hub)?,
            admin_token: token()?,
        };
        let record = Record {
            schema: SCHEMA,
            hub,
            seed: STANDARD.encode(identity.key.seed()),
            ca_certificate: identity.authority.certificate_pem().to_owned(),
            ca_key: identity.authority.key_pem(),
            admin_token: identity.admin_token.clone(),
        };
        let json = serde_json::to_vec_pretty(&record).expect("a record of strings is JSON");
        write_private(path, &json).and_then(|()| File::open(dir)?.sync_all()).map_err(|source| Error::Io {
            operation: "write",
            path: path.to_owned(),
            source,
        })?;
        Ok(identity)
    }
}

/// Puts `content` at `path`, whole or not at all, readable by the owner only.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

/// Random bytes from the system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(bytes)
}

/// A bearer token of 256 random bits.
fn token() -> Result<String, Error> {
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random::<32>()?))
}

#[cfg(test)]
mod tests;
