//! The run of a definition over the journal of an attempt: the opening of the conversation and the agent loop.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use longhaul_agent::{
    Agent, Attempt,
    calls::load_skill,
    conversation::JournaledConversation,
    journal::Journal,
    prepare::{
        agent::{prepare, refuse_servers},
        defaults::with_defaults,
        differences::Differences,
        prompt::render,
        tool_list::PinnedTools,
    },
    validators::{effective_validators, is_built_in, with_output_schema},
};
use longhaul_domain::{
    input_parts,
    message::{FileRef, Message},
};
use longhaul_references::instructions;
use longhaul_sdk::{
    AgentConfigProvider, ConfigType, ExecutionResult, Failure, FailureCode, Step, Validator,
    definition::{AnyDefinition, Declarative},
    spec::Runner,
};
use longhaul_store::{
    catalogue::definitions::{AGENT_DEFINITION, MEMORY_DEFINITION, PinnedVersions},
    database::retry::patiently,
    executions::claims::Claimed,
    files::StoredFile,
};
use serde_json::Value;

use crate::{
    agent_definition::AgentDirectly,
    contract,
    deps::{AttemptDeps, Deps},
    memory_update, model_call,
};

/// Start-up time of MCP servers above which observers get an event.
const SLOW_START: Duration = Duration::from_secs(1);

/// Opens the conversation and runs the definition over it.
pub(super) async fn run_definition(
    claimed: &Claimed,
    pinned: &PinnedVersions,
    attempt: &mut Attempt,
    deps: &AttemptDeps,
) -> Step<ExecutionResult> {
    if pinned.definition.key == MEMORY_DEFINITION {
        return Box::pin(update_memory(claimed, pinned, attempt, deps)).await;
    }
    let differences = Differences::read(claimed.overrides.as_deref())?;
    let pinned = model_call::with_schema(pinned, &differences);
    Box::pin(run_with((claimed, differences), &pinned, attempt, deps, None)).await
}

/// Takes what a memory update is for, and runs its definition over that.
async fn update_memory(
    claimed: &Claimed,
    pinned: &PinnedVersions,
    attempt: &mut Attempt,
    deps: &AttemptDeps,
) -> Step<ExecutionResult> {
    let Some(exchanges) = memory_update::take(&attempt.journal, &deps.shared).await? else {
        return Ok(ExecutionResult::Success { output: memory_update::nothing() });
    };
    let pinned = memory_update::without_task(pinned);
    let claimed = (claimed, Differences::read(claimed.overrides.as_deref())?);
    let result = Box::pin(run_with(claimed, &pinned, attempt, deps, Some(exchanges))).await;
    if let Ok(ExecutionResult::Success { output }) = &result {
        memory_update::store(&attempt.journal, output, &deps.shared).await?;
    }
    result
}

/// Runs the definition with `message` as its first message, or that of its prompt.
async fn run_with(
    (claimed, differences): (&Claimed, Differences),
    pinned: &PinnedVersions,
    attempt: &mut Attempt,
    deps: &AttemptDeps,
    message: Option<String>,
) -> Step<ExecutionResult> {
    let shared = &deps.shared;
    let sent: Arc<Value> = serde_json::from_str(&claimed.input).map(Arc::new).map_err(|error| {
        Failure::permanent(FailureCode::INTERNAL_ERROR, format!("the stored input is not JSON: {error}"))
    })?;
    let input = with_defaults(&pinned.definition.input_schema, Arc::clone(&sent))?;
    let agent = started((claimed, differences), pinned, &input, &mut attempt.journal, shared).await?;
    if let Some(output) = agent.profile.output_at_once() {
        return Ok(ExecutionResult::Success { output });
    }
    attempt.begin_memory(&pinned.agent.memory, claimed.depth).await?;
    let references = Box::pin(attempt.journal.retrieve(&agent)).await?;
    let input_bytes = claimed.input.len();
    let open = attempt.open(&agent, &input, async {
        let mut system = render("system prompt", &agent.config.prompt, &input, input_bytes).await?;
        if let Some(instructions) = instructions(&agent.config, &input) {
            system = format!("{system}\n\n{instructions}");
        }
        if let Some(skills) = load_skill::offer(&agent.skills) {
            system = format!("{system}\n\n{skills}");
        }
        let task = async {
            if pinned.definition.key == AGENT_DEFINITION && input_parts::has_lists(&input) {
                return message_of_parts(claimed, &input, shared).await;
            }
            let text = match (message, &pinned.definition.prompt) {
                (Some(message), _) => message,
                (None, Some(template)) => render("prompt", template, &input, input_bytes).await?,
                (None, None) if Arc::ptr_eq(&input, &sent) => claimed.input.clone(),
                (None, None) => input.to_string(),
            };
            Ok(Message::user(text))
        };
        agent.opening(system, references, task).await
    });
    Box::pin(open).await?;
    // A child's end waits for its parent's row: its last turn must not wait with it.
    let has_parent = claimed.depth > 0;
    Box::pin(answered((pinned, has_parent), &agent, &input, attempt, deps)).await
}

