use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::clean::NamespaceMapping;

/// An object as a server has it, merged over what every object has.
fn object(api_version: &str, kind: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
    });
    merge(&mut object, rest);
    object
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn placed(object: &Value) -> Outbound {
    match read(SpaceServer::Assigning, object).unwrap().content {
        Content::Outbound(outbound) => outbound,
        other => panic!("{other:?}"),
    }
}

fn check(object: &Value, expected: &Expect) {
    expected.assert_eq(&placed(object).input.text);
}

fn never(object: &Value) -> bool {
    matches!(read(SpaceServer::Assigning, object).unwrap().content, Content::NeverPlaced(_))
}

#[test]
fn what_the_space_says_of_an_object_stays_in_the_space() {
    let object = object(
        "v1",
        "ConfigMap",
        json!({
            "metadata": {
                "resourceVersion": "7", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z", "deletionGracePeriodSeconds": 0, "selfLink": "/x",
                "finalizers": ["a/b"], "generateName": "we", "ownerReferences": [{"kind": "X", "name": "x", "uid": "y"}],
                "managedFields": [{"manager": "kubectl"}],
                "labels": {"app": "web", "tideline.dev/agent": "somebody"},
                "annotations": {
                    "keep": "this", "kubectl.kubernetes.io/last-applied-configuration": "{}",
                    "tideline.dev/assigned-locations": "[\"eu\",\"us\"]", "tideline.dev/wave": "-10",
                    "tideline.dev/source": "{}"
                }
            },
            "data": {"z": "1", "a": "2"},
            "status": {"phase": "x"}
        }),
    );
    check(
        &object,
        &expect![[
            r#"{"apiVersion":"v1","data":{"a":"2","z":"1"},"kind":"ConfigMap","metadata":{"annotations":{"keep":"this"},"labels":{"app":"web"},"name":"web","namespace":"shop"}}"#
        ]],
    );
    let outbound = placed(&object);
    assert_eq!((outbound.generation, outbound.wave, outbound.deleting), (3, -10, true));
    assert_eq!(outbound.assigned_locations, ["eu", "us"]);
}

#[test]
fn maps_left_empty_go_with_their_content() {
    check(
        &object("v1", "Secret", json!({"metadata": {"annotations": {"tideline.dev/wave": "1"}, "labels": {}}})),
        &expect![[r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"web","namespace":"shop"}}"#]],
    );
}

#[test]
fn a_service_leaves_its_addresses_behind() {
    let spec = json!({"spec": {
        "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "healthCheckNodePort": 31000, "ports": [{"port": 80, "nodePort": 30080}], "type": "NodePort"
    }});
    check(
        &object("v1", "Service", spec),
        &expect![[
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{"ipFamilyPolicy":"SingleStack","ports":[{"port":80}],"type":"NodePort"}}"#
        ]],
    );
}

/// The server of an embedded space gives nothing such, so whoever wrote the object did.
#[test]
fn what_an_author_chose_in_an_embedded_space_travels() {
    let spec = json!({"spec": {
        "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "loadBalancerIP": "192.0.2.1",
        "healthCheckNodePort": 31000, "ports": [{"port": 80, "nodePort": 30080}], "type": "LoadBalancer"
    }});
    let claim = json!({"spec": {"volumeName": "pv-7"}});
    for (kind, rest, spec) in
        [("Service", &spec, spec["spec"].clone()), ("PersistentVolumeClaim", &claim, claim["spec"].clone())]
    {
        let written = object("v1", kind, rest.clone());
        let Content::Outbound(outbound) = read(SpaceServer::Embedded, &written).unwrap().content else {
            panic!("{written} may be placed");
        };
        let body: Value = serde_json::from_str(&outbound.input.text).unwrap();
        assert_eq!((&body["spec"], &body["metadata"]["annotations"]), (&spec, &Value::Null));
    }
}

