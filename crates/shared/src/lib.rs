//! Code that API and worker share: domain types and pure rules, configuration, telemetry.

pub mod address_guard;
pub mod agent_secrets;
pub mod clock;
pub mod config;
pub mod cpu_lane;
pub mod domain;
pub mod guarded_client;
pub mod http;
pub mod json_schema;
pub mod memory;
pub mod nearest;
pub mod sealing;
pub mod telemetry;
pub mod template;
pub mod tls;
pub mod visible;

/// Named by [`named!`], whose users need not depend on it.
#[cfg(feature = "sqlx")]
#[doc(hidden)]
pub use sqlx;
