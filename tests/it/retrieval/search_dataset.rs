//! An agent with `datasets` can search them, and no other index.

use longhaul_domain::TenantId;
use longhaul_retrieval::{DocumentFormat, IncomingDocument, OwnIndexes};
use longhaul_sdk::{AgentSpec, DefinitionSpec};
use longhaul_testkit::model::{reply_calls, reply_text};
use serde_json::{Map, Value, json};

use crate::support::{
    api::TestApi,
    fleet::{Fleet, agent},
};

async fn put(indexes: &OwnIndexes, tenant: TenantId, index: &str, text: &str) {
    let document =
        IncomingDocument { id: "d".into(), text: text.into(), metadata: Map::new(), format: DocumentFormat::Text };
    indexes.ingest(tenant, index, &[document]).await.unwrap();
}

/// Returns the results of the calls as the model was told, in order.
fn results(fleet: &Fleet) -> Vec<Value> {
    let requests = fleet.llm.requests();
    let messages = requests.last().unwrap().messages().to_vec();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| serde_json::from_str(message["content"].as_str().unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn agent_searches_only_its_datasets_and_tenant() {
    let fleet = Fleet::start().await;
    let indexes = OwnIndexes::new(fleet.store.clone(), fleet.config().retrieval).unwrap();
    let other = fleet.store.ensure_tenant("other", None).await.unwrap().id;
    put(&indexes, fleet.tenant, "handbook", "The notice period is three months.").await;
    put(&indexes, other, "handbook", "A notice of somebody else.").await;
    put(&indexes, fleet.tenant, "secret", "A notice that is not for this agent.").await;
    let agent = AgentSpec { datasets: vec!["handbook".into(), "empty".into()], ..agent("a") };
    fleet.apply(&agent, &DefinitionSpec::new("d", "a")).await;
    let call = |index: &str| ("search_dataset", json!({"query": "notice", "index": index}));
    fleet.llm.push(reply_calls([call("handbook"), call("secret"), call("empty")]));
    fleet.llm.push(reply_text("{}"));
    let id = fleet.submit("d", json!({})).await;
    let worker = fleet.worker();
    assert_eq!(fleet.ended(id).await["status"], "FINISHED");
    let first = fleet.llm.requests()[0].clone();
    assert_eq!(first.tools(), ["search_dataset"]);
    let seen = results(&fleet);
    let passage = &seen[0]["results"];
    assert_eq!(passage.as_array().unwrap().len(), 1);
    assert_eq!(passage[0]["text"], "The notice period is three months.");
    assert_eq!(passage[0]["metadata"], json!({"document_id": "d"}));
    // An index outside its datasets and a missing index: the model is told, and the run continues.
    for refused in [&seen[1], &seen[2]] {
        assert!(refused["error"].is_object() || refused["error"].is_string(), "{refused}");
        assert!(!refused.to_string().contains("not for this agent"), "{refused}");
    }
    assert!(seen[2].to_string().contains("there is no index `empty`"), "{}", seen[2]);
    worker.drain().await;
}

#[tokio::test]
async fn datasets_are_checked_when_the_agent_is_applied() {
    let api = TestApi::start().await;
    let put = async |more: Value| {
        let mut body = json!({"key": "reader", "name": "r", "prompts": {"conversation": "p"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        api.acme.put("/v1/agents/reader", &body).await
    };
    let refused = put(json!({"datasets": ["kb", "KB", "kb"], "tools": ["search_dataset"]})).await;
    assert_eq!((refused.status, refused.paths()), (422, vec!["/datasets", "/datasets/1", "/tools"]));
    let many: Vec<String> = (0..51).map(|n| format!("kb{n}")).collect();
    assert_eq!(put(json!({ "datasets": many })).await.paths(), ["/datasets"]);
    // The index may be filled later.
    let stored = put(json!({"datasets": ["kb", "faq"]})).await;
    assert_eq!(stored.status, 201, "{}", stored.text);
    assert_eq!(api.acme.get("/v1/agents/reader").await.body["spec"]["datasets"], json!(["kb", "faq"]));
}
