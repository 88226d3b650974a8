//! Finds the identity at the start, and keeps its two copies while the agent runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use tideline_common::signature::{SigningKey, VerifyingKey};
use tideline_common::wire::v1::Attested;
use tideline_common::{Digest, EnrolmentToken, Formers, HubId, Owner, SessionName, TargetId, Uid};
use tideline_runtime::Backoff;
use tideline_runtime::exit::chain;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::contents::{Contents, HubPin, TargetName, Unreadable};
use super::merge::{self, Data, Merged, SessionStore};
use super::secret::{Failure, SecretRef, Stored};
use super::written::{ROUNDS_MAX, Reading, Refused, Written, read_patiently};
use super::{Error, file};
use crate::addresses::{Addresses, Token};
use crate::write_watchdog::{Disk, WriteWatchdog};

/// Between two writes of the newest set. An agent whose sets change every second shall not write every second; a set that is
/// older by this is still newer than any before it.
const WRITE_EVERY: Duration = Duration::from_secs(30);
/// Pauses before what the file or the Secret did not take is written again: around the first, doubled up to around the
/// second. A node that is lost meanwhile takes with it what only the file holds.
const WRITE_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// Longest wait for the Secret to take a value that is used only once it is stored: one answer of a slow API server. The hub
/// keeps an offered session for 15 s before another may be offered one.
const SESSION_STORE_MAX: Duration = Duration::from_secs(10);

/// An identity that was found or made, and is not used yet.
#[derive(Debug)]
pub(crate) struct Found {
    path: PathBuf,
    secret: Option<Written>,
    merged: Merged,
    /// What the file holds.
    copy: Option<Contents>,
    token: TokenUse,
    store: SessionStore,
}

/// What a token that the agent was given is to this identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// There was none.
    None,
    /// It says where the hub is.
    Taken,
    /// It was taken before: what it says of the hub has become old.
    SeenBefore,
    /// It was taken before, and the agent was enrolled by it: it lets nobody in again.
    Spent,
    /// It is of another hub than the one that this agent enrolled with.
    OtherHub(HubId),
}

/// Takes the hub's addresses from a token. An agent that is not enrolled yet follows it; one that is follows no other hub.
fn offer(contents: &mut Contents, token: &EnrolmentToken, pin: HubPin) -> TokenUse {
    if contents.pin != pin {
        if contents.enrolled.is_some() {
            return TokenUse::OtherHub(pin.hub);
        }
        (contents.pin, contents.addresses) = (pin, Addresses::of(token));
        return TokenUse::Taken;
    }
    match contents.addresses.take(token) {
        Token::New => TokenUse::Taken,
        Token::SeenBefore if contents.token == Some(token.id()) => TokenUse::Spent,
        Token::SeenBefore => TokenUse::SeenBefore,
    }
}

/// Pauses between reads of the copy in the data directory that fail: a path to a disk may take half a minute to fail over.
const READ_COPY_AGAIN: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
    Duration::from_secs(25),
];

/// Reads the copy in the data directory, a few times where that fails: where the Secret serves instead, the journal beside
/// the copy is given up.
async fn read_again(path: &Path, patient: bool) -> Result<Option<Contents>, Error> {
    for pause in READ_COPY_AGAIN.iter().filter(|_| patient) {
        match file::read(path) {
            Err(Error::Unread { .. }) => tokio::time::sleep(*pause).await,
            read => return read,
        }
    }
    file::read(path)
}

