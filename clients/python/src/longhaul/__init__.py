"""Client and worker of Longhaul, a durable executor for LLM agents.

`Client` and `AsyncClient` have the operations of the API; `longhaul.types` has the objects of their answers, and
`longhaul.params` those of their requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import params, types
from ._async.pages import AsyncPages
from ._async.streams import AsyncChat
from ._request import Page
from ._sync.pages import Pages
from ._sync.streams import Chat
from .client import AsyncClient, Client, SubmitRequest
from .errors import (
    ApiError,
    AuthenticationFailed,
    Conflict,
    ConnectionFailed,
    ExecutionCancelled,
    ExecutionFailed,
    InvalidRequest,
    LonghaulError,
    NaiveTime,
    NoServer,
    NotFound,
    PermissionDenied,
    RateLimited,
    Refusal,
    Unavailable,
    UnexpectedAnswer,
    Violation,
    WaitTimedOut,
)
from .event_stream import ChatEvent, Event, ServerSentEvent
from .retry import RetryPolicy
from .types import Execution

__all__ = [
    "ApiError",
    "AsyncChat",
    "AsyncClient",
    "AsyncPages",
    "AuthenticationFailed",
    "Chat",
    "ChatEvent",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "Event",
    "Execution",
    "ExecutionCancelled",
    "ExecutionFailed",
    "InvalidRequest",
    "LonghaulError",
    "NaiveTime",
    "NoServer",
    "NotFound",
    "Page",
    "Pages",
    "PermissionDenied",
    "RateLimited",
    "Refusal",
    "RetryPolicy",
    "ServerSentEvent",
    "SubmitRequest",
    "Unavailable",
    "UnexpectedAnswer",
    "Violation",
    "WaitTimedOut",
    "params",
    "types",
]


if TYPE_CHECKING:
    from .worker import App as App
    from .worker import Context as Context
    from .worker import SyncContext as SyncContext
    from .worker import Worker as Worker


def __getattr__(name: str) -> Any:
    """The names of the worker, which needs the extra `worker`: they are imported when they are used."""
    if name in {"App", "Context", "SyncContext", "Worker"}:
        from . import worker

        return getattr(worker, name)
    raise AttributeError(f"module 'longhaul' has no attribute {name!r}")
