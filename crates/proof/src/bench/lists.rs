//! The plan and the time of every list filter over many rows of one tenant.

use std::time::Instant;

use longhaul_command::{Context, Exit, output};
use longhaul_domain::{ExecutionStatus, WaitReason};
use longhaul_store::{
    Store,
    executions::list_filter::{Explain, ListFilter},
    tenants::scope::TenantScope,
};
use serde_json::json;

use super::environment::Bare;

#[derive(Debug, clap::Args)]
pub(super) struct ListsArgs {
    /// Rows in `executions`
    #[arg(long, default_value_t = 1_000_000)]
    rows: i32,
    /// Print the full query plans
    #[arg(long)]
    plans: bool,
}

pub(super) async fn run(args: ListsArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let store = Store::open(bare.options.clone())?;
    store.migrate().await?;
    let tenant = store.ensure_tenant("bench", None).await?;
    store.fill_with_executions(tenant.id, args.rows).await?;
    let reach = TenantScope::from(tenant.id);
    let mut found = Vec::new();
    for (name, filter) in filters(&store).await? {
        // Run twice: the first run loads pages from disk that a dashboard in use has in memory.
        store.list_executions(&reach, &filter).await?;
        let started = Instant::now();
        let rows = store.list_executions(&reach, &filter).await?.len();
        let millis = started.elapsed().as_secs_f64() * 1_000.0;
        let plan = store.explain_list(&reach, &filter, Explain::Plan).await?;
        let indexes: Vec<&str> = plan.lines().filter_map(index_of).collect();
        found.push((name, rows, millis, indexes.join(", "), plan.clone()));
    }
    if context.json {
        let lists = found.iter().map(|(name, rows, millis, indexes, plan)| {
            json!({ "filter": name, "rows": rows, "ms": millis, "indexes": indexes, "plan": plan })
        });
        output::json(&lists.collect::<Vec<_>>());
        return Ok(Exit::Done);
    }
    for (name, rows, millis, indexes, plan) in found {
        output::line(format!("{name:<32} {rows:>4} rows {millis:>8.2} ms   {indexes}"));
        if args.plans {
            output::line(&plan);
        }
    }
    Ok(Exit::Done)
}

/// The name of the index on `executions` or `parked` that a line of a plan scans.
fn index_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(" using ").or_else(|| line.split_once("Bitmap Index Scan on "))?;
    let name = rest.split_whitespace().next()?;
    (name.starts_with("executions") || name.starts_with("parked")).then_some(name)
}

async fn filters(store: &Store) -> anyhow::Result<Vec<(&'static str, ListFilter)>> {
    let page = ListFilter { limit: 50, ..ListFilter::default() };
    let now = store.now().await?;
    let status = |status| ListFilter { status: Some(status), ..page.clone() };
    Ok(vec![
        ("no filter", page.clone()),
        ("status=PENDING", status(ExecutionStatus::Pending)),
        ("status=IN_PROGRESS", status(ExecutionStatus::InProgress)),
        ("status=FINISHED", status(ExecutionStatus::Finished)),
        ("status=FAILED", status(ExecutionStatus::Failed)),
        ("failure_code=crash_loop", ListFilter { failure_code: Some("crash_loop".into()), ..page.clone() }),
        ("wait_reason=retry_backoff", ListFilter { wait_reason: Some(WaitReason::RetryBackoff), ..page.clone() }),
        ("wait_reason=worker", ListFilter { wait_reason: Some(WaitReason::Worker), ..page.clone() }),
        ("agent", ListFilter { agent: Some("agent-7".into()), ..page.clone() }),
        ("definition", ListFilter { definition: Some("definition-7".into()), ..page.clone() }),
        (
            "definition and status=FAILED",
            ListFilter {
                definition: Some("definition-7".into()),
                status: Some(ExecutionStatus::Failed),
                ..page.clone()
            },
        ),
        ("metadata.customer", ListFilter { metadata: Some(json!({ "customer": "c70" })), ..page.clone() }),
        ("queue", ListFilter { queue: Some("queue-3".into()), ..page.clone() }),
        (
            "created in one hour, a week ago",
            ListFilter {
                created_after: Some(now - std::time::Duration::from_secs(7 * 86_400)),
                created_before: Some(now - std::time::Duration::from_secs(7 * 86_400 - 3_600)),
                ..page
            },
        ),
    ])
}