impl Found {
    /// Reads the identity of the agent of `directory` there and in the Secret, or makes one for `token`. A token given to an
    /// agent that is not enrolled yet replaces what is pinned. An enrolled agent needs none; a new one of its hub says where
    /// that is now.
    pub(crate) async fn load(
        directory: &Path,
        token: Option<&EnrolmentToken>,
        reference: Option<SecretRef>,
        store: SessionStore,
    ) -> Result<Self, Error> {
        let path = directory.join(file::FILE);
        let (copy, damage) = match read_again(&path, reference.is_some()).await {
            Ok(copy) => (copy, None),
            Err(error @ (Error::Damaged { .. } | Error::Unread { .. })) => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let Some(reference) = reference else {
            return damage.map_or_else(|| Self::of(path, None, None, copy, (directory, store), token), Err);
        };
        for _ in 0..ROUNDS_MAX {
            let mut written = Written::new(reference.clone());
            let stored = match read_patiently(&reference, copy.is_some(), store).await {
                Reading::Done(stored) => stored,
                Reading::Later(why) => {
                    warn!(
                        "the Secret {reference} cannot be read now: {why}. The copy in the data directory is used meanwhile"
                    );
                    written.later(copy.as_ref());
                    return Self::of(path, Some(written), None, copy, (directory, store), token);
                }
                Reading::Forbidden(why) => {
                    say_forbidden(&reference, &why);
                    written.forbidden();
                    return match damage {
                        Some(damage) => Err(damage),
                        None => Self::of(path, Some(written), None, copy, (directory, store), token),
                    };
                }
            };
            let secret = match stored {
                Stored::Nothing => None,
                Stored::Contents { contents, version } => {
                    written.knows(Some((*contents).clone()), version);
                    Some(*contents)
                }
                Stored::Unreadable { why: Unreadable::Damaged(why), version } if copy.is_some() => {
                    warn!("the Secret {reference} is damaged ({why}); it is rewritten from the data directory");
                    written.knows(None, version);
                    None
                }
                Stored::Unreadable { why: Unreadable::Damaged(why), .. } => {
                    return Err(Error::SecretDamaged { reference: reference.to_string(), why });
                }
                Stored::Unreadable { why: Unreadable::Newer { found, by }, .. } => {
                    return Err(Error::Newer { reference: format!("the Secret {reference}"), found, by });
                }
            };
            match damage {
                Some(error) if secret.is_none() => return Err(error),
                Some(_) => {
                    warn!("{path:?} is damaged or cannot be read; the Secret {reference} is used instead");
                }
                None => {}
            }
            let known = secret.clone();
            let mut found = Self::of(path.clone(), Some(written), secret, copy.clone(), (directory, store), token)?;
            if known.as_ref() == Some(&found.merged.contents) || found.write_first().await? {
                return Ok(found);
            }
            if damage.is_some() {
                break;
            }
        }
        Err(Error::Superseded { reference: reference.to_string(), why: "another writer keeps changing it".to_owned() })
    }

    fn of(
        path: PathBuf,
        secret: Option<Written>,
        stored: Option<Contents>,
        copy: Option<Contents>,
        (directory, store): (&Path, SessionStore),
        token: Option<&EnrolmentToken>,
    ) -> Result<Self, Error> {
        let merged =
            merge::merge(stored, copy.clone(), store).map_err(|merge::TwoTargets { secret: of_secret, file }| {
                let reference = secret.as_ref().map(|written| written.reference.to_string()).unwrap_or_default();
                Error::TwoIdentities { reference, file, secret: of_secret }
            })?;
        let pin = token.map(HubPin::of).transpose()?;
        let (merged, token) = match (merged, token.zip(pin)) {
            (None, None) => return Err(Error::NoToken(directory.to_owned())),
            // A journal beside no identity is of one that was removed.
            (None, Some((token, pin))) => {
                let contents = Contents::new(pin, Addresses::of(token))?;
                (Merged { contents, data: Data::Outdated }, TokenUse::Taken)
            }
            (Some(merged), None) => (merged, TokenUse::None),
            (Some(mut merged), Some((token, pin))) => {
                let used = offer(&mut merged.contents, token, pin);
                (merged, used)
            }
        };
        Ok(Self { path, secret, merged, copy, token, store })
    }

    /// Writes the Secret before anything is done under the identity. False if another was first.
    async fn write_first(&mut self) -> Result<bool, Error> {
        let Some(written) = &mut self.secret else { return Ok(true) };
        // As long as the Secret is ahead it says that the journal is out of date: the start may end before that is gone.
        if self.merged.data == Data::Outdated && self.merged.contents.enrolled.is_some() {
            written.behind = true;
            return Ok(true);
        }
        let is_known = self.copy.is_some() || written.version.is_some();
        let reference = written.reference.to_string();
        match written.write_once(&self.merged.contents).await {
            Ok(()) => Ok(true),
            Err(Failure::Conflict) => Ok(false),
            // File or Secret holds the identity of this agent.
            Err(Failure::NotAllowed(why) | Failure::Unavailable(why)) if is_known => {
                written.complain(&why);
                Ok(true)
            }
            Err(Failure::NotAllowed(why)) if self.store == SessionStore::Directory => {
                say_forbidden(&written.reference, &why);
                written.forbidden();
                Ok(true)
            }
            Err(Failure::NotAllowed(why) | Failure::Unavailable(why)) => Err(Error::SecretUnwritten { reference, why }),
        }
    }

    /// Whether the journal of the data directory may be relied on. If not, it must go before [`Found::keep`], which makes the
    /// file as new as the Secret: nothing says then any more that the journal is out of date.
    pub(crate) fn data(&self) -> Data {
        self.merged.data
    }

    /// What became of the token that was given.
    pub(crate) fn token(&self) -> TokenUse {
        self.token
    }

    /// Whether the hub has let this agent in.
    pub(crate) fn is_enrolled(&self) -> bool {
        self.merged.contents.enrolled.is_some()
    }

    /// Begins to use it. An enrolled agent does so also if the file cannot be written now: its cluster is to be kept
    /// meanwhile.
    pub(crate) fn keep(self) -> Result<Keeper, Error> {
        let is_there = self.copy.as_ref() == Some(&self.merged.contents);
        let saved = if is_there { Ok(()) } else { file::save(&self.path, &self.merged.contents) };
        match saved {
            Ok(()) => Ok(self.keeper(Saving::default())),
            Err(error) if self.is_enrolled() => {
                warn!("{}; retrying", chain(&error));
                Ok(self.keeper(Saving { is_behind: true, waits_for_journal: false }))
            }
            Err(error) => Err(error),
        }
    }

    /// Begins to use it, and writes nothing until [`Keeper::journal_is_removed`].
    pub(crate) fn keep_unwritten(self) -> Keeper {
        self.keeper(Saving { is_behind: true, waits_for_journal: true })
    }

    fn keeper(self, saving: Saving) -> Keeper {
        let Self { path, secret, merged: Merged { contents, data: _ }, copy: _, token: _, store } = self;
        let (superseded, _) = watch::channel(None);
        let saved = (!saving.is_behind).then(|| contents.clone());
        let behind = Notify::new();
        if saving.is_behind || secret.as_ref().is_some_and(|written| written.behind) {
            behind.notify_one();
        }
        Keeper {
            path,
            store,
            reference: secret.as_ref().map(|written| written.reference.clone()),
            behind,
            contents: StdMutex::new(contents),
            saved: StdMutex::new(saved),
            saving: Mutex::new(saving),
            watchdog: WriteWatchdog::default(),
            secret: Mutex::new(secret),
            superseded,
            in_secret: CancellationToken::new(),
        }
    }
}

fn say_forbidden(reference: &SecretRef, why: &str) {
    info!(
        "no access to the Secret {reference}: {why}. The identity is kept in the data directory alone; access is tried again \
         about once a minute"
    );
}

/// The identity of a running agent.
#[derive(Debug)]
pub(crate) struct Keeper {
    path: PathBuf,
    store: SessionStore,
    /// What this process knows. Changes while `saving` is locked.
    contents: StdMutex<Contents>,
    /// What the file took last, and all that the Secret may hold: one that is ahead of the file says at the next start that
    /// another process was at work, and that the journal is out of date. None if the file took nothing yet.
    saved: StdMutex<Option<Contents>>,
    /// Locked while the file is written: one write at a time, and the newest contents last.
    saving: Mutex<Saving>,
    watchdog: WriteWatchdog,
    /// Where the Secret is, if it is used.
    reference: Option<SecretRef>,
    secret: Mutex<Option<Written>>,
    /// Notified when a write to the file or the Secret failed.
    behind: Notify,
    /// Why this process must not go on, once that is known.
    superseded: watch::Sender<Option<String>>,
    /// Cancelled when the Secret turns out to hold the identity of this agent.
    in_secret: CancellationToken,
}

/// Whether the file is up to date and may be written, for the next writer.
#[derive(Debug, Default)]
struct Saving {
    /// A write failed, or was given up: the file may not hold what this process knows.
    is_behind: bool,
    /// The journal of another process is beside it still, and must go first.
    waits_for_journal: bool,
}

/// What a change came to. The file holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    AsItWas,
    Changed,
}

