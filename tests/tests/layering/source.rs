//! A source file as the paths that it names: enough of Rust's grammar to see through `use` trees and renames, and
//! not to be taken in by comments and strings.

use std::collections::BTreeMap;

/// One file.
pub(crate) struct Source {
    /// Path from the root of the tree.
    pub(crate) name: String,
    /// Number of lines.
    pub(crate) lines: usize,
    tokens: Vec<Token>,
    /// Every path in the file, in full as far as its `use` declarations tell, with its line.
    paths: Vec<(usize, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    line: usize,
    text: String,
}

impl Source {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let tokens = tokens(text);
        let paths = paths(&tokens);
        Self { name: name.to_owned(), lines: text.lines().count(), tokens, paths }
    }

    /// Whether the file holds tests or serves them: `foo/tests.rs`, `foo/tests/…`, and the package of tests.
    pub(crate) fn is_test(&self) -> bool {
        self.name.starts_with("tests/") || self.name.contains("/tests/") || self.name.ends_with("/tests.rs")
    }

    /// Lines that name `path` or anything in it.
    pub(crate) fn naming(&self, path: &str) -> impl Iterator<Item = usize> {
        self.paths
            .iter()
            .filter(move |(_, named)| {
                named.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
                    // A glob of a module brings its items with it.
                    || named.strip_suffix("::*").is_some_and(|module| path.starts_with(&format!("{module}::")))
            })
            .map(|(line, _)| *line)
    }

    /// Every path in the file, in full as far as its `use` declarations tell.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|(_, path)| path.as_str())
    }

    /// Lines with the token `word`.
    pub(crate) fn lines_with(&self, word: &str) -> impl Iterator<Item = usize> {
        self.tokens.iter().filter(move |token| token.text == word).map(|token| token.line)
    }

    /// Lines that call the macro `name`, by whatever path.
    pub(crate) fn macros(&self, name: &str) -> impl Iterator<Item = usize> {
        self.tokens.windows(3).filter_map(move |window| {
            let [called, mark, open] = window else { return None };
            let calls = called.text == name && mark.text == "!" && ["(", "[", "{"].contains(&open.text.as_str());
            calls.then_some(called.line)
        })
    }

    /// Lines with the attribute `name`.
    pub(crate) fn attributes(&self, name: &str) -> impl Iterator<Item = usize> {
        self.tokens.windows(3).filter_map(move |window| {
            let [hash, bracket, attribute] = window else { return None };
            (hash.text == "#" && bracket.text == "[" && attribute.text == name).then_some(hash.line)
        })
    }
}

/// Splits into identifiers, `::` and single characters; drops blanks, comments, strings and character literals.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest).unwrap_or_else(|| {
            let length = match first {
                ':' if rest.starts_with("::") => 2,
                _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            tokens.push(Token { line, text: rest[..length].to_owned() });
            length
        });
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of the blank, comment or literal that `text` begins with, if it does.
fn skipped(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    if first.is_whitespace() {
        return Some(first.len_utf8());
    }
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(block_comment(text));
    }
    if first == '\'' {
        return character(text);
    }
    let literal = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - literal.len();
    if prefix <= 1 && literal.starts_with('"') {
        return Some(prefix + string(literal));
    }
    let hashes = literal.strip_prefix('r')?.trim_start_matches('#');
    if prefix > 1 || !hashes.starts_with('"') {
        return None;
    }
    let guard = literal.len() - 1 - hashes.len();
    let end = format!("\"{}", "#".repeat(guard));
    let body = &hashes[1..];
    Some(text.len() - body.len() + body.find(&end).map_or(body.len(), |at| at + end.len()))
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A quote begins a character literal, or a lifetime, which is no literal.
fn character(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    let (_, first) = characters.next()?;
    if first == '\\' {
        characters.next();
        return characters.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    characters.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

fn paths(tokens: &[Token]) -> Vec<(usize, String)> {
    let mut imports = Vec::new();
    let mut inline = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let token = &tokens[at];
        // `use<'a>` in a type captures lifetimes.
        let declares = token.text == "use" && tokens.get(at + 1).is_none_or(|next| next.text != "<");
        if declares {
            at = use_tree(tokens, at + 1, "", &mut imports);
        } else if token.text.starts_with(is_word) {
            let mut path = token.text.clone();
            at += 1;
            while at + 1 < tokens.len() && tokens[at].text == "::" && tokens[at + 1].text.starts_with(is_word) {
                path = format!("{path}::{}", tokens[at + 1].text);
                at += 2;
            }
            // A single word is a name of this file's own, unless it was imported and found there.
            if path.contains("::") {
                inline.push((token.line, path));
            }
        } else {
            at += 1;
        }
    }

    let aliases: BTreeMap<&str, &str> =
        imports.iter().map(|import| (import.alias.as_str(), import.path.as_str())).collect();
    let mut paths: Vec<(usize, String)> = imports.iter().map(|import| (import.line, import.path.clone())).collect();
    for (line, path) in inline {
        let (head, tail) = path.split_once("::").unwrap_or((&path, ""));
        let head = aliases.get(head).copied().unwrap_or(head);
        paths.push((line, format!("{head}::{tail}")));
    }
    paths
}

struct Import {
    line: usize,
    path: String,
    alias: String,
}

/// Reads one tree of a `use` declaration that begins at token `at`, and returns the index after it.
fn use_tree(tokens: &[Token], mut at: usize, prefix: &str, imports: &mut Vec<Import>) -> usize {
    let join = |prefix: &str, segment: &str| match prefix {
        "" => segment.to_owned(),
        prefix => format!("{prefix}::{segment}"),
    };
    let mut path = prefix.to_owned();
    let line = tokens.get(at).map_or(0, |token| token.line);
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.text.as_str() {
            "::" => {}
            "{" => loop {
                at = use_tree(tokens, at, &path, imports);
                if tokens.get(at).is_none_or(|token| token.text != ",") {
                    return at + 1;
                }
                at += 1;
            },
            "as" => {
                let alias = tokens.get(at).map_or_else(String::new, |token| token.text.clone());
                imports.push(Import { line, path, alias });
                return at + 1;
            }
            "self" if !prefix.is_empty() => {}
            segment if segment == "*" || segment.starts_with(is_word) => path = join(&path, segment),
            // The end of this tree: a comma, a brace, a semicolon.
            _ => {
                at -= 1;
                break;
            }
        }
    }
    let alias = path.rsplit("::").next().unwrap_or_default().to_owned();
    imports.push(Import { line, path, alias });
    at
}

