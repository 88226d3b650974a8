//! What a space serves: built-in kinds, custom resources, and the embedder's virtual ones.

mod definition;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

pub(crate) use self::definition::{CUSTOM_CLEANUP, CustomVersion, Definition, ScalePaths, set_condition};
use crate::resource_kind::ResourceKind;
use crate::schema::{Subresource, TypeRef, builtin};
use crate::status::ApiError;
use crate::virtual_resource::VirtualResource;

pub(crate) const CRD_GROUP: &str = "apiextensions.k8s.io";
pub(crate) const CRDS: &str = "customresourcedefinitions";
pub(crate) const NAMESPACES: &str = "namespaces";

/// A resource in one version that clients see.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) resource: Arc<ResourceKind>,
    pub(crate) version: String,
    pub(crate) api_version: String,
    pub(crate) singular: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: Vec<String>,
    pub(crate) subresources: Vec<Subresource>,
    pub(crate) storage_version_hash: Option<String>,
    pub(crate) source: Source,
}

/// Where the objects come from and what is known of their shape.
pub(crate) enum Source {
    BuiltIn(TypeRef<'static>),
    Custom(Arc<CustomVersion>),
    Virtual(Arc<dyn VirtualResource>),
    /// Answered from the request alone; nothing is stored.
    Review,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Source::BuiltIn(_) => "BuiltIn",
            Source::Custom(_) => "Custom",
            Source::Virtual(_) => "Virtual",
            Source::Review => "Review",
        })
    }
}

/// Subresources that this server serves; others of the built-in kinds need a kubelet or a controller.
const SUBRESOURCES: [&str; 4] = ["status", "scale", "finalize", "approval"];

/// Built-in resources that need no store and are answered.
const REVIEWS: [&str; 2] = ["selfsubjectaccessreviews", "selfsubjectreviews"];

/// Built-in resources with a second version or group over the same objects, which is not served:
/// the objects are reached through the other one (`autoscaling/v2`, core events).
const SECOND_VIEWS: [(&str, &str, &str); 2] =
    [("autoscaling", "v1", "horizontalpodautoscalers"), ("events.k8s.io", "v1", "events")];

/// Built-in kinds whose registry counts generations (those that set `Generation = 1` on creation).
const WITH_GENERATION: [&str; 24] = [
    "cronjobs",
    "daemonsets",
    "deployments",
    "deviceclasses",
    "endpointslices",
    "flowschemas",
    "ingressclasses",
    "ingresses",
    "jobs",
    "mutatingwebhookconfigurations",
    "networkpolicies",
    "poddisruptionbudgets",
    "pods",
    "podtemplates",
    "priorityclasses",
    "prioritylevelconfigurations",
    "replicasets",
    "replicationcontrollers",
    "resourceslices",
    "statefulsets",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
    CRDS,
];

/// Built-in kinds that are not replaced without a resource version (`AllowUnconditionalUpdate` is false).
const CONDITIONAL_UPDATE: [&str; 12] = [
    CRDS,
    "csidrivers",
    "csinodes",
    "csistoragecapacities",
    "leases",
    "mutatingwebhookconfigurations",
    "poddisruptionbudgets",
    "runtimeclasses",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
    "volumeattachments",
];

impl Served {
    fn of_virtual(source: &Arc<dyn VirtualResource>) -> Arc<Self> {
        let resource = source.resource();
        Arc::new(Self {
            version: resource.version.clone(),
            api_version: resource.api_version(),
            singular: resource.kind.to_lowercase(),
            list_kind: format!("{}List", resource.kind),
            short_names: source.short_names(),
            categories: Vec::new(),
            verbs: ["get", "list", "watch"].map(str::to_owned).to_vec(),
            subresources: Vec::new(),
            storage_version_hash: None,
            resource: Arc::new(resource),
            source: Source::Virtual(Arc::clone(source)),
        })
    }

    /// The type of the objects; virtual ones have none.
    pub(crate) fn type_of(&self) -> Option<TypeRef<'_>> {
        match &self.source {
            Source::BuiltIn(ty) => Some(*ty),
            Source::Custom(custom) => Some(custom.ty.root()),
            Source::Virtual(_) | Source::Review => None,
        }
    }

    /// Steps that one byte of an object may take to be validated, at most.
    pub(crate) fn steps_each(&self) -> u64 {
        match &self.source {
            Source::Custom(custom) => custom.ty.steps_each(),
            // A definition of a few bytes may have a pattern that takes long to compile.
            Source::BuiltIn(_) if self.is_crd() => u64::MAX,
            Source::BuiltIn(_) | Source::Virtual(_) | Source::Review => 1,
        }
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.source, Source::Custom(_))
    }

    /// Whether `status` is written through a subresource.
    pub(crate) fn has_status(&self) -> bool {
        self.subresources.iter().any(|sub| sub.name == "status")
    }

    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| one == verb)
    }

    pub(crate) fn has_generation(&self) -> bool {
        self.is_custom() || WITH_GENERATION.contains(&self.resource.plural.as_str())
    }

    pub(crate) fn unconditional_update(&self) -> bool {
        !self.is_custom() && !CONDITIONAL_UPDATE.contains(&self.resource.plural.as_str())
    }

    pub(crate) fn is_crd(&self) -> bool {
        self.resource.plural == CRDS && self.resource.group == CRD_GROUP
    }

    pub(crate) fn is_namespace(&self) -> bool {
        self.resource.plural == NAMESPACES && self.resource.group.is_empty()
    }

    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.source, Source::BuiltIn(_) | Source::Custom(_))
    }

    pub(crate) fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, name)
    }
}

