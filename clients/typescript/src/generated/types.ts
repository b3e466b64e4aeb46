// Written by `python3 clients/generate` from docs/openapi.json: do not edit.

/**
 * Access of a call. - `auto`: The call runs. - `ask`: The call runs once a person approves it. - `deny`: The call does
 * not run; the model is told.
 */
export type Access = "auto" | "ask" | "deny";

/** Owner and shares of one agent. */
export interface AccessSpec {
  /** Key of the agent. */
  readonly agent: string;
  /** Id of the owning user. */
  readonly owner_user_id?: number | null | undefined;
  /** Permissions granted to others. */
  readonly shares?: readonly ShareSpec[] | undefined;
}

/** Accounts by id. */
export interface AccountPage {
  readonly accounts: readonly AccountView[];
  /** Value of `after` for the next page; null at the end. */
  readonly next_after: string | null;
}

/** A person who signed in with an OpenID Connect provider. */
export interface AccountView {
  readonly created_at: string;
  /** Since then the person cannot sign in. */
  readonly disabled_at: string | null;
  readonly email: string | null;
  readonly group_id: string | null;
  readonly id: string;
  /** The provider. */
  readonly issuer: string;
  readonly name: string;
  readonly org_id: string;
  /** Roles as of the newest sign-in. */
  readonly roles: readonly Role[];
  /** Newest sign-in. */
  readonly signed_in_at: string;
  /** Identifier of the person at the provider. */
  readonly subject: string;
}

/** Status of a call without a result: `waiting` if a person must decide about a call of its tool. */
export type ActiveCallStatus = "running" | "waiting";

/** A call without a result. */
export interface ActiveCallView {
  readonly call_id: string;
  readonly status: ActiveCallStatus;
  readonly tool: string;
}

/** Kind of an actor in the audit log. */
export type ActorKind = "key" | "person";

/** The record of an execution. */
export interface AgentExecution {
  /** Agent, as requested. */
  readonly agent_ref: string;
  /** Version of the agent; `v1` if unknown. */
  readonly agent_version: string;
  /** Time of acceptance. */
  readonly created_at: string;
  /** Set if the execution failed. */
  readonly error: AgentExecutionFailure | null;
  readonly finished_at: string | null;
  readonly id: string;
  /** Managed model id. */
  readonly model_ref: string | null;
  /** Set if the execution succeeded. */
  readonly result: AgentExecutionResult | null;
  readonly runtime_profile: RuntimeProfile;
  /** Time of the first claim. */
  readonly started_at: string | null;
  readonly status: ContractStatus;
}

/** A request to run an agent. Unknown fields are ignored. */
export interface AgentExecutionBody {
  /** Key of the agent, perhaps with its version: `support@v3` */
  readonly agent_id: string;
  /** Version of the agent: `v3` or `3`; the newest when absent */
  readonly agent_version?: string | undefined;
  /** The caller's group when absent */
  readonly group_id?: string | undefined;
  /** `prompt` or `messages`, a managed `model`, and a search in `retrieval` */
  readonly input?: {
    readonly messages?: readonly { readonly [name: string]: unknown }[] | undefined;
    /** Id of a managed model */
    readonly model?: string | undefined;
    readonly prompt?: string | undefined;
    readonly retrieval?: { readonly [name: string]: unknown } | undefined;
    readonly [name: string]: unknown;
  } | undefined;
  /** The caller's organisation when absent */
  readonly org_id?: string | undefined;
  readonly [name: string]: unknown;
}

/** Calls of a run, by list. */
export interface AgentExecutionCalls {
  readonly embedding_calls: readonly { readonly [name: string]: unknown }[];
  readonly model_calls: readonly { readonly [name: string]: unknown }[];
  readonly retrieval_calls: readonly { readonly [name: string]: unknown }[];
  readonly tool_calls: readonly { readonly [name: string]: unknown }[];
}

/** Data of a `complete` frame. */
export interface AgentExecutionCompleteFrame {
  readonly execution: AgentExecution;
  readonly status_code: number;
}

/** Data of a `delta` frame: the text of an agent without tools. */
export interface AgentExecutionDeltaFrame {
  readonly text: string;
}

/** Facts and calls of an unsuccessful run. */
export interface AgentExecutionDetails {
  /** Calls made before the failure. */
  readonly calls?: AgentExecutionCalls | undefined;
  readonly [name: string]: unknown;
}

/** `{"execution": …}`. */
export interface AgentExecutionEnvelope {
  readonly execution: AgentExecution;
}

/** Body of every error response: `{"error", "message"[, "details"]}`. */
export interface AgentExecutionError {
  /** Facts. Absent if the request was refused before anything was stored. */
  readonly details?: { readonly [name: string]: unknown } | undefined;
  /** Stable code. */
  readonly error: string;
  /** Message for people. */
  readonly message: string;
}

/** Data of an `error` frame: an error body with its status. */
export interface AgentExecutionErrorFrame {
  readonly details?: { readonly [name: string]: unknown } | undefined;
  readonly error: string;
  readonly message: string;
  readonly status_code: number;
}

/** Error of an unsuccessful run. */
export interface AgentExecutionFailure {
  /** One of the nine codes, or `cancelled`. */
  readonly code: string;
  /** Facts and calls. Omitted if empty. */
  readonly details?: AgentExecutionDetails | undefined;
  /** Message for people. */
  readonly message: string;
}

/** Records, newest first. */
export interface AgentExecutionList {
  readonly executions: readonly AgentExecution[];
}

/** Result of a successful run. */
export interface AgentExecutionResult {
  readonly embedding_calls: readonly { readonly [name: string]: unknown }[];
  readonly model_calls: readonly { readonly [name: string]: unknown }[];
  readonly output_text: string;
  readonly retrieval_calls: readonly { readonly [name: string]: unknown }[];
  readonly tool_calls: readonly { readonly [name: string]: unknown }[];
}

/** Data of a `status` frame: an operation that runs or has ended. */
export interface AgentExecutionStatusFrame {
  readonly completed_at: string | null;
  readonly details: unknown;
  readonly duration_ms: number | null;
  readonly id: string;
  readonly kind: string;
  readonly label: string;
  readonly started_at: string;
  readonly state: string;
  readonly summary: string | null;
}

/** Limits of one execution. Each has a default. */
export interface AgentLimits {
  /** Budget of one execution and everything it starts, if neither the submit nor the definition sets one. */
  readonly budget?: BudgetSpec | null | undefined;
  /** The model's context window in tokens; a longer conversation is compressed. */
  readonly context_tokens?: number | undefined;
  /** Maximum number of calls of one reply; each further call is answered with an error. */
  readonly max_calls_per_turn?: number | undefined;
  /** Maximum number of calls that one execution runs at a time; further calls wait. */
  readonly max_parallel_calls?: number | undefined;
  /**
   * Maximum total size of the values that calls of one execution write to paths, in bytes, overwritten values included.
   */
  readonly max_state_bytes?: number | undefined;
  /** Maximum size of one value that a call writes to a path, in bytes. */
  readonly max_state_value_bytes?: number | undefined;
  /** Maximum size of one tool result shown to the model, in bytes. */
  readonly max_tool_result_bytes?: number | undefined;
  /** Maximum number of turns of one execution. */
  readonly max_turns?: number | undefined;
  /** Maximum duration of one tool call, in seconds. */
  readonly tool_timeout_seconds?: number | undefined;
}

/** System prompts, minijinja templates over `input`. */
export interface AgentPrompts {
  /** Used in executions. */
  readonly agentic_execution_definition?: string | null | undefined;
  /** Used in conversations, and in executions if there is no other. */
  readonly conversation: string;
}

/** A configured model with prompts, tools and limits. */
export interface AgentSpec {
  /** The calls that need a person's approval; see docs/guide/approvals.md. */
  readonly approvals?: ApprovalsSpec | undefined;
  /** Limits on the number of the agent's executions that run at a time, over all definitions. */
  readonly concurrency?: readonly ConcurrencySpec[] | undefined;
  /** Lets calls carry a condition (`_when`). Has an effect only with `references`. */
  readonly conditions?: boolean | undefined;
  /** Retry failures over the contract, too. Off by default, so that failure codes arrive while the caller waits. */
  readonly contract_retries?: boolean | undefined;
  /**
   * Indexes that the agent's executions may search, in their own tenant. Adds the tool `search_dataset`; see
   * docs/guide/retrieval.md.
   */
  readonly datasets?: readonly string[] | undefined;
  /** Managed model that the agent uses over the contract when a request names none. */
  readonly default_model_ref?: string | null | undefined;
  /** Description for people. */
  readonly description?: string | null | undefined;
  /**
   * Lets callers without the scope `admin` fork the agent's executions with another prompt or model, although all
   * tenants share the agent: such a fork uses the agent's tools.
   */
  readonly fork_overrides?: boolean | undefined;
  /** Lets calls name an instance (`_instance`): one plan over many items. Has an effect only with `references`. */
  readonly instances?: InstancesSpec | null | undefined;
  /** Unique slug. */
  readonly key: string;
  /** Tools without a handler: the model writes their results itself. */
  readonly latent_tools?: readonly LatentToolSpec[] | undefined;
  /** Limits of one execution. */
  readonly limits?: AgentLimits | undefined;
  /** MCP servers by name; their tools are named `mcp__<server>__<tool>`. */
  readonly mcp_servers?: { readonly [name: string]: McpServerSpec } | undefined;
  /** Memory of the agent: of its sessions and executions. */
  readonly memory?: MemorySpec | undefined;
  /** The model and its parameters. */
  readonly model?: ModelSpec | undefined;
  /** Display name. */
  readonly name: string;
  /**
   * The agent's character and manner of speaking: begins the system prompt of its sessions. A minijinja template, as
   * the prompts.
   */
  readonly personality?: string | null | undefined;
  /** System prompts by purpose. */
  readonly prompts: AgentPrompts;
  /**
   * Lets calls read each other's results (`†state.x`) and name the place of their own (`_outputPath`); see
   * docs/guide/loop.md.
   */
  readonly references?: boolean | undefined;
  /** Requirements of the agent on its environment, over the contract. */
  readonly runtime_constraints?: RuntimeConstraints | undefined;
  /** Further texts of the contract. */
  readonly runtime_prompts?: RuntimePrompts | undefined;
  /**
   * Skills that the agent is offered by name and description, and loads when it needs them. Adds the tool `load_skill`;
   * see docs/guide/skills.md.
   */
  readonly skills?: readonly string[] | undefined;
  /** Refs of the tools from the platform's catalogue that the agent has over the agent-execution contract. */
  readonly tool_refs?: readonly string[] | undefined;
  /** Tools by name, built in or registered on the worker, and declarations of tools that the caller runs. */
  readonly tools?: readonly ToolRef[] | undefined;
}

/** Newest versions, ordered by key. */
export interface AgentVersionPage {
  readonly items: readonly AgentVersionView[];
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: string | null;
}

/** One version of an agent. */
export interface AgentVersionView {
  readonly created_at: string;
  readonly key: string;
  readonly removed_at: string | null;
  /** True if all tenants share the version. */
  readonly shared: boolean;
  readonly spec: AgentSpec;
  readonly version: number;
}

/** Amounts of a budget. */
export interface AmountsView {
  readonly cost_usd: number;
  readonly model_calls: number;
  readonly tokens: number;
}

/** Answer to a question. */
export interface AnswerBody {
  /** Any JSON but null; valid against the question's schema if it has one. */
  readonly answer: unknown;
  /** Name of the person who answers; the key itself is always recorded. */
  readonly answered_by?: string | null | undefined;
}

/** A call that needs a person's approval. Lists leave out `arguments`. */
export interface Approval {
  /** Key of the agent. */
  readonly agent: string;
  /**
   * Arguments that the tool will get, byte for byte, with references resolved. A value that the agent or the tool's
   * schema marks as secret is shown as `[redacted]`; sent back in an edit, `[redacted]` keeps the value.
   */
  readonly arguments?: { readonly [name: string]: unknown } | undefined;
  /** Arguments that replace the proposed ones. */
  readonly decided_arguments?: { readonly [name: string]: unknown } | undefined;
  readonly decided_at: string | null;
  readonly decided_by: DeciderView | null;
  /** Tool that runs instead. */
  readonly decided_tool: string | null;
  readonly execution_id: string;
  /** Without a decision until then, the call is rejected. */
  readonly expires_at: string;
  /** SHA-256 over tool and arguments; a decision must name it. */
  readonly hash: string;
  readonly id: string;
  /** Rule of the agent that asks for the approval. */
  readonly policy: string | null;
  /** Beginning of the arguments, for people. */
  readonly preview: string;
  readonly reason: string | null;
  readonly requested_at: string;
  readonly state: ApprovalState;
  readonly tool: string;
}

/** One page of approvals. */
export interface ApprovalPage {
  /** Approvals, newest first. */
  readonly approvals: readonly Approval[];
  /** Cursor of the next page; null on the last one. */
  readonly next_cursor: string | null;
}

/** A rule for the calls of some tools. */
export interface ApprovalRule {
  /** Access of a matching call. */
  readonly access: Access;
  /** The tool's name; `*` matches any characters, as in `mcp__bank__*`. */
  readonly tool: string;
  /**
   * A condition over the resolved arguments, such as `arguments.amount > 100`; without one, the rule matches every
   * call.
   */
  readonly when?: string | null | undefined;
}

/** State of an approval; `closed`: the execution ended first. */
export type ApprovalState = "waiting" | "approved" | "edited" | "replaced" | "rejected" | "expired" | "closed";

/** An agent's policy for its calls; without one every call runs. */
export interface ApprovalsSpec {
  /** True if the API key that submitted the execution may decide. */
  readonly allow_self?: boolean | undefined;
  /** Access for calls that match no rule. */
  readonly default?: Access | undefined;
  /**
   * Time for a person's decision or the caller's answer, in seconds. When it passes without a decision, the call counts
   * as rejected.
   */
  readonly expires_seconds?: number | undefined;
  /** Effect of a rejection on the run. */
  readonly on_reject?: OnReject | undefined;
  /**
   * Arguments hidden from people, by tool (`*` matches any characters): JSON pointers such as `/token`, where `*`
   * matches any one member or item. Arguments that the tool's schema marks `x-secret` or `writeOnly` are always hidden.
   */
  readonly redact?: { readonly [name: string]: readonly string[] } | undefined;
  /** Rules in order; the first that matches a call decides. */
  readonly rules?: readonly ApprovalRule[] | undefined;
}

/** The plan that is approved. */
export interface ApproveBody {
  /** Number of the plan that the person has seen; another plan in its place stays unapproved. Any when absent. */
  readonly version?: number | null | undefined;
}

/** A file that an execution left. */
export interface Artifact {
  readonly created_at: string;
  readonly file_id: string;
  /** Name; a later file of the same name does not replace an earlier one. */
  readonly name: string | null;
  /** SHA-256 of the bytes, in hexadecimal. */
  readonly sha256: string;
  /** Length in bytes. */
  readonly size: number;
  /** Media type. */
  readonly type: string;
}

/** The files of an execution, the oldest first; at most 1,000. */
export interface ArtifactPage {
  readonly artifacts: readonly Artifact[];
}

