# Written by `python3 clients/generate` from docs/openapi.json: do not edit.
"""Objects of answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from ._model import Model

Access = Literal["auto", "ask", "deny"]
"""Access of a call. - `auto`: The call runs. - `ask`: The call runs once a person approves it. - `deny`: The call does
not run; the model is told.
"""

ActiveCallStatus = Literal["running", "waiting"]
"""Status of a call without a result: `waiting` if a person must decide about a call of its tool."""

ActorKind = Literal["key", "person"]
"""Kind of an actor in the audit log."""

ApprovalState = Literal["waiting", "approved", "edited", "replaced", "rejected", "expired", "closed"]
"""State of an approval; `closed`: the execution ended first."""

AttemptOutcome = Literal["finished", "failed", "parked", "retrying", "released", "drained", "lost", "cancelled"]
"""End of an attempt."""

BreakerCause = Literal["outage", "quota", "operator"]
"""Cause of an open circuit breaker."""

CatchUp = Literal["one", "none"]
"""Treatment of ticks that nothing fired in time, because every worker was away. - `one`: One run is started for all of
them. - `none`: No run is started for a tick that is over a minute late.
"""

ContractStatus = Literal["queued", "running", "succeeded", "failed", "blocked", "cancelled"]
"""Status of an execution in the contract. - `queued`: Not claimed by a worker yet. - `running`: Claimed at least once;
running or waiting. - `succeeded`: Ended with a result. - `failed`: Ended without a result. - `blocked`: Ended by
policy. - `cancelled`: Cancelled by a caller.
"""

DecisionChoice = Literal["approve", "edit", "replace", "reject"]
"""Effect of a decision on its call. - `approve`: It runs as proposed. - `edit`: It runs with `arguments`. - `replace`:
`tool` runs with `arguments` instead. - `reject`: It does not run.
"""

DeliveryState = Literal["waiting", "delivered", "failed"]
"""State of a delivery to a webhook."""

Detached = Literal["never", "allowed", "always"]
"""Calls that the execution does not wait for. - `never`: None: the execution waits for every result. - `allowed`: Calls
in which the model sets `_detached: true`: such a call is accepted, and nothing waits for its result. - `always`: All
calls.
"""

DocumentFormat = Literal["text", "markdown"]
"""Format of a document; selects the splitter. - `text`: Split at sentences and paragraphs. - `markdown`: Also split at
headings, lists and code blocks.
"""

EffectState = Literal["intended", "withdrawn", "done", "failed", "reconciled", "unknown"]
"""Known state of a call's effect."""

Effort = Literal["low", "medium", "high"]
"""Reasoning effort of a model; scales the timeouts of a call. - `low`: Short reasoning. - `medium`: Ordinary reasoning.
- `high`: Long reasoning.
"""

EventKind = Literal[
    "submitted",
    "claimed",
    "retrieval",
    "status",
    "turn",
    "text",
    "text_void",
    "call",
    "provider_down",
    "fallback",
    "state_conflict",
    "verdict",
    "correction",
    "reply_cut",
    "compressed",
    "journal_diverged",
    "retrying",
    "parked",
    "released",
    "woken",
    "signal_received",
    "log",
    "progress",
    "budget_raised",
    "approval_requested",
    "approval_decided",
    "approval_expired",
    "question_asked",
    "question_answered",
    "question_expired",
    "tool_call_pending",
    "tool_result_posted",
    "tool_call_expired",
    "child_spawned",
    "child_ended",
    "child_request",
    "child_request_decided",
    "lease_lost",
    "cancel_requested",
    "finished",
    "failed",
]
"""Kind of an event of an execution."""

ExecutionStatus = Literal["PENDING", "IN_PROGRESS", "FINISHED", "FAILED"]
"""State of an execution."""

ExecutionStrategy = Literal["sequential", "parallel", "dag"]
"""Number of tasks that run at a time. What a task depends on ends first under each of them. - `sequential`: One at a
time, in the order of the plan. - `parallel`: All that are ready. The planner is told to make tasks that do not
depend on each other. - `dag`: At most `max_parallel_tasks` of those that are ready.
"""

FailureClass = Literal["transient", "tool_error", "llm_error", "context_limit", "permanent", "human_rejected"]
"""Class of a failure; it decides whether and when the execution is retried."""

FileInput = Literal["pdf", "images"]
"""A kind of files that a model takes. - `images`: PNG, JPEG and WebP."""

FiringKind = Literal["tick", "manual"]
"""Cause of a firing."""

FiringState = Literal["queued", "running", "ended", "over", "skipped"]
"""State of a firing."""

GroupState = Literal["shut", "canary", "releasing"]
"""State of a quarantine group."""

IngestedStatus = Literal["stored", "unchanged"]
"""Outcome for a document: `unchanged` if the index holds the same document already."""

KeyScope = Literal[
    "executions:read",
    "executions:write",
    "approvals:decide",
    "definitions:read",
    "definitions:write",
    "workers:run",
    "keys:write",
    "audit:read",
    "admin",
]
"""Right of a key."""

KeyState = Literal["active", "expired", "revoked"]
"""State of an API key."""

Launch = Literal["eager", "on_close"]
"""The time at which a call starts, once the results it refers to are available. - `eager`: As soon as its arguments
have streamed. The default for read-only and idempotent tools. - `on_close`: After the whole reply has arrived. The
default for tools with side effects: a reply may still fail as a whole.
"""

LimitSource = Literal["definition", "agent", "operator", "session", "sub_agent"]
"""Origin of a concurrency limit."""

NotStarted = Literal[
    "overlap",
    "queue_full",
    "superseded",
    "missed",
    "paused",
    "monthly_budget",
    "unknown_definition",
    "unknown_agent",
    "version_removed",
    "agent_not_allowed",
    "invalid_input",
    "unreadable",
]
"""Reason why a firing started no execution."""

OnBusy = Literal["reject", "enqueue", "interrupt", "rollback"]
"""Policy for a message that arrives while another is answered. - `reject`: The message is refused. - `enqueue`: The
message waits for its turn. - `interrupt`: The execution under way is cancelled; what was said stays. - `rollback`:
The execution under way is cancelled, and its turns are left out of the transcript.
"""

OnError = Literal["tell", "fail"]
"""Consequence of a call that fails. - `tell`: The model is told and continues. - `fail`: The run fails with
`tool_failed`, class `tool_error`.
"""

OnExhausted = Literal["park", "fail"]
"""Handling of an execution whose next model call exceeds its budget. - `park`: Park it until the budget is raised or a
reservation is released. - `fail`: End it as FAILED with `budget_exhausted`.
"""

OnReject = Literal["continue", "end"]
"""Effect of a rejection on the run. - `continue`: The model is told of the rejection and continues. - `end`: The run
ends with `human_rejected`.
"""

OutputMode = Literal["tool", "native", "text"]
"""The form in which the model returns the answer of a definition with an output schema. Each form is validated in the
same way, and an answer in plain text is always accepted. - `tool`: A call of the tool `submit_output`, whose
arguments have the schema. - `native`: Text for which the provider itself enforces the schema, if it can. - `text`:
Plain text.
"""

Overlap = Literal["skip", "queue", "cancel_running"]
"""Treatment of a tick that comes while a run is under way. Two runs of a schedule never overlap. - `skip`: The tick
starts no run. - `queue`: Its run starts when the one under way has ended. - `cancel_running`: The run under way is
cancelled; the tick's run starts when it has ended.
"""

PendingCallKind = Literal["question", "tool_call"]
"""Kind of a call that waits for its caller: `question` for a call of `ask_caller`."""

PostgresState = Literal["up", "down"]
"""State of Postgres."""

Preprocessing = Literal["none", "normalize"]
"""Preprocessing of the query. - `none`: The query is used unchanged. - `normalize`: Normalised with [`normalize()`]."""

ProjectPauseReason = Literal["request", "gate"]
"""Reason for the pause of a project."""

ProjectStatus = Literal[
    "pending",
    "planning",
    "awaiting_approval",
    "approved",
    "in_progress",
    "paused",
    "completed",
    "failed",
    "cancelled",
]
"""Status of a project."""

ProviderHealthState = Literal["unknown", "up", "down"]
"""Last result of a provider's health check."""

QuestionState = Literal["waiting", "answered", "expired", "closed"]
"""State of a question; `closed`: the execution ended first."""

RedisState = Literal["up", "down", "unknown"]
"""State of Redis. Reported, never required: without Redis, workers poll Postgres."""

RelevanceKind = Literal["similarity", "keyword_score", "hybrid_score"]
"""Meaning of a relevance, independent of the provider. Larger is better. - `similarity`: Similarity of embeddings. May
be negative. - `keyword_score`: Keyword score, on the provider's scale. - `hybrid_score`: Fusion of both.
"""

RequestKind = Literal["approval", "question", "tool_call"]
"""Kind of a request to a person or a caller."""

Role = Literal["viewer", "operator", "approver", "admin", "superadmin"]
"""Role of a person, or of a key at its creation: a set of scopes."""

RunEndStatus = Literal["finished", "failed"]
"""End of a durable run, as its program tells it."""

RunStatus = Literal["open", "finished", "failed", "cancelled"]
"""Status of a durable run."""

Runner = Literal["declarative", "rust", "remote"]
"""The place of a definition's `run()`. - `declarative`: In the record itself: any worker with its tools and validators
can run it. - `rust`: In the code of a worker that registered it. - `remote`: In the code of a worker in another
language, which registered it over HTTP (docs/reference/worker-protocol.md).
"""

RunningTasks = Literal["finish", "cancel"]

RunsAt = Literal["caller"]
"""The process that runs the calls of a declared tool. - `caller`: The caller that submitted the execution."""

RuntimeProfile = Literal["online", "offline"]
"""Network access of a run. - `online`: The run may reach external services. - `offline`: The run must not reach
external services.
"""

SchedulePauseReason = Literal["requested", "failures"]
"""Reason for the pause of a schedule."""

ScheduleStatus = Literal["active", "paused", "completed"]
"""Status of a schedule: `completed` if there is no tick any more."""

SchemaState = Literal["current", "missing", "unknown"]
"""State of the database schema: `missing` before `longhaul migrate`, `unknown` while Postgres does not answer."""

ScoreKind = Literal["distance", "similarity", "bm25", "text_match", "ts_rank", "hybrid_score"]
"""Meaning of a provider's score. - `distance`: Smaller is closer; the similarity is 1 minus the distance. -
`similarity`: Larger is closer. - `bm25`: Weaviate's keyword score. - `text_match`: Qdrant's keyword search: a text
matches or does not. - `ts_rank`: PostgreSQL's `ts_rank_cd`. - `hybrid_score`: Score of a fusion.
"""

