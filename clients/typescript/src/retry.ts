/** Pauses between tries of a request, and between looks at an execution. */

import { type LonghaulError, NoServer } from "./errors.js";

/** Repeats a request after a connection error, 429, 502, 503 or 504: exponential backoff, or `Retry-After`. */
export interface RetryPolicy {
  /** Maximum tries of a request, the first one included; 5 when absent. */
  readonly tries?: number;
  /** Milliseconds; each further pause is twice as long. 500 when absent. */
  readonly firstPauseMs?: number;
  /** Milliseconds; 30,000 when absent. A longer `Retry-After` ends the tries. */
  readonly longestPauseMs?: number;
}

/** Tries to connect to an address that never answered, with pauses of less than a second together. */
const FIRST_CONTACT_TRIES = 3;
/** Milliseconds between two looks of a `wait`, at most. */
const LONGEST_WAIT_PAUSE_MS = 3_000;

/**
 * Milliseconds before the next try after `failed` failed ones; throws the failure if there is none.
 *
 * `isKnown`: the address answered before. Otherwise it may be wrong, which its user hears soon.
 */
export function pauseMs(policy: RetryPolicy, failed: number, failure: LonghaulError, isKnown: boolean): number {
  const { tries = 5, firstPauseMs = 500, longestPauseMs = 30_000 } = policy;
  if (failure instanceof NoServer && !isKnown) {
    if (failed >= Math.min(tries, FIRST_CONTACT_TRIES)) throw failure;
    return Math.min(250, firstPauseMs) * failed;
  }
  const stated = failure.retryAfterMs;
  if (failed >= tries || (stated !== undefined && stated > longestPauseMs)) throw failure;
  const ceiling = Math.min(longestPauseMs, firstPauseMs * 2 ** (failed - 1));
  return stated ?? (ceiling * (1 + Math.random())) / 2;
}

/** Milliseconds between two looks of a `wait`, after `failed` ones that told nothing. */
export function waitPauseMs(failed: number, failure: LonghaulError | undefined): number {
  const stated = failure?.retryAfterMs;
  if (stated !== undefined) return Math.min(stated, LONGEST_WAIT_PAUSE_MS);
  return (Math.min(LONGEST_WAIT_PAUSE_MS, 100 * 2 ** failed) * (1 + Math.random())) / 2;
}

/** Sleeps; rejects with the signal's reason when it is aborted. */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const end = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    signal?.addEventListener("abort", end, { once: true });
  });
}
