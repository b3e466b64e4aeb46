//! Code that the API and the worker share: domain, configuration, telemetry, store and queue.
//!
//! Invariants: `sqlx` is named in [`store`] only, `redis` and `apalis` in [`queue`] only.

pub mod addresses;
pub mod agent_secrets;
pub mod clock;
pub mod config;
pub mod cpu_lane;
pub mod domain;
pub mod http;
pub mod json_schema;
pub mod queue;
pub mod retrieval;
pub mod sealing;
pub mod store;
pub mod telemetry;
pub mod template;
