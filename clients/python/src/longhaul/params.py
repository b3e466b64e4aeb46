# Written by `python3 clients/generate` from docs/openapi.json: do not edit.
"""Objects of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from . import types


class AccessSpec(TypedDict):
    """Owner and shares of one agent."""

    agent: str
    """Key of the agent."""
    owner_user_id: NotRequired[int | None]
    """Id of the owning user."""
    shares: NotRequired[Sequence[ShareSpec]]
    """Permissions granted to others."""


class AgentExecutionBodyInput(TypedDict):
    """`prompt` or `messages`, a managed `model`, and a search in `retrieval`"""

    messages: NotRequired[Sequence[Mapping[str, Any]]]
    model: NotRequired[str]
    """Id of a managed model"""
    prompt: NotRequired[str]
    retrieval: NotRequired[Mapping[str, Any]]


class AgentExecutionBody(TypedDict):
    """A request to run an agent. Unknown fields are ignored."""

    agent_id: str
    """Key of the agent, perhaps with its version: `support@v3`"""
    agent_version: NotRequired[str]
    """Version of the agent: `v3` or `3`; the newest when absent"""
    group_id: NotRequired[str]
    """The caller's group when absent"""
    input: NotRequired[AgentExecutionBodyInput]
    """`prompt` or `messages`, a managed `model`, and a search in `retrieval`"""
    org_id: NotRequired[str]
    """The caller's organisation when absent"""


class AgentLimits(TypedDict):
    """Limits of one execution. Each has a default."""

    budget: NotRequired[BudgetSpec | None]
    """Budget of one execution and everything it starts, if neither the submit nor the definition sets one."""
    context_tokens: NotRequired[int]
    """The model's context window in tokens; a longer conversation is compressed."""
    max_calls_per_turn: NotRequired[int]
    """Maximum number of calls of one reply; each further call is answered with an error."""
    max_parallel_calls: NotRequired[int]
    """Maximum number of calls that one execution runs at a time; further calls wait."""
    max_state_bytes: NotRequired[int]
    """Maximum total size of the values that calls of one execution write to paths, in bytes, overwritten values
    included.
    """
    max_state_value_bytes: NotRequired[int]
    """Maximum size of one value that a call writes to a path, in bytes."""
    max_tool_result_bytes: NotRequired[int]
    """Maximum size of one tool result shown to the model, in bytes."""
    max_turns: NotRequired[int]
    """Maximum number of turns of one execution."""
    tool_timeout_seconds: NotRequired[int]
    """Maximum duration of one tool call, in seconds."""


class AgentPrompts(TypedDict):
    """System prompts, minijinja templates over `input`."""

    conversation: str
    """Used in conversations, and in executions if there is no other."""
    agentic_execution_definition: NotRequired[str | None]
    """Used in executions."""


class AgentSpec(TypedDict):
    """A configured model with prompts, tools and limits."""

    key: str
    """Unique slug."""
    name: str
    """Display name."""
    prompts: AgentPrompts
    """System prompts by purpose."""
    approvals: NotRequired[ApprovalsSpec]
    """The calls that need a person's approval; see docs/guide/approvals.md."""
    concurrency: NotRequired[Sequence[ConcurrencySpec]]
    """Limits on the number of the agent's executions that run at a time, over all definitions."""
    conditions: NotRequired[bool]
    """Lets calls carry a condition (`_when`). Has an effect only with `references`."""
    contract_retries: NotRequired[bool]
    """Retry failures over the contract, too. Off by default, so that failure codes arrive while the caller waits."""
    datasets: NotRequired[Sequence[str]]
    """Indexes that the agent's executions may search, in their own tenant. Adds the tool `search_dataset`; see
    docs/guide/retrieval.md.
    """
    default_model_ref: NotRequired[str | None]
    """Managed model that the agent uses over the contract when a request names none."""
    description: NotRequired[str | None]
    """Description for people."""
    fork_overrides: NotRequired[bool]
    """Lets callers without the scope `admin` fork the agent's executions with another prompt or model, although all
    tenants share the agent: such a fork uses the agent's tools.
    """
    instances: NotRequired[InstancesSpec | None]
    """Lets calls name an instance (`_instance`): one plan over many items. Has an effect only with `references`."""
    latent_tools: NotRequired[Sequence[LatentToolSpec]]
    """Tools without a handler: the model writes their results itself."""
    limits: NotRequired[AgentLimits]
    """Limits of one execution."""
    mcp_servers: NotRequired[Mapping[str, McpServerSpec]]
    """MCP servers by name; their tools are named `mcp__<server>__<tool>`."""
    memory: NotRequired[MemorySpec]
    """Memory of the agent: of its sessions and executions."""
    model: NotRequired[ModelSpec]
    """The model and its parameters."""
    personality: NotRequired[str | None]
    """The agent's character and manner of speaking: begins the system prompt of its sessions. A minijinja template, as
    the prompts.
    """
    references: NotRequired[bool]
    """Lets calls read each other's results (`†state.x`) and name the place of their own (`_outputPath`); see
    docs/guide/loop.md.
    """
    runtime_constraints: NotRequired[RuntimeConstraints]
    """Requirements of the agent on its environment, over the contract."""
    runtime_prompts: NotRequired[RuntimePrompts]
    """Further texts of the contract."""
    skills: NotRequired[Sequence[str]]
    """Skills that the agent is offered by name and description, and loads when it needs them. Adds the tool
    `load_skill`; see docs/guide/skills.md.
    """
    tool_refs: NotRequired[Sequence[str]]
    """Refs of the tools from the platform's catalogue that the agent has over the agent-execution contract."""
    tools: NotRequired[Sequence[ToolRef]]
    """Tools by name, built in or registered on the worker, and declarations of tools that the caller runs."""


