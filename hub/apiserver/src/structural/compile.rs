use std::collections::{BTreeSet, HashMap};

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Number, Value};

use super::{CustomType, object_meta};
use crate::schema::constraint::{Bound, Constraint, Format, Pattern};
use crate::schema::field_error::{FieldError, FieldErrorKind, FieldErrors, not_supported};
use crate::schema::field_path::FieldPath;
use crate::schema::{Field, ListType, Node, NodeId, ScalarType, SchemaBuilder, Shape};

/// Nested schemas in one another; JSON that deep is refused when it is decoded.
const DEPTH_MAX: usize = 100;

/// Schemas in the versions of one definition, the branches of `allOf` and the like included. Each takes a kilobyte, so that all
/// are 100 MB; the largest definitions in use have some ten thousand.
const SCHEMAS_MAX: usize = 100_000;

/// Bytes that one compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Sizes that are tried one after the other: a pattern does not say what it takes, but is refused where that is more than it may.
const PATTERN_SIZES: [usize; 5] = [4 << 10, 32 << 10, 256 << 10, 512 << 10, PATTERN_BYTES_MAX];

/// Bytes that a pattern keeps of the states that it was in, once it was used.
const PATTERN_CACHE_BYTES_MAX: usize = 128 << 10;

/// Bytes that the patterns of one definition may take, each once however often it is there: 248 of an ordinary size, or 50 of
/// `\w{20}`, which has half a megabyte.
const PATTERNS_BYTES_MAX: usize = 32 << 20;

/// Bytes of one state of a compiled pattern, at least.
const STATE_BYTES: usize = 64;

/// Warnings given of one version; a client is told some kilobytes of them.
const WARNINGS_MAX: usize = 100;

/// What the schemas of one definition have in common: what is wrong with them, and what they may take.
#[derive(Debug, Default)]
pub(crate) struct Compilation {
    pub(crate) errors: FieldErrors,
    schemas: usize,
    patterns: HashMap<String, Pattern>,
    pattern_bytes: usize,
}

/// A compiled schema; none where something is wrong with it.
pub(super) fn compile(
    schema: Option<&Value>,
    path: &FieldPath<'_>,
    definition: &mut Compilation,
) -> Option<CustomType> {
    let mut compiler = Compiler {
        builder: SchemaBuilder::default(),
        definition,
        warnings: Vec::new(),
        steps_each: 0,
        metadata: NodeId::ANY,
        text: NodeId::ANY,
    };
    compiler.metadata = compiler.builder.import(object_meta());
    compiler.text = compiler.builder.add(Node { shape: Shape::Scalar(ScalarType::String), ..Node::default() });
    let open = Value::Object(Map::from_iter([
        ("type".to_owned(), Value::from("object")),
        ("x-kubernetes-preserve-unknown-fields".to_owned(), Value::from(true)),
    ]));
    let before = compiler.definition.errors.count();
    let root = compiler.node(schema.unwrap_or(&open), path, Place::Root, 0, false);
    let Compiler { builder, definition, warnings, steps_each, .. } = compiler;
    (definition.errors.count() == before).then(|| CustomType { schema: builder.finish(), root, warnings, steps_each })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The object itself: has `apiVersion`, `kind` and `metadata` whatever the schema says.
    Root,
    Inner,
}

struct Compiler<'a> {
    builder: SchemaBuilder,
    definition: &'a mut Compilation,
    warnings: Vec<String>,
    steps_each: u64,
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

