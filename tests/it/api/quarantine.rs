//! `/v1/quarantine`: executions that killed workers are shown to their tenant, and released once.

use longhaul_domain::ExecutionId;
use longhaul_store::tenants::api_keys::Scope;
use serde_json::json;

use crate::support::api::{EVERYDAY, TestApi};
use crate::support::leases::TestWorker;

pub(super) async fn quarantined(api: &TestApi) -> ExecutionId {
    let id = api.submit().await;
    for _ in 0..3 {
        let worker = TestWorker::of_build(&api.store, "broken").await;
        assert_eq!(worker.claim_one().await.id, id);
        worker.die().await;
        api.store.reap(10).await.unwrap();
    }
    id
}

#[tokio::test]
async fn only_its_tenant_lists_and_releases_a_quarantine() {
    let api = TestApi::start().await;
    assert_eq!(api.acme.get("/v1/quarantine").await.body, json!({"quarantined": [], "next_after": null}));
    let (first, second) = (quarantined(&api).await, quarantined(&api).await);
    let listed = api.acme.get("/v1/quarantine").await.body;
    let ids: Vec<_> = listed["quarantined"].as_array().unwrap().iter().map(|one| one["execution_id"].clone()).collect();
    assert_eq!(ids, [json!(first.to_string()), json!(second.to_string())]);
    let shown = api.acme.get(&format!("/v1/quarantine/{first}")).await.body;
    assert_eq!(shown, listed["quarantined"][0]);
    assert_eq!(
        (&shown["definition"], &shown["definition_version"], &shown["agent"]),
        (&json!("invoice"), &json!(1), &json!("clerk"))
    );
    assert_eq!(
        (&shown["state"], &shown["phase"], &shown["last_step"]),
        (&json!("quarantined"), &json!("before its first step"), &json!(null))
    );
    assert_eq!(shown["deaths"].as_array().unwrap().len(), 3);
    let group = json!({"state": "shut", "died_builds": ["broken"], "canary": null, "held_since": null});
    assert_eq!(shown["group"], group);
    let detail = api.acme.get(&format!("/v1/executions/{first}")).await.body;
    assert_eq!(detail["failure"]["detail"]["deaths"], shown["deaths"], "{detail}");

    let beta = api.caller("beta", EVERYDAY).await;
    assert_eq!(beta.get("/v1/quarantine").await.body["quarantined"], json!([]));
    assert_eq!(beta.get(&format!("/v1/quarantine/{first}")).await.error(), (404, "not_found"));
    assert_eq!(beta.post(&format!("/v1/quarantine/{first}/release"), &json!({})).await.error(), (404, "not_found"));
    assert_eq!(beta.get("/v1/quarantine?all_tenants=true").await.error(), (403, "missing_scope"));
    let operator = api.caller("operator", &[EVERYDAY, &[Scope::Admin]].concat()).await;
    assert_eq!(operator.get("/v1/quarantine?all_tenants=true").await.body["quarantined"].as_array().unwrap().len(), 2);
    let reader = api.caller("acme", &[Scope::ExecutionsRead]).await;
    let release = format!("/v1/quarantine/{first}/release");
    assert_eq!(reader.post(&release, &json!({})).await.error(), (403, "missing_scope"));
    assert_eq!(api.acme.post(&release, &json!({"every": true})).await.error(), (422, "invalid_request"));
    assert_eq!(api.acme.post("/v1/quarantine/none/release", &json!({})).await.error(), (404, "not_found"));

    let released = api.acme.post(&release, &json!({})).await;
    assert_eq!((released.status, &released.body["all"]), (200, &json!(false)));
    let retry: ExecutionId = released.body["released_as"].as_str().unwrap().parse().unwrap();
    assert_eq!(api.woken("default").await.last(), Some(&retry));
    assert_eq!(api.acme.get(&format!("/v1/executions/{retry}")).await.body["retry_of"], json!(first.to_string()));
    let again = api.acme.post(&release, &json!({})).await;
    assert_eq!((again.error(), &again.body["execution_id"]), ((409, "not_releasable"), &json!(retry.to_string())));
    let beside = api.acme.post(&format!("/v1/quarantine/{second}/release"), &json!({})).await;
    assert_eq!((beside.error(), &beside.body["execution_id"]), ((409, "not_releasable"), &json!(retry.to_string())));
    let all = api.acme.post(&format!("/v1/quarantine/{second}/release"), &json!({"all": true})).await;
    assert_eq!(all.body, json!({"released_as": null, "all": true}));

    assert_eq!(
        api.acme.post(&format!("/v1/executions/{second}/cancel"), &json!({})).await.error(),
        (409, "execution_is_terminal")
    );
    let withdrawn = api.acme.post(&format!("/v1/quarantine/{second}/release"), &json!({})).await;
    assert_eq!(withdrawn.error(), (409, "not_releasable"));
    assert_eq!(api.acme.get("/v1/quarantine").await.body["quarantined"], json!([]));
    let past = api.acme.get("/v1/quarantine?state=all").await.body;
    let states: Vec<_> = past["quarantined"].as_array().unwrap().iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, [json!("released"), json!("withdrawn")]);
}

#[tokio::test]
async fn held_back_execution_shows_the_cause_and_end() {
    let api = TestApi::start().await;
    for _ in 0..3 {
        quarantined(&api).await;
    }
    sqlx::query("update quarantine_groups set held_since = longhaul_now()").execute(&api.db.pool).await.unwrap();
    let id = api.submit().await;
    let why = api.acme.get(&format!("/v1/executions/{id}/waiting")).await.body;
    assert_eq!((&why["status"], &why["wait_reason"]), (&json!("PENDING"), &json!("queue_paused")));
    assert_eq!(why["summary"], "new executions of invoice version 1 are held back: 3 of them killed their workers");
    assert!(why["ends_when"].as_str().unwrap().contains("a build that they have not killed"), "{why}");
    let holding = &why["holding"];
    assert_eq!(
        (&holding["definition"], &holding["version"], &holding["quarantined"]),
        (&json!("invoice"), &json!(1), &json!(3))
    );
    assert_eq!(holding["group"]["died_builds"], json!(["broken"]));
    // It can be cancelled like any waiting execution.
    assert_eq!(api.acme.post(&format!("/v1/executions/{id}/cancel"), &json!({})).await.status, 200);
}
