//! One file per subcommand.

pub mod accounts;
pub mod api;
pub mod apply;
pub mod approvals;
pub mod audit;
pub mod cancel;
pub mod catalogue;
pub mod chat;
pub mod compare;
pub mod completions;
pub mod config_check;
pub mod demo;
mod demo_chat;
mod demo_project;
mod demo_run;
mod demo_schedule;
pub mod dev;
pub mod doctor;
pub mod erase;
pub mod files;
pub mod filters;
pub mod fork;
pub mod get;
pub mod ingest;
pub mod keys;
pub mod ledger;
pub mod limits;
pub mod list;
pub mod mcp_catalogue;
pub mod migrate;
pub mod openapi;
pub mod overview;
pub mod project;
pub mod providers;
pub mod prune;
pub mod quarantine;
pub mod questions;
pub mod retry;
pub mod run;
pub mod runs;
#[cfg(target_os = "linux")]
pub mod sandbox;
pub mod schedule;
pub mod schema;
pub mod search;
pub mod skills;
pub mod steps;
pub mod submit;
pub mod tool_results;
pub mod top_up;
pub mod usage;
pub mod watch;
pub mod webhook;
pub mod whoami;
pub mod why;
pub mod with_servers;
pub mod worker;
pub mod workers;

#[cfg(feature = "bench")]
pub use longhaul_proof::bench;
#[cfg(feature = "proof")]
pub use longhaul_proof::verify;
