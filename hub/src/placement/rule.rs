use std::collections::BTreeSet;
use std::sync::Arc;

use tideline_api::{
    Allow, KindPattern, KindPatternError, ObjectClause, PlacementSpec, Selector, SelectorError, StatusPolicy,
    TargetSelector, WhenStale,
};
use tideline_common::{Additions, ApplyPolicy, FieldPath, FieldPathError, Gate, GroupKind, Impersonation, ObjectKey};

use super::GroupResource;
use crate::clean::{Labels, NamespaceMapping};

/// A Placement's spec, checked: what and where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementRule {
    pub objects: Vec<Clause>,
    pub reach: ReachRule,
    pub number_of_targets: Option<u32>,
    /// Seconds that each wave of its objects has to become ready, if the next is to wait for it.
    pub readiness_deadline: Option<u32>,
    pub mapping: NamespaceMapping,
    /// Fields that say something else than by default, and have no effect yet.
    pub without_effect: Vec<String>,
}

/// What a space may do, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpaceRule {
    pub reach: ReachRule,
    pub kinds: Vec<KindPattern>,
    pub annotation_assignment: bool,
    pub impersonate: Option<Arc<Impersonation>>,
}

/// Where: the targets of any Location that any of these selects, and any target that any of those selects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReachRule {
    pub locations: Vec<Selector>,
    pub targets: Vec<TargetRule>,
}

/// Selects targets that have one of these names, if there are any, and these labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetRule {
    pub names: BTreeSet<String>,
    pub labels: Selector,
}

/// Selects objects that meet all of its criteria. What is empty is no criterion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clause {
    /// How messages refer to it.
    pub called: String,
    /// None: any.
    pub group: Option<String>,
    pub resources: BTreeSet<String>,
    pub namespaces: BTreeSet<String>,
    pub namespace_selectors: Vec<Selector>,
    pub object_selectors: Vec<Selector>,
    pub names: BTreeSet<String>,
    pub policy: ApplyPolicy,
}

/// Bytes of how a clause has its objects kept, as the ledger writes it: a record of one object has room for fifteen.
pub const CLAUSE_POLICY_BYTES_MAX: usize = 64 << 10;

/// What a clause says where it means any group, or any resource.
const ANY: &str = "*";

/// Why a rule cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    #[error("{field}[{nth}] is not a label selector")]
    Selector { field: &'static str, nth: usize, source: SelectorError },
    #[error(
        "spec.objects[{clause}] does not say which objects it means; give it one of apiGroup, resources, namespaces, \
         namespaceSelectors, objectSelectors and names, or apiGroup: \"*\" for every object"
    )]
    NoCriterion { clause: usize },
    #[error("spec.objects[{clause}].{field}[{nth}] is not a label selector")]
    ClauseSelector { clause: usize, field: &'static str, nth: usize, source: SelectorError },
    #[error("spec.objects[{clause}].apply.fields: {path:?} is not the path of a field")]
    Field { clause: usize, path: String, source: FieldPathError },
    #[error(
        "spec.objects[{clause}]: how its objects are kept takes {bytes} bytes with spec.additions, and may take \
         {CLAUSE_POLICY_BYTES_MAX}; add less, or have fewer or shorter fields"
    )]
    TooLarge { clause: usize, bytes: usize },
    #[error("spec.additions: {0} is for the agent alone to set")]
    Reserved(String),
    #[error("spec.allow.kinds is not a list of kinds")]
    Kinds(#[from] KindPatternError),
}

/// What a clause looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) resource: &'a GroupResource,
    pub(super) key: &'a ObjectKey,
    pub(super) labels: &'a Labels,
    /// Of the object's namespace; none where it has none, or that is not known.
    pub(super) namespace_labels: Option<&'a Labels>,
}

type LabelSelector = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// What is ours to say on a local object is no Placement's.
fn checked_additions(additions: Additions) -> Result<Additions, RuleError> {
    let is_ours = |name: &&String| name.split_once('/').is_some_and(|(domain, _)| domain == "tideline.dev");
    match additions.labels.keys().chain(additions.annotations.keys()).find(is_ours) {
        Some(name) => Err(RuleError::Reserved(name.clone())),
        None => Ok(additions),
    }
}

fn selectors(from: &[LabelSelector]) -> Result<Vec<Selector>, (usize, SelectorError)> {
    let checked = |(nth, selector)| Selector::try_from(selector).map_err(|error| (nth, error));
    from.iter().enumerate().map(checked).collect()
}

