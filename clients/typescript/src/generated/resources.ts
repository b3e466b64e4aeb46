// Written by `python3 clients/generate` from docs/openapi.json: do not edit.

/** The operations of the API. */

import { Pages } from "../pages.js";
import { type KeyOptions, type RequestOptions, type Transport, inPath } from "../transport.js";
import type { ServerSentEvent } from "../event_stream.js";
import { ExecutionStreams, Resource, SessionStreams } from "../streams.js";
import type * as types from "./types.js";

export interface SubmitExecutionOptions extends RequestOptions {
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
  /** Seconds to hold the answer until the execution ends, at most 60. */
  readonly waitSeconds?: number | undefined;
}

export interface ListExecutionsOptions extends RequestOptions {
  /** In this state */
  readonly status?: types.ExecutionStatus | undefined;
  /** That wait for this reason */
  readonly wait_reason?: types.WaitReason | undefined;
  /** By agent key */
  readonly agent?: string | undefined;
  /** By definition key */
  readonly definition?: string | undefined;
  /** By failure code */
  readonly failure_code?: string | undefined;
  /** By queue */
  readonly queue?: string | undefined;
  /** Inclusive */
  readonly created_after?: string | undefined;
  /** Exclusive */
  readonly created_before?: string | undefined;
  /** Started by this execution */
  readonly parent?: string | undefined;
  /** Of the tree whose topmost execution this is, itself included */
  readonly root?: string | undefined;
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
  /** `next_cursor` of the page before */
  readonly cursor?: string | undefined;
  /** Texts that the metadata has at these keys. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

export interface RetryExecutionOptions extends RequestOptions {
  /** `latest`: in the newest version; otherwise the same */
  readonly version?: string | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
  /** Seconds to hold the answer until the execution ends, at most 60. */
  readonly waitSeconds?: number | undefined;
}

export interface ForkExecutionOptions extends RequestOptions {
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
  /** Seconds to hold the answer until the execution ends, at most 60. */
  readonly waitSeconds?: number | undefined;
}

export interface ListEventsOptions extends RequestOptions {
  /** The same, for those who cannot set headers */
  readonly after?: number | undefined;
  /** Of a page: 1 to 1000; 200 when absent */
  readonly limit?: number | undefined;
}

export interface ListStepsOptions extends RequestOptions {
  /** Steps after this number */
  readonly after?: number | undefined;
  /** 1 to 500, or to 50 with bodies; 50 when absent */
  readonly limit?: number | undefined;
  /** `body`: with bodies and messages */
  readonly include?: string | undefined;
}

export interface ListAttemptsOptions extends RequestOptions {
  /** Attempts after this number */
  readonly after?: number | undefined;
  /** 1 to 200; 100 when absent */
  readonly limit?: number | undefined;
}

export interface GetLedgerOptions extends RequestOptions {
  /** Calls after this step */
  readonly after?: number | undefined;
}

export class Executions extends ExecutionStreams {
  /** Submits an execution. When this answers, the execution is committed. */
  submit(
    body: Omit<types.SubmitBody, "idempotency_key"> = {},
    options: SubmitExecutionOptions = {},
  ): Promise<types.Execution> {
    const request = {
      method: "POST",
      path: "/v1/executions",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      waitSeconds: options.waitSeconds,
      body,
      times: ["run_at"],
    };
    return this.transport.json<types.Execution>(request);
  }

  /**
   * Submits up to 1,000 executions.
   *
   * An item that is refused does not stop the others. Under an `Idempotency-Key`, each item without a key of its own
   * has that key with its number.
   */
  submitBatch(body: types.BatchBody, options: KeyOptions = {}): Promise<types.BatchAnswer> {
    const request = {
      method: "POST",
      path: "/v1/executions/batch",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
      times: ["executions.*.run_at"],
    };
    return this.transport.json<types.BatchAnswer>(request);
  }

  /**
   * Lists executions, newest first.
   *
   * Filters combine with "and". `metadata.<key>=<text>` selects executions whose metadata has this string at `<key>`;
   * several of these combine. One request examines a bounded number of executions: a page may have fewer than `limit`,
   * even none, and still have a next one.
   */
  list(options: ListExecutionsOptions = {}): Pages<types.Execution> {
    const request = {
      method: "GET",
      path: "/v1/executions",
      options,
      query: { status: options.status, wait_reason: options.wait_reason, agent: options.agent, definition:
        options.definition, failure_code: options.failure_code, queue: options.queue, created_after:
        options.created_after, created_before: options.created_before, parent: options.parent, root: options.root,
        org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants, limit: options.limit,
        cursor: options.cursor },
      metadata: options.metadata,
      times: ["created_after", "created_before"],
    };
    return new Pages<types.Execution>(this.transport, request, "executions", "cursor");
  }

  /** Returns one execution in full. */
  get(executionId: string, options: RequestOptions = {}): Promise<types.Execution> {
    const request = { method: "GET", path: `/v1/executions/${inPath(executionId)}`, options };
    return this.transport.json<types.Execution>(request);
  }

