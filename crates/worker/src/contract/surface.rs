//! A prepared contract run: its model, tools and conversation, and its answers where the loop depends on the profile.

use async_trait::async_trait;
use std::{collections::BTreeMap, sync::Arc};

use longhaul_agent::{
    Agent, Reply,
    calls::policy::Policy,
    prepare::{
        profile::{CallPosition, Profile, Retrieved, Unreadable},
        tool_list::{PinnedTools, Task, ToolList},
    },
};
use longhaul_contract::{ContractRun, ExecCode, ExecFailure, ModelCall, ToolFault, Transport};
use longhaul_domain::{
    CallError, CallErrorKind, RetryPolicy, TenantId, ToolCall,
    ascii_json::sorted_ascii,
    cut,
    noted::{CallList, Noted, NotedCall, NotedModel},
};
use longhaul_llm::{Message, ModelError};
use longhaul_sdk::{AgentConfig, Failure, Step, ToolSpec};
use longhaul_tools::{ServiceTool, Toolbox};
use serde_json::{Value, json};

use super::{
    failure,
    model::{self, BoundModel},
    opening::opening,
    platform::Platform,
    retrieval::Retrieval,
    tools::ContractTool,
};
use crate::deps::Deps;

/// Model calls per run.
const MAX_ROUNDS: u32 = 3;
const OK: u16 = 200;
const BAD_REQUEST: u16 = 400;
/// Status recorded for a call with an unknown outcome.
const UNKNOWN: u16 = 500;

/// A prepared contract run: what the agent loop does differently for it.
#[derive(Debug)]
pub(crate) struct Contract {
    run: ContractRun,
    messages: Vec<longhaul_contract::Message>,
    /// `None` if the run calls no model.
    model: Option<BoundModel>,
    tools: BTreeMap<String, Arc<ContractTool>>,
    retrieval: Option<Retrieval>,
    platform: Arc<Platform>,
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
    let messages = longhaul_contract::Message::of_input(input);
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
    let toolbox = Toolbox::of_services(services, max_bytes, &deps.agent.tools)?;
    // Arguments are validated by the tools' services; the model still gets the real schemas.
    let lenient: Vec<ToolSpec> =
        specs.iter().map(|spec| ToolSpec { parameters: json!({ "type": "object" }), ..spec.clone() }).collect();
    let task = Task { input, output_schema: None };
    let tool_list = ToolList::new(&config, &lenient, task, Some(specs), &deps.agent.tools.schemas)?;
    let tools = tools.into_iter().map(|tool| (tool.spec().name, tool)).collect();
    let retrieval = Retrieval::of(&run)?;
    let platform = deps.platform.clone();
    let profile = Box::new(Contract { run, messages, model, tools, retrieval, platform });
    Ok(Agent {
        config,
        profile,
        routes,
        toolbox,
        skills: Vec::new(),
        granted: Vec::new(),
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
    config.skills.clear();
    config.latent_tools.clear();
    (config.references, config.conditions, config.instances) = (false, false, None);
    config.limits.max_turns = MAX_ROUNDS;
    config.limits.max_parallel_calls = 1;
    config.limits.context_tokens = u32::MAX;
    config
}

/// Binds the run's tools. A tool whose capability is not bound or is switched off blocks the run.
fn bind_tools(run: &ContractRun, deps: &Deps, max_bytes: usize) -> Result<Vec<Arc<ContractTool>>, Failure> {
    let bind = |tool: &longhaul_contract::ContractTool| {
        let capability = tool.transport.capability();
        let binding = run.platform_runtime.required(capability, Some(&tool.tool_ref))?;
        let adapter = match tool.transport {
            Transport::Mcp => "mcp_http",
            Transport::SandboxHttp => "sandbox_http",
        };
        model::check_adapter(&binding, &[adapter])?;
        let http = deps.platform.http.clone();
        Ok(Arc::new(ContractTool::new(tool.clone(), binding, run, http, max_bytes)))
    };
    run.tools.iter().map(bind).collect()
}

#[async_trait]
impl Profile for Contract {
    fn takes_part(&self) -> bool {
        false
    }

    /// The fixed answer to an input without text and retrieval.
    fn output_at_once(&self) -> Option<Value> {
        self.run.deterministic_answer(&self.messages).map(|text| json!({ "response": text }))
    }

    fn opening(&self, instructions: &str, references: Option<&str>) -> Option<Vec<Message>> {
        Some(opening(Some(instructions.to_owned()), references.map(str::to_owned), &self.messages))
    }

    fn pinned_model(&self) -> Option<(&NotedModel, bool)> {
        self.model.as_ref().map(|model| (&model.noted, model.is_new))
    }

    fn retrieval(&self) -> Option<&str> {
        self.retrieval.as_ref().map(Retrieval::request)
    }

    async fn retrieve(&self, tenant: TenantId) -> Retrieved {
        match &self.retrieval {
            Some(retrieval) => retrieval.retrieve(&self.platform, tenant).await,
            None => Retrieved { references: Ok(None), noted: Vec::new() },
        }
    }

    fn is_followed(&self) -> bool {
        self.run.stream
    }

    fn check_round(&self, turns: u32) -> Step<()> {
        if turns < MAX_ROUNDS {
            return Ok(());
        }
        let failure = ExecFailure::new(ExecCode::InternalError).detail("reason", "tool_round_limit_exceeded");
        Err(Failure::from(failure).into())
    }

    fn model_failure(&self, error: &ModelError) -> Failure {
        match &self.model {
            Some(model) => failure::of_model(&model.binding, error).0,
            None => error.to_failure(),
        }
    }

    fn instead_of_waiting(&self) -> Option<Failure> {
        Some(match &self.model {
            Some(model) => failure::unavailable(&model.binding),
            None => ExecFailure::new(ExecCode::UpstreamUnavailable).into(),
        })
    }

    fn noted_turn(&self, turn: u32, error: Option<&ModelError>) -> Vec<NotedCall> {
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

    fn unreadable(&self, call: &ToolCall, _error: &CallError, place: CallPosition) -> Unreadable {
        let Some(tool) = self.tools.get(&call.name) else {
            let message = format!("Tool '{}' is not allowed", cut(&call.name, 128));
            let failure = ExecFailure::with_message(ExecCode::ToolNotAllowed, message)
                .detail("tool_name", cut(&call.name, 128).into_owned());
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

    fn lost(&self, call: &ToolCall, error: &CallError, place: CallPosition) -> Reply {
        let Some(tool) = self.tools.get(&call.name) else { return Reply::error(error, call) };
        let told = json!({ "code": CallErrorKind::OutcomeUnknown.as_str(), "message": error.message });
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let reply = refused(tool, UNKNOWN, arguments, &told, place);
        Reply { error: Some(CallErrorKind::OutcomeUnknown), ..reply }
    }
}

fn refused(tool: &ContractTool, status: u16, arguments: Value, error: &Value, place: CallPosition) -> Reply {
    let noted = tool.noted(status, arguments, &Err(error.clone())).at(place.turn, place.index);
    Reply { noted: vec![noted], ..Reply::plain(sorted_ascii(error)) }
}
