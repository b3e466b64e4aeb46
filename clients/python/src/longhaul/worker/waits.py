"""Waits of a function: sleeps, signals, requests and children. One that is not over parks the execution."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Generic, NoReturn, TypeVar

from pydantic import ValidationError

from .errors import ChildFailed, Expired, Interrupted, Parked, ProtocolError, Rejected, StepMismatch
from .journal import Scope
from .jsontext import jsonable, step_key, storable_text
from .run import ENDED, Run, Wait, children_of, is_output_omitted
from .schema import Codec, violations
from .steps import depth_of_waiting

SHORT_SECONDS = 1.0
"""A sleep up to this long is slept here: parking costs more."""
CHILDREN_OF_REQUEST = 100
"""Maximum number of children of one request: the server's."""
BYTES_OF_REQUEST = 128 << 10
"""Size at which a request for children is closed; one child may be larger."""
DECIDED = ("approved", "edited", "replaced", "rejected", "answered", "expired", "closed")

R = TypeVar("R")


@dataclass(frozen=True)
class Decision:
    """A decision for an approval: `approved`, `edited` or `replaced`."""

    state: str
    arguments: Any
    """Arguments that may be used: as they were asked for, or as they were edited."""
    value: Any
    """With `edited` the arguments, with `replaced` the result to use instead of doing it."""
    reason: str | None
    decided_by: str | None


class Handle(Generic[R]):
    """A child of the execution that was started; `await handle.result()` waits for it."""

    def __init__(self, run: Run, name: str, codec: Codec, state: dict[str, Any]) -> None:
        self._run = run
        self._codec = codec
        self.name = name
        self.id: str = state["id"]
        """Id of the child's execution."""
        self.state = state

    @property
    def status(self) -> str:
        """Status as far as it is known."""
        return str(self.state["status"])

    async def result(self) -> R:
        """Its output. Raises `ChildFailed`."""
        await children(self._run, [self])
        return self.value()

    def value(self) -> R:
        """Output of a child that has ended. Raises `ChildFailed`."""
        if self.status != "FINISHED":
            raise ChildFailed(self.name, self.id, self.state.get("failure"))
        try:
            value: R = self._codec.from_json(self.state.get("output"))
        except ValidationError as error:
            raise StepMismatch(self.name, violations(error)) from error
        return value


class Spawner:
    """Starts children: those that are asked for in one round of the event loop by one request."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._batch: deque[tuple[str, str, asyncio.Future[dict[str, Any]]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def start(self, child: dict[str, Any]) -> dict[str, Any]:
        """The child's state."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        text = storable_text(child, f"the input of a child of {self._run.claim.definition}")
        self._batch.append((child["key"], text, future))
        if self._task is None or self._task.done() or len(self._batch) == 1:
            self._task = asyncio.get_running_loop().create_task(self._send())
        return await future

    async def _send(self) -> None:
        while self._batch:
            batch: list[tuple[str, str, asyncio.Future[dict[str, Any]]]] = []
            size = 0
            while self._batch and len(batch) < CHILDREN_OF_REQUEST and size < BYTES_OF_REQUEST:
                batch.append(self._batch.popleft())
                size += len(batch[-1][1])
            try:
                texts = ",".join(text for _, text, _ in batch)
                answer = await self._run.ask("POST", "children", f'"children":[{texts}]')
                by_key = {state.get("key"): state for state in children_of(answer).values()}
                for key, _, future in batch:
                    if key not in by_key:
                        raise ProtocolError("the answer about children lacks one")
                    if not future.done():
                        future.set_result(by_key[key])
            except (Exception, Interrupted, asyncio.CancelledError) as error:  # noqa: BLE001 - who waits raises it
                for _, _, future in batch:
                    if not future.done():
                        future.set_exception(error)


async def park(run: Run, wait: Wait, what: str) -> NoReturn:
    """Unwinds the function with a wait, once nothing that has begun would be cut by that."""
    own = depth_of_waiting(what)
    run.waits.append(wait)
    await run.until_quiet(own)
    run.check()
    raise Parked(f"execution {run.id} waits: {what}")


async def sleep(run: Run, scope: Scope, name: str, duration: float | timedelta | None, until: datetime | None) -> None:
    """Sleeps from the first time that the function came here."""
    run.check()
    if (duration is None) == (until is None):
        raise TypeError("sleep takes either a duration or `until`")
    if until is not None and until.tzinfo is None:
        raise ValueError("`until` needs a time zone")
    seconds = seconds_of(duration) if duration is not None else None
    key = scope.key(f"sleep:{name}", [seconds if until is None else until.isoformat()])
    end = _deadline(run, key, name, seconds, until)
    wake_seq = run.wake_seq
    left = end - run.session.now()
    if left <= 0:
        return
    run.check_begin()
    if left <= SHORT_SECONDS:
        await asyncio.sleep(left)
        run.check()
        return
    await park(run, Wait("sleep", wake_seq, end), f"sleep {name}")


