"""A claimed execution, as the server sends it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .errors import ProtocolError
from .journal import Journal
from .jsontext import time_of


@dataclass(frozen=True)
class Claim:
    """One execution under a lease."""

    id: str
    token: str
    definition: str
    version: int
    queue: str
    lane: str
    attempt: int
    wake_seq: int
    cancel_requested: bool
    active_seconds: float | None
    times: tuple[Any, Any]
    """Texts of the deadline and of the submit."""
    root: str | None
    depth: int
    traceparent: str | None
    metadata: dict[str, Any]
    input: Any
    journal: Journal
    next_after: int | None

    @property
    def deadline_at(self) -> datetime | None:
        """Time at which the execution fails, waits included."""
        return _time(self.times[0], self.id)

    @property
    def created_at(self) -> datetime | None:
        """Time of the submit."""
        return _time(self.times[1], self.id)


def claims_of(answer: dict[str, Any]) -> tuple[list[Claim], list[str]]:
    """The executions of a claim's answer, and what is wrong with those that cannot be read.

    One that cannot be read is not held, so the server hands it back.
    """
    executions = answer.get("executions")
    if not isinstance(executions, list):
        raise ProtocolError("a claim's answer has no list `executions`")
    claims: list[Claim] = []
    odd: list[str] = []
    for execution in executions:
        try:
            claims.append(_claim(execution))
        except ProtocolError as error:
            odd.append(str(error))
    return claims, odd


def next_after_of(answer: dict[str, Any], before: int | None, where: str) -> int | None:
    """Number of the last step sent, if the journal goes on after it."""
    after = answer.get("next_after")
    if after is None:
        return None
    # A claim's answer may have no step of a journal, and its `next_after` is then 0.
    if type(after) is not int or after < 0 or (before is not None and after <= before):
        raise ProtocolError(f"{where}: `next_after` does not go on")
    return after


def _claim(execution: Any) -> Claim:
    if not isinstance(execution, dict):
        raise ProtocolError("a claimed execution is no object")
    where = f"claimed execution {str(execution.get('id'))[:64]}"
    for name in ("id", "token", "definition"):
        if not isinstance(execution.get(name), str) or not execution[name]:
            raise ProtocolError(f"{where} has no text `{name}`")
    for name in ("version", "attempt", "wake_seq"):
        if type(execution.get(name)) is not int:
            raise ProtocolError(f"{where} has no number `{name}`")
    journal = Journal()
    journal.load(execution.get("steps", []), where)
    active = execution.get("active_seconds")
    metadata = execution.get("metadata")
    return Claim(
        id=execution["id"],
        token=execution["token"],
        definition=execution["definition"],
        version=execution["version"],
        queue=str(execution.get("queue") or ""),
        lane=str(execution.get("lane") or "normal"),
        attempt=execution["attempt"],
        wake_seq=execution["wake_seq"],
        cancel_requested=execution.get("cancel_requested") is True,
        active_seconds=float(active) if isinstance(active, (int, float)) and math.isfinite(active) else None,
        times=(execution.get("deadline_at"), execution.get("created_at")),
        root=execution.get("root"),
        depth=execution["depth"] if type(execution.get("depth")) is int else 0,
        traceparent=execution.get("traceparent"),
        metadata=metadata if isinstance(metadata, dict) else {},
        input=execution.get("input"),
        journal=journal,
        next_after=next_after_of(execution, None, where),
    )


def _time(text: Any, where: str) -> datetime | None:
    if text is None:
        return None
    try:
        return time_of(text)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"execution {where} has a time that is none") from error
