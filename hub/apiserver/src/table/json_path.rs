//! The part of JSONPath that printer columns use: fields, indexes, `[*]`, and filters `[?(@.a=="b")]`.

use serde_json::Value;

/// All values at a path such as `.status.conditions[?(@.type=="Ready")].status`.
pub(super) fn find<'a>(path: &str, object: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    while !rest.is_empty() && !found.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let Some(end) = closing(inner) else { return Vec::new() };
            found = step(&inner[..end], &found);
            rest = &inner[end + 1..];
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = field_end(name);
            // `\.` is a dot within a name.
            let field = name[..end].replace("\\.", ".");
            found = if field == "*" {
                found.into_iter().flat_map(children).collect()
            } else {
                found.into_iter().filter_map(|value| value.get(&field)).collect()
            };
            rest = &name[end..];
        }
    }
    found
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn field_end(name: &str) -> usize {
    let mut escaped = false;
    for (at, character) in name.char_indices() {
        match character {
            '\\' => escaped = !escaped,
            '.' | '[' if !escaped => return at,
            _ => escaped = false,
        }
    }
    name.len()
}

/// Where the bracket that was opened before `text` closes; quotes hide brackets.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (Some(_) | None, _) => {}
        }
    }
    None
}

fn unquote(text: &str) -> &str {
    let text = text.trim();
    let quoted = |quote| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    quoted('"').or_else(|| quoted('\'')).unwrap_or(text)
}

fn step<'a>(inner: &str, found: &[&'a Value]) -> Vec<&'a Value> {
    if inner == "*" {
        return found.iter().flat_map(|value| children(value)).collect();
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return found.iter().flat_map(|value| children(value)).filter(|item| holds(filter, item)).collect();
    }
    if let Ok(index) = inner.parse::<i64>() {
        let at = |items: &'a Vec<Value>| {
            let length = i64::try_from(items.len()).ok()?;
            items.get(usize::try_from(if index < 0 { length + index } else { index }).ok()?)
        };
        return found.iter().filter_map(|value| value.as_array().and_then(at)).collect();
    }
    let name = unquote(inner);
    found.iter().filter_map(|value| value.get(name)).collect()
}

fn holds(filter: &str, item: &Value) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (operator, equal) in [("==", true), ("!=", false)] {
        if let Some((left, right)) = filter.split_once(operator) {
            let left = find(left.trim().trim_start_matches('@'), item);
            return left.first().is_some_and(|value| text(value) == unquote(right)) == equal;
        }
    }
    !find(filter.trim().trim_start_matches('@'), item).is_empty()
}
