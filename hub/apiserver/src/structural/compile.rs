use regex::RegexBuilder;
use serde_json::{Map, Number, Value};

use super::object_meta;
use crate::schema::constraint::{Bound, Constraint, Format, Pattern};
use crate::schema::field_error::{FieldError, FieldErrorKind, join};
use crate::schema::{Field, ListType, Node, NodeId, ScalarType, Schema, SchemaBuilder, Shape};

/// Nested schemas in one another; JSON that deep is refused when it is decoded.
const DEPTH_MAX: usize = 100;

/// Bytes that one compiled pattern may take, so that a CRD cannot ask for gigabytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub(super) fn compile(schema: Option<&Value>, path: &str) -> Result<(Schema, NodeId, Vec<String>), Vec<FieldError>> {
    let mut compiler = Compiler {
        builder: SchemaBuilder::default(),
        errors: Vec::new(),
        warnings: Vec::new(),
        metadata: NodeId::ANY,
        text: NodeId::ANY,
    };
    compiler.metadata = compiler.builder.import(object_meta());
    compiler.text = compiler.builder.add(Node { shape: Shape::Scalar(ScalarType::String), ..Node::default() });
    let open = Value::Object(Map::from_iter([
        ("type".to_owned(), Value::from("object")),
        ("x-kubernetes-preserve-unknown-fields".to_owned(), Value::from(true)),
    ]));
    let root = compiler.node(schema.unwrap_or(&open), path, Place::Root, 0, false);
    if compiler.errors.is_empty() {
        Ok((compiler.builder.finish(), root, compiler.warnings))
    } else {
        Err(compiler.errors)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The object itself: has `apiVersion`, `kind` and `metadata` whatever the schema says.
    Root,
    Inner,
}

struct Compiler {
    builder: SchemaBuilder,
    errors: Vec<FieldError>,
    warnings: Vec<String>,
    metadata: NodeId,
    text: NodeId,
}

/// Keywords that a structural schema does not have.
const FORBIDDEN: [&str; 7] =
    ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "deprecated", "discriminator"];

/// Keywords that a branch of `allOf`, `anyOf`, `oneOf` and `not` does not have.
const FORBIDDEN_IN_BRANCH: [&str; 7] = [
    "description",
    "default",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
];

impl Compiler {
    fn forbid(&mut self, path: &str, detail: &str) {
        self.errors.push(FieldError::new(path, FieldErrorKind::Forbidden, detail));
    }

    fn invalid(&mut self, path: &str, detail: String, value: &Value) {
        self.errors.push(FieldError::new(path, FieldErrorKind::Invalid, detail).with_value(value));
    }