  /**
   * Ends an execution and everything it started as FAILED `cancelled`.
   *
   * It ends at once if no worker holds it, otherwise within seconds. Idempotent: an execution that was cancelled before
   * is returned as it stands; one that ended in another way is a conflict.
   */
  cancel(executionId: string, options: KeyOptions = {}): Promise<types.Execution> {
    const request = {
      method: "POST",
      path: `/v1/executions/${inPath(executionId)}/cancel`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.Execution>(request);
  }

  /**
   * Retries a FAILED execution as a new one with the same input.
   *
   * The new execution continues where the FAILED one ended, unless the body says otherwise.
   */
  retry(
    executionId: string,
    body: types.RetryBody = {},
    options: RetryExecutionOptions = {},
  ): Promise<types.Execution> {
    const request = {
      method: "POST",
      path: `/v1/executions/${inPath(executionId)}/retry`,
      options,
      query: { version: options.version },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      waitSeconds: options.waitSeconds,
      body,
    };
    return this.transport.json<types.Execution>(request);
  }

  /**
   * Starts an execution that shares what another recorded before `from_step`.
   *
   * Shared steps are not repeated. From `from_step` on the fork continues by itself, with another agent, prompt, model
   * or input if the body names one.
   */
  fork(executionId: string, body: types.ForkBody, options: ForkExecutionOptions = {}): Promise<types.Execution> {
    const request = {
      method: "POST",
      path: `/v1/executions/${inPath(executionId)}/fork`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      waitSeconds: options.waitSeconds,
      body,
    };
    return this.transport.json<types.Execution>(request);
  }

  /** Explains what an execution waits for: since when, until when, its place in line and an estimate. */
  waiting(executionId: string, options: RequestOptions = {}): Promise<types.WaitingView> {
    const request = { method: "GET", path: `/v1/executions/${inPath(executionId)}/waiting`, options };
    return this.transport.json<types.WaitingView>(request);
  }

  /**
   * Lists or streams the events of an execution.
   *
   * With `Accept: text/event-stream` the answer is a stream that ends with the execution, otherwise a page. In the
   * stream, `event` is the kind, `id` the number and `data` an `EventView`; the event `resync` has a `ResyncEvent`. A
   * comment follows after 15 s of silence, and `retry` is 1000.
   */
  listEvents(executionId: string, options: ListEventsOptions = {}): Pages<types.EventView> {
    const request = {
      method: "GET",
      path: `/v1/executions/${inPath(executionId)}/events`,
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.EventView>(this.transport, request, "events", "after", true);
  }

  /** Lists the recorded steps (the journal) of an execution. */
  steps(executionId: string, options: ListStepsOptions = {}): Pages<types.StepView> {
    const request = {
      method: "GET",
      path: `/v1/executions/${inPath(executionId)}/steps`,
      options,
      query: { after: options.after, limit: options.limit, include: options.include },
    };
    return new Pages<types.StepView>(this.transport, request, "steps", "after");
  }

  /** Lists the ended attempts of an execution. */
  attempts(executionId: string, options: ListAttemptsOptions = {}): Pages<types.AttemptView> {
    const request = {
      method: "GET",
      path: `/v1/executions/${inPath(executionId)}/attempts`,
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.AttemptView>(this.transport, request, "attempts", "after");
  }

  /** Lists the calls of an execution that may have changed something, with the state of each. */
  ledger(executionId: string, options: GetLedgerOptions = {}): Pages<types.LedgerEntryView> {
    const request = {
      method: "GET",
      path: `/v1/executions/${inPath(executionId)}/ledger`,
      options,
      query: { after: options.after },
    };
    return new Pages<types.LedgerEntryView>(this.transport, request, "entries", "after");
  }

  /**
   * Posts results of calls that the caller runs, some or all, in any order.
   *
   * If one result is refused, nothing is stored. The same result may be posted again. The execution goes on when a
   * result arrives; it waits again for the calls that have none.
   */
  postToolResults(
    executionId: string,
    body: types.ToolResultsBody,
    options: KeyOptions = {},
  ): Promise<types.ToolResultsView> {
    const request = {
      method: "POST",
      path: `/v1/executions/${inPath(executionId)}/tool-results`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.ToolResultsView>(request);
  }

  /**
   * Sets the caps of the budget of the execution's whole tree.
   *
   * Wakes executions that wait for the budget and now fit.
   */
  raiseBudget(executionId: string, body: types.RaiseBody = {}, options: KeyOptions = {}): Promise<types.BudgetView> {
    const request = {
      method: "POST",
      path: `/v1/executions/${inPath(executionId)}/budget`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.BudgetView>(request);
  }

  /**
   * Erases input, output, messages, results, metadata and failure texts of an ended execution and of its descendants.
   *
   * Of a message of a session, the transcript keeps a tombstone; summaries that stand for it are erased with it. Ids,
   * times, states, codes, counts, costs and the ledger of effects stay. Retries and forks of it are executions of their
   * own, with their own copies. An erased execution can be neither retried nor forked. Idempotent.
   */
  erase(executionId: string, options: RequestOptions = {}): Promise<types.Erased> {
    const request = { method: "DELETE", path: `/v1/executions/${inPath(executionId)}/content`, options };
    return this.transport.json<types.Erased>(request);
  }

  /**
   * Sends a signal to an execution whose code may wait for one of that name, now or later.
   *
   * A signal is kept in order with others of its name, and wakes an execution that waits.
   */
  sendSignal(executionId: string, body: types.SignalBody, options: KeyOptions = {}): Promise<types.SentSignal> {
    const request = {
      method: "POST",
      path: `/v1/executions/${inPath(executionId)}/signals`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.SentSignal>(request);
  }

  /** Lists the files that an execution's calls left. They live as long as the execution. */
  artifacts(executionId: string, options: RequestOptions = {}): Pages<types.Artifact> {
    const request = { method: "GET", path: `/v1/executions/${inPath(executionId)}/artifacts`, options };
    return new Pages<types.Artifact>(this.transport, request, "artifacts", undefined);
  }

  /** Downloads a file of an execution by its id, or the latest of its name; always as an attachment. */
  downloadArtifact(executionId: string, file: string, options: RequestOptions = {}): Promise<Uint8Array> {
    const request = { method: "GET", path: `/v1/executions/${inPath(executionId)}/artifacts/${inPath(file)}`, options };
    return this.transport.bytes(request);
  }
}

export interface ListApprovalsOptions extends RequestOptions {
  /** In this state */
  readonly state?: types.ApprovalState | undefined;
  /** Of this execution */
  readonly execution?: string | undefined;
  /** By agent key */
  readonly agent?: string | undefined;
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
  /** `next_cursor` of the page before */
  readonly cursor?: string | undefined;
}

export class Approvals extends Resource {
  /** Lists calls that wait, or waited, for a person's decision; newest first. */
  list(options: ListApprovalsOptions = {}): Pages<types.Approval> {
    const request = {
      method: "GET",
      path: "/v1/approvals",
      options,
      query: { state: options.state, execution: options.execution, agent: options.agent, org_id: options.org_id,
        group_id: options.group_id, all_tenants: options.all_tenants, limit: options.limit, cursor: options.cursor },
    };
    return new Pages<types.Approval>(this.transport, request, "approvals", "cursor");
  }

  /** Returns one approval with everything that a decider must see. */
  get(approvalId: string, options: RequestOptions = {}): Promise<types.Approval> {
    const request = { method: "GET", path: `/v1/approvals/${inPath(approvalId)}`, options };
    return this.transport.json<types.Approval>(request);
  }

  /**
   * Decides on a waiting call.
   *
   * A second decision is 409 and says who made the first.
   */
  decide(approvalId: string, body: types.DecisionBody, options: KeyOptions = {}): Promise<types.Approval> {
    const request = {
      method: "POST",
      path: `/v1/approvals/${inPath(approvalId)}/decision`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.Approval>(request);
  }
}

export interface ListQuestionsOptions extends RequestOptions {
  /** In this state */
  readonly state?: types.QuestionState | undefined;
  /** Of this execution */
  readonly execution?: string | undefined;
  /** By agent key */
  readonly agent?: string | undefined;
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
  /** `next_cursor` of the page before */
  readonly cursor?: string | undefined;
}

export class Questions extends Resource {
  /** Lists questions of executions to their callers; newest first. */
  list(options: ListQuestionsOptions = {}): Pages<types.Question> {
    const request = {
      method: "GET",
      path: "/v1/questions",
      options,
      query: { state: options.state, execution: options.execution, agent: options.agent, org_id: options.org_id,
        group_id: options.group_id, all_tenants: options.all_tenants, limit: options.limit, cursor: options.cursor },
    };
    return new Pages<types.Question>(this.transport, request, "questions", "cursor");
  }

  /** Returns one question with the schema of its answer. */
  get(questionId: string, options: RequestOptions = {}): Promise<types.Question> {
    const request = { method: "GET", path: `/v1/questions/${inPath(questionId)}`, options };
    return this.transport.json<types.Question>(request);
  }

  /**
   * Answers a waiting question.
   *
   * The model reads the answer as the result of its call. A second answer is 409.
   */
  answer(questionId: string, body: types.AnswerBody, options: KeyOptions = {}): Promise<types.Question> {
    const request = {
      method: "POST",
      path: `/v1/questions/${inPath(questionId)}/answer`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.Question>(request);
  }
}

export interface ListSessionsOptions extends RequestOptions {
  /** Sessions older than this one */
  readonly before?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export interface ListMessagesOptions extends RequestOptions {
  /** Messages after this number */
  readonly after?: number | undefined;
  /** 1 to 500; 100 when absent */
  readonly limit?: number | undefined;
}

export class Sessions extends SessionStreams {
  /** Begins a session with an agent. */
  create(body: types.SessionBody, options: KeyOptions = {}): Promise<types.SessionView> {
    const request = {
      method: "POST",
      path: "/v1/sessions",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.SessionView>(request);
  }

  /** Lists the caller's sessions, newest first. */
  list(options: ListSessionsOptions = {}): Pages<types.SessionView> {
    const request = {
      method: "GET",
      path: "/v1/sessions",
      options,
      query: { before: options.before, limit: options.limit },
    };
    return new Pages<types.SessionView>(this.transport, request, "sessions", "before");
  }

  /** Reads a session. */
  get(sessionId: string, options: RequestOptions = {}): Promise<types.SessionView> {
    const request = { method: "GET", path: `/v1/sessions/${inPath(sessionId)}`, options };
    return this.transport.json<types.SessionView>(request);
  }

  /** Sends a message to the session's agent. When this answers, the message is committed. */
  send(sessionId: string, body: types.MessageBody, options: KeyOptions = {}): Promise<types.SentView> {
    const request = {
      method: "POST",
      path: `/v1/sessions/${inPath(sessionId)}/messages`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.SentView>(request);
  }

  /** Lists the transcript: what was said before the message that is answered now. */
  messages(sessionId: string, options: ListMessagesOptions = {}): Pages<types.MessageView> {
    const request = {
      method: "GET",
      path: `/v1/sessions/${inPath(sessionId)}/messages`,
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.MessageView>(this.transport, request, "messages", "after");
  }

  /** Stops the turn under way, and keeps what was said. Does nothing when the session is idle. */
  interrupt(sessionId: string, options: KeyOptions = {}): Promise<types.SessionView> {
    const request = {
      method: "POST",
      path: `/v1/sessions/${inPath(sessionId)}/interrupt`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.SessionView>(request);
  }

  /** Ends an idle session. A later message reopens it. */
  end(sessionId: string, options: KeyOptions = {}): Promise<types.SessionView> {
    const request = {
      method: "POST",
      path: `/v1/sessions/${inPath(sessionId)}/end`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.SessionView>(request);
  }

  /**
   * Sets the caps of the budget of all messages of a session.
   *
   * Wakes the message that waits for the budget, if it now fits.
   */
  raiseBudget(sessionId: string, body: types.RaiseBody = {}, options: KeyOptions = {}): Promise<types.BudgetView> {
    const request = {
      method: "POST",
      path: `/v1/sessions/${inPath(sessionId)}/budget`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.BudgetView>(request);
  }

  /** Deletes a session with its transcript, and erases the texts of its executions. */
  delete(sessionId: string, options: RequestOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/sessions/${inPath(sessionId)}`, options };
    return this.transport.nothing(request);
  }
}

export interface ListAgentsOptions extends RequestOptions {
  /** Keys after this one */
  readonly after?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export interface GetAgentOptions extends RequestOptions {
  /** The newest when absent */
  readonly version?: number | undefined;
}

export interface PutAgentOptions extends RequestOptions {
  /** For all tenants; needs the scope `admin` */
  readonly shared?: boolean | undefined;
}

export interface RemoveAgentVersionOptions extends RequestOptions {
  /** The shared one; needs the scope `admin` */
  readonly shared?: boolean | undefined;
}

export class Agents extends Resource {
  /** Lists the newest version of every agent that the caller sees. */
  list(options: ListAgentsOptions = {}): Pages<types.AgentVersionView> {
    const request = {
      method: "GET",
      path: "/v1/agents",
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.AgentVersionView>(this.transport, request, "items", "after");
  }

  /** Returns one agent. */
  get(key: string, options: GetAgentOptions = {}): Promise<types.AgentVersionView> {
    const request = { method: "GET", path: `/v1/agents/${inPath(key)}`, options, query: { version: options.version } };
    return this.transport.json<types.AgentVersionView>(request);
  }

  /** Puts an agent as a new version, unless its newest version has the same content. */
  put(key: string, body: Omit<types.AgentSpec, "key">, options: PutAgentOptions = {}): Promise<types.AgentVersionView> {
    const request = {
      method: "PUT",
      path: `/v1/agents/${inPath(key)}`,
      options,
      query: { shared: options.shared },
      body: { ...body, key },
    };
    return this.transport.json<types.AgentVersionView>(request);
  }

  /** Removes a version of an agent. */
  removeVersion(key: string, version: number, options: RemoveAgentVersionOptions = {}): Promise<void> {
    const request = {
      method: "DELETE",
      path: `/v1/agents/${inPath(key)}/versions/${inPath(version)}`,
      options,
      query: { shared: options.shared },
    };
    return this.transport.nothing(request);
  }
}

export interface ListDefinitionsOptions extends RequestOptions {
  /** Keys after this one */
  readonly after?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export interface GetDefinitionOptions extends RequestOptions {
  /** The newest when absent */
  readonly version?: number | undefined;
}

export interface PutDefinitionOptions extends RequestOptions {
  /** For all tenants; needs the scope `admin` */
  readonly shared?: boolean | undefined;
}

export interface RemoveDefinitionVersionOptions extends RequestOptions {
  /** The shared one; needs the scope `admin` */
  readonly shared?: boolean | undefined;
}

export class Definitions extends Resource {
  /** Lists the newest version of every definition that the caller sees. */
  list(options: ListDefinitionsOptions = {}): Pages<types.DefinitionVersionView> {
    const request = {
      method: "GET",
      path: "/v1/definitions",
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.DefinitionVersionView>(this.transport, request, "items", "after");
  }

  /** Returns one definition with its input and output schema. */
  get(key: string, options: GetDefinitionOptions = {}): Promise<types.DefinitionVersionView> {
    const request = {
      method: "GET",
      path: `/v1/definitions/${inPath(key)}`,
      options,
      query: { version: options.version },
    };
    return this.transport.json<types.DefinitionVersionView>(request);
  }

  /** Puts a definition as a new version, unless its newest version has the same content. */
  put(
    key: string,
    body: Omit<types.DefinitionSpec, "key">,
    options: PutDefinitionOptions = {},
  ): Promise<types.DefinitionVersionView> {
    const request = {
      method: "PUT",
      path: `/v1/definitions/${inPath(key)}`,
      options,
      query: { shared: options.shared },
      body: { ...body, key },
    };
    return this.transport.json<types.DefinitionVersionView>(request);
  }

  /** Removes a version of a definition. */
  removeVersion(key: string, version: number, options: RemoveDefinitionVersionOptions = {}): Promise<void> {
    const request = {
      method: "DELETE",
      path: `/v1/definitions/${inPath(key)}/versions/${inPath(version)}`,
      options,
      query: { shared: options.shared },
    };
    return this.transport.nothing(request);
  }
}

export interface ListSkillsOptions extends RequestOptions {
  /** Names after this one */
  readonly after?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export interface GetSkillOptions extends RequestOptions {
  /** The newest when absent */
  readonly version?: number | undefined;
}

export interface PutSkillOptions extends RequestOptions {
  /** For all tenants; needs the scope `admin` */
  readonly shared?: boolean | undefined;
}

export interface RemoveSkillVersionOptions extends RequestOptions {
  /** The shared one; needs the scope `admin` */
  readonly shared?: boolean | undefined;
}

export class Skills extends Resource {
  /** Lists the newest version of every skill that the caller sees. */
  list(options: ListSkillsOptions = {}): Pages<types.SkillView> {
    const request = {
      method: "GET",
      path: "/v1/skills",
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.SkillView>(this.transport, request, "items", "after");
  }

  /** Returns one skill with its texts. */
  get(name: string, options: GetSkillOptions = {}): Promise<types.WholeSkillView> {
    const request = { method: "GET", path: `/v1/skills/${inPath(name)}`, options, query: { version: options.version } };
    return this.transport.json<types.WholeSkillView>(request);
  }

  /**
   * Puts a skill as a new version, unless its newest version has the same content. Agents that are put later have it.
   */
  put(name: string, body: Omit<types.SkillSpec, "name">, options: PutSkillOptions = {}): Promise<types.SkillView> {
    const request = {
      method: "PUT",
      path: `/v1/skills/${inPath(name)}`,
      options,
      query: { shared: options.shared },
      body: { ...body, name },
    };
    return this.transport.json<types.SkillView>(request);
  }

  /** Removes a version of a skill. */
  removeVersion(name: string, version: number, options: RemoveSkillVersionOptions = {}): Promise<void> {
    const request = {
      method: "DELETE",
      path: `/v1/skills/${inPath(name)}/versions/${inPath(version)}`,
      options,
      query: { shared: options.shared },
    };
    return this.transport.nothing(request);
  }
}

export interface ListProjectsOptions extends RequestOptions {
  /** Projects of this status */
  readonly status?: types.ProjectStatus | undefined;
  /** Projects older than this one */
  readonly before?: string | undefined;
  /** 1 to 200; 20 when absent */
  readonly limit?: number | undefined;
}

export interface ListProjectEventsOptions extends RequestOptions {
  /** Events after this one */
  readonly after?: number | undefined;
  /** 1 to 1000; 200 when absent */
  readonly limit?: number | undefined;
}

export interface ListTasksOptions extends RequestOptions {
  /** Tasks after this position */
  readonly after?: number | undefined;
  /** 1 to 1000; 200 when absent */
  readonly limit?: number | undefined;
}

export class Projects extends Resource {
  /** Creates a project, and begins to plan or to run it. */
  create(body: types.ProjectBody, options: KeyOptions = {}): Promise<types.ProjectView> {
    const request = {
      method: "POST",
      path: "/v1/projects",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.ProjectView>(request);
  }

  /** Lists the caller's projects, newest first. */
  list(options: ListProjectsOptions = {}): Pages<types.ProjectView> {
    const request = {
      method: "GET",
      path: "/v1/projects",
      options,
      query: { status: options.status, before: options.before, limit: options.limit },
    };
    return new Pages<types.ProjectView>(this.transport, request, "projects", "before");
  }

  /** Reads a project. */
  get(projectId: string, options: RequestOptions = {}): Promise<types.ProjectView> {
    const request = { method: "GET", path: `/v1/projects/${inPath(projectId)}`, options };
    return this.transport.json<types.ProjectView>(request);
  }

  /** Approves the plan of a project that waits for it. */
  approve(projectId: string, body: types.ApproveBody = {}, options: KeyOptions = {}): Promise<types.ProjectView> {
    const request = {
      method: "POST",
      path: `/v1/projects/${inPath(projectId)}/approve`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.ProjectView>(request);
  }

  /** Pauses a project: tasks that run finish, and no other starts. Another project may run in its place. */
  pause(projectId: string, options: KeyOptions = {}): Promise<types.ProjectView> {
    const request = {
      method: "POST",
      path: `/v1/projects/${inPath(projectId)}/pause`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.ProjectView>(request);
  }

  /** Resumes a project that was paused by request, as soon as there is a place for it. */
  resume(projectId: string, options: KeyOptions = {}): Promise<types.ProjectView> {
    const request = {
      method: "POST",
      path: `/v1/projects/${inPath(projectId)}/resume`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.ProjectView>(request);
  }

  /** Lets a project that waits at the gate of a phase go on to the next phase. */
  goOn(projectId: string, options: KeyOptions = {}): Promise<types.ProjectView> {
    const request = {
      method: "POST",
      path: `/v1/projects/${inPath(projectId)}/continue`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.ProjectView>(request);
  }

  /** Cancels a project: no more tasks start. */
  cancel(projectId: string, body: types.CancelBody = {}, options: KeyOptions = {}): Promise<types.ProjectView> {
    const request = {
      method: "POST",
      path: `/v1/projects/${inPath(projectId)}/cancel`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.ProjectView>(request);
  }

  /** Sets the caps of a project's budget; each is a total. */
  raiseBudget(projectId: string, body: types.RaiseBody = {}, options: KeyOptions = {}): Promise<types.BudgetView> {
    const request = {
      method: "POST",
      path: `/v1/projects/${inPath(projectId)}/budget`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.BudgetView>(request);
  }

  /** Lists the events of a project. */
  events(projectId: string, options: ListProjectEventsOptions = {}): Pages<types.ProjectEventView> {
    const request = {
      method: "GET",
      path: `/v1/projects/${inPath(projectId)}/events`,
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.ProjectEventView>(this.transport, request, "events", "after", true);
  }

  /** Reads the plan of a project. */
  getPlan(projectId: string, options: RequestOptions = {}): Promise<types.PlanView> {
    const request = { method: "GET", path: `/v1/projects/${inPath(projectId)}/plan`, options };
    return this.transport.json<types.PlanView>(request);
  }

  /**
   * Puts the plan of a project, also while it runs.
   *
   * Tasks that run or have ended stay as they are, listed or not; an entry that would change one is refused. All other
   * tasks are replaced. A plan that was approved is changed only with `approvals:decide`.
   */
  putPlan(projectId: string, body: types.PlanBody, options: RequestOptions = {}): Promise<types.PlanView> {
    const request = { method: "PUT", path: `/v1/projects/${inPath(projectId)}/plan`, options, body };
    return this.transport.json<types.PlanView>(request);
  }

  /** Lists the tasks of a project. */
  tasks(projectId: string, options: ListTasksOptions = {}): Pages<types.TaskView> {
    const request = {
      method: "GET",
      path: `/v1/projects/${inPath(projectId)}/tasks`,
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.TaskView>(this.transport, request, "tasks", "after");
  }

  /** Reads a task. */
  getTask(projectId: string, key: string, options: RequestOptions = {}): Promise<types.TaskView> {
    const request = { method: "GET", path: `/v1/projects/${inPath(projectId)}/tasks/${inPath(key)}`, options };
    return this.transport.json<types.TaskView>(request);
  }

  /**
   * Starts a failed or cancelled task again.
   *
   * Tasks that were skipped because of it are pending again, and a failed project goes on.
   */
  retryTask(projectId: string, key: string, options: KeyOptions = {}): Promise<types.TaskView> {
    const request = {
      method: "POST",
      path: `/v1/projects/${inPath(projectId)}/tasks/${inPath(key)}/retry`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.TaskView>(request);
  }

  /** Deletes a project that has ended, and erases the texts of its executions. */
  delete(projectId: string, options: RequestOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/projects/${inPath(projectId)}`, options };
    return this.transport.nothing(request);
  }
}

export interface ListSchedulesOptions extends RequestOptions {
  /** Keys after this one */
  readonly after?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export interface ListFiringsOptions extends RequestOptions {
  /** Firings with a tick before this time */
  readonly before?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export class Schedules extends Resource {
  /** Creates a schedule. */
  create(body: types.ScheduleSpec, options: KeyOptions = {}): Promise<types.ScheduleView> {
    const request = {
      method: "POST",
      path: "/v1/schedules",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
      times: ["at", "ends_at"],
    };
    return this.transport.json<types.ScheduleView>(request);
  }

  /** Lists the caller's schedules. */
  list(options: ListSchedulesOptions = {}): Pages<types.ScheduleView> {
    const request = {
      method: "GET",
      path: "/v1/schedules",
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.ScheduleView>(this.transport, request, "schedules", "after");
  }

  /** Reads a schedule. */
  get(key: string, options: RequestOptions = {}): Promise<types.ScheduleView> {
    const request = { method: "GET", path: `/v1/schedules/${inPath(key)}`, options };
    return this.transport.json<types.ScheduleView>(request);
  }

  /**
   * Replaces what a schedule says.
   *
   * Its next tick stays if the timing does. A run under way goes on.
   */
  replace(
    key: string,
    body: Omit<types.ScheduleSpec, "key">,
    options: RequestOptions = {},
  ): Promise<types.ScheduleView> {
    const request = {
      method: "PUT",
      path: `/v1/schedules/${inPath(key)}`,
      options,
      body: { ...body, key },
      times: ["at", "ends_at"],
    };
    return this.transport.json<types.ScheduleView>(request);
  }

  /**
   * Pauses a schedule.
   *
   * No tick fires, and those that wait for the run under way start none. The run goes on.
   */
  pause(key: string, options: KeyOptions = {}): Promise<types.ScheduleView> {
    const request = {
      method: "POST",
      path: `/v1/schedules/${inPath(key)}/pause`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.ScheduleView>(request);
  }

  /** Resumes a paused schedule with the first tick after now. Its failures are forgotten. */
  resume(key: string, options: KeyOptions = {}): Promise<types.ScheduleView> {
    const request = {
      method: "POST",
      path: `/v1/schedules/${inPath(key)}/resume`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.ScheduleView>(request);
  }

  /**
   * Runs a schedule now, also a paused one.
   *
   * It follows the overlap policy: while a run is under way it is refused, waits, or cancels that run.
   */
  run(key: string, options: KeyOptions = {}): Promise<types.RunView> {
    const request = {
      method: "POST",
      path: `/v1/schedules/${inPath(key)}/run`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.RunView>(request);
  }

  /** Lists the firings of a schedule, newest first. They are kept for 90 days. */
  firings(key: string, options: ListFiringsOptions = {}): Pages<types.FiringView> {
    const request = {
      method: "GET",
      path: `/v1/schedules/${inPath(key)}/firings`,
      options,
      query: { before: options.before, limit: options.limit },
    };
    return new Pages<types.FiringView>(this.transport, request, "firings", "before");
  }

  /** Deletes a schedule with its history. A run under way goes on. */
  delete(key: string, options: RequestOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/schedules/${inPath(key)}`, options };
    return this.transport.nothing(request);
  }
}

export interface ListDeliveriesOptions extends RequestOptions {
  /** `waiting`, `delivered` or `failed` */
  readonly state?: string | undefined;
  /** Deliveries before the one with this id */
  readonly before?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export class Webhooks extends Resource {
  /**
   * Creates a webhook.
   *
   * Only this answer and that of a rotation show its secret. A webhook of another kind than `standard` has none.
   */
  create(body: types.WebhookBody, options: KeyOptions = {}): Promise<types.WebhookSecretView> {
    const request = {
      method: "POST",
      path: "/v1/webhooks",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.WebhookSecretView>(request);
  }

  /** Lists the caller's webhooks. */
  list(options: RequestOptions = {}): Pages<types.WebhookView> {
    const request = { method: "GET", path: "/v1/webhooks", options };
    return new Pages<types.WebhookView>(this.transport, request, "webhooks", undefined);
  }

  /** Reads a webhook. */
  get(webhookId: string, options: RequestOptions = {}): Promise<types.WebhookView> {
    const request = { method: "GET", path: `/v1/webhooks/${inPath(webhookId)}`, options };
    return this.transport.json<types.WebhookView>(request);
  }

  /**
   * Replaces a webhook.
   *
   * Its secret stays. Its failures are forgotten, and what waits is sent at once.
   */
  replace(webhookId: string, body: types.WebhookBody, options: RequestOptions = {}): Promise<types.WebhookView> {
    const request = { method: "PUT", path: `/v1/webhooks/${inPath(webhookId)}`, options, body };
    return this.transport.json<types.WebhookView>(request);
  }

  /**
   * Gives a webhook a new secret.
   *
   * The secret before signs as well for a time, so that receivers can change over.
   */
  rotate(webhookId: string, body: types.RotateBody = {}, options: KeyOptions = {}): Promise<types.WebhookSecretView> {
    const request = {
      method: "POST",
      path: `/v1/webhooks/${inPath(webhookId)}/rotate`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.WebhookSecretView>(request);
  }

  /** Sends an event of the type `webhook.test`. */
  test(webhookId: string, options: KeyOptions = {}): Promise<types.TestedView> {
    const request = {
      method: "POST",
      path: `/v1/webhooks/${inPath(webhookId)}/test`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.TestedView>(request);
  }

  /** Lists the deliveries to a webhook, newest first. Those that are over are kept for 14 days. */
  deliveries(webhookId: string, options: ListDeliveriesOptions = {}): Pages<types.DeliveryView> {
    const request = {
      method: "GET",
      path: `/v1/webhooks/${inPath(webhookId)}/deliveries`,
      options,
      query: { state: options.state, before: options.before, limit: options.limit },
    };
    return new Pages<types.DeliveryView>(this.transport, request, "deliveries", "before");
  }

  /**
   * Sends deliveries again.
   *
   * They keep their ids, and are tried for another 72 hours.
   */
  redeliver(
    webhookId: string,
    body: types.RedeliverBody = {},
    options: KeyOptions = {},
  ): Promise<types.RedeliveredView> {
    const request = {
      method: "POST",
      path: `/v1/webhooks/${inPath(webhookId)}/redeliver`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
      times: ["failed_since"],
    };
    return this.transport.json<types.RedeliveredView>(request);
  }

  /** Deletes a webhook with its deliveries. */
  delete(webhookId: string, options: RequestOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/webhooks/${inPath(webhookId)}`, options };
    return this.transport.nothing(request);
  }
}

export interface UploadFileOptions extends RequestOptions {
  /** Name, at most 255 characters without `/` and `\` */
  readonly name?: string | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export class Files extends Resource {
  /**
   * Uploads a file: PNG, JPEG, WebP, PDF or UTF-8 text, at most 20 MiB. The body is the bytes.
   *
   * The same bytes under the same name are the same file, so a repetition changes nothing; an `Idempotency-Key` is
   * accepted and not needed. An upload expires after a week by default; what a message names stays with it.
   */
  upload(content: Uint8Array, options: UploadFileOptions = {}): Promise<types.FileView> {
    const request = {
      method: "POST",
      path: "/v1/files",
      options,
      query: { name: options.name },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      content,
    };
    return this.transport.json<types.FileView>(request);
  }

  /** Shows an upload. */
  get(fileId: string, options: RequestOptions = {}): Promise<types.FileView> {
    const request = { method: "GET", path: `/v1/files/${inPath(fileId)}`, options };
    return this.transport.json<types.FileView>(request);
  }

  /** Downloads an upload, always as an attachment. */
  download(fileId: string, options: RequestOptions = {}): Promise<Uint8Array> {
    const request = { method: "GET", path: `/v1/files/${inPath(fileId)}/content`, options };
    return this.transport.bytes(request);
  }

  /** Deletes an upload. Executions and sessions that it is attached to keep its bytes. */
  delete(fileId: string, options: RequestOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/files/${inPath(fileId)}`, options };
    return this.transport.nothing(request);
  }
}

export interface ListIndexesOptions extends RequestOptions {
  /** Names after this one */
  readonly after?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export interface ListDocumentsOptions extends RequestOptions {
  /** Ids after this one */
  readonly after?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export class Indexes extends Resource {
  /** Lists the caller's indexes. */
  list(options: ListIndexesOptions = {}): Pages<types.IndexView> {
    const request = {
      method: "GET",
      path: "/v1/indexes",
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.IndexView>(this.transport, request, "indexes", "after");
  }

  /** Returns one of the caller's indexes. */
  get(name: string, options: RequestOptions = {}): Promise<types.IndexView> {
    const request = { method: "GET", path: `/v1/indexes/${inPath(name)}`, options };
    return this.transport.json<types.IndexView>(request);
  }

  /** Removes an index with its documents and chunks. */
  delete(name: string, options: RequestOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/indexes/${inPath(name)}`, options };
    return this.transport.nothing(request);
  }

  /** Searches one of the caller's indexes. */
  search(name: string, body: types.SearchBody, options: RequestOptions = {}): Promise<types.SearchResults> {
    const request = { method: "POST", path: `/v1/indexes/${inPath(name)}/search`, options, body };
    return this.transport.json<types.SearchResults>(request);
  }

  /** Lists the documents of one of the caller's indexes. */
  documents(name: string, options: ListDocumentsOptions = {}): Pages<types.DocumentView> {
    const request = {
      method: "GET",
      path: `/v1/indexes/${inPath(name)}/documents`,
      options,
      query: { after: options.after, limit: options.limit },
    };
    return new Pages<types.DocumentView>(this.transport, request, "documents", "after");
  }

  /** Returns one document: the data that is kept beside its chunks. */
  getDocument(name: string, documentId: string, options: RequestOptions = {}): Promise<types.DocumentView> {
    const request = { method: "GET", path: `/v1/indexes/${inPath(name)}/documents/${inPath(documentId)}`, options };
    return this.transport.json<types.DocumentView>(request);
  }

  /**
   * Puts documents into an index.
   *
   * Documents are cut into chunks, embedded, and replace their former content. Unchanged documents are not embedded
   * again, so the same request may be repeated freely.
   */
  putDocuments(name: string, body: types.DocumentsBody, options: KeyOptions = {}): Promise<types.Ingested> {
    const request = {
      method: "POST",
      path: `/v1/indexes/${inPath(name)}/documents`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.Ingested>(request);
  }

  /** Removes a document with its chunks. */
  deleteDocument(name: string, documentId: string, options: RequestOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/indexes/${inPath(name)}/documents/${inPath(documentId)}`, options };
    return this.transport.nothing(request);
  }
}

export interface ListMemoryOptions extends RequestOptions {
  /** Key of the agent */
  readonly agent?: string | undefined;
  /** Whole scope; empty for the memory that all users share */
  readonly scope?: string | undefined;
  /** Session in which it was said */
  readonly session?: string | undefined;
  /** `next_cursor` of the page before */
  readonly cursor?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export interface PutMemoryOptions extends RequestOptions {
  /** The `hash` of the content that is replaced */
  readonly ifMatch: string;
}

export interface ForgetMemoriesOptions extends RequestOptions {
  /** Key of the agent */
  readonly agent: string;
  /** Whole scope; all scopes when absent */
  readonly scope?: string | undefined;
}

export class Memory extends Resource {
  /** Lists what agents remember. */
  list(options: ListMemoryOptions = {}): Pages<types.EpisodeView> {
    const request = {
      method: "GET",
      path: "/v1/memory",
      options,
      query: { agent: options.agent, scope: options.scope, session: options.session, cursor: options.cursor, limit:
        options.limit },
    };
    return new Pages<types.EpisodeView>(this.transport, request, "items", "cursor");
  }

  /** Returns one episode. */
  get(memoryId: string, options: RequestOptions = {}): Promise<types.EpisodeView> {
    const request = { method: "GET", path: `/v1/memory/${inPath(memoryId)}`, options };
    return this.transport.json<types.EpisodeView>(request);
  }

  /** Replaces the content of an episode. Relations that only the old content told of are removed. */
  put(memoryId: string, body: types.EpisodeBody, options: PutMemoryOptions): Promise<types.EpisodeView> {
    const request = {
      method: "PUT",
      path: `/v1/memory/${inPath(memoryId)}`,
      options,
      headers: { "If-Match": options.ifMatch },
      body,
    };
    return this.transport.json<types.EpisodeView>(request);
  }

  /** Searches the memory of an agent, by words and by meaning. */
  search(body: types.MemorySearchBody, options: RequestOptions = {}): Promise<types.MemoryResults> {
    const request = { method: "POST", path: "/v1/memory/search", options, body };
    return this.transport.json<types.MemoryResults>(request);
  }

  /** Forgets one episode. */
  forget(memoryId: string, options: RequestOptions = {}): Promise<types.ForgottenView> {
    const request = { method: "DELETE", path: `/v1/memory/${inPath(memoryId)}`, options };
    return this.transport.json<types.ForgottenView>(request);
  }

  /** Forgets what an agent remembers, of one scope or of all. */
  forgetAll(options: ForgetMemoriesOptions): Promise<types.ForgottenView> {
    const request = {
      method: "DELETE",
      path: "/v1/memory",
      options,
      query: { agent: options.agent, scope: options.scope },
    };
    return this.transport.json<types.ForgottenView>(request);
  }
}

export interface ListRunsOptions extends RequestOptions {
  /** Runs of this status */
  readonly status?: types.RunStatus | undefined;
  /** `next_cursor` of the page before */
  readonly cursor?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export interface ListRunCallsOptions extends RequestOptions {
  /** `next_cursor` of the page before */
  readonly cursor?: string | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
}

export class Runs extends Resource {
  /**
   * Begins a durable run, or finds the one of the same key.
   *
   * A run that exists is returned as it stands, ended or not; its budget and its deadline stay.
   */
  create(body: types.RunBody, options: KeyOptions = {}): Promise<types.DurableRun> {
    const request = {
      method: "POST",
      path: "/v1/runs",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.DurableRun>(request);
  }

  /** Lists durable runs, newest first. */
  list(options: ListRunsOptions = {}): Pages<types.DurableRun> {
    const request = {
      method: "GET",
      path: "/v1/runs",
      options,
      query: { status: options.status, cursor: options.cursor, limit: options.limit },
    };
    return new Pages<types.DurableRun>(this.transport, request, "runs", "cursor");
  }

  /** Reads a durable run. */
  get(key: string, options: RequestOptions = {}): Promise<types.DurableRun> {
    const request = { method: "GET", path: `/v1/runs/${inPath(key)}`, options };
    return this.transport.json<types.DurableRun>(request);
  }

  /** Lists the recorded model calls of a durable run, in the order in which they were first made. */
  calls(key: string, options: ListRunCallsOptions = {}): Pages<types.RunCallView> {
    const request = {
      method: "GET",
      path: `/v1/runs/${inPath(key)}/calls`,
      options,
      query: { cursor: options.cursor, limit: options.limit },
    };
    return new Pages<types.RunCallView>(this.transport, request, "calls", "cursor");
  }

  /**
   * Sets the caps of the budget of all calls of a durable run; each is a total.
   *
   * Wakes calls that wait for the budget and now fit.
   */
  raiseBudget(key: string, body: types.RaiseBody = {}, options: KeyOptions = {}): Promise<types.BudgetView> {
    const request = {
      method: "POST",
      path: `/v1/runs/${inPath(key)}/budget`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.BudgetView>(request);
  }

  /**
   * Ends a durable run. Further model calls of it are refused.
   *
   * Idempotent: a run that ended in this way before is returned as it stands; one that ended in another way is a
   * conflict. Calls under way go on.
   */
  end(key: string, body: types.RunEndBody, options: KeyOptions = {}): Promise<types.DurableRun> {
    const request = {
      method: "POST",
      path: `/v1/runs/${inPath(key)}/end`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.DurableRun>(request);
  }

  /**
   * Cancels a durable run and its model calls under way. Further ones are refused.
   *
   * Idempotent: a run that was cancelled before is returned as it stands; one that ended in another way is a conflict.
   */
  cancel(key: string, options: KeyOptions = {}): Promise<types.DurableRun> {
    const request = {
      method: "POST",
      path: `/v1/runs/${inPath(key)}/cancel`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.DurableRun>(request);
  }
}

export interface GetUsageOptions extends RequestOptions {
  /** Submitted at this time or later; 24 hours before `until` when absent. At most 92 days before `until` */
  readonly since?: string | undefined;
  /** Submitted before this time; now when absent */
  readonly until?: string | undefined;
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of the organisation */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
}

export interface GetOverviewOptions extends RequestOptions {
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of the organisation */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** Newest executions to summarise, 0 to 2,000; 2,000 when absent */
  readonly recent?: number | undefined;
}

export class Usage extends Resource {
  /** Sums what the executions submitted in a span of time spent, by tenant, agent and model, and how they ended. */
  get(options: GetUsageOptions = {}): Promise<types.UsageView> {
    const request = {
      method: "GET",
      path: "/v1/usage",
      options,
      query: { since: options.since, until: options.until, org_id: options.org_id, group_id: options.group_id,
        all_tenants: options.all_tenants },
      times: ["since", "until"],
    };
    return this.transport.json<types.UsageView>(request);
  }

  /** Counts executions, and summarises the newest: rate, times, failures and spend. */
  overview(options: GetOverviewOptions = {}): Promise<types.Overview> {
    const request = {
      method: "GET",
      path: "/v1/overview",
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants, recent:
        options.recent },
    };
    return this.transport.json<types.Overview>(request);
  }
}

export interface ListLimitsOptions extends RequestOptions {
  /** Limits after this one */
  readonly after?: string | undefined;
  /** Of everybody; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
}

export interface PutLimitOptions extends RequestOptions {
  /** About all tenants; needs the scope `admin` */
  readonly shared?: boolean | undefined;
}

export interface RemoveLimitOptions extends RequestOptions {
  /** The one about all tenants; needs the scope `admin` */
  readonly shared?: boolean | undefined;
}

export class Limits extends Resource {
  /**
   * Lists the limits that apply to the caller's executions.
   *
   * They are set here, come from definitions and agents, or cover all tenants.
   */
  list(options: ListLimitsOptions = {}): Pages<types.LimitView> {
    const request = {
      method: "GET",
      path: "/v1/limits",
      options,
      query: { after: options.after, all_tenants: options.all_tenants },
    };
    return new Pages<types.LimitView>(this.transport, request, "limits", "after");
  }

  /**
   * Sets how many executions may run at a time.
   *
   * The limit covers the caller's executions, or all tenants' with `?shared=true`. It holds from the next claim on;
   * running executions continue.
   */
  put(key: string, body: types.LimitBody, options: PutLimitOptions = {}): Promise<types.LimitSet> {
    const request = {
      method: "PUT",
      path: `/v1/limits/${inPath(key)}`,
      options,
      query: { shared: options.shared },
      body,
    };
    return this.transport.json<types.LimitSet>(request);
  }

  /**
   * Removes a limit that was set here.
   *
   * Limits of definitions and agents are removed with their versions.
   */
  remove(key: string, options: RemoveLimitOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/limits/${inPath(key)}`, options, query: { shared: options.shared } };
    return this.transport.nothing(request);
  }
}

export interface ListQuarantineOptions extends RequestOptions {
  /** `all`: also those that were released, withdrawn or are overdue */
  readonly state?: string | undefined;
  /** Executions after this one */
  readonly after?: string | undefined;
  /** Of everybody; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
}

export interface GetQuarantineOptions extends RequestOptions {
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
}

export interface ReleaseFromQuarantineOptions extends RequestOptions {
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export class Quarantine extends Resource {
  /**
   * Lists executions that killed their workers, oldest first.
   *
   * Shows the last activity of each, the workers that died and what it waits for.
   */
  list(options: ListQuarantineOptions = {}): Pages<types.QuarantinedView> {
    const request = {
      method: "GET",
      path: "/v1/quarantine",
      options,
      query: { state: options.state, after: options.after, all_tenants: options.all_tenants },
    };
    return new Pages<types.QuarantinedView>(this.transport, request, "quarantined", "after");
  }

  /** Returns one execution that killed its workers. */
  get(quarantineId: string, options: GetQuarantineOptions = {}): Promise<types.QuarantinedView> {
    const request = {
      method: "GET",
      path: `/v1/quarantine/${inPath(quarantineId)}`,
      options,
      query: { all_tenants: options.all_tenants },
    };
    return this.transport.json<types.QuarantinedView>(request);
  }

  /**
   * Retries a quarantined execution as the canary of its group.
   *
   * The retry runs whatever the build of the workers. With `all`, releases the whole group without a canary.
   */
  release(
    quarantineId: string,
    body: types.ReleaseBody = {},
    options: ReleaseFromQuarantineOptions = {},
  ): Promise<types.ReleaseView> {
    const request = {
      method: "POST",
      path: `/v1/quarantine/${inPath(quarantineId)}/release`,
      options,
      query: { all_tenants: options.all_tenants },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.ReleaseView>(request);
  }
}

export interface ListKeysOptions extends RequestOptions {
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
  /** `next_cursor` of the page before */
  readonly cursor?: string | undefined;
}

export interface ListKeyHoldingsOptions extends RequestOptions {
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
}

export interface RotateKeyOptions extends RequestOptions {
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export interface RevokeKeyOptions extends RequestOptions {
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
}

export class Keys extends Resource {
  /**
   * Creates an API key.
   *
   * Needs the scope `keys:write`, and every scope of the new key. Only this answer shows the key.
   */
  create(body: types.KeyBody, options: KeyOptions = {}): Promise<types.KeySecretView> {
    const request = {
      method: "POST",
      path: "/v1/keys",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
      times: ["expires_at"],
    };
    return this.transport.json<types.KeySecretView>(request);
  }

  /**
   * Lists API keys, newest first, without their secrets.
   *
   * A revoked or expired key is listed for 90 days.
   */
  list(options: ListKeysOptions = {}): Pages<types.KeyView> {
    const request = {
      method: "GET",
      path: "/v1/keys",
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants, limit:
        options.limit, cursor: options.cursor },
    };
    return new Pages<types.KeyView>(this.transport, request, "keys", "cursor");
  }

  /**
   * Lists the objects of a key, or of the account of a person, that act after its revocation.
   *
   * Needs the scope `keys:write`.
   */
  holdings(keyId: string, options: ListKeyHoldingsOptions = {}): Promise<types.HoldingsView> {
    const request = {
      method: "GET",
      path: `/v1/keys/${inPath(keyId)}/holdings`,
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants },
    };
    return this.transport.json<types.HoldingsView>(request);
  }

  /**
   * Creates an API key in the place of another.
   *
   * Needs the scope `keys:write`, and every scope of the old key. The new key has its name and its scopes. The old one
   * is accepted for `overlap_seconds` more, unless it ends earlier. Only this answer shows the new key; after a lost
   * answer, rotate the old key again.
   */
  rotate(
    keyId: string,
    body: types.KeyRotationBody = {},
    options: RotateKeyOptions = {},
  ): Promise<types.KeySecretView> {
    const request = {
      method: "POST",
      path: `/v1/keys/${inPath(keyId)}/rotate`,
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
      times: ["expires_at"],
    };
    return this.transport.json<types.KeySecretView>(request);
  }

  /**
   * Revokes an API key; all processes refuse it within 10 seconds.
   *
   * Needs the scope `keys:write`. A key may revoke itself, and keys with more scopes than it has.
   */
  revoke(keyId: string, options: RevokeKeyOptions = {}): Promise<void> {
    const request = {
      method: "DELETE",
      path: `/v1/keys/${inPath(keyId)}`,
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants },
    };
    return this.transport.nothing(request);
  }
}

export interface ListAccountsOptions extends RequestOptions {
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** `next_after` of the page before */
  readonly after?: string | undefined;
  /** 1 to 200; 100 when absent */
  readonly limit?: number | undefined;
}

export interface DisableAccountOptions extends RequestOptions {
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export interface EnableAccountOptions extends RequestOptions {
  /** Of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** Of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Of all tenants; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export class Accounts extends Resource {
  /** Lists the people who signed in with the OpenID Connect provider. */
  list(options: ListAccountsOptions = {}): Pages<types.AccountView> {
    const request = {
      method: "GET",
      path: "/v1/accounts",
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants, after:
        options.after, limit: options.limit },
    };
    return new Pages<types.AccountView>(this.transport, request, "accounts", "after");
  }

  /**
   * Disables an account: the person cannot sign in, and its sessions end within 10 seconds.
   *
   * Keys that the person created stay valid.
   */
  disable(accountId: string, options: DisableAccountOptions = {}): Promise<types.AccountView> {
    const request = {
      method: "POST",
      path: `/v1/accounts/${inPath(accountId)}/disable`,
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants },
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.AccountView>(request);
  }

  /** Enables an account again. */
  enable(accountId: string, options: EnableAccountOptions = {}): Promise<types.AccountView> {
    const request = {
      method: "POST",
      path: `/v1/accounts/${inPath(accountId)}/enable`,
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants },
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.AccountView>(request);
  }
}

export interface ListAuditOptions extends RequestOptions {
  /** By the key or person with this id */
  readonly actor?: string | undefined;
  /** With this template of the path */
  readonly route?: string | undefined;
  /** With this target */
  readonly target?: string | undefined;
  /** At this time or later */
  readonly since?: string | undefined;
  /** Before this time */
  readonly until?: string | undefined;
  /** By keys of this organisation; needs the scope `admin` */
  readonly org_id?: string | undefined;
  /** By keys of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** By keys of everybody; needs the scope `admin` */
  readonly all_tenants?: boolean | undefined;
  /** 1 to 200; 50 when absent */
  readonly limit?: number | undefined;
  /** `next_cursor` of the page before */
  readonly cursor?: string | undefined;
}

export class Audit extends Resource {
  /**
   * Lists changes over the API, newest first: which key asked for what, and how it was answered.
   *
   * Refused requests are listed too. Submits, messages of sessions and results of the caller's tools are not: their
   * executions hold them. A row appears within about a second.
   */
  list(options: ListAuditOptions = {}): Pages<types.AuditEntryView> {
    const request = {
      method: "GET",
      path: "/v1/audit",
      options,
      query: { actor: options.actor, route: options.route, target: options.target, since: options.since, until:
        options.until, org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants, limit:
        options.limit, cursor: options.cursor },
    };
    return new Pages<types.AuditEntryView>(this.transport, request, "entries", "cursor");
  }
}

export interface ListWorkersOptions extends RequestOptions {
  /** In this state */
  readonly state?: types.WorkerState | undefined;
  /** `next_after` of the page before */
  readonly after?: string | undefined;
  /** 1 to 200; 100 when absent */
  readonly limit?: number | undefined;
}

export interface GetWorkerOptions extends RequestOptions {
  /** Executions of this organisation */
  readonly org_id?: string | undefined;
  /** Executions of this group of `org_id` */
  readonly group_id?: string | undefined;
  /** Executions of everybody */
  readonly all_tenants?: boolean | undefined;
  /** `next_after` of the page before */
  readonly after?: string | undefined;
  /** 1 to 200; 100 when absent */
  readonly limit?: number | undefined;
}

export interface GetFleetDemandOptions extends RequestOptions {
  /** Names of queues, separated by commas; all if absent */
  readonly queues?: string | undefined;
  /** Executions that one worker runs at a time */
  readonly concurrency?: number | undefined;
}

export class Workers extends Resource {
  /**
   * Lists the workers of the fleet; dead ones for an hour.
   *
   * Needs the scope `admin`.
   */
  list(options: ListWorkersOptions = {}): Pages<types.WorkerView> {
    const request = {
      method: "GET",
      path: "/v1/workers",
      options,
      query: { state: options.state, after: options.after, limit: options.limit },
    };
    return new Pages<types.WorkerView>(this.transport, request, "workers", "after");
  }

  /**
   * Reads a worker and the executions that it holds.
   *
   * Needs the scope `admin`. Lists the executions of the caller's tenant, or of those that the query names; `held`
   * counts those of all tenants. `lost` are the executions that it held when it was declared dead, at most 200.
   */
  get(workerId: string, options: GetWorkerOptions = {}): Promise<types.WorkerDetail> {
    const request = {
      method: "GET",
      path: `/v1/workers/${inPath(workerId)}`,
      options,
      query: { org_id: options.org_id, group_id: options.group_id, all_tenants: options.all_tenants, after:
        options.after, limit: options.limit },
    };
    return this.transport.json<types.WorkerDetail>(request);
  }

  /**
   * Asks a worker to drain.
   *
   * Needs the scope `admin`. The worker learns of it within two seconds, claims nothing more, ends its attempts as on
   * SIGTERM, and exits; a supervisor may start another in its place. Repeating it changes nothing.
   */
  drain(workerId: string, options: KeyOptions = {}): Promise<types.WorkerView> {
    const request = {
      method: "POST",
      path: `/v1/workers/${inPath(workerId)}/drain`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.WorkerView>(request);
  }

  /**
   * Counts the workers that the work takes, for a scaler.
   *
   * Needs the scope `admin`. Without `concurrency`, workers are taken to be as large as the live ones are on average,
   * or as `worker.concurrency` says if none lives.
   */
  demand(options: GetFleetDemandOptions = {}): Promise<types.FleetDemand> {
    const request = {
      method: "GET",
      path: "/v1/fleet/demand",
      options,
      query: { queues: options.queues, concurrency: options.concurrency },
    };
    return this.transport.json<types.FleetDemand>(request);
  }

  /**
   * Lists the names of tools, validators, providers and models that records may use.
   *
   * Needs the scope `definitions:write`. `longhaul apply` compares files with it.
   */
  offers(options: RequestOptions = {}): Promise<types.Offers> {
    const request = { method: "GET", path: "/v1/fleet/offers", options };
    return this.transport.json<types.Offers>(request);
  }
}

export class Providers extends Resource {
  /**
   * Lists the model endpoints that are, or were, down or at their limits.
   *
   * Needs the scope `admin`: the keys belong to the whole fleet.
   */
  health(options: RequestOptions = {}): Pages<types.EndpointView> {
    const request = { method: "GET", path: "/v1/providers/health", options };
    return new Pages<types.EndpointView>(this.transport, request, "endpoints", undefined);
  }

  /**
   * Resets the circuit breakers of a provider that works again.
   *
   * One waiting execution goes ahead, then two, four, and so on as the provider answers.
   */
  resetHealth(body: types.ResetBody, options: KeyOptions = {}): Promise<types.HealthView> {
    const request = {
      method: "POST",
      path: "/v1/providers/health/reset",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.HealthView>(request);
  }
}

export class Platform extends Resource {
  /**
   * Returns deployment profiles with bindings, providers with health, models, tools, and access to agents.
   *
   * Needs the scope `admin`.
   */
  get(options: RequestOptions = {}): Promise<types.PlatformView> {
    const request = { method: "GET", path: "/v1/platform", options };
    return this.transport.json<types.PlatformView>(request);
  }

  /**
   * Puts the entries of a document; entries that it does not name stay as they are.
   *
   * Needs the scope `admin`.
   */
  put(body: types.PlatformSpec = {}, options: RequestOptions = {}): Promise<types.PlatformView> {
    const request = { method: "PUT", path: "/v1/platform", options, body };
    return this.transport.json<types.PlatformView>(request);
  }

  /**
   * Removes one entry of `managed_models`, `providers`, `profiles`, `tools`, `access` or `policy_rules`.
   *
   * An agent without `access` is open to every caller that may submit. Needs the scope `admin`.
   */
  remove(kind: string, name: string, options: RequestOptions = {}): Promise<void> {
    const request = { method: "DELETE", path: `/v1/platform/${inPath(kind)}/${inPath(name)}`, options };
    return this.transport.nothing(request);
  }
}

export class Server extends Resource {
  /** Returns the key or the person that the request is made by. */
  whoami(options: RequestOptions = {}): Promise<types.Whoami> {
    const request = { method: "GET", path: "/v1/whoami", options };
    return this.transport.json<types.Whoami>(request);
  }

  /** Checks that the process runs. */
  health(options: RequestOptions = {}): Promise<string> {
    const request = { method: "GET", path: "/healthz", options };
    return this.transport.text(request);
  }

  /** Checks that the process can serve requests. */
  readiness(options: RequestOptions = {}): Promise<types.Readiness> {
    const request = { method: "GET", path: "/readyz", options };
    return this.transport.json<types.Readiness>(request);
  }

  /** Returns the Prometheus metrics of this process. */
  metrics(options: RequestOptions = {}): Promise<string> {
    const request = { method: "GET", path: "/metrics", options };
    return this.transport.text(request);
  }
}

export interface CreateAgentExecutionOptions extends RequestOptions {
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
  /** Seconds to hold the answer until the execution ends, at most 60. */
  readonly waitSeconds?: number | undefined;
}

export interface CreateInternalAgentExecutionOptions extends RequestOptions {
  /** For correlation; made when absent */
  readonly requestId?: string | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
  /** Seconds to hold the answer until the execution ends, at most 60. */
  readonly waitSeconds?: number | undefined;
  /** One of the server's service tokens. */
  readonly serviceToken: string;
}

export interface FindInternalAgentExecutionsOptions extends RequestOptions {
  /** The `X-Request-Id` of the POST */
  readonly request_id: string;
  /** One of the server's service tokens. */
  readonly serviceToken: string;
}

export interface GetInternalAgentExecutionOptions extends RequestOptions {
  /** One of the server's service tokens. */
  readonly serviceToken: string;
}

export interface StreamInternalAgentExecutionOptions extends RequestOptions {
  /** One of the server's service tokens. */
  readonly serviceToken: string;
}

export class AgentExecutions extends Resource {
  /**
   * Runs an agent on the platform's active bindings.
   *
   * The answer is held as in `/v1/internal/agent-executions`.
   */
  create(
    body: types.AgentExecutionBody,
    options: CreateAgentExecutionOptions = {},
  ): Promise<types.AgentExecutionEnvelope> {
    const request = {
      method: "POST",
      path: "/v1/agent-executions",
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
      waitSeconds: options.waitSeconds,
      body,
    };
    return this.transport.json<types.AgentExecutionEnvelope>(request);
  }

  /** Returns the record of an execution of the caller's tenant. */
  get(agentExecutionId: string, options: RequestOptions = {}): Promise<types.AgentExecutionEnvelope> {
    const request = { method: "GET", path: `/v1/agent-executions/${inPath(agentExecutionId)}`, options };
    return this.transport.json<types.AgentExecutionEnvelope>(request);
  }

  /**
   * Runs an agent.
   *
   * The answer is held until the execution is over or the wait has passed (`Prefer: wait=N`, 60 s when absent). It is
   * the record at that time.
   */
  createInternal(
    body: types.InternalAgentExecutionBody,
    options: CreateInternalAgentExecutionOptions,
  ): Promise<types.AgentExecutionEnvelope> {
    const request = {
      method: "POST",
      path: "/v1/internal/agent-executions",
      options,
      headers: { "X-Request-Id": options.requestId, "X-Service-Token": options.serviceToken },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      waitSeconds: options.waitSeconds,
      body,
    };
    return this.transport.json<types.AgentExecutionEnvelope>(request);
  }

  /**
   * Lists the executions that were requested under one `X-Request-Id`, newest first.
   *
   * For a caller that gave up before it received an id.
   */
  findInternal(options: FindInternalAgentExecutionsOptions): Pages<types.AgentExecution> {
    const request = {
      method: "GET",
      path: "/v1/internal/agent-executions",
      options,
      query: { request_id: options.request_id },
      headers: { "X-Service-Token": options.serviceToken },
    };
    return new Pages<types.AgentExecution>(this.transport, request, "executions", undefined);
  }

  /** Returns the current record of an execution. */
  getInternal(
    agentExecutionId: string,
    options: GetInternalAgentExecutionOptions,
  ): Promise<types.AgentExecutionEnvelope> {
    const request = {
      method: "GET",
      path: `/v1/internal/agent-executions/${inPath(agentExecutionId)}`,
      options,
      headers: { "X-Service-Token": options.serviceToken },
    };
    return this.transport.json<types.AgentExecutionEnvelope>(request);
  }

  /**
   * Runs an agent and streams its progress.
   *
   * Events and the schemas of their `data`: `status` (`AgentExecutionStatusFrame`), `delta`
   * (`AgentExecutionDeltaFrame`), and at the end `complete` (`AgentExecutionCompleteFrame`) or `error`
   * (`AgentExecutionErrorFrame`).
   */
  streamInternal(
    body: types.InternalAgentExecutionBody,
    options: StreamInternalAgentExecutionOptions,
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const request = {
      method: "POST",
      path: "/v1/internal/agent-executions/stream",
      options,
      headers: { "X-Service-Token": options.serviceToken },
      isOnce: true,
      body,
    };
    return this.transport.stream(request);
  }
}

export interface CreateChatCompletionOptions extends RequestOptions {
  /** Key of the durable run that the request belongs to */
  readonly run?: string | undefined;
  /** Id of this start of the program; required with a run */
  readonly attempt?: string | undefined;
  /** Name of the call, in place of its content */
  readonly step?: string | undefined;
  /** Execution that a worker over HTTP holds, whose call this is */
  readonly execution?: string | undefined;
  /** Token of its lease */
  readonly lease?: string | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export interface CreateResponseOptions extends RequestOptions {
  /** Key of the durable run that the request belongs to */
  readonly run?: string | undefined;
  /** Id of this start of the program; required with a run */
  readonly attempt?: string | undefined;
  /** Name of the call, in place of its content */
  readonly step?: string | undefined;
  /** Execution that a worker over HTTP holds, whose call this is */
  readonly execution?: string | undefined;
  /** Token of its lease */
  readonly lease?: string | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export interface GetResponseOptions extends RequestOptions {
  /** Events after this number */
  readonly starting_after?: number | undefined;
  /** Accepted, and without effect */
  readonly include?: string | undefined;
  /** Accepted, and without effect */
  readonly include_obfuscation?: boolean | undefined;
}

export interface ListResponseInputOptions extends RequestOptions {
  /** 1 to 100; 20 when absent */
  readonly limit?: number | undefined;
  /** `asc` or `desc`; `desc` when absent */
  readonly order?: string | undefined;
  /** Items after the one with this id */
  readonly after?: string | undefined;
  /** Accepted, and without effect */
  readonly include?: string | undefined;
}

export interface CreateWireMessageOptions extends RequestOptions {
  /** Key of the durable run that the request belongs to */
  readonly run?: string | undefined;
  /** Id of this start of the program; required with a run */
  readonly attempt?: string | undefined;
  /** Name of the call, in place of its content */
  readonly step?: string | undefined;
  /** Execution that a worker over HTTP holds, whose call this is */
  readonly execution?: string | undefined;
  /** Token of its lease */
  readonly lease?: string | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export interface RunAguiOptions extends RequestOptions {
  /** Key of the durable run that the request belongs to */
  readonly run?: string | undefined;
  /** Id of this start of the program; required with a run */
  readonly attempt?: string | undefined;
  /** Name of the call, in place of its content */
  readonly step?: string | undefined;
  /** Execution that a worker over HTTP holds, whose call this is */
  readonly execution?: string | undefined;
  /** Token of its lease */
  readonly lease?: string | undefined;
  /** Makes the request once, however often it is sent; a random one when absent. */
  readonly idempotencyKey?: string | undefined;
}

export interface FollowAguiOptions extends RequestOptions {
  /** Leaves out the events that the client has, counted from 1 */
  readonly after?: number | undefined;
}

export class Wires extends Resource {
  /**
   * Lists agents, definitions, aliases and models that requests may name.
   *
   * One object for the clients of `OpenAI` and of Anthropic.
   */
  models(options: RequestOptions = {}): Promise<types.WireAnswer> {
    const request = { method: "GET", path: "/v1/models", options };
    return this.transport.json<types.WireAnswer>(request);
  }

  /** Tells of one model. Its id may hold `/` and `:`. */
  getModel(modelId: string, options: RequestOptions = {}): Promise<types.WireAnswer> {
    const request = { method: "GET", path: `/v1/models/${inPath(modelId)}`, options };
    return this.transport.json<types.WireAnswer>(request);
  }

  /**
   * Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s chat completions do.
   *
   * `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
   */
  chatCompletion(body: types.WireBody, options: CreateChatCompletionOptions = {}): Promise<types.WireAnswer> {
    const request = {
      method: "POST",
      path: "/v1/chat/completions",
      options,
      headers: { "Longhaul-Run": options.run, "Longhaul-Attempt": options.attempt, "Longhaul-Step": options.step,
        "Longhaul-Execution": options.execution, "Longhaul-Lease": options.lease },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.WireAnswer>(request);
  }

  /**
   * Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s chat completions do.
   *
   * `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
   */
  streamChatCompletion(
    body: types.WireBody,
    options: CreateChatCompletionOptions = {},
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const request = {
      method: "POST",
      path: "/v1/chat/completions",
      options,
      headers: { "Longhaul-Run": options.run, "Longhaul-Attempt": options.attempt, "Longhaul-Step": options.step,
        "Longhaul-Execution": options.execution, "Longhaul-Lease": options.lease },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body: { ...body, stream: true },
    };
    return this.transport.stream(request);
  }

  /**
   * Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s responses do.
   *
   * `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
   */
  response(body: types.WireBody, options: CreateResponseOptions = {}): Promise<types.WireAnswer> {
    const request = {
      method: "POST",
      path: "/v1/responses",
      options,
      headers: { "Longhaul-Run": options.run, "Longhaul-Attempt": options.attempt, "Longhaul-Step": options.step,
        "Longhaul-Execution": options.execution, "Longhaul-Lease": options.lease },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.WireAnswer>(request);
  }

  /**
   * Runs an agent, a definition or one call of a model, and answers as `OpenAI`'s responses do.
   *
   * `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
   */
  streamResponse(
    body: types.WireBody,
    options: CreateResponseOptions = {},
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const request = {
      method: "POST",
      path: "/v1/responses",
      options,
      headers: { "Longhaul-Run": options.run, "Longhaul-Attempt": options.attempt, "Longhaul-Step": options.step,
        "Longhaul-Execution": options.execution, "Longhaul-Lease": options.lease },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body: { ...body, stream: true },
    };
    return this.transport.stream(request);
  }

  /** Reads a response as it stands, or streams its events after `starting_after`, also long after its end. */
  getResponse(responseId: string, options: GetResponseOptions = {}): Promise<types.WireAnswer> {
    const request = {
      method: "GET",
      path: `/v1/responses/${inPath(responseId)}`,
      options,
      query: { starting_after: options.starting_after, include: options.include, include_obfuscation:
        options.include_obfuscation },
    };
    return this.transport.json<types.WireAnswer>(request);
  }

  /** Reads a response as it stands, or streams its events after `starting_after`, also long after its end. */
  followResponse(
    responseId: string,
    options: GetResponseOptions = {},
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const request = {
      method: "GET",
      path: `/v1/responses/${inPath(responseId)}`,
      options,
      query: { starting_after: options.starting_after, include: options.include, include_obfuscation:
        options.include_obfuscation, stream: true },
    };
    return this.transport.stream(request);
  }

  /** Lists the input of a response. */
  responseInput(responseId: string, options: ListResponseInputOptions = {}): Promise<types.WireAnswer> {
    const request = {
      method: "GET",
      path: `/v1/responses/${inPath(responseId)}/input_items`,
      options,
      query: { limit: options.limit, order: options.order, after: options.after, include: options.include },
    };
    return this.transport.json<types.WireAnswer>(request);
  }

  /** Cancels a response that was made in the background. A repeat changes nothing. */
  cancelResponse(responseId: string, options: KeyOptions = {}): Promise<types.WireAnswer> {
    const request = {
      method: "POST",
      path: `/v1/responses/${inPath(responseId)}/cancel`,
      options,
      key: options.idempotencyKey ?? crypto.randomUUID(),
    };
    return this.transport.json<types.WireAnswer>(request);
  }

  /** Deletes a response: it cannot be read from now on, and its texts are erased once it has ended. */
  deleteResponse(responseId: string, options: RequestOptions = {}): Promise<types.WireAnswer> {
    const request = { method: "DELETE", path: `/v1/responses/${inPath(responseId)}`, options };
    return this.transport.json<types.WireAnswer>(request);
  }

  /** Summarises a conversation by one call of the model, and answers with an item that stands for it. */
  compactResponse(body: types.WireBody, options: RequestOptions = {}): Promise<types.WireAnswer> {
    const request = { method: "POST", path: "/v1/responses/compact", options, isOnce: true, body };
    return this.transport.json<types.WireAnswer>(request);
  }

  /** Estimates the tokens of a request. Nothing is run. */
  countResponseTokens(body: types.WireBody, options: RequestOptions = {}): Promise<types.WireAnswer> {
    const request = { method: "POST", path: "/v1/responses/input_tokens", options, body };
    return this.transport.json<types.WireAnswer>(request);
  }

  /**
   * Runs an agent, a definition or one call of a model, and answers as Anthropic's messages do.
   *
   * `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
   */
  message(body: types.WireBody, options: CreateWireMessageOptions = {}): Promise<types.WireAnswer> {
    const request = {
      method: "POST",
      path: "/v1/messages",
      options,
      headers: { "Longhaul-Run": options.run, "Longhaul-Attempt": options.attempt, "Longhaul-Step": options.step,
        "Longhaul-Execution": options.execution, "Longhaul-Lease": options.lease },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.json<types.WireAnswer>(request);
  }

  /**
   * Runs an agent, a definition or one call of a model, and answers as Anthropic's messages do.
   *
   * `model` is `agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`. See docs/reference/wires.md.
   */
  streamMessage(
    body: types.WireBody,
    options: CreateWireMessageOptions = {},
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const request = {
      method: "POST",
      path: "/v1/messages",
      options,
      headers: { "Longhaul-Run": options.run, "Longhaul-Attempt": options.attempt, "Longhaul-Step": options.step,
        "Longhaul-Execution": options.execution, "Longhaul-Lease": options.lease },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body: { ...body, stream: true },
    };
    return this.transport.stream(request);
  }

  /** Estimates the tokens of a request. Nothing is run. */
  countMessageTokens(body: types.WireBody, options: RequestOptions = {}): Promise<types.WireAnswer> {
    const request = { method: "POST", path: "/v1/messages/count_tokens", options, body };
    return this.transport.json<types.WireAnswer>(request);
  }

  /**
   * Runs an agent for a client of AG-UI and streams its events.
   *
   * Tools of the request are run by the client, and approvals and questions are interrupts, whose answers come with the
   * next request of the thread. The header `Longhaul-Cursor` names the run for `GET`.
   */
  runAgui(
    agent: string,
    body: types.WireBody,
    options: RunAguiOptions = {},
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const request = {
      method: "POST",
      path: `/v1/agui/${inPath(agent)}`,
      options,
      headers: { "Longhaul-Run": options.run, "Longhaul-Attempt": options.attempt, "Longhaul-Step": options.step,
        "Longhaul-Execution": options.execution, "Longhaul-Lease": options.lease },
      key: options.idempotencyKey ?? crypto.randomUUID(),
      body,
    };
    return this.transport.stream(request);
  }

  /**
   * Streams a run again, for a client that lost its connection: what was said so far as one snapshot, then the events
   * that follow; or, with `after`, the events after that number.
   */
  followAgui(
    agent: string,
    runId: string,
    options: FollowAguiOptions = {},
  ): AsyncGenerator<ServerSentEvent, void, undefined> {
    const request = {
      method: "GET",
      path: `/v1/agui/${inPath(agent)}/runs/${inPath(runId)}`,
      options,
      query: { after: options.after },
    };
    return this.transport.stream(request);
  }
}

/** All operations, by the things that they are about. */
export class Resources {
  readonly executions: Executions;
  readonly approvals: Approvals;
  readonly questions: Questions;
  readonly sessions: Sessions;
  readonly agents: Agents;
  readonly definitions: Definitions;
  readonly skills: Skills;
  readonly projects: Projects;
  readonly schedules: Schedules;
  readonly webhooks: Webhooks;
  readonly files: Files;
  readonly indexes: Indexes;
  readonly memory: Memory;
  readonly runs: Runs;
  readonly usage: Usage;
  readonly limits: Limits;
  readonly quarantine: Quarantine;
  readonly keys: Keys;
  readonly accounts: Accounts;
  readonly audit: Audit;
  readonly workers: Workers;
  readonly providers: Providers;
  readonly platform: Platform;
  readonly server: Server;
  readonly agentExecutions: AgentExecutions;
  readonly wires: Wires;

  constructor(transport: Transport) {
    this.executions = new Executions(transport);
    this.approvals = new Approvals(transport);
    this.questions = new Questions(transport);
    this.sessions = new Sessions(transport);
    this.agents = new Agents(transport);
    this.definitions = new Definitions(transport);
    this.skills = new Skills(transport);
    this.projects = new Projects(transport);
    this.schedules = new Schedules(transport);
    this.webhooks = new Webhooks(transport);
    this.files = new Files(transport);
    this.indexes = new Indexes(transport);
    this.memory = new Memory(transport);
    this.runs = new Runs(transport);
    this.usage = new Usage(transport);
    this.limits = new Limits(transport);
    this.quarantine = new Quarantine(transport);
    this.keys = new Keys(transport);
    this.accounts = new Accounts(transport);
    this.audit = new Audit(transport);
    this.workers = new Workers(transport);
    this.providers = new Providers(transport);
    this.platform = new Platform(transport);
    this.server = new Server(transport);
    this.agentExecutions = new AgentExecutions(transport);
    this.wires = new Wires(transport);
  }
}
