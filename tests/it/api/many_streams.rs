//! A thousand streams of one process (core-rules 18). With lost connections and hints, each stream still delivers
//! every event of the table; idle streams together cost next to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use longhaul_domain::ExecutionId;
use longhaul_store::executions::claims::Claimed;
use longhaul_store::history::journal::StepKind::Turn;
use reqwest::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

use crate::support::api::{Caller, TestApi};
use crate::support::leases::{TestWorker, step, write};
use crate::support::wait::{eventually, within};

const STREAMS: usize = 1_000;
const EXECUTIONS: usize = 20;
/// For a thousand clients and their server in one debug process on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Number and kind of the events of one stream or of the table.
type Log = Vec<(i32, String)>;

/// Connects, reads some frames, disconnects, and reconnects with the number of the last event until the execution
/// ends.
async fn follow(caller: Caller, id: ExecutionId, seed: usize, at: Arc<AtomicI32>) -> Log {
    let mut log: Log = Vec::new();
    let mut random = seed as u64;
    loop {
        // A linear congruential generator with Knuth's constants: the same sequence in every run.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let hang_up_after = 3 + (random >> 33) % 10;
        let mut request = caller.request(Method::GET, &format!("/v1/executions/{id}/events"));
        request = request.header("accept", "text/event-stream").timeout(PATIENCE);
        if let Some((last, _)) = log.last() {
            request = request.header("last-event-id", last.to_string());
        }
        let mut response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "of stream {seed} after {:?}", log.last());
        let (mut buffer, mut read) = (String::new(), 0);
        while read < hang_up_after {
            let Some((frame, rest)) = buffer.split_once("\n\n") else {
                let chunk = response.chunk().await.unwrap().expect("a stream ends with its execution");
                buffer.push_str(std::str::from_utf8(&chunk).unwrap());
                continue;
            };
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            // A comment only keeps the connection open.
            if let (Some(seq), Some(kind)) = (field("id:"), field("event:")) {
                log.push((seq.parse().unwrap(), kind.to_owned()));
                at.store(log.last().unwrap().0, Ordering::Relaxed);
                read += 1;
                if kind == "finished" {
                    return log;
                }
            }
            buffer = rest.to_owned();
        }
    }
}

/// Raises the limit of open files for the connections.
fn allow_many_files() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum }).unwrap();
}

async fn claimed(api: &TestApi) -> (TestWorker, Vec<Claimed>) {
    for _ in 0..EXECUTIONS {
        api.submit().await;
    }
    let worker = TestWorker::start(&api.store).await;
    let claimed = worker.claim(i32::try_from(EXECUTIONS).unwrap()).await;
    assert_eq!(claimed.len(), EXECUTIONS);
    (worker, claimed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnecting_streams_without_hints_deliver_every_event() {
    const ROUNDS: i32 = 8;
    const STEPS_OF_A_ROUND: i32 = 3;
    allow_many_files();
    let api = TestApi::start().await;
    let (worker, claimed) = claimed(&api).await;
    let ids: Vec<ExecutionId> = claimed.iter().map(|one| one.id).collect();
    let mut clients = JoinSet::new();
    let positions: Vec<Arc<AtomicI32>> = (0..STREAMS).map(|_| Arc::default()).collect();
    for (seed, at) in positions.iter().enumerate() {
        let (caller, id, at) = (api.acme.clone(), ids[seed % EXECUTIONS], at.clone());
        clients.spawn(async move { (id, follow(caller, id, seed, at).await) });
    }
    let all_are_at = async |number: i32| {
        eventually("every stream has told what happened so far", PATIENCE, async || {
            let behind = positions.iter().filter(|at| at.load(Ordering::Relaxed) < number).count();
            if behind == 0 { Ok(()) } else { Err(format!("{behind} are not at event {number}")) }
        })
        .await;
    };
    for round in 0..ROUNDS {
        join_all(claimed.iter().map(|one| async {
            for number in 1..=STEPS_OF_A_ROUND {
                let number = round * STEPS_OF_A_ROUND + number;
                worker.record(write(one, number, vec![step(number, Turn, "said")])).await.unwrap();
            }
        }))
        .await;
        // Every other round gets no hints, so the streams must poll.
        if round % 2 == 0 {
            api.publisher.look(ids.clone());
        }
        all_are_at(2 + (round + 1) * STEPS_OF_A_ROUND).await;
    }
    for one in &claimed {
        worker.finish(one).await.unwrap();
    }
    let table: Vec<(uuid::Uuid, i32, String)> =
        sqlx::query_as("select execution_id, seq, kind from events order by 1, 2")
            .fetch_all(&api.db.pool)
            .await
            .unwrap();
    let told = within("every stream ends", PATIENCE, clients.join_all()).await;
    assert_eq!(told.len(), STREAMS);
    for (id, log) in told {
        let of_it = table.iter().filter(|(execution, _, _)| *execution == id.0);
        let expected: Log = of_it.map(|(_, seq, kind)| (*seq, kind.clone())).collect();
        assert_eq!(expected.len(), usize::try_from(3 + ROUNDS * STEPS_OF_A_ROUND).unwrap());
        assert_eq!(log, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_streams_share_one_query_per_second() {
    /// Several of the one-second polling intervals.
    const WATCHED: Duration = Duration::from_secs(8);
    allow_many_files();
    let api = TestApi::start().await;
    let (_worker, claimed) = claimed(&api).await;
    let positions: Vec<Arc<AtomicI32>> = (0..STREAMS).map(|_| Arc::default()).collect();
    let mut clients = JoinSet::new();
    for (seed, at) in positions.iter().enumerate() {
        let (caller, id, at) = (api.acme.clone(), claimed[seed % EXECUTIONS].id, at.clone());
        clients.spawn(async move { follow(caller, id, seed, at).await });
    }
    eventually("every stream has told what there is", PATIENCE, async || {
        let behind = positions.iter().filter(|at| at.load(Ordering::Relaxed) < 2).count();
        if behind == 0 { Ok(()) } else { Err(format!("{behind} are behind")) }
    })
    .await;

    let before = commits(&api).await;
    let watched_since = Instant::now();
    // The measured interval, not a wait for an event.
    tokio::time::sleep(WATCHED).await;
    let queries = commits(&api).await - before;
    let seconds = watched_since.elapsed().as_secs_f64();
    println!("{STREAMS} idle streams: {queries} queries in {seconds:.1} s");
    // One query per second, plus slack for the measurement, for background work of the database, and for sessions
    // outside the pool that report their earlier commits late. Polling per stream would cost a thousand queries per
    // second.
    assert!((queries as f64) <= 2.0 * seconds + 60.0, "{queries} queries in {seconds:.1} s");
    assert!(queries >= 3, "{queries} queries in {seconds:.1} s: nobody looks after the streams");
}

/// Returns the commits of this test's database; each query is one. A session reports its statistics seconds later
/// unless it is told to, so every connection of the pool is told.
async fn commits(api: &TestApi) -> i64 {
    let mut sessions = Vec::new();
    for _ in 0..api.store.pool().options().get_max_connections() {
        sessions.push(api.store.pool().acquire().await.unwrap());
    }
    for session in &mut sessions {
        sqlx::query("select pg_stat_force_next_flush()").execute(&mut **session).await.unwrap();
    }
    sqlx::query_scalar("select xact_commit from pg_stat_database where datname = current_database()")
        .fetch_one(&mut *sessions[0])
        .await
        .unwrap()
}
