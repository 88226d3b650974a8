use super::*;

#[test]
fn resident_memory_is_read_in_bytes() {
    assert_eq!(resident_bytes("Name:\tagent\nVmRSS:\t   15360 kB\nThreads:\t4\n"), Some(15_728_640));
    assert_eq!(resident_bytes("Name:\tagent\n"), None);
}

#[test]
fn cpu_time_is_found_behind_a_hostile_program_name() {
    let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 500 0 0 0 150 50 0 0 20 0 4 0 100 0 0";
    let seconds = cpu_seconds(stat).unwrap();
    assert!((seconds - 2.0).abs() < f64::EPSILON, "{seconds}");
    assert_eq!(cpu_seconds("garbage"), None);
}