fn reach(
    locations: &[LabelSelector],
    targets: &[TargetSelector],
    fields: [&'static str; 2],
) -> Result<ReachRule, RuleError> {
    let invalid = |field| move |(nth, source)| RuleError::Selector { field, nth, source };
    Ok(ReachRule {
        locations: selectors(locations).map_err(invalid(fields[0]))?,
        targets: (targets.iter().enumerate())
            .map(|(nth, TargetSelector { names, labels })| {
                let labels = Selector::try_from(labels).map_err(|error| (nth, error))?;
                Ok(TargetRule { names: names.iter().cloned().collect(), labels })
            })
            .collect::<Result<_, _>>()
            .map_err(invalid(fields[1]))?,
    })
}

fn without_effect(objects: &[ObjectClause]) -> Vec<String> {
    let of_clause = |(nth, clause): (usize, &ObjectClause)| {
        let StatusPolicy { r#return: _, when_stale, collectors, associated: _ } = &clause.status;
        let stale = (*when_stale != WhenStale::default()).then(|| format!("spec.objects[{nth}].status.whenStale"));
        let collectors = (!collectors.is_empty()).then(|| format!("spec.objects[{nth}].status.collectors"));
        stale.into_iter().chain(collectors)
    };
    objects.iter().enumerate().flat_map(of_clause).collect()
}

impl TryFrom<&PlacementSpec> for PlacementRule {
    type Error = RuleError;

    fn try_from(spec: &PlacementSpec) -> Result<Self, RuleError> {
        let PlacementSpec { locations, targets, number_of_targets, objects, ordering, additions, namespace_mapping } =
            spec;
        let additions = checked_additions(additions.clone().into())?;
        Ok(Self {
            objects: objects
                .iter()
                .enumerate()
                .map(|(nth, clause)| Clause::read(nth, clause, &additions))
                .collect::<Result<_, _>>()?,
            reach: reach(locations, targets, ["spec.locations", "spec.targets"])?,
            number_of_targets: *number_of_targets,
            readiness_deadline: ordering.readiness_gate.then_some(ordering.readiness_deadline_seconds),
            mapping: namespace_mapping.clone().into(),
            without_effect: without_effect(objects),
        })
    }
}

impl TryFrom<&Allow> for SpaceRule {
    type Error = RuleError;

    fn try_from(allow: &Allow) -> Result<Self, RuleError> {
        let Allow { locations, targets, kinds: _, annotation_assignment, impersonate } = allow;
        Ok(Self {
            reach: reach(locations, targets, ["spec.allow.locations", "spec.allow.targets"])?,
            kinds: allow.kind_patterns()?,
            annotation_assignment: *annotation_assignment,
            impersonate: impersonate.as_ref().map(|account| {
                let (namespace, name) = (account.namespace.as_str().into(), account.name.as_str().into());
                Arc::new(Impersonation { namespace, name })
            }),
        })
    }
}

impl SpaceRule {
    pub(super) fn allows(&self, kind: &GroupKind) -> bool {
        self.kinds.iter().any(|pattern| pattern.matches(&kind.group, &kind.kind))
    }
}

impl Clause {
    fn read(nth: usize, clause: &ObjectClause, additions: &Additions) -> Result<Self, RuleError> {
        let ObjectClause {
            name,
            api_group,
            resources,
            namespaces,
            namespace_selectors,
            object_selectors,
            names,
            apply,
            status: StatusPolicy { r#return, when_stale: _, collectors: _, associated },
        } = clause;
        let invalid =
            |field| move |(selector, source)| RuleError::ClauseSelector { clause: nth, field, nth: selector, source };
        for field in &apply.fields {
            FieldPath::parse(&field.path).map_err(|source| RuleError::Field {
                clause: nth,
                path: field.path.clone(),
                source,
            })?;
        }
        let policy = ApplyPolicy {
            additions: additions.clone(),
            associated: associated.iter().map(|resource| (*resource).into()).collect(),
            report: (*r#return).into(),
            ..apply.clone().into()
        };
        let bytes = serde_json::to_vec(&policy).map_or(usize::MAX, |json| json.len());
        if bytes > CLAUSE_POLICY_BYTES_MAX {
            return Err(RuleError::TooLarge { clause: nth, bytes });
        }
        let read = Self {
            called: String::new(),
            group: api_group.clone().filter(|group| group != ANY),
            resources: if resources.iter().any(|resource| resource == ANY) {
                BTreeSet::new()
            } else {
                resources.iter().cloned().collect()
            },
            namespaces: namespaces.iter().cloned().collect(),
            namespace_selectors: selectors(namespace_selectors).map_err(invalid("namespaceSelectors"))?,
            object_selectors: selectors(object_selectors).map_err(invalid("objectSelectors"))?,
            names: names.iter().cloned().collect(),
            policy,
        };
        if api_group.is_none() && resources.is_empty() && read.is_unrestricted() {
            return Err(RuleError::NoCriterion { clause: nth });
        }
        let called = match name {
            Some(name) => format!("the clause {name:?}"),
            None => format!("spec.objects[{nth}] ({})", read.first_criterion()),
        };
        Ok(Self { called, ..read })
    }

    /// Whether every object meets it.
    fn is_unrestricted(&self) -> bool {
        let Self { called: _, group, resources, namespaces, namespace_selectors, object_selectors, names, policy: _ } =
            self;
        group.is_none()
            && resources.is_empty()
            && namespaces.is_empty()
            && namespace_selectors.is_empty()
            && object_selectors.is_empty()
            && names.is_empty()
    }

    /// The criterion by which somebody finds it among the others.
    fn first_criterion(&self) -> String {
        let first = |names: &BTreeSet<String>| names.first().cloned();
        let resource = first(&self.resources).map(|resource| match self.group.as_deref() {
            Some(group) if !group.is_empty() => format!("{resource}.{group}"),
            Some(_) | None => resource,
        });
        let group = || {
            let group = self.group.as_deref()?;
            Some(if group.is_empty() { "the core group".to_owned() } else { format!("the group {group}") })
        };
        resource
            .or_else(group)
            .or_else(|| first(&self.namespaces).map(|namespace| format!("namespace {namespace}")))
            .or_else(|| first(&self.names).map(|name| format!("name {name}")))
            .unwrap_or_else(|| if self.is_unrestricted() { "every object" } else { "by labels" }.to_owned())
    }

    pub(super) fn selects(&self, candidate: Candidate<'_>) -> bool {
        let Candidate { resource, key, labels, namespace_labels } = candidate;
        let Self { called: _, group, resources, namespaces, namespace_selectors, object_selectors, names, policy: _ } =
            self;
        let any = |selectors: &[Selector], labels: &Labels| selectors.iter().any(|selector| selector.matches(labels));
        group.as_ref().is_none_or(|group| **group == *resource.group)
            && (resources.is_empty() || resources.contains(&*resource.resource))
            && (names.is_empty() || names.contains(&*key.name))
            && (namespaces.is_empty() || (key.is_namespaced() && namespaces.contains(&*key.namespace)))
            && (namespace_selectors.is_empty()
                || namespace_labels.is_some_and(|labels| any(namespace_selectors, labels)))
            && (object_selectors.is_empty() || any(object_selectors, labels))
    }
}

impl PlacementRule {
    /// How an object is to be kept, merged from every clause that selects it; none if none does. `name` is what its gate is
    /// told apart by.
    pub(super) fn policy(&self, candidate: Candidate<'_>, name: impl FnOnce() -> String) -> Option<ApplyPolicy> {
        self.merged(self.objects.iter().filter(|clause| clause.selects(candidate)), name)
    }

    /// The same from these clauses, which are known to select it.
    pub(super) fn merged<'a>(
        &self,
        selecting: impl Iterator<Item = &'a Clause>,
        name: impl FnOnce() -> String,
    ) -> Option<ApplyPolicy> {
        let mut policy = selecting.map(|clause| clause.policy.clone()).reduce(|all, one| all.merge(&one))?;
        policy
            .gates
            .extend(self.readiness_deadline.map(|deadline_seconds| Gate { placement: name(), deadline_seconds }));
        Some(policy)
    }
}

/// What holds for a namespace that is only implied: created if missing, never changed or deleted.
pub(super) fn implied_policy() -> ApplyPolicy {
    use tideline_common::{
        ApplyMode, ApproveDeletions, ConflictPolicy, DriftPolicy, Prune, PruneAdopted, Recreate, Takeover,
    };
    ApplyPolicy {
        additions: tideline_common::Additions::default(),
        mode: ApplyMode::CreateOnly,
        conflicts: ConflictPolicy::Report,
        takeover: Takeover::Never,
        recreate: Recreate::Never,
        prune: Prune::Orphan,
        prune_adopted: PruneAdopted::Orphan,
        drift: DriftPolicy::Report,
        approve_deletions: ApproveDeletions::Ask,
        fields: Vec::new(),
        gates: Vec::new(),
        associated: std::collections::BTreeSet::new(),
        report: tideline_common::ReportClass::default(),
    }
}

#[cfg(test)]
mod tests;
