//! The agent-execution contract: requests, records, and the platform snapshot that a run uses.
//!
//! Pure parsing, validation and rendering. Invariants: a field that is `null` counts as absent; the record has its
//! eleven keys in the order of the contract, at every level; nothing here opens a secret. See
//! docs/adr/0015-agent-execution-contract.md.

pub mod calls;
pub mod catalogue;
pub mod error;
pub mod messages;
pub mod platform;
pub mod record;
pub mod run;
pub mod validate;

pub use calls::{CallItem, ModelCall, ToolCall, ToolFault};
pub use error::{ExecCode, ExecFailure};
pub use messages::{Message, Role};
pub use platform::{Binding, Capability, PlatformRuntime, Resource, SnapshotError};
pub use record::{ContractStatus, ErrorBody, ExecutionView, timestamp};
pub use run::{ContractRun, ContractTool, RuntimeProfile, Transport};
pub use validate::{ContractRefusal, ExecRequest};