    fn node(&mut self, schema: &Value, path: &str, place: Place, depth: usize, lenient: bool) -> NodeId {
        if depth > DEPTH_MAX {
            self.forbid(path, "the schema is nested too deeply");
            return NodeId::ANY;
        }
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
        let lenient = lenient || preserve_unknown;
        for keyword in FORBIDDEN.iter().filter(|keyword| schema.get(**keyword).is_some()) {
            self.forbid(&join(path, keyword), "must not be set in a structural schema");
        }
        if flag("uniqueItems") {
            self.forbid(
                &join(path, "uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
        if schema.get("x-kubernetes-validations").is_some() {
            self.warnings.push(format!("{path}.x-kubernetes-validations: rules are not evaluated by this server"));
        }
        let shape = self.shape(schema, path, place, depth, lenient);
        let constraint = self.constraint(schema, path, depth);
        let node = Node {
            list: self.list(schema, path),
            atomic: schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            enumeration: constraint.enumeration.clone().into_boxed_slice(),
            default: schema.get("default").cloned().map(Box::new),
            nullable: flag("nullable"),
            preserve_unknown,
            lenient,
            constraint: Some(Box::new(constraint)),
            shape,
            ..Node::default()
        };
        self.builder.add(node)
    }

    fn shape(&mut self, schema: &Value, path: &str, place: Place, depth: usize, lenient: bool) -> Shape {
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let of_type = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if place == Place::Root && of_type != "object" {
            let detail = "must be object at the root";
            self.errors.push(
                FieldError::new(&join(path, "type"), FieldErrorKind::Invalid, detail).with_value(&of_type.into()),
            );
        }
        match of_type {
            "object" => self.object(schema, path, place, depth, lenient),
            "array" => {
                let path = join(path, "items");
                if let Some(items @ Value::Object(_)) = schema.get("items") {
                    return Shape::List { items: self.node(items, &path, Place::Inner, depth + 1, lenient) };
                }
                self.errors.push(FieldError::new(&path, FieldErrorKind::Required, "must be specified"));
                Shape::Any
            }
            "string" => Shape::Scalar(ScalarType::String),
            "integer" => Shape::Scalar(ScalarType::Int64),
            "number" => Shape::Scalar(ScalarType::Number),
            "boolean" => Shape::Scalar(ScalarType::Boolean),
            "" if flag("x-kubernetes-int-or-string") => Shape::Scalar(ScalarType::IntOrString),
            "" if flag("x-kubernetes-preserve-unknown-fields") && schema.get("properties").is_some() => {
                self.object(schema, path, place, depth, lenient)
            }
            "" if flag("x-kubernetes-preserve-unknown-fields") => Shape::Any,
            "" => {
                let detail = "must not be empty for specified object fields";
                self.errors.push(FieldError::new(&join(path, "type"), FieldErrorKind::Required, detail));
                Shape::Any
            }
            _unknown => {
                let supported = ["array", "boolean", "integer", "number", "object", "string"].map(Value::from);
                let error = crate::schema::field_error::not_supported(&join(path, "type"), &of_type.into(), &supported);
                self.errors.push(error);
                Shape::Any
            }
        }
    }

    fn object(&mut self, schema: &Value, path: &str, place: Place, depth: usize, lenient: bool) -> Shape {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required: Vec<&str> = strings(schema.get("required"));
        let embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
        let whole = place == Place::Root || embedded;
        let mut fields = Vec::new();
        for (name, property) in properties.into_iter().flatten() {
            if whole && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let path = format!("{path}.properties[{name}]");
            fields.push(Field {
                name: name.as_str().into(),
                node: self.node(property, &path, Place::Inner, depth + 1, lenient),
                required: required.contains(&name.as_str()),
            });
        }
        if whole {
            for (name, node) in [("apiVersion", self.text), ("kind", self.text), ("metadata", self.metadata)] {
                fields.push(Field { name: name.into(), node, required: embedded && name != "metadata" });
            }
        }
        fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let values = schema.get("additionalProperties");
        let additional = match values {
            Some(Value::Bool(false)) => {
                self.forbid(&join(path, "additionalProperties"), "must not be false");
                None
            }
            Some(_) if properties.is_some_and(|properties| !properties.is_empty()) => {
                self.forbid(
                    &join(path, "additionalProperties"),
                    "additionalProperties and properties are mutual exclusive",
                );
                None
            }
            Some(Value::Bool(true)) => Some(NodeId::ANY),
            Some(values) => {
                Some(self.node(values, &join(path, "additionalProperties"), Place::Inner, depth + 1, lenient))
            }
            None => None,
        };
        Shape::Object { fields: fields.into_boxed_slice(), additional }
    }

    fn list(&mut self, schema: &Value, path: &str) -> ListType {
        match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = strings(schema.get("x-kubernetes-list-map-keys"));
                if keys.is_empty() {
                    let detail = "must not be empty if x-kubernetes-list-type is map";
                    self.errors.push(FieldError::new(
                        &join(path, "x-kubernetes-list-map-keys"),
                        FieldErrorKind::Required,
                        detail,
                    ));
                }
                for key in &keys {
                    if schema.pointer("/items/properties").and_then(|properties| properties.get(key)).is_none() {
                        let detail = "entries must all be names of item properties".to_owned();
                        self.invalid(&join(path, "x-kubernetes-list-map-keys"), detail, &Value::from(*key));
                    }
                }
                ListType::Map(keys.into_iter().map(Into::into).collect())
            }
            Some(_) | None => ListType::Atomic,
        }
    }

    fn branches(&mut self, schema: &Value, keyword: &str, path: &str, depth: usize) -> Vec<Constraint> {
        let branches = schema.get(keyword).and_then(Value::as_array);
        let branches = branches.into_iter().flatten().enumerate();
        branches.map(|(at, branch)| self.branch(branch, &format!("{path}.{keyword}[{at}]"), depth + 1)).collect()
    }

    fn branch(&mut self, schema: &Value, path: &str, depth: usize) -> Constraint {
        if depth > DEPTH_MAX {
            self.forbid(path, "the schema is nested too deeply");
            return Constraint::default();
        }
        for keyword in FORBIDDEN_IN_BRANCH.iter().filter(|keyword| schema.get(**keyword).is_some()) {
            self.forbid(&join(path, keyword), "must not be set inside allOf, anyOf, oneOf or not");
        }
        let mut constraint = self.constraint(schema, path, depth);
        constraint.of_type = schema.get("type").and_then(Value::as_str).map(ToOwned::to_owned);
        constraint.required = strings(schema.get("required")).into_iter().map(ToOwned::to_owned).collect();
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let path = format!("{path}.properties[{name}]");
            let property = self.branch(property, &path, depth + 1);
            constraint.properties.insert(name.clone(), property);
        }
        if let Some(items) = schema.get("items") {
            constraint.items = Some(Box::new(self.branch(items, &join(path, "items"), depth + 1)));
        }
        constraint
    }

