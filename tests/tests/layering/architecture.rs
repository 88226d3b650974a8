//! The rooms of ARCHITECTURE.md, as far as a machine can hold them.

/// One row of the table of rooms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Files and folders, from the root of the tree.
    pub(crate) paths: Vec<String>,
    /// Those of them, or modules in them, of which the rule says that they are pure.
    pub(crate) pure: Vec<String>,
}

/// The rows of the section "Rooms".
pub(crate) fn rooms(text: &str) -> Vec<Room> {
    let section = text.lines().skip_while(|line| *line != "## Rooms").skip(1);
    section.take_while(|line| !line.starts_with("## ")).filter_map(room).collect()
}

fn room(line: &str) -> Option<Room> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let [folder, _, rule] = cells.as_slice() else { return None };
    let paths: Vec<String> = quoted(folder).flat_map(expand).collect();
    if paths.is_empty() {
        return None;
    }
    let mut pure = Vec::new();
    for clause in rule.split([';', ',']).map(str::trim) {
        if clause.starts_with("pure") {
            pure.extend(paths.iter().cloned());
        } else if clause.split(' ').any(|word| word == "pure") {
            pure.extend(quoted(clause).flat_map(|name| paths.iter().map(move |path| format!("{path}/{name}"))));
        }
    }
    Some(Room { paths, pure })
}

/// The text between backquotes.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`; a folder may end with a slash.
fn expand(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (names, after))) => names.split(',').map(|name| format!("{before}{name}{after}")).collect(),
        None => vec![path.trim_end_matches('/').to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::{Room, rooms};

    #[test]
    fn rooms_and_what_is_pure_of_them_are_read() {
        let text = "## Rooms\n\n| folder | what | rule |\n|---|---|---|\n| `a/{b,c}.rs`, `d/` | it | pure, and small |\n\
                    | `e` | them | `f` and `g` are pure; `h` is not |\n| `i` | that | |\n\n## Next\n| `x` | y | pure |\n";
        let room = |paths: &[&str], pure: &[&str]| Room {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            pure: pure.iter().map(|path| (*path).to_owned()).collect(),
        };
        assert_eq!(
            rooms(text),
            [
                room(&["a/b.rs", "a/c.rs", "d"], &["a/b.rs", "a/c.rs", "d"]),
                room(&["e"], &["e/f", "e/g"]),
                room(&["i"], &[])
            ]
        );
    }
}
