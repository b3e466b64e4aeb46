/** Pauses between tries of a request, and between looks at an execution. */

import type { LonghaulError } from "./errors.js";

/** Repeats a request after a connection error, 429 or 503: exponential backoff with jitter, or `Retry-After`. */
export interface RetryPolicy {
  /** Maximum tries of a request, the first one included; 5 when absent. */
  readonly tries?: number;
  /** Milliseconds; each further pause is twice as long. 500 when absent. */
  readonly firstPauseMs?: number;
  /** Milliseconds; 30,000 when absent. A longer `Retry-After` ends the tries. */
  readonly longestPauseMs?: number;
}

/** Sleeps before the next try after `failed` failed ones; throws the failure if there is none. */
export async function untilNextTry(
  policy: RetryPolicy,
  failed: number,
  failure: LonghaulError,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { tries = 5, firstPauseMs = 500, longestPauseMs = 30_000 } = policy;
  const stated = failure.retryAfterMs;
  if (failed >= tries || (stated !== undefined && stated > longestPauseMs)) throw failure;
  const ceiling = Math.min(longestPauseMs, firstPauseMs * 2 ** (failed - 1));
  await sleep(stated ?? (ceiling * (1 + Math.random())) / 2, signal);
}

/** Milliseconds between the looks of `wait`: from 100 to 2,000. */
export function* lookPauses(): Generator<number, never> {
  for (let pause = 100; ; pause = Math.min(2000, pause * 1.5)) yield pause;
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
