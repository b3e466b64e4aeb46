/** Names for the generated types that callers meet. */

import type { components } from "./generated/api.js";

export type Execution = components["schemas"]["Execution"];
export type Problem = components["schemas"]["Problem"];
export type Violation = components["schemas"]["Violation"];
/** Fields of a submit; exactly one of `definition` and `agent`. */
export type SubmitRequest = Omit<components["schemas"]["SubmitBody"], "idempotency_key">;