class AnswerBody(TypedDict):
    """Answer to a question."""

    answer: Any
    """Any JSON but null; valid against the question's schema if it has one."""
    answered_by: NotRequired[str | None]
    """Name of the person who answers; the key itself is always recorded."""


class ApprovalRule(TypedDict):
    """A rule for the calls of some tools."""

    access: types.Access
    """Access of a matching call."""
    tool: str
    """The tool's name; `*` matches any characters, as in `mcp__bank__*`."""
    when: NotRequired[str | None]
    """A condition over the resolved arguments, such as `arguments.amount > 100`; without one, the rule matches every
    call.
    """


class ApprovalsSpec(TypedDict):
    """An agent's policy for its calls; without one every call runs."""

    allow_self: NotRequired[bool]
    """True if the API key that submitted the execution may decide."""
    default: NotRequired[types.Access]
    """Access for calls that match no rule."""
    expires_seconds: NotRequired[int]
    """Time for a person's decision or the caller's answer, in seconds. When it passes without a decision, the call
    counts as rejected.
    """
    on_reject: NotRequired[types.OnReject]
    """Effect of a rejection on the run."""
    redact: NotRequired[Mapping[str, Sequence[str]]]
    """Arguments hidden from people, by tool (`*` matches any characters): JSON pointers such as `/token`, where `*`
    matches any one member or item. Arguments that the tool's schema marks `x-secret` or `writeOnly` are always
    hidden.
    """
    rules: NotRequired[Sequence[ApprovalRule]]
    """Rules in order; the first that matches a call decides."""


class ApproveBody(TypedDict):
    """The plan that is approved."""

    version: NotRequired[int | None]
    """Number of the plan that the person has seen; another plan in its place stays unapproved. Any when absent."""


class BatchBody(TypedDict):
    """Several submits; each may also name an `idempotency_key`."""

    executions: Sequence[SubmitBody]


class BindingSpec(TypedDict):
    provider: str
    """Slug of the provider."""
    binding_config: NotRequired[Mapping[str, Any]]
    """Settings of the binding."""
    default_resource_id: NotRequired[str | None]
    """Resource of requests that name none."""
    resource_policy: NotRequired[Mapping[str, Any]]
    """Rules for the resources."""
    resources: NotRequired[Sequence[Any]]
    """Usable resources: ids of managed models, or whole resource objects."""


class BudgetSpec(TypedDict):
    """Spending limits that an execution shares with everything it starts. An absent limit does not apply."""

    max_cost_usd: NotRequired[Usd | None]
    """Maximum cost in US dollars. Every model in use must have a price in the configuration."""
    max_model_calls: NotRequired[int | None]
    """Maximum number of model calls, failed ones included; at least 1."""
    max_tokens: NotRequired[int | None]
    """Maximum number of tokens, sent and received."""
    on_exhausted: NotRequired[types.OnExhausted]
    """Handling of an execution whose next model call exceeds the budget."""


class CallSettings(TypedDict):
    """Settings of the calls of one tool."""

    concurrency: NotRequired[int | None]
    """Maximum number of calls that one execution runs at a time; no limit of its own when absent."""
    detached: NotRequired[types.Detached]
    """Calls that the execution does not wait for."""
    launch: NotRequired[types.Launch | None]
    """The time at which a call starts; follows from the tool's effect when absent."""


class CallerToolSpec(TypedDict):
    """A tool whose calls the caller runs. The execution is parked until the caller has posted the result of each call.

    ``` use longhaul_sdk::{AgentSpec, spec::{CallerToolSpec, ToolRef}}; use serde_json::json;

    let mut agent = AgentSpec::new("support", "You help customers."); let open_file =
    CallerToolSpec::new("open_file", "Shows a file to the user.") .parameters(json!({"type": "object", "properties":
    {"path": {"type": "string"}}, "required": ["path"]})) .expires_seconds(600);
    agent.tools.push(ToolRef::Caller(open_file.clone()));

    let from_json: ToolRef = serde_json::from_value(json!({ "name": "open_file", "runs": "caller", "description":
    "Shows a file to the user.", "expires_seconds": 600, "parameters": {"type": "object", "properties": {"path":
    {"type": "string"}}, "required": ["path"]}, }))?; assert_eq!(from_json, ToolRef::Caller(open_file)); # Ok::<(),
    serde_json::Error>(()) ```
    """

    description: str
    """Description for the model."""
    name: str
    """The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique among the agent's tools."""
    runs: types.RunsAt
    """`caller`."""
    effect: NotRequired[types.ToolEffect]
    """The effect of running a call twice; `side_effect` when absent."""
    expires_seconds: NotRequired[int]
    """Time that the caller has for the result of a call, in seconds; a day when absent."""
    output: NotRequired[Any]
    """JSON Schema of the outputs that the caller posts; any value when absent."""
    parameters: NotRequired[Any]
    """JSON Schema of the arguments; an object."""


class CancelBody(TypedDict):
    """Treatment of a cancelled project's tasks."""

    running_tasks: NotRequired[types.RunningTasks]
    """`finish` (when absent): tasks that run go on to their end. `cancel`: they are cancelled."""


