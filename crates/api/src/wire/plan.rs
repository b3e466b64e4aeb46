//! Plans the execution of a request: of an agent, a definition, or one call of a model.

use std::{collections::HashSet, time::Duration};

use axum::http::HeaderMap;
use longhaul_domain::{
    DEFAULT_QUEUE, FileId, INTERACTIVE_QUEUE, MAX_DEADLINE,
    message::Message,
    requirements::LOAD_SKILL,
    wire_run::{Wire, WireChoice, WireRun},
};
use longhaul_sdk::spec::{AgentOverrides, AgentSpec, CallerToolSpec, ModelSpec, ToolRef};
use longhaul_store::executions::{
    planned::Pinned,
    submit::{Idempotency, NewExecution},
};
use longhaul_wire::{
    Asked, Choice, Fault, FaultKind, Format, FunctionTool, Item, ModelName, Sampling, content::content_hash,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    names::{model_of, unknown},
    parts::Parts,
    refused::{Answer, Refused},
};
use crate::{
    auth::Principal,
    catalog::{Runnable, Target, check_web_search},
    catalog_error::CatalogError,
    error::ApiError,
    records::MAX_TOOLS,
    routes::executions::{ExecutionError, request::idempotency_key},
    schema,
    state::ApiState,
    traceparent::traceparent_of,
};

/// Time that a caller has for the result of one of its functions.
const RESULT_SECONDS: u32 = 30 * 24 * 3_600;
/// Longest life of a model call outside of a run: its caller has long left.
const CALL_DEADLINE: Duration = Duration::from_secs(24 * 3_600);
/// Time for which a run that is not stored is kept if its answer is never delivered: as long as it may live.
const UNSTORED: Duration = MAX_DEADLINE;
/// Characters of a message that an agent's input repeats, for lists and people: the messages hold it in full.
const PREVIEW: usize = 2_000;

/// Most bytes of a request as its run stores it, without files. Each attempt reads them, and each look at the answer.
const MAX_STORED_BYTES: usize = 8 * 1024 * 1024;

/// A request, and what its wire adds.
pub(super) struct Request {
    pub(super) asked: Asked,
    pub(super) wire: Wire,
    /// Members that the objects of the wire repeat.
    pub(super) echo: Value,
    /// False if the run is erased when its answer was delivered.
    pub(super) is_stored: bool,
    /// True if its caller does not wait for the answer.
    pub(super) is_background: bool,
    pub(super) traceparent: Option<String>,
    pub(super) idempotency: Option<Idempotency>,
    /// Id of the response that it follows, if any.
    pub(super) follows: Option<String>,
    /// What was said before, for a branch of an earlier conversation.
    pub(super) before: Vec<Message>,
    /// Version of the agent that the conversation has.
    pub(super) version: Option<i32>,
}

impl Request {
    /// A request that is stored and waited for, and that follows nothing, with what its headers say.
    ///
    /// # Errors
    /// The idempotency key is malformed.
    pub(super) fn new(asked: Asked, wire: Wire, echo: Value, headers: &HeaderMap) -> Answer<Self> {
        let hash = Sha256::new().chain_update(b"wire\0").chain_update(content_hash(&asked));
        let request_hash = hash.chain_update(echo.to_string()).finalize().to_vec();
        let key = idempotency_key(headers)?;
        Ok(Self {
            asked,
            wire,
            echo,
            is_stored: true,
            is_background: false,
            traceparent: traceparent_of(headers),
            idempotency: key.map(|key| Idempotency { key, request_hash }),
            follows: None,
            before: Vec::new(),
            version: None,
        })
    }

    /// Content of the request within a durable run: the same one is the same call. A restarted program is handed the
    /// same response, so that the id of the one that it follows is the same, too.
    pub(super) fn content(&self) -> [u8; 32] {
        let hash = Sha256::new().chain_update(content_hash(&self.asked)).chain_update(self.wire.as_str());
        hash.chain_update(self.follows.as_deref().unwrap_or_default()).finalize().into()
    }
}

/// An execution that is not stored yet.
pub(super) struct Plan {
    pub(super) execution: NewExecution,
    /// Uploads that its messages name.
    pub(super) files: Vec<FileId>,
    pub(super) kind: Kind,
    /// False if the store was told not to keep it.
    pub(super) is_stored: bool,
}

