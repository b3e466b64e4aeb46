//! Scopes, API keys and tenants, for every route.

use longhaul_domain::Role;
use longhaul_store::tenants::{accounts::scopes_of, api_keys::Scope};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::api::{Caller, EVERYDAY, TestApi};

/// Every `/v1` route with the scope it needs; `{id}` is an execution of tenant `acme`.
fn routes() -> Vec<(Method, &'static str, Scope)> {
    use Scope::{
        Admin, ApprovalsDecide, AuditRead, DefinitionsRead, DefinitionsWrite, ExecutionsRead, ExecutionsWrite,
        KeysWrite, WorkersRun,
    };
    vec![
        (Method::POST, "/v1/executions", ExecutionsWrite),
        (Method::POST, "/v1/executions/batch", ExecutionsWrite),
        (Method::GET, "/v1/executions", ExecutionsRead),
        (Method::GET, "/v1/executions/{id}", ExecutionsRead),
        (Method::GET, "/v1/executions/{id}/steps", ExecutionsRead),
        (Method::GET, "/v1/executions/{id}/attempts", ExecutionsRead),
        (Method::GET, "/v1/executions/{id}/ledger", ExecutionsRead),
        (Method::GET, "/v1/executions/{id}/waiting", ExecutionsRead),
        (Method::GET, "/v1/executions/{id}/events", ExecutionsRead),
        (Method::POST, "/v1/executions/{id}/cancel", ExecutionsWrite),
        (Method::DELETE, "/v1/executions/{id}/content", ExecutionsWrite),
        (Method::GET, "/v1/executions/{id}/artifacts", ExecutionsRead),
        (Method::GET, "/v1/executions/{id}/artifacts/{file}", ExecutionsRead),
        (Method::POST, "/v1/executions/{id}/signals", ExecutionsWrite),
        (Method::POST, "/v1/workers", WorkersRun),
        (Method::DELETE, "/v1/workers/{id}", WorkersRun),
        (Method::POST, "/v1/workers/{id}/heartbeat", WorkersRun),
        (Method::POST, "/v1/workers/{id}/claim", WorkersRun),
        (Method::POST, "/v1/workers/{id}/writes", WorkersRun),
        (Method::POST, "/v1/workers/{id}/ends", WorkersRun),
        (Method::POST, "/v1/workers/{id}/executions/{execution}/requests", WorkersRun),
        (Method::POST, "/v1/workers/{id}/executions/{execution}/children", WorkersRun),
        (Method::POST, "/v1/workers/{id}/executions/{execution}/children/wait", WorkersRun),
        (Method::GET, "/v1/workers/{id}/executions/{execution}/journal", WorkersRun),
        (Method::GET, "/v1/workers/{id}/executions/{execution}/signals", WorkersRun),
        (Method::POST, "/v1/files", ExecutionsWrite),
        (Method::GET, "/v1/files/{id}", ExecutionsRead),
        (Method::DELETE, "/v1/files/{id}", ExecutionsWrite),
        (Method::GET, "/v1/files/{id}/content", ExecutionsRead),
        (Method::POST, "/v1/sessions", ExecutionsWrite),
        (Method::GET, "/v1/sessions", ExecutionsRead),
        (Method::GET, "/v1/sessions/{id}", ExecutionsRead),
        (Method::DELETE, "/v1/sessions/{id}", ExecutionsWrite),
        (Method::GET, "/v1/sessions/{id}/messages", ExecutionsRead),
        (Method::POST, "/v1/sessions/{id}/messages", ExecutionsWrite),
        (Method::GET, "/v1/sessions/{id}/events", ExecutionsRead),
        (Method::POST, "/v1/sessions/{id}/budget", ExecutionsWrite),
        (Method::POST, "/v1/sessions/{id}/interrupt", ExecutionsWrite),
        (Method::POST, "/v1/sessions/{id}/end", ExecutionsWrite),
        (Method::POST, "/v1/runs", ExecutionsWrite),
        (Method::GET, "/v1/runs", ExecutionsRead),
        (Method::GET, "/v1/runs/{key}", ExecutionsRead),
        (Method::GET, "/v1/runs/{key}/calls", ExecutionsRead),
        (Method::POST, "/v1/runs/{key}/budget", ExecutionsWrite),
        (Method::POST, "/v1/runs/{key}/end", ExecutionsWrite),
        (Method::POST, "/v1/runs/{key}/cancel", ExecutionsWrite),
        (Method::POST, "/v1/schedules", ExecutionsWrite),
        (Method::GET, "/v1/schedules", ExecutionsRead),
        (Method::GET, "/v1/schedules/{key}", ExecutionsRead),
        (Method::PUT, "/v1/schedules/{key}", ExecutionsWrite),
        (Method::DELETE, "/v1/schedules/{key}", ExecutionsWrite),
        (Method::POST, "/v1/schedules/{key}/pause", ExecutionsWrite),
        (Method::POST, "/v1/schedules/{key}/resume", ExecutionsWrite),
        (Method::POST, "/v1/schedules/{key}/run", ExecutionsWrite),
        (Method::GET, "/v1/schedules/{key}/firings", ExecutionsRead),
        (Method::POST, "/v1/webhooks", ExecutionsWrite),
        (Method::GET, "/v1/webhooks", ExecutionsRead),
        (Method::GET, "/v1/webhooks/{id}", ExecutionsRead),
        (Method::PUT, "/v1/webhooks/{id}", ExecutionsWrite),
        (Method::DELETE, "/v1/webhooks/{id}", ExecutionsWrite),
        (Method::POST, "/v1/webhooks/{id}/rotate", ExecutionsWrite),
        (Method::GET, "/v1/webhooks/{id}/deliveries", ExecutionsRead),
        (Method::POST, "/v1/webhooks/{id}/redeliver", ExecutionsWrite),
        (Method::POST, "/v1/webhooks/{id}/test", ExecutionsWrite),
        (Method::POST, "/v1/projects", ExecutionsWrite),
        (Method::GET, "/v1/projects", ExecutionsRead),
        (Method::GET, "/v1/projects/{id}", ExecutionsRead),
        (Method::DELETE, "/v1/projects/{id}", ExecutionsWrite),
        (Method::GET, "/v1/projects/{id}/plan", ExecutionsRead),
        (Method::PUT, "/v1/projects/{id}/plan", ExecutionsWrite),
        (Method::POST, "/v1/projects/{id}/approve", ApprovalsDecide),
        (Method::POST, "/v1/projects/{id}/pause", ExecutionsWrite),
        (Method::POST, "/v1/projects/{id}/resume", ExecutionsWrite),
        (Method::POST, "/v1/projects/{id}/continue", ApprovalsDecide),
        (Method::POST, "/v1/projects/{id}/cancel", ExecutionsWrite),
        (Method::POST, "/v1/projects/{id}/budget", ExecutionsWrite),
        (Method::GET, "/v1/projects/{id}/tasks", ExecutionsRead),
        (Method::GET, "/v1/projects/{id}/tasks/{key}", ExecutionsRead),
        (Method::POST, "/v1/projects/{id}/tasks/{key}/retry", ExecutionsWrite),
        (Method::GET, "/v1/projects/{id}/events", ExecutionsRead),
        (Method::POST, "/v1/executions/{id}/retry", ExecutionsWrite),
        (Method::POST, "/v1/executions/{id}/fork", ExecutionsWrite),
        (Method::POST, "/v1/executions/{id}/budget", ExecutionsWrite),
        (Method::POST, "/v1/executions/{id}/tool-results", ExecutionsWrite),
        (Method::GET, "/v1/approvals", ExecutionsRead),
        (Method::GET, "/v1/approvals/{id}", ExecutionsRead),
        (Method::POST, "/v1/approvals/{id}/decision", ApprovalsDecide),
        (Method::GET, "/v1/questions", ExecutionsRead),
        (Method::GET, "/v1/questions/{id}", ExecutionsRead),
        (Method::POST, "/v1/questions/{id}/answer", ExecutionsWrite),
        (Method::GET, "/v1/overview", ExecutionsRead),
        (Method::GET, "/v1/usage", ExecutionsRead),
        (Method::GET, "/v1/fleet/demand", Admin),
        (Method::GET, "/v1/fleet/offers", DefinitionsWrite),
        (Method::GET, "/v1/workers", Admin),
        (Method::GET, "/v1/workers/{id}", Admin),
        (Method::POST, "/v1/workers/{id}/drain", Admin),
        (Method::GET, "/v1/providers/health", Admin),
        (Method::POST, "/v1/providers/health/reset", Admin),
        (Method::GET, "/v1/definitions", DefinitionsRead),
        (Method::GET, "/v1/definitions/{key}", DefinitionsRead),
        (Method::PUT, "/v1/definitions/{key}", DefinitionsWrite),
        (Method::DELETE, "/v1/definitions/{key}/versions/{version}", DefinitionsWrite),
        (Method::GET, "/v1/limits", DefinitionsRead),
        (Method::PUT, "/v1/limits/{key}", DefinitionsWrite),
        (Method::DELETE, "/v1/limits/{key}", DefinitionsWrite),
        (Method::GET, "/v1/agents", DefinitionsRead),
        (Method::GET, "/v1/agents/{key}", DefinitionsRead),
        (Method::PUT, "/v1/agents/{key}", DefinitionsWrite),
        (Method::DELETE, "/v1/agents/{key}/versions/{version}", DefinitionsWrite),
        (Method::GET, "/v1/memory", ExecutionsRead),
        (Method::DELETE, "/v1/memory", ExecutionsWrite),
        (Method::POST, "/v1/memory/search", ExecutionsRead),
        (Method::GET, "/v1/memory/{id}", ExecutionsRead),
        (Method::PUT, "/v1/memory/{id}", ExecutionsWrite),
        (Method::DELETE, "/v1/memory/{id}", ExecutionsWrite),
        (Method::GET, "/v1/skills", DefinitionsRead),
        (Method::GET, "/v1/skills/{name}", DefinitionsRead),
        (Method::PUT, "/v1/skills/{name}", DefinitionsWrite),
        (Method::DELETE, "/v1/skills/{name}/versions/{version}", DefinitionsWrite),
        (Method::GET, "/v1/indexes", DefinitionsRead),
        (Method::GET, "/v1/indexes/{name}", DefinitionsRead),
        (Method::DELETE, "/v1/indexes/{name}", DefinitionsWrite),
        (Method::POST, "/v1/indexes/{name}/search", DefinitionsRead),
        (Method::GET, "/v1/indexes/{name}/documents", DefinitionsRead),
        (Method::POST, "/v1/indexes/{name}/documents", DefinitionsWrite),
        (Method::GET, "/v1/indexes/{name}/documents/{id}", DefinitionsRead),
        (Method::DELETE, "/v1/indexes/{name}/documents/{id}", DefinitionsWrite),
        (Method::GET, "/v1/audit", AuditRead),
        (Method::GET, "/v1/accounts", KeysWrite),
        (Method::POST, "/v1/accounts/{id}/disable", KeysWrite),
        (Method::POST, "/v1/accounts/{id}/enable", KeysWrite),
        (Method::GET, "/v1/keys", KeysWrite),
        (Method::POST, "/v1/keys", KeysWrite),
        (Method::POST, "/v1/keys/{id}/rotate", KeysWrite),
        (Method::DELETE, "/v1/keys/{id}", KeysWrite),
        (Method::GET, "/v1/keys/{id}/holdings", KeysWrite),
        (Method::GET, "/v1/quarantine", ExecutionsRead),
        (Method::GET, "/v1/quarantine/{id}", ExecutionsRead),
        (Method::POST, "/v1/quarantine/{id}/release", ExecutionsWrite),
        (Method::GET, "/v1/platform", Admin),
        (Method::PUT, "/v1/platform", Admin),
        (Method::DELETE, "/v1/platform/{kind}/{name}", Admin),
    ]
}

