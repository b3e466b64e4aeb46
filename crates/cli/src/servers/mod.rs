//! Private PostgreSQL and Redis servers, started from the installed binaries and stopped with their owner.
//!
//! `longhaul dev`, `longhaul demo` and the tests run on them. What must hold: a server never outlives its owner,
//! even one killed with SIGKILL (`guard.rs`); it listens on loopback only and asks for a random password; durability
//! is PostgreSQL's own default and never traded for speed. Nothing here is used by the production roles.

mod account;
mod binaries;
mod cluster;
mod error;
mod guard;
mod place;
mod port;
mod postgres;
mod preflight;
mod process_tree;
mod redis;
mod role;
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
