//! Skills: stored in versions, pinned by versions of agents, loaded by calls of the model.

mod catalogue;
mod loads;

use longhaul_sdk::spec::SkillSpec;
use serde_json::{Value, json};

/// The skill `refunds` with one file.
fn refunds() -> Value {
    json!({
        "name": "refunds", "description": "Rules for refunds.\nUse it for money.",
        "body": "# Refunds\nWithin 30 days.\n",
        "files": {"references/rates.md": "2 % a month"},
    })
}

fn with(mut skill: Value, more: Value) -> Value {
    skill.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    skill
}

fn spec(skill: Value) -> SkillSpec {
    serde_json::from_value(skill).unwrap()
}

/// An agent `a` with these skills.
fn agent_with(skills: &[&str]) -> Value {
    json!({"key": "a", "name": "A", "prompts": {"conversation": "talk"}, "skills": skills})
}
