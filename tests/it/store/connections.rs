//! Connections of group commits: the last used one is lent first and is not pinged under load.

use std::time::Duration;

use longhaul_store::executions::submit::{NewExecution, Submitter};
use longhaul_store::{Store, StoreError, StoreOptions};
use longhaul_testkit::proxy::FaultProxy;
use serde_json::json;

use crate::faults::{all_finish, several_turns, submit_many};
use crate::support::fleet::Fleet;
use crate::support::leases::World;
use crate::support::wait::{SOON, eventually};

/// A store behind a proxy, with sessions of the application name `lent`.
async fn through_proxy(world: &World) -> (FaultProxy, Store) {
    let proxy = FaultProxy::before(&world.db.url).await.unwrap();
    let options = StoreOptions {
        application_name: "lent".into(),
        ..StoreOptions::new(proxy.url_through(&world.db.url).unwrap())
    };
    (proxy, Store::open(options).unwrap())
}

/// Server process ids of the store's sessions.
async fn sessions(world: &World) -> Vec<i32> {
    sqlx::query_scalar(
        "select pid from pg_stat_activity where application_name = 'lent' and datname = current_database()",
    )
    .fetch_all(world.pool())
    .await
    .unwrap()
}

#[tokio::test]
async fn statement_is_one_round_trip_on_last_used_connection() {
    const SUBMITS: usize = 50;
    let world = World::create().await;
    let (proxy, store) = through_proxy(&world).await;
    let submitter = Submitter::spawn(store, SOON);
    // Opens the connection and prepares the statement.
    submitter.submit(world.new_execution().await).await.unwrap();
    let mut new = Vec::new();
    for _ in 0..SUBMITS {
        new.push(world.new_execution().await);
    }
    let before = (sessions(&world).await, proxy.sent());
    for one in new {
        submitter.submit(one).await.unwrap();
    }
    // A connection idle for over 100 ms is pinged before its use, which happens on a slow machine.
    let asked = proxy.sent() - before.1;
    assert!((SUBMITS..=SUBMITS + SUBMITS / 5).contains(&asked), "{asked} messages for {SUBMITS} statements");
    assert_eq!(sessions(&world).await, before.0);
    assert_eq!(before.0.len(), 1);
}

#[tokio::test]
async fn refusal_keeps_connection_and_broken_one_is_dropped() {
    let world = World::create().await;
    let (proxy, store) = through_proxy(&world).await;
    let submitter = Submitter::spawn(store, Duration::from_secs(20));
    submitter.submit(world.new_execution().await).await.unwrap();
    let first = sessions(&world).await;
    let poison = NewExecution { metadata: json!({"name": "a\u{0}b"}), ..world.new_execution().await };
    let refused = submitter.submit(poison).await;
    assert!(matches!(refused, Err(StoreError::Rejected(_))), "{refused:?}");
    submitter.submit(world.new_execution().await).await.unwrap();
    assert_eq!(sessions(&world).await, first);

    proxy.drop_connections().await;
    submitter.submit(world.new_execution().await).await.unwrap();
    assert!(sessions(&world).await.iter().all(|session| !first.contains(session)));
}

/// Largest number of sessions of an application, sampled every 20 ms until `work` ends.
async fn most_sessions(pool: &sqlx::PgPool, application: &str, work: impl Future<Output = ()>) -> i64 {
    let mut most = 0;
    let mut work = std::pin::pin!(work);
    loop {
        let open: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where application_name = $1 and datname = current_database()",
        )
        .bind(application)
        .fetch_one(pool)
        .await
        .unwrap();
        most = most.max(open);
        tokio::select! {
            () = &mut work => return most,
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_under_load_has_at_most_eight_connections() {
    const EXECUTIONS: usize = 300;
    let fleet = Fleet::start().await;
    several_turns(&fleet, 3, Duration::from_millis(20)).await;
    let worker = crate::faults::worker(&fleet);
    submit_many(&fleet, "d", EXECUTIONS).await;
    let most = most_sessions(&fleet.db.pool, "longhaul-worker", all_finish(&fleet, EXECUTIONS)).await;
    assert!((4..=8).contains(&most), "{most} connections");
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_process_under_load_has_at_most_six_connections() {
    let world = World::create().await;
    let options = StoreOptions { application_name: "lent".into(), ..StoreOptions::new(&world.db.url) };
    let store = Store::open(options).unwrap();
    let submitter = Submitter::spawn(store.clone(), SOON);
    let mut new = Vec::new();
    for _ in 0..500 {
        new.push(world.new_execution().await);
    }
    let load = async {
        let submits = new.into_iter().map(|one| submitter.submit(one));
        let reads = (0..500).map(|_| async { store.ping(SOON).await.unwrap() });
        let (submitted, _) = tokio::join!(futures::future::join_all(submits), futures::future::join_all(reads));
        assert!(submitted.iter().all(Result::is_ok));
    };
    let most = most_sessions(world.pool(), "lent", load).await;
    assert!((2..=6).contains(&most), "{most} connections");
}

/// The host of the server dies while statements run, and their callers give up: the pool must get their places back.
#[tokio::test]
async fn pool_outlives_callers_that_left_a_silent_server() {
    const MOST: u32 = 2;
    let world = World::create().await;
    let proxy = FaultProxy::before(&world.db.url).await.unwrap();
    let store = Store::open(StoreOptions {
        application_name: "lent".into(),
        max_connections: MOST,
        statement_timeout: Duration::from_secs(3),
        ..StoreOptions::new(proxy.url_through(&world.db.url).unwrap())
    })
    .unwrap();
    let callers: Vec<_> = (0..MOST)
        .map(|_| {
            let pool = store.pool().clone();
            tokio::spawn(async move { sqlx::query("select pg_sleep(60)").execute(&pool).await })
        })
        .collect();
    eventually("their statements run", SOON, async || {
        let running: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where application_name = 'lent' and query like '%pg_sleep%'",
        )
        .fetch_one(world.pool())
        .await
        .unwrap();
        if running == i64::from(MOST) { Ok(()) } else { Err(running) }
    })
    .await;
    proxy.strand_connections();
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    eventually("the store reads again", SOON, async || store.ping(SOON).await).await;
}
