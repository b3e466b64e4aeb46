//! One file per subcommand.

pub mod api;
pub mod apply;
pub mod approvals;
pub mod bench;
pub mod cancel;
pub mod compare;
pub mod config_check;
pub mod demo;
pub mod dev;
pub mod fork;
pub mod get;
pub mod keys;
pub mod ledger;
pub mod list;
pub mod mcp_catalogue;
pub mod migrate;
pub mod openapi;
pub mod providers;
pub mod prune;
pub mod questions;
pub mod retry;
pub mod submit;
pub mod top_up;
pub mod watch;
pub mod with_servers;
pub mod worker;