/// The kind of a run, by which its answers are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind {
    /// Tools whose calls the caller runs; `None` for one call of a model, whose calls all are the caller's.
    pub(super) of_caller: Option<HashSet<String>>,
    /// True if the answer is the member `response` of the output.
    pub(super) is_agent: bool,
}

/// # Errors
/// The model does not exist or may not be used, or a member of the request does not fit it.
pub(super) async fn plan(state: &ApiState, principal: &Principal, request: Request) -> Answer<Plan> {
    let target = match &request.asked.model {
        ModelName::Agent { key, version } => Some((Target::Agent(key.clone()), version.or(request.version))),
        ModelName::Definition { key, version } => Some((Target::Definition(key.clone()), *version)),
        ModelName::Other(_) => None,
    };
    match target {
        Some((target, version)) => plan_run(state, principal, request, (target, version)).await,
        None => {
            let spec = model(state, &request.asked.model_text).await?;
            plan_call(state, principal, request, spec).await
        }
    }
}

/// The model of a name that is neither an agent's nor a definition's.
pub(super) async fn model(state: &ApiState, name: &str) -> Answer<ModelSpec> {
    let offers = state.wire_offers.read(&state.store).await?;
    let named = model_of(name, &state.options.wires.aliases, &offers)?;
    if state.options.wires.allows(name) { Ok(named) } else { Err(unknown(name).into()) }
}

/// A run of an agent or of a definition.
async fn plan_run(
    state: &ApiState,
    principal: &Principal,
    request: Request,
    (target, version): (Target, Option<i32>),
) -> Answer<Plan> {
    let resolved = state.catalog.resolve(principal.tenant(), &target, version).await;
    let runnable = resolved.map_err(|error| of_model(error, &request.asked.model_text))?;
    let agent = (runnable.pinned.agent_version_id, runnable.pinned.agent_key.as_str());
    state.catalog.permit(agent, principal, &state.options.contract.org_id).await?;
    check_web_search(&runnable.agent, state.options.web_search)?;
    let is_agent = matches!(target, Target::Agent(_));
    if let Some(model) = runnable.unpriced(runnable.pinned.budget.as_ref(), &state.prices) {
        return Err(ExecutionError::PriceUnknown { model }.into());
    }
    let tools = caller_tools(&request.asked.tools, Some(&runnable.agent))?;
    let mut parts = Parts::new(state, principal.tenant());
    let (messages, input) = if is_agent {
        let messages = parts.messages(&request.asked.items).await?;
        let input = json!({ "prompt": preview(&messages) });
        (request.before.iter().cloned().chain(messages).collect(), input)
    } else {
        refuse_for_definitions(&request.asked)?;
        (Vec::new(), input_of(&runnable, &request.asked).await?)
    };
    let model = merged(&runnable.agent.model, &request.asked.sampling);
    let own = runnable.agent.tools.iter().filter_map(ToolRef::caller).map(|tool| tool.name.clone());
    let of_caller: HashSet<String> = own.chain(tools.iter().map(|tool| tool.name.clone())).collect();
    let kind = Kind { of_caller: Some(of_caller), is_agent };
    let overrides = AgentOverrides { caller_tools: tools, model, ..AgentOverrides::default() };
    let names = kind.of_caller.iter().flatten().cloned().collect();
    let run = (&*runnable, messages, overrides, Some(names));
    let execution = execution(state, principal, &request, run, input).await?;
    Ok(Plan { execution, files: parts.into_files(), kind, is_stored: request.is_stored })
}

/// One call of a model.
pub(super) async fn plan_call(
    state: &ApiState,
    principal: &Principal,
    request: Request,
    named: ModelSpec,
) -> Answer<Plan> {
    let asked = &request.asked;
    if asked.max_tool_calls.is_some() {
        return Err(Fault::unsupported("max_tool_calls", "is for agents: a model's calls are run by the caller").into());
    }
    let spec = merged(&named, &asked.sampling).unwrap_or(named);
    let runnable = state.catalog.model_call(spec.clone()).await?;
    let tools = caller_tools(&asked.tools, None)?;
    let mut parts = Parts::new(state, principal.tenant());
    let mut messages = parts.messages(&asked.items).await?;
    if let Some(instructions) = &asked.instructions {
        messages.insert(0, Message::system(instructions.clone()));
    }
    let messages = request.before.iter().cloned().chain(messages).collect();
    let overrides = AgentOverrides { caller_tools: tools, model: Some(spec), ..AgentOverrides::default() };
    let execution = execution(state, principal, &request, (&runnable, messages, overrides, None), json!({})).await?;
    let execution = NewExecution { deadline: execution.deadline.min(CALL_DEADLINE), ..execution };
    let kind = Kind { of_caller: None, is_agent: false };
    Ok(Plan { execution, files: parts.into_files(), kind, is_stored: request.is_stored })
}