class CatalogueToolSpec(TypedDict):
    """A tool of the catalogue."""

    tool_name: str
    """Name that models call."""
    tool_ref: str
    """Name in `tool_refs`."""
    transport: str
    """`mcp` or `sandbox_http`. An agent with a tool of another transport cannot run."""
    connection_profile_ref: NotRequired[str]
    """`default`. An agent with a tool of another profile cannot run."""
    description: NotRequired[str]
    """Description for models."""
    effect: NotRequired[types.ToolEffect]
    """Effect of running the tool twice."""
    input_schema: NotRequired[Any]
    """JSON Schema of the arguments."""
    offline_compatible: NotRequired[bool]
    """True if the tool may be used in a profile other than `online`."""
    safety_policy: NotRequired[Mapping[str, Any]]
    """`timeout_seconds` and further settings passed to the tool's service."""


class ChatBody(TypedDict):
    """A message to an agent."""

    message: MessageContent
    project_id: NotRequired[str | None]
    """Project that a new session is about."""
    session_id: NotRequired[str | None]
    """Session to continue; a new one begins when absent."""


class ConcurrencySpec(TypedDict):
    """A limit on the executions of a definition or an agent that run at a time, grouped by a key. The limits of the
    newest version apply to executions of every version.
    """

    key: str
    """`tenant`, `definition`, `agent`, or `metadata.` and the path of a value in the execution's metadata. Executions
    without such a value are not limited.
    """
    limit: int
    """Maximum number of running executions for each value of the key; 0 holds all of them back."""


class DecisionBody(TypedDict):
    """Decision on an approval."""

    decision: types.DecisionChoice
    hash: str
    """`hash` of the approval as the decider saw it."""
    arguments: NotRequired[Mapping[str, Any] | None]
    """Arguments of the call or of its replacement. `[redacted]`, where the approval shows it, keeps the value."""
    decided_by: NotRequired[str | None]
    """Name of the person who decides; the key itself is always recorded."""
    reason: NotRequired[str | None]
    """Reason; the model is told why a call was rejected."""
    tool: NotRequired[str | None]
    """Tool that runs instead; the agent's policy is checked for it."""


class DefinitionSpec(TypedDict):
    """An execution type: agent, input schema, and the conditions under which an answer is accepted."""

    agent_key: str
    """The agent that runs it."""
    key: str
    """Unique slug."""
    name: str
    """Display name."""
    active_timeout_seconds: NotRequired[int]
    """Maximum time that workers hold an execution, in seconds; waits are excluded."""
    budget: NotRequired[BudgetSpec | None]
    """Budget of one execution and everything it starts, if the submit sets none; the agent's when absent."""
    concurrency: NotRequired[Sequence[ConcurrencySpec]]
    """Limits on the number of the definition's executions that run at a time."""
    deadline_seconds: NotRequired[int]
    """Maximum lifetime of an execution, in seconds; waits are included."""
    description: NotRequired[str | None]
    """Description for people."""
    failure_codes: NotRequired[Sequence[str]]
    """Failure codes of the definition, in addition to the built-in ones."""
    failure_summary_prompt: NotRequired[str]
    """The prompt that asks the model for the failure summary."""
    input_schema: NotRequired[Any]
    """JSON Schema of the input; any object when absent."""
    max_retries: NotRequired[int]
    """Maximum number of corrections: `n` allows `n + 1` validated answers."""
    output_schema: NotRequired[Any]
    """JSON Schema that the answer must satisfy. When absent, the validators alone decide."""
    prompt: NotRequired[str | None]
    """The first user message, a minijinja template over `input`. When absent, the input as JSON."""
    retry: NotRequired[RetrySpec]
    """Retries by failure class, where they differ from the defaults."""
    runner: NotRequired[types.Runner]
    """The place of the definition's `run()`."""
    validators: NotRequired[Sequence[ValidatorRef]]
    """Validators in order; the first failing one decides the next step."""


class DocumentsBody(TypedDict):
    """Up to 4 MiB of text in documents."""

    documents: Sequence[IncomingDocument]


class EpisodeBody(TypedDict):
    """A change of an episode."""

    content: str
    """The new content, for the whole of the old one."""


class FallbackModel(TypedDict):
    """A model to use when another model's provider is down."""

    accepts: NotRequired[Sequence[types.FileInput] | None]
    """Files that the model takes; as its model when absent."""
    name: NotRequired[str | None]
    """The provider's name for the model; the provider's default when absent."""
    provider: NotRequired[str | None]
    """A provider of the worker's configuration; the model's own when absent."""


class ForkBody(TypedDict):
    """Changes relative to the origin. Fields left out keep the origin's value."""

    from_step: int
    """First step that is not shared: it and all after it are done again. 1: nothing is shared."""
    agent: NotRequired[str | None]
    """Another agent, in its newest version: its prompt, model, tools and policy hold from the fork on. The origin's
    overrides of its own agent are dropped, but for the tools that its caller runs.
    """
    budget: NotRequired[BudgetSpec | None]
    """Another budget; when absent, a new one with the origin's caps."""
    input: NotRequired[Any]
    """Another input, valid against the definition's input schema."""
    model: NotRequired[str | Mapping[str, Any] | None]
    """Another model: its name, or an object whose fields replace those of the agent's `model`."""
    prompt: NotRequired[str | None]
    """Another system prompt, a minijinja template over `input`. Needs the scope `definitions:write`, and also `admin`
    if all tenants share the agent and it does not set `fork_overrides`. The same holds for `model`.
    """


