//! The names of span and log fields. What is not listed here does not become a field, which keeps prompts, completions,
//! keys and personal data out of both. Text lives in the journal.
//!
//! The `gen_ai.*` names are those of the OpenTelemetry conventions for models and agents, defined here because the crate of conventions
//! has given them up. `tracing` wants field names as literals in its macros; these constants are for
//! `Span::record` and for tests that hold both equal.

/// Span of a submit, from the request to the commit.
pub const SPAN_SUBMIT: &str = "submit";
/// Span of a claim, which serves many executions.
pub const SPAN_CLAIM: &str = "claim";
/// Span of one attempt; its parent is the submit.
pub const SPAN_ATTEMPT: &str = "attempt";
/// Span of one model call.
pub const SPAN_TURN: &str = "turn";
/// Span of one tool call.
pub const SPAN_CALL: &str = "call";

pub const EXECUTION_ID: &str = "execution.id";
pub const EXECUTION_STATUS: &str = "execution.status";
pub const DEFINITION_KEY: &str = "definition.key";
pub const AGENT_KEY: &str = "agent.key";
pub const ATTEMPT_NUMBER: &str = "attempt.number";
pub const STEP_NAME: &str = "step.name";
pub const TURN_NUMBER: &str = "turn.number";
pub const WAIT_REASON: &str = "wait.reason";
pub const FAILURE_CLASS: &str = "failure.class";
pub const FAILURE_CODE: &str = "failure.code";
pub const QUEUE_NAME: &str = "queue.name";
pub const WORKER_ID: &str = "worker.id";
pub const TENANT_ID: &str = "tenant.id";

/// What is done: [`OPERATION_CHAT`] or [`OPERATION_EXECUTE_TOOL`].
pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
pub const OPERATION_CHAT: &str = "chat";
pub const OPERATION_EXECUTE_TOOL: &str = "execute_tool";
pub const OPERATION_INVOKE_AGENT: &str = "invoke_agent";
pub const GEN_AI_PROVIDER_NAME: &str = "gen_ai.provider.name";
pub const GEN_AI_AGENT_NAME: &str = "gen_ai.agent.name";
pub const GEN_AI_CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
pub const GEN_AI_REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub const GEN_AI_REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
pub const GEN_AI_RESPONSE_MODEL: &str = "gen_ai.response.model";
pub const GEN_AI_RESPONSE_ID: &str = "gen_ai.response.id";
pub const GEN_AI_RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub const GEN_AI_USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const GEN_AI_USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
pub const GEN_AI_TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub const ERROR_TYPE: &str = "error.type";
