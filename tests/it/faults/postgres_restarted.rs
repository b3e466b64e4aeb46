//! Postgres restarted under load, and down for longer than the lease.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use longhaul_domain::ExecutionId;
use longhaul_embedded::PrivatePostgres;
use longhaul_store::executions::submit::{NewExecution, Submitted, Submitter};
use longhaul_testkit::proxy::FaultProxy;
use serde_json::json;

use super::{all_finish, asked, count_of, no_call_is_repeated, nothing_ran_twice, several_turns, submit_many, worker};
use crate::support::{
    db::TestDb, fleet::Fleet, process::WorkerProcess, redis::TestRedis, servers::dedicated_postgres, wait::eventually,
};

async fn fleet_on(postgres: &PrivatePostgres) -> Fleet {
    Fleet::on(TestDb::create_on(postgres.url()).await, TestRedis::create().await).await
}

/// Proxies before one server: of the workers, and of the test itself.
pub(super) struct Proxies {
    pub(super) workers: FaultProxy,
    observer: FaultProxy,
}

impl Proxies {
    /// Sends new connections to another server.
    pub(super) fn move_to(&self, server: &PrivatePostgres) {
        for proxy in [&self.workers, &self.observer] {
            proxy.set_upstream(server.address());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_submits_survive_restarts_and_finish() {
    let postgres = dedicated_postgres().await;
    let mut fleet = fleet_on(&postgres).await;
    several_turns(&fleet, 4, Duration::from_millis(100)).await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "100");
    let workers = [worker(&fleet), worker(&fleet)];
    let template = fleet.new_execution("d", json!({"text": "x"})).await;
    // Less patient than an outage, so that some submits fail, as for a caller of the API.
    let submitter = Submitter::spawn(fleet.store.clone(), Duration::from_millis(300));
    let stop = AtomicBool::new(false);
    let ((acknowledged, refused), ()) = tokio::join!(submit_until(&fleet, &submitter, &template, &stop), async {
        asked(&fleet, 100).await;
        postgres.restart().await.unwrap();
        asked(&fleet, 400).await;
        postgres.kill().await.unwrap();
        postgres.start_again().await.unwrap();
        asked(&fleet, 800).await;
        stop.store(true, Ordering::Relaxed);
    });

    // Submits without an answer may be stored or not; all that are stored finish.
    let known: Vec<uuid::Uuid> = acknowledged.iter().map(|id| id.0).collect();
    let stored: i64 = sqlx::query_scalar("select count(*) from executions where id = any($1)")
        .bind(&known)
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    assert_eq!(usize::try_from(stored).unwrap(), acknowledged.len(), "an acknowledged submit is lost");
    let count = count_of(&fleet, "select count(*) from executions").await;
    all_finish(&fleet, count).await;
    assert_eq!(count_of(&fleet, "select count(*) from events where kind = 'finished'").await, count);
    // A claim that committed just before the server went down is lost with its reply. Its executions are released
    // unstarted, the only way for an attempt to end besides FINISHED.
    assert_eq!(
        count_of(&fleet, "select count(*) from attempts where outcome not in ('finished', 'released')").await,
        0,
        "attempts that ended otherwise"
    );
    no_call_is_repeated(&fleet);
    println!(
        "a restart and a crash: {} submits acknowledged, {refused} not; all {count} stored ones finished",
        acknowledged.len()
    );
    for worker in workers {
        worker.drain().await;
    }
}

/// Submits one after the other. Returns the acknowledged ids and the number of refused submits.
async fn submit_until(
    fleet: &Fleet,
    submitter: &Submitter,
    template: &NewExecution,
    stop: &AtomicBool,
) -> (Vec<ExecutionId>, usize) {
    let (mut acknowledged, mut refused) = (Vec::new(), 0);
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        let id = fleet.store.new_execution_id().await.unwrap();
        match submitter.submit(NewExecution { id, ..template.clone() }).await {
            Ok(Submitted::Created(id)) => acknowledged.push(id),
            Ok(other) => panic!("{other:?}"),
            Err(_) => refused += 1,
        }
    }
    (acknowledged, refused)
}

/// Two workers with 300 running executions lose Postgres for longer than the lease of 6 s. No worker is declared
/// dead, and no call is repeated. The result of `outage` is kept to the end.
pub(super) async fn nobody_pays_for<T>(outage: impl AsyncFnOnce(&PrivatePostgres, &Proxies) -> T) {
    let postgres = dedicated_postgres().await;
    let [workers, observer] = [(); 2].map(|()| FaultProxy::to(postgres.address()));
    let proxies = Proxies { workers: workers.await.unwrap(), observer: observer.await.unwrap() };
    let db = TestDb::create_on(&proxies.observer.url_through(postgres.url()).unwrap()).await;
    let mut fleet = Fleet::on(db, TestRedis::create().await).await;
    fleet.set("DATABASE_URL", &proxies.workers.url_through(&fleet.db.url.clone()).unwrap());
    several_turns(&fleet, 6, Duration::from_millis(500)).await;
    let workers = [worker(&fleet), worker(&fleet)];
    submit_many(&fleet, "d", 300).await;
    // All must have begun: a claim under way would be lost with its reply, which another test covers.
    eventually("all ask for their first turn", Duration::from_secs(30), async || {
        let requests = fleet.llm.requests();
        let first = requests.iter().filter(|request| request.replies() == 0);
        let begun: BTreeSet<_> = first.map(|request| &request.idempotency_key).collect();
        if begun.len() == 300 { Ok(()) } else { Err(format!("{} have begun", begun.len())) }
    })
    .await;

    let _kept = outage(&postgres, &proxies).await;

    all_finish(&fleet, 300).await;
    assert_eq!(count_of(&fleet, "select count(*) from events where kind = 'finished'").await, 300, "finished events");
    nothing_ran_twice(&fleet, 300).await;
    assert_eq!(count_of(&fleet, "select count(*) from executions where attempt > 1").await, 0, "attempts given up");
    assert_eq!(count_of(&fleet, "select count(*) from events where kind = 'lease_lost'").await, 0, "reaps");
    assert_eq!(count_of(&fleet, "select count(*) from executions where crash_count > 0").await, 0, "crashes counted");
    assert_eq!(count_of(&fleet, "select count(*) from workers where dead_at is not null").await, 0, "workers buried");
    for worker in workers {
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_beyond_the_lease_reaps_no_worker() {
    nobody_pays_for(async |postgres, _| {
        postgres.kill().await.unwrap();
        // The outage itself, not a wait for something.
        tokio::time::sleep(Duration::from_secs(8)).await;
        postgres.start_again().await.unwrap();
    })
    .await;
}

/// The server's processes do not notice the pause, and carry out afterwards the statements sent meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hang_beyond_the_lease_reaps_no_worker() {
    nobody_pays_for(async |postgres, _| {
        postgres.pause().await.unwrap();
        // The hang itself, not a wait for something.
        tokio::time::sleep(Duration::from_secs(10)).await;
        postgres.resume().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_killed_in_outage_loses_only_its_executions() {
    let postgres = dedicated_postgres().await;
    let mut fleet = fleet_on(&postgres).await;
    several_turns(&fleet, 6, Duration::from_millis(500)).await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "50");
    let mut doomed = WorkerProcess::start(&fleet).await;
    let survivor = WorkerProcess::start(&fleet).await;
    let (dead, alive) = (doomed.identity(&fleet).await, survivor.identity(&fleet).await);
    submit_many(&fleet, "d", 100).await;
    asked(&fleet, 100).await;

    postgres.kill().await.unwrap();
    doomed.kill();
    // The outage itself, longer than the lease of 6 s.
    tokio::time::sleep(Duration::from_secs(8)).await;
    postgres.start_again().await.unwrap();

    all_finish(&fleet, 100).await;
    eventually("the dead worker is buried", Duration::from_secs(20), || async {
        let buried: Vec<uuid::Uuid> = sqlx::query_scalar("select id from workers where dead_at is not null")
            .fetch_all(&fleet.db.pool)
            .await
            .unwrap();
        if buried == [dead] { Ok(()) } else { Err(format!("buried: {buried:?}; dead is {dead}, alive {alive}")) }
    })
    .await;
    let moved_from: Vec<String> =
        sqlx::query_scalar("select distinct data->>'worker_id' from events where kind = 'lease_lost'")
            .fetch_all(&fleet.db.pool)
            .await
            .unwrap();
    assert_eq!(moved_from, [dead.to_string()]);
}
