use proptest::prelude::*;
use serde_json::json;

use super::*;

fn key(number: u32, wire: u32) -> Vec<u8> {
    raw_varint(u64::from(number << 3 | wire))
}

fn raw_varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let byte = u8::try_from(value & 0x7f).expect("seven bits");
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return out;
        }
        out.push(byte | 0x80);
    }
}

fn bytes(number: u32, content: &[u8]) -> Vec<u8> {
    [key(number, 2), raw_varint(content.len() as u64), content.to_vec()].concat()
}

fn integer(number: u32, value: i64) -> Vec<u8> {
    [key(number, 0), raw_varint(value.cast_unsigned())].concat()
}

fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &meta), bytes(2, raw), bytes(3, b""), bytes(4, b"")].concat()
}

#[test]
fn a_config_map_reads_as_its_json() {
    let metadata =
        [bytes(1, b"a"), bytes(2, b""), bytes(8, b""), bytes(11, &[bytes(1, b"l"), bytes(2, b"v")].concat())].concat();
    let raw = [
        bytes(1, &metadata),
        bytes(2, &[bytes(1, b"key"), bytes(2, b"value")].concat()),
        bytes(3, &[bytes(1, b"bin"), bytes(2, &[0xff, 0x00])].concat()),
        integer(4, 0),
    ]
    .concat();
    assert_eq!(
        decode(&body("v1", "ConfigMap", &raw)),
        Ok(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"l": "v"}},
            "data": {"key": "value"}, "binaryData": {"bin": "/wA="}, "immutable": false,
        }))
    );
}

#[test]
fn a_written_zero_behind_a_pointer_stays_and_a_plain_one_goes() {
    let strategy = bytes(2, &bytes(2, &[integer(1, 1), integer(2, 0), bytes(3, b"25%")].concat()));
    // spec: replicas (1) is a pointer, minReadySeconds (5) is not; strategy (4) is a struct.
    let spec = [integer(1, 0), integer(5, 0), bytes(4, b"")].concat();
    let read = decode(&body("apps/v1", "Deployment", &[bytes(1, b""), bytes(2, &spec), bytes(3, b"")].concat()));
    assert_eq!(read, Ok(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0}})));
    let spec = bytes(4, &strategy);
    let read = decode(&body("apps/v1", "Deployment", &bytes(2, &spec))).expect("readable");
    assert_eq!(read["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
}

#[test]
fn inlined_references_and_quantities_have_their_json_place() {
    let env =
        [bytes(1, b"NAME"), bytes(3, &bytes(3, &[bytes(1, &bytes(1, b"map")), bytes(2, b"key")].concat()))].concat();
    let limits = bytes(1, &[bytes(1, b"cpu"), bytes(2, &bytes(1, b"500m"))].concat());
    let container = [bytes(1, b"c"), bytes(7, &env), bytes(8, &limits)].concat();
    let spec = bytes(2, &container);
    let read = decode(&body("v1", "Pod", &bytes(2, &spec))).expect("readable");
    assert_eq!(
        read["spec"]["containers"][0],
        json!({"name": "c", "env": [{"name": "NAME", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "key"}}}],
            "resources": {"limits": {"cpu": "500m"}}})
    );
}

#[test]
fn times_are_read() {
    let metadata = bytes(8, &integer(1, 1_700_000_000));
    let read = decode(&body("v1", "ConfigMap", &bytes(1, &metadata))).expect("readable");
    assert_eq!(read["metadata"]["creationTimestamp"], "2023-11-14T22:13:20Z");
    let spec = bytes(4, &[integer(1, 1_700_000_000), integer(2, 5_000)].concat());
    let read = decode(&body("coordination.k8s.io/v1", "Lease", &bytes(2, &spec))).expect("readable");
    assert_eq!(read["spec"]["renewTime"], "2023-11-14T22:13:20.000005Z");
}

#[test]
fn what_is_not_known_is_refused() {
    assert_eq!(decode(b"{}"), Err(Error::NoMagic));
    assert!(matches!(decode(&body("example.com/v1", "Widget", b"")), Err(Error::UnknownKind { .. })));
    assert_eq!(decode(&body("v1", "ConfigMap", &[0x0a, 0x7f])), Err(Error::Malformed));
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(raw: Vec<u8>, kind in "ConfigMap|Pod|DeleteOptions") {
        let _ = decode(&body("v1", &kind, &raw));
        let _ = decode(&[MAGIC, &raw].concat());
    }
}