/** End of an attempt. */
export type AttemptOutcome =
  | "finished"
  | "failed"
  | "parked"
  | "retrying"
  | "released"
  | "drained"
  | "lost"
  | "cancelled";

/** Attempts, in order. */
export interface AttemptPage {
  readonly attempts: readonly AttemptView[];
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: number | null;
}

/** `attempt_reset`: the text of a turn that was sent so far is void. */
export interface AttemptResetFrame {
  /** Number of the event that it tells of */
  readonly seq: number;
  readonly session_id: string;
  readonly turn: number;
}

/** An ended lease of a worker on the execution. */
export interface AttemptView {
  readonly ended_at: string;
  readonly failure_class: FailureClass | null;
  readonly failure_code: string | null;
  readonly failure_summary: string | null;
  readonly number: number;
  readonly outcome: AttemptOutcome;
  readonly started_at: string;
  readonly wait_reason: WaitReason | null;
  readonly worker_id: string;
}

/** A change over the API. */
export interface AuditEntryView {
  /** Id of the key or the person. */
  readonly actor_id: string;
  readonly actor_kind: ActorKind;
  /** Its name at that time. */
  readonly actor_name: string;
  /** Time of the request. */
  readonly at: string;
  readonly group_id: string | null;
  readonly id: string;
  readonly method: string;
  /** Organisation of the actor. */
  readonly org_id: string;
  /**
   * Id of the request that no caller chooses; also the header `Longhaul-Request-Id` of its answer. Null in rows of
   * earlier releases.
   */
  readonly own_request_id: string | null;
  /** Id of the request in the log: the caller's, if it sent one. */
  readonly request_id: string;
  /** Template of the path. */
  readonly route: string;
  /** Status of the answer; null if the caller left before it. */
  readonly status: number | null;
  /** Parameters of the path, separated by `/`, or the id of what was created. */
  readonly target: string | null;
}

/** Changes, newest first. */
export interface AuditPage {
  readonly entries: readonly AuditEntryView[];
  /** Value of `cursor` for the next page; null at the end. */
  readonly next_cursor: string | null;
}

/** Model endpoint that it waits for. */
export interface AwaitedEndpointView {
  /** Executions of its tenant before it; counted up to 1000. Null if it stands in no line. */
  readonly ahead: number | null;
  /** Calls per second that it takes, as far as the fleet has learned. */
  readonly calls_per_second: number | null;
  readonly cause: BreakerCause | null;
  /** Concurrent calls that the endpoint takes, as far as the fleet has learned. */
  readonly concurrency: number | null;
  /** Time at which the execution asks another model, or fails. */
  readonly give_up_at: string;
  /** True if there may be more than `ahead`. */
  readonly is_at_least: boolean;
  /** True if the provider itself stated `until`. */
  readonly is_stated: boolean;
  readonly model: string;
  /** Other tenants in the line, which take turns. Null if it stands in no line. */
  readonly other_tenants: number | null;
  readonly provider: string;
  /** Calls that it answered per second lately: how fast the line moves. */
  readonly served_per_second: number | null;
  /**
   * State of the circuit breaker: `closed`, `open`, `half_open` (one execution probes the endpoint) or `recovering`
   * (waiting executions are released in portions).
   */
  readonly state: string;
  /** Time of the next probe, while it is open. */
  readonly until: string | null;
}

/** Verdicts in the order of the items. */
export interface BatchAnswer {
  readonly results: readonly Verdict[];
}

/** Several submits; each may also name an `idempotency_key`. */
export interface BatchBody {
  readonly executions: readonly SubmitBody[];
}

export interface BindingSpec {
  /** Settings of the binding. */
  readonly binding_config?: { readonly [name: string]: unknown } | undefined;
  /** Resource of requests that name none. */
  readonly default_resource_id?: string | null | undefined;
  /** Slug of the provider. */
  readonly provider: string;
  /** Rules for the resources. */
  readonly resource_policy?: { readonly [name: string]: unknown } | undefined;
  /** Usable resources: ids of managed models, or whole resource objects. */
  readonly resources?: readonly unknown[] | undefined;
}

/** A capability bound to a provider. */
export interface BindingView {
  readonly binding_config: { readonly [name: string]: unknown };
  readonly default_resource_id: string | null;
  readonly provider: string;
  readonly resource_policy: { readonly [name: string]: unknown };
  readonly resources: readonly unknown[];
}

/** Cause of an open circuit breaker. */
export type BreakerCause = "outage" | "quota" | "operator";

/** Executions that ended in a span of time. */
export interface Bucket {
  /** Start of the span. */
  readonly at: string;
  readonly ended: number;
  /** Of these, the failed ones. */
  readonly failed: number;
}

/** Spending limits that an execution shares with everything it starts. An absent limit does not apply. */
export interface BudgetSpec {
  /** Maximum cost in US dollars. Every model in use must have a price in the configuration. */
  readonly max_cost_usd?: Usd | null | undefined;
  /** Maximum number of model calls, failed ones included; at least 1. */
  readonly max_model_calls?: number | null | undefined;
  /** Maximum number of tokens, sent and received. */
  readonly max_tokens?: number | null | undefined;
  /** Handling of an execution whose next model call exceeds the budget. */
  readonly on_exhausted?: OnExhausted | undefined;
}

/** Budget of an execution and everything it starts. */
export interface BudgetView {
  /** Spent calls that were charged at their estimate, because their outcome is unknown. */
  readonly estimated_calls: number;
  readonly max: CapsView;
  /** Behaviour when a cap is reached: `park` or `fail`. */
  readonly on_exhausted: OnExhausted;
  /**
   * Sum and number of charges above what the calls had reserved: a provider wrote more than the limit it was sent, or
   * counted more for a prompt than its bytes allow.
   */
  readonly over_limit: AmountsView;
  /** Reserved by model calls under way. */
  readonly reserved: AmountsView;
  /** Execution that owns the budget; for the budget of a session, the session's id without its prefix. */
  readonly root_id: string;
  readonly spent: AmountsView;
  /** Spent calls whose cost is not known. */
  readonly uncosted_calls: number;
  /** Executions that wait for the budget. */
  readonly waiting: number;
}

export type Bytes = Uint8Array;

/** Settings of the calls of one tool. */
export interface CallSettings {
  /** Maximum number of calls that one execution runs at a time; no limit of its own when absent. */
  readonly concurrency?: number | null | undefined;
  /** Calls that the execution does not wait for. */
  readonly detached?: Detached | undefined;
  /** The time at which a call starts; follows from the tool's effect when absent. */
  readonly launch?: Launch | null | undefined;
}

/**
 * A tool whose calls the caller runs. The execution is parked until the caller has posted the result of each call.
 *
 * ``` use longhaul_sdk::{AgentSpec, spec::{CallerToolSpec, ToolRef}}; use serde_json::json;
 *
 * let mut agent = AgentSpec::new("support", "You help customers."); let open_file = CallerToolSpec::new("open_file",
 * "Shows a file to the user.") .parameters(json!({"type": "object", "properties": {"path": {"type": "string"}},
 * "required": ["path"]})) .expires_seconds(600); agent.tools.push(ToolRef::Caller(open_file.clone()));
 *
 * let from_json: ToolRef = serde_json::from_value(json!({ "name": "open_file", "runs": "caller", "description": "Shows
 * a file to the user.", "expires_seconds": 600, "parameters": {"type": "object", "properties": {"path": {"type":
 * "string"}}, "required": ["path"]}, }))?; assert_eq!(from_json, ToolRef::Caller(open_file)); # Ok::<(),
 * serde_json::Error>(()) ```
 */
export interface CallerToolSpec {
  /** Description for the model. */
  readonly description: string;
  /** The effect of running a call twice; `side_effect` when absent. */
  readonly effect?: ToolEffect | undefined;
  /** Time that the caller has for the result of a call, in seconds; a day when absent. */
  readonly expires_seconds?: number | undefined;
  /** The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique among the agent's tools. */
  readonly name: string;
  /** JSON Schema of the outputs that the caller posts; any value when absent. */
  readonly output?: unknown | undefined;
  /** JSON Schema of the arguments; an object. */
  readonly parameters?: unknown | undefined;
  /** `caller`. */
  readonly runs: RunsAt;
}

/** Treatment of a cancelled project's tasks. */
export interface CancelBody {
  /** `finish` (when absent): tasks that run go on to their end. `cancel`: they are cancelled. */
  readonly running_tasks?: RunningTasks | undefined;
}

/** Caps of a budget. Null: not limited. */
export interface CapsView {
  readonly cost_usd: number | null;
  readonly model_calls: number | null;
  readonly tokens: number | null;
}

/** A tool of the catalogue. */
export interface CatalogueToolSpec {
  /** `default`. An agent with a tool of another profile cannot run. */
  readonly connection_profile_ref?: string | undefined;
  /** Description for models. */
  readonly description?: string | undefined;
  /** Effect of running the tool twice. */
  readonly effect?: ToolEffect | undefined;
  /** JSON Schema of the arguments. */
  readonly input_schema?: unknown | undefined;
  /** True if the tool may be used in a profile other than `online`. */
  readonly offline_compatible?: boolean | undefined;
  /** `timeout_seconds` and further settings passed to the tool's service. */
  readonly safety_policy?: { readonly [name: string]: unknown } | undefined;
  /** Name that models call. */
  readonly tool_name: string;
  /** Name in `tool_refs`. */
  readonly tool_ref: string;
  /** `mcp` or `sandbox_http`. An agent with a tool of another transport cannot run. */
  readonly transport: string;
}

/**
 * Treatment of ticks that nothing fired in time, because every worker was away. - `one`: One run is started for all of
 * them. - `none`: No run is started for a tick that is over a minute late.
 */
export type CatchUp = "one" | "none";

/** A message to an agent. */
export interface ChatBody {
  readonly message: MessageContent;
  /** Project that a new session is about. */
  readonly project_id?: string | null | undefined;
  /** Session to continue; a new one begins when absent. */
  readonly session_id?: string | null | undefined;
}

/**
 * A limit on the executions of a definition or an agent that run at a time, grouped by a key. The limits of the newest
 * version apply to executions of every version.
 */
export interface ConcurrencySpec {
  /**
   * `tenant`, `definition`, `agent`, or `metadata.` and the path of a value in the execution's metadata. Executions
   * without such a value are not limited.
   */
  readonly key: string;
  /** Maximum number of running executions for each value of the key; 0 holds all of them back. */
  readonly limit: number;
}

/**
 * Status of an execution in the contract. - `queued`: Not claimed by a worker yet. - `running`: Claimed at least once;
 * running or waiting. - `succeeded`: Ended with a result. - `failed`: Ended without a result. - `blocked`: Ended by
 * policy. - `cancelled`: Cancelled by a caller.
 */
export type ContractStatus = "queued" | "running" | "succeeded" | "failed" | "blocked" | "cancelled";

/** Key and person that decided. */
export interface DeciderView {
  readonly key_id: string;
  readonly key_name: string;
  /** Name of the person, as the caller stated it. */
  readonly person: string | null;
}

/** Decision on an approval. */
export interface DecisionBody {
  /** Arguments of the call or of its replacement. `[redacted]`, where the approval shows it, keeps the value. */
  readonly arguments?: { readonly [name: string]: unknown } | null | undefined;
  /** Name of the person who decides; the key itself is always recorded. */
  readonly decided_by?: string | null | undefined;
  readonly decision: DecisionChoice;
  /** `hash` of the approval as the decider saw it. */
  readonly hash: string;
  /** Reason; the model is told why a call was rejected. */
  readonly reason?: string | null | undefined;
  /** Tool that runs instead; the agent's policy is checked for it. */
  readonly tool?: string | null | undefined;
}

/**
 * Effect of a decision on its call. - `approve`: It runs as proposed. - `edit`: It runs with `arguments`. - `replace`:
 * `tool` runs with `arguments` instead. - `reject`: It does not run.
 */
export type DecisionChoice = "approve" | "edit" | "replace" | "reject";

/** An execution type: agent, input schema, and the conditions under which an answer is accepted. */
export interface DefinitionSpec {
  /** Maximum time that workers hold an execution, in seconds; waits are excluded. */
  readonly active_timeout_seconds?: number | undefined;
  /** The agent that runs it. */
  readonly agent_key: string;
  /** Budget of one execution and everything it starts, if the submit sets none; the agent's when absent. */
  readonly budget?: BudgetSpec | null | undefined;
  /** Limits on the number of the definition's executions that run at a time. */
  readonly concurrency?: readonly ConcurrencySpec[] | undefined;
  /** Maximum lifetime of an execution, in seconds; waits are included. */
  readonly deadline_seconds?: number | undefined;
  /** Description for people. */
  readonly description?: string | null | undefined;
  /** Failure codes of the definition, in addition to the built-in ones. */
  readonly failure_codes?: readonly string[] | undefined;
  /** The prompt that asks the model for the failure summary. */
  readonly failure_summary_prompt?: string | undefined;
  /** JSON Schema of the input; any object when absent. */
  readonly input_schema?: unknown | undefined;
  /** Unique slug. */
  readonly key: string;
  /** Maximum number of corrections: `n` allows `n + 1` validated answers. */
  readonly max_retries?: number | undefined;
  /** Display name. */
  readonly name: string;
  /** JSON Schema that the answer must satisfy. When absent, the validators alone decide. */
  readonly output_schema?: unknown | undefined;
  /** The first user message, a minijinja template over `input`. When absent, the input as JSON. */
  readonly prompt?: string | null | undefined;
  /** Retries by failure class, where they differ from the defaults. */
  readonly retry?: RetrySpec | undefined;
  /** The place of the definition's `run()`. */
  readonly runner?: Runner | undefined;
  /** Validators in order; the first failing one decides the next step. */
  readonly validators?: readonly ValidatorRef[] | undefined;
}

/** Newest versions, ordered by key. */
export interface DefinitionVersionPage {
  readonly items: readonly DefinitionVersionView[];
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: string | null;
}

/** One version of a definition. */
export interface DefinitionVersionView {
  readonly created_at: string;
  readonly key: string;
  readonly removed_at: string | null;
  /** True if all tenants share the version. */
  readonly shared: boolean;
  readonly spec: DefinitionSpec;
  readonly version: number;
}

/** Deliveries, newest first. */
export interface DeliveryPage {
  readonly deliveries: readonly DeliveryView[];
  /** Value of `before` for the next page; null at the end. */
  readonly next_before: string | null;
}

/** State of a delivery to a webhook. */
export type DeliveryState = "waiting" | "delivered" | "failed";

/** An event for one webhook. */
export interface DeliveryView {
  readonly attempts: number;
  readonly delivered_at: string | null;
  readonly execution_id: string | null;
  /** The header `webhook-id`, the same at each attempt. */
  readonly id: string;
  readonly last_attempt_at: string | null;
  /** Reason why the last attempt failed. */
  readonly last_error: string | null;
  /** Status of the answer to the last attempt; null if there was none. */
  readonly last_status: number | null;
  readonly next_attempt_at: string | null;
  readonly occurred_at: string;
  /** The approval, question or call that waits for an answer. */
  readonly request_id: string | null;
  readonly state: DeliveryState;
  /** Type of the event. */
  readonly type: WebhookEventType;
}