#[test]
fn a_service_keeps_the_addresses_that_it_asks_to_keep() {
    let service = |keep: &str| {
        object(
            "v1",
            "Service",
            json!({
                "metadata": {"annotations": {"tideline.dev/keep-fields": keep}},
                "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [
                    {"port": 80, "nodePort": 30080}, {"port": 81, "nodePort": 30081}]}
            }),
        )
    };
    check(
        &service(r#"["$.spec.ports[*].nodePort", "/metadata/uid"]"#),
        &expect![[
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{"ports":[{"nodePort":30080,"port":80},{"nodePort":30081,"port":81}]}}"#
        ]],
    );
    check(
        &service(r#"["/spec/clusterIP"]"#),
        &expect![[
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{"clusterIP":"10.0.0.1","ports":[{"port":80},{"port":81}]}}"#
        ]],
    );
}

#[test]
fn a_service_that_was_assigned_no_address_keeps_the_families_it_wants() {
    let text = placed(&object("v1", "Service", json!({"spec": {"ipFamilies": ["IPv6"]}}))).input.text;
    assert!(text.contains(r#""ipFamilies":["IPv6"]"#), "{text}");
}

#[test]
fn certificates_that_a_controller_of_the_target_puts_in_are_not_sent() {
    let webhook = |annotation: &str, bundle: &str| {
        placed(&object(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            json!({
                "metadata": {"annotations": {annotation: "shop/web"}},
                "webhooks": [{"name": "a.b.c", "clientConfig": {"caBundle": bundle, "url": "https://x"}}]
            }),
        ))
        .input
        .text
        .contains("caBundle")
    };
    assert!(webhook("other", "Q0E="));
    assert!(!webhook("other", "Cg=="));
    assert!(!webhook("cert-manager.io/inject-ca-from", "Q0E="));
    let conversion = json!({
        "metadata": {"annotations": {"cert-manager.io/inject-ca-from": "shop/web"}},
        "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "Q0E="}}}}
    });
    let definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", conversion);
    assert!(!placed(&definition).input.text.contains("caBundle"));
}

#[test]
fn a_volume_names_no_claim_of_another_cluster() {
    let volume = |annotations: Value| {
        let claim = json!({"namespace": "shop", "name": "data", "uid": "u-2", "resourceVersion": "9"});
        let rest = json!({"metadata": {"annotations": annotations}, "spec": {"claimRef": claim}});
        placed(&object("v1", "PersistentVolume", rest)).input.text
    };
    let reserved = volume(json!({}));
    assert!(reserved.contains(r#""claimRef":{"name":"data","namespace":"shop"}"#), "{reserved}");
    let bound = volume(json!({"pv.kubernetes.io/bound-by-controller": "yes"}));
    assert!(!bound.contains("claimRef"), "{bound}");
}

#[test]
fn a_field_is_copied_once_however_often_and_within_whatever_it_is_asked_for() {
    let service = |keep: &[&str]| {
        let keep = serde_json::to_string(keep).unwrap();
        object(
            "v1",
            "Service",
            json!({
                "metadata": {"annotations": {"tideline.dev/keep-fields": keep}},
                "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30080}]}
            }),
        )
    };
    let text = |keep: &[&str]| placed(&service(keep)).input.text;
    assert_eq!(text(&["/spec"; 64]), text(&["/spec", "/spec/ports", "$.spec.ports[*].nodePort"]));
    assert!(text(&["/spec"; 64]).contains("30080"));
    let Content::Unreadable(refusal) = read(SpaceServer::Assigning, &service(&["/spec"; 65])).unwrap().content else {
        panic!("65 are too many")
    };
    assert_eq!(refusal.message, "annotation tideline.dev/keep-fields: it lists 65 fields, and may list 64");
}

#[test]
fn a_headless_service_stays_headless() {
    check(
        &object("v1", "Service", json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"]}})),
        &expect![[
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{"clusterIP":"None","clusterIPs":["None"]}}"#
        ]],
    );
}

#[test]
fn a_job_finds_its_pods_by_the_targets_own_selector() {
    let labels = json!({
        "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "web",
        "batch.kubernetes.io/job-name": "web", "app": "web"
    });
    let job = json!({
        "metadata": {"labels": labels},
        "spec": {
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {"metadata": {"labels": labels}, "spec": {}}
        }
    });
    check(
        &object("batch/v1", "Job", job.clone()),
        &expect![[
            r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"labels":{"app":"web"},"name":"web","namespace":"shop"},"spec":{"template":{"metadata":{"labels":{"app":"web"}},"spec":{}}}}"#
        ]],
    );
    let mut manual = object("batch/v1", "Job", job);
    merge(&mut manual, json!({"spec": {"manualSelector": true}}));
    assert!(placed(&manual).input.text.contains(r#""selector":{"#));
}

#[test]
fn a_volume_claim_keeps_only_a_volume_that_its_author_named() {
    let claim = |annotations: Value| {
        placed(&object(
            "v1",
            "PersistentVolumeClaim",
            json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": "pv-7"}}),
        ))
        .input
        .text
        .to_string()
    };
    let bound = claim(json!({
        "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
        "volume.kubernetes.io/storage-provisioner": "csi", "volume.kubernetes.io/selected-node": "n1"
    }));
    assert!(!bound.contains("pv-7") && !bound.contains("annotations"), "{bound}");
    assert!(claim(json!({"pv.kubernetes.io/bind-completed": "yes"})).contains("pv-7"));
}

#[test]
fn service_accounts_and_namespaces_leave_what_controllers_added() {
    check(
        &object("v1", "ServiceAccount", json!({"secrets": [{"name": "t"}], "imagePullSecrets": [{"name": "p"}]})),
        &expect![[
            r#"{"apiVersion":"v1","imagePullSecrets":[{"name":"p"}],"kind":"ServiceAccount","metadata":{"name":"web","namespace":"shop"}}"#
        ]],
    );
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "uid": "u", "labels": {"kubernetes.io/metadata.name": "shop", "team": "a"}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}
    });
    let expected =
        expect![[r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"team":"a"},"name":"shop"}}"#]];
    let source = read(SpaceServer::Assigning, &namespace).unwrap();
    let labels = source.labels.unwrap();
    expected.assert_eq(&implied_namespace("shop", &labels).text);
    assert_eq!(placed(&namespace).input, implied_namespace("shop", &labels));
}

