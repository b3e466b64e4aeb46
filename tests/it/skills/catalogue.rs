//! Skills over the API: versions, owners, limits, and the agents that name them.

use longhaul_store::tenants::api_keys::Scope;
use serde_json::{Value, json};

use super::{agent_with, refunds, with};
use crate::support::api::{EVERYDAY, TestApi};

#[tokio::test]
async fn skill_versions_are_put_listed_and_removed() {
    let api = TestApi::start().await;
    let first = api.acme.put("/v1/skills/refunds", &refunds()).await;
    assert_eq!((first.status, &first.body["version"]), (201, &json!(1)), "{}", first.text);
    let again = api.acme.put("/v1/skills/refunds", &refunds()).await;
    assert_eq!((again.status, &again.body["version"]), (200, &json!(1)));
    let changed = with(refunds(), json!({"files": {"references/rates.md": "3 % a month"}}));
    assert_eq!(api.acme.put("/v1/skills/refunds", &changed).await.body["version"], 2);
    api.acme.put("/v1/skills/mails", &with(refunds(), json!({"name": "mails"}))).await;
    let page = api.acme.get("/v1/skills").await;
    let names: Vec<&Value> = page.body["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert_eq!(names, ["mails", "refunds"]);
    assert_eq!(page.body["items"][1]["version"], 2);
    assert!(!page.text.contains("30 days"), "a list has no texts");
    let next = api.acme.get("/v1/skills?limit=1").await.body["next_after"].clone();
    assert_eq!(next, "mails");
    let newest = api.acme.get("/v1/skills/refunds").await.body;
    assert_eq!((&newest["body"], &newest["files"]), (&changed["body"], &changed["files"]));
    let old = api.acme.get("/v1/skills/refunds?version=1").await.body;
    assert_eq!(old["files"], refunds()["files"]);
    assert_eq!(api.acme.delete("/v1/skills/refunds/versions/2").await.status, 204);
    assert_eq!(api.acme.delete("/v1/skills/refunds/versions/2").await.status, 404);
    assert_eq!(api.acme.get("/v1/skills/refunds").await.body["version"], 1);
    assert_eq!(api.acme.put("/v1/skills/refunds", &changed).await.body["version"], 3);
}

#[tokio::test]
async fn own_skills_are_hidden_from_other_tenants() {
    let api = TestApi::start().await;
    let operator = api.caller("operator", &[Scope::Admin, Scope::DefinitionsWrite]).await;
    let beta = api.caller("beta", EVERYDAY).await;
    assert_eq!(api.acme.put("/v1/skills/refunds?shared=true", &refunds()).await.error(), (403, "missing_scope"));
    api.acme.put("/v1/skills/refunds", &refunds()).await;
    assert_eq!(beta.get("/v1/skills/refunds").await.status, 404);
    assert_eq!(beta.delete("/v1/skills/refunds/versions/1").await.status, 404);
    assert_eq!(beta.get("/v1/skills").await.body["items"], json!([]));
    assert_eq!(beta.put("/v1/agents/a", &agent_with(&["refunds"])).await.paths(), ["/skills/0"]);
    assert_eq!(operator.put("/v1/agents/a?shared=true", &agent_with(&["refunds"])).await.paths(), ["/skills/0"]);
    let shared = with(refunds(), json!({"description": "For all."}));
    assert_eq!(operator.put("/v1/skills/refunds?shared=true", &shared).await.status, 201);
    assert_eq!(beta.get("/v1/skills/refunds").await.body["description"], "For all.");
    assert_eq!(api.acme.get("/v1/skills/refunds").await.body["description"], refunds()["description"]);
    assert_eq!(beta.put("/v1/agents/a", &agent_with(&["refunds"])).await.status, 201);
}

#[tokio::test]
async fn agents_pin_the_skills_they_name() {
    let api = TestApi::start().await;
    let unknown = api.acme.put("/v1/agents/a", &agent_with(&["refunds"])).await;
    assert_eq!(unknown.error(), (422, "invalid_request"));
    assert_eq!(unknown.paths(), ["/skills/0"]);
    api.acme.put("/v1/skills/refunds", &refunds()).await;
    let agent = agent_with(&["refunds"]);
    let put = || api.acme.put("/v1/agents/a", &agent);
    assert_eq!((put().await.status, put().await.status), (201, 200));
    // A newer skill makes a new version of the agent when it is put again, and not before.
    api.acme.put("/v1/skills/refunds", &with(refunds(), json!({"body": "Within 10 days."}))).await;
    assert_eq!(api.acme.get("/v1/agents/a").await.body["version"], 1);
    let second = put().await;
    assert_eq!((second.status, &second.body["version"]), (201, &json!(2)));
    assert_eq!(second.body["spec"]["skills"], json!(["refunds"]));
    for version in [1, 2] {
        assert_eq!(api.acme.delete(&format!("/v1/skills/refunds/versions/{version}")).await.status, 204);
    }
    assert_eq!(put().await.paths(), ["/skills/0"], "removed");
    let tool = json!({"name": "load_skill", "description": "d"});
    for reserved in [json!({"tools": ["load_skill"]}), json!({ "latent_tools": [tool] })] {
        assert_eq!(api.acme.put("/v1/agents/a", &with(agent_with(&[]), reserved)).await.paths(), ["/tools"]);
    }
    let by_caller = with(tool, json!({"runs": "caller"}));
    let submit = json!({"agent": "a", "input": {"prompt": "hi"}, "tools": [by_caller]});
    assert_eq!(api.acme.post("/v1/executions", &submit).await.paths(), ["/tools/0/name"]);
    let twice = api.acme.put("/v1/agents/a", &agent_with(&["refunds", "refunds"])).await;
    assert_eq!(twice.paths(), ["/skills"]);
}

#[tokio::test]
async fn skills_beyond_the_limits_are_refused() {
    let api = TestApi::start().await;
    let long = "p".repeat(256);
    let many: serde_json::Map<String, Value> = (0..101).map(|n| (format!("f{n}"), json!(""))).collect();
    let large: serde_json::Map<String, Value> = (0..20).map(|n| (format!("f{n}"), json!("x".repeat(57_344)))).collect();
    for (change, path) in [
        (json!({"name": "other"}), "/name"),
        (json!({"description": ""}), "/description"),
        (json!({"description": "x".repeat(1_025)}), "/description"),
        (json!({"body": " "}), "/body"),
        (json!({"body": "x".repeat(57_345)}), "/body"),
        (json!({ "files": many }), "/files"),
        (json!({"files": {"a": "x".repeat(57_345)}}), "/files/a"),
        (json!({ "files": large }), "/files"),
        (json!({"files": {"../a": ""}}), "/files/..~1a"),
        (json!({"files": {"SKILL.md": ""}}), "/files/SKILL.md"),
        (json!({ "files": {long.as_str(): ""} }), &format!("/files/{long}")),
        (json!({"license": "MIT"}), "/license"),
    ] {
        let refused = api.acme.put("/v1/skills/refunds", &with(refunds(), change)).await;
        assert_eq!((refused.status, refused.paths()), (422, vec![path]), "{}", refused.text);
    }
    for name in ["Refunds", "a--b", "-a", "a_b"] {
        let refused = api.acme.put(&format!("/v1/skills/{name}"), &with(refunds(), json!({ "name": name }))).await;
        assert_eq!(refused.paths(), ["/name"], "{name}");
    }
    let nul = with(refunds(), json!({"body": "a\u{0}"}));
    assert_eq!(api.acme.put("/v1/skills/refunds", &nul).await.status, 422);
    let huge = with(refunds(), json!({"body": "x".repeat(3 << 20)}));
    assert_eq!(api.acme.put("/v1/skills/refunds", &huge).await.error(), (413, "payload_too_large"));
    assert_eq!(api.acme.get("/v1/skills").await.body["items"], json!([]));
}
