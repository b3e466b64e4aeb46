//! The time that the server takes for screens of the page over many stored executions of one tenant.

use std::time::Instant;

use anyhow::ensure;
use bytes::Bytes;
use longhaul_command::{Context, Exit, output};
use longhaul_store::tenants::api_keys::Scope;
use reqwest::Method;
use serde_json::json;

use super::{
    conditions::conditions,
    environment::{Bare, Caller, EnvironmentOptions},
};

/// Screens that a person looks at all day, with each kind of filter.
const SCREENS: [(&str, &str); 10] = [
    ("overview", "/"),
    ("executions", "/executions"),
    ("by status", "/executions?status=FAILED"),
    ("by failure code", "/executions?failure_code=crash_loop"),
    ("by wait reason", "/executions?wait_reason=retry_backoff"),
    ("by definition and status", "/executions?definition=definition-7&status=FAILED"),
    ("by agent", "/executions?agent=agent-7"),
    ("by metadata", "/executions?metadata.customer=c70"),
    ("by queue", "/executions?queue=queue-3"),
    ("one definition", "/executions?definition=definition-7"),
];
/// Looks at each screen before the measured ones: they load pages from disk that a page in use has in memory.
const WARM: usize = 3;

#[derive(Debug, clap::Args)]
pub(super) struct PageArgs {
    /// Stored executions
    #[arg(long, default_value_t = 1_000_000)]
    rows: i32,
    /// Measured looks at each screen
    #[arg(long, default_value_t = 40)]
    looks: usize,
}

pub(super) async fn run(args: PageArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let mut environment = bare.start_environment(EnvironmentOptions::default()).await?;
    // The stored executions are nothing that a worker could run.
    environment.kill_worker(0).await?;
    let scopes = [Scope::ExecutionsRead, Scope::DefinitionsRead, Scope::Admin];
    let (tenant, caller) = environment.add_tenant("page", &scopes).await?;
    environment.store.fill_with_executions(tenant, args.rows).await?;
    let mut found = Vec::new();
    for (name, path) in SCREENS {
        let mut millis = Vec::new();
        let mut bytes = 0;
        for look in 0..WARM + args.looks {
            let (taken, size) = look_at(&caller, path).await?;
            bytes = size;
            if look >= WARM {
                millis.push(taken);
            }
        }
        millis.sort_by(f64::total_cmp);
        let at = |share: f64| millis.get(((millis.len() as f64 * share) as usize).min(millis.len().saturating_sub(1)));
        found.push((name, bytes, at(0.5).copied().unwrap_or_default(), at(0.95).copied().unwrap_or_default()));
    }
    environment.stop().await?;
    if context.json {
        let screens = found
            .iter()
            .map(|(screen, bytes, p50, p95)| json!({ "screen": screen, "bytes": bytes, "p50_ms": p50, "p95_ms": p95 }));
        output::json(&json!({ "conditions": conditions, "rows": args.rows, "screens": screens.collect::<Vec<_>>() }));
        return Ok(Exit::Done);
    }
    output::line(format!("{} stored executions, {} looks at each screen", args.rows, args.looks));
    for (screen, bytes, p50, p95) in found {
        output::line(format!("{screen:<26} p50 {p50:>7.1} ms   p95 {p95:>7.1} ms   {:>4} kB", bytes / 1_000));
    }
    Ok(Exit::Done)
}

/// Milliseconds until a screen has arrived whole, and its size.
pub(super) async fn look_at(caller: &Caller, path: &str) -> anyhow::Result<(f64, usize)> {
    let started = Instant::now();
    let (status, body) = caller.send(Method::GET, path, Bytes::new()).await?;
    ensure!(status.is_success(), "the page answered {status} to {path}");
    Ok((started.elapsed().as_secs_f64() * 1_000.0, body.len()))
}