class IncomingDocument(TypedDict):
    """A document to put into an index."""

    id: str
    """The caller's id of the document. The same id again replaces it."""
    text: str
    """Text of the document, not blank, up to 2 MiB."""
    format: NotRequired[types.DocumentFormat]
    """Determines where the text may be cut."""
    metadata: NotRequired[Mapping[str, Any]]
    """Metadata that filters compare with and models see with every chunk; `title` and `uri` name the source."""


class InputPartFile(TypedDict):
    """An uploaded file (`POST /v1/files`)."""

    file_id: str
    type: Literal["file"]


class InputPartText(TypedDict):
    text: str
    type: Literal["text"]


class InstancesSpec(TypedDict):
    """One plan over many items: the meaning of the tokens in `_instance`."""

    over: NotRequired[str | None]
    """Name of an array in the input: instance ① gets its first item as `†input`, ② the second, and so on. When absent,
    the model chooses its own tokens.
    """


class InternalAgentExecutionBodyInput(TypedDict):
    """`prompt` or `messages`, a managed `model`, and a search in `retrieval`"""

    messages: NotRequired[Sequence[Mapping[str, Any]]]
    model: NotRequired[str]
    """Id of a managed model"""
    prompt: NotRequired[str]
    retrieval: NotRequired[Mapping[str, Any]]


class InternalAgentExecutionBody(TypedDict):
    """A request to run an agent. Unknown fields are ignored."""

    agent_id: str
    """Key of the agent, perhaps with its version: `support@v3`"""
    agent_version: NotRequired[str]
    """Version of the agent: `v3` or `3`; the newest when absent"""
    group_id: NotRequired[str]
    """Group within the organisation"""
    input: NotRequired[InternalAgentExecutionBodyInput]
    """`prompt` or `messages`, a managed `model`, and a search in `retrieval`"""
    org_id: NotRequired[str]
    """Organisation that owns the execution"""
    platform_runtime: NotRequired[Mapping[str, Any]]
    """Snapshot of the bindings and their providers"""
    requested_by_role: NotRequired[str]
    """`user` when absent"""
    requested_by_user_id: NotRequired[int]
    runtime_profile: NotRequired[types.RuntimeProfile]


class KeyBody(TypedDict):
    """An API key to create."""

    name: str
    """Name for people."""
    expires_at: NotRequired[datetime | None]
    """End of the key; none when absent. A key that ends gives its own end to the keys it creates, unless they end
    earlier.
    """
    group_id: NotRequired[str | None]
    """Group of the key within `org_id`."""
    org_id: NotRequired[str | None]
    """Organisation of the key; the caller's tenant when absent. Needs the scope `admin`."""
    roles: NotRequired[Sequence[str] | None]
    """Roles whose scopes the key has as well: `viewer`, `operator`, `approver`, `admin`, `superadmin`. The key keeps
    the scopes that they have now.
    """
    scopes: NotRequired[Sequence[str] | None]
    """Scopes, each of which the asking key must have: `executions:read`, `executions:write`, `approvals:decide`,
    `definitions:read`, `definitions:write`, `keys:write`, `audit:read`, `admin`.
    """


class KeyRotationBody(TypedDict):
    """A rotation."""

    expires_at: NotRequired[datetime | None]
    """End of the new key; that of the old one when absent."""
    overlap_seconds: NotRequired[int | None]
    """Time for which the old key is still accepted, in seconds, up to 30 days; a day when absent."""


class LatentToolSpec(TypedDict):
    """A tool without a handler. The model writes the result into `_output` as part of the call."""

    description: str
    """Description for the model."""
    name: str
    """The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique among the agent's tools."""
    output: NotRequired[Any]
    """JSON Schema of the result that the model writes; any value when absent."""
    parameters: NotRequired[Any]
    """JSON Schema of the arguments; an object."""


class LimitBody(TypedDict):
    """The new limit."""

    limit: int
    """Maximum number of concurrent executions for each value of the key; 0 holds all of them back."""


class ManagedModelSpec(TypedDict):
    """A model under its managed id, which requests use."""

    id: str
    """Managed id."""
    display_name: NotRequired[str | None]
    """Name for people. Defaults to the id."""
    metadata: NotRequired[Mapping[str, Any]]
    """Free-form metadata."""
    provider_model_id: NotRequired[str | None]
    """Provider's name of the model. If absent, the worker looks it up in the provider's model list."""


class McpServerSpec(TypedDict):
    """An MCP server: a child process that communicates over its standard streams, or an HTTP endpoint. Set exactly one
    of `command` and `url`.
    """

    allow: NotRequired[Sequence[str]]
    """The tools of the server to use; all when empty."""
    calls: NotRequired[Mapping[str, CallSettings]]
    """Settings of the calls of its tools, by tool name, where they differ from the defaults."""
    command: NotRequired[Sequence[str]]
    """The program and its arguments."""
    effects: NotRequired[Mapping[str, types.ToolEffect]]
    """The effect of running a tool twice, by tool name, where it is known."""
    env: NotRequired[Mapping[str, str]]
    """The environment of the program; values may be references such as `env://TOKEN`."""
    headers: NotRequired[Mapping[str, str]]
    """Request headers; values may be references such as `env://TOKEN`."""
    idempotency_arguments: NotRequired[Mapping[str, str]]
    """The argument that receives a call's idempotency key, by tool name, for servers that do not read the key from the
    request's metadata. The argument is hidden from the model.
    """
    timeout_seconds: NotRequired[int | None]
    """Maximum duration of one call, in seconds."""
    trusted: NotRequired[bool]
    """Trust the server's own hints about the effect of its tools."""
    url: NotRequired[str | None]
    """The streamable-HTTP endpoint."""


