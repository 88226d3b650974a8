//! Query parameters, parsed once at the door.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{ApiError, Cause};

/// Decoded query parameters; of a repeated one the first counts, except where said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.entry(decode(name, Plus::Space)?).or_default().push(decode(value, Plus::Space)?);
        }
        Ok(Self(parameters))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|values| values.first()).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// As Kubernetes reads booleans in queries: anything but `0` and `false` is true.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        let value = self.0.get(name)?.first()?;
        Some(!matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        self.get(name)
            .map(|text| {
                text.parse()
                    .map_err(|_| ApiError::bad_request(format!("invalid value {text:?} for the parameter {name}")))
            })
            .transpose()
    }
}

/// What `+` means: a space in a query, itself in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plus {
    Space,
    Itself,
}

/// Percent-decoding.
pub(crate) fn decode(text: &str, plus: Plus) -> Result<String, ApiError> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let code = bytes
                    .get(at + 1..at + 3)
                    .and_then(|hex| std::str::from_utf8(hex).ok())
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                out.push(code.ok_or_else(|| ApiError::bad_request(format!("invalid URL escape in {text:?}")))?);
                at += 3;
                continue;
            }
            b'+' if plus == Plus::Space => out.push(b' '),
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8(out).map_err(|_| ApiError::bad_request(format!("{text:?} is not UTF-8 once decoded")))
}

/// How a list relates to the resource version it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Exact,
    NotOlderThan,
}

