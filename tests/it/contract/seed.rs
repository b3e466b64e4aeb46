//! The seed's request, unchanged but for the addresses of its providers, and the seed's answer, key by key.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::json;

use super::kit::Backend;
use crate::contract_engine::kit::{Answer, calls, says};

/// The structure of a JSON value: object keys in their written order, and types.
#[derive(Debug, PartialEq)]
enum Shape {
    Object(Vec<(String, Shape)>),
    List(Vec<Shape>),
    Text,
    Integer,
    Fraction,
    Bool,
    Null,
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Shape, E> {
                Ok(Shape::Null)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
                Ok(Shape::Bool)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
                Ok(Shape::Integer)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
                Ok(Shape::Integer)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
                Ok(Shape::Fraction)
            }

            fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
                Ok(Shape::Text)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    // Equal items in a row count once: the seed shows one round where the run has two.
                    if list.last() != Some(&item) {
                        list.push(item);
                    }
                }
                Ok(Shape::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Shape, A::Error> {
                let mut object = Vec::new();
                while let Some(field) = fields.next_entry()? {
                    object.push(field);
                }
                Ok(Shape::Object(object))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[tokio::test]
async fn seed_request_answers_with_the_seed_structure() {
    let backend = Backend::start().await;
    backend.put_agent(json!({"tool_refs": ["tool.python_exec"]})).await;
    let (model, sandbox) = (&backend.engine.model, &backend.engine.sandbox);
    model.json(calls(&[("call-1", "python_exec", r#"{"code":"print(2 + 2)"}"#)]));
    model.json(says("Here is the final answer after using a tool."));
    sandbox.at(
        "/v1/execute",
        Answer::Json(
            200,
            json!({"language": "python", "stdout": "4\n", "stderr": "", "result": null, "error": null, "exit_code": 0,
                "timed_out": false}),
        ),
    );
    let vector: Vec<f64> = (0..1_536).map(|n| f64::from(n) / 1_536.0).collect();
    backend.engine.embeddings.at("/v1/embeddings", Answer::Json(200, json!({"data": [{"embedding": vector}]})));
    let metadata = r#"{"title":"Architecture Overview","uri":"https://example.com/architecture"}"#;
    let text = "Hybrid retrieval blends semantic recall with lexical precision.";
    let hit = json!({"document_id": "doc-1", "text": text, "metadata_json": metadata,
        "_additional": {"id": "w-1", "distance": 0.09, "score": "0.97"}});
    backend.engine.vectors.at("/v1/graphql", Answer::Json(200, json!({"data": {"Get": {"KnowledgeBase": [hit]}}})));
    let _worker = backend.worker();

    // The seed requests a model outside its own resources; its answer is that of the default model.
    let refused = backend.post(&backend.seed()).await;
    assert_eq!(
        (refused.status, refused.body["error"].as_str()),
        (403, Some("EXEC_MODEL_NOT_ALLOWED")),
        "{}",
        refused.text
    );
    let mut request = backend.seed();
    request["input"]["model"] = json!(null);

    let answer = backend.post(&request).await;

    assert_eq!(answer.status, 201, "{}", answer.text);
    let expected: Shape = serde_json::from_str(include_str!("seed_response.json")).unwrap();
    let given: Shape = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(given, expected, "{}", answer.text);

    // The values follow the request and the stubs.
    let execution = &answer.body["execution"];
    for (key, value) in [
        ("status", "succeeded"),
        ("agent_ref", "agent.alpha"),
        ("agent_version", "v2"),
        ("model_ref", "model.default"),
        ("runtime_profile", "offline"),
    ] {
        assert_eq!(execution[key], value, "{key}");
    }
    for key in ["created_at", "started_at", "finished_at"] {
        let at = execution[key].as_str().unwrap();
        assert!(at.len() == 32 && at.ends_with("+00:00") && at.as_bytes()[19] == b'.', "{key}: {at}");
    }
    let result = &execution["result"];
    let seed: serde_json::Value = serde_json::from_str(include_str!("seed_response.json")).unwrap();
    let told = &seed["execution"]["result"];
    assert_eq!(result["output_text"], told["output_text"]);
    assert_eq!(result["embedding_calls"], told["embedding_calls"]);
    assert_eq!(result["model_calls"][0], told["model_calls"][0]);
    assert_eq!(result["tool_calls"][0]["arguments"], told["tool_calls"][0]["arguments"]);
    assert_eq!(result["tool_calls"][0]["result"]["stdout"], "4\n");
    for key in [
        "tool_ref",
        "tool_name",
        "transport",
        "runtime_capability",
        "provider_slug",
        "provider_key",
        "deployment_profile_slug",
        "status_code",
    ] {
        assert_eq!(result["tool_calls"][0][key], told["tool_calls"][0][key], "{key}");
    }
    let retrieval = &result["retrieval_calls"][0];
    assert_eq!(
        (&retrieval["index"], &retrieval["query"]),
        (&json!("knowledge_base"), &json!("optional explicit retrieval query"))
    );
    assert_eq!(retrieval["results"][0]["metadata"], told["retrieval_calls"][0]["results"][0]["metadata"]);

    // A later read returns the same bytes.
    let id = execution["id"].as_str().unwrap();
    let read = backend.get(&format!("{}/{id}", super::kit::PATH)).await;
    assert_eq!((read.status, &read.text), (200, &answer.text));
}