#[cfg(test)]
mod tests {
    use super::Source;

    fn lines(text: &str, path: &str) -> Vec<usize> {
        Source::new("x.rs", text).naming(path).collect()
    }

    #[test]
    fn use_trees_and_renames_are_seen_through() {
        assert_eq!(lines("use std::{fmt, time::{Duration, Instant}};", "std::time::Instant"), [1]);
        assert_eq!(lines("use std::time;\nfn f() { time::Instant::now(); }", "std::time::Instant"), [2]);
        assert_eq!(lines("use std::time::{self};\nfn f(at: time::Instant) {}", "std::time::Instant"), [2]);
        assert_eq!(lines("use std::time::Instant as Now;\nfn f() { Now::now(); }", "std::time::Instant"), [1, 2]);
        assert_eq!(lines("use std::time::*;", "std::time::Instant"), [1]);
        assert_eq!(lines("fn f() -> sled::Result<()> {}", "sled"), [1]);
    }

    #[test]
    fn names_that_only_look_alike_are_not_taken() {
        assert_eq!(lines("use std::time::Duration;\nuse crate::sled::Engine;\nmod sled;", "std::time::Instant"), []);
        assert_eq!(lines("use crate::sled::Engine;\nmod sled;\nfn f(sled: u8) {}", "sled"), []);
        assert_eq!(lines("use sledge::Hammer;", "sled"), []);
    }

    #[test]
    fn captured_lifetimes_are_no_declaration() {
        assert_eq!(lines("fn f(x: &u8) -> impl Fn() + use<'_> { g(); sled::d }", "sled"), [1]);
        assert_eq!(lines("use a::{b, c::{d,},}; use sled::{}; use sled", "sled"), [1, 1]);
    }

    #[test]
    fn comments_and_literals_name_nothing() {
        assert_eq!(lines("/* /* sled::a */ sled::b */ // sled::c\nsled::d", "sled"), [2]);
        assert_eq!(lines(r##"let a = "sled::a\" sled::b"; let b = br#"sled::"c"#; sled::d"##, "sled"), [1]);
        assert_eq!(lines("let a = ['\"', '\\'']; sled::d; let b = '\"';", "sled"), [1]);
        assert_eq!(lines("fn f<'a>(x: &'a str) { sled::d }", "sled"), [1]);
    }

    #[test]
    fn a_clock_is_told_from_the_time_that_it_gives() {
        let data = "use jiff::Timestamp;\nfn f(at: Timestamp) -> bool { at.now() > now() }";
        assert_eq!(lines(data, "jiff::Timestamp::now"), []);
        assert_eq!(lines("use jiff::Timestamp;\nfn f() { Timestamp::now(); }", "jiff::Timestamp::now"), [2]);
        assert_eq!(lines("use jiff::{Timestamp as At, Unit};\nlet now = At::now;", "jiff::Timestamp::now"), [2]);
        assert_eq!(lines("let now = jiff::Timestamp::now();", "jiff::Timestamp::now"), [1]);
    }

    #[test]
    fn macros_are_seen_where_they_are_called() {
        let macros = |text: &str| Source::new("x.rs", text).macros("println").collect::<Vec<_>>();
        assert_eq!(macros("println!(\"a\");\nstd::println! {}\nprintln ![];"), [1, 2, 3]);
        assert_eq!(macros("eprintln!(); fn println() {}\nprintln(); println != a; // println!()"), []);
    }

    #[test]
    fn attributes_are_seen() {
        let source = Source::new("x.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}\nfn ignore() {}");
        assert_eq!(source.attributes("ignore").collect::<Vec<_>>(), [2]);
    }
}
