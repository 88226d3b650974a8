//! The shape of the tree, read from its manifests and from the paths that its sources name.
//!
//! The tables at the top are the rules. A rule that gets in the way is changed here, in the same commit as the code, and
//! ARCHITECTURE.md with it.

mod architecture;
mod imports;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Which of our own packages a package may depend on (dev-dependencies are free). The tests see all.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("common", &[]),
    ("common/runtime", &["tideline-common"]),
    ("agent", &["tideline-common", "tideline-runtime"]),
    ("hub/api", &["tideline-common"]),
    ("hub/store", &[]),
    ("hub/apiserver", &["tideline-store"]),
    ("hub", &["tideline-common", "tideline-runtime", "tideline-api", "tideline-store", "tideline-apiserver"]),
];

/// Packages of others that a package must not depend on.
const MUST_NOT_DEPEND_ON: &[(&str, &[&str])] =
    &[("common", &["tokio", "futures", "kube", "tracing", "reqwest", "hyper", "axum"]), ("hub/apiserver", &["kube"])];

/// Pure modules besides those of which ARCHITECTURE.md says it.
const PURE: &[&str] = &["common/src"];

/// What a pure module must not name.
const IMPURE: &[&str] = &[
    "tokio",
    "tracing",
    "kube",
    "reqwest",
    "axum",
    "hyper",
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "uuid::Uuid::new_v4",
    "ring::rand::SystemRandom",
];

/// What a pure module must not print with.
const PRINTING: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

/// A dependency that few modules name, so that it can be replaced.
struct Vendor {
    name: &'static str,
    /// Where it may be named: files or folders, as in [`PURE`].
    within: &'static [&'static str],
    /// In how many files of each of these.
    files_max: usize,
}

const VENDORS: &[Vendor] = &[
    Vendor { name: "sled", within: &["agent/src/journal"], files_max: 1 },
    Vendor { name: "backoff", within: &["common/runtime/src/retry"], files_max: 1 },
    Vendor { name: "rusqlite", within: &["hub/store/src/sqlite"], files_max: usize::MAX },
    Vendor { name: "reqwest", within: &["agent/src"], files_max: 1 },
    Vendor { name: "hyper_rustls", within: &["agent/src/cluster/connect"], files_max: 1 },
    Vendor { name: "rustls_native_certs", within: &["agent/src/certificates"], files_max: 1 },
    Vendor {
        name: "rcgen",
        within: &["hub/src", "tests/src", "common/runtime/src/tls/tests", "agent/src/certificates/tests"],
        files_max: 1,
    },
    Vendor { name: "prometheus_client", within: &["common/runtime/src", "agent/src", "hub"], files_max: usize::MAX },
];

/// Packages of which the files, and the folders, name each other one way only.
const ONE_WAY: &[&str] =
    &["common/src", "common/runtime/src", "agent/src", "hub/api/src", "hub/apiserver/src", "hub/src", "hub/store/src"];

/// Rooms of the agent's core that are below its steps: each is a function of what it is given, and cannot reach the rest.
const WITHOUT_THE_CORE: &[&str] = &["agent/src/core/interface", "agent/src/core/model", "agent/src/core/decide"];

/// Functions that give a channel without a bound.
const UNBOUNDED: &[&str] =
    &["std::sync::mpsc::channel", "tokio::sync::mpsc::unbounded_channel", "futures::channel::mpsc::unbounded"];

/// Waits on time instead of a value.
const SLEEPS: &[&str] = &["std::thread::sleep", "tokio::time::sleep", "tokio::time::sleep_until"];

/// The bounded wait itself, the wire whose delay is what a test asks for, and the benches whose subject is passing time.
const MAY_SLEEP: &[&str] = &[
    "tests/src/wait",
    "tests/src/relay",
    "tests/benches/rest",
    "tests/benches/upkeep",
    "tests/benches/journal",
    "tests/benches/fleet",
];

/// Longest source file, in lines: the habit is 600, and a file just over is not worth a build that fails.
const LINES_MAX: usize = 700;

#[test]
fn packages_depend_only_downwards() {
    let mut faults = Vec::new();
    for (package, allowed) in MAY_DEPEND_ON {
        for dependency in dependencies(package) {
            if dependency.starts_with("tideline-") && !allowed.contains(&dependency.as_str()) {
                faults.push(format!("{package} depends on {dependency}"));
            }
        }
    }
    for (package, forbidden) in MUST_NOT_DEPEND_ON {
        for dependency in dependencies(package) {
            if forbidden.contains(&dependency.as_str()) {
                faults.push(format!("{package} depends on {dependency}"));
            }
        }
    }
    report("dependencies against the direction in ARCHITECTURE.md", &faults);
}

