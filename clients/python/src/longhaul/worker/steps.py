"""Steps: found in the journal, or run and recorded."""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MethodType
from typing import Any

from pydantic import ValidationError

from .errors import NotStorable, OutcomeUnknown, StepMismatch
from .journal import Record, Scope
from .jsontext import jsonable, step_key, storable_text
from .run import Run
from .schema import Codec, type_hints, violations

NOT_DONE = {"longhaul": "not_done"}
"""Result of a `side_effect` step whose tool said that the effect did not happen."""
EFFECTS = ("read_only", "idempotent", "side_effect")


class Step:
    """A step that was asked for."""

    __slots__ = ("began", "codec", "effect", "is_done", "key", "name", "outer", "run", "value")

    def __init__(self, run: Run, key: str, name: str, effect: str | None, codec: Codec) -> None:
        self.run = run
        self.key = key
        self.name = name
        self.effect = effect
        self.codec = codec
        self.is_done = False
        self.value: Any = None
        self.began = 0.0
        self.outer: Step | None = None

    @property
    def idempotency_key(self) -> str:
        """Key for the call outside; the same for each attempt."""
        return f"{self.run.id}:{self.key}"

    @property
    def has_intent(self) -> bool:
        """True if its beginning is recorded before its function runs."""
        return self.effect in ("idempotent", "side_effect")


current_step: ContextVar[Step | None] = ContextVar("longhaul_step", default=None)


async def begin(
    run: Run,
    scope: Scope,
    name: str,
    function: Callable[..., Any],
    effect: str | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Step:
    """Finds the step. If it is not done, everything before it is stored when this returns, its intent too.

    The step then counts as one that runs, until `leave`.
    """
    run.check()
    if not isinstance(name, str) or not 0 < len(name) <= 200 or "\0" in name:
        raise ValueError(f"the name of a step is a text of 1 to 200 characters without U+0000, not {name!r:.50}")
    arguments = _arguments(name, args, kwargs)
    key = scope.key(name, arguments)
    step = Step(run, key, name, effect, codec_of(function))
    record = _find(run, step, arguments)
    if record is not None and record.state == "done":
        return _done(step, record)
    if record is not None and (record.effect == "side_effect" or effect == "side_effect"):
        raise OutcomeUnknown(name, step.idempotency_key)
    run.check_begin()
    # From here on no wait of a parallel branch and no drain may cut it: an intent without a result means that the
    # effect may have happened.
    run.begin_active()
    try:
        if record is None and step.has_intent:
            run.record(step.key, name, "intent", effect, None, "null")
        await run.barrier()
    except BaseException:
        run.end_active()
        raise
    step.began = time.perf_counter()
    return step


def complete(step: Step, value: Any) -> Any:
    """Records the result, and returns it as a later attempt will read it."""
    where = f"the result of step {step.name}"
    plain = step.codec.to_json(value, where)
    text = storable_text(plain, where)
    if not (plain is None or type(plain) in (str, bool, int, float)):
        # A tuple is a list when the journal is read: the first attempt sees the same.
        plain = json.loads(text)
    took_ms = (time.perf_counter() - step.began) * 1000
    step.run.check()
    step.run.record(step.key, step.name, "done", step.effect, plain, text, took_ms=took_ms)
    return _parsed(step, plain)


def not_done(step: Step) -> None:
    """Records that the effect did not happen, so that the next attempt may run the step again."""
    if step.effect == "side_effect" and not (step.run.is_over or step.run.ending or step.run.broken):
        step.run.record(step.key, step.name, "done", step.effect, NOT_DONE, '{"longhaul":"not_done"}')


def enter(step: Step) -> Any:
    """The function of the step begins."""
    step.outer = current_step.get()
    return current_step.set(step)


def leave(step: Step, token: Any) -> None:
    """The function of the step ended."""
    current_step.reset(token)
    step.run.end_active()


def depth_of_waiting(what: str) -> int:
    """Number of steps whose functions wait here. Raises if one of them recorded an intent."""
    depth = 0
    step = current_step.get()
    while step is not None:
        if step.has_intent:
            raise RuntimeError(
                f"{what} waits inside the step {step.name}, which has the effect {step.effect}: "
                "the step would be begun again after the wait. Wait outside it"
            )
        depth += 1
        step = step.outer
    return depth


def recorded(run: Run, scope: Scope, name: str, make: Callable[[], Any]) -> Any:
    """A value that is made once, without waiting for anything."""
    run.check()
    key = scope.key(name, [])
    record = run.journal.find(key)
    if record is None or record.state != "done":
        value = make()
        run.record(key, name, "done", None, value, storable_text(value, name))
        return value
    return record.result


def is_async(function: Callable[..., Any]) -> bool:
    """True if a call of the function is to be awaited."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _find(run: Run, step: Step, arguments: Any) -> Record | None:
    record = run.journal.find(step.key)
    tries = 0
    while (
        record is not None and record.state == "done" and record.effect == "side_effect" and record.result == NOT_DONE
    ):
        tries += 1
        step.key = step_key(step.name, arguments, [step.key[:16], "again", tries])
        record = run.journal.find(step.key)
    return record


def _done(step: Step, record: Record) -> Step:
    step.value = _parsed(step, record.result)
    step.is_done = True
    return step


def _parsed(step: Step, plain: Any) -> Any:
    try:
        return step.codec.from_json(plain)
    except ValidationError as error:
        raise StepMismatch(step.name, violations(error)) from error


def _arguments(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    try:
        plain: list[Any] = [jsonable(value, "") for value in args]
        named = {key: jsonable(value, "") for key, value in kwargs.items()}
    except NotStorable as error:
        raise NotStorable(
            f"an argument of step {name}",
            f"arguments are JSON, as the step is found by them ({error.summary}); bind others with functools.partial",
        ) from error
    return {"args": plain, "kwargs": named} if named else plain


_PLAIN = Codec(Any)
_codecs: dict[tuple[Any, Any], Codec] = {}


def codec_of(function: Callable[..., Any]) -> Codec:
    """Codec of what the function returns by its annotation."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, MethodType):
        function = function.__func__
    annotation = getattr(function, "__annotations__", {}).get("return")
    code = getattr(function, "__code__", None)
    if annotation is None or code is None:
        return _PLAIN
    try:
        codec = _codecs.get((code, annotation))
    except TypeError:
        return _codec(function)
    if codec is None:
        codec = _codecs[(code, annotation)] = _codec(function)
    return codec


def _codec(function: Callable[..., Any]) -> Codec:
    names = function.__code__.co_freevars
    cells = getattr(function, "__closure__", None) or ()
    known = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            known[name] = cell.cell_contents
        except ValueError:
            continue
    return Codec(type_hints(function, known).get("return", Any))
