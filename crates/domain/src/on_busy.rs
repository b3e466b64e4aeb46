//! Policy of a session for a message that arrives while another is answered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::named;

named!(OnBusy);

/// Policy for a message that arrives while another is answered.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OnBusy {
    /// The message is refused.
    Reject,
    /// The message waits for its turn.
    #[default]
    Enqueue,
    /// The execution under way is cancelled; what was said stays.
    Interrupt,
    /// The execution under way is cancelled, and its turns are left out of the transcript.
    Rollback,
}