#[tokio::test]
async fn route_table_matches_the_openapi_document() {
    let document = serde_json::to_value(longhaul_api::openapi()).unwrap();
    let mut described: Vec<String> = Vec::new();
    // tests/it/contract/doors.rs tests the contract's routes, which have other keys and error codes.
    let is_of_the_contract = |path: &str| path.starts_with("/v1/internal/") || path.starts_with("/v1/agent-executions");
    // Needs a key of any scope; `whoami_names_key_tenant_and_scopes` tests it.
    // tests/it/wires/refusals.rs tests the wires' routes, which have other errors.
    let is_of_wires = |item: &Value| item.as_object().unwrap().values().all(|of| of["tags"][0] == "wires");
    let is_elsewhere = |path: &str| is_of_the_contract(path) || path == "/v1/whoami";
    for (path, item) in
        document["paths"].as_object().unwrap().iter().filter(|(path, item)| !is_elsewhere(path) && !is_of_wires(item))
    {
        for method in item.as_object().unwrap().keys().filter(|_| path.starts_with("/v1/")) {
            described.push(format!("{} {path}", method.to_uppercase()));
        }
    }
    let mut tested: Vec<String> = routes().iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    described.sort_unstable();
    tested.sort_unstable();
    assert_eq!(tested, described);
}