    fn constraint(&mut self, schema: &Value, path: &str, depth: usize) -> Constraint {
        let number = |name: &str| -> Option<Number> { schema.get(name).and_then(Value::as_number).cloned() };
        let size = |name: &str| schema.get(name).and_then(Value::as_u64);
        let bound = |name: &str, exclusive: &str| {
            number(name).map(|at| Bound { at, exclusive: schema.get(exclusive) == Some(&Value::Bool(true)) })
        };
        let pattern = schema.get("pattern").filter(|pattern| pattern.as_str().is_some_and(|text| !text.is_empty()));
        let pattern = pattern.and_then(|pattern| self.pattern(pattern, path));
        Constraint {
            pattern,
            format: schema.get("format").and_then(Value::as_str).and_then(Format::parse),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: size("minLength"),
            max_length: size("maxLength"),
            min_items: size("minItems"),
            max_items: size("maxItems"),
            min_properties: size("minProperties"),
            max_properties: size("maxProperties"),
            enumeration: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            of_type: None,
            // A required field without a type of its own is checked here, the others by the shape.
            required: undeclared(schema),
            all_of: self.branches(schema, "allOf", path, depth),
            any_of: self.branches(schema, "anyOf", path, depth),
            one_of: self.branches(schema, "oneOf", path, depth),
            not: schema.get("not").map(|not| Box::new(self.branch(not, &join(path, "not"), depth + 1))),
            ..Constraint::default()
        }
    }

    fn pattern(&mut self, pattern: &Value, path: &str) -> Option<Pattern> {
        let text = pattern.as_str().unwrap_or_default();
        match RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build() {
            Ok(regex) => Some(Pattern(regex)),
            Err(error) => {
                self.invalid(
                    &join(path, "pattern"),
                    format!("must be a valid regular expression, but isn't: {error}"),
                    pattern,
                );
                None
            }
        }
    }
}

fn undeclared(schema: &Value) -> Vec<String> {
    let declared = |name: &str| schema.get("properties").and_then(|properties| properties.get(name)).is_some();
    strings(schema.get("required")).into_iter().filter(|name| !declared(name)).map(ToOwned::to_owned).collect()
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    let items = value.and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).collect()
}
