//! Health of model endpoints: circuit breakers, failures and limits (docs/design/health.md).

pub mod breakers;
mod counting;
pub mod failures;
pub mod limits;
