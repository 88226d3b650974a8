//! Who this hub is: made at first start, kept in one file of the data directory, never changed by itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tideline_common::HubId;
use tideline_common::signature::SigningKey;
use tideline_store::Revision;
use uuid::Uuid;

use crate::certificates::{self, Authority};

pub(crate) const FILE: &str = "identity.json";
/// The directory in which an agent keeps its journal.
const JOURNAL_OF_AGENT: &str = "journal";
/// Its owner's alone.
const MODE: u32 = 0o600;
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
    /// PEM, of the authority that is to come, or of the one that was: trusted meanwhile.
    pub other_authorities: Vec<String>,
    /// The bearer token of `admin.kubeconfig`.
    pub admin_token: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {operation} {path}")]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} cannot be read as this hub's identity; restore it from a backup: agents trust no other")]
    Damaged { path: PathBuf },
    #[error("{0} is the data directory of an agent; give the hub one of its own with --data-dir")]
    OfAgent(PathBuf),
    #[error(
        "{path} is not there, and the store beside it is of a hub whose keys were in it: agents trust no other; put it back, \
         or restore a backup into an empty directory"
    )]
    Missing { path: PathBuf },
    #[error(
        "{path} has schema version {found}, this build knows {SCHEMA}; run the version that wrote it, or a newer one"
    )]
    Schema { path: PathBuf, found: u32 },
    #[error(transparent)]
    Certificate(#[from] certificates::Error),
    #[error("{0}")]
    Rotation(&'static str),
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
    /// Made to certify this hub once everybody trusts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_ca: Option<NextCa>,
    /// Certified this hub before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former_ca_certificate: Option<String>,
    admin_token: String,
}

#[derive(Serialize, Deserialize)]
struct NextCa {
    certificate: String,
    key: String,
}

/// A step from one authority to the next. The hub takes each at its next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Makes the next authority. Agents are told of it.
    Prepare,
    /// The next authority certifies the hub; agents are still told of the former.
    Switch,
    /// Agents are told of the former no more.
    Retire,
}

#[derive(Deserialize)]
struct Header {
    schema: u32,
}

impl Identity {
    /// Reads the identity of `dir`, or makes one where there is none and the `store` in it is new. One in which anything was
    /// written was begun under an identity, and another would shut out every agent.
    ///
    /// # Errors
    ///
    /// Its files cannot be read or written, or are missing though the store is not new.
    pub fn open(dir: &Path, store: Revision) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return if store == Revision::default() {
                    Self::create(dir, &path)
                } else {
                    Err(Error::Missing { path })
                };
            }
            Err(source) => return Err(Error::Io { operation: "read", path, source }),
        };
        let record = read(&path, &text)?;
        let damaged = || Error::Damaged { path: path.clone() };
        let seed = STANDARD.decode(&record.seed).ok().and_then(|seed| <[u8; 32]>::try_from(seed).ok());
        Ok(Self {
            hub: record.hub,
            key: SigningKey::from_seed(seed.ok_or_else(damaged)?),
            authority: Authority::read(&record.ca_certificate, &record.ca_key)?,
            other_authorities: record
                .next_ca
                .map(|next| next.certificate)
                .or(record.former_ca_certificate)
                .into_iter()
                .collect(),
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
            other_authorities: Vec::new(),
            admin_token: token()?,
        };
        let record = Record {
            schema: SCHEMA,
            hub,
            seed: STANDARD.encode(identity.key.seed()),
            ca_certificate: identity.authority.certificate_pem().to_owned(),
            ca_key: identity.authority.key_pem(),
            next_ca: None,
            former_ca_certificate: None,
            admin_token: identity.admin_token.clone(),
        };
        write(dir, path, &record)?;
        Ok(identity)
    }
}

/// Refuses the data directory of an agent, before anything is made there: one that has the journal of an agent, or its identity.
pub(crate) fn refuse_of_agent(dir: &Path) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct OfAgent {
        #[serde(rename = "contents")]
        _contents: IgnoredAny,
    }
    let is_of_agent = |text: Vec<u8>| serde_json::from_slice::<OfAgent>(&text).is_ok();
    if dir.join(JOURNAL_OF_AGENT).is_dir() || fs::read(dir.join(FILE)).is_ok_and(is_of_agent) {
        return Err(Error::OfAgent(dir.to_owned()));
    }
    Ok(())
}

