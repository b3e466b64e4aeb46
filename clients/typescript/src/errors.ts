/** Errors that the client throws. */

import type { Execution, Problem, Violation } from "./generated/types.js";

/** Base of all errors of the client. */
export class LonghaulError extends Error {
  /** Milliseconds to wait before another try, as the server stated. */
  readonly retryAfterMs: number | undefined = undefined;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No answer came, or it was cut. `cause` is the error of `fetch`. */
export class ConnectionFailed extends LonghaulError {}

/** No connection could be made: the message names the address. */
export class NoServer extends ConnectionFailed {}

/** The answer is not what the API's document says; the address may be that of another server. */
export class UnexpectedAnswer extends LonghaulError {}

/** A time without a time zone; nothing was sent. */
export class NaiveTime extends LonghaulError {
  constructor(name: string, value: string) {
    super(`\`${name}\` has no time zone (${value}): pass one with it, such as new Date().toISOString()`);
  }
}

/** An answer with a status of 300 or above. */
export class ApiError extends LonghaulError {
  readonly status: number;
  /** Stable name of the error; undefined if the answer is not the API's but, for instance, a proxy's. */
  readonly code: string | undefined;
  readonly detail: string;
  /** Violations of the request: path, message and, for some, a code. */
  readonly violations: readonly Violation[];
  /** Execution that the error is about. */
  readonly executionId: string | undefined;
  /** Id of the request in the server's log. */
  readonly requestId: string | undefined;
  override readonly retryAfterMs: number | undefined;

  constructor(response: Response, body: unknown) {
    const problem = problemOf(response, body);
    const detail = problem?.detail ?? response.statusText;
    const violations = Array.isArray(problem?.errors) ? problem.errors : [];
    const found = violations.map((violation) => `; ${violation.path}: ${violation.message}`).join("");
    super(`${problem?.code ?? "HTTP error"} (${response.status}): ${detail}${found}`);
    this.status = response.status;
    this.code = problem?.code;
    this.detail = detail;
    this.violations = violations;
    this.executionId = problem?.execution_id ?? undefined;
    this.requestId = response.headers.get("longhaul-request-id") ?? undefined;
    this.retryAfterMs = retryAfterMs(response);
  }

  /** The error for an answer, in the subclass of its status. */
  static of(response: Response, body: unknown): ApiError {
    const kind = BY_STATUS[response.status] ?? ApiError;
    return new kind(response, body);
  }
}

/** 401: no key, or one that is unknown, revoked or expired. */
export class AuthenticationFailed extends ApiError {}

/** 403: the key lacks a scope, or policy denies the request. */
export class PermissionDenied extends ApiError {}

/** 404: the caller's tenant has no such object. */
export class NotFound extends ApiError {}

/** 409: the state of the object, or an idempotency key that was used for another request, forbids it. */
export class Conflict extends ApiError {}

/** 422: the request is invalid; `violations` lists the reasons. */
export class InvalidRequest extends ApiError {}

/** 429. */
export class RateLimited extends ApiError {}

/** 502, 503 or 504: the API, or a proxy before it, cannot answer now. */
export class Unavailable extends ApiError {}

/** A validator's refusal of the last answer. */
export interface Refusal {
  /** Name of the validator. */
  readonly validator: string;
  /** Start of its feedback to the model. */
  readonly feedback: string | undefined;
}

/** The execution ended as FAILED. */
export class ExecutionFailed extends LonghaulError {
  readonly execution: Execution;
  /** Failure code; docs/reference/failures.md lists them. */
  readonly code: string | undefined;
  readonly failureClass: string | undefined;
  readonly summary: string | undefined;
  /** Refusal because of which it failed; undefined if it failed for another reason. */
  readonly refusal: Refusal | undefined;

  constructor(execution: Execution) {
    const failure = execution.failure;
    const refusal = refusalOf(failure?.detail);
    const parts = [`execution ${execution.id} failed: ${failure?.code} (${failure?.class})`];
    if (refusal) parts.push(`refused by ${refusal.validator}`);
    // The summary of a refusal without a retry is the feedback itself.
    if (refusal?.feedback && !failure?.summary?.startsWith(refusal.feedback)) parts.push(refusal.feedback);
    if (failure?.summary) parts.push(failure.summary);
    super(parts.join(": "));
    this.execution = execution;
    this.code = failure?.code;
    this.failureClass = failure?.class ?? undefined;
    this.summary = failure?.summary ?? undefined;
    this.refusal = refusal;
  }
}

/** The execution was cancelled. */
export class ExecutionCancelled extends ExecutionFailed {}

/** The error of an execution that is FAILED. */
export function executionFailed(execution: Execution): ExecutionFailed {
  const kind = execution.failure?.code === "cancelled" ? ExecutionCancelled : ExecutionFailed;
  return new kind(execution);
}

/** The refusal in the detail of a failure, which has another form for other reasons. */
function refusalOf(detail: unknown): Refusal | undefined {
  if (typeof detail !== "object" || detail === null) return undefined;
  const { validator, feedback } = detail as { validator?: unknown; feedback?: unknown };
  if (typeof validator !== "string") return undefined;
  return { validator, feedback: typeof feedback === "string" ? feedback : undefined };
}

/** The execution did not end within the timeout of `wait`. It goes on. */
export class WaitTimedOut extends LonghaulError {
  /** The execution as it stands; undefined if the server did not answer. */
  readonly execution: Execution | undefined;

  constructor(id: string, execution: Execution | undefined) {
    super(`execution ${id} has not ended: ${execution?.status ?? "the server does not answer"}`);
    this.execution = execution;
  }
}

const BY_STATUS: Readonly<Record<number, typeof ApiError>> = {
  401: AuthenticationFailed,
  403: PermissionDenied,
  404: NotFound,
  409: Conflict,
  422: InvalidRequest,
  429: RateLimited,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};

function problemOf(response: Response, body: unknown): Problem | undefined {
  const isProblem = response.headers.get("content-type")?.startsWith("application/problem+json") ?? false;
  return isProblem && typeof body === "object" && body !== null ? (body as Problem) : undefined;
}

/** The header `Retry-After`, which is a number of seconds or a date. */
function retryAfterMs(response: Response): number | undefined {
  const text = response.headers.get("retry-after");
  if (text === null) return undefined;
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}
