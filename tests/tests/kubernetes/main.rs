//! Tests on real Kubernetes: one binary, so that cargo does not start its clusters side by side with another's.

mod agent_cluster;
mod approvals;
mod associated;
mod decommission;
mod deployed;
mod forbidden;
mod harness;
mod identity;
mod kubectl;
mod main_job;
mod mapping;
mod objects;
mod offline;
mod ownership;
mod patrol;
mod placing;
mod policies;
mod quickstart;
mod refusals;
mod rights;
mod scenarios;
mod site;
mod spaces;
mod strain;
mod texts;
mod unassign;