SearchMethod = Literal["semantic", "keyword", "hybrid"]
"""Search method. - `semantic`: Distance of embeddings. - `keyword`: Keyword match. - `hybrid`: Both, fused."""

SessionStatus = Literal["idle", "running", "waiting", "ended"]
"""Status of a session: `waiting` for a person, a limit, a provider or children."""

StepKind = Literal["retrieval", "prompt", "turn", "call", "verdict", "correction", "compression", "aggregation"]
"""Kind of a step."""

StepState = Literal["intent", "live", "spent"]
"""State of a step."""

StopReason = Literal["end_turn", "requires_action", "budget_reached", "max_turns", "interrupted", "failed"]
"""Reason for the end of a session's turn."""

TaskStatus = Literal["pending", "running", "completed", "failed", "skipped", "cancelled"]
"""Status of a task."""

ToolEffect = Literal["read_only", "idempotent", "side_effect"]
"""The effect of running a tool twice. It decides the handling of a call that may have run before a crash. -
`read_only`: The tool changes nothing: the call is repeated. - `idempotent`: Calls with the same idempotency key take
effect once: the call is repeated with the same key. - `side_effect`: Any other tool: the call is never repeated
blindly; the model is told `outcome_unknown`.
"""

WaitReason = Literal[
    "worker",
    "scheduled",
    "retry_backoff",
    "approval",
    "children",
    "concurrency_limit",
    "rate_limit",
    "budget",
    "provider_down",
    "queue_paused",
    "input",
    "no_worker",
]
"""Reason why an execution waits."""

WebhookDisabledBecause = Literal["caller", "failures", "gone", "key_revoked"]
"""Reason why nothing is sent to a webhook."""

WebhookEventType = Literal[
    "execution.finished",
    "execution.failed",
    "execution.quarantined",
    "approval.requested",
    "question.asked",
    "tool_call.requested",
    "webhook.test",
]
"""Type of an event of a webhook."""

WebhookKind = Literal["standard", "slack", "email"]
"""Form in which a webhook is told. - `standard`: A signed request. - `slack`: A message in Slack, with buttons to
decide on approvals. Needs the scopes `executions:read` and `approvals:decide`. - `email`: An e-mail, with a link to
decide on an approval. Needs the scope `admin` too.
"""

WorkerState = Literal["live", "draining", "late", "dead"]
"""State of a worker."""


class AccessSpec(Model):
    """Owner and shares of one agent."""

    agent: str
    """Key of the agent."""
    owner_user_id: int | None = None
    """Id of the owning user."""
    shares: list[ShareSpec] | None = None
    """Permissions granted to others."""


class AccountPage(Model):
    """Accounts by id."""

    accounts: list[AccountView]
    next_after: str | None
    """Value of `after` for the next page; null at the end."""


class AccountView(Model):
    """A person who signed in with an OpenID Connect provider."""

    created_at: datetime
    disabled_at: datetime | None
    """Since then the person cannot sign in."""
    email: str | None
    group_id: str | None
    id: str
    issuer: str
    """The provider."""
    name: str
    org_id: str
    roles: list[Role]
    """Roles as of the newest sign-in."""
    signed_in_at: datetime
    """Newest sign-in."""
    subject: str
    """Identifier of the person at the provider."""


class ActiveCallView(Model):
    """A call without a result."""

    call_id: str
    status: ActiveCallStatus
    tool: str


class AgentExecution(Model):
    """The record of an execution."""

    agent_ref: str
    """Agent, as requested."""
    agent_version: str
    """Version of the agent; `v1` if unknown."""
    created_at: str
    """Time of acceptance."""
    error: AgentExecutionFailure | None
    """Set if the execution failed."""
    finished_at: str | None
    id: str
    model_ref: str | None
    """Managed model id."""
    result: AgentExecutionResult | None
    """Set if the execution succeeded."""
    runtime_profile: RuntimeProfile
    started_at: str | None
    """Time of the first claim."""
    status: ContractStatus


class AgentExecutionCalls(Model):
    """Calls of a run, by list."""

    embedding_calls: list[dict[str, Any]]
    model_calls: list[dict[str, Any]]
    retrieval_calls: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]


class AgentExecutionCompleteFrame(Model):
    """Data of a `complete` frame."""

    execution: AgentExecution
    status_code: int


class AgentExecutionDeltaFrame(Model):
    """Data of a `delta` frame: the text of an agent without tools."""

    text: str


class AgentExecutionDetails(Model):
    """Facts and calls of an unsuccessful run."""

    calls: AgentExecutionCalls | None = None
    """Calls made before the failure."""


class AgentExecutionEnvelope(Model):
    """`{"execution": …}`."""

    execution: AgentExecution


class AgentExecutionError(Model):
    """Body of every error response: `{"error", "message"[, "details"]}`."""

    error: str
    """Stable code."""
    message: str
    """Message for people."""
    details: dict[str, Any] | None = None
    """Facts. Absent if the request was refused before anything was stored."""


class AgentExecutionErrorFrame(Model):
    """Data of an `error` frame: an error body with its status."""

    error: str
    message: str
    status_code: int
    details: dict[str, Any] | None = None


class AgentExecutionFailure(Model):
    """Error of an unsuccessful run."""

    code: str
    """One of the nine codes, or `cancelled`."""
    message: str
    """Message for people."""
    details: dict[str, Any] | None = None
    """Facts and calls. Omitted if empty."""


class AgentExecutionList(Model):
    """Records, newest first."""

    executions: list[AgentExecution]


class AgentExecutionResult(Model):
    """Result of a successful run."""

    embedding_calls: list[dict[str, Any]]
    model_calls: list[dict[str, Any]]
    output_text: str
    retrieval_calls: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]


class AgentExecutionStatusFrame(Model):
    """Data of a `status` frame: an operation that runs or has ended."""

    completed_at: str | None
    details: Any
    duration_ms: int | None
    id: str
    kind: str
    label: str
    started_at: str
    state: str
    summary: str | None


class AgentLimits(Model):
    """Limits of one execution. Each has a default."""

    budget: BudgetSpec | None = None
    """Budget of one execution and everything it starts, if neither the submit nor the definition sets one."""
    context_tokens: int | None = None
    """The model's context window in tokens; a longer conversation is compressed."""
    max_calls_per_turn: int | None = None
    """Maximum number of calls of one reply; each further call is answered with an error."""
    max_parallel_calls: int | None = None
    """Maximum number of calls that one execution runs at a time; further calls wait."""
    max_state_bytes: int | None = None
    """Maximum total size of the values that calls of one execution write to paths, in bytes, overwritten values
    included.
    """
    max_state_value_bytes: int | None = None
    """Maximum size of one value that a call writes to a path, in bytes."""
    max_tool_result_bytes: int | None = None
    """Maximum size of one tool result shown to the model, in bytes."""
    max_turns: int | None = None
    """Maximum number of turns of one execution."""
    tool_timeout_seconds: int | None = None
    """Maximum duration of one tool call, in seconds."""


class AgentPrompts(Model):
    """System prompts, minijinja templates over `input`."""

    conversation: str
    """Used in conversations, and in executions if there is no other."""
    agentic_execution_definition: str | None = None
    """Used in executions."""


class AgentSpec(Model):
    """A configured model with prompts, tools and limits."""

    key: str
    """Unique slug."""
    name: str
    """Display name."""
    prompts: AgentPrompts
    """System prompts by purpose."""
    approvals: ApprovalsSpec | None = None
    """The calls that need a person's approval; see docs/guide/approvals.md."""
    concurrency: list[ConcurrencySpec] | None = None
    """Limits on the number of the agent's executions that run at a time, over all definitions."""
    conditions: bool | None = None
    """Lets calls carry a condition (`_when`). Has an effect only with `references`."""
    contract_retries: bool | None = None
    """Retry failures over the contract, too. Off by default, so that failure codes arrive while the caller waits."""
    datasets: list[str] | None = None
    """Indexes that the agent's executions may search, in their own tenant. Adds the tool `search_dataset`; see
    docs/guide/retrieval.md.
    """
    default_model_ref: str | None = None
    """Managed model that the agent uses over the contract when a request names none."""
    description: str | None = None
    """Description for people."""
    fork_overrides: bool | None = None
    """Lets callers without the scope `admin` fork the agent's executions with another prompt or model, although all
    tenants share the agent: such a fork uses the agent's tools.
    """
    instances: InstancesSpec | None = None
    """Lets calls name an instance (`_instance`): one plan over many items. Has an effect only with `references`."""
    latent_tools: list[LatentToolSpec] | None = None
    """Tools without a handler: the model writes their results itself."""
    limits: AgentLimits | None = None
    """Limits of one execution."""
    mcp_servers: dict[str, McpServerSpec] | None = None
    """MCP servers by name; their tools are named `mcp__<server>__<tool>`."""
    memory: MemorySpec | None = None
    """Memory of the agent: of its sessions and executions."""
    model: ModelSpec | None = None
    """The model and its parameters."""
    personality: str | None = None
    """The agent's character and manner of speaking: begins the system prompt of its sessions. A minijinja template, as
    the prompts.
    """
    references: bool | None = None
    """Lets calls read each other's results (`†state.x`) and name the place of their own (`_outputPath`); see
    docs/guide/loop.md.
    """
    runtime_constraints: RuntimeConstraints | None = None
    """Requirements of the agent on its environment, over the contract."""
    runtime_prompts: RuntimePrompts | None = None
    """Further texts of the contract."""
    skills: list[str] | None = None
    """Skills that the agent is offered by name and description, and loads when it needs them. Adds the tool
    `load_skill`; see docs/guide/skills.md.
    """
    tool_refs: list[str] | None = None
    """Refs of the tools from the platform's catalogue that the agent has over the agent-execution contract."""
    tools: list[ToolRef] | None = None
    """Tools by name, built in or registered on the worker, and declarations of tools that the caller runs."""


class AgentVersionPage(Model):
    """Newest versions, ordered by key."""

    items: list[AgentVersionView]
    next_after: str | None
    """Value of `?after=` for the next page; null on the last one."""


class AgentVersionView(Model):
    """One version of an agent."""

    created_at: datetime
    key: str
    removed_at: datetime | None
    shared: bool
    """True if all tenants share the version."""
    spec: AgentSpec
    version: int


class AmountsView(Model):
    """Amounts of a budget."""

    cost_usd: float
    model_calls: int
    tokens: int