/// Everything a list, watch or deletion of a collection may ask for.
#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) fields_text: String,
    /// `None` when unset, which is not the same as `0` for a list.
    pub(crate) resource_version: Option<u64>,
    pub(crate) version_match: Option<VersionMatch>,
    /// Zero stands for all.
    pub(crate) limit: usize,
    pub(crate) continue_token: Option<String>,
    pub(crate) watch: bool,
    /// `None` for the default of a watch.
    pub(crate) timeout: Option<Duration>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query) -> Result<Self, ApiError> {
        let labels_text = query.get("labelSelector").unwrap_or_default();
        let fields_text = query.get("fieldSelector").unwrap_or_default();
        let labels = LabelSelector::parse(labels_text)
            .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = FieldSelector::parse(fields_text).map_err(ApiError::bad_request)?;
        let resource_version = query.get("resourceVersion").map(parse_resource_version).transpose()?;
        let version_match = match query.get("resourceVersionMatch") {
            None => None,
            Some("Exact") => Some(VersionMatch::Exact),
            Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
            Some(other) => return Err(forbidden_match(&format!("unsupported value {other:?}"))),
        };
        let options = Self {
            labels,
            fields,
            fields_text: fields_text.to_owned(),
            resource_version,
            version_match,
            limit: query.number("limit")?.unwrap_or(0),
            continue_token: query.get("continue").map(str::to_owned),
            watch: query.flag("watch").unwrap_or(false),
            // Zero stands for the default, as in kube-apiserver.
            timeout: query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: query.flag("sendInitialEvents"),
        };
        options.check()?;
        Ok(options)
    }

    /// The combinations that a real API server refuses.
    fn check(&self) -> Result<(), ApiError> {
        if self.watch {
            if self.send_initial_events.is_some() && self.version_match != Some(VersionMatch::NotOlderThan) {
                return Err(forbidden_match("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
            }
            if self.send_initial_events.is_none() && self.version_match.is_some() {
                return Err(forbidden_match(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            return Ok(());
        }
        if self.send_initial_events.is_some() {
            return Err(forbidden_match("sendInitialEvents is forbidden for list"));
        }
        match (self.version_match, self.resource_version) {
            (Some(_), None) => {
                Err(forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided"))
            }
            (Some(_), Some(_)) if self.continue_token.is_some() => {
                Err(forbidden_match("resourceVersionMatch is forbidden when continue is provided"))
            }
            (Some(VersionMatch::Exact), Some(0)) => {
                Err(forbidden_match("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
            }
            _ if self.continue_token.is_some() && self.resource_version.is_some_and(|version| version != 0) => {
                Err(ApiError::bad_request("specifying resource version is not allowed when using continue"))
            }
            (None | Some(_), _) => Ok(()),
        }
    }
}

fn forbidden_match(why: &str) -> ApiError {
    ApiError::invalid(
        "meta.k8s.io",
        "ListOptions",
        "",
        vec![Cause {
            reason: "FieldValueForbidden".into(),
            message: format!("Forbidden: {why}"),
            field: "resourceVersionMatch".into(),
        }],
    )
}

pub(crate) fn parse_resource_version(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// What to do about unknown and duplicate fields in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// What every write may ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: Option<bool>,
}

/// Longest field manager name, as in Kubernetes.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

impl WriteOptions {
    pub(crate) fn parse(query: &Query) -> Result<Self, ApiError> {
        let invalid = |field: &str, message: String, reason: &str| {
            ApiError::invalid(
                "meta.k8s.io",
                "PatchOptions",
                "",
                vec![Cause { reason: reason.into(), message, field: field.into() }],
            )
        };
        let field_validation = match query.get("fieldValidation") {
            None => FieldValidation::default(),
            Some("Ignore") => FieldValidation::Ignore,
            Some("Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let message =
                    format!("Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"");
                return Err(invalid("fieldValidation", message, "FieldValueNotSupported"));
            }
        };
        let field_manager = query.get("fieldManager").map(str::to_owned);
        if let Some(manager) = field_manager.as_ref().filter(|manager| manager.len() > FIELD_MANAGER_BYTES_MAX) {
            let message =
                format!("Too long: may not be more than {FIELD_MANAGER_BYTES_MAX} bytes, is {}", manager.len());
            return Err(invalid("fieldManager", message, "FieldValueTooLong"));
        }
        let dry_run: Vec<&str> = query.all("dryRun").iter().map(String::as_str).collect();
        Ok(Self { dry_run: dry_run_asked(&dry_run)?, field_manager, field_validation, force: query.flag("force") })
    }
}

fn dry_run_asked(values: &[&str]) -> Result<bool, ApiError> {
    for value in values {
        if *value != "All" {
            return Err(ApiError::invalid(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                vec![Cause {
                    reason: "FieldValueNotSupported".into(),
                    message: format!("Unsupported value: {value:?}: supported values: \"All\""),
                    field: "dryRun".into(),
                }],
            ));
        }
    }
    Ok(!values.is_empty())
}

/// What a deletion may ask for, from its body or its query.
///
/// All propagation policies are accepted and mean the same here: a space holds no controllers, so nothing but the object itself is
/// deleted. Neither Foreground nor Orphan hold the object back by a finalizer, because no garbage collector would ever take it off.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// An object that cannot be read is deleted as it is, whatever its finalizers are and whatever depends on it.
    pub(crate) ignore_store_read_error: bool,
}

/// The option of a deletion that says so, as in Kubernetes since 1.32.
pub(crate) const IGNORE_STORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl DeleteOptions {
    pub(crate) fn parse(query: &Query, body: Option<&Value>) -> Result<Self, ApiError> {
        let from_query: Vec<&str> = query.all("dryRun").iter().map(String::as_str).collect();
        let mut options = Self { dry_run: dry_run_asked(&from_query)?, ..Self::default() };
        options.ignore_store_read_error = matches!(query.get(IGNORE_STORE_READ_ERROR), Some("true" | "1"));
        let mut propagation =
            Propagation { policy: query.get("propagationPolicy"), orphan_dependents: query.flag("orphanDependents") };
        if let Some(body) = body {
            let bad = |what: &str| ApiError::bad_request(format!("DeleteOptions: {what}"));
            let object = body.as_object().ok_or_else(|| bad("the body must be an object"))?;
            match object.get("kind").and_then(Value::as_str) {
                None | Some("DeleteOptions") => {}
                Some(other) => return Err(bad(&format!("the body is a {other}"))),
            }
            if let Some(values) = object.get("dryRun").filter(|values| !values.is_null()) {
                let values = values.as_array().ok_or_else(|| bad("dryRun must be a list"))?;
                let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
                options.dry_run |= dry_run_asked(&values)?;
            }
            options.ignore_store_read_error |= object.get(IGNORE_STORE_READ_ERROR) == Some(&Value::Bool(true));
            if let Some(preconditions) = object.get("preconditions") {
                let text = |name: &str| preconditions.get(name).and_then(Value::as_str).map(str::to_owned);
                options.uid = text("uid");
                options.resource_version = text("resourceVersion");
            }
            match object.get("propagationPolicy") {
                None | Some(Value::Null) => {}
                Some(Value::String(named)) => propagation.policy = Some(named),
                Some(_) => return Err(bad("propagationPolicy must be a string")),
            }
            match object.get("orphanDependents") {
                None | Some(Value::Null) => {}
                Some(Value::Bool(orphan)) => propagation.orphan_dependents = Some(*orphan),
                Some(_) => return Err(bad("orphanDependents must be true or false")),
            }
        }
        propagation.check()?;
        Ok(options)
    }
}

/// What is to become of the objects that have the deleted one for their owner, as it is said today and as it was said before.
struct Propagation<'a> {
    policy: Option<&'a str>,
    orphan_dependents: Option<bool>,
}

impl Propagation<'_> {
    fn check(&self) -> Result<(), ApiError> {
        let Some(policy) = self.policy else { return Ok(()) };
        let is_known = matches!(policy, "Orphan" | "Background" | "Foreground");
        let (reason, message) = match (is_known, self.orphan_dependents) {
            (true, None) => return Ok(()),
            (true, Some(_)) => (
                "FieldValueInvalid",
                format!("Invalid value: {policy:?}: orphanDependents and deletionPropagation cannot be both set"),
            ),
            (false, _) => (
                "FieldValueNotSupported",
                format!(
                    "Unsupported value: {policy:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                ),
            ),
        };
        let cause = Cause { reason: reason.into(), message, field: "propagationPolicy".into() };
        Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", vec![cause]))
    }
}

#[cfg(test)]
mod tests;
