//! Objects as rows, the way `kubectl get` prints them.

mod cells;
mod json_path;

use serde_json::{Value, json};

use self::cells::Column;
use crate::catalog::{Served, Source};
use crate::object;

/// What a row says of its object besides the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

/// `columnDefinitions`.
pub(crate) fn columns(served: &Served) -> Value {
    let mut columns = vec![definition("Name", "string", "name", "Name must be unique within a namespace.", 0)];
    match &served.source {
        Source::BuiltIn(_) | Source::Review => {
            for Column { name, kind, priority, .. } in cells::of(served) {
                columns.push(definition(name, kind, "", "", *priority));
            }
            if !cells::has_own_age(served) {
                columns.push(definition("Age", "string", "", "", 0));
            }
        }
        Source::Custom(custom) => {
            if custom.columns.is_empty() {
                columns.push(definition("Age", "date", "", "", 0));
            }
            for one in &custom.columns {
                columns.push(definition(&one.name, &one.kind, &one.format, &one.description, one.priority));
            }
        }
        Source::Virtual(source) => {
            for one in source.columns() {
                columns.push(definition(&one.name, &one.kind, "", "", one.priority.into()));
            }
        }
    }
    columns.into()
}

/// One row.
pub(crate) fn row(served: &Served, object: Value, include: Include) -> Value {
    let mut cells: Vec<Value> = vec![object::name(&object).into()];
    let age = || Value::from(age_of(object::text(&object, "/metadata/creationTimestamp")));
    match &served.source {
        Source::BuiltIn(_) | Source::Review => {
            cells.extend(cells::of(served).iter().map(|column| (column.cell)(&object)));
            if !cells::has_own_age(served) {
                cells.push(age());
            }
        }
        Source::Custom(custom) => {
            if custom.columns.is_empty() {
                cells.push(age());
            }
            cells.extend(custom.columns.iter().map(|one| path_cell(&one.path, &one.kind, &object)));
        }
        Source::Virtual(source) => {
            cells.extend(source.columns().iter().map(|one| path_cell(&one.path, &one.kind, &object)));
        }
    }
    let mut row = json!({"cells": cells});
    match include {
        Include::None => {}
        Include::Metadata => row["object"] = object::partial(&object, true),
        Include::Object => row["object"] = object,
    }
    row
}

fn path_cell(path: &str, kind: &str, object: &Value) -> Value {
    let found = json_path::find(path, object);
    match (kind, found.first()) {
        (_, None | Some(Value::Null)) => Value::Null,
        ("date", Some(value)) => age_of(value.as_str().unwrap_or_default()).into(),
        ("integer", Some(value)) => value.as_i64().map_or(Value::Null, Value::from),
        ("number" | "boolean", Some(value)) => (*value).clone(),
        (_, Some(_)) => shown(&found).into(),
    }
}

/// Bytes shown in a cell at most: more than a terminal is wide. A column may be of a whole object, in each row of a page; with 64
/// columns and 128 rows that are 32 MiB.
const CELL_BYTES_MAX: usize = 4 << 10;

/// The values at the path of a column, with commas between them.
fn shown(found: &[&Value]) -> String {
    let mut text = String::new();
    for (at, value) in found.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        match value {
            Value::String(value) => text.push_str(value),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                text.push_str(&value.to_string());
            }
        }
        if text.len() > CELL_BYTES_MAX {
            let mut end = CELL_BYTES_MAX;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push('…');
            break;
        }
    }
    text
}

/// How long ago, in kubectl's words.
pub(crate) fn age_of(time: &str) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(then) => duration(jiff::Timestamp::now().as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// `HumanDuration` of apimachinery: two units where the larger one is small.
pub(crate) fn duration(seconds: i64) -> String {
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        i64::MIN..=-2 => "<invalid>".to_owned(),
        -1 | 0 => "0s".to_owned(),
        1..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests;
