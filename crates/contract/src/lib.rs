//! The agent-execution contract: requests, records, and the platform snapshot that a run uses. API, store and worker
//! share it; the engine knows it by the `Profile` that the worker implements.
//!
//! Pure parsing, validation and rendering. Invariants: a field that is `null` counts as absent; the record has its
//! eleven keys in the order of the contract, at every level; nothing here opens a secret. See
//! docs/design/contract.md.

// What a caller asks, and what it is answered.
pub mod error;
pub mod messages;
pub mod record;
pub mod status;
pub mod validate;

// What a run needs: its agent and tools, and the platform's snapshot.
pub mod catalogue;
pub mod platform;
pub mod run;
mod secret_ref;

// The calls of a run, in its steps and in its record.
pub mod calls;
pub mod steps;

pub use calls::{CallItem, ModelCall, ToolCall, ToolFault};
pub use error::{ExecCode, ExecFailure};
pub use messages::{Message, Role};
pub use platform::{Binding, Capability, PlatformRuntime, Resource, SnapshotError};
pub use record::{ErrorBody, ExecutionView, timestamp};
pub use run::{ContractRun, ContractTool, Transport};
pub use status::ContractStatus;
pub use validate::{ContractRefusal, ExecRequest};