/** `delta`: text that the model wrote. */
export interface DeltaFrame {
  /** Bytes of the turn's text before this. */
  readonly offset: number;
  /** Number of the event that it tells of */
  readonly seq: number;
  readonly session_id: string;
  readonly text: string;
  /** Number of the turn. */
  readonly turn: number;
}

/**
 * Calls that the execution does not wait for. - `never`: None: the execution waits for every result. - `allowed`: Calls
 * in which the model sets `_detached: true`: such a call is accepted, and nothing waits for its result. - `always`: All
 * calls.
 */
export type Detached = "never" | "allowed" | "always";

/**
 * Format of a document; selects the splitter. - `text`: Split at sentences and paragraphs. - `markdown`: Also split at
 * headings, lists and code blocks.
 */
export type DocumentFormat = "text" | "markdown";

/** A document of an index. */
export interface DocumentView {
  /** Size of its text in bytes. */
  readonly bytes: number;
  /** Number of its chunks. */
  readonly chunks: number;
  /**
   * Hash of everything its chunks are made from. Content with the same hash is not embedded again. Empty until all
   * chunks are stored.
   */
  readonly content_hash: string;
  readonly created_at: string;
  /** The caller's id of the document. */
  readonly id: string;
  /** Metadata that filters compare with. */
  readonly metadata: { readonly [name: string]: unknown };
  /** Time at which its content last changed. */
  readonly updated_at: string;
}

/** Up to 4 MiB of text in documents. */
export interface DocumentsBody {
  readonly documents: readonly IncomingDocument[];
}

/** A page of documents. */
export interface DocumentsPage {
  readonly documents: readonly DocumentView[];
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: string | null;
}

/** `done`: the last frame of a message. */
export interface DoneFrame {
  readonly execution_id: string;
  /** Number of the event that it tells of */
  readonly seq: number;
  readonly session_id: string;
  readonly stop_reason: StopReason;
  readonly token_usage: TokenUsage;
}

/** A durable run. */
export interface DurableRun {
  /** Starts of the program that have asked for a call. */
  readonly attempts: number;
  readonly budget: BudgetView | null;
  /** Model calls recorded so far. */
  readonly calls: number;
  readonly created_at: string;
  readonly deadline_at: string;
  readonly ended_at: string | null;
  readonly key: string;
  /** Reason for its end, if one was given. */
  readonly note: string | null;
  readonly status: RunStatus;
  readonly usage: RunUsage | null;
}

/** Known state of a call's effect. */
export type EffectState = "intended" | "withdrawn" | "done" | "failed" | "reconciled" | "unknown";

/**
 * Reasoning effort of a model; scales the timeouts of a call. - `low`: Short reasoning. - `medium`: Ordinary reasoning.
 * - `high`: Long reasoning.
 */
export type Effort = "low" | "medium" | "high";

/** A model endpoint: a provider, a model and a key. Listed if it failed or was overloaded within a week. */
export interface EndpointView {
  /** Calls per second that the fleet has learned the endpoint takes; null: not limited. */
  readonly calls_per_second: number | null;
  readonly cause: BreakerCause | null;
  /** Concurrent calls that the fleet has learned the endpoint takes; null: not limited. */
  readonly concurrency: number | null;
  /** The failure that opened it. */
  readonly failure_code: string | null;
  /** True if the provider itself stated `until`. */
  readonly is_stated: boolean;
  /** Fingerprint of the endpoint's address and API key; the key itself is not shown. */
  readonly key: string;
  readonly model: string;
  /** Probes so far. */
  readonly probes: number;
  readonly provider: string;
  /** Time at which it last opened. */
  readonly since: string | null;
  /**
   * State of its circuit breaker: `closed`, `open` (no calls), `half_open` (one probe at a time) or `recovering`
   * (waiting executions are released in growing portions).
   */
  readonly state: string;
  /** Time at which the next probe is allowed. */
  readonly until: string | null;
  /** Executions that wait with `provider_down`. */
  readonly waiting: number;
  /** Executions that wait with `rate_limit`. */
  readonly waiting_for_rate: number;
}

/** A change of an episode. */
export interface EpisodeBody {
  /** The new content, for the whole of the old one. */
  readonly content: string;
}

/** Episodes, newest first. */
export interface EpisodePage {
  readonly items: readonly EpisodeView[];
  /** Value of `?cursor=` for the next page; null on the last one. */
  readonly next_cursor: string | null;
}

/** An episode of an agent's memory. */
export interface EpisodeView {
  readonly agent: string;
  readonly content: string;
  readonly created_at: string;
  /** Number of the message in the session, 1 outside sessions; null if a call of `remember` wrote it. */
  readonly exchange: number | null;
  /** Execution in which it was said. */
  readonly execution_id: string;
  /** SHA-256 of the content: `If-Match` of a change. */
  readonly hash: string;
  readonly id: string;
  /** Empty, or the path of the agent's setting and its value. */
  readonly scope: string;
  /** Session in which it was said; null outside sessions. */
  readonly session_id: string | null;
  readonly updated_at: string;
  /** Counts changes, from 1. */
  readonly version: number;
}

/** Executions whose texts are gone. */
export interface Erased {
  /** The execution named, and everything it started. */
  readonly executions: readonly string[];
}

/** Estimate of the remaining time. */
export interface EstimateView {
  /** Basis of the estimate, or the reason why there is none. */
  readonly basis: string;
  /** Seconds from now; null if unknown. */
  readonly seconds: number | null;
}

/**
 * `status`, `retry`, `sub_agent`, `approval_request` and `approval_resolved`: an event of the execution with its data.
 */
export interface EventFrame {
  readonly event: EventKind;
  /** Number of the event that it tells of */
  readonly seq: number;
  readonly session_id: string;
}

/** Kind of an event of an execution. */
export type EventKind =
  | "submitted"
  | "claimed"
  | "retrieval"
  | "status"
  | "turn"
  | "text"
  | "text_void"
  | "call"
  | "provider_down"
  | "fallback"
  | "state_conflict"
  | "verdict"
  | "correction"
  | "reply_cut"
  | "compressed"
  | "journal_diverged"
  | "retrying"
  | "parked"
  | "released"
  | "woken"
  | "signal_received"
  | "log"
  | "progress"
  | "budget_raised"
  | "approval_requested"
  | "approval_decided"
  | "approval_expired"
  | "question_asked"
  | "question_answered"
  | "question_expired"
  | "tool_call_pending"
  | "tool_result_posted"
  | "tool_call_expired"
  | "child_spawned"
  | "child_ended"
  | "child_request"
  | "child_request_decided"
  | "lease_lost"
  | "cancel_requested"
  | "finished"
  | "failed";

/** A page of events. */
export interface EventPage {
  readonly events: readonly EventView[];
  /** True if no event will follow `last`. */
  readonly is_over: boolean;
  /** Number of the execution's last event. */
  readonly last: number;
  /** True if events after the cursor are no longer kept: read the execution itself. */
  readonly resync: boolean;
}

/** One event. */
export interface EventView {
  readonly at: string;
  readonly data: { readonly [name: string]: unknown } | null;
  readonly kind: EventKind;
  /** Number of the event, from 1; the SSE `id`. */
  readonly seq: number;
}

/** One execution. Lists leave out `input`, `output` and the failure's detail. */
export interface Execution {
  readonly agent: Versioned;
  readonly attempts: number;
  /** Budget of its tree, if it has one. Left out of lists. */
  readonly budget?: BudgetView | undefined;
  readonly cancel_requested_at: string | null;
  /** Number of executions it started. */
  readonly children: number;
  readonly created_at: string;
  readonly deadline_at: string;
  readonly definition: Versioned;
  /** Levels below the root. */
  readonly depth: number;
  /** Time at which its texts were erased; null if they were not. */
  readonly erased_at: string | null;
  readonly failure: FailureView | null;
  readonly finished_at: string | null;
  readonly forked_from: ForkedFrom | null;
  readonly id: string;
  /** Input, byte for byte as it was sent. */
  readonly input?: unknown | undefined;
  readonly links: Links;
  readonly metadata: { readonly [name: string]: unknown };
  /** Output, once FINISHED. */
  readonly output?: unknown | undefined;
  /** Execution that started it; null if a caller did. */
  readonly parent_id: string | null;
  readonly priority: number;
  readonly queue: string;
  /**
   * Calls that wait for the caller; of a root also those of all in its tree. Absent if there are none, and in lists.
   */
  readonly requires_action?: readonly PendingCall[] | undefined;
  readonly retries: Retries;
  readonly retry_of: string | null;
  /** Topmost execution of its tree; itself if a caller started it. */
  readonly root_id: string;
  readonly started_at: string | null;
  readonly status: ExecutionStatus;
  readonly tenant: TenantView;
  /** Id of the OpenTelemetry trace that its attempts belong to, in hexadecimal digits. */
  readonly trace_id: string;
  readonly usage: Usage;
  readonly wait_reason: WaitReason | null;
  readonly wait_until: string | null;
  readonly worker_id: string | null;
}

/** A page of executions. */
export interface ExecutionPage {
  /** Executions, newest first. */
  readonly executions: readonly Execution[];
  /** Cursor of the next page; null on the last one. */
  readonly next_cursor: string | null;
}

/** State of an execution. */
export type ExecutionStatus = "PENDING" | "IN_PROGRESS" | "FINISHED" | "FAILED";

/**
 * Number of tasks that run at a time. What a task depends on ends first under each of them. - `sequential`: One at a
 * time, in the order of the plan. - `parallel`: All that are ready. The planner is told to make tasks that do not
 * depend on each other. - `dag`: At most `max_parallel_tasks` of those that are ready.
 */
export type ExecutionStrategy = "sequential" | "parallel" | "dag";

/** A relation. */
export interface FactView {
  /** Episodes that say so. */
  readonly episodes: readonly string[];
  readonly text: string;
}

/** Class of a failure; it decides whether and when the execution is retried. */
export type FailureClass = "transient" | "tool_error" | "llm_error" | "context_limit" | "permanent" | "human_rejected";

/** Executions that failed in the same way. */
export interface FailureCount {
  readonly class: FailureClass | null;
  readonly code: string;
  readonly definition: string;
  readonly executions: number;
}

/** `error`: the execution failed; `done` follows. */
export interface FailureFrame {
  readonly code: string | null;
  readonly message: string | null;
  /** Number of the event that it tells of */
  readonly seq: number;
  readonly session_id: string;
}

/** Failure of the execution. */
export interface FailureView {
  readonly class: FailureClass | null;
  readonly code: string;
  readonly detail?: unknown | undefined;
  readonly summary: string | null;
}

/** A model to use when another model's provider is down. */
export interface FallbackModel {
  /** Files that the model takes; as its model when absent. */
  readonly accepts?: readonly FileInput[] | null | undefined;
  /** The provider's name for the model; the provider's default when absent. */
  readonly name?: string | null | undefined;
  /** A provider of the worker's configuration; the model's own when absent. */
  readonly provider?: string | null | undefined;
}

/** A kind of files that a model takes. - `images`: PNG, JPEG and WebP. */
export type FileInput = "pdf" | "images";

/** An upload. */
export interface FileView {
  readonly created_at: string;
  /** End of the upload. Messages that name it keep the bytes longer. */
  readonly expires_at: string | null;
  /** Id by which a message names it. */
  readonly file_id: string;
  readonly name: string | null;
  /** SHA-256 of the bytes, in hexadecimal. */
  readonly sha256: string;
  /** Length in bytes. */
  readonly size: number;
  /** Media type, by the bytes. */
  readonly type: string;
}

/** Cause of a firing. */
export type FiringKind = "tick" | "manual";

/** Firings, newest first. */
export interface FiringPage {
  readonly firings: readonly FiringView[];
  /** Value of `?before=` for the next page; null on the last one. */
  readonly next_before: string | null;
}

/** State of a firing. */
export type FiringState = "queued" | "running" | "ended" | "over" | "skipped";

/** A tick that was fired, or a run that was asked for. */
export interface FiringView {
  readonly execution_id: string | null;
  readonly failure_code: string | null;
  /** Time at which it was fired. */
  readonly fired_at: string;
  /** Oldest tick that it stands for; earlier than `tick` if ticks were missed. */
  readonly first_tick: string;
  readonly kind: FiringKind;
  readonly reason: NotStarted | null;
  /** `queued`, `running`, `over`, or `skipped`: nothing was started. `ended`: sub-agents of the run have not. */
  readonly state: FiringState;
  readonly status: ExecutionStatus | null;
  /** The tick; for a manual run, the time of the request. */
  readonly tick: string;
}

/** The work that waits for or runs on workers, and the number of workers that it takes. */
export interface FleetDemand {
  /** Workers that hold a lease. */
  readonly busy_workers: number;
  /** Executions that a worker runs at a time, as assumed for `workers_wanted`. */
  readonly concurrency: number;
  /** Executions that wait for a worker, counted to 100,000. */
  readonly due: number;
  /** Executions under a lease. */
  readonly held: number;
  /** Workers that show signs of life. */
  readonly live_workers: number;
  /** Workers that run everything due and held at once; never fewer than `busy_workers`. */
  readonly workers_wanted: number;
}

/** Deleted episodes. Records of conversations are not changed: those named hold the texts until they are deleted. */
export interface ForgottenView {
  /** Number of episodes. */
  readonly episodes: number;
  /** The same for executions outside sessions. */
  readonly executions: readonly string[];
  /** Sessions in which it was said, or which recalled it; at most 1,000. */
  readonly sessions: readonly string[];
}

/** Changes relative to the origin. Fields left out keep the origin's value. */
export interface ForkBody {
  /**
   * Another agent, in its newest version: its prompt, model, tools and policy hold from the fork on. The origin's
   * overrides of its own agent are dropped, but for the tools that its caller runs.
   */
  readonly agent?: string | null | undefined;
  /** Another budget; when absent, a new one with the origin's caps. */
  readonly budget?: BudgetSpec | null | undefined;
  /** First step that is not shared: it and all after it are done again. 1: nothing is shared. */
  readonly from_step: number;
  /** Another input, valid against the definition's input schema. */
  readonly input?: unknown | undefined;
  /** Another model: its name, or an object whose fields replace those of the agent's `model`. */
  readonly model?: string | { readonly [name: string]: unknown } | null | undefined;
  /**
   * Another system prompt, a minijinja template over `input`. Needs the scope `definitions:write`, and also `admin` if
   * all tenants share the agent and it does not set `fork_overrides`. The same holds for `model`.
   */
  readonly prompt?: string | null | undefined;
}

/** Origin of a fork. */
export interface ForkedFrom {
  readonly id: string;
  /** First step that is not shared. */
  readonly step: number;
}

/** An episode that fits. */
export interface FoundView {
  readonly content: string;
  readonly id: string;
  /** Larger is better. */
  readonly relevance: number;
}

/** State of a quarantine group. */
export type GroupState = "shut" | "canary" | "releasing";

