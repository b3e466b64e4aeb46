//! Webhooks: delivers what the outbox holds to the endpoints of tenants (docs/design/webhooks.md): as requests signed
//! as [Standard Webhooks](https://www.standardwebhooks.com), and to channels as messages in which people decide on
//! approvals.
//!
//! Invariants: an event is delivered at least once within 72 hours, or shown as failed; its id is the same at each
//! attempt, and so are the bytes of a signed request; an endpoint that hangs or fails delays no other; no redirect is
//! followed, and no private address is reached unless the operator allows it.

mod attempt;
mod deliver;
mod delivery;
pub mod email;
mod lane;
pub mod message;
pub mod signature;
pub mod slack;
pub mod ticket;

pub use deliver::deliver;
pub use delivery::{Channels, WebhookOptions};
