use serde_json::Value;
use tideline_common::ObjectKey;

/// The accounts in kube-system that controller managers make for their controllers, with credentials for each. Nothing
/// but their names tells them from those of add-ons (Kubernetes 1.35, the bootstrap policy of RBAC, and what is started
/// without a role of its own).
const CONTROLLER_ACCOUNTS: &[&str] = &[
    "attachdetach-controller",
    "bootstrap-signer",
    "certificate-controller",
    "clusterrole-aggregation-controller",
    "controller-discovery",
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslice-controller",
    "endpointslicemirroring-controller",
    "ephemeral-volume-controller",
    "expand-controller",
    "generic-garbage-collector",
    "horizontal-pod-autoscaler",
    "job-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher",
    "legacy-service-account-token-cleaner",
    "metadata-informers",
    "namespace-controller",
    "node-controller",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "podcertificaterequestcleaner",
    "pv-protection-controller",
    "pvc-protection-controller",
    "replicaset-controller",
    "replication-controller",
    "resource-claim-controller",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "route-controller",
    "selinux-warning-controller",
    "service-account-controller",
    "service-cidrs-controller",
    "service-controller",
    "shared-informers",
    "statefulset-controller",
    "storage-version-garbage-collector",
    "storage-version-migrator-controller",
    "token-cleaner",
    "tokens-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// Why an object is never placed, whatever selects it; none for one that may be.
pub(super) fn never_placed(key: &ObjectKey, object: &Value) -> Option<&'static str> {
    own_kind(key).or_else(|| cluster_own(key)).or_else(|| bootstrap(key, object)).or_else(|| controlled(object))
}

fn own_kind(key: &ObjectKey) -> Option<&'static str> {
    let ours = |group: &str| group == "tideline.dev" || group.ends_with(".tideline.dev");
    // A definition's name is the plural of its kind, a dot, and its group.
    let defined = key.name.split_once('.').map(|(_, group)| group);
    let defines = key.kind.is("apiextensions.k8s.io", "CustomResourceDefinition") && defined.is_some_and(ours);
    (defines || ours(&key.kind.group)).then_some("it configures the hub itself")
}

/// What each cluster has of its own and makes by itself.
fn cluster_own(key: &ObjectKey) -> Option<&'static str> {
    let (namespace, name) = (&*key.namespace, &*key.name);
    match (&*key.kind.group, &*key.kind.kind) {
        ("" | "events.k8s.io", "Event") => Some("events tell of one cluster"),
        ("", "Node" | "ComponentStatus")
        | ("storage.k8s.io", "CSINode" | "VolumeAttachment" | "CSIStorageCapacity")
        | ("resource.k8s.io", "ResourceSlice") => Some("nodes belong to one cluster"),
        ("coordination.k8s.io", _) => Some("leases belong to one cluster"),
        ("", "Endpoints") | ("discovery.k8s.io", "EndpointSlice") => Some("endpoints are the addresses of one cluster"),
        ("apiregistration.k8s.io", "APIService") => Some("a cluster's API server registers its own APIs"),
        ("internal.apiserver.k8s.io", _) => Some("it is an API server's own record"),
        ("certificates.k8s.io", "CertificateSigningRequest" | "PodCertificateRequest") => {
            Some("it asks one cluster for a certificate")
        }
        ("networking.k8s.io", "IPAddress") => Some("addresses belong to one cluster"),
        ("networking.k8s.io", "ServiceCIDR") if name == "kubernetes" => Some("addresses belong to one cluster"),
        ("", "ConfigMap") if name == "kube-root-ca.crt" => Some("every cluster publishes its own CA"),
        ("", "ConfigMap")
            if namespace == "kube-system"
                && matches!(
                    name,
                    "extension-apiserver-authentication" | "kube-apiserver-legacy-service-account-token-tracking"
                ) =>
        {
            Some("it is an API server's own record")
        }
        ("", "ServiceAccount") if name == "default" => Some("every namespace has its own default ServiceAccount"),
        ("", "ServiceAccount") if namespace == "kube-system" && CONTROLLER_ACCOUNTS.binary_search(&name).is_ok() => {
            Some("every cluster's controllers have their own accounts")
        }
        ("", "Service") if (namespace, name) == ("default", "kubernetes") => Some("it is the API server itself"),
        ("", "Namespace") if name == "default" || name.starts_with("kube-") => Some("every cluster has its own"),
        _ => None,
    }
}

/// What API servers make at their first start, and keep up to date.
fn bootstrap(key: &ObjectKey, object: &Value) -> Option<&'static str> {
    let name = &*key.name;
    let metadata = |field: &str, key: &str| object.get("metadata")?.get(field)?.get(key)?.as_str();
    match (&*key.kind.group, &*key.kind.kind) {
        ("", "Secret") => {
            let kind = object.get("type").and_then(Value::as_str);
            let token = matches!(kind, Some("kubernetes.io/service-account-token" | "bootstrap.kubernetes.io/token"));
            token.then_some("it is a token for one cluster")
        }
        ("rbac.authorization.k8s.io", _) => {
            let ours = name.starts_with("system:")
                || metadata("labels", "kubernetes.io/bootstrapping") == Some("rbac-defaults");
            ours.then_some("every API server makes its own default roles")
        }
        ("flowcontrol.apiserver.k8s.io", _) => {
            let ours = metadata("annotations", "apf.kubernetes.io/autoupdate-spec").is_some()
                || matches!(name, "exempt" | "catch-all");
            ours.then_some("every API server makes its own default flow control")
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            // The prefix is reserved for these.
            name.starts_with("system-").then_some("every API server makes its own system priority classes")
        }
        _ => None,
    }
}

fn controlled(object: &Value) -> Option<&'static str> {
    let owners = object.get("metadata")?.get("ownerReferences")?.as_array()?;
    let controlled = owners.iter().any(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
    controlled.then_some("a controller makes it out of another object; place that one")
}