/// The built-in resources, parsed once for all spaces.
static BUILT_IN: LazyLock<Vec<Arc<Served>>> = LazyLock::new(|| {
    let served = builtin().resources().iter().filter_map(|resource| {
        let review = REVIEWS.contains(&resource.plural.as_str());
        let id = (resource.group.as_str(), resource.version.as_str(), resource.plural.as_str());
        if (resource.storage_version_hash.is_none() && !review) || SECOND_VIEWS.contains(&id) {
            return None;
        }
        let ty = builtin().type_of(&resource.group, &resource.version, &resource.kind)?;
        Some(Arc::new(Served {
            resource: Arc::new(ResourceKind {
                group: resource.group.clone(),
                version: resource.version.clone(),
                kind: resource.kind.clone(),
                plural: resource.plural.clone(),
                namespaced: resource.namespaced,
            }),
            version: resource.version.clone(),
            api_version: resource.api_version(),
            singular: resource.singular.clone(),
            list_kind: format!("{}List", resource.kind),
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
            verbs: resource.verbs.clone(),
            subresources: resource
                .subresources
                .iter()
                .filter(|sub| SUBRESOURCES.contains(&sub.name.as_str()))
                .cloned()
                .collect(),
            storage_version_hash: resource.storage_version_hash.clone(),
            source: if review { Source::Review } else { Source::BuiltIn(ty) },
        }))
    });
    served.collect()
});

type Id<'a> = (&'a str, &'a str, &'a str);

static BUILT_IN_INDEX: LazyLock<HashMap<Id<'static>, &'static Arc<Served>>> = LazyLock::new(|| {
    BUILT_IN
        .iter()
        .map(|one| ((one.resource.group.as_str(), one.version.as_str(), one.resource.plural.as_str()), one))
        .collect()
});

/// The built-in resource that every space serves.
pub(crate) fn built_in(group: &str, version: &str, plural: &str) -> Option<&'static Arc<Served>> {
    BUILT_IN_INDEX.get(&(group, version, plural)).copied()
}

/// Everything one space serves; immutable, replaced as a whole when a definition changes.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    definitions: BTreeMap<String, Arc<Definition>>,
    /// Custom and virtual resources, by group, version and plural.
    added: BTreeMap<(String, String, String), Arc<Served>>,
}

impl Catalog {
    pub(crate) fn new(definitions: Vec<Arc<Definition>>, virtuals: &[Arc<dyn VirtualResource>]) -> Self {
        let mut catalog = Self::default();
        for resource in virtuals {
            catalog.add(&Served::of_virtual(resource));
        }
        for definition in definitions {
            for served in definition.served() {
                catalog.add(served);
            }
            catalog.definitions.insert(definition.name().to_owned(), definition);
        }
        catalog
    }

    fn add(&mut self, served: &Arc<Served>) {
        let resource = &served.resource;
        let id = (resource.group.clone(), served.version.clone(), resource.plural.clone());
        self.added.entry(id).or_insert_with(|| Arc::clone(served));
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        if let Some(found) = built_in(group, version, plural) {
            return Some(Arc::clone(found));
        }
        self.added.get(&(group.to_owned(), version.to_owned(), plural.to_owned())).cloned()
    }

    /// Whether objects are still shown as when `served` was found. Whether a definition has other labels, or is being deleted, makes
    /// no difference to them.
    pub(crate) fn still_serves(&self, served: &Served) -> bool {
        let Source::Custom(before) = &served.source else { return true };
        if !self.definitions.contains_key(&format!("{}.{}", served.resource.plural, served.resource.group)) {
            // Its objects went before it, which their watches are still to tell.
            return true;
        }
        let now = self.find(&served.resource.group, &served.version, &served.resource.plural);
        now.is_some_and(|now| matches!(&now.source, Source::Custom(now) if now.spec == before.spec))
    }

    pub(crate) fn definition(&self, name: &str) -> Option<&Arc<Definition>> {
        self.definitions.get(name)
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.definitions.values()
    }

    /// All resources in all served versions: built-in ones in a real server's order, then the added ones by name.
    pub(crate) fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        BUILT_IN.iter().chain(self.added.values())
    }

    /// Every stored resource once, whatever the versions it is served in; also those whose definition serves none.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &Arc<ResourceKind>> {
        let built_in = BUILT_IN.iter().filter(|one| one.is_stored()).map(|one| &one.resource);
        built_in.chain(self.definitions.values().filter(|one| one.is_accepted()).map(|one| one.resource()))
    }
}
