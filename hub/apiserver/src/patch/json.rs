use serde::Deserialize;
use serde_json::Value;

use super::{Error, JSON_PATCH_COPIED_BYTES_MAX, JSON_PATCH_OPERATIONS_MAX};

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Step {
    Add {
        path: String,
        #[serde(default)]
        value: Value,
    },
    Remove {
        path: String,
    },
    Replace {
        path: String,
        #[serde(default)]
        value: Value,
    },
    Move {
        from: String,
        path: String,
    },
    Copy {
        from: String,
        path: String,
    },
    Test {
        path: String,
        #[serde(default)]
        value: Value,
    },
}

/// Applies a JSON patch (RFC 6902); all of it or nothing.
pub(crate) fn json_patch(document: &Value, patch: &Value) -> Result<Value, Error> {
    let Value::Array(steps) = patch else {
        return Err(Error::Malformed("a JSON patch is a list of operations".to_owned()));
    };
    if steps.len() > JSON_PATCH_OPERATIONS_MAX {
        return Err(Error::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {JSON_PATCH_OPERATIONS_MAX}, got {}",
            steps.len()
        )));
    }
    let mut out = document.clone();
    let mut copied = 0;
    for step in steps {
        let step = Step::deserialize(step).map_err(|error| Error::Malformed(error.to_string()))?;
        run(&mut out, step, &mut copied)?;
    }
    Ok(out)
}

fn run(document: &mut Value, step: Step, copied: &mut usize) -> Result<(), Error> {
    match step {
        Step::Add { path, value } => add(document, &path, value),
        Step::Remove { path } => remove(document, &path).map(drop),
        Step::Replace { path, value } => {
            let target = document.pointer_mut(checked(&path)?).ok_or_else(|| missing("replace", &path))?;
            *target = value;
            Ok(())
        }
        Step::Move { from, path } => {
            if path.strip_prefix(&from).is_some_and(|rest| rest.starts_with('/')) {
                return Err(Error::Inapplicable(format!("cannot move {from:?} into itself")));
            }
            let value = remove(document, &from)?;
            add(document, &path, value)
        }
        Step::Copy { from, path } => {
            let value = document.pointer(checked(&from)?).ok_or_else(|| missing("copy", &from))?.clone();
            *copied += weight(&value);
            if *copied > JSON_PATCH_COPIED_BYTES_MAX {
                return Err(Error::TooLarge(format!("copies add more than {JSON_PATCH_COPIED_BYTES_MAX} bytes")));
            }
            add(document, &path, value)
        }
        Step::Test { path, value } => match document.pointer(checked(&path)?) {
            Some(found) if *found == value => Ok(()),
            None if value.is_null() => Ok(()),
            Some(_) | None => Err(Error::Inapplicable(format!("testing value {path} failed"))),
        },
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Error> {
    let Some((parent, last)) = split(path)? else {
        *document = value;
        return Ok(());
    };
    match document.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.insert(last, value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let at = if last == "-" { Some(items.len()) } else { index(&last) };
            let at = at.filter(|at| *at <= items.len()).ok_or_else(|| missing("add", path))?;
            items.insert(at, value);
            Ok(())
        }
        Some(_) | None => Err(missing("add", path)),
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, Error> {
    let Some((parent, last)) = split(path)? else {
        return Ok(document.take());
    };
    let removed = match document.pointer_mut(parent) {
        Some(Value::Object(fields)) => fields.remove(&last),
        Some(Value::Array(items)) => index(&last).filter(|at| *at < items.len()).map(|at| items.remove(at)),
        Some(_) | None => None,
    };
    removed.ok_or_else(|| missing("remove", path))
}

/// The pointer to the parent, and the unescaped last token; `None` for the whole document.
fn split(path: &str) -> Result<Option<(&str, String)>, Error> {
    let Some((parent, last)) = checked(path)?.rsplit_once('/') else {
        return Ok(None);
    };
    Ok(Some((parent, last.replace("~1", "/").replace("~0", "~"))))
}

fn checked(path: &str) -> Result<&str, Error> {
    if path.is_empty() || path.starts_with('/') {
        Ok(path)
    } else {
        Err(Error::Malformed(format!("{path:?} is not a JSON pointer")))
    }
}

/// An array index as RFC 6901 has it: no sign, no leading zero.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit()));
    plain.then(|| token.parse().ok()).flatten()
}

fn missing(operation: &str, path: &str) -> Error {
    Error::Inapplicable(format!("{operation} operation does not apply: doc is missing path: {path:?}"))
}

/// About the bytes that a value takes as JSON.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| weight(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value) + 4).sum::<usize>() + 2,
    }
}
