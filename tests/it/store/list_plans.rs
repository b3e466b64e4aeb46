//! Every filter of every list reads in proportion to its page: one row for each, beside twelve thousand rows of the
//! tenant that do not match.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use longhaul_api::openapi;
use longhaul_domain::{
    ExecutionId, ExecutionStatus, ProjectStatus, RequestKind, RequestState, RunStatus, SessionId, TenantId, WaitReason,
};
use longhaul_shared::clock::{Clock, SystemClock};
use longhaul_store::executions::list_filter::{ListFilter, MAX_EXAMINED};
use longhaul_store::fleet::roster::WorkerState;
use longhaul_store::human_requests::RequestFilter;
use longhaul_store::memory::EpisodeFilter;
use longhaul_store::runs::RunFilter;
use longhaul_store::tenants::audit_log::AuditFilter;
use longhaul_store::tenants::scope::TenantScope;
use longhaul_store::webhooks::{DeliveryState, EndpointOf};
use longhaul_store::{Store, StoreError, StoreOptions};
use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::leases::World;
use crate::support::wait::eventually;

const LIMIT: i64 = 51;
/// Most rows of tables and entries of indexes that a list may read: its page, once along the index, once as rows, and
/// once joined.
const MAX_READS: i64 = 200;

/// Every list, and every filter of it, by the path and the parameter of the API.
const LISTS: &[&str] = &[
    "/v1/executions?",
    "/v1/executions?status",
    "/v1/executions?wait_reason",
    "/v1/executions?agent",
    "/v1/executions?definition",
    "/v1/executions?failure_code",
    "/v1/executions?queue",
    "/v1/executions?metadata",
    "/v1/executions?created_after",
    "/v1/executions?created_before",
    "/v1/executions?parent",
    "/v1/executions?root",
    "/v1/approvals?",
    "/v1/approvals?state",
    "/v1/approvals?execution",
    "/v1/approvals?agent",
    "/v1/questions?",
    "/v1/questions?state",
    "/v1/questions?execution",
    "/v1/questions?agent",
    "/v1/projects?",
    "/v1/projects?status",
    "/v1/runs?",
    "/v1/runs?status",
    "/v1/sessions?",
    "/v1/webhooks/{id}/deliveries?",
    "/v1/webhooks/{id}/deliveries?state",
    "/v1/audit?",
    "/v1/audit?actor",
    "/v1/audit?route",
    "/v1/audit?target",
    "/v1/audit?since",
    "/v1/audit?until",
    "/v1/memory?",
    "/v1/memory?agent",
    "/v1/memory?scope",
    "/v1/memory?session",
    "/v1/quarantine?",
    "/v1/quarantine?state",
    "/v1/workers?",
    "/v1/workers?state",
    "/v1/agents?",
    "/v1/definitions?",
    "/v1/skills?",
];

/// A table that cannot have many rows of a tenant, or a list along its key that has no filter.
const WITHOUT_FILTER: &[&str] = &[
    "/v1/accounts",
    "/v1/executions/{id}/artifacts",
    "/v1/executions/{id}/attempts",
    "/v1/executions/{id}/ledger",
    "/v1/executions/{id}/steps",
    "/v1/indexes",
    "/v1/indexes/{name}/documents",
    "/v1/keys",
    "/v1/limits",
    "/v1/projects/{id}/events",
    "/v1/projects/{id}/tasks",
    "/v1/runs/{key}/calls",
    "/v1/schedules",
    // `next_fire_at`: no list.
    "/v1/schedules/{key}",
    "/v1/schedules/{key}/firings",
    "/v1/sessions/{id}/messages",
    "/v1/webhooks",
    "/v1/workers/{id}/executions",
    "/v1/workers/{id}/executions/{execution}/journal",
];

/// Parameters of a page and of the tenant.
const OF_PAGES: [&str; 7] = ["limit", "cursor", "before", "after", "org_id", "group_id", "all_tenants"];

#[test]
fn every_filter_of_the_api_is_measured() {
    let document = serde_json::to_value(openapi()).unwrap();
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let get = &item["get"];
        let schema = get["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].as_str();
        let Some(name) = schema.and_then(|reference| reference.rsplit('/').next()) else { continue };
        let fields = document["components"]["schemas"][name]["properties"].as_object();
        if !fields.is_some_and(|fields| fields.keys().any(|field| field.starts_with("next_"))) {
            continue;
        }
        let parameters = get["parameters"].as_array().cloned().unwrap_or_default();
        // A list of what one object has.
        if WITHOUT_FILTER.contains(&path.as_str()) {
            continue;
        }
        let query = parameters.iter().filter(|parameter| parameter["in"] == "query");
        let names = query.filter_map(|parameter| parameter["name"].as_str()).filter(|name| !OF_PAGES.contains(name));
        described.insert(format!("{path}?"));
        described.extend(names.map(|name| format!("{path}?{name}")));
    }
    // `metadata.<key>` has no name of its own.
    described.insert("/v1/executions?metadata".to_owned());
    assert_eq!(described, LISTS.iter().map(|list| (*list).to_owned()).collect());
}

