//! The counterparts of the product that tests, `longhaul verify` and `longhaul bench` share: servers that answer as
//! a scenario says, and a proxy that injects network faults.

pub mod http_server;
pub mod mcp;
pub mod model;
pub mod proxy;
pub mod receiver;
