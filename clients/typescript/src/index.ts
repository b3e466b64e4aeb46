/** Client of Longhaul, a durable executor for LLM agents. */

export { Client } from "./client.js";
export type { AnyRequestOptions, ClientOptions, SubmitRequest } from "./client.js";
export {
  ApiError,
  AuthenticationFailed,
  Conflict,
  ConnectionFailed,
  ExecutionCancelled,
  ExecutionFailed,
  InvalidRequest,
  LonghaulError,
  NaiveTime,
  NoServer,
  NotFound,
  PermissionDenied,
  RateLimited,
  Unavailable,
  UnexpectedAnswer,
  WaitTimedOut,
} from "./errors.js";
export type { Refusal } from "./errors.js";
export type { ChatEvent, Event, ServerSentEvent } from "./event_stream.js";
export type * as resources from "./generated/resources.js";
export type * as types from "./generated/types.js";
export type { Execution, Violation } from "./generated/types.js";
export { Pages } from "./pages.js";
export type { Page } from "./pages.js";
export type { RetryPolicy } from "./retry.js";
export { Chat } from "./streams.js";
export type { ChatOptions, EventsOptions, SessionEventsOptions, WaitOptions } from "./streams.js";
export type { Fetch, KeyOptions, RequestOptions } from "./transport.js";
