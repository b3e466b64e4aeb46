//! Status of a durable run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::named;

named!(RunStatus);

/// Status of a durable run: the model calls of a script outside.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
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
pub enum RunStatus {
    /// Requests are answered.
    Open,
    /// The script ended well.
    Finished,
    /// The script ended with an error, or the run's deadline passed.
    Failed,
    Cancelled,
}
