//! File and Secret together: which is written when, and what becomes of what one of them refused.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use k8s_openapi::ByteString;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::file;
use super::super::secret::SecretRef;
use super::*;

/// A Secret in memory.
#[derive(Default)]
struct FakeSecret {
    secret: Option<Value>,
    version: u64,
    writes: u32,
    /// To these methods it answers with this code.
    refuses: (&'static [&'static str], u16),
}

const WRITES: &[&str] = &["POST", "PATCH"];
const ALL: &[&str] = &["GET", "POST", "PATCH"];

impl FakeSecret {
    fn answer(&mut self, method: &str, body: &[u8]) -> (u16, Value) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let status = |code: u16, reason: &str| {
            let message = format!("secrets \"agent\": {reason}");
            let kind = "Status";
            (code, json!({"kind": kind, "status": "Failure", "code": code, "reason": reason, "message": message}))
        };
        let present = Value::from(self.version.to_string());
        if self.refuses.0.contains(&method) {
            return status(self.refuses.1, "Refused");
        }
        match (method, &self.secret) {
            ("GET", Some(secret)) => (200, secret.clone()),
            ("GET" | "PATCH", None) => status(404, "NotFound"),
            ("POST", Some(_)) => status(409, "AlreadyExists"),
            ("PATCH", Some(_)) if body["metadata"]["resourceVersion"] != present => status(409, "Conflict"),
            _ => (200, self.put(&body["data"])),
        }
    }

    fn put(&mut self, data: &Value) -> Value {
        (self.version, self.writes) = (self.version + 1, self.writes + 1);
        let metadata = json!({"name": "agent", "namespace": "tideline", "resourceVersion": self.version.to_string()});
        let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data});
        self.secret = Some(secret.clone());
        secret
    }
}

fn fake_secret() -> (Arc<Mutex<FakeSecret>>, SecretRef) {
    let fake = Arc::new(Mutex::new(FakeSecret::default()));
    let served = Arc::clone(&fake);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let served = Arc::clone(&served);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let (code, answer) = served.lock().unwrap().answer(parts.method.as_str(), &body);
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(code).body(answer).unwrap())
        }
    });
    let client = kube::Client::new(service, "tideline");
    (fake, SecretRef { client, namespace: "tideline".to_owned(), name: "agent".to_owned() })
}