#[test]
fn strings_of_a_secret_travel_as_the_data_that_servers_make_of_them() {
    check(
        &object("v1", "Secret", json!({"data": {"a": "MQ==", "b": "Mg=="}, "stringData": {"b": "two", "c": "é"}})),
        &expect![[
            r#"{"apiVersion":"v1","data":{"a":"MQ==","b":"dHdv","c":"w6k="},"kind":"Secret","metadata":{"name":"web","namespace":"shop"}}"#
        ]],
    );
    let data = json!({"data": {"a": "MQ=="}});
    for same in [json!({"stringData": {"a": "1"}}), json!({"data": null, "stringData": {"a": "1"}}), {
        json!({"data": {"a": "MQ=="}, "stringData": null})
    }] {
        assert_eq!(
            placed(&object("v1", "Secret", same.clone())).input,
            placed(&object("v1", "Secret", data.clone())).input,
            "{same}"
        );
    }
    // Nobody can keep what no server keeps.
    let kept = json!({"metadata": {"annotations": {"tideline.dev/keep-fields": "[\"/stringData\"]"}},
        "stringData": {"a": "1"}});
    assert_eq!(placed(&object("v1", "Secret", kept)).input, placed(&object("v1", "Secret", data)).input);
    // What no server would take is for it to refuse, and other kinds have a field of that name too.
    for (kind, rest) in [
        ("Secret", json!({"stringData": {"a": 1}})),
        ("Secret", json!({"stringData": ["a"]})),
        ("Secret", json!({"data": "a", "stringData": {"a": "1"}})),
        ("ConfigMap", json!({"stringData": {"a": "1"}})),
    ] {
        let text = placed(&object("v1", kind, rest)).input.text;
        assert!(text.contains("stringData"), "{text}");
    }
}

