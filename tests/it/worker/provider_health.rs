//! A model endpoint that is down, out of quota or at its limits, under whole fleets on the database's clock.
//!
//! The file is long because all its tests share one fleet, whose model server is made to fail.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::TimeDelta;
use longhaul_agent::probe::Point;
use longhaul_config::{LimitConfig, ProviderConfig};
use longhaul_domain::ExecutionId;
use longhaul_sdk::spec::{BudgetSpec, DefinitionSpec, FallbackModel, ModelSpec, OnExhausted};
use longhaul_store::providers::breakers::BreakerRow;
use longhaul_testkit::model::{Gate, ModelServer, ev_gate, reply_status, reply_text};
use longhaul_worker::WorkerBuilder;
use serde_json::{Value, json};

use super::{
    journal::{Holds, quick_fleet},
    kit::definition,
};
use crate::support::{
    db::TestDb,
    fleet::{Fleet, FleetWorker, PATIENCE, agent},
    redis::TestRedis,
    servers::dedicated_redis,
    wait::eventually,
};

/// Time limit for a thousand executions on a busy machine.
const LOAD_PATIENCE: Duration = Duration::from_secs(180);

async fn fleet() -> Fleet {
    let fleet = Fleet::start().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet
}

/// A fleet whose Redis is gone before any worker starts.
async fn fleet_without_redis() -> Fleet {
    let redis = dedicated_redis().await;
    let on = TestRedis { url: redis.url().to_owned(), prefix: "health".into() };
    let fleet = Fleet::on(TestDb::create().await, on).await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet
}

async fn submit_many(fleet: &Fleet, count: usize) -> Vec<ExecutionId> {
    let template = fleet.new_execution("d", json!({})).await;
    let submits = (0..count).map(async |_| {
        let mut new = template.clone();
        new.id = fleet.store.new_execution_id().await.unwrap();
        fleet.submit_new(new).await
    });
    futures::future::join_all(submits).await
}

/// Waits until the count of `sql` satisfies `wanted`.
async fn until_count(fleet: &Fleet, what: &str, sql: &'static str, wanted: impl Fn(i64) -> bool) -> i64 {
    eventually(what, LOAD_PATIENCE, || async {
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&fleet.db.pool).await.unwrap();
        if wanted(count) { Ok(count) } else { Err(format!("{count}, {}", standings(fleet).await)) }
    })
    .await
}

async fn standings(fleet: &Fleet) -> Value {
    fleet
        .json(
            "select jsonb_build_object('executions', (select jsonb_object_agg(k, n) from (
                 select status::text || ' ' || coalesce(wait_reason, '') as k, count(*) as n from executions \
                 group by 1) as by_state),
                 'breakers', (select jsonb_agg(b) from provider_breakers b), 'now', longhaul_now())",
        )
        .await
}

const PARKED: &str = "select count(*) from executions where wait_reason = 'provider_down'";
const FAILED: &str = "select count(*) from executions where failure_code = 'model_request_refused'";
const FINISHED: &str = "select count(*) from executions where status = 'FINISHED'";

async fn breaker(fleet: &Fleet) -> BreakerRow {
    let mut rows = fleet.store.list_breakers().await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

/// Spent retries over all executions, and the most attempts of any one.
async fn spent(fleet: &Fleet) -> (i64, i64) {
    let row = fleet
        .json(
            "select jsonb_build_array(
                 coalesce(sum(transient_retries + llm_error_retries + tool_error_retries), 0), \
                 coalesce(max(attempt), 0))
             from executions",
        )
        .await;
    (row[0].as_i64().unwrap(), row[1].as_i64().unwrap())
}

fn quota(seconds: u64) -> longhaul_testkit::model::Reply {
    let error = json!({"error": {"message": "x", "type": "insufficient_quota", "code": "insufficient_quota"}});
    reply_status(429, "").body(error.to_string()).header("retry-after", &seconds.to_string())
}

/// Answers 500 while the switch is on. Returns the switch and the number of these answers.
fn outage(fleet: &Fleet) -> (Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (is_down, failures) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (switch, count) = (is_down.clone(), failures.clone());
    fleet.llm.answer_with(move |_| {
        if switch.load(Ordering::SeqCst) {
            count.fetch_add(1, Ordering::SeqCst);
            return reply_status(500, "the lights are out");
        }
        reply_text("{}")
    });
    (is_down, failures)
}