/** A quarantine group: executions of one tenant with the same definition and agent version. */
export interface GroupView {
  /** Execution that is tried as the canary. */
  readonly canary: string | null;
  /** Builds of workers that the group killed. */
  readonly died_builds: readonly string[];
  /** Time since which new executions of this version are held back. */
  readonly held_since: string | null;
  /**
   * `shut` (waits for a worker of a build that the group has not killed), `canary` (one execution is tried) or
   * `releasing` (the rest follows).
   */
  readonly state: GroupState;
}

/** The model endpoints. */
export interface HealthView {
  readonly endpoints: readonly EndpointView[];
}

/** A webhook or a channel. */
export interface HeldWebhookView {
  readonly id: string;
  readonly is_enabled: boolean;
  /** `standard`, `slack` or `email`. */
  readonly kind: string;
}

/** The hold on new executions of the same version. */
export interface HoldingView {
  readonly definition: string;
  /** Their quarantine group. */
  readonly group: GroupView;
  /** Executions of this version in quarantine, because they killed their workers. */
  readonly quarantined: number;
  readonly version: number | null;
}

/** Objects that a key or an account wrote and that act after it. */
export interface HoldingsView {
  /** True if a list has more than its 200 entries. */
  readonly is_cut: boolean;
  /** Messages that wait for their turn; they are answered, unless they are cancelled. */
  readonly queued_messages: readonly QueuedMessageView[];
  /** Keys of its schedules. Those of a revoked key or a disabled account start nothing. */
  readonly schedules: readonly string[];
  /** Webhooks and channels that it wrote last. The channels of a revoked key or a disabled account are off. */
  readonly webhooks: readonly HeldWebhookView[];
}

/** A document to put into an index. */
export interface IncomingDocument {
  /** Determines where the text may be cut. */
  readonly format?: DocumentFormat | undefined;
  /** The caller's id of the document. The same id again replaces it. */
  readonly id: string;
  /** Metadata that filters compare with and models see with every chunk; `title` and `uri` name the source. */
  readonly metadata?: { readonly [name: string]: unknown } | undefined;
  /** Text of the document, not blank, up to 2 MiB. */
  readonly text: string;
}

/** A search index. */
export interface IndexView {
  /** Number of chunks. */
  readonly chunks: number;
  readonly created_at: string;
  /** Numbers per embedding. */
  readonly dimension: number | null;
  /** Number of documents. */
  readonly documents: number;
  /** Model of its embeddings; null if it is searched by keywords only. */
  readonly embeddings_model: string | null;
  /** Name of the index. */
  readonly name: string;
  /** Store of its chunks: `pgvector`, `qdrant_http` or `weaviate_http`. */
  readonly store: string;
  /** Time at which a document was last put or removed. */
  readonly updated_at: string;
}

/** A page of indexes. */
export interface IndexesPage {
  readonly indexes: readonly IndexView[];
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: string | null;
}

/** Outcomes, in the order of the documents. */
export interface Ingested {
  readonly documents: readonly IngestedView[];
  readonly index: string;
}

/** Outcome for a document: `unchanged` if the index holds the same document already. */
export type IngestedStatus = "stored" | "unchanged";

/** Outcome for one document. */
export interface IngestedView {
  /** Number of its chunks. */
  readonly chunks: number;
  readonly id: string;
  readonly status: IngestedStatus;
}

/** A part of a message. */
export type InputPart = {
  readonly text: string;
  readonly type: "text";
} | {
  readonly file_id: string;
  readonly type: "file";
};

/** One plan over many items: the meaning of the tokens in `_instance`. */
export interface InstancesSpec {
  /**
   * Name of an array in the input: instance ① gets its first item as `†input`, ② the second, and so on. When absent,
   * the model chooses its own tokens.
   */
  readonly over?: string | null | undefined;
}

/** A request to run an agent. Unknown fields are ignored. */
export interface InternalAgentExecutionBody {
  /** Key of the agent, perhaps with its version: `support@v3` */
  readonly agent_id: string;
  /** Version of the agent: `v3` or `3`; the newest when absent */
  readonly agent_version?: string | undefined;
  /** Group within the organisation */
  readonly group_id?: string | undefined;
  /** `prompt` or `messages`, a managed `model`, and a search in `retrieval` */
  readonly input?: {
    readonly messages?: readonly { readonly [name: string]: unknown }[] | undefined;
    /** Id of a managed model */
    readonly model?: string | undefined;
    readonly prompt?: string | undefined;
    readonly retrieval?: { readonly [name: string]: unknown } | undefined;
    readonly [name: string]: unknown;
  } | undefined;
  /** Organisation that owns the execution */
  readonly org_id?: string | undefined;
  /** Snapshot of the bindings and their providers */
  readonly platform_runtime?: { readonly [name: string]: unknown } | undefined;
  /** `user` when absent */
  readonly requested_by_role?: string | undefined;
  readonly requested_by_user_id?: number | undefined;
  readonly runtime_profile?: RuntimeProfile | undefined;
  readonly [name: string]: unknown;
}

/** An API key to create. */
export interface KeyBody {
  /**
   * End of the key; none when absent. A key that ends gives its own end to the keys it creates, unless they end
   * earlier.
   */
  readonly expires_at?: string | null | undefined;
  /** Group of the key within `org_id`. */
  readonly group_id?: string | null | undefined;
  /** Name for people. */
  readonly name: string;
  /** Organisation of the key; the caller's tenant when absent. Needs the scope `admin`. */
  readonly org_id?: string | null | undefined;
  /**
   * Roles whose scopes the key has as well: `viewer`, `operator`, `approver`, `admin`, `superadmin`. The key keeps the
   * scopes that they have now.
   */
  readonly roles?: readonly string[] | null | undefined;
  /**
   * Scopes, each of which the asking key must have: `executions:read`, `executions:write`, `approvals:decide`,
   * `definitions:read`, `definitions:write`, `keys:write`, `audit:read`, `admin`.
   */
  readonly scopes?: readonly string[] | null | undefined;
}

/** API keys, newest first. */
export interface KeyPage {
  readonly keys: readonly KeyView[];
  /** Value of `cursor` for the next page; null at the end. */
  readonly next_cursor: string | null;
}

/** A rotation. */
export interface KeyRotationBody {
  /** End of the new key; that of the old one when absent. */
  readonly expires_at?: string | null | undefined;
  /** Time for which the old key is still accepted, in seconds, up to 30 days; a day when absent. */
  readonly overlap_seconds?: number | null | undefined;
}

/** Right of a key. */
export type KeyScope =
  | "executions:read"
  | "executions:write"
  | "approvals:decide"
  | "definitions:read"
  | "definitions:write"
  | "workers:run"
  | "keys:write"
  | "audit:read"
  | "admin";

/** A new API key with its secret, which no other answer shows. */
export type KeySecretView = KeyView & {
  /** The key; null in a repeat under the same `Idempotency-Key`. */
  readonly key?: string | null | undefined;
  /** In a repeat, the reason why the secret is not shown. */
  readonly withheld?: string | null | undefined;
};

/** State of an API key. */
export type KeyState = "active" | "expired" | "revoked";

/** An API key, without its secret. */
export interface KeyView {
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly group_id: string | null;
  readonly id: string;
  /** Last use, exact to about a minute. */
  readonly last_used_at: string | null;
  readonly name: string;
  readonly org_id: string;
  /** Its characters after `lh_`, by which people recognise it. */
  readonly prefix: string;
  /** Key that the newest rotation made in its place. */
  readonly replaced_by: string | null;
  readonly revoked_at: string | null;
  readonly scopes: readonly KeyScope[];
  readonly state: KeyState;
}

/** Failure of its last attempt. */
export interface LastFailureView {
  readonly attempt: number;
  readonly class: FailureClass | null;
  readonly code: string | null;
  readonly summary: string | null;
}

/** A tool without a handler. The model writes the result into `_output` as part of the call. */
export interface LatentToolSpec {
  /** Description for the model. */
  readonly description: string;
  /** The name the model calls; `[a-zA-Z0-9_-]{1,64}`, unique among the agent's tools. */
  readonly name: string;
  /** JSON Schema of the result that the model writes; any value when absent. */
  readonly output?: unknown | undefined;
  /** JSON Schema of the arguments; an object. */
  readonly parameters?: unknown | undefined;
}

/**
 * The time at which a call starts, once the results it refers to are available. - `eager`: As soon as its arguments
 * have streamed. The default for read-only and idempotent tools. - `on_close`: After the whole reply has arrived. The
 * default for tools with side effects: a reply may still fail as a whole.
 */
export type Launch = "eager" | "on_close";

/** A call that may have changed something. */
export interface LedgerEntryView {
  /** Attempt that made the call; 0: copied by a retry or a fork. */
  readonly attempt: number;
  /** `idempotent` or `side_effect`. */
  readonly effect: ToolEffect;
  readonly finished_at: string | null;
  /** Idempotency key that the tool received. */
  readonly idempotency_key: string | null;
  readonly preview: string | null;
  /** Number of its step. */
  readonly seq: number;
  readonly started_at: string;
  /**
   * `intended` (may have begun, no result), `withdrawn` (never began), `done`, `failed`, `reconciled` or `unknown` (a
   * worker died during the call, and the tool could, or could not, tell its outcome).
   */
  readonly state: EffectState;
  readonly tool: string;
}

/** Calls, in the order of their steps. */
export interface LedgerPage {
  readonly entries: readonly LedgerEntryView[];
  /** Value of `?after=` for the next page; null on the last one. A page before the last may be empty. */
  readonly next_after: number | null;
}

/** The new limit. */
export interface LimitBody {
  /** Maximum number of concurrent executions for each value of the key; 0 holds all of them back. */
  readonly limit: number;
}

/** The limit that holds from now on. */
export interface LimitSet {
  readonly key: string;
  readonly limit: number;
  readonly shared: boolean;
  /** Executions that waited for the limit and may run now. */
  readonly woken: number;
}

/** Origin of a concurrency limit. */
export type LimitSource = "definition" | "agent" | "operator" | "session" | "sub_agent";

/** A concurrency limit and its current use. */
export interface LimitView {
  /** Held slots, over all values. */
  readonly held: number;
  /** Key that groups executions, with a value if the limit covers only that value. */
  readonly key: string;
  /** Maximum number of concurrent executions for each value of the key. */
  readonly limit: number;
  /** True if the limit covers all tenants' executions. */
  readonly shared: boolean;
  /** `operator` (set here), `definition` or `agent` (part of their newest version). */
  readonly source: LimitSource;
  /** Definition or agent that has the limit. */
  readonly subject: string | null;
  /** Executions that wait for a slot; counted up to 10000. */
  readonly waiting: number;
}

/** A page of limits. */
export interface LimitsPage {
  readonly limits: readonly LimitView[];
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: string | null;
}

/** Links to more about the execution. */
export interface Links {
  readonly attempts: string;
  readonly cancel: string;
  /** Executions that it started. */
  readonly children: string;
  readonly events: string;
  readonly fork: string;
  readonly retry: string;
  readonly self: string;
  readonly steps: string;
  /** Takes the results of calls that the caller runs. */
  readonly tool_results: string;
}

/** Live workers that could run it. */
export interface LiveWorkersView {
  readonly count: number;
  readonly free: number;
  /** Maximum number of executions that they run at a time. */
  readonly permits: number;
}

/** A model under its managed id, which requests use. */
export interface ManagedModelSpec {
  /** Name for people. Defaults to the id. */
  readonly display_name?: string | null | undefined;
  /** Managed id. */
  readonly id: string;
  /** Free-form metadata. */
  readonly metadata?: { readonly [name: string]: unknown } | undefined;
  /** Provider's name of the model. If absent, the worker looks it up in the provider's model list. */
  readonly provider_model_id?: string | null | undefined;
}

/**
 * An MCP server: a child process that communicates over its standard streams, or an HTTP endpoint. Set exactly one of
 * `command` and `url`.
 */
export interface McpServerSpec {
  /** The tools of the server to use; all when empty. */
  readonly allow?: readonly string[] | undefined;
  /** Settings of the calls of its tools, by tool name, where they differ from the defaults. */
  readonly calls?: { readonly [name: string]: CallSettings } | undefined;
  /** The program and its arguments. */
  readonly command?: readonly string[] | undefined;
  /** The effect of running a tool twice, by tool name, where it is known. */
  readonly effects?: { readonly [name: string]: ToolEffect } | undefined;
  /** The environment of the program; values may be references such as `env://TOKEN`. */
  readonly env?: { readonly [name: string]: string } | undefined;
  /** Request headers; values may be references such as `env://TOKEN`. */
  readonly headers?: { readonly [name: string]: string } | undefined;
  /**
   * The argument that receives a call's idempotency key, by tool name, for servers that do not read the key from the
   * request's metadata. The argument is hidden from the model.
   */
  readonly idempotency_arguments?: { readonly [name: string]: string } | undefined;
  /** Maximum duration of one call, in seconds. */
  readonly timeout_seconds?: number | null | undefined;
  /** Trust the server's own hints about the effect of its tools. */
  readonly trusted?: boolean | undefined;
  /** The streamable-HTTP endpoint. */
  readonly url?: string | null | undefined;
}

/** Results of a search, best first. */
export interface MemoryResults {
  /** Relations of what the query names. */
  readonly facts: readonly FactView[];
  readonly results: readonly FoundView[];
}

/** A search in the memory of an agent. */
export interface MemorySearchBody {
  /** Key of the agent. */
  readonly agent: string;
  /** Words or a question. */
  readonly query: string;
  /** Whole scope; the memory that all users share when absent. */
  readonly scope?: string | undefined;
  /** Maximum number of episodes, and of facts; 5 when absent. */
  readonly top_k?: number | undefined;
}

/** Settings of an agent's memory; see docs/guide/memory.md. */
export interface MemorySpec {
  /** True: sessions and executions are remembered; false: nothing is. When absent, sessions are. */
  readonly enabled?: boolean | null | undefined;
  /** Maximum size of all memories in the prompt, in tokens of about four bytes. */
  readonly prompt_tokens?: number | undefined;
  /** Memories in the prompt that fit the message. */
  readonly recall_top_k?: number | undefined;
  /** Newest episodes in the prompt. */
  readonly recent_episodes?: number | undefined;
  /**
   * `metadata.<path>`: the memory is kept apart by this value of the metadata of the session, or of the execution
   * outside sessions. Without a value there is no memory. When absent, all users of a tenant share one.
   */
  readonly scope?: string | null | undefined;
}

/** A message to an agent. */
export interface MessageBody {
  readonly message: MessageContent;
  /** Policy if another message is answered; the session's when absent. */
  readonly on_busy?: OnBusy | null | undefined;
}

/** A text, or texts and files in order. */
export type MessageContent = string | readonly InputPart[];

/** Messages of a transcript, in order. */
export interface MessagePage {
  readonly messages: readonly MessageView[];
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: number | null;
}

/** One message of a transcript. */
export interface MessageView {
  /** True if its text was erased; `message` says so. */
  readonly erased: boolean;
  readonly execution_id: string;
  /** True if it is a reply that an interrupt cut off. */
  readonly interrupted: boolean;
  /** `role` is `system`, `user`, `assistant` or `tool`. A user's `parts` are texts, images and files. */
  readonly message: { readonly [name: string]: unknown };
  /** First and last message that this one stands for, if it is a summary. */
  readonly replaces: readonly number[] | null;
  /** Number in the session, from 1. */
  readonly seq: number;
}

