//! The time that the server takes for screens of the page over many stored executions of one tenant, and the cost of
//! pages that are open while executions are submitted.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;
use futures::StreamExt as _;
use longhaul_command::{Context, Exit, output};
use longhaul_store::tenants::api_keys::Scope;
use reqwest::Method;
use serde_json::json;
use tokio::{task::JoinSet, time::interval};
use tokio_util::task::AbortOnDropHandle;

use super::{
    conditions::conditions,
    environment::{Bare, BenchEnvironment, Caller, DEFINITION, EnvironmentOptions, Used, request},
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
/// Pause between two submits while pages are open, so that each look finds something new.
const SUBMIT_EVERY: Duration = Duration::from_millis(50);
/// Time in which the pages that were opened together come to look at different times.
const SETTLES: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(super) struct PageArgs {
    /// Stored executions
    #[arg(long, default_value_t = 1_000_000)]
    rows: i32,
    /// Measured looks at each screen
    #[arg(long, default_value_t = 40)]
    looks: usize,
    /// Pages that are open at the same time
    #[arg(long, default_value_t = 20)]
    open: usize,
    /// Duration of the measurement with and without open pages, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

pub(super) async fn run(args: PageArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let mut environment = bare.start_environment(EnvironmentOptions::default()).await?;
    // The stored executions are nothing that a worker could run.
    environment.kill_worker(0).await?;
    let scopes = [Scope::ExecutionsRead, Scope::ExecutionsWrite, Scope::DefinitionsRead, Scope::Admin];
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
    let seconds = Duration::from_secs(args.seconds.into());
    let without = beside_submits(&environment, &caller, 0, seconds).await?;
    let with = beside_submits(&environment, &caller, args.open, seconds).await?;
    environment.stop().await?;
    if context.json {
        let screens = found
            .iter()
            .map(|(screen, bytes, p50, p95)| json!({ "screen": screen, "bytes": bytes, "p50_ms": p50, "p95_ms": p95 }));
        output::json(&json!({
            "conditions": conditions, "rows": args.rows, "screens": screens.collect::<Vec<_>>(), "open": args.open,
            "cores_without_open_pages": without.json(), "cores_with_open_pages": with.json(),
        }));
        return Ok(Exit::Done);
    }
    output::line(format!("{} stored executions, {} looks at each screen", args.rows, args.looks));
    for (screen, bytes, p50, p95) in found {
        output::line(format!("{screen:<26} p50 {p50:>7.1} ms   p95 {p95:>7.1} ms   {:>4} kB", bytes / 1_000));
    }
    for (open, Used { api, postgres, .. }) in [(0, without), (args.open, with)] {
        output::line(format!("cores with {open} open pages: API {api:.4}, PostgreSQL {postgres:.4}"));
    }
    Ok(Exit::Done)
}

/// Cores in use while so many pages are followed and executions are submitted, which no worker runs.
async fn beside_submits(
    environment: &BenchEnvironment,
    caller: &Caller,
    open: usize,
    seconds: Duration,
) -> anyhow::Result<Used> {
    let mut followed = JoinSet::new();
    for (_, path) in SCREENS.iter().cycle().take(open) {
        let mut updates = caller.events(path, None, None).await?;
        followed.spawn(async move { while let Some(Ok(_)) = updates.next().await {} });
    }
    let submitter = caller.clone();
    let submits = AbortOnDropHandle::new(tokio::spawn(async move {
        let mut due = interval(SUBMIT_EVERY);
        for number in 0.. {
            due.tick().await;
            submitter.post("/v1/executions", &request(DEFINITION, number)).await?;
        }
        anyhow::Ok(())
    }));
    let used = environment.cores_over(SETTLES, seconds).await;
    ensure!(!submits.is_finished(), "the API refuses submits");
    ensure!(followed.len() == open && followed.try_join_next().is_none(), "a page that was followed ended");
    Ok(used)
}

/// Milliseconds until a screen has arrived whole, and its size.
pub(super) async fn look_at(caller: &Caller, path: &str) -> anyhow::Result<(f64, usize)> {
    let started = Instant::now();
    let (status, body) = caller.send(Method::GET, path, Bytes::new()).await?;
    ensure!(status.is_success(), "the page answered {status} to {path}");
    Ok((started.elapsed().as_secs_f64() * 1_000.0, body.len()))
}