/// Starts a worker with this limit on the provider under test.
fn worker_with_limit(fleet: &Fleet, limit: LimitConfig) -> FleetWorker {
    let mut config = fleet.config();
    config.llm.providers.get_mut("custom").unwrap().limits = vec![limit];
    fleet.worker_with(|_| WorkerBuilder::new(config))
}

fn any_model() -> LimitConfig {
    LimitConfig { model: "*".into(), requests_per_minute: None, tokens_per_minute: None, max_concurrency: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_minute_outage_spends_no_retry() {
    const EXECUTIONS: usize = 1_000;
    let mut fleet = fleet().await;
    // Two workers of a hundred, whose calls may all fail before the workers learn of the open breaker.
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "100");
    let (is_down, failures) = outage(&fleet);
    submit_many(&fleet, EXECUTIONS).await;
    let workers = [fleet.worker(), fleet.worker()];
    until_count(&fleet, "all are parked", PARKED, |count| count == EXECUTIONS as i64).await;
    let (lost, probes_before) = (failures.load(Ordering::SeqCst), breaker(&fleet).await.probes);
    assert!(lost <= 230, "{lost} calls failed before everybody knew");
    // Ten minutes in steps of ten seconds. After each step, a probe that became due has been asked.
    for _ in 0..60 {
        fleet.advance(Duration::from_secs(10)).await;
        eventually("what is due was probed", PATIENCE, || async {
            let row = breaker(&fleet).await;
            if row.state == "open" { Ok(()) } else { Err(standings(&fleet).await) }
        })
        .await;
    }
    let row = breaker(&fleet).await;
    let probes = row.probes - probes_before;
    // At 10, 30, 70 and 150 s, then every 120 s.
    assert!((6..=9).contains(&probes), "{probes} probes in ten minutes");
    let asked = (failures.load(Ordering::SeqCst) - lost) as i64;
    assert!(asked.abs_diff(probes) <= 1, "{asked} calls for {probes} probes");
    assert_eq!(spent(&fleet).await.0, 0, "retries");
    assert_eq!((row.cause.as_deref(), row.waiting), (Some("outage"), EXECUTIONS as i64));

    is_down.store(false, Ordering::SeqCst);
    fleet.advance(Duration::from_secs(130)).await;
    until_count(&fleet, "all finish", FINISHED, |count| count == EXECUTIONS as i64).await;
    let (retries, attempts) = spent(&fleet).await;
    assert_eq!(retries, 0);
    // One claim for the call that failed, one for the call that did not, and perhaps a probe.
    assert!(attempts <= 4, "{attempts} attempts of one execution");
    let claims = fleet.json("select to_jsonb(sum(attempt)) from executions").await.as_i64().unwrap();
    assert!(claims <= 2 * EXECUTIONS as i64 + 100, "{claims} claims: those that waited were left alone");
    assert_eq!(breaker(&fleet).await.state, "closed");
    for worker in workers {
        worker.drain().await;
    }
}

#[tokio::test]
async fn spent_quota_is_waited_for_until_reset() {
    let fleet = fleet().await;
    fleet.llm.push(quota(5_400));
    fleet.llm.answer_with(|_| reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.until(id, "it waits", |row| row["wait_reason"] == "provider_down").await;
    assert_eq!((&row["status"], &row["retries"], &row["attempts"]), (&json!("IN_PROGRESS"), &json!(0), &json!(1)));
    let shown = fleet
        .json("select to_jsonb(extract(epoch from wait_until - longhaul_now())::float8) from executions")
        .await
        .as_f64()
        .unwrap();
    // Up to the difference of two clocks.
    assert!((5_350.0..5_401.0).contains(&shown), "{shown}");
    assert_eq!(fleet.event_kinds(id).await, ["submitted", "claimed", "provider_down", "parked"]);
    // A later execution waits without a call.
    let later = fleet.submit("d", json!({})).await;
    fleet.until(later, "it waits too", |row| row["wait_reason"] == "provider_down").await;
    fleet.advance(Duration::from_secs(5_340)).await;
    let key = breaker(&fleet).await.key;
    assert!(fleet.store.tend_provider(&key, Duration::from_secs(9)).await.unwrap().is_empty(), "a minute early");
    assert_eq!(fleet.llm.requests().len(), 1);
    fleet.advance(Duration::from_secs(61)).await;
    for id in [id, later] {
        let row = fleet.ended(id).await;
        assert_eq!((&row["status"], &row["retries"]), (&json!("FINISHED"), &json!(0)));
    }
    assert_eq!(fleet.llm.requests().len(), 3);
    worker.drain().await;
}

/// A wrong key fails a handful of executions, not all that its worker can claim.
#[tokio::test]
async fn refused_key_opens_the_breaker() {
    let fleet = fleet().await;
    fleet.llm.answer_with(|_| reply_status(401, "no such key"));
    let worker = fleet.worker();
    submit_many(&fleet, 60).await;
    let moving =
        "select count(*) from executions where finished_at is null and wait_reason is distinct from 'provider_down'";
    until_count(&fleet, "each has failed or waits", moving, |moving| moving == 0).await;
    let failed = until_count(&fleet, "some have failed", FAILED, |failed| failed >= 3).await;
    assert!(failed <= 30, "{failed} of 60 failed");
    assert_eq!(breaker(&fleet).await.failure_code.as_deref(), Some("model_request_refused"));
    // The key is mended at the provider.
    fleet.llm.answer_with(|_| reply_text("{}"));
    fleet.advance(Duration::from_secs(300)).await;
    until_count(&fleet, "the others have finished", FINISHED, |finished| finished == 60 - failed).await;
    worker.drain().await;
}

#[tokio::test]
async fn open_breaker_survives_loss_of_redis() {
    let redis = dedicated_redis().await;
    let on = TestRedis { url: redis.url().to_owned(), prefix: "health".into() };
    let fleet = Fleet::on(TestDb::create().await, on).await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    let (is_down, failures) = outage(&fleet);
    let worker = fleet.worker();
    submit_many(&fleet, 8).await;
    until_count(&fleet, "all are parked", PARKED, |count| count == 8).await;
    let lost = failures.load(Ordering::SeqCst);
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    submit_many(&fleet, 4).await;
    until_count(&fleet, "the new ones wait too", PARKED, |count| count == 12).await;
    // Without Redis, and with a worker that never reached it.
    drop((connection, redis));
    let other = fleet.worker();
    submit_many(&fleet, 4).await;
    until_count(&fleet, "so do the newest", PARKED, |count| count == 16).await;
    assert_eq!(failures.load(Ordering::SeqCst), lost, "nobody asked");
    is_down.store(false, Ordering::SeqCst);
    fleet.advance(Duration::from_secs(11)).await;
    until_count(&fleet, "all finish", FINISHED, |count| count == 16).await;
    assert_eq!(spent(&fleet).await.0, 0);
    worker.drain().await;
    other.drain().await;
}

/// Starts a second endpoint, `spare`, and a worker that knows both.
async fn with_spare(fleet: &Fleet) -> (ModelServer, FleetWorker) {
    let spare = ModelServer::start().await.unwrap();
    spare.answer_with(|_| reply_text("{\"by\": \"spare\"}"));
    let mut config = fleet.config();
    let custom = config.llm.providers["custom"].clone();
    let provider = ProviderConfig { base_url: Some(spare.url()), default_model: Some("second".into()), ..custom };
    config.llm.providers.insert("spare".into(), provider);
    let worker = fleet.worker_with(|_| WorkerBuilder::new(config));
    (spare, worker)
}

/// A worker runs agents of whose providers it has one, and leaves the others to workers that have one.
#[tokio::test]
async fn worker_without_the_provider_leaves_the_run() {
    let fleet = fleet().await;
    let named = |provider: &str| FallbackModel { provider: Some(provider.into()), name: None, accepts: None };
    let model = |fallback| ModelSpec { provider: Some("elsewhere".into()), fallback, ..ModelSpec::default() };
    for (key, fallback) in [("lost", vec![]), ("routed", vec![named("custom")])] {
        let agent = longhaul_sdk::AgentSpec { model: model(fallback), ..agent(key) };
        let of_agent = DefinitionSpec { agent_key: key.into(), ..definition(key, &["is_valid_json"]) };
        fleet.apply(&agent, &of_agent).await;
    }
    fleet.llm.answer_with(|_| reply_text("{}"));
    let worker = fleet.worker();
    let lost = fleet.submit("lost", json!({})).await;
    let routed = fleet.submit("routed", json!({})).await;
    assert_eq!(fleet.ended(routed).await["status"], "FINISHED");
    let row = fleet.row(lost).await;
    assert_eq!((&row["status"], &row["attempts"]), (&json!("PENDING"), &json!(0)));
    let needs = fleet.json("select to_jsonb(serve_key) from executions where definition_key = 'lost'").await;
    assert_eq!(needs, "provider:elsewhere");
    worker.drain().await;
}

#[tokio::test]
async fn bounded_wait_ends_in_a_recorded_fallback() {
    let fleet = Fleet::start().await;
    let fallback = vec![FallbackModel { provider: Some("spare".into()), name: None, accepts: None }];
    let agent = longhaul_sdk::AgentSpec { model: ModelSpec { fallback, ..ModelSpec::default() }, ..agent("a") };
    fleet.apply(&agent, &definition("d", &["is_valid_json"])).await;
    let (spare, worker) = with_spare(&fleet).await;
    // The stated time exceeds the wait before a fallback, so the second execution asks the fallback at once.
    fleet.llm.push(quota(3_600));
    fleet.llm.answer_with(|_| reply_text("{\"by\": \"first\"}"));
    let first = fleet.submit("d", json!({})).await;
    fleet.until(first, "it waits", |row| row["wait_reason"] == "provider_down").await;
    let second = fleet.submit("d", json!({})).await;
    let row = fleet.ended(second).await;
    assert_eq!((&row["status"], &row["output"]), (&json!("FINISHED"), &json!({"by": "spare"})));
    // The execution that met the failure waits as long as configured.
    fleet.advance(Duration::from_secs(31)).await;
    let row = fleet.ended(first).await;
    assert_eq!(
        (&row["status"], &row["output"], &row["retries"]),
        (&json!("FINISHED"), &json!({"by": "spare"}), &json!(0))
    );
    let kinds = fleet.event_kinds(first).await;
    assert_eq!(
        kinds,
        ["submitted", "claimed", "provider_down", "parked", "woken", "claimed", "fallback", "turn", "finished"]
    );
    let name: String = sqlx::query_scalar("select name from steps where execution_id = $1 and kind = 'turn'")
        .bind(first.0)
        .fetch_one(&fleet.db.pool)
        .await
        .unwrap();
    assert_eq!((name.as_str(), fleet.llm.requests().len(), spare.requests().len()), ("second", 1, 2));
    worker.drain().await;
}

#[tokio::test]
async fn without_fallback_run_fails_after_max_wait() {
    for (is_quota, code) in [(true, "model_quota_exhausted"), (false, "provider_down")] {
        let mut fleet = fleet().await;
        fleet.set("LONGHAUL__LLM__HEALTH__MAX_WAIT_SECONDS", "600");
        let (_is_down, _failures) = outage(&fleet);
        let count = if is_quota { 1 } else { 6 };
        if is_quota {
            fleet.llm.push(quota(86_400));
        }
        let worker = fleet.worker();
        let ids = submit_many(&fleet, count).await;
        until_count(&fleet, "they wait", PARKED, |parked| parked == count as i64).await;
        fleet.advance(Duration::from_secs(601)).await;
        for id in ids {
            let row = fleet.ended(id).await;
            assert_eq!(
                json!([row["status"], row["failure_class"], row["failure_code"], row["retries"]]),
                json!(["FAILED", "permanent", code, 0]),
                "{row}"
            );
        }
        worker.drain().await;
    }
}

#[tokio::test]
async fn worker_killed_during_a_probe_frees_it() {
    let fleet = quick_fleet().await;
    fleet.apply(&agent("a"), &definition("d", &["is_valid_json"])).await;
    fleet.llm.push(quota(3_600));
    let gate = Gate::new();
    fleet.llm.push(reply_text("{}").before(ev_gate(&gate)));
    fleet.llm.answer_with(|_| reply_text("{}"));
    let doomed = fleet.worker();
    submit_many(&fleet, 1).await;
    until_count(&fleet, "the first waits", PARKED, |count| count == 1).await;
    submit_many(&fleet, 2).await;
    until_count(&fleet, "all wait", PARKED, |count| count == 3).await;
    fleet.advance(Duration::from_secs(3_601)).await;
    gate.reached().await;
    // One probe and no other call.
    assert_eq!(fleet.llm.requests().len(), 2);
    doomed.kill().await;
    let worker = fleet.worker();
    fleet.advance(Duration::from_secs(60)).await;
    until_count(&fleet, "all finish", FINISHED, |count| count == 3).await;
    assert_eq!(spent(&fleet).await.0, 0);
    gate.open();
    worker.drain().await;
}

#[tokio::test]
async fn cancel_and_deadline_end_a_provider_wait() {
    let fleet = fleet().await;
    fleet.llm.push(quota(80_000));
    let worker = fleet.worker();
    let cancelled = fleet.submit("d", json!({})).await;
    fleet.until(cancelled, "it waits", |row| row["wait_reason"] == "provider_down").await;
    let mut near = fleet.new_execution("d", json!({})).await;
    near.deadline = Duration::from_secs(120);
    let overdue = fleet.submit_new(near).await;
    fleet.until(overdue, "it waits too", |row| row["wait_reason"] == "provider_down").await;
    fleet.store.cancel_execution(fleet.tenant, cancelled).await.unwrap();
    let row = fleet.ended(cancelled).await;
    assert_eq!(row["failure_code"], "cancelled");
    fleet.advance(Duration::from_secs(121)).await;
    let row = fleet.ended(overdue).await;
    assert_eq!(row["failure_code"], "deadline_exceeded");
    assert_eq!(fleet.llm.requests().len(), 1);
    // Their waits leave no rows.
    eventually("the waits are forgotten", PATIENCE, || async {
        let left: i64 =
            sqlx::query_scalar("select count(*) from provider_waits").fetch_one(&fleet.db.pool).await.unwrap();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    worker.drain().await;
}

#[tokio::test]
async fn park_overtaken_by_a_reset_is_runnable() {
    let fleet = fleet().await;
    fleet.llm.push(quota(80_000));
    fleet.llm.answer_with(|_| reply_text("{}"));
    let holds = Holds::default();
    let new = fleet.new_execution("d", json!({})).await;
    holds.plan(new.id, Point::BeforeConclusion, 1);
    let (held, id) = (holds.clone(), new.id);
    let worker = fleet.worker_with(|builder| builder.probe(held.probe()));
    fleet.submit_new(new).await;
    holds.all_held().await;
    // The attempt has decided to park but has not parked when its provider is reset. The next worker continues it.
    let key = breaker(&fleet).await.key;
    let woken = fleet.store.reset_provider(&key).await.unwrap();
    assert_eq!(woken[0].id, id);
    worker.kill().await;
    let worker = fleet.worker();
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    worker.drain().await;
}

/// A provider that takes so many calls at once: the fleet learns the number, keeps to it, and spends no retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_are_learned_from_refusals() {
    const MOST: usize = 6;
    const EXECUTIONS: usize = 120;
    let mut fleet = fleet().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "200");
    let (running, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (server, counter) = (running.clone(), refused.clone());
    fleet.llm.answer_later(move |_| {
        let (server, counter) = (server.clone(), counter.clone());
        async move {
            if server.fetch_add(1, Ordering::SeqCst) >= MOST {
                server.fetch_sub(1, Ordering::SeqCst);
                counter.fetch_add(1, Ordering::SeqCst);
                return reply_status(429, "too many at once");
            }
            // A reply takes time, so that calls overlap.
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.fetch_sub(1, Ordering::SeqCst);
            reply_text("{}")
        }
    });
    let worker = fleet.worker();
    submit_many(&fleet, EXECUTIONS).await;
    until_count(&fleet, "all finish", FINISHED, |count| count == EXECUTIONS as i64).await;
    let refused = refused.load(Ordering::SeqCst);
    // A slow machine learns late; `queue::pace` checks the share on a moved clock.
    assert!(refused < EXECUTIONS, "{refused} calls were refused for {EXECUTIONS} that were answered");
    assert_eq!(spent(&fleet).await.0, 0, "no retry");
    let learned = eventually("the limit is written down", PATIENCE, async || {
        let breaker = breaker(&fleet).await;
        breaker.concurrency.ok_or_else(|| format!("{breaker:?}"))
    });
    assert!((1..=2 * MOST as i32).contains(&learned.await));
    assert_eq!(breaker(&fleet).await.state, "closed", "a refusal is no outage");
    worker.drain().await;
}

/// Two workers with this limit and slow calls: no more calls are in flight than allowed.
async fn calls_at_a_time_hold(fleet: Fleet, limit: LimitConfig, learns: Duration) {
    const TAKES: Duration = Duration::from_millis(100);
    let most = limit.max_concurrency.unwrap() as usize;
    let arrivals: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = arrivals.clone();
    fleet.llm.answer_with(move |_| {
        noted.lock().unwrap().push(Instant::now());
        reply_text("{}").delay(TAKES)
    });
    let workers = [worker_with_limit(&fleet, limit.clone()), worker_with_limit(&fleet, limit)];
    let alive = "select count(*) from workers where dead_at is null";
    until_count(&fleet, "both workers are there", alive, |count| count == 2).await;
    tokio::time::sleep(learns).await;
    submit_many(&fleet, 40).await;
    until_count(&fleet, "all finish", FINISHED, |count| count == 40).await;
    let arrivals = arrivals.lock().unwrap().clone();
    assert_eq!(arrivals.len(), 40);
    for at in &arrivals {
        // A call lasts at least `TAKES`, so those that arrived within it were in flight.
        let running = arrivals.iter().filter(|&&other| (*at - TAKES..=*at).contains(&other)).count();
        assert!(running <= most, "{running} calls at a time");
    }
    for worker in workers {
        worker.drain().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrency_limit_holds_over_the_fleet() {
    let limit = LimitConfig { max_concurrency: Some(3), ..any_model() };
    calls_at_a_time_hold(fleet().await, limit, Duration::ZERO).await;
}

/// Each worker has a share, also while it waits for Postgres to answer about the rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_concurrency_limit_holds_over_the_fleet() {
    // Workers count each other once a second and have shares from then on.
    const LEARNS: Duration = Duration::from_secs(4);
    let limit = LimitConfig { max_concurrency: Some(8), requests_per_minute: Some(1_000), ..any_model() };
    let mut fleet = fleet_without_redis().await;
    // Neither worker can hold all executions.
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "20");
    calls_at_a_time_hold(fleet, limit, LEARNS).await;
}

/// An execution that never makes its call, or is stopped during it, leaves no slot taken.
#[tokio::test]
async fn concurrency_slot_is_freed_by_any_end() {
    let fleet = fleet().await;
    let gates = [Gate::new(), Gate::new()];
    for gate in &gates {
        fleet.llm.push(reply_text("{}").before(ev_gate(gate)));
    }
    fleet.llm.answer_with(|_| reply_text("{}"));
    let worker = worker_with_limit(&fleet, LimitConfig { max_concurrency: Some(1), ..any_model() });
    for (on_exhausted, ends) in [(OnExhausted::Fail, "budget_exhausted"), (OnExhausted::Park, "budget")] {
        let mut poor = fleet.new_execution("d", json!({})).await;
        poor.budget = Some(BudgetSpec { max_tokens: Some(1), on_exhausted, ..BudgetSpec::default() });
        let id = fleet.submit_new(poor).await;
        fleet.until(id, ends, |row| row["failure_code"] == ends || row["wait_reason"] == ends).await;
    }
    // Neither has called the model. The next one has the only slot until it is cancelled during its call.
    let cancelled = fleet.submit("d", json!({})).await;
    gates[0].reached().await;
    fleet.store.cancel_execution(fleet.tenant, cancelled).await.unwrap();
    assert_eq!(fleet.ended(cancelled).await["failure_code"], "cancelled");
    let mut brief = fleet.new_execution("d", json!({})).await;
    brief.active_timeout = Duration::from_secs(2);
    let overdue = fleet.submit_new(brief).await;
    gates[1].reached().await;
    assert_eq!(fleet.ended(overdue).await["failure_code"], "deadline_exceeded");
    let last = fleet.submit("d", json!({})).await;
    assert_eq!(fleet.ended(last).await["status"], "FINISHED");
    worker.drain().await;
}

/// They wait for the end of a call, not for a time: no claim in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_for_a_slot_park_once() {
    let fleet = fleet().await;
    let gate = Gate::new();
    fleet.llm.push(reply_text("{}").before(ev_gate(&gate)));
    fleet.llm.answer_with(|_| reply_text("{}"));
    let _worker = worker_with_limit(&fleet, LimitConfig { max_concurrency: Some(1), ..any_model() });
    let first = fleet.submit("d", json!({})).await;
    gate.reached().await;
    submit_many(&fleet, 20).await;
    let mut later = fleet.new_execution("d", json!({})).await;
    later.run_at = Some(fleet.store.now().await.unwrap() + TimeDelta::seconds(40));
    fleet.submit_new(later).await;
    let far = "select count(*) from executions where wait_reason = 'rate_limit' \
               and wait_until > longhaul_now() + interval '2 minutes'";
    until_count(&fleet, "all others wait", far, |count| count == 20).await;
    // The sweep that wakes the last one has looked at the endpoint too.
    fleet.advance(Duration::from_secs(60)).await;
    until_count(&fleet, "the last one waits", far, |count| count == 21).await;
    let claims = "select count(*) from events where kind = 'claimed'";
    until_count(&fleet, "each was claimed once", claims, |count| count == 22).await;
    gate.open();
    fleet.ended(first).await;
    until_count(&fleet, "all finish", FINISHED, |count| count == 22).await;
}

/// Longer than the lock timeout of a statement and than the wait for a connection.
const HELD_UP: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slowly_counted_failures_spend_no_retry() {
    const EXECUTIONS: usize = 50;
    let mut fleet = fleet().await;
    fleet.set("LONGHAUL__WORKER__CONCURRENCY", "60");
    let (is_down, failures) = outage(&fleet);
    let mut holder = fleet.db.pool.begin().await.unwrap();
    sqlx::query("lock table provider_breakers in exclusive mode").execute(&mut *holder).await.unwrap();
    let worker = fleet.worker();
    submit_many(&fleet, EXECUTIONS).await;
    eventually("all have failed", PATIENCE, || async {
        let failed = failures.load(Ordering::SeqCst);
        if failed == EXECUTIONS { Ok(()) } else { Err(failed) }
    })
    .await;
    // The time itself is tested: a worker that gives up counting does so within it.
    tokio::time::sleep(HELD_UP).await;
    assert_eq!(spent(&fleet).await.0, 0, "{}", standings(&fleet).await);
    holder.commit().await.unwrap();
    until_count(&fleet, "all are parked", PARKED, |count| count == EXECUTIONS as i64).await;
    assert_eq!(spent(&fleet).await.0, 0, "{}", standings(&fleet).await);
    assert_eq!(failures.load(Ordering::SeqCst), EXECUTIONS, "nobody asked again");
    is_down.store(false, Ordering::SeqCst);
    fleet.advance(Duration::from_secs(130)).await;
    until_count(&fleet, "all finish", FINISHED, |count| count == EXECUTIONS as i64).await;
    worker.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_rate_holds_over_two_workers() {
    requests_a_minute_hold(fleet().await, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_request_rate_holds_over_two_workers() {
    requests_a_minute_hold(fleet_without_redis().await, 20).await;
}

/// Checks the request rate with this many executions over two workers.
async fn requests_a_minute_hold(fleet: Fleet, executions: usize) {
    const PER_MINUTE: u32 = 20;
    const JUMP: Duration = Duration::from_secs(10);
    fleet.llm.answer_with(|_| reply_text("{}"));
    let limit = LimitConfig { requests_per_minute: Some(PER_MINUTE), ..any_model() };
    let workers = [worker_with_limit(&fleet, limit.clone()), worker_with_limit(&fleet, limit)];
    submit_many(&fleet, executions).await;
    let parked = "select count(*) from executions where wait_reason = 'rate_limit'";
    until_count(&fleet, "most wait for the rate", parked, |count| count >= executions as i64 - 5).await;
    let now =
        async || fleet.json("select to_jsonb(extract(epoch from longhaul_now())::float8)").await.as_f64().unwrap();
    // Jumps of the database's clock. Each look reads the clock before and after it counts the requests.
    let mut looks = Vec::new();
    loop {
        looks.push((now().await, fleet.llm.requests().len(), now().await));
        let finished: i64 = sqlx::query_scalar(FINISHED).fetch_one(&fleet.db.pool).await.unwrap();
        if finished == executions as i64 {
            break;
        }
        assert!(looks.len() < 60, "{}", standings(&fleet).await);
        fleet.advance(JUMP).await;
        let due = "select count(*) from executions where wait_reason = 'rate_limit' and wait_until <= longhaul_now()
            or wait_reason = 'worker' or worker_id is not null";
        until_count(&fleet, "what is due has been asked", due, |count| count == 0).await;
    }
    // A tenth of a minute's rate may come at once, the rest is spread, so no minute exceeds the rate. Workers read
    // the clock once a second: one that has not seen a jump yet lets a due execution wait until the next.
    for (i, (from, before, _)) in looks.iter().enumerate() {
        for (_, after, to) in &looks[i..] {
            let most = 2.0 + 0.9 * f64::from(PER_MINUTE) * (to - from + JUMP.as_secs_f64()) / 60.0 + 1.0;
            assert!((after - before) as f64 <= most, "{} requests in {} s: {looks:?}", after - before, to - from);
        }
    }
    assert_eq!((spent(&fleet).await.0, fleet.llm.requests().len()), (0, executions));
    let keys: BTreeSet<_> = fleet.llm.calls().into_keys().collect();
    assert_eq!(keys.len(), executions);
    for worker in workers {
        worker.drain().await;
    }
}

fn throttled(seconds: &str) -> longhaul_testkit::model::Reply {
    reply_status(429, "slow down").header("retry-after", seconds)
}

#[tokio::test]
async fn throttled_call_returns_at_stated_time_without_retry() {
    let fleet = fleet().await;
    // Two short waits in memory, and one long wait while parked.
    for seconds in ["0.2", "0", "40"] {
        fleet.llm.push(throttled(seconds));
    }
    fleet.llm.answer_with(|_| reply_text("{}"));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    let row = fleet.until(id, "it waits", |row| row["wait_reason"] == "rate_limit").await;
    assert_eq!((&row["retries"], &row["attempts"], fleet.llm.requests().len()), (&json!(0), &json!(1), 3));
    // A new execution waits without a call.
    let later = fleet.submit("d", json!({})).await;
    fleet.until(later, "it waits too", |row| row["wait_reason"] == "rate_limit").await;
    assert_eq!(fleet.llm.requests().len(), 3);
    fleet.advance(Duration::from_secs(51)).await;
    for id in [id, later] {
        let row = fleet.ended(id).await;
        assert_eq!((&row["status"], &row["retries"]), (&json!("FINISHED"), &json!(0)));
    }
    let keys: BTreeSet<_> = fleet.llm.calls().into_keys().collect();
    assert_eq!(keys.len(), 2, "it is the same call");
    worker.drain().await;
}

#[tokio::test]
async fn throttle_beyond_the_patience_is_a_transient_failure() {
    for replies in [vec!["0", "30", "0", "580"], vec!["900"]] {
        let mut fleet = fleet().await;
        fleet.set("LONGHAUL__LLM__HEALTH__MAX_WAIT_SECONDS", "600");
        replies.iter().for_each(|seconds| fleet.llm.push(throttled(seconds)));
        fleet.llm.answer_with(|_| reply_text("{}"));
        let worker = fleet.worker();
        let id = fleet.submit("d", json!({})).await;
        if replies.len() > 1 {
            // Another attempt continues the wait.
            fleet.until(id, "it waits", |row| row["wait_reason"] == "rate_limit").await;
            fleet.advance(Duration::from_secs(40)).await;
        }
        let row = fleet.until(id, "it backs off", |row| row["wait_reason"] == "retry_backoff").await;
        assert_eq!((&row["retries"], fleet.llm.requests().len()), (&json!(1), replies.len()));
        fleet.advance(Duration::from_secs(901)).await;
        assert_eq!(fleet.ended(id).await["status"], "FINISHED");
        worker.drain().await;
    }
}

/// A locked row of a breaker does not delay the commit of an answer.
#[tokio::test]
async fn answer_commits_before_its_breaker_is_updated() {
    let fleet = fleet().await;
    fleet.llm.push(quota(60));
    let gate = Gate::new();
    fleet.llm.push(reply_text("{}").before(ev_gate(&gate)));
    let worker = fleet.worker();
    let id = fleet.submit("d", json!({})).await;
    fleet.until(id, "it waits", |row| row["wait_reason"] == "provider_down").await;
    fleet.advance(Duration::from_secs(61)).await;
    gate.reached().await;
    let mut holder = fleet.db.pool.begin().await.unwrap();
    sqlx::query("select from provider_breakers for update").execute(&mut *holder).await.unwrap();
    gate.open();
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    // The report to the breaker still waits for the lock.
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
        and query like '%longhaul_provider_answered%'";
    until_count(&fleet, "the breaker is being told", waits, |count| count == 1).await;
    holder.commit().await.unwrap();
    let closed = "select count(*) from provider_breakers where state = 'closed'";
    until_count(&fleet, "it is told", closed, |count| count == 1).await;
    worker.drain().await;
}
