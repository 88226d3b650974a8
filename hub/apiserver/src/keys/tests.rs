use super::*;

#[test]
fn keys_read_back_as_written() {
    let key = object("root", "", "configmaps", Some("default"), "a");
    assert_eq!(&key[..], b"/registry/root/core/configmaps/default/a");
    let expected = parsed("root", "", "configmaps", Some("default"), "a");
    assert_eq!(Key::parse(&key), Some(expected));
    let key = object("root", "rbac.authorization.k8s.io", "clusterroles", None, "system:a");
    let expected = parsed("root", "rbac.authorization.k8s.io", "clusterroles", None, "system:a");
    assert_eq!(Key::parse(&key), Some(expected));
    assert_eq!(Key::parse(&space_record("root")), Some(Key::Space("root")));
    assert_eq!(Key::parse(b"/ledger/1"), None);
}

#[test]
fn a_key_of_which_only_the_beginning_can_be_read_has_its_resource() {
    for key in [
        &b"/registry/a/core/configmaps/n/\xff"[..],
        b"/registry/a/core/configmaps/\xff",
        b"/registry/a/core/configmaps",
    ] {
        assert_eq!((Key::parse(key), resource_of(key)), (None, Some(("", "configmaps"))));
    }
    assert_eq!(resource_of(b"/registry/a/\xff/configmaps/n/a"), None);
    assert_eq!(resource_of(b"/ledger/1/a/b"), None);
}

#[test]
fn a_range_holds_its_own_and_nothing_of_a_longer_name() {
    let range = space("a");
    let holds = |key: &Bytes| range.start <= *key && *key < range.end;
    assert!(holds(&space_record("a")));
    assert!(holds(&object("a", "zz.example", "things", None, "~")));
    assert!(!holds(&object("a-b", "", "configmaps", None, "x")));
    assert!(!holds(&object("ab", "", "configmaps", None, "x")));

    let range = resource("a", "apps", "deployments", Some("n"));
    let holds = |key: &Bytes| range.start <= *key && *key < range.end;
    assert!(holds(&object("a", "apps", "deployments", Some("n"), "x")));
    assert!(!holds(&object("a", "apps", "deployments", Some("n-1"), "x")));
    assert!(!holds(&object("a", "apps", "deployments", Some("n1"), "x")));
}

#[test]
fn the_record_sorts_before_the_objects() {
    assert!(space_record("a") < object("a", "0.example", "a", None, "a"));
}

fn parsed<'a>(space: &'a str, group: &'a str, plural: &'a str, namespace: Option<&'a str>, name: &'a str) -> Key<'a> {
    Key::Object { space, group, plural, namespace, name }
}