/// Another copy of the data directory, or another identity, has written there meanwhile.
#[tokio::test]
async fn a_secret_that_another_writer_owns_is_never_overwritten() -> Result<(), anyhow::Error> {
    let ours = contents(1, Some(5), 3, None);
    for there in [contents(1, Some(5), 4, None), contents(2, Some(6), 1, None)] {
        let (fake, reference) = fake_secret();
        let directory = tempfile::tempdir()?;
        file::save(&directory.path().join(file::FILE), &ours)?;
        let keeper =
            Found::load(directory.path(), None, Some(reference.clone()), SessionStore::Directory).await?.keep()?;
        assert_eq!(fake.lock().unwrap().writes, 1, "it is in the Secret before it is used");
        let foreign = json!({"identity.json": ByteString(there.encode())});
        fake.lock().unwrap().put(&foreign);
        for _ in 0..3 {
            keeper.copy_to_secret().await;
            assert_eq!(fake.lock().unwrap().secret.as_ref().unwrap()["data"], foreign);
        }
        let superseded = keeper.superseded().borrow().is_some();
        assert_eq!(
            superseded,
            there.seed != ours.seed,
            "of two homes of one identity the hub says which is to give way"
        );
        // An older one is overwritten again.
        let older = contents(1, Some(5), 2, None);
        fake.lock().unwrap().put(&json!({"identity.json": ByteString(older.encode())}));
        keeper.copy_to_secret().await;
        let data = fake.lock().unwrap().secret.as_ref().unwrap()["data"].clone();
        assert_eq!(data, json!({"identity.json": ByteString(ours.encode())}));
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_that_says_nothing_new_writes_nothing() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    let keeper =
        Found::load(directory.path(), Some(&token(1)), Some(reference), SessionStore::Directory).await?.keep()?;
    keeper.enrol(target(5), None).await?;
    let revoked = keeper.key().public();
    let before = fake.lock().unwrap().writes;
    for _ in 0..5 {
        keeper.revoked(&revoked).await?;
    }
    assert_eq!(fake.lock().unwrap().writes, before + 1, "the next key, once");
    Ok(())
}

/// Until it is dropped, the file in this directory cannot be written, not by root either.
struct Unwritable(std::path::PathBuf);

impl Unwritable {
    fn file_in(directory: &Path) -> Self {
        let obstacle = directory.join("identity.json.next");
        fs::create_dir(&obstacle).unwrap();
        Self(obstacle)
    }
}

impl Drop for Unwritable {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

/// A Secret that is ahead of the file has the next start take the journal for that of another process.
#[tokio::test]
async fn what_the_file_refused_is_not_written_to_the_secret() -> Result<(), anyhow::Error> {
    let (_fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    let load = || Found::load(directory.path(), None, Some(reference.clone()), SessionStore::Directory);
    file::save(&directory.path().join(file::FILE), &contents(1, Some(5), 3, Some(7)))?;
    let keeper = load().await?.keep()?;
    let unwritable = Unwritable::file_in(directory.path());
    keeper.keep_session(SessionName::new(4, 9), None).await.unwrap_err();
    keeper.enrol(target(6), None).await.unwrap_err();
    keeper.copy_to_secret().await;
    assert_eq!(load().await?.data(), Data::Current);
    assert_eq!(keeper.newest_session_and_floor().0, SessionName::new(3, 9), "what is not kept is not used");
    drop(unwritable);
    keeper.enrol(target(6), None).await?;
    let again = load().await?;
    assert_eq!(again.data(), Data::Current);
    let again = again.keep()?;
    assert_eq!((again.newest_session_and_floor().0, again.enrolled()), (SessionName::new(3, 9), Some(target(6))));
    Ok(())
}

#[tokio::test]
async fn an_enrolled_agent_starts_though_its_file_cannot_be_written() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    let load = |token| Found::load(directory.path(), token, Some(reference.clone()), SessionStore::Directory);
    let unwritable = Unwritable::file_in(directory.path());
    let other = token(1);
    assert!(load(Some(&other)).await?.keep().is_err(), "a key that is not on disk is used for nothing");
    fs::write(directory.path().join(file::FILE), contents(1, None, 0, None).encode())?;
    let ahead = json!({"identity.json": ByteString(contents(1, Some(5), 4, Some(8)).encode())});
    fake.lock().unwrap().put(&ahead);
    let keeper = load(None).await?.keep()?;
    assert_eq!(keeper.enrolled(), Some(target(5)));
    keeper.copy_to_secret().await;
    assert_eq!(fake.lock().unwrap().secret.as_ref().unwrap()["data"], ahead, "the file holds less");
    assert_eq!(load(None).await?.data(), Data::Outdated);
    drop(unwritable);
    keeper.keep_session(SessionName::new(5, 9), None).await?;
    assert_eq!(load(None).await?.data(), Data::Current);
    Ok(())
}

/// The disk did not let it be removed: were the file as new as the Secret, the next start would rely on it.
#[tokio::test]
async fn the_file_is_not_written_before_a_journal_that_is_out_of_date_is_gone() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    let load = || Found::load(directory.path(), None, Some(reference.clone()), SessionStore::Directory);
    file::save(&directory.path().join(file::FILE), &contents(1, Some(5), 3, Some(7)))?;
    let ahead = contents(1, Some(5), 4, Some(7));
    fake.lock().unwrap().put(&json!({"identity.json": ByteString(ahead.encode())}));
    let found = load().await?;
    assert_eq!(found.data(), Data::Outdated);
    let keeper = found.keep_unwritten();
    let refused = keeper.keep_session(SessionName::new(5, 9), None).await.unwrap_err();
    assert!(matches!(refused, Error::JournalFirst { .. }), "{refused}");
    keeper.copy_to_secret().await;
    assert_eq!(load().await?.data(), Data::Outdated);
    keeper.journal_is_removed().await;
    keeper.keep_session(SessionName::new(5, 9), None).await?;
    assert_eq!(load().await?.data(), Data::Current);
    Ok(())
}

/// The session in the Secret.
fn session_in(fake: &Mutex<FakeSecret>) -> Option<SessionName> {
    let fake = fake.lock().unwrap();
    let text: ByteString = serde_json::from_value(fake.secret.as_ref()?["data"]["identity.json"].clone()).unwrap();
    Some(Contents::decode(&text.0).unwrap().session)
}

/// A session in the data directory alone is lost with the node, and the next replica would be another agent to the hub.
#[tokio::test]
async fn a_replica_uses_no_session_and_no_key_that_is_not_in_the_secret() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    file::save(&directory.path().join(file::FILE), &contents(1, Some(5), 3, None))?;
    let keeper = Found::load(directory.path(), None, Some(reference), SessionStore::Secret).await?.keep()?;
    for code in [403, 503] {
        fake.lock().unwrap().refuses = (WRITES, code);
        let refused = keeper.keep_session(SessionName::new(4, 9), None).await.unwrap_err();
        assert!(matches!(refused, Error::SecretUnwritten { .. }), "{refused}");
        fake.lock().unwrap().refuses = (ALL, code);
        let unread = keeper.keep_session(SessionName::new(4, 9), None).await.unwrap_err();
        assert!(matches!(unread, Error::SecretUnread { .. }), "another replica may have written there: {unread}");
        assert!(keeper.read_stored_session().await.is_err());
    }
    assert_eq!(session_in(&fake), Some(SessionName::new(3, 9)));
    keeper.revoked(&keeper.key().public()).await?;
    keeper.enrolling_key().await.unwrap_err();
    fake.lock().unwrap().refuses = (&[], 0);
    assert_eq!(keeper.keep_session(SessionName::new(4, 9), None).await?, SessionName::new(4, 9));
    assert_eq!(session_in(&fake), Some(SessionName::new(4, 9)));
    assert_ne!(keeper.enrolling_key().await?.public(), keeper.key().public());
    Ok(())
}

