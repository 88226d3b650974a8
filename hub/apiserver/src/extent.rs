//! How deep and how large values are. How deep they may be is one bound for all that is stored, whoever writes it and in whatever
//! form.

use serde_json::Value;

/// Objects and lists within one another that a reader takes: `serde_json` refuses the 128th. Clients in other languages take more.
pub(crate) const READ_DEPTH_MAX: usize = 127;
/// Those around an object when it is read: a watch event, in it a table, its rows, and a row, which is four. The rest is for
/// what readers put around it themselves.
const ENVELOPE_DEPTH_MAX: usize = 7;
/// Objects and lists within one another in a stored object, the record of who owns its fields included, which is six deeper than
/// the deepest field.
pub(crate) const DEPTH_MAX: usize = READ_DEPTH_MAX - ENVELOPE_DEPTH_MAX;

/// How deep encoded JSON is nested.
pub(crate) fn encoded_depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Whether a value is nested no deeper than `most`; looks no deeper than that. Counts in `visited` what it looked at.
pub(crate) fn fits(value: &Value, most: usize, visited: &mut usize) -> bool {
    *visited += 1;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        Value::Array(items) => most > 0 && items.iter().all(|item| fits(item, most - 1, visited)),
        Value::Object(fields) => most > 0 && fields.values().all(|value| fits(value, most - 1, visited)),
    }
}

/// About the bytes that a value takes as JSON.
pub(crate) fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| weight(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value) + 4).sum::<usize>() + 2,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn depth_is_counted_outside_of_text() {
        for (value, depth) in [
            (json!(1), 0),
            (json!({}), 1),
            (json!({"a": [{}], "b": []}), 3),
            (json!({"[{": "\"[{\\", "c": "\\\"{"}), 1),
        ] {
            assert_eq!(encoded_depth(value.to_string().as_bytes()), depth, "{value}");
            assert!(fits(&value, depth, &mut 0) && (depth == 0 || !fits(&value, depth - 1, &mut 0)), "{value}");
        }
    }
}
