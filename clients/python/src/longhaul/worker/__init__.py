"""Workers in Python: functions that run as durable executions. Needs the extra `longhaul[worker]`."""

try:
    import pydantic as _pydantic  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "longhaul.worker needs the package pydantic: pip install 'longhaul[worker]'", name="pydantic"
    ) from error

from .app import App, Retry, Task
from .context import Context, current
from .errors import (
    Cancelled,
    ChildFailed,
    Draining,
    Expired,
    Failure,
    Interrupted,
    LeaseLost,
    NoSuchProtocol,
    NotAllowed,
    NotStorable,
    OutcomeUnknown,
    Parked,
    Permanent,
    ProtocolError,
    RegistrationRefused,
    Rejected,
    RequestRefused,
    RetryAfter,
    StepMismatch,
    ToolError,
    Transient,
    WorkerDead,
    WorkerError,
)
from .sync_context import SyncContext, SyncHandle
from .tool import Tool, tool
from .waits import Decision, Handle
from .worker import Worker

__all__ = [
    "App",
    "Cancelled",
    "ChildFailed",
    "Context",
    "Decision",
    "Draining",
    "Expired",
    "Failure",
    "Handle",
    "Interrupted",
    "LeaseLost",
    "NoSuchProtocol",
    "NotAllowed",
    "NotStorable",
    "OutcomeUnknown",
    "Parked",
    "Permanent",
    "ProtocolError",
    "RegistrationRefused",
    "Rejected",
    "RequestRefused",
    "Retry",
    "RetryAfter",
    "StepMismatch",
    "SyncContext",
    "SyncHandle",
    "Task",
    "Tool",
    "ToolError",
    "Transient",
    "Worker",
    "WorkerDead",
    "WorkerError",
    "current",
    "tool",
]
