//! `longhaul prune`: removes old executions.

use std::time::Duration;

use longhaul_command::{Context, Exit, output};
use longhaul_config::Config;
use longhaul_store::history::prune::{Pruned, Retention};
use serde_json::json;

use crate::{compose, exit::UsageError};

/// Remove executions that ended long ago, with their history, idle sessions, and old rows of the audit log
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs DATABASE_URL. Whole weeks of history are dropped where nothing in them is needed any more; the rest goes in \
small batches, so
it may run beside everything else, be stopped, and be repeated: from cron, say. Executions that have not ended stay \
with their
history, however old they are. Sessions go by their last message or answer, with the same age. What cannot be handled is
set aside, and the rest goes: the exit code is 1 then. What is removed is gone; --dry-run only counts it.

Examples:
  longhaul prune --older-than 60d --dry-run
  longhaul prune --older-than 13w")]
pub struct PruneArgs {
    /// Keep executions for this time after their end, and sessions after their last message or answer, in days (60d) or
    /// weeks (13w); at least 31d
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Duration,
    /// Keep the audit log for this time, in days or weeks; at least 31d
    #[arg(long, value_name = "AGE", value_parser = age, default_value = "400d")]
    audit_older_than: Duration,
    /// Count the rows to remove, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// # Errors
/// The age is too short, or Postgres is unreachable.
pub async fn run(config: Config, args: PruneArgs, context: &Context) -> anyhow::Result<Exit> {
    let retention =
        Retention::new(args.older_than).map_err(|error| UsageError(format!("--older-than is too short: {error}")))?;
    if args.audit_older_than < Retention::SHORTEST {
        return Err(UsageError("--audit-older-than is too short: the log is kept for at least 31 days".into()).into());
    }
    let store = compose::store(&config, "longhaul-prune")?;
    store.check_server().await?;
    let pruned = if args.dry_run { store.prunable(retention).await? } else { store.prune(retention).await? };
    let Pruned { before, weeks, executions, sessions, set_aside } = pruned;
    let exit = if set_aside == 0 { Exit::Done } else { Exit::Failure };
    let audit = store.prune_audit(args.audit_older_than, args.dry_run).await?;
    if context.json {
        let dry_run = args.dry_run;
        output::json(&json!({
            "dry_run": dry_run, "before": before, "weeks": weeks, "executions": executions, "sessions": sessions,
            "audit_rows": audit, "set_aside": set_aside,
        }));
        return Ok(exit);
    }
    let done = if args.dry_run { "would be removed" } else { "removed" };
    output::line(format!("{done}: {executions} executions that ended before {}", before.format("%F %T UTC")));
    output::line(format!("{done}: {sessions} sessions without a message or answer since"));
    output::line(format!(
        "{done}: {} whole weeks of history{}",
        weeks.len(),
        if weeks.is_empty() { "" } else { ", from" }
    ));
    for week in weeks {
        output::line(format!("  {week}"));
    }
    output::line(format!("{done}: {audit} rows of the audit log"));
    if set_aside > 0 {
        output::line(format!("set aside: {set_aside} items that could not be handled; `longhaul doctor` names them"));
    }
    Ok(exit)
}

fn age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a number of days or weeks, such as 60d or 13w");
    let (number, days) = match (text.strip_suffix('d'), text.strip_suffix('w')) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 7),
        (None, None) => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * days * 24 * 3_600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_days_or_weeks() {
        let day = Duration::from_secs(24 * 3_600);
        assert_eq!(age("60d"), Ok(60 * day));
        assert_eq!(age("13w"), Ok(91 * day));
        for wrong in ["60", "d", "-1d", "1.5w", "60 d", "60h", ""] {
            assert!(age(wrong).unwrap_err().contains("60d or 13w"), "{wrong}");
        }
    }
}
