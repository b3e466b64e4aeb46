//! A prepared contract run: its model, tools and conversation, and its answers where the loop depends on the profile.

use std::{collections::BTreeMap, sync::Arc};

use longhaul_llm::{Message, ModelError};
use longhaul_sdk::{AgentConfig, Failure, ToolSpec};
use longhaul_shared::domain::{
    CallErrorKind, RetryPolicy, ToolCall,
    ascii_json::sorted_ascii,
    contract::{self, CallList, ContractRun, ExecCode, ExecFailure, ModelCall, ToolFault, Transport},
    contract_steps::{Noted, NotedCall, NotedModel},
};
use longhaul_tools::{ServiceTool, Toolbox};
use serde_json::{Value, json};

use super::{
    failure,
    model::{self, BoundModel},
    opening::opening,
    retrieval::Retrieval,
    tools::ContractTool,
};
use crate::{
    agent::{
        Agent,
        journal::{PinnedTools, Reply},
        policy::Policy,
        profile::{CallPosition, Profile, Unreadable},
        tool_list::{Task, ToolList},
    },
    deps::Deps,
};

/// Model calls per run.
const MAX_ROUNDS: u32 = 3;
const OK: u16 = 200;
const BAD_REQUEST: u16 = 400;
/// Status recorded for a call with an unknown outcome.
const UNKNOWN: u16 = 500;

/// A prepared contract run.
#[derive(Debug)]
pub(crate) struct Contract {
    run: ContractRun,
    messages: Vec<contract::Message>,
    /// `None` if the run calls no model.
    model: Option<BoundModel>,
    tools: BTreeMap<String, Arc<ContractTool>>,
    retrieval: Option<Retrieval>,
}

/// Prepares the agent of a contract run. `recorded` holds the pins of an earlier attempt.
///
/// # Errors
/// A failure with one of the contract's nine codes.
pub(crate) async fn prepare(
    config: AgentConfig,
    run: ContractRun,
    input: &Value,
    recorded: Option<PinnedTools>,
    deps: &Deps,
) -> Result<Agent, Failure> {
    let messages = contract::Message::of_input(input);
    let policy = Policy::new(&config.approvals)?;
    let config = narrowed(config);
    let max_bytes = config.limits.max_tool_result_bytes as usize;
    let (mut tools, mut model, mut routes) = (Vec::new(), None, Vec::new());
    if run.deterministic_answer(&messages).is_none() {
        tools = bind_tools(&run, deps, max_bytes)?;
        let (bound, route) = model::bind(&run, recorded.and_then(|pinned| pinned.model), deps).await?;
        (model, routes) = (Some(bound), vec![route]);
    }
    let specs: Vec<ToolSpec> = tools.iter().map(|tool| tool.spec()).collect();
    let services = tools.iter().map(|tool| tool.clone() as Arc<dyn ServiceTool>);
    let toolbox = Toolbox::of_services(services, max_bytes, &deps.tools)?;
    // Arguments are validated by the tools' services; the model still gets the real schemas.
    let lenient: Vec<ToolSpec> =
        specs.iter().map(|spec| ToolSpec { parameters: json!({ "type": "object" }), ..spec.clone() }).collect();
    let task = Task { input, output_schema: None };
    let tool_list = ToolList::new(&config, &lenient, task, Some(specs), &deps.tools.schemas)?;
    let tools = tools.into_iter().map(|tool| (tool.spec().name, tool)).collect();
    let retrieval = Retrieval::of(&run)?;
    let profile = Profile::Contract(Box::new(Contract { run, messages, model, tools, retrieval }));
    Ok(Agent {
        config,
        profile,
        routes,
        toolbox,
        tool_list,
        policy,
        native_output_schema: None,
        retry: RetryPolicy::none(),
    })
}

/// Limits the agent to the contract: catalogue tools only, one call at a time, and no limit on the conversation.
fn narrowed(mut config: AgentConfig) -> AgentConfig {
    config.tools.clear();
    config.mcp_servers.clear();
    config.latent_tools.clear();
    (config.references, config.conditions, config.instances) = (false, false, None);
    config.limits.max_turns = MAX_ROUNDS;
    config.limits.max_parallel_calls = 1;
    config.limits.context_tokens = u32::MAX;
    config
}

/// Binds the run's tools. A tool whose capability is not bound or is switched off blocks the run.
fn bind_tools(run: &ContractRun, deps: &Deps, max_bytes: usize) -> Result<Vec<Arc<ContractTool>>, Failure> {
    let deployment = run.platform_runtime.deployment_slug().map(str::to_owned);
    let bind = |tool: &contract::ContractTool| {
        let capability = tool.transport.capability();
        let binding = run.platform_runtime.required(capability, Some(&tool.tool_ref))?;
        let adapter = match tool.transport {
            Transport::Mcp => "mcp_http",
            Transport::SandboxHttp => "sandbox_http",
        };
        model::check_adapter(&binding, &[adapter])?;
        let http = deps.platform.http.clone();
        Ok(Arc::new(ContractTool::new(tool.clone(), binding, deployment.clone(), http, max_bytes)))
    };
    run.tools.iter().map(bind).collect()
}

