"""Client of Longhaul, a durable executor for LLM agents."""

from ._generated.models.execution import Execution
from ._generated.models.violation import Violation
from ._generated.types import UNSET, Unset
from .client import AsyncClient, Client, SubmitRequest
from .errors import (
    ApiError,
    Conflict,
    ConnectionFailed,
    ExecutionFailed,
    InvalidRequest,
    LonghaulError,
    NotFound,
    RateLimited,
    Refusal,
    Unavailable,
    WaitTimedOut,
)
from .event_stream import Event
from .retry import RetryPolicy

__all__ = [
    "UNSET",
    "ApiError",
    "AsyncClient",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "Event",
    "Execution",
    "ExecutionFailed",
    "InvalidRequest",
    "LonghaulError",
    "NotFound",
    "RateLimited",
    "Refusal",
    "RetryPolicy",
    "SubmitRequest",
    "Unavailable",
    "Unset",
    "Violation",
    "WaitTimedOut",
]
