use super::*;

#[test]
fn rows_that_were_taken_are_used_again() {
    let mut rows = Rows::default();
    let [first, second, third] = ["a", "b", "c"].map(|text| rows.put(text.to_owned()));
    assert_eq!(rows.take(second), "b");
    let fourth = rows.put("d".to_owned());
    assert_eq!(fourth, second);
    assert_eq!([first, third, fourth].map(|row| rows.get(row).clone()), ["a", "c", "d"]);
}

#[test]
fn no_memory_is_kept_when_the_rows_are_empty() {
    let mut rows = Rows::default();
    let all: Vec<Row> = (0..100).map(|number| rows.put(number)).collect();
    for (row, number) in all.into_iter().zip(0..) {
        assert_eq!(rows.take(row), number);
    }
    assert_eq!(rows.rows.capacity() + rows.free.capacity(), 0);
}
