//! The scripted model against the promises of docs/guide/scripted-model.md.

use std::time::Duration;

use longhaul_domain::TenantId;
use longhaul_sdk::{FailureClass, ToolEffect, ToolSpec};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::ToolChoice;

fn messages(texts: &[Message]) -> Vec<Arc<Message>> {
    texts.iter().cloned().map(Arc::new).collect()
}

async fn ask_with(
    model: &ScriptedModel,
    spec: &ModelSpec,
    messages: &[Arc<Message>],
    context_tokens: Option<u32>,
) -> (Result<ModelReply, ModelError>, Vec<ReplyEvent>) {
    let tools = [ToolSpec {
        name: "look_up".into(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }];
    let request = ModelRequest {
        tenant: TenantId(Uuid::nil()),
        model: spec,
        messages,
        files: &crate::NO_FILES,
        tools: &tools,
        tool_choice: ToolChoice::Auto,
        idempotency_key: "key",
        traceparent: None,
        max_output_tokens: None,
        context_tokens,
        output_schema: None,
        cache: None,
    };
    let mut heard = Vec::new();
    let reply = model.complete(request, &mut |event| heard.push(event)).await;
    (reply, heard)
}

fn scripted(script: &str) -> ModelSpec {
    ModelSpec { script: Some(script.into()), ..ModelSpec::default() }
}

async fn ask(script: &str, conversation: &[Message]) -> Result<ModelReply, ModelError> {
    let model = ScriptedModel::new(NAME, Clocks::default());
    ask_with(&model, &scripted(script), &messages(conversation), None).await.0
}

async fn text(script: &str, input: &str) -> String {
    ask(script, &[Message::user(input)]).await.unwrap().message.text().into_owned()
}

#[tokio::test]
async fn missing_script_echoes_last_user_message() {
    let model = ScriptedModel::new(NAME, Clocks::default());
    let conversation = messages(&[Message::user("one"), Message::assistant("x"), Message::user("two \"quoted\"")]);
    let (reply, heard) = ask_with(&model, &ModelSpec::default(), &conversation, None).await;
    let reply = reply.unwrap();
    assert_eq!(reply.message.text(), r#"{"response":"two \"quoted\""}"#);
    assert_eq!(heard, [ReplyEvent::TextDelta(reply.message.text().into())]);
    assert_eq!(reply.finish, FinishReason::Stop);
    assert_eq!(reply.usage.input_tokens, Some(1 + 1 + 3));
}

#[tokio::test]
async fn a_constant_script_answers_itself() {
    let reply = ask(r#"{"text": {"ok": 1e2}, "latency_ms": 0}"#, &[Message::user("x")]).await.unwrap();
    assert_eq!(reply.message.text(), r#"{"ok":1e+2}"#);
    let reply = ask(r#"{"raw": "not json {"}"#, &[Message::user("x")]).await.unwrap();
    assert_eq!(reply.message.text(), "not json {");
}

#[tokio::test]
async fn calls_keep_argument_text_and_get_stable_ids() {
    let script = r#"{"calls": [{"name": "look_up", "arguments": {"n": 1e2, "n": -0.0}}, {"name": "b"},
        {"name": "c", "arguments": "not json"}], "text": "looking"}"#;
    let model = ScriptedModel::new(NAME, Clocks::default());
    let (reply, heard) = ask_with(&model, &scripted(script), &messages(&[Message::user("x")]), None).await;
    let reply = reply.unwrap();
    let expected = [
        ToolCall { id: "call_1_0".into(), name: "look_up".into(), arguments: r#"{"n": 1e2, "n": -0.0}"#.into() },
        ToolCall { id: "call_1_1".into(), name: "b".into(), arguments: "{}".into() },
        ToolCall { id: "call_1_2".into(), name: "c".into(), arguments: "not json".into() },
    ];
    assert_eq!(reply.message.calls(), expected);
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!(heard.len(), 7);
    assert_eq!(heard[2], ReplyEvent::CallCompleted { index: 0, call: expected[0].clone() });
}

#[tokio::test]
async fn a_template_computes_from_the_conversation() {
    let script = "{% if turn == 1 %}{{ calls([call(tools[0], {'q': input_text | regex_find('order (\\\\d+)')})]) }}\
        {% else %}{{ text({'found': last.text | from_json, 'from': last.name}) }}{% endif %}";
    let first = ask(script, &[Message::user("where is order 42?")]).await.unwrap();
    assert_eq!(first.message.calls()[0].arguments, r#"{"q":"42"}"#);
    let result = Message::Tool {
        call_id: "call_1_0".into(),
        name: "look_up".into(),
        text: r#"{"state": "sent"}"#.into(),
        files: Vec::new(),
        is_error: false,
    };
    let second = ask(script, &[Message::user("where is order 42?"), first.message, result]).await.unwrap();
    assert_eq!(second.message.text(), r#"{"found":{"state":"sent"},"from":"look_up"}"#);
}

#[tokio::test]
async fn helpers_parse_numbers_lines_and_matches() {
    assert_eq!(text("{{ text(input_text | regex_findall('[a-z]+')) }}", "ab 1 cd").await, r#"["ab","cd"]"#);
    assert_eq!(
        text("{{ text(input_text | regex_findall('(\\\\w)=(\\\\d)')) }}", "a=1 b=2").await,
        r#"[["a","1"],["b","2"]]"#
    );
    assert_eq!(
        text("{{ text(input_text | regex_find('(?<k>\\\\w)=(?<v>\\\\d)')) }}", "a=1").await,
        r#"{"k":"a","v":"1"}"#
    );
    assert_eq!(text("{{ text(input_text | regex_find('z')) }}", "a").await, "null");
    assert_eq!(text("{{ text(input_text | lines) }}", "a\r\nb").await, r#"["a","b"]"#);
    for (from, to) in
        [("EUR 1,234.50", "1234.5"), ("-7 items", "-7"), ("12.", "12"), ("none", "null"), ("1.2.3", "null")]
    {
        assert_eq!(text("{{ text(input_text | number) }}", from).await, to, "{from}");
    }
    assert_eq!(text("{{ text('<' ~ (input_text | to_json) ~ '>') }}", "a\"&").await, r#"<"a\"&">"#);
}

#[tokio::test]
async fn failing_program_is_a_permanent_failure() {
    let bad = [
        ("{{ nope() }}", "unknown function"),
        ("{{ text(inptu_text) }}", "undefined"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}", "fuel"),
        ("{% if %}", "syntax"),
        ("not a reply", "did not render a reply"),
        (r#"{"text": "a", "raw": "b"}"#, "not both"),
        (r#"{"txt": "a"}"#, "txt"),
    ];
    for (script, says) in bad {
        let error = ask(script, &[Message::user("x")]).await.unwrap_err();
        assert_eq!(error.class(), FailureClass::Permanent, "{script}");
        assert!(error.to_string().contains(says), "{script}: {error}");
    }
    assert!(matches!(ask(r#"{"text": ""}"#, &[Message::user("x")]).await, Err(ModelError::Empty)));
}

#[tokio::test(start_paused = true)]
async fn latency_is_waited_under_the_total_clock() {
    let began = tokio::time::Instant::now();
    ask("{{ text('x', latency_ms=1500) }}", &[Message::user("x")]).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_millis(1500));
    let late = ask(r#"{"text": "x", "latency_ms": 3600000}"#, &[Message::user("x")]).await;
    assert!(matches!(late, Err(ModelError::TotalTimeout { .. })));
}

#[tokio::test]
async fn conversation_beyond_window_is_a_context_limit() {
    let model = ScriptedModel::new(NAME, Clocks::default());
    let conversation = messages(&[Message::user("x".repeat(401))]);
    let (reply, _) = ask_with(&model, &ModelSpec::default(), &conversation, Some(100)).await;
    assert_eq!(reply.unwrap_err().class(), FailureClass::ContextLimit);
    let (reply, _) = ask_with(&model, &ModelSpec::default(), &conversation, Some(101)).await;
    reply.unwrap();
}

/// Runs the examples in docs/guide/scripted-model.md unchanged.
#[tokio::test]
async fn the_examples_of_the_documentation_run() {
    let page = include_str!("../../../../docs/guide/scripted-model.md");
    let yaml = page.split("```yaml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let script = yaml.split("script: |").nth(1).unwrap();
    let first = ask(script, &[Message::user("where is order 42?")]).await.unwrap();
    assert_eq!(first.message.calls()[0].arguments, r#"{"id":"42"}"#);
    let result = Message::Tool {
        call_id: "call_1_0".into(),
        name: "look_up_order".into(),
        text: r#"{"state":"sent"}"#.into(),
        files: Vec::new(),
        is_error: false,
    };
    let second = ask(script, &[Message::user("where is order 42?"), first.message, result]).await.unwrap();
    assert_eq!(second.message.text(), r#"{"state":"sent"}"#);

    let jinja = page.split("```jinja").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let wrong = ask(jinja, &[Message::user("x")]).await.unwrap();
    assert_eq!(wrong.message.text(), r#"{"total": 12,"#);
    let right = ask(jinja, &[Message::user("x"), wrong.message, Message::user("not JSON")]).await.unwrap();
    assert_eq!(right.message.text(), r#"{"total":12}"#);
}
