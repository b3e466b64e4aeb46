"""Errors that the client raises."""

from __future__ import annotations

import email.utils
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from .types import Execution


class LonghaulError(Exception):
    """Base of all errors of the client."""

    retry_after: float | None = None
    """Seconds to wait before another try, as the server stated."""


class ConnectionFailed(LonghaulError):
    """No answer came, or it was cut. The cause is the error of httpx."""


class NoServer(ConnectionFailed):
    """No connection could be made: the message names the address."""


class UnexpectedAnswer(LonghaulError):
    """The answer is not what the API's document says; the address may be that of another server."""


class NaiveTime(LonghaulError, ValueError):
    """A time without a time zone; nothing was sent."""

    def __init__(self, name: str, value: datetime) -> None:
        super().__init__(
            f"`{name}` has no time zone ({value.isoformat()}): "
            "pass one with it, such as datetime.now(timezone.utc) or value.astimezone()"
        )


@dataclass(frozen=True)
class Violation:
    """One reason why a request is invalid."""

    path: str
    """Place in the request, as a JSON pointer."""
    message: str
    code: str | None
    line: int | None
    """Line of the text at `path`, from 1, if it is a template."""


class ApiError(LonghaulError):
    """An answer with a status of 400 or above."""

    def __init__(self, response: httpx.Response) -> None:
        problem = _problem(response)
        self.status = response.status_code
        self.code = _text(problem.get("code"))
        """Stable name of the error; None if the answer is not the API's but, for instance, a proxy's."""
        self.detail = _text(problem.get("detail")) or response.reason_phrase
        self.violations = _violations(problem.get("errors"))
        """Violations of the request."""
        self.execution_id = _text(problem.get("execution_id"))
        """Execution that the error is about."""
        self.request_id = response.headers.get("longhaul-request-id")
        """Id of the request in the server's log."""
        self.retry_after = _retry_after(response)
        found = "".join(f"; {violation.path}: {violation.message}" for violation in self.violations)
        super().__init__(f"{self.code or 'HTTP error'} ({self.status}): {self.detail}{found}")


class AuthenticationFailed(ApiError):
    """401: no key, or one that is unknown, revoked or expired."""


class PermissionDenied(ApiError):
    """403: the key lacks a scope, or policy denies the request."""


class NotFound(ApiError):
    """404: the caller's tenant has no such object."""


class Conflict(ApiError):
    """409: the state of the object, or an idempotency key that was used for another request, forbids it."""


class InvalidRequest(ApiError):
    """422: the request is invalid; `violations` lists the reasons."""


class RateLimited(ApiError):
    """429."""


class Unavailable(ApiError):
    """502, 503 or 504: the API, or a proxy before it, cannot answer now."""


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
        failure = execution.failure
        self.execution = execution
        self.code = failure.code if failure else None
        """Failure code; docs/reference/failures.md lists them."""
        self.failure_class = failure.class_ if failure else None
        self.summary = failure.summary if failure else None
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


class ExecutionCancelled(ExecutionFailed):
    """The execution was cancelled."""


class WaitTimedOut(LonghaulError, TimeoutError):
    """The execution did not end within the timeout of `wait`. It goes on."""

    def __init__(self, execution_id: str, execution: Execution | None) -> None:
        self.execution = execution
        """The execution as it stands; None if the server did not answer."""
        state = execution.status if execution else "the server does not answer"
        super().__init__(f"execution {execution_id} has not ended: {state}")


_BY_STATUS: dict[int, type[ApiError]] = {
    401: AuthenticationFailed,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    422: InvalidRequest,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def api_error(response: httpx.Response) -> ApiError:
    """The error of an answer whose body has been read."""
    return _BY_STATUS.get(response.status_code, ApiError)(response)


def execution_failed(execution: Execution) -> ExecutionFailed:
    """The error of an execution that is FAILED."""
    is_cancelled = execution.failure is not None and execution.failure.code == "cancelled"
    return (ExecutionCancelled if is_cancelled else ExecutionFailed)(execution)


def _refusal(detail: object) -> Refusal | None:
    """The refusal in the detail of a failure, which has another form for other reasons."""
    if not isinstance(detail, dict) or not isinstance(detail.get("validator"), str):
        return None
    return Refusal(detail["validator"], _text(detail.get("feedback")))


def _problem(response: httpx.Response) -> dict[str, Any]:
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return {}
    try:
        problem = response.json()
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _violations(errors: object) -> list[Violation]:
    parts = [part for part in errors if isinstance(part, dict)] if isinstance(errors, list) else []
    return [
        Violation(str(part.get("path")), str(part.get("message")), _text(part.get("code")), _number(part.get("line")))
        for part in parts
    ]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _retry_after(response: httpx.Response) -> float | None:
    """The header `Retry-After`, which is a number of seconds or a date."""
    text = response.headers.get("retry-after", "")
    if text.isascii() and text.isdecimal():
        return float(text)
    date = email.utils.parsedate_tz(text)
    return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else None
