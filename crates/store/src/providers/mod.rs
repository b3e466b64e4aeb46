//! Health of model endpoints: circuit breakers, failures and limits (docs/adr/0012-provider-health.md).

pub mod breakers;
mod counting;
pub mod failures;
pub mod limits;
