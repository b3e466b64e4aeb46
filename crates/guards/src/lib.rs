//! Guards against what tenants, models and tool servers send: templates and JSON Schemas on an allowance, addresses
//! that may not be called, sealed secrets.

pub mod address_guard;
pub mod agent_secrets;
pub mod cpu_lane;
pub mod guarded_client;
pub mod http;
pub mod json_schema;
pub mod sealing;
pub mod template;
