//! The differences of an execution from its agent, as its submit stored them.

use longhaul_domain::wire_run::WireRun;
use longhaul_sdk::{Failure, FailureCode, spec::AgentOverrides};

/// The differences of an execution from its agent, as its submit stored them.
#[derive(Debug, Default)]
pub struct Differences {
    /// All but the part of a wire.
    pub overrides: AgentOverrides,
    /// The part of a wire of other clients, if the execution came over one.
    pub wire: Option<WireRun>,
}

impl Differences {
    /// Parses the stored overrides.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(stored: Option<&str>) -> Result<Self, Failure> {
        let unreadable = |error: serde_json::Error| {
            let summary = format!("the stored overrides cannot be read: {error}");
            Failure::permanent(FailureCode::INTERNAL_ERROR, summary)
        };
        let Some(stored) = stored else { return Ok(Self::default()) };
        let mut overrides: AgentOverrides = serde_json::from_str(stored).map_err(unreadable)?;
        let wire = overrides.wire.take().map(serde_json::from_value).transpose().map_err(unreadable)?;
        Ok(Self { overrides, wire })
    }
}
