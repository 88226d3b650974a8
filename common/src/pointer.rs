//! The names in a JSON pointer (RFC 6901).

/// A name as a pointer has it.
pub fn pointer_escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The name that a pointer has so. An escape that is none stays as it is.
pub fn pointer_unescaped(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tildes_and_slashes_are_escaped_and_nothing_else() {
        assert_eq!(pointer_escaped("a/b~c~1 d"), "a~1b~0c~01 d");
    }

    proptest! {
        #[test]
        fn every_name_comes_back_and_is_one_segment(name in "[a-c/~01]{0,12}") {
            let escaped = pointer_escaped(&name);
            prop_assert!(!escaped.contains('/'));
            prop_assert_eq!(pointer_unescaped(&escaped), name);
        }
    }
}
