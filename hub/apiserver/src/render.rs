//! Objects, lists and events in the shape that the client asked for.

use std::slice;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::call::Call;
use crate::catalog::Served;
use crate::filled_field::FilledField;
use crate::negotiate::Shape;
use crate::object;
use crate::table::{self, Include};

/// Writes one client's view of one resource.
#[derive(Clone, Copy)]
pub(crate) struct Renderer<'a> {
    pub(crate) served: &'a Served,
    pub(crate) shape: Shape,
    pub(crate) include: Include,
    pub(crate) filled: Option<&'a Arc<dyn FilledField>>,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(call: &'a Call, served: &'a Served, shape: Shape) -> Self {
        let include = match call.query.get("includeObject") {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            Some(_) | None => Include::Metadata,
        };
        Self { served, shape, include, filled: call.filled(served) }
    }

    /// One object as a whole answer.
    pub(crate) fn single(&self, mut object: Value) -> Value {
        self.fill(slice::from_mut(&mut object));
        self.alone(object)
    }

    fn alone(&self, object: Value) -> Value {
        match self.shape {
            Shape::Object => object,
            Shape::PartialMetadata => object::partial(&object, true),
            Shape::Table => {
                let version = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": version,
                    "columnDefinitions": table::columns(self.served),
                    "rows": [table::row(self.served, object, self.include)],
                })
            }
        }
    }

    /// Fills in what is not stored, once for objects that come together.
    pub(crate) fn fill(&self, objects: &mut [Value]) {
        let Some(field) = self.filled else { return };
        let values = field.values(objects);
        for (object, value) in objects.iter_mut().zip(values) {
            if let Some(value) = value {
                object::set_at(object, field.path(), value);
            }
        }
    }

    /// One object, filled, as a watch event carries it. Columns come with the first event only.
    pub(crate) fn event(&self, object: Value, first: bool) -> Value {
        let mut value = self.alone(object);
        if self.shape == Shape::Table && !first {
            value["columnDefinitions"] = Value::Null;
        }
        value
    }

    /// An object with nothing but a version, as a bookmark carries it.
    pub(crate) fn bookmark(&self, revision: u64, initial_events_end: bool) -> Value {
        let (api_version, kind) = match self.shape {
            Shape::Object => (self.served.api_version.as_str(), self.served.resource.kind.as_str()),
            Shape::PartialMetadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
            Shape::Table => ("meta.k8s.io/v1", "Table"),
        };
        let mut object = json!({
            "kind": kind, "apiVersion": api_version,
            "metadata": {"resourceVersion": revision.to_string()},
        });
        if self.shape == Shape::Table {
            // kubectl reads the version of a table's bookmark from its one row.
            object["rows"] = json!([]);
        } else {
            object["metadata"]["creationTimestamp"] = Value::Null;
        }
        if initial_events_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        object
    }

    /// One object, filled, as an item of a list.
    pub(crate) fn item(&self, object: Value) -> Value {
        match self.shape {
            Shape::Object => object,
            Shape::PartialMetadata => object::partial(&object, true),
            Shape::Table => table::row(self.served, object, self.include),
        }
    }

    /// A list up to its first item.
    pub(crate) fn list_head(&self) -> String {
        match self.shape {
            Shape::Object => format!(
                "{{\"kind\":{},\"apiVersion\":{},\"items\":[",
                json!(self.served.list_kind),
                json!(self.served.api_version)
            ),
            Shape::PartialMetadata => {
                "{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"items\":[".to_owned()
            }
            Shape::Table => format!(
                "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"columnDefinitions\":{},\"rows\":[",
                table::columns(self.served)
            ),
        }
    }
}

/// Appends items of a list; `first` when none was before them.
pub(crate) fn join(out: &mut String, items: &[Value], first: bool) {
    let mut first = first;
    for item in items {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        out.push_str(&item.to_string());
    }
}

/// A list after its last item.
pub(crate) fn list_tail(metadata: &Value) -> String {
    format!("],\"metadata\":{metadata}}}\n")
}
