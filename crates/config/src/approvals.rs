//! `[approvals]`: who may decide.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct ApprovalsConfig {
    /// True if the authors of agent, definition and skills count as submitters of what runs with them.
    pub authors: bool,
}
