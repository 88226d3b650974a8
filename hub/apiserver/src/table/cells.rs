//! Columns of the built-in kinds between NAME and AGE.

use serde_json::{Value, json};

use super::age_of;
use crate::catalog::Served;
use crate::object::text;

/// One column and how its cell is computed.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) priority: i64,
    pub(super) cell: fn(&Value) -> Value,
}

const fn column(name: &'static str, kind: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name, kind, priority: 0, cell }
}

const fn wide(name: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name, kind: "string", priority: 1, cell }
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn count(object: &Value, pointer: &str) -> i64 {
    match object.pointer(pointer) {
        Some(Value::Array(items)) => i64::try_from(items.len()).unwrap_or(i64::MAX),
        Some(Value::Object(fields)) => i64::try_from(fields.len()).unwrap_or(i64::MAX),
        _ => 0,
    }
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn or(value: String, otherwise: &str) -> Value {
    if value.is_empty() { otherwise.into() } else { value.into() }
}

fn joined(object: &Value, pointer: &str, inner: &str) -> String {
    items(object, pointer).map(|item| text(item, inner)).filter(|one| !one.is_empty()).collect::<Vec<_>>().join(",")
}

fn pairs(object: &Value, pointer: &str) -> Value {
    let fields = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let all: Vec<String> = fields.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or(all.join(","), "<none>")
}

fn ready_of(object: &Value, wanted: &str) -> Value {
    format!("{}/{}", number(object, "/status/readyReplicas"), number(object, wanted)).into()
}

fn data(object: &Value) -> Value {
    (count(object, "/data") + count(object, "/binaryData")).into()
}

const CONTAINER_NAMES: Column = wide("Containers", |o| joined(o, "/spec/template/spec/containers", "/name").into());
const IMAGES: Column = wide("Images", |o| joined(o, "/spec/template/spec/containers", "/image").into());
const SELECTOR: Column = wide("Selector", |o| pairs(o, "/spec/selector/matchLabels"));

static PODS: [Column; 7] = [
    column("Ready", "string", |o| {
        let ready = items(o, "/status/containerStatuses").filter(|status| status["ready"] == true).count();
        format!("{ready}/{}", count(o, "/spec/containers")).into()
    }),
    column("Status", "string", pod_status),
    column("Restarts", "string", |o| {
        items(o, "/status/containerStatuses")
            .map(|status| number(status, "/restartCount"))
            .sum::<i64>()
            .to_string()
            .into()
    }),
    wide("IP", |o| or(text(o, "/status/podIP").to_owned(), "<none>")),
    wide("Node", |o| or(text(o, "/spec/nodeName").to_owned(), "<none>")),
    wide("Nominated Node", |o| or(text(o, "/status/nominatedNodeName").to_owned(), "<none>")),
    wide("Readiness Gates", |_| "<none>".into()),
];
static DEPLOYMENTS: [Column; 6] = [
    column("Ready", "string", |o| ready_of(o, "/spec/replicas")),
    column("Up-to-date", "integer", |o| number(o, "/status/updatedReplicas").into()),
    column("Available", "integer", |o| number(o, "/status/availableReplicas").into()),
    CONTAINER_NAMES,
    IMAGES,
    SELECTOR,
];
static REPLICA_SETS: [Column; 6] = [
    column("Desired", "integer", |o| number(o, "/spec/replicas").into()),
    column("Current", "integer", |o| number(o, "/status/replicas").into()),
    column("Ready", "integer", |o| number(o, "/status/readyReplicas").into()),
    CONTAINER_NAMES,
    IMAGES,
    SELECTOR,
];
static STATEFUL_SETS: [Column; 3] =
    [column("Ready", "string", |o| ready_of(o, "/spec/replicas")), CONTAINER_NAMES, IMAGES];
static DAEMON_SETS: [Column; 9] = [
    column("Desired", "integer", |o| number(o, "/status/desiredNumberScheduled").into()),
    column("Current", "integer", |o| number(o, "/status/currentNumberScheduled").into()),
    column("Ready", "integer", |o| number(o, "/status/numberReady").into()),
    column("Up-to-date", "integer", |o| number(o, "/status/updatedNumberScheduled").into()),
    column("Available", "integer", |o| number(o, "/status/numberAvailable").into()),
    column("Node Selector", "string", |o| pairs(o, "/spec/template/spec/nodeSelector")),
    CONTAINER_NAMES,
    IMAGES,
    SELECTOR,
];
static JOBS: [Column; 6] = [
    column("Status", "string", job_status),
    column("Completions", "string", |o| {
        let wanted = o.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1);
        format!("{}/{wanted}", number(o, "/status/succeeded")).into()
    }),
    column("Duration", "string", job_duration),
    CONTAINER_NAMES,
    IMAGES,
    SELECTOR,
];
static CRON_JOBS: [Column; 5] = [
    column("Schedule", "string", |o| text(o, "/spec/schedule").into()),
    column("Timezone", "string", |o| or(text(o, "/spec/timeZone").to_owned(), "<none>")),
    column("Suspend", "string", |o| {
        if o.pointer("/spec/suspend") == Some(&json!(true)) { "True" } else { "False" }.into()
    }),
    column("Active", "integer", |o| count(o, "/status/active").into()),
    column("Last Schedule", "string", |o| match text(o, "/status/lastScheduleTime") {
        "" => "<none>".into(),
        time => age_of(time).into(),
    }),
];
static SERVICES: [Column; 5] = [
    column("Type", "string", |o| text(o, "/spec/type").into()),
    column("Cluster-IP", "string", |o| or(text(o, "/spec/clusterIP").to_owned(), "<none>")),
    column("External-IP", "string", external_ip),
    column("Port(s)", "string", service_ports),
    wide("Selector", |o| pairs(o, "/spec/selector")),
];
static INGRESSES: [Column; 4] = [
    column("Class", "string", |o| or(text(o, "/spec/ingressClassName").to_owned(), "<none>")),
    column("Hosts", "string", |o| or(joined(o, "/spec/rules", "/host"), "*")),
    column("Address", "string", |o| addresses(o).into()),
    column("Ports", "string", |o| if count(o, "/spec/tls") > 0 { "80, 443" } else { "80" }.into()),
];
static CONFIG_MAPS: [Column; 1] = [column("Data", "string", data)];
static SECRETS: [Column; 2] = [column("Type", "string", |o| text(o, "/type").into()), column("Data", "string", data)];
static NAMESPACES: [Column; 1] = [column("Status", "string", |o| text(o, "/status/phase").into())];
static SERVICE_ACCOUNTS: [Column; 1] = [column("Secrets", "string", |o| count(o, "/secrets").into())];
static NODES: [Column; 3] = [
    column("Status", "string", node_status),
    column("Roles", "string", node_roles),
    column("Version", "string", |o| text(o, "/status/nodeInfo/kubeletVersion").into()),
];
static CLAIMS: [Column; 6] = [
    column("Status", "string", |o| text(o, "/status/phase").into()),
    column("Volume", "string", |o| text(o, "/spec/volumeName").into()),
    column("Capacity", "string", |o| text(o, "/status/capacity/storage").into()),
    column("Access Modes", "string", |o| access_modes(o, "/spec/accessModes")),
    column("StorageClass", "string", |o| text(o, "/spec/storageClassName").into()),
    wide("VolumeMode", |o| or(text(o, "/spec/volumeMode").to_owned(), "Filesystem")),
];
static VOLUMES: [Column; 7] = [
    column("Capacity", "string", |o| text(o, "/spec/capacity/storage").into()),
    column("Access Modes", "string", |o| access_modes(o, "/spec/accessModes")),
    column("Reclaim Policy", "string", |o| or(text(o, "/spec/persistentVolumeReclaimPolicy").to_owned(), "Retain")),
    column("Status", "string", |o| text(o, "/status/phase").into()),
    column("Claim", "string", |o| match text(o, "/spec/claimRef/name") {
        "" => "".into(),
        name => format!("{}/{name}", text(o, "/spec/claimRef/namespace")).into(),
    }),
    column("StorageClass", "string", |o| text(o, "/spec/storageClassName").into()),
    column("Reason", "string", |o| text(o, "/status/reason").into()),
];
static AUTOSCALERS: [Column; 4] = [
    column("Reference", "string", |o| {
        format!("{}/{}", text(o, "/spec/scaleTargetRef/kind"), text(o, "/spec/scaleTargetRef/name")).into()
    }),
    column("MinPods", "string", |o| o.pointer("/spec/minReplicas").map_or("<unset>".into(), |n| n.to_string().into())),
    column("MaxPods", "integer", |o| number(o, "/spec/maxReplicas").into()),
    column("Replicas", "integer", |o| number(o, "/status/currentReplicas").into()),
];
static BUDGETS: [Column; 3] = [
    column("Min Available", "string", |o| plain(o, "/spec/minAvailable")),
    column("Max Unavailable", "string", |o| plain(o, "/spec/maxUnavailable")),
    column("Allowed Disruptions", "integer", |o| number(o, "/status/disruptionsAllowed").into()),
];
static EVENTS: [Column; 5] = [
    column("Last Seen", "string", |o| {
        let times = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        let time = times.iter().map(|pointer| text(o, pointer)).find(|time| !time.is_empty()).unwrap_or_default();
        age_of(time).into()
    }),
    column("Type", "string", |o| text(o, "/type").into()),
    column("Reason", "string", |o| text(o, "/reason").into()),
    column("Object", "string", |o| {
        format!("{}/{}", text(o, "/involvedObject/kind").to_lowercase(), text(o, "/involvedObject/name")).into()
    }),
    column("Message", "string", |o| text(o, "/message").trim().into()),
];
static DEFINITIONS: [Column; 1] = [column("Created At", "date", |o| text(o, "/metadata/creationTimestamp").into())];
static ROLES: [Column; 1] = [column("Created At", "date", |o| text(o, "/metadata/creationTimestamp").into())];
static BINDINGS: [Column; 1] =
    [column("Role", "string", |o| format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")).into())];
static POLICIES: [Column; 1] = [column("Pod-Selector", "string", |o| pairs(o, "/spec/podSelector/matchLabels"))];
static STORAGE_CLASSES: [Column; 4] = [
    column("Provisioner", "string", |o| text(o, "/provisioner").into()),
    column("ReclaimPolicy", "string", |o| or(text(o, "/reclaimPolicy").to_owned(), "Delete")),
    column("VolumeBindingMode", "string", |o| or(text(o, "/volumeBindingMode").to_owned(), "Immediate")),
    column("AllowVolumeExpansion", "string", |o| o["allowVolumeExpansion"].as_bool().unwrap_or(false).into()),
];
static LEASES: [Column; 1] = [column("Holder", "string", |o| text(o, "/spec/holderIdentity").into())];
static PRIORITIES: [Column; 2] = [
    column("Value", "integer", |o| number(o, "/value").into()),
    column("Global-Default", "boolean", |o| o["globalDefault"].as_bool().unwrap_or(false).into()),
];
static ENDPOINTS: [Column; 1] = [column("Endpoints", "string", |o| {
    let all: Vec<String> = items(o, "/subsets").map(|subset| joined(subset, "/addresses", "/ip")).collect();
    or(all.join(","), "<none>")
})];

/// The columns of a built-in kind; none for those that show name and age alone.
pub(super) fn of(served: &Served) -> &'static [Column] {
    match (served.resource.group.as_str(), served.resource.plural.as_str()) {
        ("", "pods") => &PODS,
        ("apps", "deployments") => &DEPLOYMENTS,
        ("apps", "replicasets") | ("", "replicationcontrollers") => &REPLICA_SETS,
        ("apps", "statefulsets") => &STATEFUL_SETS,
        ("apps", "daemonsets") => &DAEMON_SETS,
        ("batch", "jobs") => &JOBS,
        ("batch", "cronjobs") => &CRON_JOBS,
        ("", "services") => &SERVICES,
        ("", "endpoints") => &ENDPOINTS,
        ("networking.k8s.io", "ingresses") => &INGRESSES,
        ("networking.k8s.io", "networkpolicies") => &POLICIES,
        ("", "configmaps") => &CONFIG_MAPS,
        ("", "secrets") => &SECRETS,
        ("", "namespaces") => &NAMESPACES,
        ("", "serviceaccounts") => &SERVICE_ACCOUNTS,
        ("", "nodes") => &NODES,
        ("", "persistentvolumeclaims") => &CLAIMS,
        ("", "persistentvolumes") => &VOLUMES,
        ("autoscaling", "horizontalpodautoscalers") => &AUTOSCALERS,
        ("policy", "poddisruptionbudgets") => &BUDGETS,
        ("", "events") => &EVENTS,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &DEFINITIONS,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => &ROLES,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &BINDINGS,
        ("storage.k8s.io", "storageclasses") => &STORAGE_CLASSES,
        ("coordination.k8s.io", "leases") => &LEASES,
        ("scheduling.k8s.io", "priorityclasses") => &PRIORITIES,
        _ => &[],
    }
}

/// Kinds whose real columns say when they were made in a column of their own, or show no age.
pub(super) fn has_own_age(served: &Served) -> bool {
    let plural = served.resource.plural.as_str();
    matches!(plural, "customresourcedefinitions" | "roles" | "clusterroles")
        || (plural == "events" && served.resource.group.is_empty())
}

fn plain(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        None | Some(Value::Null) => "N/A".into(),
        Some(Value::String(text)) => text.clone().into(),
        Some(other) => other.to_string().into(),
    }
}

