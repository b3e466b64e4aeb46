//! A worker stopped in the middle of a statement (SIGSTOP, a suspended machine) must not block others (core-rules
//! 10).
//!
//! A statement is its own transaction, so a stop before it is sent or after its reply is read leaves nothing behind.
//! The points below are between the two: the server has done its work, and the process never reads the reply.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use longhaul_domain::ExecutionId;
use longhaul_sdk::DefinitionSpec;
use longhaul_store::{Store, StoreOptions};
use longhaul_testkit::model::{reply_calls, reply_text};
use longhaul_testkit::proxy::FaultProxy;
use rustix::process::Signal;
use serde_json::json;

use super::{LOAD_PATIENCE, all_finish, submit_many};
use crate::support::{
    db::TestDb,
    fleet::{Fleet, agent},
    leases::TestWorker,
    process::WorkerProcess,
    wait::{SOON, eventually},
};

/// Statement at which a worker is stopped, while it reads the reply about the execution.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Statement {
    Claim,
    Record,
    Conclude,
    Reap,
    WakeDue,
    FoldCounts,
}

impl Statement {
    const ALL: [Self; 6] = [Self::Claim, Self::Record, Self::Conclude, Self::Reap, Self::WakeDue, Self::FoldCounts];

    /// Words that occur in no other statement.
    fn words(self) -> &'static str {
        match self {
            Self::Claim => "from longhaul_claim(",
            Self::Record => "set lease_write = item.write",
            Self::Conclude => "set status = v.status, wait_reason = v.wait_reason",
            Self::Reap => "then 'crash_loop'",
            Self::WakeDue => "any ($1) and wait_until <= longhaul_now()",
            Self::FoldCounts => "longhaul.fold_counts",
        }
    }
}

/// A fleet that detects dead workers within seconds, a proxy between the worker to be stopped and the database, and
/// the direct URL.
async fn fleet_and_proxy() -> (Fleet, FaultProxy, String) {
    let mut fleet = Fleet::start().await;
    let direct = fleet.db.url.clone();
    let proxy = FaultProxy::before(&direct).await.unwrap();
    fleet.set("DATABASE_URL", &proxy.url_through(&direct).unwrap());
    fleet.set("LONGHAUL__WORKER__LEASE_SECONDS", "2");
    fleet.set("LONGHAUL__WORKER__RENEW_SECONDS", "0.6");
    fleet.apply(&agent("a"), &DefinitionSpec::new("d", "a")).await;
    fleet.llm.answer_with(|_| reply_text("{}"));
    (fleet, proxy, direct)
}

/// An execution that the sweep must wake before it can be claimed.
async fn submit_scheduled(fleet: &Fleet) -> ExecutionId {
    let mut new = fleet.new_execution("d", json!({})).await;
    new.run_at = Some(fleet.store.now().await.unwrap() + chrono::Duration::milliseconds(500));
    fleet.submit_new(new).await
}

/// Waits until no session of a worker is in a transaction, holds a lock that others wait for, or keeps a duty's
/// advisory lock.
async fn nothing_is_held(fleet: &Fleet, at: Statement) {
    eventually("the stopped worker holds nothing", SOON, async || {
        let held = fleet
            .json(
                "select coalesce(jsonb_agg(jsonb_build_object('state', a.state, 'lock', l.locktype, 'query', \
                 left(a.query, 80))), '[]')
                 from pg_stat_activity a
                 left join pg_locks l on l.pid = a.pid and l.locktype in ('tuple', 'transactionid', 'advisory')
                 where a.datname = current_database() and a.application_name = 'longhaul-worker'
                    and (a.xact_start is not null or l.pid is not null)",
            )
            .await;
        if held == json!([]) { Ok(()) } else { Err(format!("{at:?}: {held}")) }
    })
    .await;
}