#[test]
fn rules_that_a_controller_gathers_are_not_sent() {
    let role = |rest: Value| {
        let mut role = object("rbac.authorization.k8s.io/v1", "ClusterRole", rest);
        role["metadata"].as_object_mut().unwrap().remove("namespace");
        role
    };
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let rule = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    check(
        &role(json!({"metadata": {"annotations": {"tideline.dev/keep-fields": "[\"/rules\"]"}},
            "aggregationRule": rule, "rules": rules})),
        &expect![[
            r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]},"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"web"}}"#
        ]],
    );
    for own in [json!({"rules": rules}), json!({"rules": rules, "aggregationRule": null})] {
        let text = placed(&role(own)).input.text;
        assert!(text.contains(r#""resources":["pods"]"#), "{text}");
    }
}

#[test]
fn a_revision_that_a_controller_counts_is_not_sent() {
    let text = placed(&object(
        "apps/v1",
        "Deployment",
        json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "4"}}}),
    ));
    assert!(!text.input.text.contains("revision"));
}

#[test]
fn the_digest_does_not_depend_on_what_stays_behind() {
    let plain = object("v1", "ConfigMap", json!({"data": {"a": "1"}}));
    let mut busy = plain.clone();
    merge(&mut busy, json!({"metadata": {"resourceVersion": "99", "managedFields": [{"manager": "x"}]}}));
    assert_eq!(placed(&plain).input, placed(&busy).input);
    merge(&mut busy, json!({"data": {"a": "2"}}));
    assert_ne!(placed(&plain).input.digest, placed(&busy).input.digest);
}

