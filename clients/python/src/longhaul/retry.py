"""Pauses between tries of a request, and between looks at an execution."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import LonghaulError


@dataclass(frozen=True)
class RetryPolicy:
    """Repeats a request after a connection error, 429 or 503: exponential backoff with jitter, or `Retry-After`."""

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
        ceiling = min(self.longest_pause, self.first_pause * 2 ** (failed - 1))
        return random.uniform(ceiling / 2, ceiling)


def look_pauses() -> Iterator[float]:
    """Seconds between the looks of `wait`: from 0.1 to 2."""
    pause = 0.1
    while True:
        yield pause
        pause = min(2.0, pause * 1.5)
