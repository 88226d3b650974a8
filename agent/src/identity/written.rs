//! The Secret as this process knows it: read patiently, and never written over newer contents.

use std::time::Duration;

use tideline_runtime::Backoff;
use tokio::time::sleep;
use tracing::{info, warn};

use super::contents::{Contents, Unreadable};
use super::merge::{self, SessionStore};
use super::secret::{Failure, SecretRef, Stored};

/// Pauses between two attempts to read the Secret before the agent starts: around the first, doubled up to around the second.
/// Nothing can be done without it, and ending would only have the agent restarted with growing pauses.
const READ_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(20));
/// How often a write is begun anew when another was first. Nobody else writes there for long.
pub(super) const ROUNDS_MAX: u32 = 5;

/// The Secret as this process knows it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
pub(super) struct Written {
    pub(super) reference: SecretRef,
    /// None if the present version is not known.
    pub(super) version: Option<String>,
    /// The present contents, as far as they were read or written.
    there: Option<Contents>,
    /// It does not hold yet what it should.
    pub(super) behind: bool,
    /// It could not be read when this process began, which is not enrolled by its own file: the Secret may hold its identity.
    unread: bool,
    /// This process has read or written it; any later change is by another process.
    known: bool,
    /// Only that it is forbidden was logged.
    forbidden: bool,
    /// That it cannot be written was logged.
    complained: bool,
}

/// Why it was not written.
pub(super) enum Refused {
    Failed(String),
    Superseded(String),
    /// It holds this agent's identity, which was not known.
    HoldsIdentity,
}

impl Written {
    pub(super) fn new(reference: SecretRef) -> Self {
        Self {
            reference,
            version: None,
            there: None,
            behind: false,
            unread: false,
            known: false,
            forbidden: false,
            complained: false,
        }
    }

    /// Takes what was read there.
    pub(super) fn knows(&mut self, there: Option<Contents>, version: String) {
        (self.there, self.version, self.known) = (there, Some(version), true);
    }

    /// It cannot be read now, and this copy is used meanwhile. One that was never enrolled says nothing of this agent's
    /// identity: an earlier process without a Secret made it.
    pub(super) fn later(&mut self, copy: Option<&Contents>) {
        self.behind = true;
        self.unread = copy.is_none_or(|copy| copy.enrolled.is_none());
    }

    /// It may not be used now; that was logged, and it is asked for again.
    pub(super) fn forbidden(&mut self) {
        (self.behind, self.unread, self.forbidden, self.complained) = (true, true, true, true);
    }

    /// Writes unless it is known to be there, and never over newer contents.
    pub(super) async fn write(&mut self, contents: &Contents) -> Result<(), Refused> {
        // Until it is seen through: it may be broken off.
        self.behind = true;
        for _ in 0..ROUNDS_MAX {
            if self.version.is_none() {
                match self.reference.read().await.map_err(|failure| failed(&failure))? {
                    Stored::Nothing => self.there = None,
                    Stored::Unreadable { why: Unreadable::Damaged(_), version } => self.knows(None, version),
                    Stored::Unreadable { why: Unreadable::Newer { found: _, by }, version: _ } => {
                        return Err(Refused::Superseded(format!("version {by} of the agent wrote it since")));
                    }
                    Stored::Contents { contents: there, version } => {
                        // Only contents that may be overwritten are known by version: a writer that was refused reads again
                        // before it writes.
                        if std::mem::take(&mut self.forbidden) {
                            self.complained = false;
                        }
                        self.judge(&there, contents)?;
                        let is_there = *there == merge::onto(&there, contents.clone());
                        self.knows(Some(*there), version);
                        if is_there {
                            self.is_written();
                            return Ok(());
                        }
                    }
                }
            }
            match self.write_once(contents).await {
                Ok(()) => return Ok(()),
                Err(Failure::Conflict) => self.version = None,
                Err(failure) => return Err(failed(&failure)),
            }
        }
        Err(Refused::Failed("another writer keeps changing it".to_owned()))
    }

    pub(super) async fn write_once(&mut self, contents: &Contents) -> Result<(), Failure> {
        self.behind = true;
        let contents = match &self.there {
            Some(there) => merge::onto(there, contents.clone()),
            None => contents.clone(),
        };
        let version = match &self.version {
            Some(version) => self.reference.replace(version, &contents).await,
            None => self.reference.create(&contents).await,
        };
        self.knows(Some(contents), version?);
        self.is_written();
        Ok(())
    }