fn pod_status(object: &Value) -> Value {
    if crate::object::is_terminating(object) {
        return "Terminating".into();
    }
    let waiting = items(object, "/status/containerStatuses").find_map(|status| {
        let reason =
            |state: &str| Some(text(status, &format!("/state/{state}/reason"))).filter(|reason| !reason.is_empty());
        reason("waiting").or_else(|| reason("terminated"))
    });
    match (waiting, text(object, "/status/reason")) {
        (None, "") => text(object, "/status/phase").into(),
        (Some(reason), _) | (None, reason) => reason.into(),
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    items(object, "/status/conditions")
        .find(|one| text(one, "/type") == kind)
        .map(|one| text(one, "/status"))
        .unwrap_or_default()
}

fn job_status(object: &Value) -> Value {
    match () {
        () if condition(object, "Complete") == "True" => "Complete",
        () if condition(object, "Failed") == "True" => "Failed",
        () if condition(object, "Suspended") == "True" => "Suspended",
        () => "Running",
    }
    .into()
}

fn job_duration(object: &Value) -> Value {
    let second = |pointer: &str| text(object, pointer).parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second);
    match (second("/status/startTime"), second("/status/completionTime")) {
        (Some(start), Some(end)) => super::duration(end - start).into(),
        (Some(_), None) => age_of(text(object, "/status/startTime")).into(),
        (None, _) => "".into(),
    }
}

