//! Which file names which, and where that goes round in a circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// Which files and folders of one folder name which: a file that names one elsewhere counts for the ancestor of that in the
/// folder.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Circles among the files below `root`, or among its folders, each as its path. A file may name its parent, as `foo/bar.rs`
/// may name what is in `foo.rs`: that is its context.
pub(crate) fn circles(root: &str, sources: &[Source]) -> Vec<String> {
    let modules: BTreeMap<Vec<&str>, &Source> = sources
        .iter()
        .filter(|source| !source.is_test())
        .filter_map(|source| Some((module_of(root, &source.name)?, source)))
        .collect();
    let mut graphs: BTreeMap<Vec<&str>, Graph> = BTreeMap::new();
    for (module, source) in &modules {
        for path in source.named() {
            let Some(named) = resolve(module, path, &modules) else { continue };
            let shared = module.iter().zip(&named).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(shared), named.get(shared)) {
                let graph = graphs.entry(module[..shared].to_vec()).or_default();
                graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            }
        }
    }
    let circle = |(folder, graph): (&Vec<&str>, &Graph)| {
        let path = [root].iter().chain(folder).copied().collect::<Vec<_>>().join("/");
        let circle = circle(graph)?;
        Some(format!("{path}: {}", circle.join(" -> ")))
    };
    graphs.iter().filter_map(circle).collect()
}

/// The path of the module that a file below `root` is.
fn module_of<'a>(root: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let module = name.strip_prefix(root)?.strip_prefix('/')?.strip_suffix(".rs")?;
    Some(if matches!(module, "lib" | "main") { Vec::new() } else { module.split('/').collect() })
}

/// The module that a path in `module` leads to; none if that is in another package, or in no file of its own.
fn resolve<'a>(module: &[&'a str], path: &'a str, modules: &BTreeMap<Vec<&'a str>, &Source>) -> Option<Vec<&'a str>> {
    let mut at = module.to_vec();
    let mut segments = path.split("::").peekable();
    match segments.peek().copied()? {
        "crate" => {
            at.clear();
            segments.next();
        }
        "self" => {
            segments.next();
        }
        "super" => {
            while segments.next_if_eq(&"super").is_some() {
                at.pop()?;
            }
        }
        child => {
            at.push(child);
            if !modules.contains_key(&at) {
                return None;
            }
            at.pop();
        }
    }
    for segment in segments {
        at.push(segment);
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    modules.contains_key(&at).then_some(at)
}

/// One circle of a graph, from a node back to it.
fn circle(graph: &Graph) -> Option<Vec<&str>> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| circle_from(start, graph, &mut Vec::new(), &mut done))
}

fn circle_from<'a>(
    node: &'a str,
    graph: &'a Graph,
    way: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(at) = way.iter().position(|passed| *passed == node) {
        return Some(way[at..].iter().copied().chain([node]).collect());
    }
    if !done.insert(node) {
        return None;
    }
    way.push(node);
    let found = graph.get(node).into_iter().flatten().find_map(|next| circle_from(next, graph, way, done));
    way.pop();
    found
}

#[cfg(test)]
mod tests {
    use super::circles;
    use crate::source::Source;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files.iter().map(|(name, text)| Source::new(name, text)).collect();
        circles("a/src", &sources)
    }

    #[test]
    fn files_that_name_each_other_are_a_circle() {
        let b = ("a/src/b.rs", "use super::c::C;");
        assert_eq!(found(&[b, ("a/src/c.rs", "fn f() { crate::b::g() }")]), ["a/src: b -> c -> b"]);
        assert_eq!(found(&[b, ("a/src/c.rs", "use crate::d;"), ("a/src/d.rs", "use super::b::B;")]).len(), 1);
        assert!(found(&[b, ("a/src/c.rs", "use crate::d;"), ("a/src/d.rs", "")]).is_empty());
    }

    #[test]
    fn folders_are_one_as_seen_from_outside() {
        let files = [
            ("a/src/x.rs", ""),
            ("a/src/x/b.rs", "use crate::y::c::C;"),
            ("a/src/x/e.rs", ""),
            ("a/src/y.rs", ""),
            ("a/src/y/c.rs", ""),
            ("a/src/y/d.rs", "use crate::x::e::E;"),
        ];
        assert_eq!(found(&files), ["a/src: x -> y -> x"]);
    }

    #[test]
    fn a_file_may_name_what_holds_it_and_what_it_holds() {
        assert!(
            found(&[("a/src/x.rs", "use b::B;"), ("a/src/x/b.rs", "use super::X; use super::super::L;")]).is_empty()
        );
        assert!(found(&[("a/src/lib.rs", "use x::b::B;"), ("a/src/x/b.rs", "use crate::L;")]).is_empty());
    }
}