/** The model and its request parameters. An absent field is not sent. */
export interface ModelSpec {
  /** Files that the model takes beside text. It is sent a description of any other; text files are sent as text. */
  readonly accepts?: readonly FileInput[] | undefined;
  /** Reasoning effort, for models that support it. */
  readonly effort?: Effort | null | undefined;
  /** Further request fields, sent to the provider unchanged. */
  readonly extra?: { readonly [name: string]: unknown } | undefined;
  /**
   * Models to use instead, in this order, when the model's provider is down or out of quota for longer than the
   * worker's configuration lets an execution wait.
   */
  readonly fallback?: readonly FallbackModel[] | undefined;
  /** Maximum length of a reply, in tokens. */
  readonly max_output_tokens?: number | null | undefined;
  /** The provider's name for the model; the provider's default when absent. */
  readonly name?: string | null | undefined;
  /** The form in which the model returns the answer of a definition with an output schema. */
  readonly output?: OutputMode | undefined;
  /** A provider of the worker's configuration; the configured default when absent. */
  readonly provider?: string | null | undefined;
  /**
   * The answers of the scripted model: a minijinja program over `messages`, `tools` and `turn`
   * (docs/guide/scripted-model.md).
   */
  readonly script?: string | null | undefined;
  /** Request the reply as a stream. */
  readonly stream?: boolean | undefined;
  /**
   * Have the provider enforce the schemas of the tools, where a schema can be expressed in the provider's strict form.
   * OpenAI-compatible servers only.
   */
  readonly strict_tools?: boolean | undefined;
  /** Sampling temperature. */
  readonly temperature?: number | null | undefined;
}

/** A model under the name that requests use. */
export interface ModelView {
  readonly display_name: string;
  readonly id: string;
  readonly metadata: { readonly [name: string]: unknown };
  readonly provider_model_id: string | null;
}

/** Amounts of the calendar month. */
export interface MonthView {
  /** Its first day. */
  readonly month: string;
  /** Reserved by the run under way. */
  readonly reserved: AmountsView;
  /** Charged by runs that have ended. */
  readonly spent: AmountsView;
}

/** Caps on all runs of a calendar month together. A run reserves its own budget before it starts. */
export interface MonthlyBudget {
  /** Maximum cost in US dollars. */
  readonly max_cost_usd?: Usd | null | undefined;
  /** Maximum number of model calls. */
  readonly max_model_calls?: number | null | undefined;
  /** Maximum number of tokens, sent and received. */
  readonly max_tokens?: number | null | undefined;
}

/** A concurrency limit of which it needs a slot. */
export interface NeededLimitView {
  readonly held: number;
  /** Slots held by other tenants. */
  readonly held_by_others: number;
  /** Executions of the same tenant that hold slots; at most twenty. */
  readonly holders: readonly string[];
  /** True if the execution waits for this limit. */
  readonly is_waited_for: boolean;
  /** Key that groups executions, with this execution's value. */
  readonly key: string;
  readonly limit: number;
  readonly source: LimitSource;
  /** Definition or agent that has the limit. */
  readonly subject: string | null;
}

/** Reason why a firing started no execution. */
export type NotStarted =
  | "overlap"
  | "queue_full"
  | "superseded"
  | "missed"
  | "paused"
  | "monthly_budget"
  | "unknown_definition"
  | "unknown_agent"
  | "version_removed"
  | "agent_not_allowed"
  | "invalid_input"
  | "unreadable";

/** The names that the live workers know. Empty if no worker lives that says so. */
export interface Offers {
  /**
   * `<provider>/<model>`, without a provider for the default one. `<provider>/*` where the configuration lists no
   * models.
   */
  readonly models: readonly string[];
  /** Model providers of the configuration. */
  readonly providers: readonly string[];
  /** Registered and built-in tools. Those of MCP servers come with agents. */
  readonly tools: readonly string[];
  /** Registered and built-in validators. */
  readonly validators: readonly string[];
}

/**
 * Policy for a message that arrives while another is answered. - `reject`: The message is refused. - `enqueue`: The
 * message waits for its turn. - `interrupt`: The execution under way is cancelled; what was said stays. - `rollback`:
 * The execution under way is cancelled, and its turns are left out of the transcript.
 */
export type OnBusy = "reject" | "enqueue" | "interrupt" | "rollback";

/**
 * Consequence of a call that fails. - `tell`: The model is told and continues. - `fail`: The run fails with
 * `tool_failed`, class `tool_error`.
 */
export type OnError = "tell" | "fail";

/**
 * Handling of an execution whose next model call exceeds its budget. - `park`: Park it until the budget is raised or a
 * reservation is released. - `fail`: End it as FAILED with `budget_exhausted`.
 */
export type OnExhausted = "park" | "fail";

/**
 * Effect of a rejection on the run. - `continue`: The model is told of the rejection and continues. - `end`: The run
 * ends with `human_rejected`.
 */
export type OnReject = "continue" | "end";

/** An execution that it started and that is not over. */
export interface OpenChildView {
  readonly id: string;
  readonly status: ExecutionStatus;
  readonly wait_reason: WaitReason | null;
}

/** A request to a person or its caller that it waits for. */
export interface OpenRequestView {
  readonly call_id: string;
  readonly expires_at: string;
  readonly id: string;
  /** `tool_call`: its caller runs the call. */
  readonly kind: RequestKind;
  readonly tool: string;
}

/**
 * The form in which the model returns the answer of a definition with an output schema. Each form is validated in the
 * same way, and an answer in plain text is always accepted. - `tool`: A call of the tool `submit_output`, whose
 * arguments have the schema. - `native`: Text for which the provider itself enforces the schema, if it can. - `text`:
 * Plain text.
 */
export type OutputMode = "tool" | "native" | "text";

/**
 * Treatment of a tick that comes while a run is under way. Two runs of a schedule never overlap. - `skip`: The tick
 * starts no run. - `queue`: Its run starts when the one under way has ended. - `cancel_running`: The run under way is
 * cancelled; the tick's run starts when it has ended.
 */
export type Overlap = "skip" | "queue" | "cancel_running";

/** Counts of a tenant's executions by state, and its newest ones. */
export interface Overview {
  /** Number of executions by status. */
  readonly counts: { readonly [name: string]: number };
  readonly recent: Recent;
  /** Open executions by queue and reason, of the first 20,000 open ones. */
  readonly waiting: readonly WaitingCount[];
}

/** A call that waits for the caller: `POST /v1/executions/{execution_id}/tool-results` takes its result. */
export interface PendingCall {
  /**
   * Arguments, byte for byte, with references resolved. A key without the scope `executions:write` gets `[redacted]`
   * for values that are marked as secret.
   */
  readonly arguments: { readonly [name: string]: unknown };
  readonly call_id: string;
  /** Execution that made the call: this one, or one below it in its tree. */
  readonly execution_id: string;
  /** Without a result until then, the model reads an error. */
  readonly expires_at: string;
  /** Binds a result to this call. */
  readonly hash: string;
  /** `tool_call`, or `question` for a call of `ask_caller`. */
  readonly kind: PendingCallKind;
  /** Name of the tool. */
  readonly name: string;
  /** JSON Schema of the output; null if any will do. */
  readonly output_schema: { readonly [name: string]: unknown } | null;
  /** Id of the request; of a question, that of `/v1/questions/{id}`. */
  readonly request_id: string;
  readonly requested_at: string;
}

/** Kind of a call that waits for its caller: `question` for a call of `ask_caller`. */
export type PendingCallKind = "question" | "tool_call";

/** Percentiles of a duration; null without any. */
export interface Percentiles {
  readonly p50: number | null;
  readonly p95: number | null;
  readonly p99: number | null;
}

/** Place in a line. */
export interface PlaceView {
  /** Executions of the same tenant before it; counted up to 1000. */
  readonly ahead: number;
  /** True if there may be more than `ahead`. */
  readonly is_at_least: boolean;
  /** Other tenants that wait in the same line. Tenants take turns by their usage. */
  readonly other_tenants: number;
}

/** Tasks, and the phases in which they run. */
export interface Plan {
  /**
   * Phases in order: tasks of a phase start when all tasks of the phases before it have ended. One phase when absent.
   */
  readonly phases?: readonly PlannedPhase[] | undefined;
  /** Tasks, in the order in which ready ones start. */
  readonly tasks: readonly PlannedTask[];
}

/** A plan to put. */
export interface PlanBody {
  readonly plan: Plan;
  /** Number of the plan that it replaces; another plan in its place is kept. Any when absent. */
  readonly version?: number | null | undefined;
}

/** A plan and its number. */
export interface PlanView {
  readonly plan: Plan;
  /** 0 without a plan. */
  readonly version: number;
}

/** A phase of a plan. */
export interface PlannedPhase {
  /** Strategy of the phase; the project's when absent. */
  readonly execution_strategy?: ExecutionStrategy | null | undefined;
  /** True if the project waits for `POST …/continue` after the phase. */
  readonly gate?: boolean | undefined;
  /** Name, unique in the plan. */
  readonly name: string;
}

/** A task of a plan. */
export interface PlannedTask {
  /** Agent that carries it out; the project's when absent. */
  readonly agent?: string | null | undefined;
  /** Keys of tasks that must complete before it starts. */
  readonly depends_on?: readonly string[] | undefined;
  /** Name that other tasks refer to, unique in the plan. */
  readonly key: string;
  /** Name of its phase; the first when absent. */
  readonly phase?: string | null | undefined;
  /**
   * The task for the agent. `{{ tasks.KEY.output }}` stands for the output of a task that it depends on, at most 16 KiB
   * of it.
   */
  readonly prompt: string;
  /** Number of times that it is started again when it failed. */
  readonly retries?: number | undefined;
  /** Longest life of its execution, in seconds, waits included. */
  readonly timeout_seconds?: number | null | undefined;
  /** Title for people. */
  readonly title?: string | undefined;
}

/** The platform document. Each entry of a list replaces the whole stored entry of the same name. */
export interface PlatformSpec {
  /** Owners and shares of agents. */
  readonly access?: readonly AccessSpec[] | undefined;
  /** Slug of the profile that becomes active. */
  readonly active_profile?: string | null | undefined;
  /** In a file, `platform`; distinguishes the document from an agent or a definition. */
  readonly kind?: string | null | undefined;
  /** Models that bindings may list. */
  readonly managed_models?: readonly ManagedModelSpec[] | undefined;
  /** Rules for executing agents. A deny always wins. */
  readonly policy_rules?: readonly RuleSpec[] | undefined;
  /** Deployment profiles with all their bindings. */
  readonly profiles?: readonly ProfileSpec[] | undefined;
  readonly providers?: readonly ProviderSpec[] | undefined;
  /** Runtime profile of runs that request none. */
  readonly runtime_profile?: RuntimeProfile | null | undefined;
  /** Tools that agents may name in `tool_refs`. */
  readonly tools?: readonly CatalogueToolSpec[] | undefined;
}

/** The current platform. */
export interface PlatformView {
  /** Access to agents, as in the document. */
  readonly access: readonly AccessSpec[];
  readonly active_profile: string | null;
  readonly managed_models: readonly ModelView[];
  /** Policy rules, as in the document. */
  readonly policy_rules: readonly RuleSpec[];
  readonly profiles: readonly ProfileView[];
  readonly providers: readonly ProviderView[];
  readonly runtime_profile: RuntimeProfile | null;
  /** Tools, as in the document of `PUT /v1/platform`. */
  readonly tools: readonly CatalogueToolSpec[];
}

/** State of Postgres. */
export type PostgresState = "up" | "down";

/**
 * Preprocessing of the query. - `none`: The query is used unchanged. - `normalize`: Normalised with [`normalize()`].
 */
export type Preprocessing = "none" | "normalize";

/** Body of every error response. */
export interface Problem {
  /** Stable name of the error; docs/reference/api.md lists them. */
  readonly code: string;
  /** Description for people. May change. */
  readonly detail: string;
  /** All violations of the request, at most 20. */
  readonly errors?: readonly Violation[] | undefined;
  /** The execution that the error is about. */
  readonly execution_id?: string | undefined;
  /** HTTP status. */
  readonly status: number;
  /** HTTP reason phrase of the status. */
  readonly title: string;
  /** `urn:longhaul:error:<code>`. */
  readonly type: string;
}

export interface ProfileSpec {
  /** Bindings by capability. */
  readonly bindings?: { readonly [name: string]: BindingSpec } | undefined;
  /** Name for people. Defaults to the slug. */
  readonly display_name?: string | null | undefined;
  readonly slug: string;
}

/** A deployment profile. */
export interface ProfileView {
  readonly bindings: { readonly [name: string]: BindingView };
  readonly display_name: string;
  readonly is_active: boolean;
  readonly slug: string;
}

/** A project to create. */
export interface ProjectBody {
  /** The same. */
  readonly agent?: string | null | undefined;
  /** Agent that makes the plan, and carries out tasks that name no other; exactly one of `agent_id` and `agent`. */
  readonly agent_id?: string | null | undefined;
  /** Further agents that tasks may name. */
  readonly agents?: readonly string[] | undefined;
  /** Budget of the planner and all tasks together, in the place of the agents' own. */
  readonly budget?: BudgetSpec | null | undefined;
  /** Longest life of the project in seconds; at most 30 days. No end when absent. */
  readonly deadline_seconds?: number | null | undefined;
  /**
   * `sequential` (one task at a time), `parallel` (all that are ready) or `dag` (when absent; at most
   * `max_parallel_tasks` of those that are ready).
   */
  readonly execution_strategy?: ExecutionStrategy | undefined;
  readonly goal: string;
  /** Most tasks that run at a time under `dag`; 8 when absent. */
  readonly max_parallel_tasks?: number | undefined;
  /** Labels of the project. */
  readonly metadata?: { readonly [name: string]: unknown } | undefined;
  /** Name for people; the beginning of the goal when absent. */
  readonly name?: string | null | undefined;
  /** True if the plan waits for `POST …/approve`. */
  readonly needs_approval?: boolean | undefined;
  /** The plan. When absent, the agent makes one, unless `planner` is false. */
  readonly plan?: Plan | null | undefined;
  /** False to put the plan later. */
  readonly planner?: boolean | undefined;
  /** Queue of its executions. */
  readonly queue?: string | undefined;
}

/** Events in order. */
export interface ProjectEventPage {
  readonly events: readonly ProjectEventView[];
}

/** An event of a project. */
export interface ProjectEventView {
  readonly at: string;
  readonly data: { readonly [name: string]: unknown };
  readonly kind: string;
  /** Number, from 1, without gaps. */
  readonly seq: number;
}

/** Projects, newest first. */
export interface ProjectPage {
  /** Value of `?before=` for the next page; null on the last one. */
  readonly next_before: string | null;
  readonly projects: readonly ProjectView[];
}

/** Reason for the pause of a project. */
export type ProjectPauseReason = "request" | "gate";

/** Status of a project. */
export type ProjectStatus =
  | "pending"
  | "planning"
  | "awaiting_approval"
  | "approved"
  | "in_progress"
  | "paused"
  | "completed"
  | "failed"
  | "cancelled";

