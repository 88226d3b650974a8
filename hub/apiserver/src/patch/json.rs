use serde::Deserialize;
use serde_json::Value;

use super::{Error, JSON_PATCH_COPIED_BYTES_MAX, JSON_PATCH_OPERATIONS_MAX, JSON_PATCH_STEPS_MAX};
use crate::extent::{self, DEPTH_MAX, weight};

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
    let mut work = Work { document: document.clone(), copied: 0, steps: 0 };
    for step in steps {
        let step = Step::deserialize(step).map_err(|error| Error::Malformed(error.to_string()))?;
        work.run(step)?;
    }
    Ok(work.document)
}

/// A document while it is patched, and what that took so far.
struct Work {
    document: Value,
    copied: usize,
    steps: usize,
}

impl Work {
    fn run(&mut self, step: Step) -> Result<(), Error> {
        match step {
            Step::Add { path, value } => self.add(&path, value),
            Step::Remove { path } => self.remove(&path).map(drop),
            Step::Replace { path, value } => {
                self.check_depth(&path, &value)?;
                let target = self.document.pointer_mut(checked(&path)?).ok_or_else(|| missing("replace", &path))?;
                *target = value;
                Ok(())
            }
            Step::Move { from, path } => {
                if path.strip_prefix(&from).is_some_and(|rest| rest.starts_with('/')) {
                    return Err(Error::Inapplicable(format!("cannot move {from:?} into itself")));
                }
                let value = self.remove(&from)?;
                self.add(&path, value)
            }
            Step::Copy { from, path } => {
                let value = self.document.pointer(checked(&from)?).ok_or_else(|| missing("copy", &from))?;
                self.copied += weight(value);
                if self.copied > JSON_PATCH_COPIED_BYTES_MAX {
                    return Err(Error::TooLarge(format!("copies add more than {JSON_PATCH_COPIED_BYTES_MAX} bytes")));
                }
                let value = value.clone();
                self.add(&path, value)
            }
            Step::Test { path, value } => match self.document.pointer(checked(&path)?) {
                Some(found) if *found == value => Ok(()),
                None if value.is_null() => Ok(()),
                Some(_) | None => Err(Error::Inapplicable(format!("testing value {path} failed"))),
            },
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), Error> {
        self.check_depth(path, &value)?;
        let Some((parent, last)) = split(path)? else {
            self.document = value;
            return Ok(());
        };
        let shifted = match self.document.pointer_mut(parent) {
            Some(Value::Object(fields)) => {
                fields.insert(last, value);
                0
            }
            Some(Value::Array(items)) => {
                let at = if last == "-" { Some(items.len()) } else { index(&last) };
                let at = at.filter(|at| *at <= items.len()).ok_or_else(|| missing("add", path))?;
                let shifted = items.len() - at;
                items.insert(at, value);
                shifted
            }
            Some(_) | None => return Err(missing("add", path)),
        };
        self.spend(shifted)
    }

    fn remove(&mut self, path: &str) -> Result<Value, Error> {
        let Some((parent, last)) = split(path)? else {
            return Ok(self.document.take());
        };
        let (removed, shifted) = match self.document.pointer_mut(parent) {
            Some(Value::Object(fields)) => (fields.remove(&last), 0),
            Some(Value::Array(items)) => match index(&last).filter(|at| *at < items.len()) {
                Some(at) => (Some(items.remove(at)), items.len() - at),
                None => (None, 0),
            },
            Some(_) | None => (None, 0),
        };
        self.spend(shifted)?;
        removed.ok_or_else(|| missing("remove", path))
    }

    /// Refuses a value that would make the document too deep where it is put. Checked before each step: copies of a document into
    /// itself double its depth.
    fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), Error> {
        let above = path.bytes().filter(|byte| *byte == b'/').count();
        let mut visited = 0;
        let fits = DEPTH_MAX.checked_sub(above).is_some_and(|most| extent::fits(value, most, &mut visited));
        self.spend(visited)?;
        if fits { Ok(()) } else { Err(Error::TooDeep) }
    }

    fn spend(&mut self, steps: usize) -> Result<(), Error> {
        self.steps += steps;
        if self.steps > JSON_PATCH_STEPS_MAX {
            return Err(Error::TooLarge(format!(
                "it moves more than {JSON_PATCH_STEPS_MAX} values, counted anew for each operation"
            )));
        }
        Ok(())
    }
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
