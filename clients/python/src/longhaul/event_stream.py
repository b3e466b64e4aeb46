"""Server-sent events, and the events of executions and chats."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast

from ._model import Mismatch, Model, decode, parse_time
from .errors import UnexpectedAnswer
from .types import (
    AttemptResetFrame,
    DeltaFrame,
    DoneFrame,
    EventFrame,
    FailureFrame,
    ToolResultFrame,
    ToolUseFrame,
)

LONGEST_EVENT = 64 * 1024 * 1024
"""Bytes of one event; a step's result may have 4 MiB."""

Kind = TypeVar("Kind", bound=str)
Data = TypeVar("Data")


@dataclass(frozen=True)
class ServerSentEvent:
    """One event of a stream."""

    kind: str
    """`message` where the stream names none."""
    id: str | None
    data: Any
    """Its JSON; a text if it is none, such as `[DONE]`."""


@dataclass(frozen=True)
class Event:
    """One event of an execution.

    The kind `resync` means that events before `seq` are no longer kept: read the execution itself.
    """

    seq: int
    """Number of the event, from 1."""
    kind: str
    """Kind; docs/reference/api.md lists them."""
    at: datetime | None
    """Time of the event; None for `resync`."""
    data: dict[str, Any] | None


@dataclass(frozen=True)
class ChatFrame(Generic[Kind, Data]):
    """One event of a chat, with the data of its kind."""

    kind: Kind
    id: str | None
    """Place in the session, to go on from; a `delta` and an `attempt_reset` have none."""
    data: Data


ChatEvent = (
    ChatFrame[Literal["delta"], DeltaFrame]
    | ChatFrame[Literal["attempt_reset"], AttemptResetFrame]
    | ChatFrame[Literal["tool_use"], ToolUseFrame]
    | ChatFrame[Literal["tool_result"], ToolResultFrame]
    | ChatFrame[Literal["status", "retry", "sub_agent", "approval_request", "approval_resolved"], EventFrame]
    | ChatFrame[Literal["error"], FailureFrame]
    | ChatFrame[Literal["done"], DoneFrame]
)
"""Events of a chat; `event.kind` tells the type of `event.data`."""

_FRAMES: dict[str, type[Model]] = {
    "delta": DeltaFrame,
    "attempt_reset": AttemptResetFrame,
    "tool_use": ToolUseFrame,
    "tool_result": ToolResultFrame,
    "error": FailureFrame,
    "done": DoneFrame,
}


class EventDecoder:
    """Decodes the bytes of one stream, in chunks of any size."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Events that the chunk completes."""
        if len(self._rest) + len(chunk) > LONGEST_EVENT:
            raise UnexpectedAnswer(f"an event of the stream has more than {LONGEST_EVENT} bytes")
        self._rest += chunk
        if b"\n" not in chunk:
            return []
        # Split at line feeds only: `str.splitlines` also splits at characters that may occur inside JSON.
        *lines, self._rest = self._rest.split(b"\n")
        events = (self._line(line.rstrip(b"\r").decode(errors="replace")) for line in lines)
        return [event for event in events if event]

    def _line(self, line: str) -> ServerSentEvent | None:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data" and "data" in self._fields:
                value = f"{self._fields['data']}\n{value}"
            self._fields[name] = value
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        return ServerSentEvent(fields.get("event", "message"), fields.get("id"), _json(fields["data"]))


def execution_event(of: ServerSentEvent) -> Event:
    """The event of an execution."""
    data = of.data
    try:
        if not isinstance(data, dict):
            raise Mismatch("is not an object")
        if of.kind == "resync":
            return Event(int(of.id or data["last"]), "resync", None, data)
        return Event(int(data["seq"]), str(data["kind"]), parse_time(data["at"]), data.get("data"))
    except (KeyError, TypeError, ValueError, Mismatch) as error:
        raise UnexpectedAnswer(f"an event of the execution cannot be read: {error}") from error


def chat_event(of: ServerSentEvent) -> ChatEvent:
    """The event of a chat. One of a kind that this version does not know has an `EventFrame`."""
    if not isinstance(of.data, dict):
        raise UnexpectedAnswer(f"an event `{of.kind}` of the chat has no object")
    data = decode(_FRAMES.get(of.kind, EventFrame), of.data)
    return cast(ChatEvent, ChatFrame(of.kind, of.id, data))


def raw_event(of: ServerSentEvent) -> ServerSentEvent:
    """The event as it is."""
    return of


Reading = Callable[[ServerSentEvent], Data]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