/// A rule of what does not exist would hold in silence, and so would one that a new package is not under.
#[test]
fn what_the_tables_name_exists_and_every_package_is_named() {
    let sources = sources();
    let within = VENDORS.iter().flat_map(|vendor| vendor.within);
    let paths = [PURE, ONE_WAY, WITHOUT_THE_CORE, MAY_SLEEP].into_iter().flatten().chain(within);
    let missing = paths.filter(|path| !sources.iter().any(|source| is_within(source, &[path])));
    let mut faults: Vec<_> = missing.map(|path| format!("{path} holds no source")).collect();

    let members = members();
    let names: Vec<String> = members.iter().map(|member| name(member)).collect();
    let tables = [MAY_DEPEND_ON, MUST_NOT_DEPEND_ON];
    let named = tables.into_iter().flatten().map(|(package, _)| *package);
    faults.extend(
        named.filter(|package| !members.iter().any(|it| it == package)).map(|it| format!("{it} is no package")),
    );
    let allowed = MAY_DEPEND_ON.iter().flat_map(|(_, allowed)| *allowed);
    faults.extend(allowed.filter(|name| !names.iter().any(|it| it == *name)).map(|it| format!("{it} is no package")));
    for member in members.iter().filter(|member| *member != "tests") {
        if !MAY_DEPEND_ON.iter().any(|(package, _)| package == member) {
            faults.push(format!("MAY_DEPEND_ON lacks {member}"));
        }
        if !ONE_WAY.contains(&format!("{member}/src").as_str()) {
            faults.push(format!("ONE_WAY lacks {member}/src"));
        }
    }
    report("tables of this test that miss the tree", &faults);
}

#[test]
fn every_room_of_the_architecture_exists() {
    let rooms = rooms();
    let missing = rooms.iter().flat_map(|room| &room.paths).filter(|path| !exists(path));
    report("rooms in ARCHITECTURE.md that do not exist", &missing.cloned().collect::<Vec<_>>());
}

/// The table in the journal says why each of its mechanisms is there.
#[test]
fn every_mechanism_of_the_journal_has_the_tests_that_it_names() {
    let text = fs::read_to_string(root().join("agent/src/journal.rs")).expect("it is readable UTF-8");
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | ")?.strip_suffix(" |")).skip(1);
    let named: Vec<&str> = rows.filter_map(|row| row.rsplit('|').next()).flat_map(architecture::quoted).collect();
    assert!(named.len() > 10, "the table of the journal names only {} tests", named.len());
    let mut files = Vec::new();
    collect(&root().join("agent/src/journal"), &mut files);
    let tests: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    let missing = named.into_iter().filter(|name| !tests.contains(&format!("fn {name}(")));
    report("tests that the table of the journal names", &missing.map(str::to_owned).collect::<Vec<_>>());
}

#[test]
fn pure_modules_name_nothing_impure() {
    let sources = sources();
    let rooms = rooms();
    let said = rooms.iter().flat_map(|room| &room.pure).map(|path| path.trim_end_matches(".rs"));
    let pure: Vec<&str> = PURE.iter().copied().chain(said).collect();
    let missing = pure.iter().filter(|path| !sources.iter().any(|source| is_within(source, &[*path])));
    let mut faults: Vec<_> = missing.map(|path| format!("{path} does not exist")).collect();
    for source in sources.iter().filter(|source| !source.is_test() && is_within(source, &pure)) {
        for path in IMPURE {
            faults.extend(source.naming(path).map(|line| format!("{}:{line} names {path}", source.name)));
        }
        for name in PRINTING {
            faults.extend(source.macros(name).map(|line| format!("{}:{line} calls {name}!", source.name)));
        }
        faults.extend(source.lines_with("async").map(|line| format!("{}:{line} is async", source.name)));
    }
    report("impure code in pure modules", &faults);
}

#[test]
fn a_vendor_is_named_in_one_module() {
    let mut faults = Vec::new();
    let sources = sources();
    for vendor in VENDORS {
        let naming: Vec<&Source> =
            sources.iter().filter(|source| source.naming(vendor.name).next().is_some()).collect();
        for source in naming.iter().filter(|source| !is_within(source, vendor.within)) {
            faults.push(format!("{} names {}", source.name, vendor.name));
        }
        for path in vendor.within {
            let files: Vec<&str> =
                naming.iter().filter(|source| is_within(source, &[path])).map(|source| source.name.as_str()).collect();
            if files.len() > vendor.files_max {
                faults.push(format!("{} is named in {} files: {}", vendor.name, files.len(), files.join(", ")));
            }
        }
    }
    report("dependencies named outside their one place", &faults);
}

