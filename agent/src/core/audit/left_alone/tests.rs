use super::*;

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", kind), "shop", name)
}

fn uid(text: &str) -> Uid {
    text.parse().expect("a UID")
}

fn told(copies: &LeftAlone) -> Option<(u64, String)> {
    copies.count()
}

#[test]
fn copies_are_told_of_until_they_are_gone() {
    let mut copies = LeftAlone::default();
    assert_eq!(told(&copies), None);
    for (kind, name) in [("ConfigMap", "a"), ("ConfigMap", "b"), ("Secret", "c")] {
        copies.found(&key(kind, name), &uid(name));
    }
    assert_eq!(told(&copies), Some((3, "ConfigMap shop/a and 2 more".to_owned())));

    copies.vanished(&key("ConfigMap", "a"), &uid("another of that name"));
    copies.cleared(&key("ConfigMap", "b"));
    assert_eq!(told(&copies), Some((2, "ConfigMap shop/a and 1 more".to_owned())));
    copies.listed(&GroupKind::new("", "ConfigMap"), &BTreeSet::new());
    assert_eq!(told(&copies), Some((1, "Secret shop/c".to_owned())));
    copies.watched(&BTreeMap::new());
    assert_eq!(told(&copies), None);
}

#[test]
fn memory_for_copies_is_bounded() {
    let mut copies = LeftAlone::default();
    for n in 0..LEFT_ALONE_MAX + 10 {
        copies.found(&key("ConfigMap", &n.to_string()), &uid("a"));
        copies.listed_in(&key("ConfigMap", &n.to_string()), ListId(1));
    }
    assert_eq!((copies.found.len(), copies.listed_in.len()), (LEFT_ALONE_MAX, LEFT_ALONE_MAX));
}

#[test]
fn copies_under_the_label_of_another_target_are_told_of_until_a_patrol_misses_them() {
    let mut copies = LeftAlone::default();
    let (a, b) = (key("ConfigMap", "a"), key("ConfigMap", "b"));
    copies.listed_in(&a, ListId(1));
    copies.listed_in(&b, ListId(1));
    copies.list_ended(&a.kind, ListId(1));
    copies.list_ended(&GroupKind::new("", "Secret"), ListId(2));
    // The watch says nothing of them.
    copies.listed(&a.kind, &BTreeSet::new());
    copies.cleared(&a);
    copies.found(&b, &uid("b"));
    assert_eq!(told(&copies), Some((2, "ConfigMap shop/a and 1 more".to_owned())));
    copies.listed_in(&a, ListId(3));
    copies.list_ended(&a.kind, ListId(3));
    copies.vanished(&b, &uid("b"));
    assert_eq!(told(&copies), Some((1, "ConfigMap shop/a".to_owned())));
    copies.list_ended(&a.kind, ListId(4));
    assert_eq!(told(&copies), None);
}
