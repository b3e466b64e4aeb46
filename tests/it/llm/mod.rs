//! Model clients against an endpoint over real HTTP: requests, replies and failures.

mod clocks;
mod connections;
mod failures;
mod replies;
mod unprocessed;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use longhaul_domain::TenantId;
use longhaul_llm::{
    CacheSpan, ChatModel, Clocks, Message, ModelError, ModelReply, ModelRequest, Models, ModelsError, PromptCache,
    ProviderConfig, ProviderKind, ReplyEvent, ToolChoice,
};
use longhaul_sdk::{ToolEffect, ToolSpec, spec::ModelSpec};
use longhaul_testkit::model::ModelServer;
use serde_json::json;
use uuid::Uuid;

const KEY: &str = "secret-key-0123456789";

/// A whole reply with the text `yes` in OpenAI's format.
const REPLY: &str = r#"{"id":"1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},
    "finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;

/// Both wire formats, each streamed and whole.
const WAYS: [(ProviderKind, bool); 4] = [
    (ProviderKind::OpenAi, true),
    (ProviderKind::OpenAi, false),
    (ProviderKind::Anthropic, true),
    (ProviderKind::Anthropic, false),
];

/// Timeouts long enough for a loaded machine, for tests that do not expect one to expire.
fn patient() -> Clocks {
    let long = Duration::from_secs(30);
    Clocks { connect: long, first_token: long, gap: long, total: long }
}

/// A client of `url` with a key, made as a worker makes it.
fn client(url: &str, kind: ProviderKind, clocks: Clocks) -> Arc<dyn ChatModel> {
    let config = ProviderConfig {
        base_url: Some(url.to_owned()),
        api_key: Some(KEY.into()),
        clocks,
        headers: BTreeMap::from([("x-team".to_owned(), "blue".into())]),
        default_model: Some("some-model".to_owned()),
        ..ProviderConfig::new(kind)
    };
    made(config).unwrap()
}

/// A client of `url` that trusts the certificates of `ca_file`.
fn trusting(url: String, ca_file: Option<PathBuf>) -> Result<Arc<dyn ChatModel>, ModelsError> {
    made(ProviderConfig {
        base_url: Some(url),
        clocks: patient(),
        default_model: Some("some-model".to_owned()),
        ca_file,
        ..ProviderConfig::new(ProviderKind::OpenAi)
    })
}

fn made(config: ProviderConfig) -> Result<Arc<dyn ChatModel>, ModelsError> {
    let models = Models::from_config([("p".to_owned(), config)].into(), "p")?;
    Ok(Arc::clone(models.get(&ModelSpec::default()).unwrap()))
}

fn spec(stream: bool) -> ModelSpec {
    ModelSpec { stream, ..ModelSpec::default() }
}

fn look_up() -> ToolSpec {
    ToolSpec {
        name: "look_up".into(),
        description: "looks something up".into(),
        parameters: json!({ "type": "object" }),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

/// Sends one request; returns its outcome and the events of its stream.
async fn ask(
    client: &Arc<dyn ChatModel>,
    spec: &ModelSpec,
    messages: &[Message],
) -> (Result<ModelReply, ModelError>, Vec<ReplyEvent>) {
    let messages: Vec<Arc<Message>> = messages.iter().cloned().map(Arc::new).collect();
    let tools = [look_up()];
    let request = ModelRequest {
        tenant: TenantId(Uuid::nil()),
        model: spec,
        messages: &messages,
        files: &longhaul_llm::NO_FILES,
        tools: &tools,
        tool_choice: ToolChoice::Auto,
        idempotency_key: "execution-1/turn-1",
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        max_output_tokens: None,
        context_tokens: None,
        output_schema: None,
        cache: Some(PromptCache { key: "conversation-1", span: CacheSpan::Conversation }),
    };
    let mut events = Vec::new();
    let reply = client.complete(request, &mut |event| events.push(event)).await;
    (reply, events)
}

/// Returns the server's outcome for one user message.
async fn outcome(
    server: &ModelServer,
    kind: ProviderKind,
    stream: bool,
    clocks: Clocks,
) -> Result<ModelReply, ModelError> {
    ask(&client(&server.url(), kind, clocks), &spec(stream), &[Message::user("hi")]).await.0
}