/** A project. */
export interface ProjectView {
  /** Agent of tasks that name no other. */
  readonly agent: string;
  readonly budget: BudgetView | null;
  readonly created_at: string;
  readonly deadline_at: string | null;
  readonly execution_strategy: ExecutionStrategy;
  readonly failure_code: string | null;
  readonly failure_summary: string | null;
  readonly finished_at: string | null;
  readonly goal: string;
  readonly id: string;
  readonly max_parallel_tasks: number;
  readonly metadata: { readonly [name: string]: unknown };
  readonly name: string;
  readonly needs_approval: boolean;
  readonly pause_reason: ProjectPauseReason | null;
  /** Phase that runs. */
  readonly phase: string | null;
  /** Number of the plan; 0 without one. */
  readonly plan_version: number;
  /** Execution that made the plan. */
  readonly planner_execution_id: string | null;
  readonly started_at: string | null;
  /**
   * `pending` (no plan), `planning`, `awaiting_approval`, `approved` (waits for its turn to run), `in_progress`,
   * `paused`, `completed`, `failed` or `cancelled`.
   */
  readonly status: ProjectStatus;
  /** Numbers of tasks by status. */
  readonly tasks: { readonly [name: string]: number };
}

/** Last result of a provider's health check. */
export type ProviderHealthState = "unknown" | "up" | "down";

/** Last result of a provider's `healthcheck_url`. */
export interface ProviderHealthView {
  readonly detail: string | null;
  readonly since: string | null;
  readonly state: ProviderHealthState;
}

export interface ProviderSpec {
  /** Protocol of the provider. */
  readonly adapter_kind: string;
  /** Paths, formats, limits and `secret_refs`. */
  readonly config?: { readonly [name: string]: unknown } | undefined;
  /** Description for people. */
  readonly description?: string | undefined;
  /** Name for people. Defaults to the slug. */
  readonly display_name?: string | null | undefined;
  /** False disables the provider. */
  readonly enabled?: boolean | undefined;
  /** Base URL. */
  readonly endpoint_url: string;
  /** URL of the health check. If absent, the provider's health is not checked. */
  readonly healthcheck_url?: string | null | undefined;
  /** Kind of provider, for records. */
  readonly provider_key: string;
  /** `local` or `cloud`. */
  readonly provider_origin?: string | undefined;
  /** Name in bindings and records. */
  readonly slug: string;
}

/** A provider. Secrets are shown only if they are references. */
export interface ProviderView {
  readonly adapter_kind: string;
  readonly config: { readonly [name: string]: unknown };
  readonly description: string;
  readonly display_name: string;
  readonly enabled: boolean;
  readonly endpoint_url: string;
  readonly health: ProviderHealthView;
  readonly healthcheck_url: string | null;
  readonly provider_key: string;
  readonly provider_origin: string;
  readonly slug: string;
}

/** A page of quarantined executions. */
export interface QuarantinePage {
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: string | null;
  readonly quarantined: readonly QuarantinedView[];
}

/** An execution that killed its workers. */
export interface QuarantinedView {
  readonly agent: string;
  /** Time after which it cannot be released. */
  readonly deadline_at: string;
  /**
   * Worker deaths since its last progress, oldest first: `at`, `attempt`, `worker_id`, `host`, `build`, `memory_bytes`.
   */
  readonly deaths: readonly { readonly [name: string]: unknown }[];
  readonly definition: string;
  readonly definition_version: number | null;
  readonly execution_id: string;
  readonly group: GroupView | null;
  /** True if it is a child whose parent was told of its end: only a person can release it. */
  readonly is_child: boolean;
  /** Last step of its journal: `seq`, `kind`, `state`, `name`. */
  readonly last_step: { readonly [name: string]: unknown } | null;
  /** Resident memory of the last worker in bytes, as last known. */
  readonly memory_bytes: number | null;
  /** Activity at the last death. */
  readonly phase: string;
  readonly quarantined_at: string;
  readonly queue: string;
  /** Retry that released it. */
  readonly released_as: string | null;
  readonly released_at: string | null;
  /** `quarantined`, `released`, `withdrawn` (cancelled by its caller) or `expired` (its deadline passed). */
  readonly state: string;
}

/** A question of an execution to its caller. Lists leave out `schema` and `answer`. */
export interface Question {
  /** Key of the agent. */
  readonly agent: string;
  /** Answer, byte for byte as it was sent. */
  readonly answer?: unknown | undefined;
  readonly answered_at: string | null;
  readonly answered_by: DeciderView | null;
  readonly execution_id: string;
  readonly expires_at: string;
  readonly id: string;
  readonly question: string;
  readonly requested_at: string;
  /** JSON Schema of the answer. */
  readonly schema?: { readonly [name: string]: unknown } | undefined;
  readonly state: QuestionState;
}

/** One page of questions. */
export interface QuestionPage {
  /** Cursor of the next page; null on the last one. */
  readonly next_cursor: string | null;
  /** Questions, newest first. */
  readonly questions: readonly Question[];
}

/** State of a question; `closed`: the execution ended first. */
export type QuestionState = "waiting" | "answered" | "expired" | "closed";

/** A message that waits for its turn. */
export interface QueuedMessageView {
  readonly execution_id: string;
  readonly session_id: string;
}

/** New caps. Each replaces the old one, so repeating a request changes nothing; caps left out stay. */
export interface RaiseBody {
  /** US dollars; a number or a string. */
  readonly max_cost_usd?: Usd | null | undefined;
  readonly max_model_calls?: number | null | undefined;
  readonly max_tokens?: number | null | undefined;
}

/** Answer of `/readyz`. */
export interface Readiness {
  readonly postgres: PostgresState;
  /** True if requests can be served: Postgres answers and has the schema of this release. */
  readonly ready: boolean;
  readonly redis: RedisState;
  readonly schema: SchemaState;
}

/** Figures of the newest executions, at most 2,000. */
export interface Recent {
  /** Length of a bucket, in seconds. */
  readonly bucket_seconds: number;
  /** Ended executions over time. */
  readonly buckets: readonly Bucket[];
  readonly cost_usd: number;
  readonly executions: number;
  /** Failures by definition and code, the most frequent first. */
  readonly failures: readonly FailureCount[];
  /** Submit of the oldest of them. */
  readonly since: string | null;
  /** Model calls by agent and model, the most expensive first. */
  readonly spend: readonly SpendView[];
  /** From the submit to the first attempt. */
  readonly start_seconds: Percentiles;
  /** From the submit to the end. */
  readonly total_seconds: Percentiles;
}

/** Deliveries to send again: one of the two. */
export interface RedeliverBody {
  /** This delivery, which was delivered or given up. */
  readonly delivery_id?: string | null | undefined;
  /** Those given up that occurred at this time or later, the oldest 10,000. */
  readonly failed_since?: string | null | undefined;
}

/** Deliveries that are sent again. */
export interface RedeliveredView {
  readonly redelivered: number;
}

/** State of Redis. Reported, never required: without Redis, workers poll Postgres. */
export type RedisState = "up" | "down" | "unknown";

/** Extent of the release. The body may be left out. */
export interface ReleaseBody {
  /** Releases the whole group, a portion at a time and without a canary. */
  readonly all?: boolean | undefined;
}

/** Result of a release. */
export interface ReleaseView {
  /** True if the whole group is released. */
  readonly all: boolean;
  /** Retry that runs now; the rest of the group follows if it ends without killing its worker. Null with `all`. */
  readonly released_as: string | null;
}

/** Components of a hybrid score. */
export interface RelevanceComponents {
  /** Keyword score, scaled from 0 (worst keyword result) to 1 (best). */
  readonly keyword_score: number;
  /** Similarity from semantic search. */
  readonly semantic_score: number;
}

/**
 * Meaning of a relevance, independent of the provider. Larger is better. - `similarity`: Similarity of embeddings. May
 * be negative. - `keyword_score`: Keyword score, on the provider's scale. - `hybrid_score`: Fusion of both.
 */
export type RelevanceKind = "similarity" | "keyword_score" | "hybrid_score";

/** Kind of a request to a person or a caller. */
export type RequestKind = "approval" | "question" | "tool_call";

/** The endpoints to reset. An absent `model` or `key` matches any. */
export interface ResetBody {
  readonly key?: string | null | undefined;
  readonly model?: string | null | undefined;
  readonly provider: string;
}

/** Data of the server-sent event `resync`: the events up to `last` are no longer kept. Read the execution itself. */
export interface ResyncEvent {
  readonly last: number;
}

/** Retries spent, by failure class. */
export interface Retries {
  readonly llm_error: number;
  readonly tool_error: number;
  readonly transient: number;
}

/** A chunk that a search found. */
export interface RetrievedItem {
  /** Id of the chunk. For a chunk ingested by Longhaul, the document's id and the chunk's number. */
  readonly id: string;
  /** Metadata stored with the chunk. */
  readonly metadata: { readonly [name: string]: unknown };
  readonly relevance_components?: RelevanceComponents | undefined;
  readonly relevance_kind: RelevanceKind;
  /** Score that orders the results. */
  readonly relevance_score: number;
  /** Score from the provider; in a hybrid search, the fused score. */
  readonly score: number;
  readonly score_kind: ScoreKind;
  /** Text of the chunk. */
  readonly text: string;
}

/** Options of a retry. The body may be left out. */
export interface RetryBody {
  /** If true, asks everything again; otherwise keeps the answers from before the failure. */
  readonly from_scratch?: boolean | undefined;
}

/** Retries by failure class. An absent class keeps its default (docs/reference/failures.md). */
export interface RetrySpec {
  /** Maximum random addition to each delay, as a share of it, 0 to 1. Off by default, so that delays are exact. */
  readonly jitter?: number | null | undefined;
  /** Delays in seconds for `llm_error`. */
  readonly llm_error_delays_seconds?: readonly number[] | null | undefined;
  /**
   * Maximum number of compressions for one request that outgrew the model's context window. Without it, until nothing
   * is left to compress.
   */
  readonly max_compressions?: number | null | undefined;
  /** Maximum number of retries over all classes. */
  readonly max_total?: number | null | undefined;
  /** Delays in seconds for `tool_error`. */
  readonly tool_error_delays_seconds?: readonly number[] | null | undefined;
  /** Delays in seconds for `transient`; their number is the number of retries. */
  readonly transient_delays_seconds?: readonly number[] | null | undefined;
}

/** Role of a person, or of a key at its creation: a set of scopes. */
export type Role = "viewer" | "operator" | "approver" | "admin" | "superadmin";

/** Time for which the former secret signs as well. */
export interface RotateBody {
  /** In seconds, up to 7 days; a day when absent. */
  readonly overlap_seconds?: number | null | undefined;
}

/** An allow or deny rule. */
export interface RuleSpec {
  /** `execute`, or `*`. */
  readonly action?: string | undefined;
  /** `allow` or `deny`. */
  readonly effect: string;
  readonly id: string;
  /** Key of an agent, or `*`. */
  readonly resource?: string | undefined;
  /** `user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`. */
  readonly scope: string;
}

/** A durable run to begin. */
export interface RunBody {
  /** Budget of all calls of a new run together. */
  readonly budget?: BudgetSpec | null | undefined;
  /** Longest life of a new run in seconds; at most 30 days, which is also its life when absent. */
  readonly deadline_seconds?: number | null | undefined;
  /** Name of the run. */
  readonly key: string;
  /** Goes on with a run that failed or was cancelled, with as much time as it had. */
  readonly reopen?: boolean | undefined;
}

/** Calls of a run, in the order in which they were first made. */
export interface RunCallPage {
  readonly calls: readonly RunCallView[];
  /** Value of `?cursor=` for the next page; null on the last one. */
  readonly next_cursor: string | null;
}

/** A recorded model call of a run. */
export interface RunCallView {
  readonly cost_usd: number;
  /** Time of the request that made the call. */
  readonly created_at: string;
  /** Execution that made the call, the last of `tries`. */
  readonly execution_id: string;
  readonly failure_code: string | null;
  readonly model: string | null;
  /** Number among the calls of the same content or step, from 1. */
  readonly occurrence: number;
  /** Answers given from the record, in the place of a call. */
  readonly saved: number;
  readonly status: ExecutionStatus | null;
  /** Name that the header `Longhaul-Step` gave it. */
  readonly step: string | null;
  readonly tokens: number;
  readonly took_seconds: number | null;
  /** Executions of the call; those before the last one failed. */
  readonly tries: number;
}

/** The end of a durable run. */
export interface RunEndBody {
  /** Reason for a failure, for people. */
  readonly note?: string | null | undefined;
  readonly status: RunEndStatus;
}

/** End of a durable run, as its program tells it. */
export type RunEndStatus = "finished" | "failed";

/** Runs, newest first. */
export interface RunPage {
  /** Value of `?cursor=` for the next page; null on the last one. */
  readonly next_cursor: string | null;
  readonly runs: readonly DurableRun[];
}

/** Status of a durable run. */
export type RunStatus = "open" | "finished" | "failed" | "cancelled";

/** Sums over the calls of a run. Costs are known as far as models have prices. */
export interface RunUsage {
  readonly cost_usd: number;
  /** Calls under way. */
  readonly open_calls: number;
  /** Answers given from the record, in the place of a call. */
  readonly saved_calls: number;
  /** Cost of those calls, had they been made. */
  readonly saved_usd: number;
  readonly tokens: number;
}

/** A run that was asked for. */
export interface RunView {
  /** Its execution; null while it waits for the run under way. */
  readonly execution_id: string | null;
  /** True if it starts when the run under way has ended. */
  readonly is_queued: boolean;
  /** Execution that it cancelled. */
  readonly stopped: string | null;
}

/**
 * The place of a definition's `run()`. - `declarative`: In the record itself: any worker with its tools and validators
 * can run it. - `rust`: In the code of a worker that registered it. - `remote`: In the code of a worker in another
 * language, which registered it over HTTP (docs/reference/worker-protocol.md).
 */
export type Runner = "declarative" | "rust" | "remote";

export type RunningTasks = "finish" | "cancel";

/** The process that runs the calls of a declared tool. - `caller`: The caller that submitted the execution. */
export type RunsAt = "caller";

/** Requirements of an agent on its environment. */
export interface RuntimeConstraints {
  /** Run only in the runtime profile `online`. */
  readonly internet_required?: boolean | undefined;
  /** Run only with a bound sandbox. */
  readonly sandbox_required?: boolean | undefined;
}

/**
 * Network access of a run. - `online`: The run may reach external services. - `offline`: The run must not reach
 * external services.
 */
export type RuntimeProfile = "online" | "offline";

/** Texts besides the prompts that a run over the contract uses. */
export interface RuntimePrompts {
  /** Text placed before retrieved references. */
  readonly retrieval_context?: string | null | undefined;
}

/** Schedules, in the order of keys. */
export interface SchedulePage {
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: string | null;
  readonly schedules: readonly ScheduleView[];
}

/** Reason for the pause of a schedule. */
export type SchedulePauseReason = "requested" | "failures";

