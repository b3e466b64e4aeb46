"""Errors of workers: those that a function raises, those that it gets, and those of the protocol."""

from __future__ import annotations

from typing import Any, Literal

from ..errors import LonghaulError

FailureClass = Literal["permanent", "transient", "tool_error", "llm_error"]


class Failure(LonghaulError):
    """Ends the attempt with a failure class, a code and a summary. Base of what a function raises on purpose.

    Raised inside a tool with the effect `side_effect`, it says too that the effect did not happen: the next attempt
    runs the tool again.
    """

    failure_class: FailureClass = "transient"

    def __init__(self, code: str, summary: str = "", detail: Any = None) -> None:
        self.code = code
        """Stable name; 1 to 128 characters of `a-z A-Z 0-9 . _ -`."""
        self.summary = summary or code
        self.detail = detail
        super().__init__(f"{code}: {summary}" if summary else code)


class Permanent(Failure):
    """Fails the execution: no attempt would succeed."""

    failure_class = "permanent"


class Transient(Failure):
    """Fails the attempt; the definition's policy for `transient` decides about the next one."""


class ToolError(Failure):
    """Fails the attempt; the definition's policy for `tool_error` decides about the next one."""

    failure_class = "tool_error"


class RetryAfter(Failure):
    """Fails the attempt as `transient`; the next one begins after `seconds`, or after the class's delay if longer."""

    def __init__(self, seconds: float, code: str = "retry_after", summary: str = "", detail: Any = None) -> None:
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"RetryAfter needs a number of seconds, not {seconds}")
        super().__init__(code, summary or f"to be tried again after {seconds:g} s", detail)
        self.retry_after = float(seconds)


class Rejected(Permanent):
    """An approval was rejected. A function that does not catch it fails with the code `rejected`."""

    def __init__(self, name: str, reason: str | None, decided_by: str | None = None, code: str = "rejected") -> None:
        self.name = name
        self.reason = reason
        self.decided_by = decided_by
        super().__init__(code, f"{name}: {reason or 'no reason given'}")


class Expired(Rejected):
    """An approval or a question expired before its decision; code `request_expired`."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "no decision in time", code="request_expired")


class OutcomeUnknown(Permanent):
    """A step with the effect `side_effect` was begun by an attempt that died, so it may have happened.

    The function may catch it, look whether it happened, and go on. If it does not, the execution fails with the code
    `outcome_unknown`.
    """

    def __init__(self, name: str, idempotency_key: str) -> None:
        self.name = name
        self.idempotency_key = idempotency_key
        super().__init__(
            "outcome_unknown",
            f"step {name} was begun by an attempt that died; look whether it happened before it is done again",
            {"step": name, "idempotency_key": idempotency_key},
        )


class ChildFailed(Permanent):
    """A child that the function waited for ended as FAILED; code `child_failed`."""

    def __init__(self, name: str, child: str, failure: Any) -> None:
        failure = failure if isinstance(failure, dict) else {}
        self.name = name
        self.child = child
        """Id of the child."""
        self.child_code = failure.get("code")
        self.child_summary = failure.get("summary")
        told = f": {self.child_summary}" if self.child_summary else ""
        super().__init__(
            "child_failed",
            f"child {name} failed with {self.child_code}{told}",
            {"child": child, "code": self.child_code},
        )


class StepMismatch(Permanent):
    """A recorded result does not fit the type that the function has now; code `step_mismatch`."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(
            "step_mismatch",
            f"the recorded result of step {name} does not fit any more: {reason}. Give the changed step a new name",
            {"step": name},
        )


class NotStorable(Permanent):
    """A value is not JSON, too large, or refused by the server; code `not_storable`."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__("not_storable", f"{where} cannot be stored: {reason}", {"where": where})


class RequestRefused(Permanent):
    """The server refused what the execution asked for; code `request_refused`, and the server's in `server_code`."""

    def __init__(self, status: int, code: str | None, detail: str) -> None:
        self.status = status
        self.server_code = code
        super().__init__("request_refused", f"{code or status}: {detail}", {"status": status, "code": code})


class WorkerError(LonghaulError):
    """Base of errors that end a worker."""


class ProtocolError(WorkerError):
    """An answer is not what the worker protocol says; its text names the request and the place."""


class NoSuchProtocol(WorkerError):
    """The address has no worker protocol 1."""


class NotAllowed(WorkerError):
    """The API key is invalid, or has no scope `workers:run`."""


class RegistrationRefused(WorkerError):
    """The server refused the registration; the text says what."""


class WorkerDead(WorkerError):
    """The server declared the worker dead, because its lease ran out. The worker registers anew."""


class Interrupted(BaseException):
    """Ends a function that is to go on elsewhere or later. Code of users must let it through, as CancelledError.

    `except Exception` does not catch it.
    """


class Parked(Interrupted):
    """The function waits: for a sleep, a signal, children or a request. Its execution goes on when the wait is over."""


class Draining(Interrupted):
    """The worker shuts down: another one goes on from the journal."""


class Cancelled(Interrupted):
    """The execution was cancelled; only of functions in threads, as async ones get `asyncio.CancelledError`."""


class LeaseLost(Interrupted):
    """Another worker holds the execution: nothing may be begun for it here."""