class Approval(Model):
    """A call that needs a person's approval. Lists leave out `arguments`."""

    agent: str
    """Key of the agent."""
    decided_at: datetime | None
    decided_by: DeciderView | None
    decided_tool: str | None
    """Tool that runs instead."""
    execution_id: str
    expires_at: datetime
    """Without a decision until then, the call is rejected."""
    hash: str
    """SHA-256 over tool and arguments; a decision must name it."""
    id: str
    policy: str | None
    """Rule of the agent that asks for the approval."""
    preview: str
    """Beginning of the arguments, for people."""
    reason: str | None
    requested_at: datetime
    state: ApprovalState
    tool: str
    arguments: dict[str, Any] | None = None
    """Arguments that the tool will get, byte for byte, with references resolved. A value that the agent or the tool's
    schema marks as secret is shown as `[redacted]`; sent back in an edit, `[redacted]` keeps the value.
    """
    decided_arguments: dict[str, Any] | None = None
    """Arguments that replace the proposed ones."""


class ApprovalPage(Model):
    """One page of approvals."""

    approvals: list[Approval]
    """Approvals, newest first."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


class ApprovalRule(Model):
    """A rule for the calls of some tools."""

    access: Access
    """Access of a matching call."""
    tool: str
    """The tool's name; `*` matches any characters, as in `mcp__bank__*`."""
    when: str | None = None
    """A condition over the resolved arguments, such as `arguments.amount > 100`; without one, the rule matches every
    call.
    """


class ApprovalsSpec(Model):
    """An agent's policy for its calls; without one every call runs."""

    allow_self: bool | None = None
    """True if the API key that submitted the execution may decide."""
    default: Access | None = None
    """Access for calls that match no rule."""
    expires_seconds: int | None = None
    """Time for a person's decision or the caller's answer, in seconds. When it passes without a decision, the call
    counts as rejected.
    """
    on_reject: OnReject | None = None
    """Effect of a rejection on the run."""
    redact: dict[str, list[str]] | None = None
    """Arguments hidden from people, by tool (`*` matches any characters): JSON pointers such as `/token`, where `*`
    matches any one member or item. Arguments that the tool's schema marks `x-secret` or `writeOnly` are always
    hidden.
    """
    rules: list[ApprovalRule] | None = None
    """Rules in order; the first that matches a call decides."""


class Artifact(Model):
    """A file that an execution left."""

    created_at: datetime
    file_id: str
    name: str | None
    """Name; a later file of the same name does not replace an earlier one."""
    sha256: str
    """SHA-256 of the bytes, in hexadecimal."""
    size: int
    """Length in bytes."""
    type: str
    """Media type."""


class ArtifactPage(Model):
    """The files of an execution, the oldest first; at most 1,000."""

    artifacts: list[Artifact]


class AttemptPage(Model):
    """Attempts, in order."""

    attempts: list[AttemptView]
    next_after: int | None
    """Value of `?after=` for the next page; null on the last one."""


class AttemptResetFrame(Model):
    """`attempt_reset`: the text of a turn that was sent so far is void."""

    seq: int
    """Number of the event that it tells of"""
    session_id: str
    turn: int


class AttemptView(Model):
    """An ended lease of a worker on the execution."""

    ended_at: datetime
    failure_class: FailureClass | None
    failure_code: str | None
    failure_summary: str | None
    number: int
    outcome: AttemptOutcome
    started_at: datetime
    wait_reason: WaitReason | None
    worker_id: str


class AuditEntryView(Model):
    """A change over the API."""

    actor_id: str
    """Id of the key or the person."""
    actor_kind: ActorKind
    actor_name: str
    """Its name at that time."""
    at: datetime
    """Time of the request."""
    group_id: str | None
    id: str
    method: str
    org_id: str
    """Organisation of the actor."""
    own_request_id: str | None
    """Id of the request that no caller chooses; also the header `Longhaul-Request-Id` of its answer. Null in rows of
    earlier releases.
    """
    request_id: str
    """Id of the request in the log: the caller's, if it sent one."""
    route: str
    """Template of the path."""
    status: int | None
    """Status of the answer; null if the caller left before it."""
    target: str | None
    """Parameters of the path, separated by `/`, or the id of what was created."""


class AuditPage(Model):
    """Changes, newest first."""

    entries: list[AuditEntryView]
    next_cursor: str | None
    """Value of `cursor` for the next page; null at the end."""


class AwaitedEndpointView(Model):
    """Model endpoint that it waits for."""

    ahead: int | None
    """Executions of its tenant before it; counted up to 1000. Null if it stands in no line."""
    calls_per_second: float | None
    """Calls per second that it takes, as far as the fleet has learned."""
    cause: BreakerCause | None
    concurrency: int | None
    """Concurrent calls that the endpoint takes, as far as the fleet has learned."""
    give_up_at: datetime
    """Time at which the execution asks another model, or fails."""
    is_at_least: bool
    """True if there may be more than `ahead`."""
    is_stated: bool
    """True if the provider itself stated `until`."""
    model: str
    other_tenants: int | None
    """Other tenants in the line, which take turns. Null if it stands in no line."""
    provider: str
    served_per_second: float | None
    """Calls that it answered per second lately: how fast the line moves."""
    state: str
    """State of the circuit breaker: `closed`, `open`, `half_open` (one execution probes the endpoint) or `recovering`
    (waiting executions are released in portions).
    """
    until: datetime | None
    """Time of the next probe, while it is open."""


class BatchAnswer(Model):
    """Verdicts in the order of the items."""

    results: list[Verdict]


class BindingView(Model):
    """A capability bound to a provider."""

    binding_config: dict[str, Any]
    default_resource_id: str | None
    provider: str
    resource_policy: dict[str, Any]
    resources: list[Any]


class Bucket(Model):
    """Executions that ended in a span of time."""

    at: datetime
    """Start of the span."""
    ended: int
    failed: int
    """Of these, the failed ones."""


class BudgetSpec(Model):
    """Spending limits that an execution shares with everything it starts. An absent limit does not apply."""

    max_cost_usd: Usd | None = None
    """Maximum cost in US dollars. Every model in use must have a price in the configuration."""
    max_model_calls: int | None = None
    """Maximum number of model calls, failed ones included; at least 1."""
    max_tokens: int | None = None
    """Maximum number of tokens, sent and received."""
    on_exhausted: OnExhausted | None = None
    """Handling of an execution whose next model call exceeds the budget."""


class BudgetView(Model):
    """Budget of an execution and everything it starts."""

    estimated_calls: int
    """Spent calls that were charged at their estimate, because their outcome is unknown."""
    max: CapsView
    on_exhausted: OnExhausted
    """Behaviour when a cap is reached: `park` or `fail`."""
    over_limit: AmountsView
    """Sum and number of charges above what the calls had reserved: a provider wrote more than the limit it was sent, or
    counted more for a prompt than its bytes allow.
    """
    reserved: AmountsView
    """Reserved by model calls under way."""
    root_id: str
    """Execution that owns the budget; for the budget of a session, the session's id without its prefix."""
    spent: AmountsView
    uncosted_calls: int
    """Spent calls whose cost is not known."""
    waiting: int
    """Executions that wait for the budget."""


class CallSettings(Model):
    """Settings of the calls of one tool."""

    concurrency: int | None = None
    """Maximum number of calls that one execution runs at a time; no limit of its own when absent."""
    detached: Detached | None = None
    """Calls that the execution does not wait for."""
    launch: Launch | None = None
    """The time at which a call starts; follows from the tool's effect when absent."""


class CallerToolSpec(Model):
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
    runs: RunsAt
    """`caller`."""
    effect: ToolEffect | None = None
    """The effect of running a call twice; `side_effect` when absent."""
    expires_seconds: int | None = None
    """Time that the caller has for the result of a call, in seconds; a day when absent."""
    output: Any = None
    """JSON Schema of the outputs that the caller posts; any value when absent."""
    parameters: Any = None
    """JSON Schema of the arguments; an object."""


class CapsView(Model):
    """Caps of a budget. Null: not limited."""

    cost_usd: float | None
    model_calls: int | None
    tokens: int | None


class CatalogueToolSpec(Model):
    """A tool of the catalogue."""

    tool_name: str
    """Name that models call."""
    tool_ref: str
    """Name in `tool_refs`."""
    transport: str
    """`mcp` or `sandbox_http`. An agent with a tool of another transport cannot run."""
    connection_profile_ref: str | None = None
    """`default`. An agent with a tool of another profile cannot run."""
    description: str | None = None
    """Description for models."""
    effect: ToolEffect | None = None
    """Effect of running the tool twice."""
    input_schema: Any = None
    """JSON Schema of the arguments."""
    offline_compatible: bool | None = None
    """True if the tool may be used in a profile other than `online`."""
    safety_policy: dict[str, Any] | None = None
    """`timeout_seconds` and further settings passed to the tool's service."""


class ConcurrencySpec(Model):
    """A limit on the executions of a definition or an agent that run at a time, grouped by a key. The limits of the
    newest version apply to executions of every version.
    """

    key: str
    """`tenant`, `definition`, `agent`, or `metadata.` and the path of a value in the execution's metadata. Executions
    without such a value are not limited.
    """
    limit: int
    """Maximum number of running executions for each value of the key; 0 holds all of them back."""


class DeciderView(Model):
    """Key and person that decided."""

    key_id: str
    key_name: str
    person: str | None
    """Name of the person, as the caller stated it."""


class DefinitionSpec(Model):
    """An execution type: agent, input schema, and the conditions under which an answer is accepted."""

    agent_key: str
    """The agent that runs it."""
    key: str
    """Unique slug."""
    name: str
    """Display name."""
    active_timeout_seconds: int | None = None
    """Maximum time that workers hold an execution, in seconds; waits are excluded."""
    budget: BudgetSpec | None = None
    """Budget of one execution and everything it starts, if the submit sets none; the agent's when absent."""
    concurrency: list[ConcurrencySpec] | None = None
    """Limits on the number of the definition's executions that run at a time."""
    deadline_seconds: int | None = None
    """Maximum lifetime of an execution, in seconds; waits are included."""
    description: str | None = None
    """Description for people."""
    failure_codes: list[str] | None = None
    """Failure codes of the definition, in addition to the built-in ones."""
    failure_summary_prompt: str | None = None
    """The prompt that asks the model for the failure summary."""
    input_schema: Any = None
    """JSON Schema of the input; any object when absent."""
    max_retries: int | None = None
    """Maximum number of corrections: `n` allows `n + 1` validated answers."""
    output_schema: Any = None
    """JSON Schema that the answer must satisfy. When absent, the validators alone decide."""
    prompt: str | None = None
    """The first user message, a minijinja template over `input`. When absent, the input as JSON."""
    retry: RetrySpec | None = None
    """Retries by failure class, where they differ from the defaults."""
    runner: Runner | None = None
    """The place of the definition's `run()`."""
    validators: list[ValidatorRef] | None = None
    """Validators in order; the first failing one decides the next step."""


class DefinitionVersionPage(Model):
    """Newest versions, ordered by key."""

    items: list[DefinitionVersionView]
    next_after: str | None
    """Value of `?after=` for the next page; null on the last one."""


