//! Private PostgreSQL and Redis servers, started from the installed binaries and stopped with their owner.
//!
//! Used by `longhaul dev`, `longhaul demo`, tests and benchmarks, not by the production roles. Invariants: a server
//! never outlives its owner, even if the owner is killed with SIGKILL (`guard.rs`); it listens on loopback only and
//! requires a random password; durability settings are PostgreSQL's defaults.

mod account;
mod binaries;
mod cluster;
mod error;
mod guard;
mod port;
mod postgres;
mod preflight;
mod process_tree;
mod redis;
mod role;
mod server_dir;
mod supervised;
mod with_servers;

pub use self::error::ServersError;
pub use self::port::free_port;
pub use self::postgres::{PostgresOptions, PrivatePostgres};
pub use self::preflight::{Host, MissingServers, Package, Platform, preflight};
pub use self::redis::{PrivateRedis, RedisOptions};
pub use self::role::{Role, RoleProcess};
pub use self::supervised::PrivateServer;
pub use self::with_servers::with_servers;
