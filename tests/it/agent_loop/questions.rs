//! Questions to the caller: the execution waits for an answer, which is the result of the call.

use longhaul_domain::{RequestKind, RequestState};
use longhaul_store::human_requests::Verdict;
use serde_json::{Value, json};

use super::people::Office;

fn answer(text: &str) -> Verdict {
    Verdict::Answer { answer: text.as_bytes().to_vec() }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_answer_is_the_result_and_asked_once() {
    // Even an agent with the default policy `deny` may ask.
    let office = Office::open(json!({"default": "deny", "rules": [{"tool": "look", "access": "auto"}]}), false).await;
    let schema = json!({"enum": ["blue", "red"]});
    office.script(vec![
        (
            "c1",
            "ask_caller",
            json!({"question": "Which colour?", "answer_schema": schema, "_outputPath": "†state.colour"}),
        ),
        ("c2", "look", json!({"amount": 2})),
        ("c3", "look", json!({"amount": 3, "to": "†state.colour"})),
    ]);
    let worker = office.worker();
    let id = office.submit().await;
    let question = office.waits(id, 1).await;
    assert_eq!((question.kind, question.shown.as_str()), (RequestKind::Question, "Which colour?"));
    assert_eq!((question.schema.as_ref(), office.given("look").len()), (Some(&schema), 1));
    assert_eq!(office.fleet.row(id).await["wait_reason"], "input");
    worker.kill().await;
    let _worker = office.worker();
    office.decide(&question, answer("\"blue\""), None).await;
    office.finished(id).await;
    assert_eq!(office.given("look"), [json!({"amount": 2, "to": ""}), json!({"amount": 3, "to": "blue"})]);
    assert_eq!(office.count(id, RequestKind::Question).await, 1);
    assert_eq!(office.fleet.llm.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_question_is_an_error_to_the_model() {
    let office = Office::open(json!({}), false).await;
    office.script(vec![("c1", "ask_caller", json!({"question": "Anybody?"}))]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.waits(id, 1).await;
    office.let_expire().await;
    office.finished(id).await;
    assert!(office.results()["c1"].contains("nobody answered the question"), "{:?}", office.results());
    assert_eq!(office.wanted(id).await[0].state, RequestState::Expired);
}

/// A schema whose references double at each level.
fn doubling(levels: usize) -> Value {
    let link = |level: usize| json!({"$ref": format!("#/$defs/a{level}")});
    let mut definitions: serde_json::Map<_, _> =
        (0..levels).map(|level| (format!("a{level}"), json!({"allOf": [link(level + 1), link(level + 1)]}))).collect();
    definitions.insert(format!("a{levels}"), json!({}));
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

#[tokio::test(flavor = "multi_thread")]
async fn too_expensive_answer_schema_is_refused() {
    let office = Office::open(json!({}), false).await;
    let many: Vec<_> = (0..200_000).collect();
    office.script(vec![
        ("c1", "ask_caller", json!({"question": "How?", "answer_schema": doubling(60)})),
        ("c2", "ask_caller", json!({"question": "How?", "answer_schema": {"enum": many}})),
    ]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.finished(id).await;
    let results = office.results();
    assert!(results["c1"].contains("its references repeat"), "{}", results["c1"]);
    assert!(results["c2"].contains("structural"), "{}", results["c2"]);
    assert!(office.wanted(id).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn question_whose_answer_cannot_be_checked_is_refused() {
    let office = Office::open(json!({}), false).await;
    office.script(vec![
        ("c1", "ask_caller", json!({"question": "How?", "answer_schema": {"type": "no such type"}})),
        ("c2", "ask_caller", json!({"question": "How?", "answer_schema": {"pattern": "^(?=a)b"}})),
        ("c3", "ask_caller", json!({"question": ""})),
    ]);
    let _worker = office.worker();
    let id = office.submit().await;
    office.finished(id).await;
    for (call, text) in office.results() {
        assert!(text.contains("structural"), "{call}: {text}");
    }
    assert!(office.wanted(id).await.is_empty());
}