class MemorySearchBody(TypedDict):
    """A search in the memory of an agent."""

    agent: str
    """Key of the agent."""
    query: str
    """Words or a question."""
    scope: NotRequired[str]
    """Whole scope; the memory that all users share when absent."""
    top_k: NotRequired[int]
    """Maximum number of episodes, and of facts; 5 when absent."""


class MemorySpec(TypedDict):
    """Settings of an agent's memory; see docs/guide/memory.md."""

    enabled: NotRequired[bool | None]
    """True: sessions and executions are remembered; false: nothing is. When absent, sessions are."""
    prompt_tokens: NotRequired[int]
    """Maximum size of all memories in the prompt, in tokens of about four bytes."""
    recall_top_k: NotRequired[int]
    """Memories in the prompt that fit the message."""
    recent_episodes: NotRequired[int]
    """Newest episodes in the prompt."""
    scope: NotRequired[str | None]
    """`metadata.<path>`: the memory is kept apart by this value of the metadata of the session, or of the execution
    outside sessions. Without a value there is no memory. When absent, all users of a tenant share one.
    """


class MessageBody(TypedDict):
    """A message to an agent."""

    message: MessageContent
    on_busy: NotRequired[types.OnBusy | None]
    """Policy if another message is answered; the session's when absent."""


class ModelSpec(TypedDict):
    """The model and its request parameters. An absent field is not sent."""

    accepts: NotRequired[Sequence[types.FileInput]]
    """Files that the model takes beside text. It is sent a description of any other; text files are sent as text."""
    effort: NotRequired[types.Effort | None]
    """Reasoning effort, for models that support it."""
    extra: NotRequired[Mapping[str, Any]]
    """Further request fields, sent to the provider unchanged."""
    fallback: NotRequired[Sequence[FallbackModel]]
    """Models to use instead, in this order, when the model's provider is down or out of quota for longer than the
    worker's configuration lets an execution wait.
    """
    max_output_tokens: NotRequired[int | None]
    """Maximum length of a reply, in tokens."""
    name: NotRequired[str | None]
    """The provider's name for the model; the provider's default when absent."""
    output: NotRequired[types.OutputMode]
    """The form in which the model returns the answer of a definition with an output schema."""
    provider: NotRequired[str | None]
    """A provider of the worker's configuration; the configured default when absent."""
    script: NotRequired[str | None]
    """The answers of the scripted model: a minijinja program over `messages`, `tools` and `turn`
    (docs/guide/scripted-model.md).
    """
    stream: NotRequired[bool]
    """Request the reply as a stream."""
    strict_tools: NotRequired[bool]
    """Have the provider enforce the schemas of the tools, where a schema can be expressed in the provider's strict
    form. OpenAI-compatible servers only.
    """
    temperature: NotRequired[float | None]
    """Sampling temperature."""


class MonthlyBudget(TypedDict):
    """Caps on all runs of a calendar month together. A run reserves its own budget before it starts."""

    max_cost_usd: NotRequired[Usd | None]
    """Maximum cost in US dollars."""
    max_model_calls: NotRequired[int | None]
    """Maximum number of model calls."""
    max_tokens: NotRequired[int | None]
    """Maximum number of tokens, sent and received."""


class Plan(TypedDict):
    """Tasks, and the phases in which they run."""

    tasks: Sequence[PlannedTask]
    """Tasks, in the order in which ready ones start."""
    phases: NotRequired[Sequence[PlannedPhase]]
    """Phases in order: tasks of a phase start when all tasks of the phases before it have ended. One phase when absent.
    """


class PlanBody(TypedDict):
    """A plan to put."""

    plan: Plan
    version: NotRequired[int | None]
    """Number of the plan that it replaces; another plan in its place is kept. Any when absent."""


class PlannedPhase(TypedDict):
    """A phase of a plan."""

    name: str
    """Name, unique in the plan."""
    execution_strategy: NotRequired[types.ExecutionStrategy | None]
    """Strategy of the phase; the project's when absent."""
    gate: NotRequired[bool]
    """True if the project waits for `POST …/continue` after the phase."""


class PlannedTask(TypedDict):
    """A task of a plan."""

    key: str
    """Name that other tasks refer to, unique in the plan."""
    prompt: str
    """The task for the agent. `{{ tasks.KEY.output }}` stands for the output of a task that it depends on, at most 16
    KiB of it.
    """
    agent: NotRequired[str | None]
    """Agent that carries it out; the project's when absent."""
    depends_on: NotRequired[Sequence[str]]
    """Keys of tasks that must complete before it starts."""
    phase: NotRequired[str | None]
    """Name of its phase; the first when absent."""
    retries: NotRequired[int]
    """Number of times that it is started again when it failed."""
    timeout_seconds: NotRequired[int | None]
    """Longest life of its execution, in seconds, waits included."""
    title: NotRequired[str]
    """Title for people."""


class PlatformSpec(TypedDict):
    """The platform document. Each entry of a list replaces the whole stored entry of the same name."""

    access: NotRequired[Sequence[AccessSpec]]
    """Owners and shares of agents."""
    active_profile: NotRequired[str | None]
    """Slug of the profile that becomes active."""
    kind: NotRequired[str | None]
    """In a file, `platform`; distinguishes the document from an agent or a definition."""
    managed_models: NotRequired[Sequence[ManagedModelSpec]]
    """Models that bindings may list."""
    policy_rules: NotRequired[Sequence[RuleSpec]]
    """Rules for executing agents. A deny always wins."""
    profiles: NotRequired[Sequence[ProfileSpec]]
    """Deployment profiles with all their bindings."""
    providers: NotRequired[Sequence[ProviderSpec]]
    runtime_profile: NotRequired[types.RuntimeProfile | None]
    """Runtime profile of runs that request none."""
    tools: NotRequired[Sequence[CatalogueToolSpec]]
    """Tools that agents may name in `tool_refs`."""


