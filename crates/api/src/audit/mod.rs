//! The audit log (docs/design/access.md): each request that changes something leaves a row, wherever its handler
//! is. A middleware takes a place for the row before the handler runs, and the extractor of the caller names the actor.
//!
//! Invariants: a change is admitted only with a place for its row; a row holds no body and no secret; a request without
//! an authenticated caller leaves none.

mod middleware;
mod slot;
mod writer;

pub(crate) use middleware::around;
pub(crate) use slot::AuditSlot;
pub(crate) use writer::AuditLog;
