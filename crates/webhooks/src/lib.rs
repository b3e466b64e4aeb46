//! Webhooks: delivers what the outbox holds to the endpoints of tenants (docs/adr/0056-webhooks.md), signed as
//! [Standard Webhooks](https://www.standardwebhooks.com).
//!
//! Invariants: an event is delivered at least once within 72 hours, or shown as failed; the bytes of its body and its
//! id are the same at each attempt; an endpoint that hangs or fails delays no other; no redirect is followed, and no
//! private address is reached unless the operator allows it.

mod attempt;
mod deliver;
pub mod signature;

pub use deliver::{WebhookOptions, deliver};
