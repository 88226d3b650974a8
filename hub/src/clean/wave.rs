use tideline_common::GroupKind;

/// The wave that a kind goes in: what others need first. Everything that is not named, custom resources too, goes with the
/// workloads, in wave 0. Deletion is in reverse.
pub(super) fn of(kind: &GroupKind) -> i32 {
    match (&*kind.group, &*kind.kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") | ("", "Namespace") => -100,
        (
            "scheduling.k8s.io"
            | "storage.k8s.io"
            | "node.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "rbac.authorization.k8s.io"
            | "resource.k8s.io",
            _,
        )
        | ("", "ServiceAccount" | "LimitRange" | "ResourceQuota") => -60,
        ("", "ConfigMap" | "Secret" | "PersistentVolume" | "PersistentVolumeClaim")
        | ("networking.k8s.io", "NetworkPolicy" | "IngressClass") => -40,
        // Before Pods, so that their environment names it.
        ("", "Service") => -20,
        ("networking.k8s.io" | "autoscaling" | "policy", _) => 20,
        // Last: a webhook whose server is not up refuses everything else.
        ("admissionregistration.k8s.io", _) => 40,
        _ => 0,
    }
}