    /// Whether this process may overwrite the Secret.
    fn judge(&self, there: &Contents, ours: &Contents) -> Result<(), Refused> {
        match judge(there, ours) {
            // The copy that this process began with is older than what the agent has become since.
            Err(Refused::Superseded(_)) if !self.known && has_become(there, ours) => Err(Refused::HoldsIdentity),
            // Nobody has taken from this agent what it never had.
            Err(Refused::Superseded(why)) if self.unread => match (&there.enrolled, &ours.enrolled) {
                (Some(_), None) => Err(Refused::HoldsIdentity),
                // An agent that is enrolled stays so.
                (None, Some(_)) => Ok(()),
                (Some(_), Some(_)) | (None, None) => Err(Refused::Failed(why)),
            },
            judged => judged,
        }
    }

    fn is_written(&mut self) {
        (self.behind, self.unread, self.forbidden) = (false, false, false);
        if std::mem::take(&mut self.complained) {
            info!("the Secret {} can be written again", self.reference);
        }
    }

    pub(super) fn complain(&mut self, why: &str) {
        self.behind = true;
        if !std::mem::replace(&mut self.complained, true) {
            warn!("the Secret {} cannot be written; retrying: {why}", self.reference);
        }
    }
}

/// Whether the Secret holds what this agent became since: another target, or the same with another key.
fn has_become(there: &Contents, ours: &Contents) -> bool {
    let (Some(is), Some(was)) = (&there.enrolled, &ours.enrolled) else { return false };
    there.generation > ours.generation && (is.target == was.target || there.formers.contains(&was.target))
}

/// Whether this process may overwrite the Secret.
fn judge(there: &Contents, ours: &Contents) -> Result<(), Refused> {
    let target = |contents: &Contents| contents.enrolled.as_ref().map(|enrolled| enrolled.target);
    let succeeds = target(there).is_some_and(|there| ours.formers.contains(&there)) || target(there) == target(ours);
    if succeeds && there.generation < ours.generation {
        return Ok(());
    }
    if succeeds && there.generation > ours.generation {
        return Err(Refused::Superseded("another process changed the identity in it".to_owned()));
    }
    if there.seed != ours.seed || (target(there).is_some() && target(there) != target(ours)) {
        return Err(Refused::Superseded("it holds another identity now".to_owned()));
    }
    // Which of two copies holds the target is the hub's to say, and what is newer in the Secret is not overwritten.
    if there.session.number > ours.session.number {
        let why = format!(
            "it holds session {}, which is newer than {} of this data directory; does another agent run with this identity?",
            there.session, ours.session
        );
        return Err(Refused::Failed(why));
    }
    Ok(())
}

fn failed(failure: &Failure) -> Refused {
    Refused::Failed(failure.to_string())
}

/// What may be done with a Secret.
pub(super) enum Reading {
    Done(Stored),
    /// Not now, and the file serves.
    Later(String),
    /// It is not this agent's to use, as far as is known, and nothing else holds its identity.
    Forbidden(String),
}

/// Reads the Secret; waits for an API server that does not answer only where nothing else holds this agent's identity, so that
/// no new identity is made where there is one.
///
/// An API server may forbid it for a moment, as while rights or a token are renewed: an agent with a file goes on with that,
/// and retries. A replica waits whatever its file says, for the Secret is its session store: another replica may have been
/// active since. Without either, an agent was perhaps never meant to have a Secret; it begins, and asks for it again.
pub(super) async fn read_patiently(reference: &SecretRef, known_otherwise: bool, store: SessionStore) -> Reading {
    let mut backoff = Backoff::new(READ_AGAIN.0, READ_AGAIN.1);
    let mut complained = false;
    loop {
        match reference.read().await {
            Ok(stored) => return Reading::Done(stored),
            Err(Failure::Conflict) => {}
            Err(Failure::NotAllowed(why) | Failure::Unavailable(why))
                if known_otherwise && store == SessionStore::Directory =>
            {
                return Reading::Later(why);
            }
            Err(Failure::NotAllowed(why)) if store == SessionStore::Directory => return Reading::Forbidden(why),
            Err(Failure::NotAllowed(why) | Failure::Unavailable(why)) => {
                if !std::mem::replace(&mut complained, true) {
                    warn!(
                        "the Secret {reference} cannot be read now; the agent changes nothing and asks for it again, since only \
                         the Secret says who this agent is and how far it has come: {why}"
                    );
                }
            }
        }
        sleep(backoff.next_delay(None)).await;
    }
}