/// A path whose parameters have the form of its objects' ids; `execution` for those of executions.
fn filled(path: &str, execution: &str) -> String {
    let id = match path {
        path if path.starts_with("/v1/memory") => "ep_0197f3a0000070008000000000000000",
        path if path.starts_with("/v1/sessions") => "sess_0197f3a0000070008000000000000000",
        path if path.starts_with("/v1/projects") => "proj_0197f3a0000070008000000000000000",
        path if path.starts_with("/v1/files") => "file_0197f3a0000070008000000000000000",
        _ => execution,
    };
    path.replace("{id}", id).replace("{key}", "invoice").replace("{version}", "1")
}

#[tokio::test]
async fn every_role_opens_its_routes_only() {
    let api = TestApi::start().await;
    // Of no execution, so that a route that admits the role changes nothing.
    let none = "0197f3a0-0000-7000-8000-000000000000";
    let keeper = api.caller("acme", Scope::ALL).await;
    for role in Role::ALL {
        let made = keeper.post("/v1/keys", &json!({"name": role.as_str(), "roles": [role.as_str()]})).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let caller = Caller { key: made.body["key"].as_str().map(str::to_owned), ..api.nobody() };
        for (method, path, needs) in routes() {
            let body = (method != Method::GET).then(|| "{}".to_owned());
            let answer = caller.send(method.clone(), &filled(path, none), body, &[]).await;
            let is_refused = answer.code() == "missing_scope";
            assert_eq!(
                is_refused,
                !scopes_of(&[*role], &[]).contains(&needs),
                "{role} {method} {path}: {}",
                answer.text
            );
            assert_ne!(answer.status, 401, "{role} {method} {path}");
        }
    }
}

