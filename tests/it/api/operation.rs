//! Endpoints for operators and tools: health, metrics, the OpenAPI document and its viewer.

use longhaul_api::ApiOptions;
use serde_json::json;

use crate::support::{
    api::{Answer, Caller, TestApi, agent, invoice},
    db::TestDb,
    fleet::Fleet,
    redis::TestRedis,
    wait::{SOON, eventually},
};

/// Answer of `/readyz` after the first probe of Redis.
async fn readiness(caller: &Caller) -> Answer {
    eventually("the first probe of Redis has ended", SOON, async || {
        let ready = caller.get("/readyz").await;
        if ready.body["redis"] == "unknown" { Err(ready.text) } else { Ok(ready) }
    })
    .await
}

#[tokio::test]
async fn health_readiness_and_metrics_need_no_key() {
    let api = TestApi::start().await;
    let nobody = api.nobody();
    assert_eq!(nobody.get("/healthz").await.text, "ok\n");
    let ready = readiness(&nobody).await;
    assert_eq!(
        (ready.status, ready.body),
        (200, json!({"ready": true, "postgres": "up", "schema": "current", "redis": "up"}))
    );
    let metrics = nobody.get("/metrics").await;
    assert_eq!((metrics.status, metrics.header("content-type")), (200, "text/plain; version=0.0.4; charset=utf-8"));
}

#[tokio::test]
async fn postgres_outage_makes_a_live_process_unready() {
    let api = TestApi::start().await;
    api.store.close().await;
    let nobody = api.nobody();
    assert_eq!(nobody.get("/healthz").await.status, 200);
    let ready = nobody.get("/readyz").await;
    assert_eq!((ready.status, &ready.body["postgres"]), (503, &json!("down")));
    let answer = api.acme.get("/v1/definitions").await;
    assert_eq!((answer.error(), answer.header("retry-after")), ((503, "unavailable"), "1"));
}

#[tokio::test]
async fn redis_outage_leaves_submits_as_they_are() {
    let nowhere = TestRedis { url: "redis://127.0.0.1:1".to_owned(), prefix: "nowhere".to_owned() };
    let fleet = Fleet::on(TestDb::create().await, nowhere).await;
    fleet.apply(&agent("clerk"), &invoice()).await;
    let api = TestApi::over(&fleet, ApiOptions::default()).await;
    api.submit().await;
    let ready = readiness(&api.nobody()).await;
    assert_eq!((ready.status, &ready.body["ready"], &ready.body["redis"]), (200, &json!(true), &json!("down")));
}

#[tokio::test]
async fn unmigrated_database_is_not_ready() {
    let api = TestApi::start().await;
    sqlx::raw_sql("drop table _sqlx_migrations").execute(&api.db.pool).await.unwrap();
    let ready = api.nobody().get("/readyz").await;
    assert_eq!((ready.status, &ready.body["postgres"], &ready.body["schema"]), (503, &json!("up"), &json!("missing")));
    let refused = api.store.need_schema().await.unwrap_err();
    assert!(refused.to_string().contains("run `longhaul migrate`"), "{refused}");
}

#[tokio::test]
async fn openapi_document_is_served_as_built() {
    let api = TestApi::start().await;
    let served = api.nobody().get("/openapi.json").await;
    assert_eq!(served.body, serde_json::to_value(longhaul_api::openapi()).unwrap());
    assert_eq!(served.body["openapi"], "3.1.0");
    let text = served.text.clone();
    for reference in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(served.body.pointer(reference).is_some(), "{reference}");
    }
}

#[tokio::test]
async fn viewer_loads_no_external_resources() {
    let api = TestApi::start().await;
    let nobody = api.nobody();
    let page = nobody.get("/docs").await;
    assert_eq!(page.status, 200);
    assert!(!page.text.contains("http://") && !page.text.contains("https://") && !page.text.contains("//cdn"));
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
    let script = nobody.get("/docs/rapidoc-min.js").await;
    assert_eq!((script.status, script.header("content-type")), (200, "text/javascript"));
    assert_eq!(nobody.get("/docs/no-such.js").await.error(), (404, "no_such_route"));
}

#[tokio::test]
async fn unknown_paths_and_methods_return_problems() {
    let api = TestApi::start().await;
    assert_eq!(api.acme.get("/v2/executions").await.error(), (404, "no_such_route"));
    assert_eq!(api.acme.delete("/v1/executions").await.error(), (405, "method_not_allowed"));
    let answer = api.acme.send(reqwest::Method::GET, "/healthz", None, &[("x-request-id", "mine-7")]).await;
    assert_eq!(answer.header("x-request-id"), "mine-7");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
}
