"""Celery's habits on Longhaul: `longhaul.celery` in place of `celery` in imports, and Longhaul's address.

What is not supported raises `exceptions.Unsupported` by name where it is imported, declared or set.
"""

from typing import Any

from . import exceptions, schedules, utils
from .app import Celery, shared_task
from .canvas import Signature, chain, chord, chunks, group, maybe_signature, signature, xmap, xstarmap
from .exceptions import Unsupported
from .result import AsyncResult, EagerResult, GroupResult
from .task import Request, Task, running
from .utils import uuid

subtask = signature

_UNSUPPORTED = {
    "StampingVisitor": "pass headers to `stamp`",
    "abstract": "",
    "bootsteps": "there are no bootsteps",
    "bugreport": "",
    "current_app": "pass the app",
    "platforms": "",
    "signals": "use the handlers of a Task class: before_start, on_success, on_failure, on_retry, after_return",
}


class _CurrentTask:
    """The task that runs in this context, `current_task`."""

    def _get_current_object(self) -> Task | None:
        one = running()
        return one.task if one is not None else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get_current_object(), name)

    def __bool__(self) -> bool:
        return running() is not None


current_task = _CurrentTask()


def __getattr__(name: str) -> Any:
    if name in _UNSUPPORTED:
        advice = f": {_UNSUPPORTED[name]}" if _UNSUPPORTED[name] else ""
        raise Unsupported(f"{name} of Celery is not supported{advice}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AsyncResult",
    "Celery",
    "EagerResult",
    "GroupResult",
    "Request",
    "Signature",
    "Task",
    "Unsupported",
    "chain",
    "chord",
    "chunks",
    "current_task",
    "exceptions",
    "group",
    "maybe_signature",
    "schedules",
    "shared_task",
    "signature",
    "subtask",
    "utils",
    "uuid",
    "xmap",
    "xstarmap",
]