#[test]
fn files_and_folders_name_each_other_one_way() {
    let sources = sources();
    let faults: Vec<String> = ONE_WAY.iter().flat_map(|root| imports::circles(root, &sources)).collect();
    report("files or folders that name each other in a circle", &faults);
}

#[test]
fn what_is_below_the_steps_of_the_core_does_not_know_it() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test() && is_within(source, WITHOUT_THE_CORE)) {
        faults.extend(source.lines_with("Core").map(|line| format!("{}:{line} names Core", source.name)));
    }
    report("rooms that are given what they need, and name the whole core", &faults);
}

#[test]
fn every_channel_is_bounded() {
    let mut faults = Vec::new();
    for source in &sources() {
        for path in UNBOUNDED {
            faults.extend(source.naming(path).map(|line| format!("{}:{line} names {path}", source.name)));
        }
    }
    report("channels without a bound", &faults);
}

#[test]
fn tests_wait_on_values_and_are_never_ignored() {
    let mut faults = Vec::new();
    for source in &sources() {
        faults.extend(source.attributes("ignore").map(|line| format!("{}:{line} ignores a test", source.name)));
        if source.is_test() && !is_within(source, MAY_SLEEP) {
            for path in SLEEPS {
                faults.extend(source.naming(path).map(|line| format!("{}:{line} names {path}", source.name)));
            }
        }
    }
    report("sleeping or ignored tests", &faults);
}

#[test]
fn files_stay_readable() {
    let faults: Vec<String> = sources()
        .iter()
        .filter(|source| source.lines > LINES_MAX)
        .map(|source| format!("{} has {} lines", source.name, source.lines))
        .collect();
    report(&format!("files of more than {LINES_MAX} lines"), &faults);
}

fn report(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{what}:\n  {}", faults.join("\n  "));
}

/// Whether there is such a file or folder; a module needs no suffix.
fn exists(path: &str) -> bool {
    root().join(path).exists() || root().join(format!("{path}.rs")).exists()
}

/// The rooms of ARCHITECTURE.md, of which there are many.
fn rooms() -> Vec<architecture::Room> {
    let rooms = architecture::rooms(&fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is readable UTF-8"));
    assert!(rooms.len() > 10, "ARCHITECTURE.md has only {} rooms", rooms.len());
    rooms
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the tree")
}

/// Whether the file is at one of the paths, or below: `a/b` stands for `a/b.rs` and all of `a/b/`; a longer file name
/// (`a/b_c.rs`) is another module.
fn is_within(source: &Source, paths: &[&str]) -> bool {
    paths.iter().any(|path| source.name.strip_prefix(path).is_some_and(|rest| rest == ".rs" || rest.starts_with('/')))
}

/// The packages of the workspace, by their folders.
fn members() -> Vec<String> {
    let manifest = manifest("");
    let list = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.expect("the workspace lists its members");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// By what name others depend on a package.
fn name(package: &str) -> String {
    let manifest = manifest(package);
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
    name.expect("a package has a name").trim_matches('"').to_owned()
}

fn manifest(package: &str) -> String {
    let path = root().join(package).join("Cargo.toml");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{} cannot be read: {error}", path.display()))
}

/// Reads the package's dependencies, less those for tests and builds.
fn dependencies(package: &str) -> Vec<String> {
    let manifest = manifest(package);
    let mut in_dependencies = false;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_dependencies =
                section == "dependencies" || (section.starts_with("target.") && section.ends_with(".dependencies"));
            found.extend(section.strip_prefix("dependencies.").map(str::to_owned));
        } else if in_dependencies && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.extend((!name.is_empty()).then(|| name.to_owned()));
        }
    }
    found
}

/// Reads every Rust source of the tree.
fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    collect(root(), &mut files);
    files.sort();
    let sources: Vec<Source> = files
        .iter()
        .map(|file| {
            let name = file.strip_prefix(root()).expect("found under the root").display().to_string();
            Source::new(&name, &fs::read_to_string(file).expect("sources are readable UTF-8"))
        })
        .collect();
    assert!(sources.len() > 10, "found only {} sources under {}", sources.len(), root().display());
    sources
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("folders are readable") {
        let path = entry.expect("entries are readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, files);
            }
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}