#[test]
fn kinds_go_before_those_that_need_them() {
    let wave = |api_version: &str, kind: &str| placed(&object(api_version, kind, json!({}))).wave;
    let order = [
        wave("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        wave("rbac.authorization.k8s.io/v1", "Role"),
        wave("v1", "ConfigMap"),
        wave("v1", "Service"),
        wave("apps/v1", "Deployment"),
        wave("example.org/v1", "Widget"),
        wave("networking.k8s.io/v1", "Ingress"),
        wave("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ];
    assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
}

#[test]
fn what_cannot_be_read_says_what_would_be_right() {
    let refused = |object: &Value| match read(SpaceServer::Assigning, object) {
        Ok(Source { content: Content::Unreadable(refusal), .. }) | Err(refusal) => refusal.message,
        Ok(other) => panic!("{other:?}"),
    };
    let wave = json!({"metadata": {"annotations": {"tideline.dev/wave": "soon"}}});
    expect![[r#"annotation tideline.dev/wave: "soon" is not a whole number"#]].assert_eq(&refused(&object(
        "v1",
        "ConfigMap",
        wave,
    )));
    let locations = json!({"metadata": {"annotations": {"tideline.dev/assigned-locations": "eu"}}});
    expect![[r#"annotation tideline.dev/assigned-locations: "eu" is not a JSON list of names such as ["eu-shops"]"#]]
        .assert_eq(&refused(&object("v1", "ConfigMap", locations)));
    let keep = json!({"metadata": {"annotations": {"tideline.dev/keep-fields": "[\"spec\"]"}}});
    expect![[r#"annotation tideline.dev/keep-fields: "spec": it begins with neither / (a JSON pointer such as /spec/replicas) nor $ (JSONPath such as $.spec.replicas)"#]].assert_eq(&refused(&object("v1", "Service", keep)));
    let number = json!({"metadata": {"labels": {"app": 42}}});
    expect![[r#"metadata.labels: "app" is 42, which is no string; put it in quotes"#]].assert_eq(&refused(&object(
        "example.org/v1",
        "Widget",
        number,
    )));
    let list = json!({"metadata": {"annotations": {"tideline.dev/assigned-locations": ["eu"]}}});
    expect![[
        r#"metadata.annotations: "tideline.dev/assigned-locations" is ["eu"], which is no string; put it in quotes"#
    ]]
    .assert_eq(&refused(&object("example.org/v1", "Widget", list)));
    let null = json!({"metadata": {"labels": {"app": null}, "annotations": {"tideline.dev/wave": null}}});
    assert_eq!(placed(&object("v1", "ConfigMap", null)).wave, default_wave(&GroupKind::new("", "ConfigMap")));
    let large = json!({"data": {"a": "x".repeat(BODY_BYTES_MAX)}});
    assert!(refused(&object("v1", "ConfigMap", large)).contains("no target could store more"));
    expect!["metadata is missing"].assert_eq(&refused(&json!([])));
    expect!["metadata.uid is missing"]
        .assert_eq(&refused(&json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}})));
}

#[test]
fn no_system_object_is_ever_placed() {
    let named = |api_version: &str, kind: &str, namespace: &str, name: &str, rest: Value| {
        let mut object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "uid": "u"}
        });
        merge(&mut object, rest);
        object
    };
    let none = || json!({});
    let rbac = "rbac.authorization.k8s.io/v1";
    let defaults = json!({"metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}});
    let controlled = json!({"metadata": {"ownerReferences": [{"uid": "d", "controller": true}]}});
    for object in [
        named("v1", "Event", "shop", "e", none()),
        named("events.k8s.io/v1", "Event", "shop", "e", none()),
        named("v1", "Node", "", "n", none()),
        named("coordination.k8s.io/v1", "Lease", "shop", "l", none()),
        named("v1", "Endpoints", "shop", "web", none()),
        named("discovery.k8s.io/v1", "EndpointSlice", "shop", "web-1", none()),
        named("apiregistration.k8s.io/v1", "APIService", "", "v1.apps", none()),
        named("v1", "Secret", "shop", "t", json!({"type": "kubernetes.io/service-account-token"})),
        named("v1", "Secret", "kube-system", "bootstrap-token-a", json!({"type": "bootstrap.kubernetes.io/token"})),
        named("certificates.k8s.io/v1", "CertificateSigningRequest", "", "csr-a", none()),
        named("v1", "ConfigMap", "shop", "kube-root-ca.crt", none()),
        named("v1", "ServiceAccount", "shop", "default", none()),
        named("v1", "ServiceAccount", "kube-system", "attachdetach-controller", none()),
        named("v1", "ServiceAccount", "kube-system", "volumeattributesclass-protection-controller", none()),
        named("v1", "Service", "default", "kubernetes", none()),
        named("v1", "Namespace", "", "default", none()),
        named("v1", "Namespace", "", "kube-system", none()),
        named(rbac, "ClusterRole", "", "system:node", none()),
        named(rbac, "ClusterRole", "", "view", defaults),
        named(
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            "",
            "probes",
            json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}}}),
        ),
        named("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "", "exempt", none()),
        named("scheduling.k8s.io/v1", "PriorityClass", "", "system-node-critical", none()),
        named("apps/v1", "ReplicaSet", "shop", "web-5d", controlled),
        named("tideline.dev/v1alpha1", "Placement", "", "p", none()),
        named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "placements.tideline.dev", none()),
    ] {
        assert!(never(&object), "{object}");
    }
    for object in [
        named("v1", "Service", "shop", "kubernetes", none()),
        named("v1", "ServiceAccount", "shop", "web", none()),
        named("v1", "ServiceAccount", "shop", "job-controller", none()),
        named("v1", "ServiceAccount", "kube-system", "ingress-controller", none()),
        named("v1", "Namespace", "", "shop", none()),
        named("v1", "Secret", "shop", "s", json!({"type": "Opaque"})),
        named(rbac, "ClusterRole", "", "shop-reader", none()),
        named("scheduling.k8s.io/v1", "PriorityClass", "", "shop", none()),
        named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "things.test.example", none()),
        named("apps/v1", "ReplicaSet", "shop", "web", json!({"metadata": {"ownerReferences": [{"uid": "d"}]}})),
    ] {
        assert!(!never(&object), "{object}");
    }
}

fn mapping(prefix: &str, map: Value) -> NamespaceMapping {
    NamespaceMapping { prefix: prefix.to_owned(), map: serde_json::from_value(map).unwrap() }
}

fn check_rendered(object: &Value, mapping: &NamespaceMapping, expected: &Expect) {
    let key = read(SpaceServer::Assigning, object).unwrap().key;
    let destination = mapping.destination(&key).unwrap();
    expected.assert_eq(&rendered(&placed(object).input, &key, &destination, mapping).text);
}

