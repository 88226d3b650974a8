use http::HeaderValue;

use super::*;

fn accept(value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))])
}

#[test]
fn the_first_shape_the_server_knows_is_taken() {
    let check = |value: &'static str, expected: Shape| assert_eq!(shape(&accept(value)).expect(value), expected);
    check("*/*", Shape::Object);
    check("application/json", Shape::Object);
    check("application/vnd.kubernetes.protobuf,application/json", Shape::Object);
    check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Shape::Table);
    check("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Shape::Object);
    check("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Shape::PartialMetadata);
    check("application/json;q=0.5,application/json;as=Table;v=v1;g=meta.k8s.io", Shape::Table);
    assert_eq!(shape(&HeaderMap::new()).expect("none"), Shape::Object);
}

#[test]
fn protobuf_alone_is_refused() {
    assert_eq!(shape(&accept("application/vnd.kubernetes.protobuf")).map_err(|error| error.code.as_u16()), Err(406));
}

#[test]
fn aggregated_discovery_is_given_in_v2_only() {
    let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    assert_eq!(discovery_shape(&accept(new)).expect(new), DiscoveryShape::Aggregated);
    let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    assert_eq!(discovery_shape(&accept(old)).expect(old), DiscoveryShape::Legacy);
}