/// Runs the definition over the open conversation.
async fn answered(
    (pinned, has_parent): (&PinnedVersions, bool),
    agent: &Agent,
    input: &Value,
    attempt: &mut Attempt,
    deps: &AttemptDeps,
) -> Step<ExecutionResult> {
    let (definition, validators) = runner(pinned, deps)?;
    let is_built_in =
        pinned.definition.runner == Runner::Declarative && validators.iter().all(|v| is_built_in(v.name()));
    attempt.journal.ends_in_one_commit = is_built_in && !has_parent;
    let output_schema = pinned.definition.output_schema.as_ref();
    let mut conversation = JournaledConversation { agent, attempt, input, output_schema };
    let result = if agent.profile.is_single_call() {
        model_call::run(&mut conversation).await
    } else {
        definition.run(&pinned.definition, &validators, input, &mut conversation).await
    };
    if result.is_ok() {
        let journal = &mut attempt.journal;
        journal.replay.note_unread(&mut journal.writer);
    }
    // Accepted detached calls end before the lease does, whatever the result.
    Box::pin(attempt.journal.join_detached(agent)).await?;
    result
}

/// The message of an input with lists of parts, whose files were attached when it was submitted.
async fn message_of_parts(claimed: &Claimed, input: &Value, shared: &Deps) -> Result<Message, Failure> {
    let attached = patiently(shared.store.trouble(), || shared.store.attached_files(claimed.id)).await;
    let attached = attached.map_err(|error| {
        tracing::error!(error = %error, "the files of an execution cannot be read");
        Failure::permanent(FailureCode::INTERNAL_ERROR, "the files of the execution cannot be read")
    })?;
    let files: Vec<FileRef> = attached.iter().map(StoredFile::reference).collect();
    let parts = input_parts::parts(input, &files).map_err(|id| {
        Failure::permanent(FailureCode::FILE_MISSING, format!("the file {id} is not attached to the execution"))
    })?;
    Ok(Message::User { parts })
}

/// Prepares the agent. Observers get an event if its MCP servers start slowly.
async fn started(
    claimed: (&Claimed, Differences),
    pinned: &PinnedVersions,
    input: &Value,
    journal: &mut Journal,
    shared: &Deps,
) -> Step<Arc<Agent>> {
    let recorded = journal.replay.pinned_tools()?;
    let (is_first, began) = (recorded.is_none(), Instant::now());
    let mut prepared = Box::pin(prepared(claimed, pinned, input, recorded, shared));
    if pinned.agent.mcp_servers.is_empty() || !is_first {
        return Ok(prepared.await?);
    }
    let agent = match tokio::time::timeout(SLOW_START, &mut prepared).await {
        Ok(agent) => agent?,
        Err(_slow) => {
            journal.writer.note_starting(pinned.agent.mcp_servers.keys().map(String::as_str).collect()).await?;
            let agent = prepared.await?;
            journal.writer.note_started(began.elapsed()).await?;
            agent
        }
    };
    journal.writer.note_missing_tools(agent.toolbox.missing());
    Ok(agent)
}

/// The agent of a contract run, of a model call, or of any other execution.
async fn prepared(
    (claimed, differences): (&Claimed, Differences),
    pinned: &PinnedVersions,
    input: &Value,
    recorded: Option<PinnedTools>,
    shared: &Deps,
) -> Result<Arc<Agent>, Failure> {
    if claimed.overrides.is_some() {
        refuse_servers(pinned, &shared.agent.tool_servers)?;
        if let Some(run) = contract::run_of(&differences.overrides)? {
            let config = pinned.agent.config(ConfigType::AgenticExecutionDefinition).with(differences.overrides);
            return contract::prepare(config, run, input, recorded, shared).await.map(Arc::new);
        }
    }
    if model_call::is_one(pinned) {
        return model_call::prepare(pinned, differences, &shared.agent);
    }
    prepare((claimed, differences), pinned, input, recorded, &shared.agent).await
}

type Running = (Arc<dyn AnyDefinition>, Vec<Arc<dyn Validator>>);

/// The code of a definition and the validators of its answers.
fn runner(pinned: &PinnedVersions, deps: &AttemptDeps) -> Result<Running, Failure> {
    let (spec, registry) = (&pinned.definition, &deps.shared.validators);
    match spec.runner {
        Runner::Declarative if spec.key == AGENT_DEFINITION && spec.output_schema.is_none() => {
            Ok((Arc::new(AgentDirectly), Vec::new()))
        }
        Runner::Declarative => Ok((Arc::new(Declarative), effective_validators(spec, registry)?)),
        Runner::Rust => {
            let registered = deps.shared.definitions.get(&spec.key).ok_or_else(|| {
                let summary = format!("no definition `{}` is registered on this worker", spec.key);
                Failure::permanent(FailureCode::INVALID_DEFINITION, summary)
            })?;
            let validators = with_output_schema(spec, registered.validators.clone(), registry)?;
            Ok((registered.run.clone(), validators))
        }
        Runner::Remote => {
            let summary = format!("`{}` runs in a worker of its own", spec.key);
            Err(Failure::permanent(FailureCode::INVALID_DEFINITION, summary))
        }
    }
}