async def signal(run: Run, scope: Scope, name: str, timeout: float | timedelta | None) -> Any:
    """The next signal of this name. Raises `TimeoutError`."""
    run.check()
    key = scope.key(f"signal:{name}", [])
    record = run.journal.find(key)
    if record is not None and record.state == "done":
        return _signal(run, name, record.result)
    end = None
    if timeout is not None:
        end = _deadline(run, step_key("timeout", [key], 0), f"{name} (timeout)", seconds_of(timeout), None)
    run.check_begin()
    wake_seq = run.wake_seq
    lock = run.locks.setdefault(name, asyncio.Lock())
    async with lock:
        answer = await run.ask("GET", "signals", name=name, after=run.signals_seen.get(name, 0))
        found = answer.get("signals")
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise ProtocolError("an answer about signals has no list `signals`")
        if found:
            taken = {"seq": found[0].get("seq"), "payload": found[0].get("payload"), "sent_at": found[0].get("sent_at")}
            if type(taken["seq"]) is not int or taken["seq"] <= run.signals_seen.get(name, 0):
                raise ProtocolError(f"the answer about the signal {name} has one without a number of its own")
            run.record(key, name, "done", None, taken, storable_text(taken, f"signal {name}"))
            return _signal(run, name, taken)
    if end is not None and run.session.now() >= end:
        late = {"timed_out": True}
        run.record(key, name, "done", None, late, storable_text(late, name))
        return _signal(run, name, late)
    await park(run, Wait("signal", wake_seq, end), f"signal {name}")


async def request(run: Run, scope: Scope, body: dict[str, Any]) -> dict[str, Any]:
    """The decided request of a person."""
    run.check()
    kind, name = body["kind"], body["name"]
    content = [body.get("arguments")] if kind == "approval" else [body.get("text"), body.get("schema")]
    key = scope.key(f"{kind}:{name}", content)
    record = run.journal.find(key)
    if record is not None and record.state == "done" and isinstance(record.result, dict):
        return record.result
    run.check_begin()
    await run.barrier()
    wake_seq = run.wake_seq
    asked = storable_text({"key": key, **body}, f"the {kind} {name}")
    answer = await run.ask("POST", "requests", asked[1:-1])
    state = answer.get("state")
    if state == "waiting":
        await park(run, Wait(kind, wake_seq), f"{kind} {name}")
    if state not in DECIDED:
        raise ProtocolError(f"the {kind} {name} has the state {str(state)[:50]}")
    decided = {part: answer.get(part) for part in ("state", "value", "reason", "decided_by")}
    run.record(key, name, "done", None, decided, storable_text(decided, f"{kind} {name}"))
    return decided


def decision_of(name: str, arguments: Any, decided: dict[str, Any]) -> Decision:
    """The decision for an approval. Raises `Rejected` and `Expired`."""
    state, reason, by = decided.get("state"), decided.get("reason"), decided.get("decided_by")
    if state in ("expired", "closed"):
        raise Expired(name)
    if state not in ("approved", "edited", "replaced"):
        raise Rejected(name, reason, by)
    value = decided.get("value")
    return Decision(str(state), value if state == "edited" else arguments, value, reason, by)


def answer_of_question(name: str, decided: dict[str, Any]) -> Any:
    """The answer to a question. Raises `Rejected` and `Expired`."""
    state = decided.get("state")
    if state in ("expired", "closed"):
        raise Expired(name)
    if state == "rejected":
        raise Rejected(name, decided.get("reason"), decided.get("decided_by"))
    return decided.get("value")


async def children(run: Run, waited: Sequence[Handle[Any]]) -> None:
    """Returns when all have ended, and their outputs are here."""
    run.check()
    open_ones = [child for child in waited if child.status not in ENDED or is_output_omitted(child.state)]
    if not open_ones:
        return
    run.check_begin()
    await run.barrier()
    wake_seq = run.wake_seq
    ids = sorted({child.id for child in open_ones})
    states = await run.wait_for_children(ids, until_first=False)
    for child in open_ones:
        child.state = states[child.id]
    still = [child for child in open_ones if child.status not in ENDED]
    if still:
        names = ", ".join(child.name for child in still[:5])
        wait = Wait("children", wake_seq, children=[child.id for child in still])
        await park(run, wait, f"child {names}")


def seconds_of(duration: float | timedelta) -> float:
    """Seconds of a duration."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"a duration is a number of seconds from 0, not {seconds}")
    return seconds


def _deadline(run: Run, key: str, name: str, seconds: float | None, until: datetime | None) -> float:
    """The end of a wait, which is fixed when the function comes to it first."""
    record = run.journal.find(key)
    if record is None:
        if until is None:
            until = datetime.fromtimestamp(run.session.now() + (seconds or 0.0), timezone.utc)
        value = {"until": until.isoformat()}
        run.record(key, name, "done", None, value, storable_text(value, name))
        return until.timestamp()
    try:
        return datetime.fromisoformat(record.result["until"]).timestamp()
    except (TypeError, KeyError, ValueError) as error:
        raise StepMismatch(name, "it is no end of a wait") from error


def _signal(run: Run, name: str, taken: Any) -> Any:
    if isinstance(taken, dict) and taken.get("timed_out") is True:
        raise TimeoutError(f"no signal {name} in time")
    if not isinstance(taken, dict) or type(taken.get("seq")) is not int:
        raise StepMismatch(name, "it is no signal")
    run.signals_seen[name] = max(run.signals_seen.get(name, 0), taken["seq"])
    return taken.get("payload")


def request_body(
    kind: str,
    name: str,
    arguments: Any,
    text: str | None,
    schema: dict[str, Any] | None,
    expires: float | timedelta | None,
) -> dict[str, Any]:
    """Body of a request without its key."""
    body = {
        "kind": kind,
        "name": name,
        "arguments": jsonable(arguments, f"the arguments of {name}"),
        "text": text,
        "schema": schema,
        "expires_seconds": None if expires is None else max(1, math.ceil(seconds_of(expires))),
    }
    return {name: value for name, value in body.items() if value is not None}