/** Work that is started again and again, or at one later time. */
export interface ScheduleSpec {
  /** Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`. */
  readonly agent?: string | null | undefined;
  /** The only tick. */
  readonly at?: string | null | undefined;
  /** Budget of each run; the definition's or the agent's when absent. */
  readonly budget?: BudgetSpec | null | undefined;
  /** `one` when absent. */
  readonly catch_up?: CatchUp | undefined;
  /**
   * Five fields: minute, hour, day of month, month, day of week. Exactly one of `cron`, `interval_seconds` and `at`.
   */
  readonly cron?: string | null | undefined;
  /** Maximum lifetime of a run in seconds, waits included; at most 30 days. The definition's when absent. */
  readonly deadline_seconds?: number | null | undefined;
  /** Definition to run; exactly one of `definition` and `agent`. */
  readonly definition?: string | null | undefined;
  /** Time after which there is no tick. */
  readonly ends_at?: string | null | undefined;
  /** Input of every run; `{}` when absent. */
  readonly input?: unknown | undefined;
  /** Seconds from one tick to the next, a minute to a year. */
  readonly interval_seconds?: number | null | undefined;
  /** Name of the schedule, unique per tenant. */
  readonly key: string;
  /** Metadata of the runs for filters, at most 16 KiB. */
  readonly metadata?: { readonly [name: string]: unknown } | undefined;
  /** Budget of all runs of a calendar month, in the time zone of the schedule. */
  readonly monthly_budget?: MonthlyBudget | null | undefined;
  /** `skip` when absent. */
  readonly overlap?: Overlap | undefined;
  /** Failures in a row after which the schedule is paused; 0 for never, 5 when absent. */
  readonly pause_after?: number | undefined;
  /** Priority of the runs; higher first. */
  readonly priority?: number | undefined;
  /** Queue of the runs. */
  readonly queue?: string | undefined;
  /** IANA time zone of `cron`; UTC when absent. */
  readonly time_zone?: string | null | undefined;
  /** Version of the definition or agent; the newest at each tick when absent. */
  readonly version?: number | null | undefined;
}

/** Status of a schedule: `completed` if there is no tick any more. */
export type ScheduleStatus = "active" | "paused" | "completed";

/** A schedule. */
export interface ScheduleView {
  readonly created_at: string;
  readonly failures_in_a_row: number;
  readonly key: string;
  /** Newest tick that was fired. */
  readonly last_tick_at: string | null;
  readonly month: MonthView | null;
  readonly next_tick_at: string | null;
  readonly pause_reason: SchedulePauseReason | null;
  readonly paused_at: string | null;
  /** Ticks that wait for its end. */
  readonly queued: number;
  /** Execution under way. */
  readonly running: string | null;
  /** The schedule as it was sent. */
  readonly spec: ScheduleSpec;
  readonly status: ScheduleStatus;
  readonly updated_at: string;
}

/** State of the database schema: `missing` before `longhaul migrate`, `unknown` while Postgres does not answer. */
export type SchemaState = "current" | "missing" | "unknown";

/**
 * Meaning of a provider's score. - `distance`: Smaller is closer; the similarity is 1 minus the distance. -
 * `similarity`: Larger is closer. - `bm25`: Weaviate's keyword score. - `text_match`: Qdrant's keyword search: a text
 * matches or does not. - `ts_rank`: PostgreSQL's `ts_rank_cd`. - `hybrid_score`: Score of a fusion.
 */
export type ScoreKind = "distance" | "similarity" | "bm25" | "text_match" | "ts_rank" | "hybrid_score";

/** A search. */
export interface SearchBody {
  /** Metadata that results must have: strings, numbers or booleans by key. */
  readonly filters?: { readonly [name: string]: unknown } | null | undefined;
  /** Weight of the semantic side of a hybrid search; 0.5 when absent. */
  readonly hybrid_alpha?: number | null | undefined;
  /** Words or a question. */
  readonly query: string;
  /** `none` when absent. */
  readonly query_preprocessing?: Preprocessing | null | undefined;
  /** Method of the search; by default `semantic`, or `keyword` if the index holds no embeddings. */
  readonly search_method?: SearchMethod | null | undefined;
  /** Maximum number of results; 5 when absent. */
  readonly top_k?: number | null | undefined;
}

/** Search method. - `semantic`: Distance of embeddings. - `keyword`: Keyword match. - `hybrid`: Both, fused. */
export type SearchMethod = "semantic" | "keyword" | "hybrid";

/** Results, best first. */
export interface SearchResults {
  /** The query after preprocessing. */
  readonly query: string;
  /**
   * `{id, text, metadata, score, score_kind, relevance_score, relevance_kind}`, and `relevance_components` for a hybrid
   * search.
   */
  readonly results: readonly RetrievedItem[];
}

/** A signal that was sent. */
export interface SentSignal {
  /** Its number among the events of the execution. */
  readonly seq: number;
}

/** Place of a message in its session. */
export interface SentView {
  /** Execution that answers the message. */
  readonly execution_id: string;
  /** True if another message is answered first. */
  readonly is_queued: boolean;
  readonly session_id: string;
  /** Execution that the policy cancelled. */
  readonly stopped: string | null;
}

/** A session to begin. */
export interface SessionBody {
  /** Agent of the session; its version is pinned. */
  readonly agent: string;
  /** Budget of all messages together, in the place of the agent's own. */
  readonly budget?: BudgetSpec | null | undefined;
  /** Labels of the session. */
  readonly metadata?: { readonly [name: string]: unknown } | undefined;
  /**
   * Policy for a message that arrives while another is answered: `reject`, `enqueue` (when absent), `interrupt` or
   * `rollback`.
   */
  readonly on_busy?: OnBusy | undefined;
  /**
   * Project that the session is about: each message is told of its goal, plan and results, and the tool `plan_project`
   * plans it.
   */
  readonly project_id?: string | null | undefined;
  /** Version of the agent; the newest when absent. */
  readonly version?: number | null | undefined;
}

/** Sessions, newest first. */
export interface SessionPage {
  /** Value of `?before=` for the next page; null on the last one. */
  readonly next_before: string | null;
  readonly sessions: readonly SessionView[];
}

/** Status of a session: `waiting` for a person, a limit, a provider or children. */
export type SessionStatus = "idle" | "running" | "waiting" | "ended";

/** Place of a message in its session. */
export interface SessionTurnView {
  /** Messages that are answered before it. */
  readonly ahead: number;
  /** Execution that answers a message now. */
  readonly running: string | null;
  readonly session_id: string;
}

/** A session. */
export interface SessionView {
  /** Time of the last message or answer. */
  readonly active_at: string;
  /** Calls of the message that is answered now which have no result yet; null in lists. */
  readonly active_calls: readonly ActiveCallView[] | null;
  /** Agent and its pinned version. */
  readonly agent: string;
  readonly agent_version: number;
  readonly budget: BudgetView | null;
  readonly created_at: string;
  readonly id: string;
  readonly metadata: { readonly [name: string]: unknown };
  readonly on_busy: OnBusy;
  /** Project that it is about; null without one. */
  readonly project_id: string | null;
  /** Messages that wait for their turn. */
  readonly queued: number;
  /** Calls that wait for the caller. Absent if there are none, and in lists. */
  readonly requires_action?: readonly PendingCall[] | undefined;
  /** Execution that answers a message now. */
  readonly running: string | null;
  readonly status: SessionStatus;
  readonly stop_reason: StopReason | null;
  /** Children of the execution that answers now, the last 100, oldest first; null in lists. */
  readonly sub_agents: readonly SubAgentView[] | null;
  /** Messages accepted so far. */
  readonly turns: number;
  readonly wait_reason: WaitReason | null;
}

/** One permission granted to one grantee. */
export interface ShareSpec {
  /** `public`, `user:<id>`, `role:<name>`, `org:<id>` or `group:<id>`. */
  readonly grantee: string;
  /** `view`, `fork`, `execute` or `admin`; `execute` and `admin` permit executing the agent. */
  readonly permission: string;
}

/** A signal to an execution. */
export interface SignalBody {
  /** Name that the execution waits for. */
  readonly name: string;
  /** Any JSON; null when absent. */
  readonly payload?: unknown | undefined;
}

/** Newest versions, ordered by name. */
export interface SkillPage {
  readonly items: readonly SkillView[];
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: string | null;
}

/** A skill as in the [Agent Skills](https://agentskills.io/specification) format: a folder with `SKILL.md`. */
export interface SkillSpec {
  /** Instructions: `SKILL.md` without its front matter. */
  readonly body: string;
  /** The tasks that the skill is for, shown to the model before it loads the skill. */
  readonly description: string;
  /** Further texts by path in the folder, such as `references/rates.md`. */
  readonly files?: { readonly [name: string]: string } | undefined;
  /** Name; the name of its folder. */
  readonly name: string;
}

/** One version of a skill, without its texts. */
export interface SkillView {
  readonly created_at: string;
  /** The tasks that the skill is for. */
  readonly description: string;
  readonly name: string;
  readonly removed_at: string | null;
  /** True if all tenants share the version. */
  readonly shared: boolean;
  readonly version: number;
}

/** Calls of a model by an agent. */
export interface SpendView {
  readonly agent: string;
  readonly calls: number;
  /** Cost of the calls whose price is known. */
  readonly cost_usd: number;
  readonly input_tokens: number;
  readonly model: string;
  readonly output_tokens: number;
}

/** Kind of a step. */
export type StepKind =
  | "retrieval"
  | "prompt"
  | "turn"
  | "call"
  | "verdict"
  | "correction"
  | "compression"
  | "aggregation";

/** Steps, in order. */
export interface StepPage {
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: number | null;
  readonly steps: readonly StepView[];
}

/** State of a step. */
export type StepState = "intent" | "live" | "spent";

/** A recorded step. */
export interface StepView {
  /** Attempt that recorded the step; 0: copied by a retry or a fork. */
  readonly attempt: number;
  /** Recorded body; only with `include=body`. */
  readonly body?: unknown | undefined;
  /** Tokens sent that were written to the provider's cache. */
  readonly cache_write_tokens: number | null;
  /** Tokens sent that were read from the provider's cache. */
  readonly cached_tokens: number | null;
  /** Cost in US dollars; null if it is not known or the step is no model call. */
  readonly cost_usd: number | null;
  readonly failure_code: string | null;
  readonly finished_at: string | null;
  readonly input_tokens: number | null;
  readonly kind: StepKind;
  /** Messages that the step added to the transcript; only with `include=body`. */
  readonly messages?: readonly unknown[] | undefined;
  readonly name: string | null;
  readonly output_tokens: number | null;
  readonly preview: string | null;
  readonly seq: number;
  readonly started_at: string;
  readonly state: StepState;
}

/** Reason for the end of a session's turn. */
export type StopReason = "end_turn" | "requires_action" | "budget_reached" | "max_turns" | "interrupted" | "failed";

/** A child of the execution that answers. */
export interface SubAgentView {
  readonly agent: string;
  readonly created_at: string;
  readonly execution_id: string;
  readonly failure_code: string | null;
  readonly finished_at: string | null;
  readonly status: ExecutionStatus;
  readonly wait_reason: WaitReason | null;
}

/** Body of a submit. */
export interface SubmitBody {
  /** Agent to run directly, on `{"prompt": …}` or `{"messages": […]}`. */
  readonly agent?: string | null | undefined;
  /** Budget of the execution and everything it starts; the definition's or the agent's when absent. */
  readonly budget?: BudgetSpec | null | undefined;
  /** Maximum lifetime in seconds, waits included; at most 30 days. The definition's when absent. */
  readonly deadline_seconds?: number | null | undefined;
  /** Definition to run; exactly one of `definition` and `agent`. */
  readonly definition?: string | null | undefined;
  /** Idempotency key of an item of a batch; a submit of its own has it in the header `Idempotency-Key`. */
  readonly idempotency_key?: string | null | undefined;
  /**
   * Input, valid against the definition's input schema and kept byte for byte as sent; `{}` when absent, if nothing is
   * required. Prompts and tools see it with the schema's defaults. A number may have 128 digits; none is rounded.
   */
  readonly input?: unknown | undefined;
  /** Metadata for filters, at most 16 KiB. */
  readonly metadata?: { readonly [name: string]: unknown } | undefined;
  /** Priority; higher first. */
  readonly priority?: number | undefined;
  /** Queue. */
  readonly queue?: string | undefined;
  /** Earliest start. */
  readonly run_at?: string | null | undefined;
  /** Further tools, whose calls the caller runs; see docs/guide/caller-tools.md. */
  readonly tools?: readonly CallerToolSpec[] | undefined;
  /** Version of the definition or agent; the newest when absent. */
  readonly version?: number | null | undefined;
}

/** Tasks in the order of the plan. */
export interface TaskPage {
  /** Value of `?after=` for the next page; null on the last one. */
  readonly next_after: number | null;
  readonly tasks: readonly TaskView[];
}

/** Status of a task. */
export type TaskStatus = "pending" | "running" | "completed" | "failed" | "skipped" | "cancelled";

/** A task of a project. */
export interface TaskView {
  /** Agent, if it is not the project's. */
  readonly agent: string | null;
  /** Executions so far. */
  readonly attempts: number;
  readonly depends_on: readonly string[];
  /** Its last execution. */
  readonly execution_id: string | null;
  readonly failure_code: string | null;
  readonly finished_at: string | null;
  readonly key: string;
  readonly phase: string | null;
  /** Place in the plan, from 0. */
  readonly position: number;
  readonly prompt: string;
  /** Tasks that it depends on and that have not completed. */
  readonly remaining_deps: number;
  readonly retries: number;
  readonly started_at: string | null;
  /** `pending`, `running`, `completed`, `failed`, `skipped` (it depends on one that failed) or `cancelled`. */
  readonly status: TaskStatus;
  readonly timeout_seconds: number | null;
  readonly title: string;
}

/** Tenant of an execution. */
export interface TenantView {
  readonly group_id: string | null;
  readonly org_id: string;
}

/** A test event. */
export interface TestedView {
  /** Its delivery. */
  readonly delivery_id: string;
}

/** Tokens of an execution. */
export interface TokenUsage {
  /** Tokens that were written to the provider's cache. */
  readonly cache_write: number;
  /** Tokens that were read from the provider's cache. */
  readonly cached: number;
  /** Tokens sent, of which `cached` and `cache_write`. */
  readonly input: number;
  readonly output: number;
}

/**
 * The effect of running a tool twice. It decides the handling of a call that may have run before a crash. -
 * `read_only`: The tool changes nothing: the call is repeated. - `idempotent`: Calls with the same idempotency key take
 * effect once: the call is repeated with the same key. - `side_effect`: Any other tool: the call is never repeated
 * blindly; the model is told `outcome_unknown`.
 */
export type ToolEffect = "read_only" | "idempotent" | "side_effect";

/**
 * A tool by name, with the agent's settings for it, or, with `runs`, the declaration of a tool that the caller runs.
 */
export type ToolRef = string | CallerToolSpec | ToolSettings;

/** Result of one call: exactly one of `output` and `error`. */
export interface ToolResult {
  readonly call_id: string;
  /** Message for the model: the call failed. */
  readonly error?: string | null | undefined;
  /** `hash` of the pending call. */
  readonly hash: string;
  /**
   * Any JSON but null, valid against the tool's output schema if it has one. The model reads a string as it is and
   * anything else as JSON.
   */
  readonly output?: unknown | undefined;
}

