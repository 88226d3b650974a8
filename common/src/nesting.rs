/// Levels of objects and lists in a JSON text. Counts without recursion, so that any text may be asked about.
pub fn nesting(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

/// Up to and with the quote that ends a string.
fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn levels(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or_default(),
            Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or_default(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let text = r#"[\\"\[\]{}a]{0,6}"#;
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), text.prop_map(Value::from)];
        leaf.prop_recursive(6, 40, 4, move |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
            let object = prop::collection::btree_map(text, inner, 0..4);
            prop_oneof![list, object.prop_map(|fields| Value::Object(fields.into_iter().collect()))]
        })
    }

    proptest! {
        #[test]
        fn as_many_levels_are_counted_as_there_are(value in any_json()) {
            prop_assert_eq!(nesting(&value.to_string()), levels(&value));
        }
    }

    #[test]
    fn no_text_is_too_deep_to_be_counted() {
        assert_eq!(nesting(&"[".repeat(1 << 20)), 1 << 20);
        assert_eq!(nesting(r#"]]["\"#), 1);
    }
}