impl Keeper {
    pub(crate) fn key(&self) -> SigningKey {
        self.contents().key()
    }

    /// What a token would be to the agent as it is now.
    pub(crate) fn use_of(&self, token: &EnrolmentToken) -> TokenUse {
        let mut contents = self.contents().clone();
        HubPin::of(token).map_or(TokenUse::None, |pin| offer(&mut contents, token, pin))
    }

    pub(crate) fn pin(&self) -> HubPin {
        self.contents().pin.clone()
    }

    /// Where the hub is asked.
    pub(crate) fn addresses(&self) -> Addresses {
        self.contents().addresses.clone()
    }

    pub(crate) fn enrolled(&self) -> Option<TargetName> {
        self.contents().enrolled.clone()
    }

    /// The key with which it enrols, which is stored first. An agent that shows a key that is not stored may come back without
    /// it.
    pub(crate) async fn enrolling_key(&self) -> Result<SigningKey, Error> {
        let mut seed = None;
        self.change(|contents| seed = Some(contents.next_seed.unwrap_or(contents.seed))).await?;
        if self.is_secret_behind().await {
            self.write_session_store().await?;
        }
        Ok(SigningKey::from_seed(*seed.expect("the identity was loaded").as_bytes()))
    }

    /// The targets that it was before.
    pub(crate) fn formers(&self) -> Formers {
        self.contents().formers.iter().copied().collect()
    }