class DefinitionVersionView(Model):
    """One version of a definition."""

    created_at: datetime
    key: str
    removed_at: datetime | None
    shared: bool
    """True if all tenants share the version."""
    spec: DefinitionSpec
    version: int


class DeliveryPage(Model):
    """Deliveries, newest first."""

    deliveries: list[DeliveryView]
    next_before: str | None
    """Value of `before` for the next page; null at the end."""


class DeliveryView(Model):
    """An event for one webhook."""

    attempts: int
    delivered_at: datetime | None
    execution_id: str | None
    id: str
    """The header `webhook-id`, the same at each attempt."""
    last_attempt_at: datetime | None
    last_error: str | None
    """Reason why the last attempt failed."""
    last_status: int | None
    """Status of the answer to the last attempt; null if there was none."""
    next_attempt_at: datetime | None
    occurred_at: datetime
    request_id: str | None
    """The approval, question or call that waits for an answer."""
    state: DeliveryState
    type: WebhookEventType
    """Type of the event."""


class DeltaFrame(Model):
    """`delta`: text that the model wrote."""

    offset: int
    """Bytes of the turn's text before this."""
    seq: int
    """Number of the event that it tells of"""
    session_id: str
    text: str
    turn: int
    """Number of the turn."""


class DocumentView(Model):
    """A document of an index."""

    bytes: int
    """Size of its text in bytes."""
    chunks: int
    """Number of its chunks."""
    content_hash: str
    """Hash of everything its chunks are made from. Content with the same hash is not embedded again. Empty until all
    chunks are stored.
    """
    created_at: datetime
    id: str
    """The caller's id of the document."""
    metadata: dict[str, Any]
    """Metadata that filters compare with."""
    updated_at: datetime
    """Time at which its content last changed."""


class DocumentsPage(Model):
    """A page of documents."""

    documents: list[DocumentView]
    next_after: str | None
    """Value of `?after=` for the next page; null on the last one."""


class DoneFrame(Model):
    """`done`: the last frame of a message."""

    execution_id: str
    seq: int
    """Number of the event that it tells of"""
    session_id: str
    stop_reason: StopReason
    token_usage: TokenUsage


class DurableRun(Model):
    """A durable run."""

    attempts: int
    """Starts of the program that have asked for a call."""
    budget: BudgetView | None
    calls: int
    """Model calls recorded so far."""
    created_at: datetime
    deadline_at: datetime
    ended_at: datetime | None
    key: str
    note: str | None
    """Reason for its end, if one was given."""
    status: RunStatus
    usage: RunUsage | None


class EndpointView(Model):
    """A model endpoint: a provider, a model and a key. Listed if it failed or was overloaded within a week."""

    calls_per_second: float | None
    """Calls per second that the fleet has learned the endpoint takes; null: not limited."""
    cause: BreakerCause | None
    concurrency: int | None
    """Concurrent calls that the fleet has learned the endpoint takes; null: not limited."""
    failure_code: str | None
    """The failure that opened it."""
    is_stated: bool
    """True if the provider itself stated `until`."""
    key: str
    """Fingerprint of the endpoint's address and API key; the key itself is not shown."""
    model: str
    probes: int
    """Probes so far."""
    provider: str
    since: datetime | None
    """Time at which it last opened."""
    state: str
    """State of its circuit breaker: `closed`, `open` (no calls), `half_open` (one probe at a time) or `recovering`
    (waiting executions are released in growing portions).
    """
    until: datetime | None
    """Time at which the next probe is allowed."""
    waiting: int
    """Executions that wait with `provider_down`."""
    waiting_for_rate: int
    """Executions that wait with `rate_limit`."""


class EpisodePage(Model):
    """Episodes, newest first."""

    items: list[EpisodeView]
    next_cursor: str | None
    """Value of `?cursor=` for the next page; null on the last one."""


class EpisodeView(Model):
    """An episode of an agent's memory."""

    agent: str
    content: str
    created_at: datetime
    exchange: int | None
    """Number of the message in the session, 1 outside sessions; null if a call of `remember` wrote it."""
    execution_id: str
    """Execution in which it was said."""
    hash: str
    """SHA-256 of the content: `If-Match` of a change."""
    id: str
    scope: str
    """Empty, or the path of the agent's setting and its value."""
    session_id: str | None
    """Session in which it was said; null outside sessions."""
    updated_at: datetime
    version: int
    """Counts changes, from 1."""


class Erased(Model):
    """Executions whose texts are gone."""

    executions: list[str]
    """The execution named, and everything it started."""


class EstimateView(Model):
    """Estimate of the remaining time."""

    basis: str
    """Basis of the estimate, or the reason why there is none."""
    seconds: float | None
    """Seconds from now; null if unknown."""


class EventFrame(Model):
    """`status`, `retry`, `sub_agent`, `approval_request` and `approval_resolved`: an event of the execution with its
    data.
    """

    event: EventKind
    seq: int
    """Number of the event that it tells of"""
    session_id: str


class EventPage(Model):
    """A page of events."""

    events: list[EventView]
    is_over: bool
    """True if no event will follow `last`."""
    last: int
    """Number of the execution's last event."""
    resync: bool
    """True if events after the cursor are no longer kept: read the execution itself."""


class EventView(Model):
    """One event."""

    at: datetime
    data: dict[str, Any] | None
    kind: EventKind
    seq: int
    """Number of the event, from 1; the SSE `id`."""


class Execution(Model):
    """One execution. Lists leave out `input`, `output` and the failure's detail."""

    agent: Versioned
    attempts: int
    cancel_requested_at: datetime | None
    children: int
    """Number of executions it started."""
    created_at: datetime
    deadline_at: datetime
    definition: Versioned
    depth: int
    """Levels below the root."""
    erased_at: datetime | None
    """Time at which its texts were erased; null if they were not."""
    failure: FailureView | None
    finished_at: datetime | None
    forked_from: ForkedFrom | None
    id: str
    links: Links
    metadata: dict[str, Any]
    parent_id: str | None
    """Execution that started it; null if a caller did."""
    priority: int
    queue: str
    retries: Retries
    retry_of: str | None
    root_id: str
    """Topmost execution of its tree; itself if a caller started it."""
    started_at: datetime | None
    status: ExecutionStatus
    tenant: TenantView
    trace_id: str
    """Id of the OpenTelemetry trace that its attempts belong to, in hexadecimal digits."""
    usage: Usage
    wait_reason: WaitReason | None
    wait_until: datetime | None
    worker_id: str | None
    budget: BudgetView | None = None
    """Budget of its tree, if it has one. Left out of lists."""
    input: Any = None
    """Input, byte for byte as it was sent."""
    output: Any = None
    """Output, once FINISHED."""
    requires_action: list[PendingCall] | None = None
    """Calls that wait for the caller; of a root also those of all in its tree. Absent if there are none, and in lists.
    """


class ExecutionPage(Model):
    """A page of executions."""

    executions: list[Execution]
    """Executions, newest first."""
    next_cursor: str | None
    """Cursor of the next page; null on the last one."""


class FactView(Model):
    """A relation."""

    episodes: list[str]
    """Episodes that say so."""
    text: str


class FailureCount(Model):
    """Executions that failed in the same way."""

    class_: FailureClass | None
    code: str
    definition: str
    executions: int


class FailureFrame(Model):
    """`error`: the execution failed; `done` follows."""

    code: str | None
    message: str | None
    seq: int
    """Number of the event that it tells of"""
    session_id: str


class FailureView(Model):
    """Failure of the execution."""

    class_: FailureClass | None
    code: str
    summary: str | None
    detail: Any = None


class FallbackModel(Model):
    """A model to use when another model's provider is down."""

    accepts: list[FileInput] | None = None
    """Files that the model takes; as its model when absent."""
    name: str | None = None
    """The provider's name for the model; the provider's default when absent."""
    provider: str | None = None
    """A provider of the worker's configuration; the model's own when absent."""


class FileView(Model):
    """An upload."""

    created_at: datetime
    expires_at: datetime | None
    """End of the upload. Messages that name it keep the bytes longer."""
    file_id: str
    """Id by which a message names it."""
    name: str | None
    sha256: str
    """SHA-256 of the bytes, in hexadecimal."""
    size: int
    """Length in bytes."""
    type: str
    """Media type, by the bytes."""


class FiringPage(Model):
    """Firings, newest first."""

    firings: list[FiringView]
    next_before: datetime | None
    """Value of `?before=` for the next page; null on the last one."""


class FiringView(Model):
    """A tick that was fired, or a run that was asked for."""

    execution_id: str | None
    failure_code: str | None
    fired_at: datetime
    """Time at which it was fired."""
    first_tick: datetime
    """Oldest tick that it stands for; earlier than `tick` if ticks were missed."""
    kind: FiringKind
    reason: NotStarted | None
    state: FiringState
    """`queued`, `running`, `over`, or `skipped`: nothing was started. `ended`: sub-agents of the run have not."""
    status: ExecutionStatus | None
    tick: datetime
    """The tick; for a manual run, the time of the request."""


class FleetDemand(Model):
    """The work that waits for or runs on workers, and the number of workers that it takes."""

    busy_workers: int
    """Workers that hold a lease."""
    concurrency: int
    """Executions that a worker runs at a time, as assumed for `workers_wanted`."""
    due: int
    """Executions that wait for a worker, counted to 100,000."""
    held: int
    """Executions under a lease."""
    live_workers: int
    """Workers that show signs of life."""
    workers_wanted: int
    """Workers that run everything due and held at once; never fewer than `busy_workers`."""


class ForgottenView(Model):
    """Deleted episodes. Records of conversations are not changed: those named hold the texts until they are deleted."""

    episodes: int
    """Number of episodes."""
    executions: list[str]
    """The same for executions outside sessions."""
    sessions: list[str]
    """Sessions in which it was said, or which recalled it; at most 1,000."""


class ForkedFrom(Model):
    """Origin of a fork."""

    id: str
    step: int
    """First step that is not shared."""


class FoundView(Model):
    """An episode that fits."""

    content: str
    id: str
    relevance: float
    """Larger is better."""


class GroupView(Model):
    """A quarantine group: executions of one tenant with the same definition and agent version."""

    canary: str | None
    """Execution that is tried as the canary."""
    died_builds: list[str]
    """Builds of workers that the group killed."""
    held_since: datetime | None
    """Time since which new executions of this version are held back."""
    state: GroupState
    """`shut` (waits for a worker of a build that the group has not killed), `canary` (one execution is tried) or
    `releasing` (the rest follows).
    """


class HealthView(Model):
    """The model endpoints."""

    endpoints: list[EndpointView]


class HeldWebhookView(Model):
    """A webhook or a channel."""

    id: str
    is_enabled: bool
    kind: str
    """`standard`, `slack` or `email`."""