class ProfileSpec(TypedDict):
    slug: str
    bindings: NotRequired[Mapping[str, BindingSpec]]
    """Bindings by capability."""
    display_name: NotRequired[str | None]
    """Name for people. Defaults to the slug."""


class ProjectBody(TypedDict):
    """A project to create."""

    goal: str
    agent: NotRequired[str | None]
    """The same."""
    agent_id: NotRequired[str | None]
    """Agent that makes the plan, and carries out tasks that name no other; exactly one of `agent_id` and `agent`."""
    agents: NotRequired[Sequence[str]]
    """Further agents that tasks may name."""
    budget: NotRequired[BudgetSpec | None]
    """Budget of the planner and all tasks together, in the place of the agents' own."""
    deadline_seconds: NotRequired[int | None]
    """Longest life of the project in seconds; at most 30 days. No end when absent."""
    execution_strategy: NotRequired[types.ExecutionStrategy]
    """`sequential` (one task at a time), `parallel` (all that are ready) or `dag` (when absent; at most
    `max_parallel_tasks` of those that are ready).
    """
    max_parallel_tasks: NotRequired[int]
    """Most tasks that run at a time under `dag`; 8 when absent."""
    metadata: NotRequired[Mapping[str, Any]]
    """Labels of the project."""
    name: NotRequired[str | None]
    """Name for people; the beginning of the goal when absent."""
    needs_approval: NotRequired[bool]
    """True if the plan waits for `POST …/approve`."""
    plan: NotRequired[Plan | None]
    """The plan. When absent, the agent makes one, unless `planner` is false."""
    planner: NotRequired[bool]
    """False to put the plan later."""
    queue: NotRequired[str]
    """Queue of its executions."""


class ProviderSpec(TypedDict):
    adapter_kind: str
    """Protocol of the provider."""
    endpoint_url: str
    """Base URL."""
    provider_key: str
    """Kind of provider, for records."""
    slug: str
    """Name in bindings and records."""
    config: NotRequired[Mapping[str, Any]]
    """Paths, formats, limits and `secret_refs`."""
    description: NotRequired[str]
    """Description for people."""
    display_name: NotRequired[str | None]
    """Name for people. Defaults to the slug."""
    enabled: NotRequired[bool]
    """False disables the provider."""
    healthcheck_url: NotRequired[str | None]
    """URL of the health check. If absent, the provider's health is not checked."""
    provider_origin: NotRequired[str]
    """`local` or `cloud`."""


class RaiseBody(TypedDict):
    """New caps. Each replaces the old one, so repeating a request changes nothing; caps left out stay."""

    max_cost_usd: NotRequired[Usd | None]
    """US dollars; a number or a string."""
    max_model_calls: NotRequired[int | None]
    max_tokens: NotRequired[int | None]


class RedeliverBody(TypedDict):
    """Deliveries to send again: one of the two."""

    delivery_id: NotRequired[str | None]
    """This delivery, which was delivered or given up."""
    failed_since: NotRequired[datetime | None]
    """Those given up that occurred at this time or later, the oldest 10,000."""


class ReleaseBody(TypedDict):
    """Extent of the release. The body may be left out."""

    all: NotRequired[bool]
    """Releases the whole group, a portion at a time and without a canary."""


class ResetBody(TypedDict):
    """The endpoints to reset. An absent `model` or `key` matches any."""

    provider: str
    key: NotRequired[str | None]
    model: NotRequired[str | None]


class RetryBody(TypedDict):
    """Options of a retry. The body may be left out."""

    from_scratch: NotRequired[bool]
    """If true, asks everything again; otherwise keeps the answers from before the failure."""


class RetrySpec(TypedDict):
    """Retries by failure class. An absent class keeps its default (docs/reference/failures.md)."""

    jitter: NotRequired[float | None]
    """Maximum random addition to each delay, as a share of it, 0 to 1. Off by default, so that delays are exact."""
    llm_error_delays_seconds: NotRequired[Sequence[int] | None]
    """Delays in seconds for `llm_error`."""
    max_compressions: NotRequired[int | None]
    """Maximum number of compressions for one request that outgrew the model's context window. Without it, until nothing
    is left to compress.
    """
    max_total: NotRequired[int | None]
    """Maximum number of retries over all classes."""
    tool_error_delays_seconds: NotRequired[Sequence[int] | None]
    """Delays in seconds for `tool_error`."""
    transient_delays_seconds: NotRequired[Sequence[int] | None]
    """Delays in seconds for `transient`; their number is the number of retries."""


class RotateBody(TypedDict):
    """Time for which the former secret signs as well."""

    overlap_seconds: NotRequired[int | None]
    """In seconds, up to 7 days; a day when absent."""


class RuleSpec(TypedDict):
    """An allow or deny rule."""

    effect: str
    """`allow` or `deny`."""
    id: str
    scope: str
    """`user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`."""
    action: NotRequired[str]
    """`execute`, or `*`."""
    resource: NotRequired[str]
    """Key of an agent, or `*`."""


