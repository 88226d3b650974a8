use std::collections::HashMap;

use super::{Field, Node, NodeId, Schema, Shape, TypeRef};

/// Builds a [`Schema`] at run time, for a custom resource.
#[derive(Debug)]
pub(crate) struct SchemaBuilder {
    nodes: Vec<Node>,
}

impl Default for SchemaBuilder {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl SchemaBuilder {
    /// Adds a node.
    pub(crate) fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("a schema comes from a bounded document"));
        self.nodes.push(node);
        id
    }

    /// Whether a node that was added has a default.
    pub(crate) fn has_default(&self, id: NodeId) -> bool {
        self.nodes[id.index()].default.is_some()
    }

    /// Copies a type of another schema, with all that it refers to.
    pub(crate) fn import(&mut self, from: TypeRef<'_>) -> NodeId {
        let mut seen = HashMap::from([(NodeId::ANY, NodeId::ANY)]);
        self.import_node(from, &mut seen)
    }

    fn import_node(&mut self, from: TypeRef<'_>, seen: &mut HashMap<NodeId, NodeId>) -> NodeId {
        if let Some(id) = seen.get(&from.id()) {
            return *id;
        }
        // Reserved before its children are copied: types may refer to themselves.
        let id = self.add(Node::default());
        seen.insert(from.id(), id);
        let mut node = from.node().clone();
        node.base = None;
        match &mut node.shape {
            Shape::List { items } => *items = self.import_node(from.sibling(*items), seen),
            Shape::Object { fields, additional } => {
                for Field { node, .. } in fields.iter_mut() {
                    *node = self.import_node(from.sibling(*node), seen);
                }
                if let Some(additional) = additional {
                    *additional = self.import_node(from.sibling(*additional), seen);
                }
            }
            Shape::Any | Shape::Scalar(_) => {}
        }
        self.nodes[id.index()] = node;
        id
    }

    /// Freezes the arena.
    pub(crate) fn finish(self) -> Schema {
        Schema { nodes: self.nodes.into_boxed_slice() }
    }
}
