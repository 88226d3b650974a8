//! An embedded Kubernetes API server over a [`Store`](tideline_store::Store).
//!
//! One server holds many *spaces*. A space is a whole Kubernetes API: discovery, the built-in kinds of one Kubernetes
//! version, custom resources, watches, server-side apply. Its objects are inert: no controller acts on them but the
//! ones that the API itself needs (namespaces and definitions are emptied before they go).
//!
//! - [`ApiServer::call`] answers one request in memory; [`ApiServer::service`] is that for a client library.
//! - [`ApiServer::router`] serves all spaces to the network.
//! - [`ApiServer::feed`] streams every change of every space from one watcher.
//!
//! What is different from a kube-apiserver, on purpose: built-in kinds are stored as written and the few defaults that
//! clients depend on are added on read; owner references are stored and nothing is collected by them, so
//! `propagationPolicy` is accepted and has no effect; admission and CEL rules are not evaluated; protobuf is read and
//! never written, CBOR is not spoken; `exec`, `logs`, `proxy` and whatever else needs a kubelet is refused.
//!
//! One task runs per server, the controller in `controllers`; it owns one watch on the store and no channels. Every
//! client watch is driven by the client's own reading; one of custom resources follows the catalog of its space by a `watch`
//! channel, which holds the latest alone.

// Types, and what is done with them; pure.
mod extent;
mod fieldmanager;
mod openapi;
mod patch;
mod protobuf;
mod schema;
mod string_data;
mod structural;

// A request: who asks for what, where, in which form.
mod body;
mod identity;
mod negotiate;
mod path;
mod query;
mod selector;
mod status;

// What is served, and where it is kept.
mod catalog;
mod filled_field;
mod keys;
mod object;
mod resource_kind;
mod run;
mod state;
mod virtual_resource;

// Operations, and how their answers look.
mod call;
mod discovery;
mod fields;
mod paging;
mod read;
mod render;
mod review;
mod scale;
mod table;
mod virtual_list;
mod virtual_read;
mod virtual_watch;
mod watch;
mod watch_view;
mod write;

// The server around them.
mod controllers;
mod feed;
mod long_work;
mod router;
mod server;

pub use body::BODY_BYTES_MAX;
pub use feed::FeedEvent;
pub use filled_field::FilledField;
pub use identity::{
    AUTHENTICATED, Admission, Attributes, Authenticator, Authorizer, Credentials, Crowded, Deletion, Identity, MASTERS,
    OnAuthenticated, PeerCertificate, Target, Unauthenticated,
};
pub use object::OWN_NAMESPACES;
pub use resource_kind::ResourceKind;
pub use router::SpaceService;
pub use server::{ApiServer, Error};
pub use state::{Config, SpaceConfig};
pub use virtual_resource::{Changed, ChangedGroup, Column, Listed, Page, PageRequest, UnknownKey, VirtualResource};
