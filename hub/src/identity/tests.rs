use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use tideline_store::Revision;

use super::{Error, FILE, Identity, Rotation, refuse_of_agent, rotate};

const NEW: Revision = Revision(0);

#[test]
fn identity_is_made_once_and_only_the_owner_can_read_it() {
    tideline_runtime::tls::install_provider();
    let dir = tempfile::tempdir().expect("a directory");
    let made = Identity::open(dir.path(), NEW).expect("it is made");
    let read = Identity::open(dir.path(), Revision(7)).expect("it is read");
    assert_eq!(made.hub, read.hub);
    assert_eq!(made.key.public(), read.key.public());
    assert_eq!(made.authority.certificate_der(), read.authority.certificate_der());
    assert_eq!(made.admin_token, read.admin_token);
    let mode = fs::metadata(dir.path().join(FILE)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn damaged_or_unknown_identity_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(FILE);
    fs::write(&path, "{\"schema\": 1, \"hub").expect("it is written");
    assert!(matches!(Identity::open(dir.path(), NEW), Err(Error::Damaged { .. })));
    fs::write(&path, "{\"schema\": 2}").expect("it is written");
    assert!(matches!(Identity::open(dir.path(), NEW), Err(Error::Schema { found: 2, .. })));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "{\"schema\": 2}");
}

#[test]
fn no_identity_is_made_for_a_store_that_was_begun_under_another() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(matches!(Identity::open(dir.path(), Revision(1)), Err(Error::Missing { .. })));
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
}

#[test]
fn whose_identity_it_was_it_stays_when_root_replaces_the_authority() {
    tideline_runtime::tls::install_provider();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(FILE);
    Identity::open(dir.path(), NEW).expect("it is made");
    let owner = || fs::metadata(&path).map(|file| (file.uid(), file.gid())).expect("it is there");
    // Nobody but root gives a file to another user.
    let hubs = if owner().0 == 0 { (64_198, 64_199) } else { owner() };
    chown(&path, Some(hubs.0), Some(hubs.1)).expect("it is the hub's");
    rotate(dir.path(), Rotation::Prepare).expect("it is written");
    assert_eq!(owner(), hubs);
}

#[test]
fn what_is_written_follows_no_link() {
    tideline_runtime::tls::install_provider();
    let (dir, elsewhere) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let path = dir.path().join(FILE);
    Identity::open(dir.path(), NEW).expect("it is made");
    let (there, not_there) = (elsewhere.path().join("there"), elsewhere.path().join("not-there"));
    fs::write(&there, "not the hub's").expect("it is written");
    for (step, to) in [(Rotation::Prepare, &there), (Rotation::Switch, &not_there)] {
        symlink(to, path.with_extension("new")).expect("it is linked");
        rotate(dir.path(), step).expect("it is written");
        assert!(fs::symlink_metadata(&path).expect("it is there").is_file());
    }
    assert_eq!(fs::read_to_string(&there).expect("it is there"), "not the hub's");
    assert!(!not_there.exists());
    // What a link leads to may be anybody's.
    let moved = elsewhere.path().join(FILE);
    fs::rename(&path, &moved).expect("it is moved");
    symlink(&moved, &path).expect("it is linked");
    let before = fs::read(&moved).expect("it is there");
    rotate(dir.path(), Rotation::Retire).expect("it is written");
    assert!(fs::symlink_metadata(&path).expect("it is there").is_file());
    assert_eq!(fs::read(&moved).expect("it is there"), before);
}

#[test]
fn the_directory_of_an_agent_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    refuse_of_agent(dir.path()).expect("it is empty");
    refuse_of_agent(&dir.path().join("none")).expect("it is made");
    let path = dir.path().join(FILE);
    let text = r#"{"schema": 1, "writtenBy": "0.1.0", "sha256": "s", "contents": {"seed": "s"}}"#;
    fs::write(&path, text).expect("it is written");
    assert!(matches!(refuse_of_agent(dir.path()), Err(Error::OfAgent(_))));
    assert!(matches!(rotate(dir.path(), Rotation::Prepare), Err(Error::OfAgent(_))));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
    fs::remove_file(&path).expect("it is removed");
    fs::create_dir(dir.path().join("journal")).expect("it is made");
    assert!(matches!(refuse_of_agent(dir.path()), Err(Error::OfAgent(_))));
}
