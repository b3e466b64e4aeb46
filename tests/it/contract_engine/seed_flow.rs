//! The seed's flow: retrieval, a tool and two model calls produce the items of its response, key by key.

use longhaul_domain::noted::CallList;
use serde_json::{Value, json};

use super::kit::{Answer, Engine, calls, printed, says, searching};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seed_calls_are_recorded_key_by_key() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let mut run = engine.run_with_tools();
    run.retrieval_context = Some("Use the references.".into());
    run.retrieval = searching(
        json!({"index": "knowledge_base", "query": "How does retrieval work?", "top_k": 5, "search_method": "hybrid",
        "query_preprocessing": "normalize", "hybrid_alpha": 0.5, "filters": {"tenant": "ops"}}),
    );
    let vector: Vec<f64> = vec![0.5; 1_536];
    engine.embeddings.at("/v1/embeddings", Answer::Json(200, json!({"data": [{"embedding": vector}]})));
    let metadata = json!({"title": "Architecture Overview", "uri": "https://example.com/architecture"}).to_string();
    let text = "Hybrid retrieval blends semantic recall with lexical precision.";
    let hit = |score: &str, value: Value| {
        json!({"data": {"Get": {"KnowledgeBase": [{"document_id": "doc-1", "text": text, "metadata_json": metadata,
            "_additional": {"id": "u", score: value}}]}}})
    };
    // Semantic and keyword search run at the same time, in any order.
    engine.vectors.at(
        "/v1/graphql",
        Answer::Json(200, {
            let mut both = hit("distance", json!(0.25));
            both["data"]["Get"]["KnowledgeBase"][0]["_additional"]["score"] = json!("3.5");
            both
        }),
    );
    engine.model.json(calls(&[("c1", "python_exec", r#"{"code":"print(2 + 2)"}"#)]));
    engine.model.json(says("Here is the final answer after using a tool."));
    engine.sandbox.json(printed("4\n"));

    let id = engine.submit(&run, json!({"prompt": "hello"})).await;
    let ended = engine.ended(id).await;
    assert_eq!(ended.text(), "Here is the final answer after using a tool.");
    assert_eq!(ended.gathered.model_ref.as_deref(), Some("model.default"));

    let tool = concat!(
        r#"{"tool_ref":"tool.python_exec","tool_name":"python_exec","transport":"sandbox_http","#,
        r#""runtime_capability":"sandbox_execution","#,
        r#""provider_slug":"sandbox-local","provider_key":"sandbox_local","deployment_profile_slug":"local-default","#,
        r#""status_code":200,"#,
        r#""arguments":{"code":"print(2 + 2)"},"result":{"stdout":"4\n","stderr":"","result":null,"error":null}}"#,
    );
    assert_eq!(ended.items(CallList::ToolCalls), [tool]);
    let embedding = concat!(
        r#"{"provider_slug":"vllm-embeddings-local","provider_key":"vllm_embeddings_local","#,
        r#""deployment_profile_slug":"local-default","#,
        r#""requested_model":"local-vllm-embeddings-default","input_count":1,"dimension":1536,"status_code":200}"#,
    );
    assert_eq!(ended.items(CallList::EmbeddingCalls), [embedding]);
    let retrieval = concat!(
        r#"{"provider_slug":"weaviate-local","provider_key":"weaviate_local","#,
        r#""deployment_profile_slug":"local-default","#,
        r#""index":"knowledge_base","query":"how does retrieval work","top_k":5,"search_method":"hybrid","#,
        r#""query_preprocessing":"normalize","#,
        r#""hybrid_alpha":0.5,"result_count":1,"results":[{"id":"doc-1","#,
        r#""text":"Hybrid retrieval blends semantic recall with lexical precision.","#,
        r#""metadata":{"title":"Architecture Overview","uri":"https://example.com/architecture"},"score":0.875,"#,
        r#""score_kind":"hybrid_score","#,
        r#""relevance_score":0.875,"relevance_kind":"hybrid_score","relevance_components":{"semantic_score":0.75,"#,
        r#""keyword_score":1.0}}]}"#,
    );
    assert_eq!(ended.items(CallList::RetrievalCalls), [retrieval]);
    let model = concat!(
        r#"{"provider_slug":"vllm-local-gateway","provider_key":"vllm_local","#,
        r#""deployment_profile_slug":"local-default","#,
        r#""requested_model":"model.default","status_code":200}"#,
    );
    assert_eq!(ended.items(CallList::ModelCalls), [model, model]);

    // The embeddings request has the provider's model name; the references stand between instructions and prompt.
    assert_eq!(engine.embeddings.seen()[0].body(), json!({"model": "bge", "input": ["how does retrieval work"]}));
    let said = engine.model.seen()[0].body()["input"].clone();
    let texts: Vec<&str> =
        said.as_array().unwrap().iter().map(|message| message["content"][0]["text"].as_str().unwrap()).collect();
    assert_eq!((texts.len(), texts[0], texts[2]), (3, "Be brief.", "hello"));
    assert!(texts[1].starts_with("Use the references.\n\nReference [1]") && texts[1].ends_with(text), "{}", texts[1]);
    let kinds: Vec<String> = engine.fleet.steps(id).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["retrieval", "prompt", "turn", "call", "turn"]);
}

#[tokio::test]
async fn empty_retrieval_leaves_the_conversation_unchanged() {
    let engine = Engine::start().await;
    let _worker = engine.fleet.worker();
    let mut run = engine.run();
    run.retrieval = searching(
        json!({"index": "kb", "query": "q", "top_k": 5, "search_method": "keyword", "query_preprocessing": "none",
            "filters": {}}),
    );
    engine.vectors.at("/v1/graphql", Answer::Json(200, json!({"data": {"Get": {"Kb": []}}})));
    engine.model.json(says("nothing known"));
    let id = engine.submit(&run, json!({"prompt": "hello"})).await;
    let ended = engine.ended(id).await;
    assert_eq!(ended.text(), "nothing known");
    assert_eq!(engine.embeddings.seen().len(), 0, "words need no vector");
    assert_eq!(engine.model.seen()[0].body()["input"].as_array().unwrap().len(), 2);
    let item: Value = serde_json::from_str(ended.items(CallList::RetrievalCalls)[0]).unwrap();
    assert_eq!((&item["result_count"], &item["results"], item.get("hybrid_alpha")), (&json!(0), &json!([]), None));
}
