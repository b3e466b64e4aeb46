//! `GET /v1/usage`: figures over a span of time, for whom, and how far back.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use longhaul_domain::TenantId;
use longhaul_store::{
    Store, StoreOptions,
    executions::{
        list_filter::uuid_floor,
        usage::{UsageBounds, UsageSpan, UsageSummary},
    },
    tenants::{api_keys::Scope, scope::TenantScope},
};
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::api::TestApi;
use crate::support::leases::World;
use crate::support::wait::eventually;

/// A model call: kind, attempt, state, model, cost and failure code. Each took 10 tokens of input, 4 of them from a
/// cache, and gave 3.
type Step<'a> = (&'a str, i32, &'a str, &'a str, Option<i64>, Option<&'a str>);

/// An execution that has ended at the time of its submit.
struct Ended<'a> {
    tenant: TenantId,
    agent: &'a str,
    /// Failure code and text; `None` has FINISHED.
    failure: Option<(&'a str, &'a str)>,
    is_copy: bool,
    steps: &'a [Step<'a>],
}

/// A time on the day of these tests.
fn at(clock: &str) -> DateTime<Utc> {
    format!("2026-06-01T{clock}Z").parse().unwrap()
}

impl Ended<'_> {
    fn of(tenant: TenantId, agent: &str) -> Ended<'_> {
        Ended { tenant, agent, failure: None, is_copy: false, steps: &[] }
    }

    /// Stores it as submitted at `clock`. Returns its id.
    async fn store(&self, pool: &PgPool, clock: &str) -> Uuid {
        let random = Uuid::new_v4().as_u128() & 0xffff_ffff;
        let id = Uuid::from_u128(uuid_floor(at(clock)).as_u128() | random);
        sqlx::query(
            "with payload as (
                insert into execution_payloads (execution_id, input, failure_summary) values ($1, '{}', $6)
            )
            insert into executions (id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id,
                queue, serve_key, priority, created_at, deadline_at, active_timeout, status, started_at, finished_at,
                failure_class, failure_code, retry_of, turns)
            values ($1, $2, 'invoice', $1, $3, $1, 'default', '', 5, $4, $4, '1 hour',
                case when $5::text is null then 'FINISHED' else 'FAILED' end::execution_status, $4, $4,
                case when $5 is not null then 'permanent' end, $5, case when $7 then $1 end, $8)",
        )
        .bind(id)
        .bind(self.tenant.0)
        .bind(self.agent)
        .bind(at(clock))
        .bind(self.failure.map(|(code, _)| code))
        .bind(self.failure.map(|(_, text)| text))
        .bind(self.is_copy)
        .bind(i32::try_from(self.steps.len()).unwrap())
        .execute(pool)
        .await
        .unwrap();
        for ((kind, attempt, state, model, cost, failure), seq) in self.steps.iter().zip(1_i32..) {
            sqlx::query(
                "insert into steps (execution_id, seq, attempt, kind, state, key, name, body, cost, failure_code,
                    input_tokens, output_tokens, cached_tokens, started_at)
                values ($1, $2, $3, $4, $5, '', $6, '', $7, $8, 10, 3, 4, $9)",
            )
            .bind(id)
            .bind(seq)
            .bind(attempt)
            .bind(kind)
            .bind(state)
            .bind(model)
            .bind(cost)
            .bind(failure)
            .bind(at(clock))
            .execute(pool)
            .await
            .unwrap();
        }
        id
    }
}

const BIG: Step<'_> = ("turn", 1, "live", "big", Some(2_000_000_000), None);
const SMALL: Step<'_> = ("turn", 1, "live", "small", Some(250_000_000), None);