class RunBody(TypedDict):
    """A durable run to begin."""

    key: str
    """Name of the run."""
    budget: NotRequired[BudgetSpec | None]
    """Budget of all calls of a new run together."""
    deadline_seconds: NotRequired[int | None]
    """Longest life of a new run in seconds; at most 30 days, which is also its life when absent."""
    reopen: NotRequired[bool]
    """Goes on with a run that failed or was cancelled, with as much time as it had."""


class RunEndBody(TypedDict):
    """The end of a durable run."""

    status: types.RunEndStatus
    note: NotRequired[str | None]
    """Reason for a failure, for people."""


class RuntimeConstraints(TypedDict):
    """Requirements of an agent on its environment."""

    internet_required: NotRequired[bool]
    """Run only in the runtime profile `online`."""
    sandbox_required: NotRequired[bool]
    """Run only with a bound sandbox."""


class RuntimePrompts(TypedDict):
    """Texts besides the prompts that a run over the contract uses."""

    retrieval_context: NotRequired[str | None]
    """Text placed before retrieved references."""


class ScheduleSpec(TypedDict):
    """Work that is started again and again, or at one later time."""

    key: str
    """Name of the schedule, unique per tenant."""
    agent: NotRequired[str | None]
    """Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`."""
    at: NotRequired[datetime | None]
    """The only tick."""
    budget: NotRequired[BudgetSpec | None]
    """Budget of each run; the definition's or the agent's when absent."""
    catch_up: NotRequired[types.CatchUp]
    """`one` when absent."""
    cron: NotRequired[str | None]
    """Five fields: minute, hour, day of month, month, day of week. Exactly one of `cron`, `interval_seconds` and `at`.
    """
    deadline_seconds: NotRequired[int | None]
    """Maximum lifetime of a run in seconds, waits included; at most 30 days. The definition's when absent."""
    definition: NotRequired[str | None]
    """Definition to run; exactly one of `definition` and `agent`."""
    ends_at: NotRequired[datetime | None]
    """Time after which there is no tick."""
    input: NotRequired[Any]
    """Input of every run; `{}` when absent."""
    interval_seconds: NotRequired[int | None]
    """Seconds from one tick to the next, a minute to a year."""
    metadata: NotRequired[Mapping[str, Any]]
    """Metadata of the runs for filters, at most 16 KiB."""
    monthly_budget: NotRequired[MonthlyBudget | None]
    """Budget of all runs of a calendar month, in the time zone of the schedule."""
    overlap: NotRequired[types.Overlap]
    """`skip` when absent."""
    pause_after: NotRequired[int]
    """Failures in a row after which the schedule is paused; 0 for never, 5 when absent."""
    priority: NotRequired[int]
    """Priority of the runs; higher first."""
    queue: NotRequired[str]
    """Queue of the runs."""
    time_zone: NotRequired[str | None]
    """IANA time zone of `cron`; UTC when absent."""
    version: NotRequired[int | None]
    """Version of the definition or agent; the newest at each tick when absent."""


class SearchBody(TypedDict):
    """A search."""

    query: str
    """Words or a question."""
    filters: NotRequired[Mapping[str, Any] | None]
    """Metadata that results must have: strings, numbers or booleans by key."""
    hybrid_alpha: NotRequired[float | None]
    """Weight of the semantic side of a hybrid search; 0.5 when absent."""
    query_preprocessing: NotRequired[types.Preprocessing | None]
    """`none` when absent."""
    search_method: NotRequired[types.SearchMethod | None]
    """Method of the search; by default `semantic`, or `keyword` if the index holds no embeddings."""
    top_k: NotRequired[int | None]
    """Maximum number of results; 5 when absent."""


class SessionBody(TypedDict):
    """A session to begin."""

    agent: str
    """Agent of the session; its version is pinned."""
    budget: NotRequired[BudgetSpec | None]
    """Budget of all messages together, in the place of the agent's own."""
    metadata: NotRequired[Mapping[str, Any]]
    """Labels of the session."""
    on_busy: NotRequired[types.OnBusy]
    """Policy for a message that arrives while another is answered: `reject`, `enqueue` (when absent), `interrupt` or
    `rollback`.
    """
    project_id: NotRequired[str | None]
    """Project that the session is about: each message is told of its goal, plan and results, and the tool
    `plan_project` plans it.
    """
    version: NotRequired[int | None]
    """Version of the agent; the newest when absent."""


class ShareSpec(TypedDict):
    """One permission granted to one grantee."""

    grantee: str
    """`public`, `user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`."""
    permission: str
    """`view`, `fork`, `execute` or `admin`; `execute` and `admin` permit executing the agent."""


class SignalBody(TypedDict):
    """A signal to an execution."""

    name: str
    """Name that the execution waits for."""
    payload: NotRequired[Any]
    """Any JSON; null when absent."""


class SkillSpec(TypedDict):
    """A skill as in the [Agent Skills](https://agentskills.io/specification) format: a folder with `SKILL.md`."""

    body: str
    """Instructions: `SKILL.md` without its front matter."""
    description: str
    """The tasks that the skill is for, shown to the model before it loads the skill."""
    name: str
    """Name; the name of its folder."""
    files: NotRequired[Mapping[str, str]]
    """Further texts by path in the folder, such as `references/rates.md`."""