/// Does one step of replacing the authority of the hub in `dir`.
///
/// # Errors
///
/// The step is out of turn, or the files cannot be read or written.
pub fn rotate(dir: &Path, step: Rotation) -> Result<(), Error> {
    refuse_of_agent(dir)?;
    let path = dir.join(FILE);
    let text = fs::read(&path).map_err(|source| Error::Io { operation: "read", path: path.clone(), source })?;
    let mut record = read(&path, &text)?;
    match (step, record.next_ca.take(), &record.former_ca_certificate) {
        (Rotation::Prepare, None, None) => {
            let next = Authority::create(record.hub)?;
            record.next_ca = Some(NextCa { certificate: next.certificate_pem().to_owned(), key: next.key_pem() });
        }
        (Rotation::Prepare, Some(_), _) => {
            return Err(Error::Rotation("the next authority is made already; go on with `tideline-hub ca switch`"));
        }
        (Rotation::Prepare, None, Some(_)) => {
            return Err(Error::Rotation(
                "agents are still told of the former authority; end that with `tideline-hub ca retire`",
            ));
        }
        (Rotation::Switch, Some(next), _) => {
            record.former_ca_certificate = Some(std::mem::replace(&mut record.ca_certificate, next.certificate));
            record.ca_key = next.key;
        }
        (Rotation::Switch, None, _) => {
            return Err(Error::Rotation("there is no next authority; make one with `tideline-hub ca prepare`"));
        }
        (Rotation::Retire, None, Some(_)) => record.former_ca_certificate = None,
        (Rotation::Retire, _, _) => {
            return Err(Error::Rotation(
                "there is no former authority to retire; `tideline-hub ca prepare` and `ca switch` come first",
            ));
        }
    }
    write(dir, &path, &record)
}

/// Whose identity this is, as it was read from `path`, if this version can use it.
pub(crate) fn hub(path: &Path, text: &[u8]) -> Result<HubId, Error> {
    Ok(read(path, text)?.hub)
}

fn read(path: &Path, text: &[u8]) -> Result<Record, Error> {
    let damaged = || Error::Damaged { path: path.to_owned() };
    let Header { schema } = serde_json::from_slice(text).map_err(|_| damaged())?;
    if schema != SCHEMA {
        return Err(Error::Schema { path: path.to_owned(), found: schema });
    }
    serde_json::from_slice(text).map_err(|_| damaged())
}

fn write(dir: &Path, path: &Path, record: &Record) -> Result<(), Error> {
    let json = serde_json::to_vec_pretty(record).expect("a record of strings is JSON");
    put(dir, &json).map_err(|source| Error::Io { operation: "write", path: path.to_owned(), source })
}

/// Puts an identity into `dir`. It is there, whole, also after a power cut.
pub(crate) fn put(dir: &Path, text: &[u8]) -> io::Result<()> {
    replace_private(&dir.join(FILE), text).and_then(|()| File::open(dir)?.sync_all())
}

/// Puts `content` at `path`, whole or not at all, readable by the owner only.
///
/// # Errors
///
/// The disk refused it; what was at `path` stands.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    put_private(path, content, |_| Ok(()))
}

/// The same, unless it is there already: nothing is written again on a disk that may be full.
///
/// # Errors
///
/// The disk refused it; what was at `path` stands.
pub fn keep_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let is_private = fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o777 == MODE);
    if is_private && fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    write_private(path, content)
}

/// The same as [`write_private`], and whoever owned what is replaced owns what replaces it: a hub that does not run as root must
/// be able to read what root writes for it.
fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let former = match fs::symlink_metadata(path) {
        Ok(former) => former,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return write_private(path, content),
        Err(error) => return Err(error),
    };
    let (uid, gid) = (former.uid(), former.gid());
    put_private(path, content, |file| {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) == (uid, gid) {
            return Ok(());
        }
        fchown(file, Some(uid), Some(gid)).map_err(|error| {
            let why = format!("its owner {uid}:{gid} cannot keep it ({error}); run this as that user, or as root");
            io::Error::new(error.kind(), why)
        })
    })
}

/// Follows no symbolic link: whoever may write to the directory would have root write anywhere.
fn put_private(path: &Path, content: &[u8], own: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&unfinished)?;
    own(&file)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

/// Random bytes from the system.
///
/// # Errors
///
/// The system gives none.
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
