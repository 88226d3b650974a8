use expect_test::{Expect, expect};
use tideline_common::GroupKind;

use super::*;

fn mapping(prefix: &str, map: &[(&str, &str)]) -> NamespaceMapping {
    let map = map.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    NamespaceMapping { prefix: prefix.to_owned(), map }
}

fn check(mapping: &NamespaceMapping, namespaces: &[&str], expected: &Expect) {
    let lines = namespaces.iter().map(|name| match mapping.namespace(name) {
        Ok(None) => format!("{name} stays\n"),
        Ok(Some(mapped)) => format!("{name} becomes {mapped}\n"),
        Err(Refusal { reason, message }) => format!("{name} is refused, {reason}: {message}\n"),
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn the_map_decides_before_the_prefix_and_the_cluster_keeps_its_own() {
    check(
        &mapping("store-", &[("shop", "storefront"), ("ops", "ops"), ("kube-system", "system")]),
        &["shop", "ops", "yard", "default", "kube-system", "kube-public"],
        &expect![[r"
            shop becomes storefront
            ops stays
            yard becomes store-yard
            default becomes store-default
            kube-system becomes system
            kube-public stays
        "]],
    );
    check(
        &mapping("", &[("shop", "storefront")]),
        &["shop", "yard"],
        &expect![[r"
        shop becomes storefront
        yard stays
    "]],
    );
}

#[test]
fn nothing_is_mapped_to_what_is_the_clusters_own_or_cannot_be() {
    check(
        &mapping("kube-", &[("a", "kube-system"), ("b", "default"), ("default", "default"), ("c", "Shop_1")]),
        &["a", "b", "default", "c", "shop"],
        &expect![[r#"
            a is refused, NotAllowed: spec.namespaceMapping has the namespace "a" become "kube-system", which every cluster has of its own; nothing is mapped to that
            b is refused, NotAllowed: spec.namespaceMapping has the namespace "b" become "default", which every cluster has of its own; nothing is mapped to that
            default stays
            c is refused, Invalid: spec.namespaceMapping has the namespace "c" become "Shop_1", which no namespace can be called: at most 63 of a-z, 0-9 and -, no - at either end; name it in spec.namespaceMapping.map
            shop is refused, NotAllowed: spec.namespaceMapping has the namespace "shop" become "kube-shop", which every cluster has of its own; nothing is mapped to that
        "#]],
    );
    let long = "n".repeat(60);
    assert!(mapping("s-", &[]).namespace(&long).is_ok());
    assert_eq!(mapping("store-", &[]).namespace(&long).unwrap_err().reason, Reason::Invalid);
}

#[test]
fn a_namespace_is_called_as_what_is_in_it_says() {
    let mapping = mapping("store-", &[]);
    for (kind, namespace, name, expected) in [
        (GroupKind::new("", "ConfigMap"), "shop", "web", "ConfigMap store-shop/web"),
        (GroupKind::new("", "Namespace"), "", "shop", "Namespace store-shop"),
        (
            GroupKind::new("rbac.authorization.k8s.io", "ClusterRole"),
            "",
            "web",
            "ClusterRole.rbac.authorization.k8s.io web",
        ),
    ] {
        let key = ObjectKey::new(kind, namespace, name);
        let destination = mapping.destination(&key).unwrap();
        assert_eq!(place_at(&key, &destination).to_string(), expected);
    }
}
