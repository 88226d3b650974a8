//! What a CustomResourceDefinition defines.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::object::Object;

/// What is read of a definition: not its schemas, which are most of it and may be nested deeper than what can be read.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) spec: DefinitionSpec,
}

impl Definition {
    pub(super) fn of(object: &Object) -> serde_json::Result<Self> {
        let spec = object.spec.as_deref().map_or("null", RawValue::get);
        Ok(Self { spec: serde_json::from_str(spec)? })
    }

    pub(super) fn kind(&self) -> &str {
        &self.spec.names.kind
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct DefinitionSpec {
    pub(super) group: String,
    pub(super) names: DefinitionNames,
    pub(super) scope: String,
    pub(super) versions: Vec<DefinitionVersion>,
}

#[derive(Debug, Deserialize)]
pub(super) struct DefinitionNames {
    pub(super) kind: String,
    pub(super) plural: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct DefinitionVersion {
    pub(super) name: String,
    pub(super) served: bool,
}