class HoldingView(Model):
    """The hold on new executions of the same version."""

    definition: str
    group: GroupView
    """Their quarantine group."""
    quarantined: int
    """Executions of this version in quarantine, because they killed their workers."""
    version: int | None


class HoldingsView(Model):
    """Objects that a key or an account wrote and that act after it."""

    is_cut: bool
    """True if a list has more than its 200 entries."""
    queued_messages: list[QueuedMessageView]
    """Messages that wait for their turn; they are answered, unless they are cancelled."""
    schedules: list[str]
    """Keys of its schedules. Those of a revoked key or a disabled account start nothing."""
    webhooks: list[HeldWebhookView]
    """Webhooks and channels that it wrote last. The channels of a revoked key or a disabled account are off."""


class IndexView(Model):
    """A search index."""

    chunks: int
    """Number of chunks."""
    created_at: datetime
    dimension: int | None
    """Numbers per embedding."""
    documents: int
    """Number of documents."""
    embeddings_model: str | None
    """Model of its embeddings; null if it is searched by keywords only."""
    name: str
    """Name of the index."""
    store: str
    """Store of its chunks: `pgvector`, `qdrant_http` or `weaviate_http`."""
    updated_at: datetime
    """Time at which a document was last put or removed."""


class IndexesPage(Model):
    """A page of indexes."""

    indexes: list[IndexView]
    next_after: str | None
    """Value of `?after=` for the next page; null on the last one."""


class Ingested(Model):
    """Outcomes, in the order of the documents."""

    documents: list[IngestedView]
    index: str


class IngestedView(Model):
    """Outcome for one document."""

    chunks: int
    """Number of its chunks."""
    id: str
    status: IngestedStatus


class InstancesSpec(Model):
    """One plan over many items: the meaning of the tokens in `_instance`."""

    over: str | None = None
    """Name of an array in the input: instance ① gets its first item as `†input`, ② the second, and so on. When absent,
    the model chooses its own tokens.
    """


class KeyPage(Model):
    """API keys, newest first."""

    keys: list[KeyView]
    next_cursor: str | None
    """Value of `cursor` for the next page; null at the end."""


class KeyView(Model):
    """An API key, without its secret."""

    created_at: datetime
    expires_at: datetime | None
    group_id: str | None
    id: str
    last_used_at: datetime | None
    """Last use, exact to about a minute."""
    name: str
    org_id: str
    prefix: str
    """Its characters after `lh_`, by which people recognise it."""
    replaced_by: str | None
    """Key that the newest rotation made in its place."""
    revoked_at: datetime | None
    scopes: list[KeyScope]
    state: KeyState


class KeySecretView(KeyView):
    """A new API key with its secret, which no other answer shows."""

    key: str | None = None
    """The key; null in a repeat under the same `Idempotency-Key`."""
    withheld: str | None = None
    """In a repeat, the reason why the secret is not shown."""


class LastFailureView(Model):
    """Failure of its last attempt."""

    attempt: int
    class_: FailureClass | None
    code: str | None
    summary: str | None


class LatentToolSpec(Model):
    """A tool without a handler. The model writes the result into `_output` as part of the call."""

    description: str
    """Description for the model."""
    name: str
    """The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique among the agent's tools."""
    output: Any = None
    """JSON Schema of the result that the model writes; any value when absent."""
    parameters: Any = None
    """JSON Schema of the arguments; an object."""


class LedgerEntryView(Model):
    """A call that may have changed something."""

    attempt: int
    """Attempt that made the call; 0: copied by a retry or a fork."""
    effect: ToolEffect
    """`idempotent` or `side_effect`."""
    finished_at: datetime | None
    idempotency_key: str | None
    """Idempotency key that the tool received."""
    preview: str | None
    seq: int
    """Number of its step."""
    started_at: datetime
    state: EffectState
    """`intended` (may have begun, no result), `withdrawn` (never began), `done`, `failed`, `reconciled` or `unknown` (a
    worker died during the call, and the tool could, or could not, tell its outcome).
    """
    tool: str


class LedgerPage(Model):
    """Calls, in the order of their steps."""

    entries: list[LedgerEntryView]
    next_after: int | None
    """Value of `?after=` for the next page; null on the last one. A page before the last may be empty."""


class LimitSet(Model):
    """The limit that holds from now on."""

    key: str
    limit: int
    shared: bool
    woken: int
    """Executions that waited for the limit and may run now."""


class LimitView(Model):
    """A concurrency limit and its current use."""

    held: int
    """Held slots, over all values."""
    key: str
    """Key that groups executions, with a value if the limit covers only that value."""
    limit: int
    """Maximum number of concurrent executions for each value of the key."""
    shared: bool
    """True if the limit covers all tenants' executions."""
    source: LimitSource
    """`operator` (set here), `definition` or `agent` (part of their newest version)."""
    subject: str | None
    """Definition or agent that has the limit."""
    waiting: int
    """Executions that wait for a slot; counted up to 10000."""


class LimitsPage(Model):
    """A page of limits."""

    limits: list[LimitView]
    next_after: str | None
    """Value of `?after=` for the next page; null on the last one."""


class Links(Model):
    """Links to more about the execution."""

    attempts: str
    cancel: str
    children: str
    """Executions that it started."""
    events: str
    fork: str
    retry: str
    self: str
    steps: str
    tool_results: str
    """Takes the results of calls that the caller runs."""


class LiveWorkersView(Model):
    """Live workers that could run it."""

    count: int
    free: int
    permits: int
    """Maximum number of executions that they run at a time."""


class McpServerSpec(Model):
    """An MCP server: a child process that communicates over its standard streams, or an HTTP endpoint. Set exactly one
    of `command` and `url`.
    """

    allow: list[str] | None = None
    """The tools of the server to use; all when empty."""
    calls: dict[str, CallSettings] | None = None
    """Settings of the calls of its tools, by tool name, where they differ from the defaults."""
    command: list[str] | None = None
    """The program and its arguments."""
    effects: dict[str, ToolEffect] | None = None
    """The effect of running a tool twice, by tool name, where it is known."""
    env: dict[str, str] | None = None
    """The environment of the program; values may be references such as `env://TOKEN`."""
    headers: dict[str, str] | None = None
    """Request headers; values may be references such as `env://TOKEN`."""
    idempotency_arguments: dict[str, str] | None = None
    """The argument that receives a call's idempotency key, by tool name, for servers that do not read the key from the
    request's metadata. The argument is hidden from the model.
    """
    timeout_seconds: int | None = None
    """Maximum duration of one call, in seconds."""
    trusted: bool | None = None
    """Trust the server's own hints about the effect of its tools."""
    url: str | None = None
    """The streamable-HTTP endpoint."""


class MemoryResults(Model):
    """Results of a search, best first."""

    facts: list[FactView]
    """Relations of what the query names."""
    results: list[FoundView]


class MemorySpec(Model):
    """Settings of an agent's memory; see docs/guide/memory.md."""

    enabled: bool | None = None
    """True: sessions and executions are remembered; false: nothing is. When absent, sessions are."""
    prompt_tokens: int | None = None
    """Maximum size of all memories in the prompt, in tokens of about four bytes."""
    recall_top_k: int | None = None
    """Memories in the prompt that fit the message."""
    recent_episodes: int | None = None
    """Newest episodes in the prompt."""
    scope: str | None = None
    """`metadata.<path>`: the memory is kept apart by this value of the metadata of the session, or of the execution
    outside sessions. Without a value there is no memory. When absent, all users of a tenant share one.
    """


class MessagePage(Model):
    """Messages of a transcript, in order."""

    messages: list[MessageView]
    next_after: int | None
    """Value of `?after=` for the next page; null on the last one."""


class MessageView(Model):
    """One message of a transcript."""

    erased: bool
    """True if its text was erased; `message` says so."""
    execution_id: str
    interrupted: bool
    """True if it is a reply that an interrupt cut off."""
    message: dict[str, Any]
    """`role` is `system`, `user`, `assistant` or `tool`. A user's `parts` are texts, images and files."""
    replaces: list[int] | None
    """First and last message that this one stands for, if it is a summary."""
    seq: int
    """Number in the session, from 1."""


class ModelSpec(Model):
    """The model and its request parameters. An absent field is not sent."""

    accepts: list[FileInput] | None = None
    """Files that the model takes beside text. It is sent a description of any other; text files are sent as text."""
    effort: Effort | None = None
    """Reasoning effort, for models that support it."""
    extra: dict[str, Any] | None = None
    """Further request fields, sent to the provider unchanged."""
    fallback: list[FallbackModel] | None = None
    """Models to use instead, in this order, when the model's provider is down or out of quota for longer than the
    worker's configuration lets an execution wait.
    """
    max_output_tokens: int | None = None
    """Maximum length of a reply, in tokens."""
    name: str | None = None
    """The provider's name for the model; the provider's default when absent."""
    output: OutputMode | None = None
    """The form in which the model returns the answer of a definition with an output schema."""
    provider: str | None = None
    """A provider of the worker's configuration; the configured default when absent."""
    script: str | None = None
    """The answers of the scripted model: a minijinja program over `messages`, `tools` and `turn`
    (docs/guide/scripted-model.md).
    """
    stream: bool | None = None
    """Request the reply as a stream."""
    strict_tools: bool | None = None
    """Have the provider enforce the schemas of the tools, where a schema can be expressed in the provider's strict
    form. OpenAI-compatible servers only.
    """
    temperature: float | None = None
    """Sampling temperature."""


class ModelView(Model):
    """A model under the name that requests use."""

    display_name: str
    id: str
    metadata: dict[str, Any]
    provider_model_id: str | None


class MonthView(Model):
    """Amounts of the calendar month."""

    month: str
    """Its first day."""
    reserved: AmountsView
    """Reserved by the run under way."""
    spent: AmountsView
    """Charged by runs that have ended."""


class MonthlyBudget(Model):
    """Caps on all runs of a calendar month together. A run reserves its own budget before it starts."""

    max_cost_usd: Usd | None = None
    """Maximum cost in US dollars."""
    max_model_calls: int | None = None
    """Maximum number of model calls."""
    max_tokens: int | None = None
    """Maximum number of tokens, sent and received."""


class NeededLimitView(Model):
    """A concurrency limit of which it needs a slot."""

    held: int
    held_by_others: int
    """Slots held by other tenants."""
    holders: list[str]
    """Executions of the same tenant that hold slots; at most twenty."""
    is_waited_for: bool
    """True if the execution waits for this limit."""
    key: str
    """Key that groups executions, with this execution's value."""
    limit: int
    source: LimitSource
    subject: str | None
    """Definition or agent that has the limit."""