impl Contract {
    /// The fixed answer to an input without text and retrieval.
    pub(crate) fn answer_at_once(&self) -> Option<String> {
        self.run.deterministic_answer(&self.messages)
    }

    /// The first messages to the model.
    pub(crate) fn opening(&self, instructions: String, references: Option<String>) -> Vec<Message> {
        opening(Some(instructions), references, &self.messages)
    }

    /// The search to run before the first turn.
    pub(crate) fn retrieval(&self) -> Option<&Retrieval> {
        self.retrieval.as_ref()
    }

    /// The model to pin with the prompt; and true if it must be pinned before any call.
    pub(crate) fn pinned_model(&self) -> Option<(&NotedModel, bool)> {
        self.model.as_ref().map(|model| (&model.noted, model.is_new))
    }

    /// Returns true if a client follows the run as a stream.
    pub(crate) fn is_followed(&self) -> bool {
        self.run.stream
    }

    /// The failure of a reply with calls when no further round is allowed.
    pub(crate) fn last_round(&self, turns: u32) -> Option<Failure> {
        (turns >= MAX_ROUNDS)
            .then(|| ExecFailure::new(ExecCode::InternalError).detail("reason", "tool_round_limit_exceeded").into())
    }

    /// Converts a failed model call.
    pub(crate) fn model_failure(&self, error: &ModelError) -> Failure {
        match &self.model {
            Some(model) => failure::of_model(&model.binding, error).0,
            None => error.to_failure(),
        }
    }

    /// The failure in place of waiting for the provider, as other executions would.
    pub(crate) fn unavailable(&self) -> Failure {
        match &self.model {
            Some(model) => failure::unavailable(&model.binding),
            None => ExecFailure::new(ExecCode::UpstreamUnavailable).into(),
        }
    }

    /// The record's item of a turn, answered or failed with `error`.
    pub(crate) fn noted_turn(&self, turn: u32, error: Option<&ModelError>) -> Vec<NotedCall> {
        let item = |model: &BoundModel| {
            let binding = &model.binding;
            let item = ModelCall {
                provider_slug: binding.slug.clone(),
                provider_key: binding.provider_key.clone(),
                deployment_profile_slug: self.run.platform_runtime.deployment_slug().map(str::to_owned),
                requested_model: model.noted.model_ref.clone(),
                status_code: error.map_or(OK, |error| failure::of_model(binding, error).1),
            };
            Noted::new(CallList::ModelCalls, &item).at(turn, 0)
        };
        self.model.iter().map(item).collect()
    }

    /// Handles an unreadable call: the model gets an error, or the run ends.
    pub(crate) fn unreadable(&self, call: &ToolCall, place: CallPosition) -> Unreadable {
        let Some(tool) = self.tools.get(&call.name) else {
            let message = format!("Tool '{}' is not allowed", longhaul_shared::domain::cut(&call.name, 128));
            let failure = ExecFailure::with_message(ExecCode::ToolNotAllowed, message)
                .detail("tool_name", longhaul_shared::domain::cut(&call.name, 128).into_owned());
            let reply = Reply::plain(json!({ "code": ExecCode::ToolNotAllowed.as_str() }).to_string());
            return Unreadable::Ends(reply, failure.into());
        };
        let (arguments, message) = match serde_json::from_str::<Value>(&call.arguments) {
            Ok(Value::Object(arguments)) => (Value::Object(arguments), "The call could not run"),
            Ok(other) => (other, "Model returned non-object tool arguments"),
            Err(_) => (json!({}), "Model returned invalid tool arguments"),
        };
        let fault = ToolFault {
            code: "invalid_arguments".to_owned(),
            message: message.to_owned(),
            raw_arguments: call.arguments.clone(),
        };
        Unreadable::Told(refused(tool, BAD_REQUEST, arguments, &json!(fault), place))
    }

    /// The reply to a call that may have taken effect before a worker died.
    pub(crate) fn lost(&self, call: &ToolCall, message: &str, place: CallPosition) -> Option<Reply> {
        let tool = self.tools.get(&call.name)?;
        let error = json!({ "code": CallErrorKind::OutcomeUnknown.as_str(), "message": message });
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let reply = refused(tool, UNKNOWN, arguments, &error, place);
        Some(Reply { error: Some(CallErrorKind::OutcomeUnknown), ..reply })
    }
}

fn refused(tool: &ContractTool, status: u16, arguments: Value, error: &Value, place: CallPosition) -> Reply {
    let noted = tool.noted(status, arguments, &Err(error.clone())).at(place.turn, place.index);
    Reply { noted: vec![noted], ..Reply::plain(sorted_ascii(error)) }
}
