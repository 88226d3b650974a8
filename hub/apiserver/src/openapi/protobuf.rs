//! The OpenAPI v2 document as protobuf: a `Document` of gnostic's `OpenAPIv2.proto`, whose numbers these are.
//!
//! Go clients ask for v2 in this form alone. What our documents never hold, such as security definitions, is left out. What has
//! no type there (defaults, enums, vendor extensions) is written as YAML, of which JSON is a part.

use serde_json::{Map, Value};

/// Encodes what [`super::v2`] returns.
pub(crate) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    for (name, value) in fields(document) {
        match name {
            "swagger" => out.text(1, value),
            "info" => out.message(2, |out| info(value, out)),
            "paths" => out.message(8, |out| out.named(2, value, path)),
            "definitions" => out.message(9, |out| out.named(1, value, schema)),
            _ => out.extension(16, name, value),
        }
    }
    out.bytes
}

fn info(value: &Value, out: &mut Message) {
    for (name, value) in fields(value) {
        match name {
            "title" => out.text(1, value),
            "version" => out.text(2, value),
            "description" => out.text(3, value),
            _ => out.extension(7, name, value),
        }
    }
}

fn path(value: &Value, out: &mut Message) {
    for (name, value) in fields(value) {
        match name {
            "get" => out.message(2, |out| operation(value, out)),
            "put" => out.message(3, |out| operation(value, out)),
            "post" => out.message(4, |out| operation(value, out)),
            "delete" => out.message(5, |out| operation(value, out)),
            "patch" => out.message(8, |out| operation(value, out)),
            "parameters" => out.each(9, value, parameter),
            _ => out.extension(10, name, value),
        }
    }
}

fn operation(value: &Value, out: &mut Message) {
    for (name, value) in fields(value) {
        match name {
            "description" => out.text(3, value),
            "operationId" => out.text(5, value),
            "produces" => out.texts(6, value),
            "consumes" => out.texts(7, value),
            "parameters" => out.each(8, value, parameter),
            // Each is a response or a reference, and ours are no references.
            "responses" => out.message(9, |out| {
                out.named(1, value, |value, out| out.message(1, |out| response(value, out)));
            }),
            _ => out.extension(13, name, value),
        }
    }
}

fn response(value: &Value, out: &mut Message) {
    for (name, value) in fields(value) {
        match name {
            "description" => out.text(1, value),
            // A schema, or that of a file.
            "schema" => out.message(2, |out| out.message(1, |out| schema(value, out))),
            _ => out.extension(5, name, value),
        }
    }
}

/// One of a parameter and a reference, of a body and what is none, and of four places.
fn parameter(value: &Value, out: &mut Message) {
    out.message(1, |out| match value["in"].as_str() {
        Some("body") => out.message(1, |out| body_parameter(value, out)),
        Some("path") => out.message(2, |out| out.message(4, |out| simple_parameter(&PATH_PARAMETER, value, out))),
        _ => out.message(2, |out| out.message(3, |out| simple_parameter(&QUERY_PARAMETER, value, out))),
    });
}

fn body_parameter(value: &Value, out: &mut Message) {
    for (name, value) in fields(value) {
        match name {
            "description" => out.text(1, value),
            "name" => out.text(2, value),
            "in" => out.text(3, value),
            "required" => out.flag(4, value),
            "schema" => out.message(5, |out| schema(value, out)),
            _ => out.extension(6, name, value),
        }
    }
}

/// The numbers that differ between parameters of paths and of queries.
struct ParameterNumbers {
    kind: u32,
    unique_items: u32,
    extension: u32,
}

const PATH_PARAMETER: ParameterNumbers = ParameterNumbers { kind: 5, unique_items: 19, extension: 22 };
const QUERY_PARAMETER: ParameterNumbers = ParameterNumbers { kind: 6, unique_items: 20, extension: 23 };

fn simple_parameter(numbers: &ParameterNumbers, value: &Value, out: &mut Message) {
    for (name, value) in fields(value) {
        match name {
            "required" => out.flag(1, value),
            "in" => out.text(2, value),
            "description" => out.text(3, value),
            "name" => out.text(4, value),
            "type" => out.text(numbers.kind, value),
            "uniqueItems" => out.flag(numbers.unique_items, value),
            _ => out.extension(numbers.extension, name, value),
        }
    }
}

