"""Errors that the client raises."""

from __future__ import annotations

import email.utils
import time
from dataclasses import dataclass

import httpx

from ._generated.models.execution import Execution
from ._generated.models.problem import Problem
from ._generated.models.violation import Violation


class LonghaulError(Exception):
    """Base of all errors of the client."""

    retry_after: float | None = None
    """Seconds to wait before another try, as the server stated."""


class ConnectionFailed(LonghaulError):
    """No answer came, or it was cut. The cause is the error of httpx."""


class ApiError(LonghaulError):
    """An answer with a status of 400 or above."""

    def __init__(self, response: httpx.Response) -> None:
        problem = _problem(response)
        self.status = response.status_code
        self.code = problem.code if problem else None
        """Stable name of the error; None if the answer is not the API's but, for instance, a proxy's."""
        self.detail = problem.detail if problem else response.reason_phrase
        self.violations: list[Violation] = (problem.errors or []) if problem else []
        """Violations of the request: path, message and, for some, a code."""
        self.execution_id = (problem.execution_id or None) if problem else None
        """Execution that the error is about."""
        self.retry_after = _retry_after(response)
        found = "".join(f"; {violation.path}: {violation.message}" for violation in self.violations)
        super().__init__(f"{self.code or 'HTTP error'} ({self.status}): {self.detail}{found}")


class NotFound(ApiError):
    """404: the caller's tenant has no such object."""


class Conflict(ApiError):
    """409: the state of the object, or an idempotency key that was used for another request, forbids it."""


class InvalidRequest(ApiError):
    """422: the request is invalid; `violations` lists the reasons."""


class RateLimited(ApiError):
    """429."""


class Unavailable(ApiError):
    """503."""


@dataclass(frozen=True)
class Refusal:
    """A validator's refusal of the last answer."""

    validator: str
    """Name of the validator."""
    feedback: str | None
    """Start of its feedback to the model."""


class ExecutionFailed(LonghaulError):
    """The execution ended as FAILED."""

    def __init__(self, execution: Execution) -> None:
        failure = execution.failure or None
        self.execution = execution
        self.code = failure.code if failure else None
        """Failure code; docs/reference/failures.md lists them."""
        self.failure_class = (failure.class_ or None) if failure else None
        self.summary = (failure.summary or None) if failure else None
        self.refusal = _refusal(failure.detail) if failure else None
        """Refusal because of which it failed; `None` if it failed for another reason."""
        parts = [f"execution {execution.id} failed: {self.code} ({self.failure_class})"]
        if self.refusal:
            parts.append(f"refused by {self.refusal.validator}")
            # The summary of a refusal without a retry is the feedback itself.
            if self.refusal.feedback and not (self.summary or "").startswith(self.refusal.feedback):
                parts.append(self.refusal.feedback)
        if self.summary:
            parts.append(self.summary)
        super().__init__(": ".join(parts))


class WaitTimedOut(LonghaulError, TimeoutError):
    """The execution did not end within the timeout of `wait`. It goes on."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        super().__init__(f"execution {execution.id} has not ended: {execution.status}")


_BY_STATUS: dict[int, type[ApiError]] = {
    404: NotFound,
    409: Conflict,
    422: InvalidRequest,
    429: RateLimited,
    503: Unavailable,
}


def api_error(response: httpx.Response) -> ApiError:
    """The error of an answer whose body has been read."""
    return _BY_STATUS.get(response.status_code, ApiError)(response)


def _refusal(detail: object) -> Refusal | None:
    """The refusal in the detail of a failure, which has another form for other reasons."""
    if not isinstance(detail, dict) or not isinstance(detail.get("validator"), str):
        return None
    feedback = detail.get("feedback")
    return Refusal(detail["validator"], feedback if isinstance(feedback, str) else None)


def _problem(response: httpx.Response) -> Problem | None:
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return Problem.from_dict(response.json())
    except (KeyError, TypeError, ValueError):
        return None


def _retry_after(response: httpx.Response) -> float | None:
    """The header `Retry-After`, which is a number of seconds or a date."""
    text = response.headers.get("retry-after", "")
    if text.isdecimal():
        return float(text)
    date = email.utils.parsedate_tz(text)
    return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else None