    /// The targets whose marks are its own.
    pub(crate) fn owner(&self, target: TargetId) -> Owner {
        Owner { hub: self.pin().hub, target, formers: self.formers() }
    }

    /// The newest set that was accepted as one of them.
    pub(crate) fn inherited(&self) -> Option<Attested> {
        self.contents().inherited
    }

    /// Names the token by which it was enrolled last.
    pub(crate) fn token(&self) -> Option<Digest> {
        self.contents().token
    }

    /// The cluster that it is of, if the hub was told.
    pub(crate) fn cluster(&self) -> Option<Uid> {
        self.contents().cluster.clone()
    }

    /// How far the identity has come: the newest session that is stored, and the newest set that was accepted.
    pub(crate) fn newest_session_and_floor(&self) -> (SessionName, Option<Attested>) {
        let contents = self.contents();
        (contents.session, contents.floor)
    }

    /// Whether the file can be written: as long as it hangs, nothing that has to be kept goes on.
    pub(crate) fn disk(&self) -> Disk {
        self.watchdog.disk()
    }

    /// Tells when another process has taken the identity.
    pub(crate) fn superseded(&self) -> watch::Receiver<Option<String>> {
        self.superseded.subscribe()
    }

    /// Cancelled when the Secret, which could not be read at the start, holds this agent's identity, or a later state of it
    /// than the file: the agent has to restart.
    pub(crate) fn found_in_secret(&self) -> CancellationToken {
        self.in_secret.clone()
    }

    /// Keeps what the hub said this agent is. The key was in the Secret before, so a Secret that cannot be written now is
    /// no reason to wait: the same key is answered alike.
    pub(crate) async fn enrol(&self, enrolled: TargetName, token: Option<Digest>) -> Result<(), Error> {
        self.change(|contents| contents.become_target(enrolled, token)).await?;
        let _logged = self.write_secret().await;
        Ok(())
    }

    /// The hub accepts the key no more by which it was asked. The next one is on disk before it is shown to anybody.
    pub(crate) async fn revoked(&self, shown: &VerifyingKey) -> Result<(), Error> {
        let next = Contents::random_seed()?;
        let kept = self.change(|contents| contents.replace_key(shown, next)).await?;
        if kept == Kept::Changed || self.is_secret_behind().await {
            let _logged = self.write_secret().await;
        }
        Ok(())
    }

    /// Stores that this session was offered, and the cluster that the identity is of. Returns the session that is stored then:
    /// another if a later process has stored one, which is left as it is. Replicas share the Secret as their session store: a
    /// session that only the file has is none that the next of them knows.
    pub(crate) async fn keep_session(&self, session: SessionName, cluster: Option<Uid>) -> Result<SessionName, Error> {
        let stored = self.read_stored_session().await?;
        if stored.number > session.number {
            return Ok(stored);
        }
        let mut saving = self.saving.lock().await;
        let offered = {
            let contents = self.contents();
            let cluster = cluster.or_else(|| contents.cluster.clone());
            Contents { cluster, session, ..contents.clone() }
        };
        // One that is not kept is not used, so it is not known either: it would reach the file with what follows.
        self.save(&mut saving, offered.clone()).await?;
        *self.contents() = offered;
        drop(saving);
        self.write_session_store().await?;
        Ok(session)
    }