/// Executions of the tenant that no filter below selects.
const EXECUTIONS: &str = r#"
    insert into executions (id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id,
        queue, serve_key, priority, metadata, created_at, deadline_at, active_timeout, status, started_at, finished_at)
    select id, tenant, 'invoice', gen_random_uuid(), 'clerk', gen_random_uuid(), 'default', '', 5,
        jsonb_build_object('customer', (n / 100)::text), at, at, '1 hour', 'FINISHED', at, at
    from old;
    analyze executions;
"#;

/// The same of other tables, and versions of another tenant.
const OTHER_ROWS: &str = r#"
    insert into human_requests (id, execution_id, tenant_id, agent_key, kind, call_key, round, call_id, tool, arguments,
        shown, hash, allow_self, requested_at, expires_at, state, decided_at)
    select id, id, tenant, 'clerk', 'approval', sha256('a'), 0, 'call', 'pay', '\x007b7d', '{}', sha256('a'), false, at,
        at,
        'expired', at
    from old;
    insert into projects (id, tenant_id, name, goal, agent_key, execution_strategy, max_parallel_tasks, needs_approval,
        queue, metadata, created_at, status, finished_at)
    select id, tenant, 'p', 'g', 'clerk', 'dag', 1, false, 'default', '{}', at, 'completed', at from old;
    insert into sessions (id, tenant_id, agent_key, agent_version, on_busy, metadata, created_at, active_at)
    select id, tenant, 'clerk', 1, 'reject', '{}', at, at from old;
    insert into runs (id, tenant_id, key, status, created_at, opened_at, deadline_at, ended_at)
    select id, tenant, n::text, 'finished', at, at, at, at from old;
    insert into webhook_endpoints (id, tenant_id, url, types, created_at)
    select '00000000-0000-0000-0000-000000000001', tenant, 'https://example.com', '{}', at from old where n = 1;
    insert into webhook_deliveries (id, endpoint_id, type, occurred_at, expires_at, delivered_at)
    select id, '00000000-0000-0000-0000-000000000001', 'execution.finished', at, at, at from old;
    insert into audit_log (id, at, tenant_id, actor_kind, actor_id, actor_name, method, route, target, request_id)
    select id, at, tenant, 'key', '00000000-0000-0000-0000-000000000002', 'ci', 'PUT', '/v1/agents/{key}', 'clerk', 'r'
    from old;
    insert into memory_episodes (id, tenant_id, agent_key, scope, execution_id, session_id, call_key, exchange, content,
        hash, created_at, updated_at)
    select id, tenant, 'clerk', 'user', id, gen_random_uuid(), '', 1, 'said', '', at, at from old;
    insert into quarantine (execution_id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id,
        queue, quarantined_at, deadline_at, is_child, deaths, phase, released_as, released_at)
    select id, tenant, 'invoice', gen_random_uuid(), 'clerk', gen_random_uuid(), 'default', at, at, false, '[]',
        'a turn', gen_random_uuid(), at
    from old;
    insert into tenants (id, org_id, created_at) values ('00000000-0000-0000-0000-000000000003', 'other', now());
    insert into agent_versions (id, tenant_id, key, version, spec_hash, spec, created_at)
    select id, '00000000-0000-0000-0000-000000000003', 'key-' || n, 1, '', '{}', at from old;
    insert into definition_versions (id, tenant_id, key, version, agent_key, spec_hash, spec, created_at)
    select id, '00000000-0000-0000-0000-000000000003', 'key-' || n, 1, 'clerk', '', '{}', at from old;
    insert into skill_versions (id, tenant_id, name, version, content_hash, description, created_at)
    select id, '00000000-0000-0000-0000-000000000003', 'key-' || n, 1, '', '', at from old;
    analyze;
"#;

async fn fill(world: &World, statements: &'static [&'static str]) {
    let mut connection = world.pool().acquire().await.unwrap();
    // Older than a day, in the order of their numbers.
    sqlx::query(
        "create temporary table old as
         select n, $1::uuid as tenant, at, longhaul_uuid_floor(at) as id
         from generate_series(1, 12000) n, lateral (select now() - interval '1 day' + n * interval '1 ms' as at) t",
    )
    .bind(world.tenant.0)
    .execute(&mut *connection)
    .await
    .unwrap();
    for statement in statements {
        sqlx::raw_sql(*statement).execute(&mut *connection).await.unwrap();
    }
}