class SubmitBody(TypedDict):
    """Body of a submit."""

    agent: NotRequired[str | None]
    """Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`."""
    budget: NotRequired[BudgetSpec | None]
    """Budget of the execution and everything it starts; the definition's or the agent's when absent."""
    deadline_seconds: NotRequired[int | None]
    """Maximum lifetime in seconds, waits included; at most 30 days. The definition's when absent."""
    definition: NotRequired[str | None]
    """Definition to run; exactly one of `definition` and `agent`."""
    idempotency_key: NotRequired[str | None]
    """Idempotency key of an item of a batch; a submit of its own has it in the header `Idempotency-Key`."""
    input: NotRequired[Any]
    """Input, valid against the definition's input schema and kept byte for byte as sent; `{}` when absent, if nothing
    is required. Prompts and tools see it with the schema's defaults. A number may have 128 digits; none is rounded.
    """
    metadata: NotRequired[Mapping[str, Any]]
    """Metadata for filters, at most 16 KiB."""
    priority: NotRequired[int]
    """Priority; higher first."""
    queue: NotRequired[str]
    """Queue."""
    run_at: NotRequired[datetime | None]
    """Earliest start."""
    tools: NotRequired[Sequence[CallerToolSpec]]
    """Further tools, whose calls the caller runs; see docs/guide/caller-tools.md."""
    version: NotRequired[int | None]
    """Version of the definition or agent; the newest when absent."""


class ToolResult(TypedDict):
    """Result of one call: exactly one of `output` and `error`."""

    call_id: str
    hash: str
    """`hash` of the pending call."""
    error: NotRequired[str | None]
    """Message for the model: the call failed."""
    output: NotRequired[Any]
    """Any JSON but null, valid against the tool's output schema if it has one. The model reads a string as it is and
    anything else as JSON.
    """


class ToolResultsBody(TypedDict):
    """Results of calls that the caller ran."""

    results: Sequence[ToolResult]
    """In any order; some of the pending calls or all."""


class ToolSettings(TypedDict):
    """A tool with settings."""

    name: str
    """The registered name."""
    concurrency: NotRequired[int | None]
    """Maximum number of calls of this tool that one execution runs at a time; no limit of its own when absent."""
    detached: NotRequired[types.Detached]
    """Calls that the execution does not wait for."""
    effect: NotRequired[types.ToolEffect | None]
    """The effect of running the tool twice, if it differs from the one the tool declares."""
    launch: NotRequired[types.Launch | None]
    """The time at which a call starts; follows from the tool's effect when absent."""
    on_error: NotRequired[types.OnError]
    """Consequence of a call that fails. Calls with invalid arguments always go back to the model."""
    settings: NotRequired[Any]
    """Passed to the tool unchanged, for instance `allow_private_addresses` of `fetch_url`."""
    timeout_seconds: NotRequired[int | None]
    """Maximum duration of one call, in seconds."""


class ValidatorSettings(TypedDict):
    """A validator with settings."""

    name: str
    """The registered name."""
    settings: NotRequired[Any]
    """Passed to the validator unchanged."""


class WebhookBody(TypedDict):
    """A webhook."""

    url: str
    """Address of the receiver, `https` or `http`. It must be on the public internet, unless the operator allows more.
    Of `slack` an incoming webhook, which no answer shows; of `email` a `mailto` URL with up to 10 addresses.
    """
    description: NotRequired[str | None]
    """Note for people."""
    enabled: NotRequired[bool]
    """False: nothing is sent to it, and what happens meanwhile is not kept for it."""
    kind: NotRequired[types.WebhookKind | None]
    """Form in which it is told; `standard` when absent. It cannot be changed."""
    signing_secret: NotRequired[str | None]
    """Signing secret of the Slack app, which no answer shows. When absent from a replacement, it stays."""
    types: NotRequired[Sequence[str] | None]
    """Types of events that it is told: `execution.finished`, `execution.failed`, `execution.quarantined`,
    `approval.requested`, `question.asked`, `tool_call.requested`. All when absent.
    """


class WireBody(TypedDict):
    """A request as its wire describes it; docs/reference/wires.md says what is honoured."""

    model: NotRequired[str]
    """`agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`"""


class Submit(TypedDict):
    """Fields of a submit."""

    agent: NotRequired[str | None]
    """Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`."""
    budget: NotRequired[BudgetSpec | None]
    """Budget of the execution and everything it starts; the definition's or the agent's when absent."""
    deadline_seconds: NotRequired[int | None]
    """Maximum lifetime in seconds, waits included; at most 30 days. The definition's when absent."""
    definition: NotRequired[str | None]
    """Definition to run; exactly one of `definition` and `agent`."""
    input: NotRequired[Any]
    """Input, valid against the definition's input schema and kept byte for byte as sent; `{}` when absent, if nothing
    is required. Prompts and tools see it with the schema's defaults. A number may have 128 digits; none is rounded.
    """
    metadata: NotRequired[Mapping[str, Any]]
    """Metadata for filters, at most 16 KiB."""
    priority: NotRequired[int]
    """Priority; higher first."""
    queue: NotRequired[str]
    """Queue."""
    run_at: NotRequired[datetime | None]
    """Earliest start."""
    tools: NotRequired[Sequence[CallerToolSpec]]
    """Further tools, whose calls the caller runs; see docs/guide/caller-tools.md."""
    version: NotRequired[int | None]
    """Version of the definition or agent; the newest when absent."""


InputPart = InputPartText | InputPartFile
"""A part of a message."""

MessageContent = str | Sequence[InputPart]
"""A text, or texts and files in order."""

ToolRef = str | CallerToolSpec | ToolSettings
"""A tool by name, with the agent's settings for it, or, with `runs`, the declaration of a tool that the caller runs."""

Usd = float | str
"""An amount in US dollars, exact to nine decimal places and never negative.

In JSON it is a number, or a string for clients that must not round it. Both are read digit by digit.
"""

ValidatorRef = str | ValidatorSettings
"""A validator by name, with settings."""