/// Stops a worker at `at`. Another one, started then, does all the work there is, the sweep's included.
async fn stopped_at(at: Statement) {
    let (mut fleet, proxy, direct) = fleet_and_proxy().await;
    let id = match at {
        Statement::WakeDue => submit_scheduled(&fleet).await,
        Statement::Claim | Statement::Record | Statement::Conclude | Statement::Reap | Statement::FoldCounts => {
            fleet.submit("d", json!({})).await
        }
    };
    if at == Statement::Reap {
        let dead = TestWorker::start(&fleet.store).await;
        assert_eq!(dead.claim_one().await.id, id);
        dead.expire().await;
    }
    if at == Statement::Record {
        // A turn with a call: the last turn is committed with the end of the lease.
        fleet.llm.answer_with(|request| {
            if request.replies() == 0 { reply_calls([("missing", json!({}))]) } else { reply_text("{}") }
        });
    }
    let answer = if at == Statement::FoldCounts { b"INSERT 0 ".to_vec() } else { id.0.as_bytes().to_vec() };
    let mut reply = proxy.hold_reply(at.words(), answer);
    let stopped = WorkerProcess::start(&fleet).await;
    reply.held().await.unwrap();
    stopped.signal(Signal::STOP);
    let stopped_since = Instant::now();
    nothing_is_held(&fleet, at).await;

    fleet.set("DATABASE_URL", &direct);
    let _other = WorkerProcess::start(&fleet).await;
    submit_scheduled(&fleet).await;
    submit_many(&fleet, "d", 10).await;
    all_finish(&fleet, 12).await;
    println!("stopped at {at:?}: another had finished everything {:.1} s later", stopped_since.elapsed().as_secs_f64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_stopped_at_any_statement_leaves_no_lock() {
    stream::iter(Statement::ALL).for_each_concurrent(2, stopped_at).await;
}

/// The only statement whose reply can exceed the buffers between server and client: the server is still in its
/// transaction, and the statement timeout does not count while it waits for room to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_stopped_in_large_reply_keeps_no_lock() {
    /// Executions with 16 MiB of input together, several times what the buffers take.
    const LARGE: usize = 128;
    let (mut fleet, proxy, direct) = fleet_and_proxy().await;
    let mut ids = Vec::new();
    for _ in 0..LARGE {
        ids.push(fleet.submit("d", json!({"text": "x".repeat(128 << 10)})).await);
    }
    let mut reply = proxy.hold_reply(Statement::Claim.words(), ids[0].0.as_bytes().to_vec());
    let stopped = WorkerProcess::start(&fleet).await;
    reply.held().await.unwrap();
    stopped.signal(Signal::STOP);
    let stopped_since = Instant::now();
    eventually("the server waits for the client in the middle of the claim", SOON, async || {
        let waits = fleet
            .json(
                "select coalesce(jsonb_agg(wait_event), '[]') from pg_stat_activity
                 where datname = current_database() and application_name = 'longhaul-worker' and state = 'active'",
            )
            .await;
        if waits == json!(["ClientWrite"]) { Ok(()) } else { Err(waits) }
    })
    .await;

    fleet.set("DATABASE_URL", &direct);
    let _other = WorkerProcess::start(&fleet).await;
    all_finish(&fleet, LARGE).await;
    println!("stopped inside a large answer: all finished {:.1} s later", stopped_since.elapsed().as_secs_f64());
}

#[tokio::test]
async fn sessions_time_out_idle_transactions_and_lock_waits() {
    let db = TestDb::create().await;
    let options = StoreOptions { lock_timeout: Duration::from_millis(300), ..StoreOptions::new(&db.url) };
    let store = Store::open(options).unwrap();
    let set = sqlx::query_scalar::<_, serde_json::Value>(
        "select jsonb_object_agg(name, setting) from pg_settings where name in ('idle_in_transaction_session_timeout',
            'lock_timeout', 'statement_timeout', 'tcp_keepalives_idle', 'tcp_keepalives_interval', \
            'tcp_keepalives_count',
            'tcp_user_timeout')",
    )
    .fetch_one(store.pool())
    .await
    .unwrap();
    let expected = json!({
        "idle_in_transaction_session_timeout": "5000", "lock_timeout": "300", "statement_timeout": "30000",
        "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
        "tcp_user_timeout": "5000",
    });
    assert_eq!(set, expected);

    let mut idle = store.pool().begin().await.unwrap();
    sqlx::query("select from clock for update").execute(&mut *idle).await.unwrap();
    let refused = sqlx::query("update clock set shift = shift").execute(store.pool()).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "55P03", "{refused}");
    // Only the server ends the transaction.
    eventually("the lock of the idle transaction is gone", LOAD_PATIENCE, async || {
        match sqlx::query("update clock set shift = shift").execute(store.pool()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    assert!(sqlx::query("select 1").execute(&mut *idle).await.is_err(), "its session lives");
}