async fn execution(
    state: &ApiState,
    principal: &Principal,
    request: &Request,
    (runnable, messages, overrides, of_caller): (&Runnable, Vec<Message>, AgentOverrides, Option<Vec<String>>),
    input: Value,
) -> Answer<NewExecution> {
    let asked = &request.asked;
    let run = WireRun {
        wire: request.wire,
        messages,
        // One call of a model has them among its messages.
        instructions: asked.instructions.clone().filter(|_| of_caller.is_some()),
        tool_choice: choice(&asked.choice),
        output_schema: output_schema(&asked.format),
        max_tool_calls: asked.max_tool_calls,
        is_streamed: asked.stream || request.is_background,
        is_stored: request.is_stored,
        strict_tools: asked
            .tools
            .iter()
            .filter(|tool| tool.strict == Some(true))
            .map(|tool| tool.name.clone())
            .collect(),
        of_caller,
        request: request.echo.clone(),
    };
    let wire = serde_json::to_value(run).map_err(|_| ApiError::Internal)?;
    let overrides = AgentOverrides { wire: Some(wire), ..overrides };
    let overrides = serde_json::to_string(&overrides).map_err(|_| ApiError::Internal)?;
    check_size(overrides.len())?;
    let overrides = storable(overrides);
    let serve_key = state.catalog.wire_serve_key(runnable).await?;
    let pinned = Pinned { serve_key, ..runnable.pinned.clone() };
    let id = state.store.new_execution_id().await?;
    if !request.is_stored {
        // Before the run, so that none stays behind that is not noted.
        state.store.keep_unstored(id, UNSTORED).await?;
    }
    let metadata: Map<String, Value> =
        asked.metadata.iter().map(|(name, text)| (name.clone(), Value::from(text.clone()))).collect();
    let queue = if request.is_background { DEFAULT_QUEUE } else { INTERACTIVE_QUEUE };
    Ok(NewExecution {
        queue: queue.to_owned(),
        metadata: Value::Object(metadata),
        submitted_by: Some(principal.key_id()),
        traceparent: request.traceparent.clone(),
        idempotency: request.idempotency.clone(),
        overrides: Some(overrides),
        ..NewExecution::of(id, principal.tenant(), pinned, input.to_string())
    })
}

/// Refuses a request of that many stored bytes if they are more than [`MAX_STORED_BYTES`].
pub(super) fn check_size(bytes: usize) -> Answer<()> {
    if bytes <= MAX_STORED_BYTES {
        return Ok(());
    }
    let message = format!(
        "The conversation, tools and settings of the request have {bytes} bytes as they are stored; the most is \
         {MAX_STORED_BYTES}. Send less of the conversation, or continue it with `previous_response_id`."
    );
    Err(Fault { kind: FaultKind::TooLarge, message, param: None, code: Some("request_too_large".into()) }.into())
}

/// JSON that Postgres can read: a NUL of an earlier reply is U+FFFD, as in the events of its text. Requests have none.
fn storable(json: String) -> String {
    if !json.contains("\\u0000") {
        return json;
    }
    let mut stored = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some((before, escape)) = rest.find('\\').and_then(|at| rest.split_at_checked(at)) {
        let length = if escape.starts_with("\\u") { 6 } else { 2 };
        let (escape, after) = escape.split_at_checked(length).unwrap_or((escape, ""));
        stored.push_str(before);
        stored.push_str(if escape == "\\u0000" { "\\ufffd" } else { escape });
        rest = after;
    }
    stored.push_str(rest);
    stored
}

/// An agent or definition that does not exist is a model that does not exist.
pub(super) fn of_model(error: ApiError, name: &str) -> Refused {
    match error.area::<CatalogError>() {
        Some(
            CatalogError::UnknownAgent(_) | CatalogError::UnknownDefinition(_) | CatalogError::UnknownVersion { .. },
        ) => unknown(name).into(),
        Some(_) | None => error.into(),
    }
}