class Offers(Model):
    """The names that the live workers know. Empty if no worker lives that says so."""

    models: list[str]
    """`<provider>/<model>`, without a provider for the default one. `<provider>/*` where the configuration lists no
    models.
    """
    providers: list[str]
    """Model providers of the configuration."""
    tools: list[str]
    """Registered and built-in tools. Those of MCP servers come with agents."""
    validators: list[str]
    """Registered and built-in validators."""


class OpenChildView(Model):
    """An execution that it started and that is not over."""

    id: str
    status: ExecutionStatus
    wait_reason: WaitReason | None


class OpenRequestView(Model):
    """A request to a person or its caller that it waits for."""

    call_id: str
    expires_at: datetime
    id: str
    kind: RequestKind
    """`tool_call`: its caller runs the call."""
    tool: str


class Overview(Model):
    """Counts of a tenant's executions by state, and its newest ones."""

    counts: dict[str, int]
    """Number of executions by status."""
    recent: Recent
    waiting: list[WaitingCount]
    """Open executions by queue and reason, of the first 20,000 open ones."""


class PendingCall(Model):
    """A call that waits for the caller: `POST /v1/executions/{execution_id}/tool-results` takes its result."""

    arguments: dict[str, Any]
    """Arguments, byte for byte, with references resolved. A key without the scope `executions:write` gets `[redacted]`
    for values that are marked as secret.
    """
    call_id: str
    execution_id: str
    """Execution that made the call: this one, or one below it in its tree."""
    expires_at: datetime
    """Without a result until then, the model reads an error."""
    hash: str
    """Binds a result to this call."""
    kind: PendingCallKind
    """`tool_call`, or `question` for a call of `ask_caller`."""
    name: str
    """Name of the tool."""
    output_schema: dict[str, Any] | None
    """JSON Schema of the output; null if any will do."""
    request_id: str
    """Id of the request; of a question, that of `/v1/questions/{id}`."""
    requested_at: datetime


class Percentiles(Model):
    """Percentiles of a duration; null without any."""

    p50: float | None
    p95: float | None
    p99: float | None


class PlaceView(Model):
    """Place in a line."""

    ahead: int
    """Executions of the same tenant before it; counted up to 1000."""
    is_at_least: bool
    """True if there may be more than `ahead`."""
    other_tenants: int
    """Other tenants that wait in the same line. Tenants take turns by their usage."""


class Plan(Model):
    """Tasks, and the phases in which they run."""

    tasks: list[PlannedTask]
    """Tasks, in the order in which ready ones start."""
    phases: list[PlannedPhase] | None = None
    """Phases in order: tasks of a phase start when all tasks of the phases before it have ended. One phase when absent.
    """


class PlanView(Model):
    """A plan and its number."""

    plan: Plan
    version: int
    """0 without a plan."""


class PlannedPhase(Model):
    """A phase of a plan."""

    name: str
    """Name, unique in the plan."""
    execution_strategy: ExecutionStrategy | None = None
    """Strategy of the phase; the project's when absent."""
    gate: bool | None = None
    """True if the project waits for `POST …/continue` after the phase."""


class PlannedTask(Model):
    """A task of a plan."""

    key: str
    """Name that other tasks refer to, unique in the plan."""
    prompt: str
    """The task for the agent. `{{ tasks.KEY.output }}` stands for the output of a task that it depends on, at most 16
    KiB of it.
    """
    agent: str | None = None
    """Agent that carries it out; the project's when absent."""
    depends_on: list[str] | None = None
    """Keys of tasks that must complete before it starts."""
    phase: str | None = None
    """Name of its phase; the first when absent."""
    retries: int | None = None
    """Number of times that it is started again when it failed."""
    timeout_seconds: int | None = None
    """Longest life of its execution, in seconds, waits included."""
    title: str | None = None
    """Title for people."""


class PlatformView(Model):
    """The current platform."""

    access: list[AccessSpec]
    """Access to agents, as in the document."""
    active_profile: str | None
    managed_models: list[ModelView]
    policy_rules: list[RuleSpec]
    """Policy rules, as in the document."""
    profiles: list[ProfileView]
    providers: list[ProviderView]
    runtime_profile: RuntimeProfile | None
    tools: list[CatalogueToolSpec]
    """Tools, as in the document of `PUT /v1/platform`."""


class Problem(Model):
    """Body of every error response."""

    code: str
    """Stable name of the error; docs/reference/api.md lists them."""
    detail: str
    """Description for people. May change."""
    status: int
    """HTTP status."""
    title: str
    """HTTP reason phrase of the status."""
    type: str
    """`urn:longhaul:error:<code>`."""
    errors: list[Violation] | None = None
    """All violations of the request, at most 20."""
    execution_id: str | None = None
    """The execution that the error is about."""


class ProfileView(Model):
    """A deployment profile."""

    bindings: dict[str, BindingView]
    display_name: str
    is_active: bool
    slug: str


class ProjectEventPage(Model):
    """Events in order."""

    events: list[ProjectEventView]


class ProjectEventView(Model):
    """An event of a project."""

    at: datetime
    data: dict[str, Any]
    kind: str
    seq: int
    """Number, from 1, without gaps."""


class ProjectPage(Model):
    """Projects, newest first."""

    next_before: str | None
    """Value of `?before=` for the next page; null on the last one."""
    projects: list[ProjectView]


class ProjectView(Model):
    """A project."""

    agent: str
    """Agent of tasks that name no other."""
    budget: BudgetView | None
    created_at: datetime
    deadline_at: datetime | None
    execution_strategy: ExecutionStrategy
    failure_code: str | None
    failure_summary: str | None
    finished_at: datetime | None
    goal: str
    id: str
    max_parallel_tasks: int
    metadata: dict[str, Any]
    name: str
    needs_approval: bool
    pause_reason: ProjectPauseReason | None
    phase: str | None
    """Phase that runs."""
    plan_version: int
    """Number of the plan; 0 without one."""
    planner_execution_id: str | None
    """Execution that made the plan."""
    started_at: datetime | None
    status: ProjectStatus
    """`pending` (no plan), `planning`, `awaiting_approval`, `approved` (waits for its turn to run), `in_progress`,
    `paused`, `completed`, `failed` or `cancelled`.
    """
    tasks: dict[str, int]
    """Numbers of tasks by status."""


class ProviderHealthView(Model):
    """Last result of a provider's `healthcheck_url`."""

    detail: str | None
    since: datetime | None
    state: ProviderHealthState


class ProviderView(Model):
    """A provider. Secrets are shown only if they are references."""

    adapter_kind: str
    config: dict[str, Any]
    description: str
    display_name: str
    enabled: bool
    endpoint_url: str
    health: ProviderHealthView
    healthcheck_url: str | None
    provider_key: str
    provider_origin: str
    slug: str


class QuarantinePage(Model):
    """A page of quarantined executions."""

    next_after: str | None
    """Value of `?after=` for the next page; null on the last one."""
    quarantined: list[QuarantinedView]


class QuarantinedView(Model):
    """An execution that killed its workers."""

    agent: str
    deadline_at: datetime
    """Time after which it cannot be released."""
    deaths: list[dict[str, Any]]
    """Worker deaths since its last progress, oldest first: `at`, `attempt`, `worker_id`, `host`, `build`,
    `memory_bytes`.
    """
    definition: str
    definition_version: int | None
    execution_id: str
    group: GroupView | None
    is_child: bool
    """True if it is a child whose parent was told of its end: only a person can release it."""
    last_step: dict[str, Any] | None
    """Last step of its journal: `seq`, `kind`, `state`, `name`."""
    memory_bytes: int | None
    """Resident memory of the last worker in bytes, as last known."""
    phase: str
    """Activity at the last death."""
    quarantined_at: datetime
    queue: str
    released_as: str | None
    """Retry that released it."""
    released_at: datetime | None
    state: str
    """`quarantined`, `released`, `withdrawn` (cancelled by its caller) or `expired` (its deadline passed)."""


class Question(Model):
    """A question of an execution to its caller. Lists leave out `schema` and `answer`."""

    agent: str
    """Key of the agent."""
    answered_at: datetime | None
    answered_by: DeciderView | None
    execution_id: str
    expires_at: datetime
    id: str
    question: str
    requested_at: datetime
    state: QuestionState
    answer: Any = None
    """Answer, byte for byte as it was sent."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer."""


class QuestionPage(Model):
    """One page of questions."""

    next_cursor: str | None
    """Cursor of the next page; null on the last one."""
    questions: list[Question]
    """Questions, newest first."""


class QueuedMessageView(Model):
    """A message that waits for its turn."""

    execution_id: str
    session_id: str


class Readiness(Model):
    """Answer of `/readyz`."""

    postgres: PostgresState
    ready: bool
    """True if requests can be served: Postgres answers and has the schema of this release."""
    redis: RedisState
    schema: SchemaState


class Recent(Model):
    """Figures of the newest executions, at most 2,000."""

    bucket_seconds: float
    """Length of a bucket, in seconds."""
    buckets: list[Bucket]
    """Ended executions over time."""
    cost_usd: float
    executions: int
    failures: list[FailureCount]
    """Failures by definition and code, the most frequent first."""
    since: datetime | None
    """Submit of the oldest of them."""
    spend: list[SpendView]
    """Model calls by agent and model, the most expensive first."""
    start_seconds: Percentiles
    """From the submit to the first attempt."""
    total_seconds: Percentiles
    """From the submit to the end."""


class RedeliveredView(Model):
    """Deliveries that are sent again."""

    redelivered: int


class ReleaseView(Model):
    """Result of a release."""

    all: bool
    """True if the whole group is released."""
    released_as: str | None
    """Retry that runs now; the rest of the group follows if it ends without killing its worker. Null with `all`."""


class RelevanceComponents(Model):
    """Components of a hybrid score."""

    keyword_score: float
    """Keyword score, scaled from 0 (worst keyword result) to 1 (best)."""
    semantic_score: float
    """Similarity from semantic search."""


class ResyncEvent(Model):
    """Data of the server-sent event `resync`: the events up to `last` are no longer kept. Read the execution itself."""

    last: int


class Retries(Model):
    """Retries spent, by failure class."""

    llm_error: int
    tool_error: int
    transient: int


class RetrievedItem(Model):
    """A chunk that a search found."""

    id: str
    """Id of the chunk. For a chunk ingested by Longhaul, the document's id and the chunk's number."""
    metadata: dict[str, Any]
    """Metadata stored with the chunk."""
    relevance_kind: RelevanceKind
    relevance_score: float
    """Score that orders the results."""
    score: float
    """Score from the provider; in a hybrid search, the fused score."""
    score_kind: ScoreKind
    text: str
    """Text of the chunk."""
    relevance_components: RelevanceComponents | None = None


