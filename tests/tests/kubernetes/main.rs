//! Tests on real Kubernetes: one binary, so that cargo does not start its clusters side by side with another's.

mod agent_cluster;
mod approvals;
mod associated;
mod binaries;
mod decommission;
mod deployed;
mod forbidden;
mod harness;
mod histories;
mod hostile;
mod identity;
mod intent;
mod kubectl;
mod main_job;
mod mapping;
mod objects;
mod offline;
mod ownership;
mod patrol;
mod placing;
mod policies;
#[path = "../processes/harness.rs"]
#[expect(dead_code, reason = "the processes under test need more of it")]
mod processes;
mod quickstart;
mod refusals;
mod restored;
mod returning;
mod rights;
mod scenarios;
mod shut_out;
mod site;
mod spaces;
mod strain;
mod texts;
mod unassign;
