//! Reviews of the caller itself: `kubectl auth can-i` and `kubectl auth whoami`.

use bytes::Bytes;
use serde_json::json;

use crate::call::{Call, Place, Reply};
use crate::identity::{Attributes, Target};
use crate::negotiate;
use crate::query::FieldValidation;
use crate::status::ApiError;
use crate::{body, object};

pub(crate) fn create(call: &Call, place: &Place, bytes: &Bytes) -> Result<Reply, ApiError> {
    let document = body::parse(negotiate::body_format(&call.headers)?, bytes)?;
    let (mut review, _) = body::decode(&place.served, document, FieldValidation::Ignore)?;
    if place.served.resource.plural == "selfsubjectreviews" {
        review["status"] = json!({"userInfo": {"username": &*call.identity.user, "groups": &*call.identity.groups}});
        return Ok(Reply::created(review));
    }
    let text = |pointer: &str| object::text(&review, pointer);
    let some = |pointer: &str| Some(text(pointer)).filter(|text| !text.is_empty());
    let (verb, target) = if review.pointer("/spec/nonResourceAttributes").is_some() {
        (text("/spec/nonResourceAttributes/verb"), Target::Path(text("/spec/nonResourceAttributes/path")))
    } else {
        let target = Target::Resource {
            group: text("/spec/resourceAttributes/group"),
            resource: text("/spec/resourceAttributes/resource"),
            subresource: some("/spec/resourceAttributes/subresource"),
            namespace: some("/spec/resourceAttributes/namespace"),
            name: some("/spec/resourceAttributes/name"),
        };
        (text("/spec/resourceAttributes/verb"), target)
    };
    let allowed = call.may(&Attributes { verb, target });
    review["status"] = json!({"allowed": allowed});
    Ok(Reply::created(review))
}