fn nobody() -> Option<String> {
    Some("nobody".to_owned())
}

/// A filter of executions that selects nothing, if there is one.
fn of_executions(filter: &str) -> ListFilter {
    let base = ListFilter { limit: LIMIT, ..ListFilter::default() };
    match filter {
        "status" => ListFilter { status: Some(ExecutionStatus::Failed), ..base },
        "wait_reason" => ListFilter { wait_reason: Some(WaitReason::Worker), ..base },
        "agent" => ListFilter { agent: nobody(), ..base },
        "definition" => ListFilter { definition: nobody(), ..base },
        "failure_code" => ListFilter { failure_code: nobody(), ..base },
        "queue" => ListFilter { queue: nobody(), ..base },
        "metadata" => ListFilter { metadata: Some(json!({"customer": "nobody"})), ..base },
        "created_after" => ListFilter { created_after: Some(SystemClock::new().now()), ..base },
        "created_before" => ListFilter { created_before: Some(DateTime::UNIX_EPOCH), ..base },
        "parent" => ListFilter { parent: Some(ExecutionId(Uuid::nil())), ..base },
        "root" => ListFilter { root: Some(ExecutionId(Uuid::nil())), ..base },
        _ => base,
    }
}

fn of_requests(kind: RequestKind, filter: &str) -> RequestFilter {
    let base = RequestFilter { kind, state: None, execution_id: None, agent: None, before: None, limit: LIMIT };
    match filter {
        "state" => RequestFilter { state: Some(RequestState::Rejected), ..base },
        "execution" => RequestFilter { execution_id: Some(ExecutionId(Uuid::nil())), ..base },
        "agent" => RequestFilter { agent: nobody(), ..base },
        _ => base,
    }
}

fn of_runs(filter: &str) -> RunFilter {
    RunFilter { status: (filter == "status").then_some(RunStatus::Failed), before: None, limit: LIMIT }
}

fn of_audit(filter: &str) -> AuditFilter {
    let base = AuditFilter { limit: LIMIT, ..AuditFilter::default() };
    match filter {
        "actor" => AuditFilter { actor: Some(Uuid::nil()), ..base },
        "route" => AuditFilter { route: nobody(), ..base },
        "target" => AuditFilter { target: nobody(), ..base },
        "since" => AuditFilter { since: Some(SystemClock::new().now()), ..base },
        "until" => AuditFilter { until: Some(SystemClock::new().now() - TimeDelta::days(9)), ..base },
        _ => base,
    }
}

fn of_memory(filter: &str) -> EpisodeFilter {
    match filter {
        "agent" => EpisodeFilter { agent: nobody(), ..EpisodeFilter::default() },
        "scope" => EpisodeFilter { scope: nobody(), ..EpisodeFilter::default() },
        "session" => EpisodeFilter { session: Some(SessionId(Uuid::nil())), ..EpisodeFilter::default() },
        _ => EpisodeFilter::default(),
    }
}

/// Lists by the filter of that name; returns the rows of its page.
async fn list(store: &Store, tenant: TenantId, name: &str) -> Result<usize, StoreError> {
    let reach = &TenantScope::from(tenant);
    let (path, filter) = name.split_once('?').unwrap();
    let is_filtered = !filter.is_empty();
    Ok(match path {
        "/v1/executions" => store.list_executions(reach, &of_executions(filter)).await?.len(),
        "/v1/approvals" => store.list_requests(reach, &of_requests(RequestKind::Approval, filter)).await?.len(),
        "/v1/questions" => store.list_requests(reach, &of_requests(RequestKind::Question, filter)).await?.len(),
        "/v1/projects" => {
            store.list_projects(reach, is_filtered.then_some(ProjectStatus::Failed), None, LIMIT).await?.len()
        }
        "/v1/runs" => store.list_runs(reach, &of_runs(filter)).await?.len(),
        "/v1/sessions" => store.list_sessions(reach, None, None, LIMIT).await?.len(),
        "/v1/webhooks/{id}/deliveries" => {
            let of = EndpointOf { tenant, id: Uuid::from_u128(1) };
            store.webhook_deliveries(of, is_filtered.then_some(DeliveryState::Failed), None, LIMIT).await?.len()
        }
        "/v1/audit" => store.list_audit(reach, &of_audit(filter)).await?.len(),
        "/v1/memory" => store.list_episodes(reach, &of_memory(filter), LIMIT).await?.len(),
        "/v1/quarantine" => store.list_quarantined(reach, is_filtered, None, LIMIT).await?.len(),
        "/v1/agents" => store.list_agents(Some(tenant), "", LIMIT).await?.len(),
        "/v1/definitions" => store.list_definitions(Some(tenant), "", LIMIT).await?.len(),
        "/v1/skills" => store.list_skills(Some(tenant), "", LIMIT).await?.len(),
        "/v1/workers" => store.list_workers(is_filtered.then_some(WorkerState::Dead), None, LIMIT).await?.len(),
        _ => panic!("{path} is not measured"),
    })
}

