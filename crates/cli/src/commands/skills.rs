//! `longhaul skills`: lists skills.

use longhaul_command::{Context, Exit, output};
use serde_json::json;

use crate::client::Client;

/// List the skills that agents may have
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A skill is a folder with SKILL.md; `longhaul apply` stores it, and an agent names it in `skills`.

Examples:
  longhaul skills
  longhaul apply -f agents/skills/expense-policy")]
pub struct SkillsArgs {}

/// # Errors
/// The API refuses or is unreachable.
pub async fn run(_args: SkillsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let skills = client.all("/v1/skills", &[], "items").await?;
    if context.json {
        output::json(&json!({ "skills": skills }));
        return Ok(Exit::Done);
    }
    if skills.is_empty() {
        output::line("there are no skills");
    }
    for skill in skills {
        let text = |field: &str| skill[field].as_str().unwrap_or_default().to_owned();
        let owner = if skill["shared"] == true { "shared" } else { "own" };
        output::line(format!("{:<32}  v{:<4} {owner:<6}  {}", text("name"), skill["version"], text("description")));
    }
    Ok(Exit::Done)
}
