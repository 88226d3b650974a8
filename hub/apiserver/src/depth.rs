//! How deep objects may be nested: one bound for everything that is stored, whoever writes it and in whatever form.

use serde_json::Value;

/// Objects and lists within one another that a reader takes: `serde_json` refuses the 128th. Clients in other languages take more.
const READ_DEPTH_MAX: usize = 127;
/// Those around an object when it is read: a watch event, in it a table, its rows, and a row, which is four. The rest is for
/// what readers put around it themselves.
const ENVELOPE_DEPTH_MAX: usize = 7;
/// Objects and lists within one another in a stored object, the record of who owns its fields included, which is six deeper than
/// the deepest field.
pub(crate) const DEPTH_MAX: usize = READ_DEPTH_MAX - ENVELOPE_DEPTH_MAX;

/// Whether a value is nested no deeper than `most`; looks no deeper than that. Counts in `visited` what it looked at.
pub(crate) fn fits(value: &Value, most: usize, visited: &mut usize) -> bool {
    *visited += 1;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        Value::Array(items) => most > 0 && items.iter().all(|item| fits(item, most - 1, visited)),
        Value::Object(fields) => most > 0 && fields.values().all(|value| fits(value, most - 1, visited)),
    }
}