/** `tool_result`: the result of a call. */
export interface ToolResultFrame {
  readonly call_id: string;
  readonly is_error: boolean;
  readonly output: string;
  /** Number of the event that it tells of */
  readonly seq: number;
  readonly session_id: string;
  readonly tool: string;
}

/** Results of calls that the caller ran. */
export interface ToolResultsBody {
  /** In any order; some of the pending calls or all. */
  readonly results: readonly ToolResult[];
}

/** The accepted results, and the calls that still wait. */
export interface ToolResultsView {
  /** Results accepted by this request. */
  readonly accepted: number;
  readonly execution_id: string;
  /** Results that an earlier request had brought. */
  readonly repeated: number;
  /** Calls of this execution, and below it in its tree, that still wait for the caller. */
  readonly requires_action: readonly PendingCall[];
}

/** A tool with settings. */
export interface ToolSettings {
  /** Maximum number of calls of this tool that one execution runs at a time; no limit of its own when absent. */
  readonly concurrency?: number | null | undefined;
  /** Calls that the execution does not wait for. */
  readonly detached?: Detached | undefined;
  /** The effect of running the tool twice, if it differs from the one the tool declares. */
  readonly effect?: ToolEffect | null | undefined;
  /** The time at which a call starts; follows from the tool's effect when absent. */
  readonly launch?: Launch | null | undefined;
  /** The registered name. */
  readonly name: string;
  /** Consequence of a call that fails. Calls with invalid arguments always go back to the model. */
  readonly on_error?: OnError | undefined;
  /** Passed to the tool unchanged, for instance `allow_private_addresses` of `fetch_url`. */
  readonly settings?: unknown | undefined;
  /** Maximum duration of one call, in seconds. */
  readonly timeout_seconds?: number | null | undefined;
}

/** `tool_use`: a call of the model. With `pending`, the caller runs it. */
export interface ToolUseFrame {
  readonly call_id: string;
  /** Execution that made the call, if it is a sub-agent: its result is posted there. */
  readonly execution_id?: string | undefined;
  /** Without a result until then, the model reads an error. */
  readonly expires_at?: string | undefined;
  /** Binds a result to the call. */
  readonly hash?: string | undefined;
  /** Arguments; a text if they are not JSON. Secrets are shown as `[redacted]`, unless the caller runs the call. */
  readonly input: unknown;
  /** True if the caller runs the call; absent otherwise, as `hash` and `expires_at` are. */
  readonly pending?: boolean | undefined;
  /** Number of the event that it tells of */
  readonly seq: number;
  readonly session_id: string;
  readonly tool: string;
  /** Number of the turn; absent for a call of a sub-agent. */
  readonly turn?: number | undefined;
}

/** An execution that no live worker can run. */
export interface UnservedView {
  readonly definition: string;
  readonly queue: string;
  /** Requirements for a worker, beyond those that every worker meets. */
  readonly requirements: readonly string[];
  readonly version: number | null;
}

/** Usage of the execution. */
export interface Usage {
  /** Seconds during which workers held it. */
  readonly active_seconds: number;
  /** Tokens sent that were written to providers' caches. */
  readonly cache_write_tokens: number;
  /** Tokens sent that were read from providers' caches. */
  readonly cached_tokens: number;
  readonly calls: number;
  /** Cost of its model calls in US dollars; null if the cost of any is not known. */
  readonly cost_usd: number | null;
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly turns: number;
  /** Model calls whose cost is not known. */
  readonly uncosted_turns: number;
}

/** Executions of one agent. */
export type UsageAgent = UsageNumbers & {
  readonly agent: string;
  /** Failures by code, the most frequent first; at most 5 rows. */
  readonly failures: readonly UsageFailure[];
};

/** Executions of an agent that failed with the same code. */
export interface UsageFailure {
  readonly class: FailureClass;
  readonly code: string;
  readonly executions: number;
  /** The newest of them. */
  readonly newest_id: string;
  /** Failure text of the newest one, cut to 500 characters; null once it is erased. */
  readonly summary: string | null;
}

/** Numbers of executions; those that have not ended are in `executions` alone. */
export interface UsageNumbers {
  readonly executions: number;
  readonly failed: number;
  readonly finished: number;
}

/** Model calls of a tenant's executions of one agent. */
export type UsageSpend = UsageSums & {
  readonly agent: string;
  readonly group_id?: string | null | undefined;
  readonly model: string;
  readonly org_id: string;
};

/** Sums over model calls. */
export interface UsageSums {
  /** Part of `input_tokens` that was read from providers' caches. */
  readonly cached_tokens: number;
  readonly calls: number;
  /** Cost of the calls whose price is known. */
  readonly cost_usd: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  /** Answered calls whose cost is unknown: their model has no price, or the provider reported no usage. */
  readonly uncosted_calls: number;
}

/** Sums over all executions of the span, also of those whose rows are left out. */
export type UsageTotals = UsageNumbers & UsageSums;

/** Usage and outcomes of the executions submitted in a span of time. */
export interface UsageView {
  /** Executions by agent, the one with the most failures first; at most 100 rows. */
  readonly agents: readonly UsageAgent[];
  /** All figures are of the executions submitted from here to `until`. Later than `since` if `is_cut`. */
  readonly covered_since: string;
  /** True if the span holds more than 50,000 executions or 200,000 calls, so that only its newer end is summed. */
  readonly is_cut: boolean;
  readonly since: string;
  /** Model calls by tenant, agent and model, the most expensive first; at most 200 rows. */
  readonly spend: readonly UsageSpend[];
  readonly totals: UsageTotals;
  /** End of the span, which does not belong to it. */
  readonly until: string;
}

/**
 * An amount in US dollars, exact to nine decimal places and never negative.
 *
 * In JSON it is a number, or a string for clients that must not round it. Both are read digit by digit.
 */
export type Usd = number | string;

/** A validator by name, with settings. */
export type ValidatorRef = string | ValidatorSettings;

/** A validator with settings. */
export interface ValidatorSettings {
  /** The registered name. */
  readonly name: string;
  /** Passed to the validator unchanged. */
  readonly settings?: unknown | undefined;
}

/** Outcome of one item. */
export interface Verdict {
  /** Reason of the refusal. */
  readonly error?: Problem | undefined;
  /** Id of the execution, if it was stored. */
  readonly id?: string | undefined;
  /** Status that the item alone would have got: 201, 200, or that of `error`. */
  readonly status: number;
}

/** A key with its version. */
export interface Versioned {
  readonly key: string;
  /** Pinned version. */
  readonly version: number | null;
}

/** A violation in a request. */
export interface Violation {
  /** Stable name of the violation, where it has one. */
  readonly code?: string | undefined;
  /** Line of the text at `path`, from 1, if it is a template. */
  readonly line?: number | undefined;
  /** Description of the violation. */
  readonly message: string;
  /** JSON Pointer into the body; `/query/<name>` for a query parameter, `/header/<name>` for a header. */
  readonly path: string;
}

/** Reason why an execution waits. */
export type WaitReason =
  | "worker"
  | "scheduled"
  | "retry_backoff"
  | "approval"
  | "children"
  | "concurrency_limit"
  | "rate_limit"
  | "budget"
  | "provider_down"
  | "queue_paused"
  | "input"
  | "no_worker";

/** Executions of a queue that wait for the same. */
export interface WaitingCount {
  readonly executions: number;
  /** Submit of the oldest. */
  readonly oldest: string;
  readonly queue: string;
  readonly wait_reason: WaitReason;
}

/** Explanation of an execution's current state. */
export interface WaitingView {
  /** Advice for the failure of a failed execution, as docs/reference/failures.md has it. */
  readonly advice: string | null;
  readonly budget: BudgetView | null;
  /** Open children, at most twenty. */
  readonly children: readonly OpenChildView[];
  /** Time by which the execution must have ended. */
  readonly deadline_at: string;
  readonly endpoint: AwaitedEndpointView | null;
  /** Event that ends the wait. */
  readonly ends_when: string | null;
  readonly estimate: EstimateView;
  readonly execution_id: string;
  readonly holding: HoldingView | null;
  readonly last_failure: LastFailureView | null;
  readonly limits: readonly NeededLimitView[];
  readonly open_children: number;
  readonly place: PlaceView | null;
  readonly requests: readonly OpenRequestView[];
  readonly session: SessionTurnView | null;
  readonly since: string;
  readonly status: ExecutionStatus;
  /** One sentence for people. */
  readonly summary: string;
  readonly unserved: UnservedView | null;
  /** Latest end of the wait. */
  readonly until: string | null;
  readonly wait_reason: WaitReason | null;
  /** Worker that holds it. */
  readonly worker_id: string | null;
  readonly workers: LiveWorkersView | null;
}

/** A webhook. */
export interface WebhookBody {
  /** Note for people. */
  readonly description?: string | null | undefined;
  /** False: nothing is sent to it, and what happens meanwhile is not kept for it. */
  readonly enabled?: boolean | undefined;
  /** Form in which it is told; `standard` when absent. It cannot be changed. */
  readonly kind?: WebhookKind | null | undefined;
  /** Signing secret of the Slack app, which no answer shows. When absent from a replacement, it stays. */
  readonly signing_secret?: string | null | undefined;
  /**
   * Types of events that it is told: `execution.finished`, `execution.failed`, `execution.quarantined`,
   * `approval.requested`, `question.asked`, `tool_call.requested`. All when absent.
   */
  readonly types?: readonly string[] | null | undefined;
  /**
   * Address of the receiver, `https` or `http`. It must be on the public internet, unless the operator allows more. Of
   * `slack` an incoming webhook, which no answer shows; of `email` a `mailto` URL with up to 10 addresses.
   */
  readonly url: string;
}

/** Reason why nothing is sent to a webhook. */
export type WebhookDisabledBecause = "caller" | "failures" | "gone" | "key_revoked";

/** Type of an event of a webhook. */
export type WebhookEventType =
  | "execution.finished"
  | "execution.failed"
  | "execution.quarantined"
  | "approval.requested"
  | "question.asked"
  | "tool_call.requested"
  | "webhook.test";

/**
 * Form in which a webhook is told. - `standard`: A signed request. - `slack`: A message in Slack, with buttons to
 * decide on approvals. Needs the scopes `executions:read` and `approvals:decide`. - `email`: An e-mail, with a link to
 * decide on an approval. Needs the scope `admin` too.
 */
export type WebhookKind = "standard" | "slack" | "email";

/** The webhooks of the caller. */
export interface WebhookList {
  readonly webhooks: readonly WebhookView[];
}

/** A webhook with its secret, which no other answer shows. */
export type WebhookSecretView = WebhookView & {
  /**
   * Key of its signatures, for a verifier of Standard Webhooks; null of another kind, and in a repeat under the same
   * `Idempotency-Key`.
   */
  readonly secret?: string | null | undefined;
  /** In a repeat, the reason why the secret is not shown. */
  readonly withheld?: string | null | undefined;
};

/** A webhook. */
export interface WebhookView {
  readonly created_at: string;
  readonly description: string | null;
  readonly disabled_at: string | null;
  readonly disabled_because: WebhookDisabledBecause | null;
  /** False: nothing is sent to it. */
  readonly enabled: boolean;
  /** First failure since the last success; null while it works. */
  readonly failing_since: string | null;
  readonly id: string;
  readonly kind: WebhookKind;
  /** Newest success. */
  readonly last_delivered_at: string | null;
  /** Time until which the secret before signs as well. */
  readonly old_secret_until: string | null;
  /** Types of events that it is told. */
  readonly types: readonly WebhookEventType[];
  /** Of `slack` the origin alone. */
  readonly url: string;
  /** Deliveries that wait, counted to 10,000. */
  readonly waiting: number;
}

/** The caller as the API knows it. */
export interface Whoami {
  readonly email: string | null;
  /** Id of the key, or of the person's account. */
  readonly key_id: string;
  /** `person` for a person who signed in with the OpenID Connect provider. */
  readonly kind: ActorKind;
  /** Name of the key or the person. */
  readonly name: string;
  /** Roles of a person; empty for a key. */
  readonly roles: readonly Role[];
  /** Rights of the caller. */
  readonly scopes: readonly KeyScope[];
  readonly tenant: TenantView;
}

/** One version of a skill. */
export type WholeSkillView = SkillView & {
  /** Instructions. */
  readonly body: string;
  /** Further texts by path. */
  readonly files: { readonly [name: string]: string };
};

/** An answer as its wire describes it */
export type WireAnswer = { readonly [name: string]: unknown };

/** A request as its wire describes it; docs/reference/wires.md says what is honoured. */
export interface WireBody {
  /** `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>` */
  readonly model?: string | undefined;
  readonly [name: string]: unknown;
}

export interface WireError {
  readonly error: {
    readonly code?: string | null | undefined;
    readonly message: string;
    readonly param?: string | null | undefined;
    readonly type: string;
  };
  readonly request_id?: string | undefined;
  readonly type?: "error" | undefined;
}

/** A worker and what it runs. */
export type WorkerDetail = WorkerView & {
  /** Executions that it holds. */
  readonly executions: readonly WorkerExecutionView[];
  /** Executions that it held when it was declared dead, newest first. */
  readonly lost: readonly WorkerExecutionView[];
  /** Value of `after` for the next page of `executions`; null at the end. */
  readonly next_after?: string | null | undefined;
};

/** An execution that a worker holds, or held when it was declared dead. */
export interface WorkerExecutionView {
  readonly agent: string;
  readonly attempt: number;
  readonly definition: string;
  readonly execution_id: string;
  readonly group_id: string | null;
  /** Time at which its worker was declared dead; null while it is held. */
  readonly lost_at: string | null;
  readonly org_id: string;
  readonly queue: string;
  /** Start of the attempt. */
  readonly since: string;
}

/** Workers. */
export interface WorkerPage {
  /** Value of `after` for the next page; null at the end. */
  readonly next_after: string | null;
  readonly workers: readonly WorkerView[];
}

/** State of a worker. */
export type WorkerState = "live" | "draining" | "late" | "dead";

/** A worker process. */
export interface WorkerView {
  /** Build of its program. */
  readonly build: string;
  /** Executions that it runs at a time at most. */
  readonly concurrency: number;
  /** Time at which it signed off or was declared dead. */
  readonly dead_at: string | null;
  /** Time since which it claims nothing more. */
  readonly draining_since: string | null;
  /** Executions that it holds, of all tenants. */
  readonly held: number;
  readonly host: string;
  /** Its id, a new one at each start and after each lost lease. */
  readonly id: string;
  /** Last renewal of its lease; null for a worker of an older release. */
  readonly last_heartbeat_at: string | null;
  /** End of its lease, unless that is renewed. */
  readonly lease_expires_at: string | null;
  /** Resident memory at the last renewal. */
  readonly memory_bytes: number | null;
  /** Process id on the host. */
  readonly pid: number;
  readonly queues: readonly string[];
  readonly started_at: string;
  /** `draining`: it claims nothing more. `late`: its lease has expired, and it was not declared dead yet. */
  readonly state: WorkerState;
  /** Start of its renewals without a gap. */
  readonly steady_since: string | null;
}