/// As deep as the schemas of custom resources may be, which is bounded when they are written.
fn schema(value: &Value, out: &mut Message) {
    for (name, value) in fields(value) {
        match name {
            "$ref" => out.text(1, value),
            "format" => out.text(2, value),
            "title" => out.text(3, value),
            "description" => out.text(4, value),
            "default" => out.message(5, |out| yaml(value, out)),
            "multipleOf" => out.number(6, value),
            "maximum" => out.number(7, value),
            "exclusiveMaximum" => out.flag(8, value),
            "minimum" => out.number(9, value),
            "exclusiveMinimum" => out.flag(10, value),
            "maxLength" => out.integer(11, value),
            "minLength" => out.integer(12, value),
            "pattern" => out.text(13, value),
            "maxItems" => out.integer(14, value),
            "minItems" => out.integer(15, value),
            "uniqueItems" => out.flag(16, value),
            "maxProperties" => out.integer(17, value),
            "minProperties" => out.integer(18, value),
            "required" => out.texts(19, value),
            "enum" => out.each(20, value, yaml),
            "additionalProperties" => out.message(21, |out| match value {
                Value::Bool(_) => out.flag(2, value),
                _ => out.message(1, |out| schema(value, out)),
            }),
            "type" => out.message(22, |out| out.texts(1, value)),
            "items" => out.message(23, |out| out.each(1, value, schema)),
            "allOf" => out.each(24, value, schema),
            "properties" => out.message(25, |out| out.named(1, value, schema)),
            "example" => out.message(30, |out| yaml(value, out)),
            _ => out.extension(31, name, value),
        }
    }
}

fn yaml(value: &Value, out: &mut Message) {
    out.bytes(2, value.to_string().as_bytes());
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

/// A message under way. What has another type than its field is left out.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

/// How a value is written.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
}

impl Message {
    fn varint(&mut self, mut value: u64) {
        // Seven bits a byte, the lowest first.
        loop {
            let [lowest, ..] = value.to_le_bytes();
            if value < 0x80 {
                return self.bytes.push(lowest);
            }
            self.bytes.push(lowest | 0x80);
            value >>= 7;
        }
    }

    fn tag(&mut self, number: u32, wire: Wire) {
        self.varint(u64::from(number) << 3 | wire as u64);
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, Wire::Length);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str() {
            self.bytes(number, text.as_bytes());
        }
    }

    /// One text, or each of an array.
    fn texts(&mut self, number: u32, value: &Value) {
        self.text(number, value);
        for value in value.as_array().into_iter().flatten() {
            self.text(number, value);
        }
    }

    fn flag(&mut self, number: u32, value: &Value) {
        if let Some(flag) = value.as_bool() {
            self.tag(number, Wire::Varint);
            self.varint(u64::from(flag));
        }
    }

    fn integer(&mut self, number: u32, value: &Value) {
        if let Some(integer) = value.as_i64() {
            self.tag(number, Wire::Varint);
            self.varint(integer.cast_unsigned());
        }
    }

    fn number(&mut self, number: u32, value: &Value) {
        if let Some(float) = value.as_f64() {
            self.tag(number, Wire::Fixed64);
            self.bytes.extend_from_slice(&float.to_le_bytes());
        }
    }

    fn message(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(number, &inner.bytes);
    }

    /// One value, or each of an array.
    fn each(&mut self, number: u32, value: &Value, write: impl Fn(&Value, &mut Self)) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.message(number, |out| write(item, out))),
            _ => self.message(number, |out| write(value, out)),
        }
    }

    /// Each field of an object, as a message of its name and its value.
    fn named(&mut self, number: u32, value: &Value, write: impl Fn(&Value, &mut Self)) {
        for (name, value) in fields(value) {
            self.message(number, |out| {
                out.bytes(1, name.as_bytes());
                out.message(2, |out| write(value, out));
            });
        }
    }

    fn extension(&mut self, number: u32, name: &str, value: &Value) {
        if name.starts_with("x-") {
            self.message(number, |out| {
                out.bytes(1, name.as_bytes());
                out.message(2, |out| yaml(value, out));
            });
        }
    }
}