    /// Writes to the Secret what the file holds by now, where the Secret is a copy. Where it is the session store, it is up to
    /// date already.
    pub(crate) async fn copy_to_secret(&self) {
        if self.store == SessionStore::Directory {
            let _logged = self.write_secret().await;
        }
    }

    /// Writes to the Secret what the file holds, where the Secret is the session store. And where it was found to be another
    /// process's: until it is no longer, no session is used, whatever the hub offers.
    async fn write_session_store(&self) -> Result<(), Error> {
        if self.store == SessionStore::Directory && self.superseded.borrow().is_none() {
            return Ok(());
        }
        let why = match timeout(SESSION_STORE_MAX, self.write_secret()).await {
            Ok(written) => return written,
            Err(_elapsed) => "the API server does not answer".to_owned(),
        };
        self.behind.notify_one();
        let reference = self.reference.as_ref().map(ToString::to_string).unwrap_or_default();
        Err(Error::SecretUnwritten { reference, why })
    }

    /// Reads which session is stored by now, whoever wrote it.
    pub(crate) async fn read_stored_session(&self) -> Result<SessionName, Error> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || file::read(&path));
        let file = match self.watchdog.wait(read, || ()).await {
            Some(Ok(Ok(file))) => file,
            // The directory is locked: no other process wrote it, and this one knows its content.
            Some(Ok(Err(Error::Damaged { .. } | Error::Unread { .. }))) => {
                self.write_file_anew().await;
                None
            }
            Some(Ok(Err(error))) => return Err(error),
            Some(Err(panicked)) => return Err(self.unread(std::io::Error::other(panicked))),
            None => return Err(self.unread(std::io::ErrorKind::TimedOut.into())),
        };
        // A file that is gone tells of nobody.
        let ours = self.contents().session;
        let file = file.map_or(ours, |contents| contents.session);
        if self.store == SessionStore::Directory {
            return Ok(file);
        }
        let Some(reference) = &self.reference else { return Ok(file) };
        // Unless it was read, another replica may have written there, which is no other agent then.
        let why = match reference.read().await {
            Ok(Stored::Contents { contents, .. }) => return Ok(file.max(contents.session)),
            Ok(Stored::Nothing) => return Ok(file),
            Ok(Stored::Unreadable { why, .. }) => {
                // The next writer replaces a damaged Secret, and gives way to a newer version.
                self.behind.notify_one();
                match why {
                    Unreadable::Damaged(why) => format!("it is damaged: {why}"),
                    Unreadable::Newer { found: _, by } => format!("version {by} of the agent wrote it"),
                }
            }
            Err(failure) => failure.to_string(),
        };
        Err(Error::SecretUnread { reference: reference.to_string(), why })
    }

    /// The file holds nothing that can be read: it is written anew with the next change, and soon without one.
    async fn write_file_anew(&self) {
        if !std::mem::replace(&mut self.saving.lock().await.is_behind, true) {
            warn!("{:?} is damaged or cannot be read; it is rewritten from memory", self.path);
        }
        self.behind.notify_one();
    }

    fn unread(&self, source: std::io::Error) -> Error {
        Error::Unread { path: self.path.clone(), source }
    }

    /// Keeps where the hub is asked from now on.
    pub(crate) async fn keep_addresses(&self, addresses: Addresses) {
        let newer =
            |contents: &mut Contents| contents.addresses = addresses.merge(std::mem::take(&mut contents.addresses));
        match self.change(newer).await {
            Ok(_) => {
                let _logged = self.write_secret().await;
            }
            Err(error) => warn!("{}; retrying", chain(&error)),
        }
    }

    /// Keeps the newest set that was accepted, now and then, and what file or Secret did not take, until nobody tells of a
    /// set any more.
    pub(crate) async fn follow(self: Arc<Self>, mut newest: watch::Receiver<Option<Attested>>) {
        let mut backoff = Backoff::new(WRITE_AGAIN.0, WRITE_AGAIN.1);
        let mut next = Instant::now();
        // When there is something to write: the newest set, and failed writes.
        let (mut due, mut again) = (None, None);
        let mut complained = false;
        loop {
            let wake = due.into_iter().chain(again).min();
            // Every arm is cancel-safe and none awaits in its body.
            let ended = tokio::select! {
                told = newest.changed() => {
                    due.get_or_insert(next);
                    told.is_err()
                }
                () = self.behind.notified() => {
                    again.get_or_insert_with(|| Instant::now() + backoff.next_delay(None));
                    false
                }
                () = sleep_until(wake.unwrap_or(next)), if wake.is_some() => false,
            };
            let now = Instant::now();
            if !ended && due.into_iter().chain(again).all(|at| at > now) {
                continue;
            }
            (due, again) = (None, None);
            let floor = *newest.borrow_and_update();
            let newer = |contents: &mut Contents| {
                // A set accepted as another target does not count.
                if contents.enrolled.as_ref().map(|enrolled| enrolled.target)
                    == floor.map(|floor| floor.attestation.target)
                {
                    contents.floor = merge::newest(contents.floor, floor);
                }
            };
            match self.change(newer).await {
                Ok(_) => {
                    complained = false;
                    if self.write_secret().await.is_ok() {
                        backoff.reset();
                    }
                }
                Err(error) if !std::mem::replace(&mut complained, true) => {
                    warn!("{}; retrying", chain(&error));
                }
                Err(_said_before) => {}
            }
            if ended {
                return;
            }
            next = Instant::now() + WRITE_EVERY;
        }
    }

    /// The journal that was out of date is gone: the file may be written.
    pub(crate) async fn journal_is_removed(&self) {
        self.saving.lock().await.waits_for_journal = false;
        self.behind.notify_one();
    }

    /// Changes the identity, in memory and in the file. In memory it stays changed if the file is not written.
    async fn change(&self, change: impl FnOnce(&mut Contents)) -> Result<Kept, Error> {
        let mut saving = self.saving.lock().await;
        let contents = {
            let mut contents = self.contents();
            change(&mut contents);
            contents.clone()
        };
        self.save(&mut saving, contents).await
    }

    /// Has the file hold this.
    async fn save(&self, saving: &mut Saving, contents: Contents) -> Result<Kept, Error> {
        if !saving.is_behind && self.saved().as_ref() == Some(&contents) {
            return Ok(Kept::AsItWas);
        }
        saving.is_behind = true;
        if saving.waits_for_journal {
            return Err(Error::JournalFirst { path: self.path.clone() });
        }
        let path = self.path.clone();
        let saved = tokio::task::spawn_blocking(move || file::save(&path, &contents).map(|()| contents));
        let io = |source| Error::Io { action: "write", path: self.path.clone(), source };
        let error = match self.watchdog.wait(saved, || ()).await {
            Some(Ok(Ok(contents))) => {
                saving.is_behind = false;
                *self.saved() = Some(contents);
                return Ok(Kept::Changed);
            }
            Some(Ok(Err(error))) => error,
            Some(Err(panicked)) => io(std::io::Error::other(panicked)),
            None => io(std::io::ErrorKind::TimedOut.into()),
        };
        self.behind.notify_one();
        Err(error)
    }

    /// Whether the Secret does not hold yet what it should.
    async fn is_secret_behind(&self) -> bool {
        self.secret.lock().await.as_ref().is_some_and(|written| written.behind)
    }

    /// Has the Secret hold what the file holds. Logs once that it cannot, and has [`Keeper::follow`] try again.
    async fn write_secret(&self) -> Result<(), Error> {
        let mut secret = self.secret.lock().await;
        let Some(written) = secret.as_mut() else { return Ok(()) };
        let Some(contents) = self.saved().clone() else {
            // It follows when the file has taken it.
            written.behind = true;
            return Ok(());
        };
        let refused = written.write(&contents).await;
        let reference = written.reference.to_string();
        match refused {
            Ok(()) => {
                self.superseded.send_if_modified(|why| why.take().is_some());
                Ok(())
            }
            Err(Refused::Failed(why)) => {
                written.complain(&why);
                self.behind.notify_one();
                Err(Error::SecretUnwritten { reference, why })
            }
            Err(Refused::HoldsIdentity) => {
                self.in_secret.cancel();
                Err(Error::SecretUnwritten { reference, why: "it already holds this agent's identity".to_owned() })
            }
            Err(Refused::Superseded(why)) => {
                let error = Error::Superseded { reference, why };
                self.superseded.send_replace(Some(error.to_string()));
                Err(error)
            }
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saved(&self) -> MutexGuard<'_, Option<Contents>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
