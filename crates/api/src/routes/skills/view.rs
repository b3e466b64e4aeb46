//! A skill as the API shows it.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use longhaul_store::catalogue::skills::SkillVersion;
use serde::Serialize;
use utoipa::ToSchema;

/// One version of a skill, without its texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillView {
    #[schema(example = "expense-policy")]
    name: String,
    /// The tasks that the skill is for.
    description: String,
    version: i32,
    /// True if all tenants share the version.
    shared: bool,
    created_at: DateTime<Utc>,
    removed_at: Option<DateTime<Utc>>,
}

/// One version of a skill.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeSkillView {
    #[serde(flatten)]
    pub(super) skill: SkillView,
    /// Instructions.
    pub(super) body: String,
    /// Further texts by path.
    pub(super) files: BTreeMap<String, String>,
}

/// Newest versions, ordered by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillPage {
    items: Vec<SkillView>,
    /// Value of `?after=` for the next page; null on the last one.
    next_after: Option<String>,
}

impl From<SkillVersion> for SkillView {
    fn from(of: SkillVersion) -> Self {
        let shared = of.tenant_id.is_none();
        let SkillVersion { name, description, version, created_at, removed_at, .. } = of;
        Self { name, description, version, shared, created_at, removed_at }
    }
}

impl SkillPage {
    pub(super) fn of(found: Vec<SkillVersion>, limit: i64) -> Self {
        let items: Vec<SkillView> = found.into_iter().map(SkillView::from).collect();
        let is_full = i64::try_from(items.len()).is_ok_and(|count| count == limit);
        let next_after = items.last().filter(|_| is_full).map(|item| item.name.clone());
        Self { items, next_after }
    }
}