/// The functions of the request as tools that the caller runs.
fn caller_tools(tools: &[FunctionTool], agent: Option<&AgentSpec>) -> Answer<Vec<CallerToolSpec>> {
    let specs: Vec<CallerToolSpec> = tools
        .iter()
        .map(|tool| {
            let spec = CallerToolSpec::new(&tool.name, tool.description.clone().unwrap_or_default());
            let spec = spec.expires_seconds(RESULT_SECONDS);
            match &tool.parameters {
                Some(parameters) => spec.parameters(parameters.clone()),
                None => spec,
            }
        })
        .collect();
    let taken: Vec<&str> = agent.map(taken_names).unwrap_or_default();
    if specs.len() + taken.len() > MAX_TOOLS {
        return Err(Fault::invalid("tools", format!("there may be {MAX_TOOLS} tools, the agent's included")).into());
    }
    if let Some((index, field, reason)) = CallerToolSpec::problems(&specs, taken).into_iter().next() {
        return Err(Fault::invalid(format!("tools[{index}].{field}"), reason).into());
    }
    for (index, tool) in specs.iter().enumerate() {
        for (field, text) in tool.schemas() {
            if let Err(error) = schema::compile(text) {
                return Err(Fault::invalid(format!("tools[{index}].{field}"), error).into());
            }
        }
    }
    Ok(specs)
}

fn taken_names(agent: &AgentSpec) -> Vec<&str> {
    let own = agent.tools.iter().map(ToolRef::name).chain(agent.latent_tools.iter().map(|tool| tool.name.as_str()));
    own.chain((!agent.skills.is_empty()).then_some(LOAD_SKILL)).collect()
}

/// A model with the parameters of the request; `None` if it has none.
fn merged(model: &ModelSpec, sampling: &Sampling) -> Option<ModelSpec> {
    if *sampling == Sampling::default() {
        return None;
    }
    let mut merged = model.clone();
    merged.temperature = sampling.temperature.or(merged.temperature);
    merged.effort = sampling.effort.or(merged.effort);
    if let Some(most) = sampling.max_output_tokens {
        merged.max_output_tokens = Some(merged.max_output_tokens.map_or(most, |own| own.min(most)));
    }
    merged.extra.extend(sampling.extra.clone());
    Some(merged)
}

fn choice(choice: &Choice) -> WireChoice {
    match choice {
        Choice::Auto => WireChoice::Auto,
        Choice::None => WireChoice::None,
        Choice::Required => WireChoice::Required,
        Choice::Named(name) => WireChoice::Named(name.clone()),
    }
}

fn output_schema(format: &Format) -> Option<Value> {
    match format {
        Format::Text => None,
        Format::Object => Some(json!({ "type": "object" })),
        Format::Schema { schema, .. } => Some(schema.clone()),
    }
}

/// The input of a definition: the JSON text of the last message.
async fn input_of(runnable: &Runnable, asked: &Asked) -> Answer<Value> {
    let text = asked.items.iter().rev().find_map(|item| match item {
        Item::User(parts) => Some(Parts::text_of(parts)),
        Item::System(_) | Item::Assistant { .. } | Item::Result { .. } | Item::Approval { .. } => None,
    });
    let input: Value = serde_json::from_str(&text.unwrap_or_default())
        .map_err(|error| Fault::invalid("input", format!("of a definition is JSON as the last message: {error}")))?;
    let violations = schema::violations(&runnable.input, &input, "/input").await?;
    if violations.is_empty() { Ok(input) } else { Err(ExecutionError::InvalidInput(violations).into()) }
}

fn refuse_for_definitions(asked: &Asked) -> Answer<()> {
    let refuse = |param: &str| Err(Fault::unsupported(param, "is not for a definition, which says it itself").into());
    if asked.instructions.is_some() {
        return refuse("instructions");
    }
    if asked.format != Format::Text {
        return refuse("text.format");
    }
    Ok(())
}

/// The beginning of the last message, for lists and people.
fn preview(messages: &[Message]) -> String {
    let last = messages.iter().rev().find(|message| matches!(message, Message::User { .. }));
    let text = last.or(messages.last()).map(Message::text).unwrap_or_default();
    let cut: String = text.chars().take(PREVIEW).collect();
    if cut.trim().is_empty() { "…".to_owned() } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_nuls_are_replaced() {
        for (text, stored) in
            [("a\0b", "a\u{fffd}b"), ("\\u0000", "\\u0000"), ("\\\0", "\\\u{fffd}"), ("\0\"é", "\u{fffd}\"é")]
        {
            let json = storable(json!({ "t": text }).to_string());
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), json!({ "t": stored }), "{json}");
        }
    }
}
