//! `GET /v1/executions`: filters, order, cursors, and the index that each filter scans.

use longhaul_domain::{ExecutionId, ExecutionStatus, WaitReason};
use longhaul_sdk::failure::{Failure, FailureCode};
use longhaul_store::executions::list_filter::{AccessPath, Explain, ListFilter};
use longhaul_store::tenants::scope::TenantScope;
use serde_json::json;

use crate::support::api::{TestApi, agent, invoice};
use crate::support::leases::{Conclusion, TestWorker, transient};

async fn ids(api: &TestApi, query: &str) -> Vec<String> {
    let answer = api.acme.get(&format!("/v1/executions{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text);
    let rows = answer.body["executions"].as_array().unwrap();
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// One execution in each state.
struct Variety {
    pending: ExecutionId,
    scheduled: ExecutionId,
    running: ExecutionId,
    backing_off: ExecutionId,
    finished: ExecutionId,
    failed: ExecutionId,
    other: ExecutionId,
}

async fn variety(api: &TestApi) -> Variety {
    api.store.put_shared_agent(&agent("writer")).await.unwrap();
    let other = longhaul_sdk::spec::DefinitionSpec { agent_key: "writer".into(), key: "letter".into(), ..invoice() };
    api.store.put_shared_definition(&other).await.unwrap();
    let worker = TestWorker::start(&api.store).await;
    let (finished, failed) = (api.submit().await, api.submit().await);
    let (running, backing_off) = (api.submit().await, api.submit().await);
    let claims = worker.claim(10).await;
    let claim = |id| claims.iter().find(|claimed| claimed.id == id).unwrap();
    worker.finish(claim(finished)).await.unwrap();
    let failure = Failure::permanent(FailureCode::TOOL_FAILED, "the tool failed");
    worker.end(claim(failed), Conclusion::Fail { failure }).await.unwrap();
    let delay = std::time::Duration::from_secs(10);
    let retry = Conclusion::Retry { failure: transient(), delay, wake_seq: 0 };
    worker.end(claim(backing_off), retry).await.unwrap();
    let at = api.store.now().await.unwrap() + chrono::Duration::hours(1);
    let scheduled = api.submit_with(json!({"run_at": at})).await;
    let pending = api.submit_with(json!({"metadata": {"customer": "7", "kind": "x"}})).await;
    let other = api.submit_with(json!({"definition": "letter", "queue": "slow", "metadata": {"customer": "7"}})).await;
    Variety { pending, scheduled, running, backing_off, finished, failed, other }
}

#[tokio::test]
async fn every_filter_lists_its_matches_newest_first() {
    let api = TestApi::start().await;
    let Variety { pending, scheduled, running, backing_off, finished, failed, other } = variety(&api).await;
    let all = [other, pending, scheduled, backing_off, running, failed, finished];
    let middle =
        api.acme.get(&format!("/v1/executions/{scheduled}")).await.body["created_at"].as_str().unwrap().to_owned();
    let cases: [(String, &[ExecutionId]); 21] = [
        (String::new(), &all),
        ("?status=PENDING".into(), &[other, pending, scheduled]),
        ("?status=IN_PROGRESS".into(), &[backing_off, running]),
        ("?status=FINISHED".into(), &[finished]),
        ("?status=FAILED".into(), &[failed]),
        ("?wait_reason=worker".into(), &[other, pending]),
        ("?wait_reason=scheduled".into(), &[scheduled]),
        ("?wait_reason=retry_backoff".into(), &[backing_off]),
        ("?wait_reason=retry_backoff&status=PENDING".into(), &[]),
        ("?failure_code=tool_failed".into(), &[failed]),
        ("?failure_code=panic".into(), &[]),
        ("?definition=letter".into(), &[other]),
        ("?definition=invoice&status=PENDING".into(), &[pending, scheduled]),
        ("?agent=writer".into(), &[other]),
        ("?agent=clerk&status=FAILED&failure_code=tool_failed".into(), &[failed]),
        ("?queue=slow".into(), &[other]),
        ("?metadata.customer=7".into(), &[other, pending]),
        ("?metadata.customer=7&metadata.kind=x".into(), &[pending]),
        (format!("?created_after={middle}"), &[other, pending, scheduled]),
        (format!("?created_before={middle}"), &[backing_off, running, failed, finished]),
        ("?limit=2".into(), &[other, pending]),
    ];
    for (query, expected) in cases {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(ids(&api, &query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn invalid_filters_are_refused_with_paths() {
    let api = TestApi::start().await;
    let answer = api
        .acme
        .get(
            "/v1/executions?status=done&wait_reason=x&limit=0&cursor=AAAA&created_after=noon&colour=red\
            &queue=a&queue=b",
        )
        .await;
    assert_eq!(answer.error(), (422, "invalid_request"));
    let mut paths = answer.paths();
    paths.sort_unstable();
    let expected = ["colour", "created_after", "cursor", "limit", "queue", "status", "wait_reason"];
    assert_eq!(paths, expected.map(|name| format!("/query/{name}")));
    for nul in ["queue=a%00", "metadata.a=%00", "metadata.%00=a"] {
        assert_eq!(api.acme.get(&format!("/v1/executions?{nul}")).await.error(), (422, "invalid_request"), "{nul}");
    }
}

#[tokio::test]
async fn pages_stay_complete_during_concurrent_inserts() {
    let api = TestApi::start().await;
    let mut expected = Vec::new();
    for _ in 0..25 {
        expected.insert(0, api.submit().await.to_string());
    }
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = api.acme.get(&format!("/v1/executions?limit=4{cursor}")).await;
        let rows = page.body["executions"].as_array().unwrap();
        found.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        api.submit().await;
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, expected);
}

/// Inserts executions of twenty tenants, most of them ended, as in a table in use.
async fn fill(api: &TestApi) {
    for n in 0..20 {
        api.store.ensure_tenant(&format!("tenant-{n}"), None).await.unwrap();
    }
    sqlx::raw_sql(
        r#"
        insert into executions (id, tenant_id, definition_key, definition_version_id, agent_key, agent_version_id,
            queue, serve_key, priority, metadata, created_at, deadline_at, active_timeout, status, wait_reason,
            wait_until, started_at, finished_at, failure_class, failure_code)
        select longhaul_uuid_floor(now() + n * interval '1 millisecond'), t.id, 'definition-' || n % 50,
            gen_random_uuid(), 'agent-' || n % 50, gen_random_uuid(), 'default', '', 5,
            jsonb_build_object('customer', (n / 100)::text),
            longhaul_now(), longhaul_now() + interval '30 days', '1 hour', s.status,
            case when s.status = 'PENDING' then case when n % 2 = 0 then 'worker' else 'scheduled' end end,
            case when s.status = 'PENDING' and n % 2 = 1 then longhaul_now() + interval '1 hour' end,
            case when s.status <> 'PENDING' then longhaul_now() end,
            case when s.status <> 'PENDING' then longhaul_now() end,
            case when s.status = 'FAILED' then 'permanent' end,
            case when s.status = 'FAILED' then case when n % 2 = 0 then 'panic' else 'tool_failed' end end
        from generate_series(1, 40000) n
        join (select id, row_number() over (order by id) as place from tenants) t on t.place = 1 + n % 21
        cross join lateral (
            select (
                case when n % 40 < 2 then 'PENDING' when n % 40 < 4 then 'FAILED' else 'FINISHED' end
            )::execution_status as status
        ) s;
        insert into parked
        select id, tenant_id, wait_reason, wait_until from executions where wait_reason = 'scheduled';
        analyze;
        "#,
    )
    .execute(&api.db.pool)
    .await
    .unwrap();
}

#[tokio::test]
async fn every_access_path_scans_its_index() {
    let api = TestApi::start().await;
    fill(&api).await;
    let base = ListFilter { limit: 50, ..ListFilter::default() };
    let some_id = Some(api.submit().await);
    let trees = [
        (ListFilter { parent: some_id, ..base.clone() }, AccessPath::Children, "executions_children"),
        (ListFilter { root: some_id, ..base.clone() }, AccessPath::Tree, "executions_tree"),
    ];
    let cases = [
        (base.clone(), AccessPath::Tenant, "executions_tenant"),
        (ListFilter { agent: Some("agent-7".into()), ..base.clone() }, AccessPath::Agent, "executions_agent"),
        (ListFilter { queue: Some("zz".into()), ..base.clone() }, AccessPath::Queue, "executions_queue"),
        (
            ListFilter { definition: Some("definition-7".into()), ..base.clone() },
            AccessPath::Definition,
            "executions_definition",
        ),
        (
            ListFilter { metadata: Some(json!({"customer": "7"})), ..base.clone() },
            AccessPath::Metadata,
            "executions_metadata",
        ),
        (ListFilter { status: Some(ExecutionStatus::Pending), ..base.clone() }, AccessPath::Open, "executions_open"),
        (ListFilter { wait_reason: Some(WaitReason::Worker), ..base.clone() }, AccessPath::Open, "executions_open"),
        (ListFilter { wait_reason: Some(WaitReason::Scheduled), ..base.clone() }, AccessPath::Parked, "parked_reason"),
        (ListFilter { status: Some(ExecutionStatus::Failed), ..base.clone() }, AccessPath::Failed, "executions_failed"),
        (
            ListFilter { failure_code: Some("tool_failed".into()), ..base.clone() },
            AccessPath::Failed,
            "executions_failed",
        ),
    ];
    for (filter, path, index) in cases.into_iter().chain(trees) {
        assert_eq!(filter.access_path(), path);
        let plan = api.store.explain_list(&TenantScope::from(api.tenant), &filter, Explain::Plan).await.unwrap();
        assert!(plan.contains(index), "{path:?} does not use {index}:\n{plan}");
        assert!(!plan.contains("Seq Scan on executions"), "{path:?}:\n{plan}");
    }
}

#[tokio::test]
async fn executions_are_listed_by_parent_and_root() {
    let api = TestApi::start().await;
    let worker = TestWorker::start(&api.store).await;
    let root = api.submit().await;
    let held = worker.claim_one().await;
    let children = worker.spawn(&held, 0..2).await;
    let child = worker.claim_one().await;
    let grandchild = worker.spawn(&child, 0..1).await[0];
    let newest_first = [grandchild, children[1], children[0], root].map(|id| id.to_string());
    assert_eq!(ids(&api, &format!("?parent={root}")).await, newest_first[1..3]);
    assert_eq!(ids(&api, &format!("?root={root}")).await, newest_first);
    assert_eq!(ids(&api, &format!("?root={root}&status=IN_PROGRESS")).await.len(), 2);
    assert_eq!(api.acme.get("/v1/executions?parent=x").await.status, 422);
    let shown = api.acme.get(&format!("/v1/executions/{grandchild}")).await.body;
    let place = json!([children[0].to_string(), root.to_string(), 2, 0]);
    assert_eq!(json!([shown["parent_id"], shown["root_id"], shown["depth"], shown["children"]]), place);
    let shown = api.acme.get(&format!("/v1/executions/{root}")).await.body;
    let place = json!([null, root.to_string(), 0, 2]);
    assert_eq!(json!([shown["parent_id"], shown["root_id"], shown["depth"], shown["children"]]), place);
}
