//! What every space has from the start, made through the same door as by any client.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{ApiServer, Error};
use crate::catalog::{CRD_GROUP, CRDS};
use crate::identity::Identity;
use crate::object;
use crate::state::Space;

/// How often preparing a space is tried again when another writer is at the same object.
const PREPARE_ATTEMPTS: usize = 5;

impl ApiServer {
    /// Makes what every space has, through the same door as any client.
    pub(super) async fn prepare(&self, space: &Space, crds: &[Value]) -> Result<(), Error> {
        for namespace in object::OWN_NAMESPACES {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let (status, answer) = self.own(space, Method::POST, "/api/v1/namespaces", &body).await;
            if !status.is_success() && status != StatusCode::CONFLICT {
                let why = object::text(&answer, "/message").to_owned();
                return Err(Error::Prepare { space: space.name.to_string(), why });
            }
        }
        for crd in crds {
            self.ensure_definition(space, crd).await?;
        }
        Ok(())
    }

    /// Creates a definition, or gives an existing one the configured spec, labels and annotations.
    async fn ensure_definition(&self, space: &Space, crd: &Value) -> Result<(), Error> {
        let name = object::name(crd);
        let all = format!("/apis/{CRD_GROUP}/v1/{CRDS}");
        let one = format!("{all}/{name}");
        let mut answer = Value::Null;
        for _ in 0..PREPARE_ATTEMPTS {
            let (status, found) = self.own(space, Method::GET, &one, &Value::Null).await;
            let (status, said) = if status == StatusCode::NOT_FOUND {
                self.own(space, Method::POST, &all, crd).await
            } else {
                let mut wanted = found.clone();
                wanted["spec"] = crd["spec"].clone();
                for part in ["labels", "annotations"] {
                    if let Some(value) = crd["metadata"].get(part) {
                        wanted["metadata"][part] = value.clone();
                    }
                }
                self.own(space, Method::PUT, &one, &wanted).await
            };
            if status.is_success() {
                return Ok(());
            }
            answer = said;
            if status != StatusCode::CONFLICT {
                break;
            }
        }
        let why = object::text(&answer, "/message").to_owned();
        Err(Error::Definition { space: space.name.to_string(), name: name.to_owned(), why })
    }

    async fn own(&self, space: &Space, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("paths of own objects are plain ASCII");
        let response = self.call(&space.name, Identity::system(), request).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}
