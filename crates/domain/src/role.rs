//! Roles of people, each a set of scopes.

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Role of a person, or of a key at its creation. A person may have several; their scopes are added up.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// Sees everything of its tenant but its keys and its audit log.
    Viewer,
    /// A viewer who submits, cancels and retries, and changes agents, definitions, limits and schedules.
    Operator,
    /// A viewer who decides on approvals.
    Approver,
    /// All of these, and keys, accounts and the audit log of its tenant.
    Admin,
    /// An admin for all tenants and the fleet.
    Superadmin,
}

crate::named!(Role);
