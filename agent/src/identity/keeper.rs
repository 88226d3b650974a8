//! Finds the identity at the start, and keeps it in its two places while the agent runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use tideline_common::signature::{SigningKey, VerifyingKey};
use tideline_common::wire::v1::Attested;
use tideline_common::{Digest, EnrolmentToken, Formers, HubId, Owner, SessionName, TargetId, Uid};
use tideline_runtime::Backoff;
use tideline_runtime::exit::chain;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::contents::{Contents, HubPin, TargetName, Unreadable};
use super::merge::{self, Data, HomeIn, Merged};
use super::secret::{Failure, SecretPlace, Stored};
use super::{Error, file};
use crate::addresses::{Addresses, Token};
use crate::patience::{Disk, Patience};

/// Pauses between two tries to read the Secret before the agent starts: around the first, doubled up to around the second.
/// There is nothing to be done without it, and to end would only have whoever started the agent wait longer every time.
const READ_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(20));
/// How often a write is begun anew when another was first. Nobody else writes there for long.
const ROUNDS_MAX: u32 = 5;
/// Between two writes of the newest set, and of what could not be written. An agent whose sets change every second shall
/// not write every second; and what is older by this is still newer than any set before it.
const WRITE_EVERY: Duration = Duration::from_secs(30);

/// An identity that was found or made, and is not used yet.
#[derive(Debug)]
pub(crate) struct Found {
    path: PathBuf,
    secret: Option<Written>,
    merged: Merged,
    /// What the file holds.
    copy: Option<Contents>,
    token: TokenUse,
    home: HomeIn,
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

/// Takes from a token what it has to say. Who is not enrolled yet goes where it says; who is follows no other hub's.
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

/// The Secret as this process knows it.
#[derive(Debug)]
struct Written {
    place: SecretPlace,
    /// None if what is there is not known.
    version: Option<String>,
    /// It does not hold yet what it should.
    behind: bool,
    /// That it cannot be written was said.
    complained: bool,
}

/// What may be done with a Secret.
enum Reading {
    Done(Stored),
    /// Not now, and the file serves.
    Later(String),
    Never(String),
}

impl Found {
    /// Looks for the identity of the agent of `directory` there and in the Secret, or makes one for `token`. A token given
    /// to an agent that is not enrolled yet replaces what is pinned. An enrolled agent needs none; a new one of its hub says
    /// where that is now.
    pub(crate) async fn look(
        directory: &Path,
        token: Option<&EnrolmentToken>,
        place: Option<SecretPlace>,
        home: HomeIn,
    ) -> Result<Self, Error> {
        let path = directory.join(file::FILE);
        let (copy, damage) = match file::read(&path) {
            Ok(copy) => (copy, None),
            Err(error @ Error::Damaged { .. }) => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let Some(place) = place else {
            return damage.map_or_else(|| Self::of(path, None, None, copy, (directory, home), token), Err);
        };
        for _ in 0..ROUNDS_MAX {
            let mut written = Written { place: place.clone(), version: None, behind: false, complained: false };
            let stored = match read_patiently(&place, copy.is_some()).await {
                Reading::Done(stored) => stored,
                Reading::Later(why) => {
                    warn!("{place} cannot be read now: {why}. The copy in the data directory serves meanwhile");
                    written.behind = true;
                    return Self::of(path, Some(written), None, copy, (directory, home), token);
                }
                Reading::Never(why) => {
                    info!(
                        "the identity is kept in the data directory alone: the Secret {place} cannot be used ({why})"
                    );
                    return damage.map_or_else(|| Self::of(path, None, None, copy, (directory, home), token), Err);
                }
            };
            let secret = match stored {
                Stored::Nothing => None,
                Stored::Contents { contents, version } => {
                    written.version = Some(version);
                    Some(*contents)
                }
                Stored::Unreadable { why: Unreadable::Damaged(why), version } if copy.is_some() => {
                    warn!("the Secret {place} is damaged ({why}); it is written anew from the data directory");
                    written.version = Some(version);
                    None
                }
                Stored::Unreadable { why: Unreadable::Damaged(why), .. } => {
                    return Err(Error::SecretDamaged { place: place.to_string(), why });
                }
                Stored::Unreadable { why: Unreadable::Newer { found, by }, .. } => {
                    return Err(Error::Newer { place: format!("the Secret {place}"), found, by });
                }
            };
            match damage {
                Some(error) if secret.is_none() => return Err(error),
                Some(_) => warn!("{path:?} is damaged; what the Secret {place} says is taken instead"),
                None => {}
            }
            let known = secret.clone();
            let mut found = Self::of(path.clone(), Some(written), secret, copy.clone(), (directory, home), token)?;
            if known.as_ref() == Some(&found.merged.contents) || found.write_first().await? {
                return Ok(found);
            }
            if damage.is_some() {
                break;
            }
        }
        Err(Error::Superseded { place: place.to_string(), why: "it changes all the time".to_owned() })
    }

    fn of(
        path: PathBuf,
        secret: Option<Written>,
        stored: Option<Contents>,
        copy: Option<Contents>,
        (directory, home): (&Path, HomeIn),
        token: Option<&EnrolmentToken>,
    ) -> Result<Self, Error> {
        let merged =
            merge::merge(stored, copy.clone(), home).map_err(|merge::TwoTargets { secret: of_secret, file }| {
                let place = secret.as_ref().map(|written| written.place.to_string()).unwrap_or_default();
                Error::TwoIdentities { place, file, secret: of_secret }
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
        Ok(Self { path, secret, merged, copy, token, home })
    }

    /// Writes the Secret before anything is done under the identity. False if another was first.
    async fn write_first(&mut self) -> Result<bool, Error> {
        let Some(written) = &mut self.secret else { return Ok(true) };
        // As long as the Secret is ahead it says that the journal is out of date: the start may end before that is gone.
        if self.merged.data == Data::Outdated && self.merged.contents.enrolled.is_some() {
            written.behind = true;
            return Ok(true);
        }
        match written.write_once(&self.merged.contents).await {
            Ok(()) => Ok(true),
            Err(Failure::Conflict) => Ok(false),
            Err(Failure::NotAllowed(why)) => {
                let place = &written.place;
                info!("the identity is kept in the data directory alone: the Secret {place} cannot be written ({why})");
                self.secret = None;
                Ok(true)
            }
            Err(Failure::Unavailable(why)) if self.copy.is_some() => {
                written.complain(&why);
                Ok(true)
            }
            Err(Failure::Unavailable(why)) => Err(Error::SecretUnwritten { place: written.place.to_string(), why }),
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

    /// Begins to use it. Who is enrolled does so also if the file cannot be written now: its cluster is to be kept meanwhile.
    pub(crate) fn keep(self) -> Result<Keeper, Error> {
        if self.copy.as_ref() == Some(&self.merged.contents) {
            return Ok(self.keeper(Saving::default(), FileHolds::This));
        }
        match file::save(&self.path, &self.merged.contents) {
            Ok(()) => Ok(self.keeper(Saving::default(), FileHolds::This)),
            Err(error) if self.is_enrolled() => {
                warn!("{}; it is written again with what follows", chain(&error));
                Ok(self.keeper(Saving { is_behind: true, waits_for_journal: false }, FileHolds::Another))
            }
            Err(error) => Err(error),
        }
    }

    /// Begins to use it, and writes nothing until [`Keeper::journal_is_removed`].
    pub(crate) fn keep_unwritten(self) -> Keeper {
        self.keeper(Saving { is_behind: true, waits_for_journal: true }, FileHolds::Another)
    }

    fn keeper(self, saving: Saving, holds: FileHolds) -> Keeper {
        let Self { path, secret, merged: Merged { contents, data: _ }, copy: _, token: _, home } = self;
        let (superseded, _) = watch::channel(None);
        let saved = match holds {
            FileHolds::This => Some(contents.clone()),
            FileHolds::Another => None,
        };
        Keeper {
            path,
            home,
            contents: StdMutex::new(contents),
            saved: StdMutex::new(saved),
            saving: Mutex::new(saving),
            patience: Patience::default(),
            secret: Mutex::new(secret),
            superseded,
        }
    }
}

/// Whether the file holds the identity that is begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileHolds {
    This,
    Another,
}

/// The identity of a running agent.
#[derive(Debug)]
pub(crate) struct Keeper {
    path: PathBuf,
    home: HomeIn,
    /// What this process knows. Changes while `saving` is held.
    contents: StdMutex<Contents>,
    /// What the file took last, and all that the Secret may hold: one that is ahead of the file says at the next start that
    /// another process was at work, and that the journal is out of date. None if the file took nothing yet.
    saved: StdMutex<Option<Contents>>,
    /// Held while the file is written: one at a time, and what is newer last.
    saving: Mutex<Saving>,
    patience: Patience,
    secret: Mutex<Option<Written>>,
    /// Why this process must not go on, once that is known.
    superseded: watch::Sender<Option<String>>,
}

/// How far the file is, for whoever has the turn to write it.
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

    /// The key with which it enrols, which is on disk. Who shows one that is not may come back without it.
    pub(crate) async fn enrolling_key(&self) -> Result<SigningKey, Error> {
        let mut seed = None;
        self.change(|contents| seed = Some(contents.next_seed.unwrap_or(contents.seed))).await?;
        Ok(SigningKey::from_seed(*seed.expect("the identity was looked at").as_bytes()))
    }

    /// The targets that it was before.
    pub(crate) fn formers(&self) -> Formers {
        self.contents().formers.iter().copied().collect()
    }

    /// Whose marks are its own as this target.
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

    /// How far the identity has come: the newest session in its home, and the newest set that was accepted.
    pub(crate) fn newest_session_and_floor(&self) -> (SessionName, Option<Attested>) {
        let contents = self.contents();
        (contents.session, contents.floor)
    }

    /// Whether the file can be written: as long as it hangs, nothing that has to be kept goes on.
    pub(crate) fn disk(&self) -> Disk {
        self.patience.disk()
    }

    /// Tells when another process has taken the identity.
    pub(crate) fn superseded(&self) -> watch::Receiver<Option<String>> {
        self.superseded.subscribe()
    }

    /// Keeps what the hub said this agent is. The key was in the Secret before, so a Secret that cannot be written now is
    /// no reason to wait: the same key is answered alike.
    pub(crate) async fn enrol(&self, enrolled: TargetName, token: Option<Digest>) -> Result<(), Error> {
        self.change(|contents| contents.become_target(enrolled, token)).await?;
        self.write_or_complain().await;
        Ok(())
    }

    /// The hub accepts the key no more by which it was asked. The next one is on disk before it is shown to anybody.
    pub(crate) async fn revoked(&self, shown: &VerifyingKey) -> Result<(), Error> {
        let next = Contents::random_seed()?;
        let kept = self.change(|contents| contents.replace_key(shown, next)).await?;
        if kept == Kept::Changed || self.is_secret_behind().await {
            self.write_or_complain().await;
        }
        Ok(())
    }

    /// Keeps that this session was offered, and the cluster that the identity is of. Returns the session that is in the home
    /// then: another if a later process has written there, which is left as it is.
    pub(crate) async fn keep_session(&self, session: SessionName, cluster: Option<Uid>) -> Result<SessionName, Error> {
        let home = self.read_home().await?;
        if home.number > session.number {
            return Ok(home);
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
        Ok(session)
    }

    /// Has the Secret hold what the file holds by now.
    pub(crate) async fn copy_to_secret(&self) {
        self.write_or_complain().await;
    }

    /// Reads which session is in the home by now, whoever wrote it.
    pub(crate) async fn read_home(&self) -> Result<SessionName, Error> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || file::read(&path));
        let file = match self.patience.wait(read, || ()).await {
            Some(Ok(read)) => read?,
            Some(Err(panicked)) => return Err(self.unread(std::io::Error::other(panicked))),
            None => return Err(self.unread(std::io::ErrorKind::TimedOut.into())),
        };
        // A file that is gone tells of nobody.
        let ours = self.contents().session;
        let file = file.map_or(ours, |contents| contents.session);
        if self.home == HomeIn::Directory {
            return Ok(file);
        }
        let secret = self.secret.lock().await;
        let stored = match secret.as_ref() {
            Some(written) => written.place.read().await.ok(),
            None => None,
        };
        match stored {
            Some(Stored::Contents { contents, .. }) => Ok(file.max(contents.session)),
            Some(Stored::Nothing | Stored::Unreadable { .. }) | None => Ok(file),
        }
    }

    fn unread(&self, source: std::io::Error) -> Error {
        Error::Io { action: "read", path: self.path.clone(), source }
    }

    /// Keeps where the hub is asked from now on.
    pub(crate) async fn keep_addresses(&self, addresses: Addresses) {
        let newer =
            |contents: &mut Contents| contents.addresses = addresses.merge(std::mem::take(&mut contents.addresses));
        match self.change(newer).await {
            Ok(_) => self.write_or_complain().await,
            Err(error) => warn!("{}; it is written again with what follows", chain(&error)),
        }
    }

    /// Keeps the newest set that was accepted, now and then, until nobody tells of one any more.
    pub(crate) async fn follow(self: Arc<Self>, mut newest: watch::Receiver<Option<Attested>>) {
        let mut next = Instant::now();
        let mut due = None;
        loop {
            // Every arm is cancel-safe and none awaits in its body.
            let ended = tokio::select! {
                told = newest.changed() => {
                    due.get_or_insert(next);
                    told.is_err()
                }
                () = sleep_until(due.unwrap_or(next)), if due.is_some() => false,
            };
            if !ended && due.is_some_and(|due| due > Instant::now()) {
                continue;
            }
            due = None;
            let floor = *newest.borrow_and_update();
            let newer = |contents: &mut Contents| {
                // What was accepted as another target is no measure.
                if contents.enrolled.as_ref().map(|enrolled| enrolled.target)
                    == floor.map(|floor| floor.attestation.target)
                {
                    contents.floor = merge::newest(contents.floor, floor);
                }
            };
            match self.change(newer).await {
                Ok(_) => self.write_or_complain().await,
                Err(error) => warn!("{}; it is written again with what follows", chain(&error)),
            }
            if ended {
                return;
            }
            next = Instant::now() + WRITE_EVERY;
            if self.is_secret_behind().await {
                due = Some(next);
            }
        }
    }

    /// The journal that was out of date is gone: the file may be written.
    pub(crate) async fn journal_is_removed(&self) {
        self.saving.lock().await.waits_for_journal = false;
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
        let source = match self.patience.wait(saved, || ()).await {
            Some(Ok(saved)) => {
                let contents = saved?;
                saving.is_behind = false;
                *self.saved() = Some(contents);
                return Ok(Kept::Changed);
            }
            Some(Err(panicked)) => std::io::Error::other(panicked),
            None => std::io::ErrorKind::TimedOut.into(),
        };
        Err(Error::Io { action: "write", path: self.path.clone(), source })
    }

    /// Whether the Secret does not hold yet what it should.
    async fn is_secret_behind(&self) -> bool {
        self.secret.lock().await.as_ref().is_some_and(|written| written.behind)
    }

    /// Has the Secret hold what the file holds; says so once if it cannot.
    async fn write_or_complain(&self) {
        let mut secret = self.secret.lock().await;
        let Some(written) = secret.as_mut() else { return };
        let Some(contents) = self.saved().clone() else {
            written.behind = true;
            return;
        };
        match written.write(&contents).await {
            Ok(()) => {}
            Err(Refused::Failed(why)) => written.complain(&why),
            Err(Refused::Superseded(why)) => {
                let place = written.place.to_string();
                self.superseded.send_replace(Some(Error::Superseded { place, why }.to_string()));
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

enum Refused {
    Failed(String),
    Superseded(String),
}

impl Written {
    /// Writes unless it is known to be there, and never over what is newer.
    async fn write(&mut self, contents: &Contents) -> Result<(), Refused> {
        for _ in 0..ROUNDS_MAX {
            if self.version.is_none() {
                match self.place.read().await.map_err(failed)? {
                    Stored::Nothing => {}
                    Stored::Unreadable { why: Unreadable::Damaged(_), version } => self.version = Some(version),
                    Stored::Unreadable { why: Unreadable::Newer { found: _, by }, version: _ } => {
                        return Err(Refused::Superseded(format!("version {by} of the agent wrote it since")));
                    }
                    Stored::Contents { contents: there, version } => {
                        // Only what may be written over is known by its version: who is refused looks again before it writes.
                        judge(&there, contents)?;
                        self.version = Some(version);
                        if *there == *contents {
                            self.settled();
                            return Ok(());
                        }
                    }
                }
            }
            match self.write_once(contents).await {
                Ok(()) => return Ok(()),
                Err(Failure::Conflict) => self.version = None,
                Err(failure) => return Err(failed(failure)),
            }
        }
        Err(Refused::Failed("it changes all the time".to_owned()))
    }

    async fn write_once(&mut self, contents: &Contents) -> Result<(), Failure> {
        self.behind = true;
        let version = match &self.version {
            Some(version) => self.place.replace(version, contents).await,
            None => self.place.create(contents).await,
        };
        self.version = Some(version?);
        self.settled();
        Ok(())
    }

    fn settled(&mut self) {
        self.behind = false;
        if std::mem::take(&mut self.complained) {
            info!("the Secret {} can be written again", self.place);
        }
    }

    fn complain(&mut self, why: &str) {
        self.behind = true;
        if !std::mem::replace(&mut self.complained, true) {
            warn!("the Secret {} cannot be written; it is tried again: {why}", self.place);
        }
    }
}

/// Whether this process may write over what is there.
fn judge(there: &Contents, ours: &Contents) -> Result<(), Refused> {
    let target = |contents: &Contents| contents.enrolled.as_ref().map(|enrolled| enrolled.target);
    let succeeds = target(there).is_some_and(|there| ours.formers.contains(&there)) || target(there) == target(ours);
    if succeeds && there.generation < ours.generation {
        return Ok(());
    }
    if there.seed != ours.seed || (target(there).is_some() && target(there) != target(ours)) {
        return Err(Refused::Superseded("it holds another identity now".to_owned()));
    }
    // Which of two homes holds the target is the hub's to say, and what is newer in the Secret is not written over.
    if there.session.number > ours.session.number {
        let why = format!("another home of this identity has session {}, and this one {}", there.session, ours.session);
        return Err(Refused::Failed(why));
    }
    Ok(())
}

fn failed(failure: Failure) -> Refused {
    Refused::Failed(match failure {
        Failure::Conflict => "it changes all the time".to_owned(),
        Failure::NotAllowed(why) | Failure::Unavailable(why) => why,
    })
}

/// Reads the Secret; waits for an API server that does not answer only where nothing else says who this agent is, and a
/// new identity must not be made in place of one that is there.
async fn read_patiently(place: &SecretPlace, known_otherwise: bool) -> Reading {
    let mut backoff = Backoff::new(READ_AGAIN.0, READ_AGAIN.1);
    let mut complained = false;
    loop {
        match place.read().await {
            Ok(stored) => return Reading::Done(stored),
            Err(Failure::NotAllowed(why)) => return Reading::Never(why),
            Err(Failure::Conflict) => {}
            Err(Failure::Unavailable(why)) if known_otherwise => return Reading::Later(why),
            Err(Failure::Unavailable(why)) => {
                if !std::mem::replace(&mut complained, true) {
                    warn!("the Secret {place} cannot be read now, and who this agent is is not known; it waits: {why}");
                }
            }
        }
        sleep(backoff.next_delay(None)).await;
    }
}
