"""Events of an execution, decoded from server-sent events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dateutil.parser import isoparse


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


class EventDecoder:
    """Decodes the bytes of one stream, in chunks of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> list[Event]:
        """Events that the chunk completes."""
        # Split at line feeds only: `str.splitlines` also splits at characters that may occur inside JSON.
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = (self._line(line.rstrip(b"\r").decode()) for line in lines)
        return [event for event in events if event]

    def _line(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "id" not in fields or "data" not in fields:
            return None
        body = json.loads(fields["data"])
        if fields.get("event") == "resync":
            return Event(int(fields["id"]), "resync", None, body)
        return Event(body["seq"], body["kind"], isoparse(body["at"]), body.get("data"))
