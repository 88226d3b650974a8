use tideline_common::GroupKind;

/// The wave that a kind goes in: what others need first. Deletion is in reverse. What is not named goes with the workloads,
/// in wave 0, and custom resources after them: the controllers that finalize them may be among these.
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
        // Of definitions, and of aggregated API servers.
        (group, _) if group.contains('.') => 10,
        _ => 0,
    }
}
