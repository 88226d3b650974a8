//! Deletion of all objects that match.

use bytes::Bytes;
use serde_json::json;

use super::{Write, delete_options};
use crate::call::{Call, Place, Reply};
use crate::query::ListOptions;
use crate::status::ApiError;
use crate::{fields, keys, object, read};

/// Objects looked at in one read.
const PAGE: usize = 100;

pub(crate) async fn delete_collection(call: &Call, place: &Place, bytes: Bytes) -> Result<Reply, ApiError> {
    let write = Write::new(call, place, "")?;
    let options = delete_options(call, &bytes)?;
    let select = ListOptions::parse(&call.query)?;
    fields::check(&place.served, &select)?;
    let mut range = read::range(call, place, &select);
    let (mut at, mut unreadable) = (None, None);
    loop {
        let page = call.inner.store.range(range.clone(), at, PAGE).await?;
        for item in &page.items {
            let object = object::present_any(&place.served, item, item.modified);
            if !select.labels.matches(&object) || !select.fields.matches(&object) {
                continue;
            }
            let one = Place {
                served: std::sync::Arc::clone(&place.served),
                namespace: object::namespace(&object).map(str::to_owned),
            };
            let one = Write { place: &one, now: write.now.clone(), options: write.options.clone(), ..write };
            match one.delete(object::name(&object), &options).await {
                Ok(_) => {}
                Err(gone) if gone.code == http::StatusCode::NOT_FOUND => {}
                // All others go.
                Err(error) if error.is_unreadable() => unreadable = Some(error),
                Err(error) => return Err(error),
            }
        }
        match page.items.last() {
            Some(last) if page.more => range.start = keys::successor(&last.key),
            Some(_) | None => break,
        }
        at = Some(page.revision);
    }
    if let Some(error) = unreadable {
        return Err(error);
    }
    let resource = &place.served.resource;
    let mut details = json!({"kind": resource.plural});
    if !resource.group.is_empty() {
        details["group"] = resource.group.clone().into();
    }
    Ok(Reply::ok(
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    ))
}
