//! Kinds of the root space: of each, rows that are computed when they are read, in one order, some at a time.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tideline_apiserver::{Column, Listed, Page, PageRequest, ResourceKind, UnknownKey, VirtualResource};
use tideline_common::Monotonic;
use tokio::sync::watch;

use super::ColumnText;
use crate::engine::Engine;
use crate::shared::Shared;

/// Rows that are computed at once where all are looked through.
const ROWS_AT_ONCE: usize = 500;

/// One kind, and how its rows are read.
pub(crate) trait RootKind: Debug + Send + Sync + 'static {
    const KIND: &'static str;
    const PLURAL: &'static str;
    const COLUMNS: &'static [ColumnText];

    /// Where a row is in the order, as long as it is there, whatever comes and goes meanwhile.
    type Position: Serialize + DeserializeOwned;
    /// Written as an object, less its metadata.
    type Row: Serialize;

    /// At most so many rows behind a position, in order.
    fn rows(
        engine: &Engine,
        now: Monotonic,
        after: Option<&Self::Position>,
        most: usize,
    ) -> Vec<(Self::Position, Self::Row)>;

    fn name(row: &Self::Row) -> String;

    fn labels(row: &Self::Row) -> Option<Value> {
        let _ = row;
        None
    }

    /// The row of this name, looked for among all.
    fn find(shared: &Shared, name: &str) -> Option<Self::Row> {
        let mut after = None;
        loop {
            let now = shared.now();
            let mut rows = shared.read(|engine| Self::rows(engine, now, after.as_ref(), ROWS_AT_ONCE));
            let is_last = rows.len() < ROWS_AT_ONCE;
            if let Some(at) = rows.iter().position(|(_, row)| Self::name(row) == name) {
                return Some(rows.swap_remove(at).1);
            }
            after = rows.pop().map(|(position, _)| position);
            if is_last {
                return None;
            }
        }
    }
}

#[derive(Debug)]
struct OfRoot<K> {
    shared: Shared,
    kind: PhantomData<K>,
}

/// A kind, for the root space.
pub(crate) fn resource<K: RootKind>(shared: &Shared) -> Arc<dyn VirtualResource> {
    Arc::new(OfRoot::<K> { shared: shared.clone(), kind: PhantomData })
}

fn object<K: RootKind>(row: &K::Row) -> Value {
    let mut object = json!(row);
    object["metadata"] = json!({"name": K::name(row)});
    if let Some(labels) = K::labels(row) {
        object["metadata"]["labels"] = labels;
    }
    object
}

impl<K: RootKind> VirtualResource for OfRoot<K> {
    fn resource(&self) -> ResourceKind {
        super::kind(K::KIND, K::PLURAL, false)
    }

    fn columns(&self) -> Vec<Column> {
        super::columns(K::COLUMNS)
    }

    fn list(&self, _space: &str, request: &PageRequest<'_>) -> Result<Page, UnknownKey> {
        let after = request.after.map(serde_json::from_str).transpose().map_err(|_| UnknownKey)?;
        let now = self.shared.now();
        let rows = self.shared.read(|engine| K::rows(engine, now, after.as_ref(), request.rows));
        let is_last = rows.len() < request.rows;
        let group: Arc<str> = "".into();
        let listed = |(position, row): (K::Position, K::Row)| Listed {
            key: super::text(&position),
            group: Arc::clone(&group),
            object: object::<K>(&row),
        };
        let objects: Vec<_> = rows.into_iter().map(listed).collect();
        let next = objects.last().filter(|_| !is_last).map(|last| last.key.clone());
        Ok(Page { objects, next })
    }

    fn get(&self, _space: &str, _namespace: Option<&str>, name: &str) -> Option<Value> {
        K::find(&self.shared, name).map(|row| object::<K>(&row))
    }

    fn changes(&self, _space: &str) -> Option<watch::Receiver<u64>> {
        Some(self.shared.version())
    }
}

#[cfg(test)]
mod tests;
