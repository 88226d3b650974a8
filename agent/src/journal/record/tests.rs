use proptest::collection::vec;
use proptest::prelude::*;

use super::{Deflater, deflate, inflate};
use crate::journal::change::Table;

proptest! {
    #[test]
    fn each_of_several_values_comes_back_as_it_was(
        values in vec(prop_oneof![vec(any::<u8>(), 0..5_000), vec(Just(b'x'), 0..5_000)], 1..8),
    ) {
        let mut deflater = Deflater::new();
        for value in values {
            let compressed = deflater.deflate(&value);
            prop_assert_eq!(&compressed, &deflate(&value));
            prop_assert_eq!(inflate(Table::Bodies, &compressed).expect("it was compressed just now"), value);
        }
    }
}