#[test]
fn an_object_is_rendered_for_the_namespace_that_it_is_in_at_the_target() {
    let store = mapping("store-", json!({}));
    check_rendered(
        &object("v1", "ConfigMap", json!({"data": {"namespace": "shop"}})),
        &store,
        &expect![[
            r#"{"apiVersion":"v1","data":{"namespace":"shop"},"kind":"ConfigMap","metadata":{"name":"web","namespace":"store-shop"}}"#
        ]],
    );
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "u"}});
    check_rendered(
        &namespace,
        &store,
        &expect![[r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"store-shop"}}"#]],
    );
    let object = object("v1", "ConfigMap", json!({}));
    let same = mapping("", json!({"shop": "shop"}));
    let key = read(SpaceServer::Assigning, &object).unwrap().key;
    assert_eq!(rendered(&placed(&object).input, &key, &None, &same), placed(&object).input);
}

#[test]
fn what_refers_to_mapped_namespaces_follows_them() {
    let mapping = mapping("store-", json!({"shop": "storefront", "ops": "ops"}));
    let subjects = json!([
        {"kind": "ServiceAccount", "name": "web", "namespace": "shop"},
        {"kind": "ServiceAccount", "name": "backup", "namespace": "yard"},
        {"kind": "ServiceAccount", "name": "operator", "namespace": "ops"},
        {"kind": "ServiceAccount", "name": "cluster", "namespace": "kube-system"},
        {"kind": "Group", "name": "system:serviceaccounts:shop"},
    ]);
    let rbac = "rbac.authorization.k8s.io/v1";
    check_rendered(
        &object(rbac, "RoleBinding", json!({"subjects": subjects})),
        &mapping,
        &expect![[
            r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"web","namespace":"storefront"},"subjects":[{"kind":"ServiceAccount","name":"web","namespace":"storefront"},{"kind":"ServiceAccount","name":"backup","namespace":"store-yard"},{"kind":"ServiceAccount","name":"operator","namespace":"ops"},{"kind":"ServiceAccount","name":"cluster","namespace":"kube-system"},{"kind":"Group","name":"system:serviceaccounts:shop"}]}"#
        ]],
    );
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "web", "uid": "u"},
        "webhooks": [
            {"clientConfig": {"service": {"name": "web", "namespace": "shop", "path": "/check"}}},
            {"clientConfig": {"url": "https://shop.example"}},
        ],
    });
    check_rendered(
        &webhook,
        &mapping,
        &expect![[
            r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"web"},"webhooks":[{"clientConfig":{"service":{"name":"web","namespace":"storefront","path":"/check"}}},{"clientConfig":{"url":"https://shop.example"}}]}"#
        ]],
    );
}

/// One object of each kind that refers to namespaces, with that namespace in the only place of it.
#[test]
fn every_reference_that_is_known_is_found() {
    let mapping = mapping("", json!({"shop": "storefront"}));
    let service = json!({"service": {"name": "web", "namespace": "shop"}});
    let account = json!({"kind": "ServiceAccount", "name": "web", "namespace": "shop"});
    let flow =
        json!([{"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "web", "namespace": "shop"}}]}]);
    let parameters = json!({"spec": {"paramRef": {"name": "web", "namespace": "shop"}}});
    let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": service}});
    for (api_version, kind, rest) in [
        ("rbac.authorization.k8s.io/v1", "RoleBinding", json!({"subjects": [account]})),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", json!({"subjects": [account]})),
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            json!({"webhooks": [{"clientConfig": service}]}),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{"clientConfig": service}]}),
        ),
        ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", parameters.clone()),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", parameters),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({"spec": {"conversion": conversion}})),
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", json!({"spec": {"rules": flow}})),
        ("v1", "PersistentVolume", json!({"spec": {"claimRef": {"name": "web", "namespace": "shop"}}})),
    ] {
        let mut object = object(api_version, kind, rest);
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        let key = read(SpaceServer::Assigning, &object).unwrap().key;
        assert!(refers_to_namespaces(&key.kind), "{kind}");
        let text = rendered(&placed(&object).input, &key, &None, &mapping).text;
        assert!(text.contains(r#""namespace":"storefront""#) && !text.contains(r#""shop""#), "{text}");
    }
}
