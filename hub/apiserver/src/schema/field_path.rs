//! Where a value is in a document.

use std::fmt::{self, Write as _};

/// The steps to a value, each beside the one before it. They are written as text only where something is said of the value: a name
/// may have a megabyte, with thousands of values below it, and of most of them nothing is said.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldPath<'a> {
    /// Steps that are text already; empty for the document itself.
    Text(&'a str),
    Field(&'a FieldPath<'a>, &'a str),
    /// An entry of a map, as in `properties[spec]`.
    Key(&'a FieldPath<'a>, &'a str),
    Index(&'a FieldPath<'a>, usize),
}

/// Bytes shown of one name. A name of a Kubernetes object has 253 at most; a path has as many names as an object has levels.
const NAME_BYTES_SHOWN_MAX: usize = 256;

impl<'a> FieldPath<'a> {
    pub(crate) const ROOT: FieldPath<'static> = FieldPath::Text("");

    #[must_use]
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    #[must_use]
    pub(crate) fn key(&'a self, name: &'a str) -> Self {
        Self::Key(self, name)
    }

    #[must_use]
    pub(crate) fn index(&'a self, at: usize) -> Self {
        Self::Index(self, at)
    }

    fn is_root(&self) -> bool {
        matches!(self, Self::Text(""))
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Field(parent, name) => {
                parent.fmt(f)?;
                if !parent.is_root() {
                    f.write_char('.')?;
                }
                write_cut(f, name, NAME_BYTES_SHOWN_MAX)
            }
            Self::Key(parent, name) => {
                parent.fmt(f)?;
                f.write_char('[')?;
                write_cut(f, name, NAME_BYTES_SHOWN_MAX)?;
                f.write_char(']')
            }
            Self::Index(parent, at) => {
                parent.fmt(f)?;
                write!(f, "[{at}]")
            }
        }
    }
}

/// The beginning of a text, of so many bytes at most.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn write_cut(f: &mut fmt::Formatter<'_>, text: &str, most: usize) -> fmt::Result {
    let shown = beginning(text, most);
    f.write_str(shown)?;
    if shown.len() < text.len() { f.write_char('…') } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_kubernetes_writes_it() {
        let spec = FieldPath::ROOT.field("spec");
        let containers = spec.field("containers");
        let container = containers.index(2);
        assert_eq!(container.field("name").to_string(), "spec.containers[2].name");
        assert_eq!(FieldPath::Text("schema").field("properties").key("a.b").to_string(), "schema.properties[a.b]");
    }

    #[test]
    fn a_long_name_is_cut() {
        let long = "é".repeat(1_000_000);
        assert_eq!(FieldPath::ROOT.field(&long).to_string(), format!("{}…", "é".repeat(128)));
    }
}
