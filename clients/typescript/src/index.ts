/** Client of Longhaul, a durable executor for LLM agents. */

export { Client } from "./client.js";
export type { ClientOptions, EventsOptions, RequestOptions, SubmitOptions, WaitOptions } from "./client.js";
export {
  ApiError,
  Conflict,
  ConnectionFailed,
  ExecutionFailed,
  InvalidRequest,
  LonghaulError,
  NotFound,
  RateLimited,
  Unavailable,
  WaitTimedOut,
} from "./errors.js";
export type { Refusal } from "./errors.js";
export type { Event } from "./event_stream.js";
export type { RetryPolicy } from "./retry.js";
export type { Execution, SubmitRequest, Violation } from "./schema.js";