/// Executions of `acme` and `beta` inside and outside of the hour from 10:00. Returns the newest that failed with
/// `validation_failed`.
async fn hour(api: &TestApi) -> Uuid {
    let pool = &api.db.pool;
    let beta = api.store.ensure_tenant("beta", None).await.unwrap().id;
    let failed = |code, text| Some((code, text));
    let clerk = || Ended::of(api.tenant, "clerk");
    let all: &[Step<'_>] = &[
        BIG,
        SMALL,
        ("compression", 1, "live", "small", Some(500_000_000), None),
        ("aggregation", 1, "spent", "big", None, None),
        ("turn", 1, "live", "big", None, Some("model_unreachable")),
        // None of these is a call of a model by this execution.
        ("turn", 1, "intent", "big", Some(9), None),
        ("call", 1, "live", "big", Some(9), None),
    ];
    clerk().store(pool, "09:59:59.999").await;
    Ended { steps: all, ..clerk() }.store(pool, "10:00:00").await;
    Ended { failure: failed("validation_failed", "older"), ..clerk() }.store(pool, "10:20:00").await;
    let newest = Ended { failure: failed("validation_failed", "newer"), steps: &[SMALL], ..clerk() };
    let newest = newest.store(pool, "10:40:00").await;
    Ended { failure: failed("tool_failed", "the tool"), ..clerk() }.store(pool, "10:50:00").await;
    let copied: &[Step<'_>] = &[("turn", 0, "live", "big", Some(9), None), SMALL];
    let writer = Ended::of(api.tenant, "writer");
    Ended { is_copy: true, steps: copied, ..writer }.store(pool, "10:59:59.999").await;
    Ended { steps: &[BIG], ..clerk() }.store(pool, "11:00:00").await;
    let stranger = Ended { failure: failed("tool_failed", "theirs"), steps: &[BIG], ..Ended::of(beta, "clerk") };
    stranger.store(pool, "10:30:00").await;
    newest
}

const HOUR: &str = "since=2026-06-01T10:00:00Z&until=2026-06-01T11:00:00Z";

/// Sums over calls of 10 tokens of input, 4 of them cached, and 3 of output each.
fn sums(calls: i64, usd: f64, uncosted: i64) -> Value {
    json!({"calls": calls, "input_tokens": 10 * calls, "output_tokens": 3 * calls, "cached_tokens": 4 * calls,
        "cost_usd": usd, "uncosted_calls": uncosted})
}

fn merged(one: Value, other: Value) -> Value {
    let (Value::Object(mut one), Value::Object(other)) = (one, other) else { panic!("no objects") };
    one.extend(other);
    one.into()
}

#[tokio::test]
async fn sums_are_exact_over_an_hour() {
    let api = TestApi::start().await;
    let newest = hour(&api).await;
    let answer = api.acme.get(&format!("/v1/usage?{HOUR}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let usage = &answer.body;
    assert_eq!(usage["is_cut"], false);
    assert_eq!(usage["covered_since"], usage["since"]);
    let numbers = json!({"executions": 5, "finished": 2, "failed": 3});
    assert_eq!(usage["totals"], merged(numbers, sums(7, 3.25, 1)));
    let of = |agent: &str, model: &str, sums| {
        merged(json!({"org_id": "acme", "group_id": null, "agent": agent, "model": model}), sums)
    };
    let spend = json!([
        of("clerk", "big", sums(3, 2.0, 1)),
        of("clerk", "small", sums(3, 1.0, 0)),
        of("writer", "small", sums(1, 0.25, 0))
    ]);
    assert_eq!(usage["spend"], spend);
    let clerk = &usage["agents"][0];
    assert_eq!((&clerk["agent"], &clerk["executions"], &clerk["failed"]), (&json!("clerk"), &json!(4), &json!(3)));
    let often = json!({"code": "validation_failed", "class": "permanent", "executions": 2, "newest_id": newest,
        "summary": "newer"});
    assert_eq!(clerk["failures"][0], often);
    assert_eq!(
        (&clerk["failures"][1]["code"], &clerk["failures"][1]["summary"]),
        (&json!("tool_failed"), &json!("the tool"))
    );
    let writer = json!({"agent": "writer", "executions": 1, "finished": 1, "failed": 0, "failures": []});
    assert_eq!(usage["agents"], json!([clerk, writer]));
}

#[tokio::test]
async fn tenants_are_those_asked_for() {
    let api = TestApi::start().await;
    hour(&api).await;
    let admin = api.caller("operator", &[Scope::Admin, Scope::ExecutionsRead]).await;
    let asked = async |query: &str| admin.get(&format!("/v1/usage?{HOUR}{query}")).await.body;
    assert_eq!(asked("").await["totals"]["executions"], 0);
    let beta = asked("&org_id=beta&group_id=").await;
    assert_eq!((&beta["totals"]["executions"], &beta["totals"]["cost_usd"]), (&json!(1), &json!(2.0)));
    assert_eq!(beta["agents"][0]["failures"][0]["summary"], "theirs");
    let all = asked("&all_tenants=true").await;
    assert_eq!((&all["totals"]["executions"], &all["totals"]["cost_usd"]), (&json!(6), &json!(5.25)));
    let orgs: Vec<&str> = all["spend"].as_array().unwrap().iter().filter_map(|row| row["org_id"].as_str()).collect();
    assert_eq!(orgs.iter().filter(|org| **org == "beta").count(), 1, "{all}");
    assert_eq!(asked("&org_id=unknown").await["spend"], json!([]));
    assert_eq!(api.acme.get("/v1/usage?all_tenants=true").await.error(), (403, "missing_scope"));
}

#[tokio::test]
async fn absent_span_is_the_last_day() {
    let api = TestApi::start().await;
    api.submit().await;
    let now = api.store.now().await.unwrap();
    let until = now + TimeDelta::minutes(1);
    let usage = api.acme.get(&format!("/v1/usage?until={}", until.format("%Y-%m-%dT%H:%M:%SZ"))).await.body;
    assert_eq!(usage["totals"]["executions"], 1, "{usage}");
    let usage = api.acme.get("/v1/usage").await.body;
    let time = |name: &str| -> DateTime<Utc> { usage[name].as_str().unwrap().parse().unwrap() };
    assert_eq!(time("until") - time("since"), TimeDelta::hours(24));
    assert!((now - time("until")).abs() < TimeDelta::minutes(1), "{usage}");
}

#[tokio::test]
async fn bad_spans_are_refused_by_parameter() {
    let api = TestApi::start().await;
    let bad: [(&str, &[&str]); 6] = [
        ("since=noon", &["/query/since"]),
        ("until=2026-06-01", &["/query/until"]),
        ("since=2026-06-01T10:00:00Z&until=2026-06-01T10:00:00Z", &["/query/since"]),
        ("since=2999-01-01T00:00:00Z", &["/query/since"]),
        ("since=2026-02-28T23:59:59Z&until=2026-06-01T00:00:00Z", &["/query/since"]),
        ("span=day&group_id=x", &["/query/group_id", "/query/span"]),
    ];
    for (query, expected) in bad {
        let answer = api.acme.get(&format!("/v1/usage?{query}")).await;
        assert_eq!(answer.error(), (422, "invalid_request"), "{query}");
        assert_eq!(answer.paths(), expected, "{query}");
    }
    let longest = api.acme.get("/v1/usage?since=2026-03-01T00:00:00Z&until=2026-06-01T00:00:00Z").await;
    assert_eq!(longest.status, 200, "{}", longest.text);
}

/// Figures from midnight on, with these bounds.
async fn bounded(world: &World, reach: &TenantScope, executions: i64, calls: i64) -> UsageSummary {
    let span = UsageSpan { since: at("00:00:00"), until: at("23:00:00") };
    world.store.usage(reach, span, UsageBounds { executions, calls }).await.unwrap()
}

#[tokio::test]
async fn cut_span_is_complete_from_the_said_instant() {
    let world = World::create().await;
    let other = world.store.ensure_tenant("other", None).await.unwrap().id;
    let mut stored = Vec::new();
    for n in 0..20 {
        let clock = format!("{:02}:{:02}:00", 10 + n / 10, n % 10);
        let tenant = if n % 4 == 0 { other } else { world.tenant };
        Ended { steps: &[SMALL, SMALL], ..Ended::of(tenant, "clerk") }.store(world.pool(), &clock).await;
        stored.push((at(&clock), tenant));
    }
    let own = TenantScope::Tenants(vec![world.tenant]);
    let both = TenantScope::Tenants(vec![world.tenant, other]);
    for reach in [own, both, TenantScope::Everybody] {
        let is_reached = |tenant: &TenantId| match &reach {
            TenantScope::Tenants(tenants) => tenants.contains(tenant),
            TenantScope::Everybody => true,
        };
        let reached: Vec<_> = stored.iter().filter(|(_, tenant)| is_reached(tenant)).map(|(at, _)| *at).collect();
        let all = i64::try_from(reached.len()).unwrap();
        let whole = bounded(&world, &reach, all, 2 * all).await;
        assert_eq!((whole.covered_since, whole.executions.submitted), (at("00:00:00"), all), "{reach:?}");
        for (executions, calls) in [(7, 1_000), (1_000, 14)] {
            let cut = bounded(&world, &reach, executions, calls).await;
            let held = reached.iter().filter(|at| **at >= cut.covered_since).count() as i64;
            assert_eq!((cut.executions.submitted, cut.total.calls), (held, 2 * held), "{reach:?}: {cut:?}");
            assert!((4..=7).contains(&held) && cut.covered_since > at("10:00:00"), "{reach:?}: {cut:?}");
        }
    }
}

/// Closes a store, and waits until PostgreSQL has ended its sessions.
async fn end_sessions(world: &World, store: &Store) {
    store.close().await;
    let sessions = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'longhaul' and pid <> pg_backend_pid()";
    eventually("the sessions have ended", Duration::from_secs(60), async || {
        let open: i64 = sqlx::query_scalar(sessions).fetch_one(world.pool()).await.unwrap();
        if open == 0 { Ok(()) } else { Err(open) }
    })
    .await;
}

#[tokio::test]
async fn neighbours_of_a_tenant_are_not_read() {
    const OTHERS: i32 = 20_000;
    let world = World::create().await;
    let busy = world.store.ensure_tenant("busy", None).await.unwrap().id;
    world.store.fill_with_executions(busy, OTHERS).await.unwrap();
    let now = world.store.now().await.unwrap();
    // A session reports its statistics at its end: those of the fill must not come after the reset.
    end_sessions(&world, &world.store).await;
    sqlx::query("select pg_stat_reset()").execute(world.pool()).await.unwrap();
    let reader = Store::open(StoreOptions::new(&world.db.url)).unwrap();
    let span = UsageSpan { since: now - TimeDelta::days(30), until: now };
    let bounds = UsageBounds { executions: 50, calls: 1_000 };
    let usage = reader.usage(&world.tenant.into(), span, bounds).await.unwrap();
    assert_eq!((usage.covered_since, usage.executions.submitted), (span.since, 0));
    let usage = reader.usage(&busy.into(), span, bounds).await.unwrap();
    assert!(usage.covered_since > span.since && usage.executions.submitted <= 50, "{usage:?}");
    end_sessions(&world, &reader).await;
    let reads: i64 = sqlx::query_scalar(
        "select (select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables)::bigint
            + (select sum(idx_tup_read) from pg_stat_user_indexes)::bigint",
    )
    .fetch_one(world.pool())
    .await
    .unwrap();
    assert!(reads < 2_000, "{reads} rows and entries were read");
}
