"""Exceptions under the names that Celery gives them."""

from __future__ import annotations

import builtins
import sys
from contextlib import suppress
from typing import Any

from ..errors import ConnectionFailed, LonghaulError

OperationalError = ConnectionFailed
"""No answer came from the API, after the last try."""


class CeleryError(LonghaulError):
    """Base of the exceptions of this package."""


class ImproperlyConfigured(CeleryError):
    """A task, a setting or a call is declared in a way that cannot work."""


class Unsupported(ImproperlyConfigured):
    """A part of Celery that this package does not have; the message names it and says what to use instead."""


class NotRegistered(CeleryError, KeyError):
    """No task has this name."""

    def __str__(self) -> str:
        return f"no task is named {self.args[0]!r}" if self.args else "no task has this name"


class TaskError(CeleryError):
    """A task failed with an exception whose class is unknown in this process; `exc_type` is the name of the class."""

    exc_type = "Exception"


class TaskRevokedError(CeleryError):
    """The task was revoked, or had expired before it began."""


class TimeoutError(CeleryError, builtins.TimeoutError):
    """The result did not come within the timeout of `get`. The task goes on."""


class SoftTimeLimitExceeded(Exception):
    """Raised inside a task after its `soft_time_limit`."""


class TimeLimitExceeded(CeleryError):
    """The task ran longer than its `time_limit`."""


class WorkerLostError(CeleryError):
    """The worker died while it ran a task that is not to be run twice (`acks_late=False`)."""


class MaxRetriesExceededError(CeleryError):
    """`self.retry` was called without an exception and no retry is left."""


class ChordError(CeleryError):
    """A task of the header of a chord failed, so that its body did not run."""


class IncompleteStream(CeleryError):
    """`collect` met a result that is not ready."""


class ResultForgotten(CeleryError):
    """The result was erased by `forget`."""


class Retry(Exception):
    """Raised by `self.retry`: the task is run again after `countdown` seconds."""

    def __init__(self, message: str, exc: BaseException | None = None, countdown: float = 0.0) -> None:
        super().__init__(message)
        self.exc = exc
        self.countdown = countdown


class Ignore(Exception):
    """Raised by a task to end without a result."""


class Reject(Exception):
    """Raised by a task to end as a failure, or with `requeue=True` to be run again at once."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.requeue = requeue


_MAX_TEXT = 4_000


def describe(error: BaseException, traceback_text: str | None = None) -> dict[str, Any]:
    """The exception as JSON, for `rebuild` in another process."""
    args = [arg if isinstance(arg, (str, int, float, bool, type(None))) else repr(arg) for arg in error.args]
    if sum(len(arg) for arg in args if isinstance(arg, str)) > _MAX_TEXT:
        args = [str(error)[:_MAX_TEXT]]
    kind = type(error)
    described: dict[str, Any] = {
        "exc_type": error.exc_type if isinstance(error, TaskError) else kind.__qualname__,
        "exc_module": kind.__module__,
        "exc_message": args,
    }
    if traceback_text:
        described["traceback"] = traceback_text[-2 * _MAX_TEXT :]
    return described


def rebuild(described: dict[str, Any]) -> Exception:
    """The exception of `describe`, of its own class if that is loaded here, else a `TaskError` of its name.

    No module is imported: the name comes from a record.
    """
    name = str(described.get("exc_type") or "Exception")
    message = described.get("exc_message")
    args = message if isinstance(message, list) else [] if message is None else [message]
    found: Any = sys.modules.get(str(described.get("exc_module")))
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, Exception):
        # A class may need other arguments than those that it keeps.
        with suppress(Exception):
            return found(*args)
    error = type(name.rpartition(".")[2], (TaskError,), {"exc_type": name})(*args)
    assert isinstance(error, TaskError)
    return error
