use std::time::Duration;

use super::duration;

#[test]
fn time_spans_are_read_as_people_write_them() {
    assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
    assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
    for wrong in ["", "10", "h", "1.5h", "-1s", "99999999999999999999s", "5 m", "999999999999999999d"] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
}
