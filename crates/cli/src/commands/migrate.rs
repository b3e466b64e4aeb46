//! `longhaul migrate`: migrates the schema to this build.

use longhaul_command::{Context, Exit, output};
use longhaul_config::Config;

use crate::compose;

/// Apply the missing migrations and publish the built-in definition
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs DATABASE_URL. Safe to repeat, and to run while older processes work: they run on the newer schema.

Example:
  DATABASE_URL=postgres://longhaul:…@db/longhaul longhaul migrate")]
pub struct MigrateArgs {}

/// # Errors
/// Postgres is unreachable or unsafe, or a migration fails.
pub async fn run(config: Config, context: &Context) -> anyhow::Result<Exit> {
    let store = compose::store(&config, "longhaul-migrate")?;
    store.check_server().await?;
    store.migrate().await?;
    store.put_agent_definition().await?;
    if context.json {
        output::json(&serde_json::json!({"migrated": true}));
    } else {
        output::line("the database is at the schema of this build");
    }
    Ok(Exit::Done)
}