/// Rows of tables and entries of indexes that were read in this database so far. Waits until every other session has
/// ended, because a session reports its statistics at its end.
async fn reads(pool: &PgPool) -> i64 {
    eventually("the sessions have ended", Duration::from_secs(60), async || {
        let open = "select count(*) from pg_stat_activity
            where application_name = 'longhaul' and datname = current_database()";
        let open: i64 = sqlx::query_scalar(open).fetch_one(pool).await.unwrap();
        if open == 0 { Ok(()) } else { Err(open) }
    })
    .await;
    let all = "select ((select sum(seq_tup_read) from pg_stat_user_tables)
        + (select sum(idx_tup_read) from pg_stat_user_indexes))::bigint";
    sqlx::query_scalar(all).fetch_one(pool).await.unwrap()
}

/// Reads of one list in sessions of its own.
async fn reads_of(world: &World, call: impl AsyncFn(&Store) -> usize) -> (usize, i64) {
    let before = reads(world.pool()).await;
    let store = Store::open(StoreOptions::new(world.db.url.clone())).unwrap();
    let rows = call(&store).await;
    store.close().await;
    (rows, reads(world.pool()).await - before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_list_filter_reads_no_more_than_its_page() {
    let world = World::create().await;
    fill(&world, &[EXECUTIONS, OTHER_ROWS]).await;
    world.store.close().await;
    let mut over = Vec::new();
    for name in LISTS {
        let (rows, reads) = reads_of(&world, async |store| list(store, world.tenant, name).await.unwrap()).await;
        if reads > MAX_READS {
            over.push(format!("{name}: {reads} read for {rows} rows"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}

/// Conditions beside the one that an index answers: a request examines a bounded number of rows, and the list goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn combined_filters_examine_a_bounded_number() {
    let world = World::create().await;
    fill(&world, &[EXECUTIONS]).await;
    world.store.close().await;
    let reach = TenantScope::from(world.tenant);
    let filter =
        ListFilter { agent: Some("clerk".into()), queue: Some("nobody".into()), limit: LIMIT, ..ListFilter::default() };
    let (rows, reads) =
        reads_of(&world, async |store| store.list_executions(&reach, &filter).await.unwrap().len()).await;
    assert_eq!(rows, 0);
    assert!(reads <= MAX_EXAMINED + MAX_READS, "{reads} were read");

    // The oldest of all is found, two pages on.
    let store = Store::open(StoreOptions::new(world.db.url.clone())).unwrap();
    sqlx::query("update executions set queue = 'rare' where id = (select min(id::text)::uuid from executions)")
        .execute(world.pool())
        .await
        .unwrap();
    let mut filter = ListFilter { queue: Some("rare".into()), ..filter };
    let mut found = vec![store.list_executions(&reach, &filter).await.unwrap().len()];
    while let Some(last) = store.list_goes_on(&reach, &filter).await.unwrap() {
        filter.before = Some(last);
        found.push(store.list_executions(&reach, &filter).await.unwrap().len());
    }
    assert_eq!(found, [0, 0, 1]);
}

/// The state that a delivery is listed by is the one that it is shown with.
#[tokio::test]
async fn deliveries_are_listed_by_each_state() {
    let world = World::create().await;
    sqlx::raw_sql(
        "insert into webhook_endpoints (id, tenant_id, url, types, created_at)
         select '00000000-0000-0000-0000-000000000001', id, 'https://example.com', '{}', now() from tenants;
         insert into webhook_deliveries (id, endpoint_id, type, occurred_at, expires_at, next_at, delivered_at)
         select gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 'execution.finished', now(), now(), n, d
         from (values (null::timestamptz, null::timestamptz), (null, now()), (now(), null), (now(), now())) \
             as v (n, d)",
    )
    .execute(world.pool())
    .await
    .unwrap();
    let of = EndpointOf { tenant: world.tenant, id: Uuid::from_u128(1) };
    for (state, count) in [(DeliveryState::Failed, 1), (DeliveryState::Delivered, 1), (DeliveryState::Waiting, 2)] {
        let listed = world.store.webhook_deliveries(of, Some(state), None, LIMIT).await.unwrap();
        assert_eq!(listed.iter().filter(|delivery| delivery.state == state).count(), count);
        assert_eq!(listed.len(), count);
    }
}
