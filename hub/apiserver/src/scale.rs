//! The scale subresource of workloads and of custom resources that declare one.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::call::{Call, Place, Reply};
use crate::catalog::{ScalePaths, Served, Source};
use crate::negotiate;
use crate::schema::{builtin, validate};
use crate::status::{ApiError, Cause};
use crate::{body, object, write};

fn paths(served: &Served) -> Option<ScalePaths> {
    match &served.source {
        Source::Custom(custom) => custom.scale.clone(),
        Source::BuiltIn(_) => {
            let steps = |steps: [&str; 2]| steps.map(str::to_owned).to_vec();
            Some(ScalePaths {
                spec: steps(["spec", "replicas"]),
                status: steps(["status", "replicas"]),
                selector: Some(steps(["spec", "selector"])),
            })
        }
        Source::Virtual(_) | Source::Review => None,
    }
}

fn at<'a>(object: &'a Value, steps: &[String]) -> Option<&'a Value> {
    steps.iter().try_fold(object, |value, step| value.get(step))
}

/// `matchLabels` and `matchExpressions`, or a plain map, in the query form.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let plain = selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let labels = if plain { Some(selector) } else { selector.get("matchLabels") };
    let equal = labels.and_then(Value::as_object).into_iter().flatten();
    let mut parts: Vec<String> =
        equal.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = object::text(expression, "/key");
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let values: Vec<&str> = values.filter_map(Value::as_str).collect();
        parts.push(match object::text(expression, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _exists => key.to_owned(),
        });
    }
    parts.join(",")
}

fn scale_of(served: &Served, object: &Value) -> Option<Value> {
    let paths = paths(served)?;
    let number = |steps: &[String]| at(object, steps).and_then(Value::as_i64);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let selector = paths.selector.as_deref().and_then(|steps| at(object, steps)).map(selector_text).unwrap_or_default();
    let mut status = json!({"replicas": number(&paths.status).unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    Some(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(&paths.spec).unwrap_or(0)}, "status": status,
    }))
}

async fn read(call: &Call, place: &Place, name: &str) -> Result<(Value, Value), ApiError> {
    let served = &place.served;
    let item = call.inner.store.get(place.key(&call.space.name, name)).await?;
    let item = item.ok_or_else(|| served.not_found(name))?;
    call.take_up(served, item.value.len()).await;
    let object = object::present(served, object::read(&item)?);
    let scale = scale_of(served, &object).ok_or_else(ApiError::no_such_path)?;
    Ok((object, scale))
}

pub(crate) async fn get(call: &Call, place: &Place, name: &str) -> Result<Reply, ApiError> {
    Ok(Reply::ok(read(call, place, name).await?.1))
}

pub(crate) async fn replace(call: &Call, place: &Place, name: &str, bytes: Bytes) -> Result<Reply, ApiError> {
    let mut scale = body::parse(negotiate::body_format(&call.headers)?, &bytes)?.value;
    conform(&mut scale)?;
    set(call, place, name, &scale).await
}

pub(crate) async fn patch(call: &Call, place: &Place, name: &str, bytes: Bytes) -> Result<Reply, ApiError> {
    // A real server applies the patch to the scale as it is at that moment; so does every attempt here.
    let (_, scale) = read(call, place, name).await?;
    let mut patched = write::scale_patch(call, &scale, &bytes)?;
    conform(&mut patched)?;
    let version = scale.pointer("/metadata/resourceVersion");
    if patched.pointer("/metadata/resourceVersion") == version {
        object::metadata(&mut patched).remove("resourceVersion");
    }
    set(call, place, name, &patched).await
}

/// Checks that a value is a scale: without it, what has no number of replicas by mistake would ask for none.
fn conform(scale: &mut Value) -> Result<(), ApiError> {
    body::check_kind(scale, "autoscaling/v1", "Scale")?;
    let Some(ty) = builtin().type_of("autoscaling", "v1", "Scale") else { return Ok(()) };
    validate::drop_nulls(ty, scale);
    validate::check_types(ty, scale).map_err(|mismatch| {
        ApiError::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {mismatch}"))
    })
}

/// Writes the number of replicas through the object itself: a merge patch of one field.
async fn set(call: &Call, place: &Place, name: &str, scale: &Value) -> Result<Reply, ApiError> {
    let served = &place.served;
    let invalid = |message: String| {
        ApiError::invalid(
            "autoscaling",
            "Scale",
            name,
            vec![Cause { reason: "FieldValueInvalid".into(), message, field: "spec.replicas".into() }],
        )
    };
    // As in a real server: a number that is not written is zero.
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        return Err(invalid(format!("Invalid value: {replicas}: must be greater than or equal to 0")));
    }
    let paths = paths(served).ok_or_else(ApiError::no_such_path)?;
    let mut patch = Value::from(replicas);
    for step in paths.spec.iter().rev() {
        patch = json!({ step: patch });
    }
    let version = object::text(scale, "/metadata/resourceVersion");
    if !version.is_empty() {
        patch["metadata"] = json!({"resourceVersion": version});
    }
    let object = write::merge(call, place, name, "scale", &patch).await?;
    Ok(Reply::ok(scale_of(served, &object).ok_or_else(ApiError::no_such_path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_as_queries() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "DoesNotExist"}]});
        assert_eq!(selector_text(&selector), "a=b,c in (d,e),!f");
        assert_eq!(selector_text(&json!({"a": "b"})), "a=b");
    }
}
