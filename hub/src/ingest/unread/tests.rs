use serde_json::json;

use super::*;
use crate::placement::GroupResource;

fn of(resource: &str) -> SpaceResource {
    SpaceResource { space: "default".parse().unwrap(), resource: GroupResource::new("", resource) }
}

fn said(unread: &mut Unread) -> Option<String> {
    let news = unread.take_news();
    assert!(news.iter().all(|(space, _)| space.as_str() == "default") && news.len() == 1, "{news:?}");
    news.into_iter().next().and_then(|(_, said)| said)
}

#[test]
fn what_cannot_be_read_is_named_until_it_is_read_or_gone() {
    let mut unread = Unread::default();
    assert!(unread.take_news().is_empty());
    unread.unreadable(&of("configmaps"), ("shop", "a"), "it is a list");
    unread.unreadable(&of("namespaces"), ("", "n"), "it is too deep");
    let text = said(&mut unread).unwrap();
    for named in ["2 in the store", "configmaps shop/a (it is a list)", "namespaces n (it is too deep)"] {
        assert!(text.contains(named), "{text}");
    }
    unread.readable(&of("configmaps"), &json!({"metadata": {"namespace": "shop", "name": "b"}}));
    assert!(unread.take_news().is_empty(), "another says nothing of it");
    unread.readable(&of("configmaps"), &json!({"metadata": {"namespace": "shop", "name": "a"}}));
    assert!(said(&mut unread).is_some_and(|text| text.contains("1 in the store")));
    unread.gone(&of("namespaces"), ("", "n"));
    assert_eq!(said(&mut unread), None);
}

#[test]
fn what_is_not_told_again_is_not_there() {
    let mut unread = Unread::default();
    for name in ["a", "b"] {
        unread.unreadable(&of("configmaps"), ("shop", name), "it is a list");
    }
    unread.begin(&of("configmaps"));
    assert!(said(&mut unread).is_some_and(|text| text.contains("shop/a")), "nothing is taken back before it is read");
    unread.unreadable(&of("configmaps"), ("shop", "b"), "it is a list");
    unread.end_with_nameless(&of("configmaps"));
    let text = said(&mut unread).unwrap();
    assert!(text.contains("shop/b") && !text.contains("shop/a"), "{text}");
    assert!(text.contains("a key in the store cannot be read of configmaps"), "{text}");
    unread.begin(&of("configmaps"));
    unread.end(&of("configmaps"));
    assert_eq!(said(&mut unread), None);
}

#[test]
fn however_many_there_are_a_sentence_names_a_few() {
    let mut unread = Unread::default();
    for nth in 0..OBJECTS_MAX + 7 {
        unread.unreadable(&of("configmaps"), ("shop", &format!("c{nth:03}")), &"w".repeat(10_000));
    }
    let text = said(&mut unread).unwrap();
    assert!(text.starts_with("more than 100 ") && text.ends_with("among others"), "{text}");
    assert!(text.contains("c004") && !text.contains("c005") && text.len() < 2_000, "{text}");
}
