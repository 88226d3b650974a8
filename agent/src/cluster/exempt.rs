//! Fields that do not follow their source: left out of an apply, without the target losing its values.
//!
//! The API server removes a field that one of our managers applied and then leaves out. So before a field is left out, it
//! passes to the second manager, `tideline-initial`, by rewriting managedFields alone: no value is written, so none can be
//! reset, and an object that would be invalid without the field never exists. The other way round, a field that the source
//! dropped, or that is to follow it again, passes to the first manager, whose next apply removes or sets it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tideline_common::{ApplyPolicy, FieldMode, FieldPath, MARK_ANNOTATION, MARK_LABEL, ObjectPath};

use super::compare;
use super::failure::Failure;
use super::fields::{self, Located};
use super::metadata::ManagedFields;
use crate::core::LocalField;

/// The field that an autoscaler sets, of every kind that has replicas.
pub(super) const REPLICAS: &str = "/spec/replicas";
/// The volume that a claim is bound to can be set only once.
const VOLUME: &str = "/spec/volumeName";
/// The same of a Service's addresses: one that has others keeps them, and goes on with the rest.
const ADDRESSES: [&str; 3] = ["/spec/clusterIP", "/spec/clusterIPs", "/spec/ipFamilies"];
/// And of the port by which a load balancer asks how a node does.
const HEALTH_CHECK: &str = "/spec/healthCheckNodePort";

/// Found out, not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scaled {
    BySource,
    /// A HorizontalPodAutoscaler decides how many replicas there are.
    ByAutoscaler,
}

/// The fields of one object that are not continuous.
#[derive(Debug, Default)]
pub(super) struct Exempt {
    ignored: Vec<FieldPath>,
    initial: Vec<FieldPath>,
}

impl Exempt {
    /// What the policy says, and what holds by itself where the policy says nothing of the field.
    pub(super) fn new(policy: &ApplyPolicy, object: &Value, scaled: Scaled) -> Result<Self, Failure> {
        let mut exempt = Self::default();
        for field in &policy.fields {
            // Applied as if there were no such exception, it might reset just what the exception protects.
            let path = FieldPath::parse(&field.path).map_err(|error| {
                Failure::invalid(format!("the field policy for {:?} cannot be read: {error}", field.path))
            })?;
            match field.mode {
                FieldMode::Ignored => exempt.ignored.push(path),
                FieldMode::Initial => exempt.initial.push(path),
                FieldMode::Continuous => {}
            }
        }
        let presets = [
            (scaled == Scaled::ByAutoscaler).then_some(REPLICAS),
            is_volume_claim(object).then_some(VOLUME),
            is_service(object).then_some(HEALTH_CHECK),
        ];
        let addresses = ADDRESSES.into_iter().filter(|_| has_address(object));
        for preset in presets.into_iter().flatten().chain(addresses) {
            if is_left_to_presets(policy, object, preset) {
                exempt.initial.push(parsed(preset));
            }
        }
        Ok(exempt)
    }

    /// Has what somebody changed at the target left as it is, where nothing else is assigned by now.
    pub(super) fn leave(&mut self, local: &[LocalField], object: &Value) {
        self.initial.extend(compare::still_local(local, object));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ignored.is_empty() && self.initial.is_empty()
    }

    /// Removes fields that are not even sent at creation.
    pub(super) fn take_ignored(&self, object: &mut Value) {
        remove_all(object, found(&self.ignored, object));
    }

    /// Removes from an object the fields that are not applied onto `live`. Returns those of our fields there that pass to the
    /// second manager, as a set; none if there are none.
    pub(super) fn take_out(
        &self,
        object: &mut Value,
        live: &Value,
        managed: &[ManagedFields],
    ) -> Result<Option<Value>, Failure> {
        let everybodys = fields::managed_by_anybody(managed)?;
        let ours = fields::managed_by_us(managed)?;
        let mut kept = Value::Null;
        let mut left = BTreeSet::new();
        let mut keep = |located: &Located| {
            if let Located::Keys(keys) = located {
                fields::graft(&mut kept, &ours, keys);
            }
        };
        let mut sent = found(&self.ignored, object);
        sent.extend(found(&self.initial, object));
        for way in sent {
            let located = fields::locate(&everybodys, object, &way);
            keep(&located);
            let live = way.read(live).filter(|_| located == Located::InAtomic);
            // Its parent is applied as a whole; then this part of it keeps its live value.
            if !live.is_some_and(|live| way.put(object, live.clone())) {
                left.insert(way);
            }
        }
        // An ignored field stays whether or not its source has it.
        for way in found(&self.ignored, live) {
            let located = fields::locate(&everybodys, live, &way);
            keep(&located);
            let live = way.read(live).filter(|_| located == Located::InAtomic);
            if live.is_some_and(|live| way.put(object, live.clone())) {
                left.remove(&way);
            }
        }
        remove_all(object, left);
        Ok(fields::subtract(&kept, &mark()))
    }
}

/// Whether a field that the object has is named by no policy.
pub(super) fn is_left_to_presets(policy: &ApplyPolicy, object: &Value, preset: &'static str) -> bool {
    let preset = found(&[parsed(preset)], object);
    let mut said = policy.fields.iter().filter_map(|field| FieldPath::parse(&field.path).ok());
    !preset.is_empty() && !said.any(|path| path.find(object).iter().any(|way| preset.contains(way)))
}

fn parsed(path: &'static str) -> FieldPath {
    FieldPath::parse(path).expect("the paths of presets are paths")
}

fn is_volume_claim(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "PersistentVolumeClaim"
}

/// Whether an address is asked for by its number: that a Service has none is nothing that could be chosen otherwise later.
fn has_address(object: &Value) -> bool {
    let address = &object["spec"]["clusterIP"];
    is_service(object) && address.is_string() && address != "None"
}

fn is_service(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "Service"
}

/// The mark is put on whatever a policy says of labels and annotations, and stays the first manager's.
fn mark() -> Value {
    let named = |name: &str| Map::from_iter([(format!("f:{name}"), json!({}))]);
    json!({"f:metadata": {"f:labels": named(MARK_LABEL), "f:annotations": named(MARK_ANNOTATION)}})
}

fn found(paths: &[FieldPath], object: &Value) -> BTreeSet<ObjectPath> {
    paths.iter().flat_map(|path| path.find(object)).collect()
}

/// From the last to the first, so that the indexes of those to come stay right.
fn remove_all(object: &mut Value, ways: BTreeSet<ObjectPath>) {
    for way in ways.into_iter().rev() {
        way.remove(object);
    }
}

#[cfg(test)]
mod tests;