#[tokio::test]
async fn every_route_requires_a_key_with_its_scope() {
    let api = TestApi::start().await;
    let id = api.submit().await.to_string();
    let nobody = api.nobody();
    let mut stranger = api.nobody();
    stranger.key = Some(format!("lh_abcdefgh_{}", "x".repeat(40)));
    for (method, path, needs) in routes() {
        let what = format!("{method} {path}");
        let path = filled(path, &id);
        let body = || (method != Method::GET).then(|| "{}".to_owned());
        let none = nobody.send(method.clone(), &path, body(), &[]).await;
        assert_eq!(none.error(), (401, "unauthenticated"), "{what}");
        assert_eq!(none.header("www-authenticate"), "Bearer");
        let unknown = stranger.send(method.clone(), &path, body(), &[]).await;
        assert_eq!(unknown.error(), (401, "invalid_api_key"), "{what}");
        let others: Vec<Scope> = Scope::ALL.iter().copied().filter(|scope| *scope != needs).collect();
        let lacking = api.caller("acme", &others).await.send(method.clone(), &path, body(), &[]).await;
        assert_eq!(lacking.error(), (403, "missing_scope"), "{what}");
        assert!(lacking.text.contains(needs.as_str()), "{what}: {}", lacking.text);
    }
    assert_eq!(api.count().await, 1);
    let standing = api.acme.get(&format!("/v1/executions/{id}")).await;
    assert_eq!(standing.body["status"], "PENDING");
}

