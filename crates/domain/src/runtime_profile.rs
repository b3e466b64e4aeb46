//! Network access of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::named;

named!(RuntimeProfile);

/// Network access of a run.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
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
pub enum RuntimeProfile {
    /// The run may reach external services.
    Online,
    /// The run must not reach external services.
    Offline,
}

impl RuntimeProfile {
    /// Resolves the profile of a run in the order request, operator's force, stored default, `offline`. A request
    /// cannot lift a force to `offline`.
    #[must_use]
    pub fn resolve(requested: Option<Self>, forced: Option<Self>, stored: Option<Self>) -> Self {
        match forced {
            Some(Self::Offline) => Self::Offline,
            Some(Self::Online) | None => requested.or(forced).or(stored).unwrap_or(Self::Offline),
        }
    }

    /// Parses a profile from a request or setting. Ignores case and surrounding space; `air_gapped` means
    /// `offline`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let word = text.trim().to_lowercase();
        Self::parse(if word == "air_gapped" { "offline" } else { &word })
    }
}