class RetrySpec(Model):
    """Retries by failure class. An absent class keeps its default (docs/reference/failures.md)."""

    jitter: float | None = None
    """Maximum random addition to each delay, as a share of it, 0 to 1. Off by default, so that delays are exact."""
    llm_error_delays_seconds: list[int] | None = None
    """Delays in seconds for `llm_error`."""
    max_compressions: int | None = None
    """Maximum number of compressions for one request that outgrew the model's context window. Without it, until nothing
    is left to compress.
    """
    max_total: int | None = None
    """Maximum number of retries over all classes."""
    tool_error_delays_seconds: list[int] | None = None
    """Delays in seconds for `tool_error`."""
    transient_delays_seconds: list[int] | None = None
    """Delays in seconds for `transient`; their number is the number of retries."""


class RuleSpec(Model):
    """An allow or deny rule."""

    effect: str
    """`allow` or `deny`."""
    id: str
    scope: str
    """`user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`."""
    action: str | None = None
    """`execute`, or `*`."""
    resource: str | None = None
    """Key of an agent, or `*`."""


class RunCallPage(Model):
    """Calls of a run, in the order in which they were first made."""

    calls: list[RunCallView]
    next_cursor: str | None
    """Value of `?cursor=` for the next page; null on the last one."""


class RunCallView(Model):
    """A recorded model call of a run."""

    cost_usd: float
    created_at: datetime
    """Time of the request that made the call."""
    execution_id: str
    """Execution that made the call, the last of `tries`."""
    failure_code: str | None
    model: str | None
    occurrence: int
    """Number among the calls of the same content or step, from 1."""
    saved: int
    """Answers given from the record, in the place of a call."""
    status: ExecutionStatus | None
    step: str | None
    """Name that the header `Longhaul-Step` gave it."""
    tokens: int
    took_seconds: float | None
    tries: int
    """Executions of the call; those before the last one failed."""


class RunPage(Model):
    """Runs, newest first."""

    next_cursor: str | None
    """Value of `?cursor=` for the next page; null on the last one."""
    runs: list[DurableRun]


class RunUsage(Model):
    """Sums over the calls of a run. Costs are known as far as models have prices."""

    cost_usd: float
    open_calls: int
    """Calls under way."""
    saved_calls: int
    """Answers given from the record, in the place of a call."""
    saved_usd: float
    """Cost of those calls, had they been made."""
    tokens: int


class RunView(Model):
    """A run that was asked for."""

    execution_id: str | None
    """Its execution; null while it waits for the run under way."""
    is_queued: bool
    """True if it starts when the run under way has ended."""
    stopped: str | None
    """Execution that it cancelled."""


class RuntimeConstraints(Model):
    """Requirements of an agent on its environment."""

    internet_required: bool | None = None
    """Run only in the runtime profile `online`."""
    sandbox_required: bool | None = None
    """Run only with a bound sandbox."""


class RuntimePrompts(Model):
    """Texts besides the prompts that a run over the contract uses."""

    retrieval_context: str | None = None
    """Text placed before retrieved references."""


class SchedulePage(Model):
    """Schedules, in the order of keys."""

    next_after: str | None
    """Value of `?after=` for the next page; null on the last one."""
    schedules: list[ScheduleView]


class ScheduleSpec(Model):
    """Work that is started again and again, or at one later time."""

    key: str
    """Name of the schedule, unique per tenant."""
    agent: str | None = None
    """Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`."""
    at: datetime | None = None
    """The only tick."""
    budget: BudgetSpec | None = None
    """Budget of each run; the definition's or the agent's when absent."""
    catch_up: CatchUp | None = None
    """`one` when absent."""
    cron: str | None = None
    """Five fields: minute, hour, day of month, month, day of week. Exactly one of `cron`, `interval_seconds` and `at`.
    """
    deadline_seconds: int | None = None
    """Maximum lifetime of a run in seconds, waits included; at most 30 days. The definition's when absent."""
    definition: str | None = None
    """Definition to run; exactly one of `definition` and `agent`."""
    ends_at: datetime | None = None
    """Time after which there is no tick."""
    input: Any = None
    """Input of every run; `{}` when absent."""
    interval_seconds: int | None = None
    """Seconds from one tick to the next, a minute to a year."""
    metadata: dict[str, Any] | None = None
    """Metadata of the runs for filters, at most 16 KiB."""
    monthly_budget: MonthlyBudget | None = None
    """Budget of all runs of a calendar month, in the time zone of the schedule."""
    overlap: Overlap | None = None
    """`skip` when absent."""
    pause_after: int | None = None
    """Failures in a row after which the schedule is paused; 0 for never, 5 when absent."""
    priority: int | None = None
    """Priority of the runs; higher first."""
    queue: str | None = None
    """Queue of the runs."""
    time_zone: str | None = None
    """IANA time zone of `cron`; UTC when absent."""
    version: int | None = None
    """Version of the definition or agent; the newest at each tick when absent."""


class ScheduleView(Model):
    """A schedule."""

    created_at: datetime
    failures_in_a_row: int
    key: str
    last_tick_at: datetime | None
    """Newest tick that was fired."""
    month: MonthView | None
    next_tick_at: datetime | None
    pause_reason: SchedulePauseReason | None
    paused_at: datetime | None
    queued: int
    """Ticks that wait for its end."""
    running: str | None
    """Execution under way."""
    spec: ScheduleSpec
    """The schedule as it was sent."""
    status: ScheduleStatus
    updated_at: datetime


class SearchResults(Model):
    """Results, best first."""

    query: str
    """The query after preprocessing."""
    results: list[RetrievedItem]
    """`{id, text, metadata, score, score_kind, relevance_score, relevance_kind}`, and `relevance_components` for a
    hybrid search.
    """


class SentSignal(Model):
    """A signal that was sent."""

    seq: int
    """Its number among the events of the execution."""


class SentView(Model):
    """Place of a message in its session."""

    execution_id: str
    """Execution that answers the message."""
    is_queued: bool
    """True if another message is answered first."""
    session_id: str
    stopped: str | None
    """Execution that the policy cancelled."""


class SessionPage(Model):
    """Sessions, newest first."""

    next_before: str | None
    """Value of `?before=` for the next page; null on the last one."""
    sessions: list[SessionView]


class SessionTurnView(Model):
    """Place of a message in its session."""

    ahead: int
    """Messages that are answered before it."""
    running: str | None
    """Execution that answers a message now."""
    session_id: str


class SessionView(Model):
    """A session."""

    active_at: datetime
    """Time of the last message or answer."""
    active_calls: list[ActiveCallView] | None
    """Calls of the message that is answered now which have no result yet; null in lists."""
    agent: str
    """Agent and its pinned version."""
    agent_version: int
    budget: BudgetView | None
    created_at: datetime
    id: str
    metadata: dict[str, Any]
    on_busy: OnBusy
    project_id: str | None
    """Project that it is about; null without one."""
    queued: int
    """Messages that wait for their turn."""
    running: str | None
    """Execution that answers a message now."""
    status: SessionStatus
    stop_reason: StopReason | None
    sub_agents: list[SubAgentView] | None
    """Children of the execution that answers now, the last 100, oldest first; null in lists."""
    turns: int
    """Messages accepted so far."""
    wait_reason: WaitReason | None
    requires_action: list[PendingCall] | None = None
    """Calls that wait for the caller. Absent if there are none, and in lists."""


class ShareSpec(Model):
    """One permission granted to one grantee."""

    grantee: str
    """`public`, `user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`."""
    permission: str
    """`view`, `fork`, `execute` or `admin`; `execute` and `admin` permit executing the agent."""


class SkillPage(Model):
    """Newest versions, ordered by name."""

    items: list[SkillView]
    next_after: str | None
    """Value of `?after=` for the next page; null on the last one."""


class SkillView(Model):
    """One version of a skill, without its texts."""

    created_at: datetime
    description: str
    """The tasks that the skill is for."""
    name: str
    removed_at: datetime | None
    shared: bool
    """True if all tenants share the version."""
    version: int


class SpendView(Model):
    """Calls of a model by an agent."""

    agent: str
    calls: int
    cost_usd: float
    """Cost of the calls whose price is known."""
    input_tokens: int
    model: str
    output_tokens: int


class StepPage(Model):
    """Steps, in order."""

    next_after: int | None
    """Value of `?after=` for the next page; null on the last one."""
    steps: list[StepView]


class StepView(Model):
    """A recorded step."""

    attempt: int
    """Attempt that recorded the step; 0: copied by a retry or a fork."""
    cache_write_tokens: int | None
    """Tokens sent that were written to the provider's cache."""
    cached_tokens: int | None
    """Tokens sent that were read from the provider's cache."""
    cost_usd: float | None
    """Cost in US dollars; null if it is not known or the step is no model call."""
    failure_code: str | None
    finished_at: datetime | None
    input_tokens: int | None
    kind: StepKind
    name: str | None
    output_tokens: int | None
    preview: str | None
    seq: int
    started_at: datetime
    state: StepState
    body: Any = None
    """Recorded body; only with `include=body`."""
    messages: list[Any] | None = None
    """Messages that the step added to the transcript; only with `include=body`."""


class SubAgentView(Model):
    """A child of the execution that answers."""

    agent: str
    created_at: datetime
    execution_id: str
    failure_code: str | None
    finished_at: datetime | None
    status: ExecutionStatus
    wait_reason: WaitReason | None


class TaskPage(Model):
    """Tasks in the order of the plan."""

    next_after: int | None
    """Value of `?after=` for the next page; null on the last one."""
    tasks: list[TaskView]


class TaskView(Model):
    """A task of a project."""

    agent: str | None
    """Agent, if it is not the project's."""
    attempts: int
    """Executions so far."""
    depends_on: list[str]
    execution_id: str | None
    """Its last execution."""
    failure_code: str | None
    finished_at: datetime | None
    key: str
    phase: str | None
    position: int
    """Place in the plan, from 0."""
    prompt: str
    remaining_deps: int
    """Tasks that it depends on and that have not completed."""
    retries: int
    started_at: datetime | None
    status: TaskStatus
    """`pending`, `running`, `completed`, `failed`, `skipped` (it depends on one that failed) or `cancelled`."""
    timeout_seconds: int | None
    title: str


class TenantView(Model):
    """Tenant of an execution."""

    group_id: str | None
    org_id: str


class TestedView(Model):
    """A test event."""

    delivery_id: str
    """Its delivery."""


class TokenUsage(Model):
    """Tokens of an execution."""

    cache_write: int
    """Tokens that were written to the provider's cache."""
    cached: int
    """Tokens that were read from the provider's cache."""
    input: int
    """Tokens sent, of which `cached` and `cache_write`."""
    output: int