#[tokio::test]
async fn execution_of_another_tenant_is_not_found() {
    let api = TestApi::start().await;
    let id = api.submit().await.to_string();
    let beta = api.caller("beta", &[EVERYDAY, &[Scope::ApprovalsDecide]].concat()).await;
    let ids = [id.as_str(), "0197f3a0-0000-7000-8000-000000000000", "no-id"];
    // Ids below indexes are of documents; workers are of no tenant.
    let others = ["/v1/indexes/", "/v1/workers/", "/v1/keys/", "/v1/accounts/"];
    let of_executions = |path: &str| path.contains("{id}") && !others.iter().any(|other| path.starts_with(other));
    for (method, path, _) in routes().into_iter().filter(|(_, path, _)| of_executions(path)) {
        for id in ids {
            let body = (method != Method::GET).then(|| "{}".to_owned());
            let answer = beta.send(method.clone(), &path.replace("{id}", id), body, &[]).await;
            assert_eq!(answer.error(), (404, "not_found"), "{method} {path} {id}");
        }
    }
    assert_eq!(beta.get("/v1/executions").await.body["executions"], json!([]));
    let standing = api.acme.get(&format!("/v1/executions/{id}")).await;
    assert_eq!(standing.body["cancel_requested_at"], json!(null));
}

#[tokio::test]
async fn only_an_administrator_reads_across_tenants() {
    let api = TestApi::start().await;
    let id = api.submit().await.to_string();
    for query in ["?org_id=acme", "?all_tenants=true", "?org_id=acme&group_id="] {
        let beta = api.caller("beta", EVERYDAY).await;
        assert_eq!(beta.get(&format!("/v1/executions{query}")).await.error(), (403, "missing_scope"), "{query}");
        let admin = api.caller("operator", &[Scope::Admin, Scope::ExecutionsRead]).await;
        let found = admin.get(&format!("/v1/executions{query}")).await;
        assert_eq!(found.body["executions"][0]["id"], id, "{query}: {}", found.text);
        assert_eq!(admin.get(&format!("/v1/executions/{id}{query}")).await.status, 200);
    }
    let admin = api.caller("operator", &[Scope::Admin, Scope::ExecutionsRead]).await;
    assert_eq!(admin.get(&format!("/v1/executions/{id}")).await.status, 404, "nobody is asked for by accident");
    assert_eq!(admin.get("/v1/executions?org_id=nobody").await.body["executions"], json!([]));
}

#[tokio::test]
async fn a_revoked_key_stops_working() {
    let api = TestApi::start().await;
    let caller = api.caller("acme", EVERYDAY).await;
    let prefix = caller.key.clone().unwrap()[3..11].to_owned();
    assert_eq!(api.store.revoke_api_key(api.tenant, &prefix).await.unwrap().len(), 1);
    // This process has never seen the key, so its cache does not hold it.
    assert_eq!(caller.get("/v1/executions").await.error(), (401, "invalid_api_key"));
}