/// Lets so much of a paused time pass.
async fn passes(time: Duration) {
    let _elapsed = timeout(time, pending::<()>()).await;
}

/// Waits until the Secret has this session.
async fn is_copied(fake: &Mutex<FakeSecret>, session: SessionName) {
    let copied = async {
        while session_in(fake) != Some(session) {
            passes(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_mins(10), copied).await.expect("it is tried again");
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_retried_though_nothing_new_is_to_be_written() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    file::save(&directory.path().join(file::FILE), &contents(1, Some(5), 3, None))?;
    let keeper = Arc::new(Found::load(directory.path(), None, Some(reference), SessionStore::Directory).await?.keep()?);
    let (newest, accepted) = watch::channel(None);
    let follows = tokio::spawn(Arc::clone(&keeper).follow(accepted));
    fake.lock().unwrap().refuses = (WRITES, 503);
    keeper.keep_session(SessionName::new(4, 9), None).await?;
    keeper.copy_to_secret().await;
    passes(Duration::from_mins(5)).await;
    fake.lock().unwrap().refuses = (&[], 0);
    is_copied(&fake, SessionName::new(4, 9)).await;

    let unwritable = Unwritable::file_in(directory.path());
    keeper.enrol(target(6), None).await.unwrap_err();
    passes(Duration::from_mins(5)).await;
    drop(unwritable);
    let kept = async {
        while file::read(&directory.path().join(file::FILE)).unwrap().unwrap().enrolled != Some(target(6)) {
            passes(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_mins(10), kept).await.expect("it is tried again");
    drop(newest);
    follows.await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_forbidden_at_the_start_is_not_given_up_by_who_is_known() -> Result<(), anyhow::Error> {
    for (methods, in_file, in_secret) in [(ALL, true, false), (WRITES, true, false), (WRITES, false, true)] {
        let (fake, reference) = fake_secret();
        let directory = tempfile::tempdir()?;
        let known = contents(1, Some(5), 3, None);
        if in_file {
            file::save(&directory.path().join(file::FILE), &known)?;
        }
        if in_secret {
            fake.lock().unwrap().put(&json!({"identity.json": ByteString(known.encode())}));
        }
        fake.lock().unwrap().refuses = (methods, 403);
        let moved = EnrolmentToken { seed: vec![3; 32], ..token(1) };
        let found = Found::load(directory.path(), Some(&moved), Some(reference), SessionStore::Directory).await?;
        let keeper = Arc::new(found.keep()?);
        let (_newest, accepted) = watch::channel(None);
        let follows = tokio::spawn(Arc::clone(&keeper).follow(accepted));
        keeper.keep_session(SessionName::new(4, 9), None).await?;
        keeper.copy_to_secret().await;
        fake.lock().unwrap().refuses = (&[], 0);
        is_copied(&fake, SessionName::new(4, 9)).await;
        follows.abort();
    }
    Ok(())
}

/// An agent in one data directory may have been meant to have no Secret; replicas share nothing else.
#[tokio::test(start_paused = true)]
async fn a_new_agent_starts_without_a_forbidden_secret_and_a_replica_waits_for_it() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    fake.lock().unwrap().refuses = (ALL, 403);
    let (one, two, given) = (tempfile::tempdir()?, tempfile::tempdir()?, token(1));
    let alone =
        Found::load(one.path(), Some(&given), Some(reference.clone()), SessionStore::Directory).await?.keep()?;
    alone.copy_to_secret().await;
    let loads = Found::load(two.path(), Some(&given), Some(reference), SessionStore::Secret);
    let mut loads = pin!(loads);
    assert!(timeout(Duration::from_mins(5), &mut loads).await.is_err());
    fake.lock().unwrap().refuses = (&[], 0);
    loads.await?.keep()?;
    assert_eq!(fake.lock().unwrap().writes, 1);
    Ok(())
}

/// What the Secret holds.
fn stored(fake: &Mutex<FakeSecret>) -> Contents {
    let fake = fake.lock().unwrap();
    let secret = fake.secret.as_ref().expect("there is a Secret");
    let text: ByteString = serde_json::from_value(secret["data"]["identity.json"].clone()).unwrap();
    Contents::decode(&text.0).unwrap()
}

/// Another replica was at work since; an API server that does not answer now hides that.
#[tokio::test(start_paused = true)]
async fn a_replica_does_nothing_before_it_has_read_the_secret_whatever_its_directory_says() -> Result<(), anyhow::Error>
{
    for code in [403, 503] {
        let (fake, reference) = fake_secret();
        let directory = tempfile::tempdir()?;
        file::save(&directory.path().join(file::FILE), &contents(1, Some(5), 3, Some(7)))?;
        let ahead = contents(1, Some(5), 9, Some(12));
        fake.lock().unwrap().put(&json!({"identity.json": ByteString(ahead.encode())}));
        fake.lock().unwrap().refuses = (ALL, code);
        let mut loads = pin!(Found::load(directory.path(), None, Some(reference), SessionStore::Secret));
        assert!(timeout(Duration::from_hours(1), &mut loads).await.is_err(), "{code}: it begins with what is old");
        fake.lock().unwrap().refuses = (&[], 0);
        let found = loads.await?;
        assert_eq!(found.data(), Data::Outdated, "{code}");
        assert_eq!(found.keep()?.newest_session_and_floor(), (ahead.session, ahead.floor), "{code}");
    }
    Ok(())
}

/// It was restored from a backup, and the Secret could not be read when its agent began.
#[tokio::test(start_paused = true)]
async fn a_directory_that_is_behind_never_lowers_the_floor_in_the_secret() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    file::save(&directory.path().join(file::FILE), &contents(1, Some(5), 3, Some(7)))?;
    let ahead = contents(1, Some(5), 3, Some(12));
    fake.lock().unwrap().put(&json!({"identity.json": ByteString(ahead.encode())}));
    fake.lock().unwrap().refuses = (ALL, 503);
    let load = || Found::load(directory.path(), None, Some(reference.clone()), SessionStore::Directory);
    let keeper = load().await?.keep()?;
    fake.lock().unwrap().refuses = (&[], 0);
    for session in 4..7 {
        keeper.keep_session(SessionName::new(session, 9), None).await?;
        keeper.copy_to_secret().await;
        let there = stored(&fake);
        assert_eq!((there.session, there.floor), (SessionName::new(session, 9), ahead.floor));
    }
    assert_eq!(load().await?.data(), Data::Outdated, "the journal is of a set that is older than the Secret's");
    Ok(())
}

/// An empty data directory beside a Secret that was forbidden for a moment: the next start has to find the identity there.
#[tokio::test(start_paused = true)]
async fn a_secret_that_was_forbidden_at_the_start_is_asked_for_again_and_its_identity_used() -> Result<(), anyhow::Error>
{
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    let known = contents(1, Some(5), 3, Some(7));
    let given = token(1);
    let there = json!({"identity.json": ByteString(known.encode())});
    fake.lock().unwrap().put(&there);
    fake.lock().unwrap().refuses = (ALL, 403);
    let load = || Found::load(directory.path(), Some(&given), Some(reference.clone()), SessionStore::Directory);
    let keeper = Arc::new(load().await?.keep()?);
    let (_newest, accepted) = watch::channel(None);
    let follows = tokio::spawn(Arc::clone(&keeper).follow(accepted));
    let found = keeper.found_in_secret();
    passes(Duration::from_mins(10)).await;
    assert!(!found.is_cancelled());
    fake.lock().unwrap().refuses = (&[], 0);
    timeout(Duration::from_mins(10), found.cancelled()).await.expect("it is asked for again");
    follows.abort();
    assert!(keeper.superseded().borrow().is_none(), "nobody else has taken it");
    assert_eq!(fake.lock().unwrap().secret.as_ref().unwrap()["data"], there, "it is not written over");
    let again = load().await?;
    assert_eq!(again.data(), Data::Outdated);
    assert_eq!((again.keep()?.key().seed(), known.enrolled), (known.seed.as_bytes(), Some(target(5))));
    Ok(())
}

/// The Secret could not be read when the agent began, and its data directory is behind: it was made while the Secret was
/// forbidden, or restored from before a key was replaced, or from before a handover.
#[tokio::test(start_paused = true)]
async fn a_data_directory_behind_an_unread_secret_learns_of_it_once_it_is_readable() -> Result<(), anyhow::Error> {
    let later = |contents: Contents| Contents { generation: 1, ..contents };
    let heir = Contents { formers: vec![target(5).target], ..later(contents(1, Some(6), 3, None)) };
    for (in_file, in_secret) in [
        (contents(2, None, 0, None), contents(1, Some(5), 3, Some(7))),
        (contents(1, Some(5), 3, None), later(contents(2, Some(5), 3, None))),
        (contents(1, Some(5), 3, None), heir),
    ] {
        for code in [403, 503] {
            let (fake, reference) = fake_secret();
            let directory = tempfile::tempdir()?;
            file::save(&directory.path().join(file::FILE), &in_file)?;
            let there = json!({"identity.json": ByteString(in_secret.encode())});
            fake.lock().unwrap().put(&there);
            fake.lock().unwrap().refuses = (ALL, code);
            let given = token(1);
            let load = || Found::load(directory.path(), Some(&given), Some(reference.clone()), SessionStore::Directory);
            let keeper = Arc::new(load().await?.keep()?);
            let (_newest, accepted) = watch::channel(None);
            let follows = tokio::spawn(Arc::clone(&keeper).follow(accepted));
            passes(Duration::from_mins(10)).await;
            let found = keeper.found_in_secret();
            assert!(!found.is_cancelled());
            fake.lock().unwrap().refuses = (&[], 0);
            timeout(Duration::from_mins(10), found.cancelled()).await.expect("it is read by now");
            follows.abort();
            assert!(keeper.superseded().borrow().is_none(), "nobody else has taken it");
            assert_eq!(fake.lock().unwrap().secret.as_ref().unwrap()["data"], there, "it is not written over");
            let again = load().await?.keep()?;
            assert_eq!((again.key().seed(), again.enrolled()), (in_secret.seed.as_bytes(), in_secret.enrolled.clone()));
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_that_read_the_secret_gives_way_to_one_that_replaces_the_key_there() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    file::save(&directory.path().join(file::FILE), &contents(1, Some(5), 3, None))?;
    let keeper = Found::load(directory.path(), None, Some(reference), SessionStore::Directory).await?.keep()?;
    let another = Contents { generation: 1, ..contents(2, Some(5), 3, None) };
    fake.lock().unwrap().put(&json!({"identity.json": ByteString(another.encode())}));
    keeper.keep_session(SessionName::new(4, 9), None).await?;
    keeper.copy_to_secret().await;
    assert!(keeper.superseded().borrow().is_some());
    assert!(!keeper.found_in_secret().is_cancelled());

    // The hub takes its key still, and offers it sessions.
    assert!(matches!(keeper.keep_session(SessionName::new(5, 9), None).await, Err(Error::Superseded { .. })));
    fake.lock().unwrap().refuses = (ALL, 503);
    assert!(matches!(keeper.keep_session(SessionName::new(6, 9), None).await, Err(Error::SecretUnwritten { .. })));
    fake.lock().unwrap().refuses = (&[], 0);
    fake.lock().unwrap().put(&json!({"identity.json": ByteString(contents(1, Some(5), 3, None).encode())}));
    assert_eq!(keeper.keep_session(SessionName::new(7, 9), None).await?, SessionName::new(7, 9));
    assert!(keeper.superseded().borrow().is_none());
    Ok(())
}

/// There was none yet, and the right to make one came later.
#[tokio::test(start_paused = true)]
async fn a_secret_that_was_forbidden_is_made_when_it_may_be() -> Result<(), anyhow::Error> {
    for methods in [ALL, WRITES] {
        let (fake, reference) = fake_secret();
        let directory = tempfile::tempdir()?;
        fake.lock().unwrap().refuses = (methods, 403);
        let found = Found::load(directory.path(), Some(&token(1)), Some(reference), SessionStore::Directory).await?;
        let keeper = Arc::new(found.keep()?);
        let (_newest, accepted) = watch::channel(None);
        let follows = tokio::spawn(Arc::clone(&keeper).follow(accepted));
        keeper.enrol(target(5), None).await?;
        keeper.keep_session(SessionName::new(4, 9), None).await?;
        passes(Duration::from_hours(1)).await;
        fake.lock().unwrap().refuses = (&[], 0);
        is_copied(&fake, SessionName::new(4, 9)).await;
        assert_eq!(stored(&fake).enrolled, Some(target(5)));
        follows.abort();
    }
    Ok(())
}

/// The file rots, or its disk cannot read it any more, while the process has its content in memory.
#[tokio::test]
async fn a_file_that_is_lost_under_a_running_agent_is_written_anew_with_its_next_session() -> Result<(), anyhow::Error>
{
    let directory = tempfile::tempdir()?;
    let path = directory.path().join(file::FILE);
    let keeper = open(directory.path(), Some(&token(1))).await?;
    keeper.enrol(target(5), None).await?;
    keeper.keep_session(SessionName::new(3, 9), None).await?;
    let is_whole = |session| {
        let read = file::read(&path).unwrap().unwrap();
        assert_eq!((read.session, read.enrolled), (SessionName::new(session, 9), Some(target(5))));
    };
    fs::write(&path, "\0\0\0")?;
    assert_eq!(keeper.keep_session(SessionName::new(4, 9), None).await?, SessionName::new(4, 9));
    is_whole(4);
    unreadable(&path)?;
    assert!(matches!(file::read(&path), Err(Error::Unread { .. })));
    assert_eq!(keeper.read_stored_session().await?, SessionName::new(4, 9), "it tells of no other process");
    assert_eq!(keeper.keep_session(SessionName::new(4, 9), None).await?, SessionName::new(4, 9));
    is_whole(4);
    // What a newer version wrote is left alone.
    let newer = fs::read_to_string(&path)?.replace("\"schema\":1", "\"schema\":2");
    fs::write(&path, &newer)?;
    let refused = keeper.keep_session(SessionName::new(5, 9), None).await.unwrap_err();
    assert!(matches!(refused, Error::Newer { .. }), "{refused}");
    assert_eq!(fs::read_to_string(&path)?, newer);
    Ok(())
}

/// Nobody can read it, root neither.
fn unreadable(path: &Path) -> std::io::Result<()> {
    fs::remove_file(path)?;
    std::os::unix::fs::symlink(path, path)
}

#[tokio::test(start_paused = true)]
async fn the_secret_serves_where_the_file_cannot_be_read() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    let path = directory.path().join(file::FILE);
    let known = contents(1, Some(5), 3, Some(7));
    file::save(&path, &known)?;
    unreadable(&path)?;
    let load = |reference| Found::load(directory.path(), None, reference, SessionStore::Directory);
    for reference in [None, Some(reference.clone())] {
        let alone = load(reference).await.map(drop).unwrap_err();
        assert!(matches!(alone, Error::Unread { .. }), "{alone}");
        assert!(alone.to_string().contains("restore it from a backup"), "{alone}");
    }
    fake.lock().unwrap().put(&json!({"identity.json": ByteString(known.encode())}));
    let found = load(Some(reference)).await?;
    assert_eq!(found.data(), Data::Outdated, "the file would say which session was its last");
    assert_eq!(found.keep()?.enrolled(), Some(target(5)));
    assert_eq!(file::read(&path)?, Some(known));
    Ok(())
}

/// Another replica may have written it: reading it as empty would make two agents.
#[tokio::test(start_paused = true)]
async fn a_replica_waits_for_a_damaged_secret_to_be_written_anew() -> Result<(), anyhow::Error> {
    let (fake, reference) = fake_secret();
    let directory = tempfile::tempdir()?;
    file::save(&directory.path().join(file::FILE), &contents(1, Some(5), 3, None))?;
    let keeper = Arc::new(Found::load(directory.path(), None, Some(reference), SessionStore::Secret).await?.keep()?);
    fake.lock().unwrap().put(&json!({"identity.json": ByteString(b"{}".to_vec())}));
    let unread = keeper.read_stored_session().await.unwrap_err();
    assert!(matches!(unread, Error::SecretUnread { .. }), "{unread}");
    keeper.keep_session(SessionName::new(4, 9), None).await.unwrap_err();
    let (_newest, accepted) = watch::channel(None);
    let follows = tokio::spawn(Arc::clone(&keeper).follow(accepted));
    let whole = async {
        while keeper.keep_session(SessionName::new(4, 9), None).await.is_err() {
            passes(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_mins(1), whole).await.expect("it is written anew");
    assert_eq!(session_in(&fake), Some(SessionName::new(4, 9)));
    follows.abort();
    Ok(())
}
