use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::GroupKind;

use super::GroupResource;
use crate::clean::{Content, Labels, Source};

/// What the objects of each resource say alike, as the last one said it: so that it is kept once for all of them. Those of one
/// application follow each other by name, and have the same labels.
#[derive(Debug, Default)]
pub(super) struct Types(BTreeMap<GroupResource, Type>);

#[derive(Debug)]
struct Type {
    kind: GroupKind,
    /// Empty until one can be placed.
    version: Arc<str>,
    labels: Arc<Labels>,
}

impl Types {
    /// Has an object say so in the words of the others. Returns the resource in those, too.
    pub(super) fn share(&mut self, resource: &GroupResource, source: &mut Source) -> GroupResource {
        let Source { key, uid: _, labels, content } = source;
        let new = || Type { kind: key.kind.clone(), version: Arc::default(), labels: Arc::default() };
        let known = self.0.entry(resource.clone()).or_insert_with(new);
        share(&mut known.kind, &mut key.kind);
        if let Some(labels) = labels {
            share(&mut known.labels, labels);
        }
        if let Content::Outbound(outbound) = content {
            share(&mut known.version, &mut outbound.version);
        }
        self.0.get_key_value(resource).map_or_else(|| resource.clone(), |(same, _)| same.clone())
    }

    pub(super) fn version(&self, resource: &GroupResource) -> Option<&Arc<str>> {
        self.0.get(resource).map(|known| &known.version)
    }
}

fn share<T: Clone + PartialEq>(known: &mut T, one: &mut T) {
    if known == one {
        *one = known.clone();
    } else {
        *known = one.clone();
    }
}