fn addresses(object: &Value) -> String {
    let all = items(object, "/status/loadBalancer/ingress");
    let all = all.map(|one| if text(one, "/ip").is_empty() { text(one, "/hostname") } else { text(one, "/ip") });
    all.collect::<Vec<_>>().join(",")
}

fn external_ip(object: &Value) -> Value {
    match text(object, "/spec/type") {
        "ExternalName" => text(object, "/spec/externalName").into(),
        "LoadBalancer" => or(addresses(object), "<pending>"),
        _ => {
            let external = items(object, "/spec/externalIPs").filter_map(Value::as_str);
            or(external.collect::<Vec<_>>().join(","), "<none>")
        }
    }
}

fn service_ports(object: &Value) -> Value {
    let ports = items(object, "/spec/ports").map(|port| {
        let (number, protocol) = (number(port, "/port"), text(port, "/protocol"));
        match port.get("nodePort").and_then(Value::as_i64) {
            Some(node) => format!("{number}:{node}/{protocol}"),
            None => format!("{number}/{protocol}"),
        }
    });
    or(ports.collect::<Vec<_>>().join(","), "<none>")
}

fn access_modes(object: &Value, pointer: &str) -> Value {
    let modes = items(object, pointer).filter_map(Value::as_str).map(|mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    modes.collect::<Vec<_>>().join(",").into()
}

fn node_status(object: &Value) -> Value {
    let ready = match condition(object, "Ready") {
        "True" => "Ready",
        "" => "Unknown",
        _ => "NotReady",
    };
    if object.pointer("/spec/unschedulable") == Some(&json!(true)) {
        return format!("{ready},SchedulingDisabled").into();
    }
    ready.into()
}

fn node_roles(object: &Value) -> Value {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let roles: Vec<&str> = labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    or(roles.join(","), "<none>")
}
