"""Pauses between tries of a request, and between looks at an execution."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from .errors import LonghaulError, NoServer

LONGEST_WAIT_PAUSE = 3.0
"""Seconds between two looks of a `wait`."""
FIRST_CONTACT_TRIES = 3
"""Tries to connect to an address that never answered, with pauses of less than a second together."""


@dataclass(frozen=True)
class RetryPolicy:
    """Repeats a request after a connection error, 429, 502, 503 or 504: exponential backoff, or `Retry-After`."""

    tries: int = 5
    """Maximum tries of a request, the first one included."""
    first_pause: float = 0.5
    """Seconds; each further pause is twice as long."""
    longest_pause: float = 30.0
    """Seconds. A longer `Retry-After` ends the tries."""

    def pause(self, failed: int, failure: LonghaulError) -> float | None:
        """Seconds until the next try after `failed` failed ones; None if there is none."""
        if failed >= self.tries:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.longest_pause else None
        ceiling = min(self.longest_pause, self.first_pause * 2.0 ** min(failed - 1, 30))
        return random.uniform(ceiling / 2, ceiling)


def until_next_try(policy: RetryPolicy, failed: int, failure: LonghaulError, *, is_known: bool) -> float:
    """Seconds to sleep before the next try; raises the failure if there is none.

    `is_known`: the address answered before. Otherwise it may be wrong, which its user hears soon.
    """
    if isinstance(failure, NoServer) and not is_known:
        if failed >= min(policy.tries, FIRST_CONTACT_TRIES):
            raise failure
        return min(0.25, policy.first_pause) * failed
    pause = policy.pause(failed, failure)
    if pause is None:
        raise failure
    return pause


def wait_pause(failed: int, failure: LonghaulError | None) -> float:
    """Seconds between two looks of a `wait`, after `failed` ones that told nothing."""
    if failure is not None and failure.retry_after is not None:
        return min(failure.retry_after, LONGEST_WAIT_PAUSE)
    return random.uniform(0.5, 1.0) * min(LONGEST_WAIT_PAUSE, 0.1 * 2.0 ** min(failed, 10))


def before(end: float | None, seconds: float) -> float:
    """So many seconds, or those until `end`."""
    return seconds if end is None else max(0.0, min(seconds, end - time.monotonic()))
