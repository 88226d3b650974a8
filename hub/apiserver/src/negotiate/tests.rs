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
fn open_api_v2_is_protobuf_for_those_who_ask_for_it() {
    let format = |value| openapi_v2_format(&accept(value)).map_err(|error| error.code.as_u16());
    let kubectl = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    assert_eq!(format(kubectl), Ok(OpenApiV2Format::Protobuf));
    assert_eq!(format(OPENAPI_V2_PROTOBUF), Ok(OpenApiV2Format::Protobuf));
    assert_eq!(format("application/json"), Ok(OpenApiV2Format::Json));
    assert_eq!(format("*/*"), Ok(OpenApiV2Format::Json));
    assert_eq!(format("application/yaml"), Err(406));
    assert_eq!(openapi_v2_format(&HeaderMap::new()).expect("none"), OpenApiV2Format::Json);
}

#[test]
fn aggregated_discovery_is_given_in_v2_only() {
    let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    assert_eq!(discovery_shape(&accept(new)).expect(new), DiscoveryShape::Aggregated);
    let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    assert_eq!(discovery_shape(&accept(old)).expect(old), DiscoveryShape::Legacy);
}
