"""The recorded steps of an execution, and the keys by which a function finds them again."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from .errors import ProtocolError
from .jsontext import step_key

STEPS_MAX = 100_000
"""Steps of one execution: the server's maximum."""


class Record:
    """A recorded step."""

    __slots__ = ("effect", "key", "name", "result", "seq", "state")

    def __init__(self, seq: int, key: str, name: str, state: str, effect: str | None, result: Any) -> None:
        self.seq = seq
        self.key = key
        self.name = name
        self.state = state
        """`intent` or `done`."""
        self.effect = effect
        self.result = result


class Journal:
    """The steps of one execution by their key."""

    __slots__ = ("_unasked", "next_seq", "records")

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.next_seq = 1
        self._unasked: dict[str, str] = {}

    def load(self, steps: Any, where: str) -> None:
        """Adds steps of an answer, in its order. Raises `ProtocolError` if they are not steps."""
        if not isinstance(steps, list):
            raise ProtocolError(f"{where}: `steps` is no list")
        for step in steps:
            record = _record(step, where)
            if record.seq > STEPS_MAX:
                raise ProtocolError(f"{where}: more than {STEPS_MAX} steps")
            if record.seq < self.next_seq:
                raise ProtocolError(f"{where}: step {record.seq} comes after step {self.next_seq - 1}")
            self.next_seq = record.seq + 1
            self.records[record.key] = record
            self._unasked[record.key] = record.name

    def find(self, key: str) -> Record | None:
        """The step with this key, from now on one that the function asked for."""
        if self._unasked:
            self._unasked.pop(key, None)
        return self.records.get(key)

    def add(self, key: str, name: str, state: str, effect: str | None, result: Any) -> Record:
        """A new step, or the result of an intent, which takes over its number."""
        before = self.records.get(key)
        seq = before.seq if before else self.next_seq
        record = Record(seq, key, name, state, effect, result)
        self.records[key] = record
        if before is None:
            self.next_seq += 1
        return record

    @property
    def is_replaying(self) -> bool:
        """True if steps of earlier attempts are left for which the function has not asked."""
        return bool(self._unasked)

    def unasked(self) -> list[str]:
        """Names of the steps of earlier attempts for which the function has not asked, in the journal's order."""
        return list(dict.fromkeys(self._unasked.values()))


class Scope:
    """Counts calls of the same name and content, within one asyncio task of the function.

    The function itself counts by the protocol's convention. A task that it started is a scope of its own, named by its
    first step, so that an occurrence does not depend on which of two parallel tasks was faster. The first step of a
    task counts in the scope around it: tasks begin in the order in which they were made.
    """

    __slots__ = ("_counts", "_name", "_outer", "task")

    def __init__(self, task: Any, outer: Scope | None = None) -> None:
        self.task = task
        self._outer = outer
        self._name: str | None = None
        self._counts: dict[str, int] = {}

    def key(self, name: str, arguments: Any) -> str:
        """Key of the next call of this name and content."""
        if self._outer is not None and self._name is None:
            key = self._outer.key(name, arguments)
            self._name = key[:16]
            return key
        first = step_key(name, arguments, 0 if self._name is None else [self._name, 0])
        count = self._counts.get(first, 0)
        self._counts[first] = count + 1
        if count == 0:
            return first
        return step_key(name, arguments, count if self._name is None else [self._name, count])


_scope: ContextVar[Scope] = ContextVar("longhaul_scope")


def enter_root_scope() -> Scope:
    """Makes the scope of the function, in its task."""
    scope = Scope(asyncio.current_task())
    _scope.set(scope)
    return scope


def current_scope(root: Scope) -> Scope:
    """The scope of the task that runs."""
    scope = _scope.get(root)
    task = asyncio.current_task()
    if scope.task is not task:
        scope = Scope(task, scope)
        _scope.set(scope)
    return scope


def _record(step: Any, where: str) -> Record:
    if not isinstance(step, dict):
        raise ProtocolError(f"{where}: a step is no object")
    seq, key, name, state = step.get("seq"), step.get("key"), step.get("name"), step.get("state")
    if type(seq) is not int or seq < 1 or not isinstance(key, str) or state not in ("intent", "done"):
        raise ProtocolError(f"{where}: a step has no valid seq, key or state")
    effect = step.get("effect")
    return Record(seq, key, name if isinstance(name, str) else "", state, effect, step.get("result"))