impl Compiler<'_> {
    fn forbid(&mut self, path: &FieldPath<'_>, detail: &str) {
        self.definition.errors.push_with(|| FieldError::new(path, FieldErrorKind::Forbidden, detail));
    }

    fn invalid(&mut self, path: &FieldPath<'_>, detail: &str, value: &Value) {
        self.definition.errors.push_with(|| FieldError::new(path, FieldErrorKind::Invalid, detail).with_value(value));
    }

    fn require(&mut self, path: &FieldPath<'_>, detail: &str) {
        self.definition.errors.push_with(|| FieldError::new(path, FieldErrorKind::Required, detail));
    }

    /// Counts one more schema. False where there are too many, or where it is nested too deeply.
    fn enter(&mut self, path: &FieldPath<'_>, depth: usize) -> bool {
        if depth > DEPTH_MAX {
            self.forbid(path, "the schema is nested too deeply");
            return false;
        }
        self.definition.schemas += 1;
        self.steps_each += 1;
        if self.definition.schemas == SCHEMAS_MAX + 1 {
            let detail =
                format!("a definition must not have more than {SCHEMAS_MAX} schemas, those within others included");
            self.forbid(path, &detail);
        }
        self.definition.schemas <= SCHEMAS_MAX
    }

    fn node(&mut self, schema: &Value, path: &FieldPath<'_>, place: Place, depth: usize, lenient: bool) -> NodeId {
        if !self.enter(path, depth) {
            return NodeId::ANY;
        }
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let preserve_unknown = flag("x-kubernetes-preserve-unknown-fields");
        let lenient = lenient || preserve_unknown;
        for keyword in FORBIDDEN.iter().filter(|keyword| schema.get(**keyword).is_some()) {
            self.forbid(&path.field(keyword), "must not be set in a structural schema");
        }
        if flag("uniqueItems") {
            self.forbid(
                &path.field("uniqueItems"),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            );
        }
        if schema.get("x-kubernetes-validations").is_some() && self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(format!("{path}.x-kubernetes-validations: rules are not evaluated by this server"));
        }
        let shape = self.shape(schema, path, place, depth, lenient);
        let constraint = self.constraint(schema, path, depth);
        let defaulted = match &shape {
            Shape::Object { fields, .. } => {
                let all = fields.iter().enumerate();
                all.filter(|(_, field)| self.builder.has_default(field.node)).map(|(at, _)| at).collect()
            }
            Shape::Any | Shape::Scalar(_) | Shape::List { .. } => Box::default(),
        };
        let node = Node {
            defaulted,
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

    fn shape(&mut self, schema: &Value, path: &FieldPath<'_>, place: Place, depth: usize, lenient: bool) -> Shape {
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let of_type = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if place == Place::Root && of_type != "object" {
            let detail = "must be object at the root";
            self.invalid(&path.field("type"), detail, &of_type.into());
        }
        match of_type {
            "object" => self.object(schema, path, place, depth, lenient),
            "array" => {
                let path = path.field("items");
                if let Some(items @ Value::Object(_)) = schema.get("items") {
                    return Shape::List { items: self.node(items, &path, Place::Inner, depth + 1, lenient) };
                }
                self.require(&path, "must be specified");
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
                self.require(&path.field("type"), detail);
                Shape::Any
            }
            _unknown => {
                let supported = ["array", "boolean", "integer", "number", "object", "string"].map(Value::from);
                let path = path.field("type");
                self.definition.errors.push_with(|| not_supported(&path, &of_type.into(), &supported));
                Shape::Any
            }
        }
    }

    fn object(&mut self, schema: &Value, path: &FieldPath<'_>, place: Place, depth: usize, lenient: bool) -> Shape {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required: BTreeSet<&str> = strings(schema.get("required")).into_iter().collect();
        let embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
        let whole = place == Place::Root || embedded;
        let mut fields = Vec::new();
        let all = path.field("properties");
        for (name, property) in properties.into_iter().flatten() {
            if whole && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            fields.push(Field {
                name: name.as_str().into(),
                node: self.node(property, &all.key(name), Place::Inner, depth + 1, lenient),
                required: required.contains(name.as_str()),
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
                self.forbid(&path.field("additionalProperties"), "must not be false");
                None
            }
            Some(_) if properties.is_some_and(|properties| !properties.is_empty()) => {
                self.forbid(
                    &path.field("additionalProperties"),
                    "additionalProperties and properties are mutual exclusive",
                );
                None
            }
            Some(Value::Bool(true)) => Some(NodeId::ANY),
            Some(values) => {
                Some(self.node(values, &path.field("additionalProperties"), Place::Inner, depth + 1, lenient))
            }
            None => None,
        };
        Shape::Object { fields: fields.into_boxed_slice(), additional }
    }

    fn list(&mut self, schema: &Value, path: &FieldPath<'_>) -> ListType {
        match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = strings(schema.get("x-kubernetes-list-map-keys"));
                if keys.is_empty() {
                    let detail = "must not be empty if x-kubernetes-list-type is map";
                    self.require(&path.field("x-kubernetes-list-map-keys"), detail);
                }
                for key in &keys {
                    if schema.pointer("/items/properties").and_then(|properties| properties.get(key)).is_none() {
                        let detail = "entries must all be names of item properties";
                        self.invalid(&path.field("x-kubernetes-list-map-keys"), detail, &Value::from(*key));
                    }
                }
                ListType::Map(keys.into_iter().map(Into::into).collect())
            }
            Some(_) | None => ListType::Atomic,
        }
    }

    fn branches(&mut self, schema: &Value, keyword: &str, path: &FieldPath<'_>, depth: usize) -> Vec<Constraint> {
        let branches = schema.get(keyword).and_then(Value::as_array);
        let branches = branches.into_iter().flatten().enumerate();
        let path = path.field(keyword);
        branches.map(|(at, branch)| self.branch(branch, &path.index(at), depth + 1)).collect()
    }

    fn branch(&mut self, schema: &Value, path: &FieldPath<'_>, depth: usize) -> Constraint {
        if !self.enter(path, depth) {
            return Constraint::default();
        }
        for keyword in FORBIDDEN_IN_BRANCH.iter().filter(|keyword| schema.get(**keyword).is_some()) {
            self.forbid(&path.field(keyword), "must not be set inside allOf, anyOf, oneOf or not");
        }
        let mut constraint = self.constraint(schema, path, depth);
        constraint.of_type = schema.get("type").and_then(Value::as_str).map(ToOwned::to_owned);
        constraint.required = strings(schema.get("required")).into_iter().map(ToOwned::to_owned).collect();
        let properties = path.field("properties");
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let property = self.branch(property, &properties.key(name), depth + 1);
            constraint.properties.insert(name.clone(), property);
        }
        if let Some(items) = schema.get("items") {
            constraint.items = Some(Box::new(self.branch(items, &path.field("items"), depth + 1)));
        }
        constraint
    }

    fn constraint(&mut self, schema: &Value, path: &FieldPath<'_>, depth: usize) -> Constraint {
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
            not: schema.get("not").map(|not| Box::new(self.branch(not, &path.field("not"), depth + 1))),
            ..Constraint::default()
        }
    }

    fn pattern(&mut self, pattern: &Value, path: &FieldPath<'_>) -> Option<Pattern> {
        let text = pattern.as_str().unwrap_or_default();
        if let Some(known) = self.definition.patterns.get(text) {
            self.steps_each = self.steps_each.saturating_add(known.states);
            return Some(known.clone());
        }
        // It was said already, and to compile more takes time.
        if self.definition.pattern_bytes > PATTERNS_BYTES_MAX {
            return None;
        }
        let path = path.field("pattern");
        let (size, regex) = match compiled(text) {
            Ok(found) => found,
            Err(error) => {
                let detail = format!("must be a valid regular expression, but isn't: {error}");
                self.invalid(&path, &detail, pattern);
                // To find that it is too large takes as long as to compile it.
                self.definition.pattern_bytes += PATTERN_BYTES_MAX;
                return None;
            }
        };
        self.definition.pattern_bytes += size + PATTERN_CACHE_BYTES_MAX;
        if self.definition.pattern_bytes > PATTERNS_BYTES_MAX {
            let detail =
                format!("the patterns of a definition must not take more than {PATTERNS_BYTES_MAX} bytes together");
            self.invalid(&path, &detail, pattern);
            return None;
        }
        let states = u64::try_from(size / STATE_BYTES).unwrap_or(u64::MAX);
        self.steps_each = self.steps_each.saturating_add(states);
        let compiled = Pattern { regex, states };
        self.definition.patterns.insert(text.to_owned(), compiled.clone());
        Some(compiled)
    }
}

/// A pattern in the least of the sizes that it fits into.
fn compiled(pattern: &str) -> Result<(usize, Regex), regex::Error> {
    let mut builder = RegexBuilder::new(pattern);
    builder.dfa_size_limit(PATTERN_CACHE_BYTES_MAX);
    for size in PATTERN_SIZES {
        match builder.size_limit(size).build() {
            Ok(regex) => return Ok((size, regex)),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(regex::Error::CompiledTooBig(PATTERN_BYTES_MAX))
}

fn undeclared(schema: &Value) -> Vec<String> {
    let declared = |name: &str| schema.get("properties").and_then(|properties| properties.get(name)).is_some();
    strings(schema.get("required")).into_iter().filter(|name| !declared(name)).map(ToOwned::to_owned).collect()
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    let items = value.and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).collect()
}