class ToolResultFrame(Model):
    """`tool_result`: the result of a call."""

    call_id: str
    is_error: bool
    output: str
    seq: int
    """Number of the event that it tells of"""
    session_id: str
    tool: str


class ToolResultsView(Model):
    """The accepted results, and the calls that still wait."""

    accepted: int
    """Results accepted by this request."""
    execution_id: str
    repeated: int
    """Results that an earlier request had brought."""
    requires_action: list[PendingCall]
    """Calls of this execution, and below it in its tree, that still wait for the caller."""


class ToolSettings(Model):
    """A tool with settings."""

    name: str
    """The registered name."""
    concurrency: int | None = None
    """Maximum number of calls of this tool that one execution runs at a time; no limit of its own when absent."""
    detached: Detached | None = None
    """Calls that the execution does not wait for."""
    effect: ToolEffect | None = None
    """The effect of running the tool twice, if it differs from the one the tool declares."""
    launch: Launch | None = None
    """The time at which a call starts; follows from the tool's effect when absent."""
    on_error: OnError | None = None
    """Consequence of a call that fails. Calls with invalid arguments always go back to the model."""
    settings: Any = None
    """Passed to the tool unchanged, for instance `allow_private_addresses` of `fetch_url`."""
    timeout_seconds: int | None = None
    """Maximum duration of one call, in seconds."""


class ToolUseFrame(Model):
    """`tool_use`: a call of the model. With `pending`, the caller runs it."""

    call_id: str
    input: Any
    """Arguments; a text if they are not JSON. Secrets are shown as `[redacted]`, unless the caller runs the call."""
    seq: int
    """Number of the event that it tells of"""
    session_id: str
    tool: str
    execution_id: str | None = None
    """Execution that made the call, if it is a sub-agent: its result is posted there."""
    expires_at: datetime | None = None
    """Without a result until then, the model reads an error."""
    hash: str | None = None
    """Binds a result to the call."""
    pending: bool | None = None
    """True if the caller runs the call; absent otherwise, as `hash` and `expires_at` are."""
    turn: int | None = None
    """Number of the turn; absent for a call of a sub-agent."""


class UnservedView(Model):
    """An execution that no live worker can run."""

    definition: str
    queue: str
    requirements: list[str]
    """Requirements for a worker, beyond those that every worker meets."""
    version: int | None


class Usage(Model):
    """Usage of the execution."""

    active_seconds: float
    """Seconds during which workers held it."""
    cache_write_tokens: int
    """Tokens sent that were written to providers' caches."""
    cached_tokens: int
    """Tokens sent that were read from providers' caches."""
    calls: int
    cost_usd: float | None
    """Cost of its model calls in US dollars; null if the cost of any is not known."""
    input_tokens: int
    output_tokens: int
    turns: int
    uncosted_turns: int
    """Model calls whose cost is not known."""


class UsageNumbers(Model):
    """Numbers of executions; those that have not ended are in `executions` alone."""

    executions: int
    failed: int
    finished: int


class UsageAgent(UsageNumbers):
    """Executions of one agent."""

    agent: str
    failures: list[UsageFailure]
    """Failures by code, the most frequent first; at most 5 rows."""


class UsageFailure(Model):
    """Executions of an agent that failed with the same code."""

    class_: FailureClass
    code: str
    executions: int
    newest_id: str
    """The newest of them."""
    summary: str | None
    """Failure text of the newest one, cut to 500 characters; null once it is erased."""


class UsageSums(Model):
    """Sums over model calls."""

    cached_tokens: int
    """Part of `input_tokens` that was read from providers' caches."""
    calls: int
    cost_usd: float
    """Cost of the calls whose price is known."""
    input_tokens: int
    output_tokens: int
    uncosted_calls: int
    """Answered calls whose cost is unknown: their model has no price, or the provider reported no usage."""


class UsageSpend(UsageSums):
    """Model calls of a tenant's executions of one agent."""

    agent: str
    model: str
    org_id: str
    group_id: str | None = None


class UsageTotals(UsageNumbers, UsageSums):
    """Sums over all executions of the span, also of those whose rows are left out."""



class UsageView(Model):
    """Usage and outcomes of the executions submitted in a span of time."""

    agents: list[UsageAgent]
    """Executions by agent, the one with the most failures first; at most 100 rows."""
    covered_since: datetime
    """All figures are of the executions submitted from here to `until`. Later than `since` if `is_cut`."""
    is_cut: bool
    """True if the span holds more than 50,000 executions or 200,000 calls, so that only its newer end is summed."""
    since: datetime
    spend: list[UsageSpend]
    """Model calls by tenant, agent and model, the most expensive first; at most 200 rows."""
    totals: UsageTotals
    until: datetime
    """End of the span, which does not belong to it."""


class ValidatorSettings(Model):
    """A validator with settings."""

    name: str
    """The registered name."""
    settings: Any = None
    """Passed to the validator unchanged."""


class Verdict(Model):
    """Outcome of one item."""

    status: int
    """Status that the item alone would have got: 201, 200, or that of `error`."""
    error: Problem | None = None
    """Reason of the refusal."""
    id: str | None = None
    """Id of the execution, if it was stored."""


class Versioned(Model):
    """A key with its version."""

    key: str
    version: int | None
    """Pinned version."""


class Violation(Model):
    """A violation in a request."""

    message: str
    """Description of the violation."""
    path: str
    """JSON Pointer into the body; `/query/<name>` for a query parameter, `/header/<name>` for a header."""
    code: str | None = None
    """Stable name of the violation, where it has one."""
    line: int | None = None
    """Line of the text at `path`, from 1, if it is a template."""


class WaitingCount(Model):
    """Executions of a queue that wait for the same."""

    executions: int
    oldest: datetime
    """Submit of the oldest."""
    queue: str
    wait_reason: WaitReason


class WaitingView(Model):
    """Explanation of an execution's current state."""

    advice: str | None
    """Advice for the failure of a failed execution, as docs/reference/failures.md has it."""
    budget: BudgetView | None
    children: list[OpenChildView]
    """Open children, at most twenty."""
    deadline_at: datetime
    """Time by which the execution must have ended."""
    endpoint: AwaitedEndpointView | None
    ends_when: str | None
    """Event that ends the wait."""
    estimate: EstimateView
    execution_id: str
    holding: HoldingView | None
    last_failure: LastFailureView | None
    limits: list[NeededLimitView]
    open_children: int
    place: PlaceView | None
    requests: list[OpenRequestView]
    session: SessionTurnView | None
    since: datetime
    status: ExecutionStatus
    summary: str
    """One sentence for people."""
    unserved: UnservedView | None
    until: datetime | None
    """Latest end of the wait."""
    wait_reason: WaitReason | None
    worker_id: str | None
    """Worker that holds it."""
    workers: LiveWorkersView | None


class WebhookList(Model):
    """The webhooks of the caller."""

    webhooks: list[WebhookView]


class WebhookView(Model):
    """A webhook."""

    created_at: datetime
    description: str | None
    disabled_at: datetime | None
    disabled_because: WebhookDisabledBecause | None
    enabled: bool
    """False: nothing is sent to it."""
    failing_since: datetime | None
    """First failure since the last success; null while it works."""
    id: str
    kind: WebhookKind
    last_delivered_at: datetime | None
    """Newest success."""
    old_secret_until: datetime | None
    """Time until which the secret before signs as well."""
    types: list[WebhookEventType]
    """Types of events that it is told."""
    url: str
    """Of `slack` the origin alone."""
    waiting: int
    """Deliveries that wait, counted to 10,000."""


class WebhookSecretView(WebhookView):
    """A webhook with its secret, which no other answer shows."""

    secret: str | None = None
    """Key of its signatures, for a verifier of Standard Webhooks; null of another kind, and in a repeat under the same
    `Idempotency-Key`.
    """
    withheld: str | None = None
    """In a repeat, the reason why the secret is not shown."""


class Whoami(Model):
    """The caller as the API knows it."""

    email: str | None
    key_id: str
    """Id of the key, or of the person's account."""
    kind: ActorKind
    """`person` for a person who signed in with the OpenID Connect provider."""
    name: str
    """Name of the key or the person."""
    roles: list[Role]
    """Roles of a person; empty for a key."""
    scopes: list[KeyScope]
    """Rights of the caller."""
    tenant: TenantView


class WholeSkillView(SkillView):
    """One version of a skill."""

    body: str
    """Instructions."""
    files: dict[str, str]
    """Further texts by path."""


class WireErrorError(Model):
    message: str
    type: str
    code: str | None = None
    param: str | None = None


class WireError(Model):
    error: WireErrorError
    request_id: str | None = None
    type: Literal["error"] | None = None


class WorkerView(Model):
    """A worker process."""

    build: str
    """Build of its program."""
    concurrency: int
    """Executions that it runs at a time at most."""
    dead_at: datetime | None
    """Time at which it signed off or was declared dead."""
    draining_since: datetime | None
    """Time since which it claims nothing more."""
    held: int
    """Executions that it holds, of all tenants."""
    host: str
    id: str
    """Its id, a new one at each start and after each lost lease."""
    last_heartbeat_at: datetime | None
    """Last renewal of its lease; null for a worker of an older release."""
    lease_expires_at: datetime | None
    """End of its lease, unless that is renewed."""
    memory_bytes: int | None
    """Resident memory at the last renewal."""
    pid: int
    """Process id on the host."""
    queues: list[str]
    started_at: datetime
    state: WorkerState
    """`draining`: it claims nothing more. `late`: its lease has expired, and it was not declared dead yet."""
    steady_since: datetime | None
    """Start of its renewals without a gap."""


class WorkerDetail(WorkerView):
    """A worker and what it runs."""

    executions: list[WorkerExecutionView]
    """Executions that it holds."""
    lost: list[WorkerExecutionView]
    """Executions that it held when it was declared dead, newest first."""
    next_after: str | None = None
    """Value of `after` for the next page of `executions`; null at the end."""


class WorkerExecutionView(Model):
    """An execution that a worker holds, or held when it was declared dead."""

    agent: str
    attempt: int
    definition: str
    execution_id: str
    group_id: str | None
    lost_at: datetime | None
    """Time at which its worker was declared dead; null while it is held."""
    org_id: str
    queue: str
    since: datetime
    """Start of the attempt."""


class WorkerPage(Model):
    """Workers."""

    next_after: str | None
    """Value of `after` for the next page; null at the end."""
    workers: list[WorkerView]


Usd = float | str
"""An amount in US dollars, exact to nine decimal places and never negative.

In JSON it is a number, or a string for clients that must not round it. Both are read digit by digit.
"""

ToolRef = str | CallerToolSpec | ToolSettings
"""A tool by name, with the agent's settings for it, or, with `runs`, the declaration of a tool that the caller runs."""

ValidatorRef = str | ValidatorSettings
"""A validator by name, with settings."""
