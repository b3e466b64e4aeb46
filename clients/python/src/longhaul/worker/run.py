"""One attempt of one execution: its records on their way to the server, its waits, and the end of it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .claim import Claim
from .errors import Cancelled, Draining, LeaseLost, NotStorable, ProtocolError
from .jsontext import step_key, text_of
from .transport import part

if TYPE_CHECKING:
    from .session import Session

STEPS_OF_WRITE = 500
EVENTS_OF_WRITE = 100
"""Maximum number of each in one write: the server's."""
BYTES_OF_WRITE = 2 << 20
"""Size at which a write is closed; one record may be larger."""
ENDED = ("FINISHED", "FAILED")
"""States of an execution that has ended."""
CHILDREN_OF_WAIT = 100
"""Maximum number of children of one request: the server's."""
WAIT_REASONS = ("children", "approval", "question", "signal", "sleep")
"""Reasons to park; of several the first one is told."""


@dataclass
class Wait:
    """A wait of a function that parks."""

    reason: str
    wake_seq: int
    """The newest that was known before the function looked."""
    until: float | None = None
    """Time in seconds since 1970 at which the wait is over."""
    children: list[str] = field(default_factory=list)
    key: str = ""
    """Key of the wait for children."""


@dataclass(frozen=True)
class Write:
    """One numbered write, whose text never changes once it was sent."""

    number: int
    steps: tuple[str, ...]
    events: tuple[str, ...]
    names: tuple[str, ...]

    def text(self) -> str:
        """Its JSON without the lease."""
        return f'"write":{self.number},"steps":[{",".join(self.steps)}],"events":[{",".join(self.events)}]'


class Run:
    """One attempt. All methods belong to the thread of the event loop."""

    __slots__ = (
        "_events",
        "_lease",
        "_steps",
        "_waiters",
        "acked",
        "active",
        "added",
        "broken",
        "calls",
        "cancel_requested",
        "claim",
        "draining",
        "ending",
        "has_ended",
        "idle",
        "in_flight",
        "is_over",
        "is_sync",
        "journal",
        "locks",
        "one_by_one",
        "quiet",
        "session",
        "signals_seen",
        "task",
        "timed_out",
        "timer",
        "waits",
        "wake_seq",
        "write_number",
    )

    def __init__(self, claim: Claim, session: Session) -> None:
        self.claim = claim
        self.session = session
        self.journal = claim.journal
        self.wake_seq = claim.wake_seq
        self.cancel_requested = claim.cancel_requested
        self.timed_out = False
        self.draining = False
        self.has_ended = False
        """The function ended: tasks that it left behind begin nothing more."""
        self.ending = False
        """Its end is on its way."""
        self.is_over = False
        self.calls: set[concurrent.futures.Future[Any]] = set()
        """Calls of a function in a thread that wait for the event loop."""
        self.is_sync = False
        """True if the function runs in a thread."""
        self.broken: NotStorable | None = None
        """A record that the server refused: nothing after it can be written."""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.write_number = 0
        self.in_flight: Write | None = None
        self.one_by_one = False
        self.added = 0
        self.acked = 0
        self.active = 0
        """Steps whose functions run."""
        self.quiet: asyncio.Event | None = None
        self.idle: asyncio.Future[None] | None = None
        """Set while the end of the attempt waits until no write is under way."""
        self.waits: list[Wait] = []
        self.signals_seen: dict[str, int] = {}
        self.locks: dict[str, asyncio.Lock] = {}
        """One for each name of a signal: two branches take two signals."""
        self._lease = f'"execution":{text_of(claim.id)},"token":{text_of(claim.token)}'
        self._steps: deque[tuple[str, str]] = deque()
        self._events: deque[str] = deque()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def id(self) -> str:
        """Id of the execution."""
        return self.claim.id

    @property
    def path(self) -> str:
        """Path of the execution's own requests."""
        return f"/v1/workers/{part(self.session.worker_id)}/executions/{part(self.claim.id)}"

    # Records.

    def record(
        self,
        key: str,
        name: str,
        state: str,
        effect: str | None,
        result: Any,
        result_text: str,
        *,
        took_ms: float | None = None,
        usage: Any = None,
    ) -> None:
        """Adds a step to those that are to be written; the session writes it within milliseconds."""
        step = self.journal.add(key, name, state, effect, result)
        shown = text_of(name[:200] or "step")
        parts = [f'{{"seq":{step.seq},"key":"{key}","name":{shown},"state":"{state}"']
        parts.append(f',"effect":{text_of(effect)}')
        if state == "done":
            parts.append(f',"result":{result_text}')
            preview = result[:500] if isinstance(result, str) else result_text[:500]
            parts.append(f',"preview":{text_of(preview)}')
        if took_ms is not None:
            parts.append(f',"took_ms":{took_ms:.1f}')
        if usage is not None:
            parts.append(f',"usage":{text_of(usage)}')
        parts.append("}")
        self._steps.append((name, "".join(parts)))
        self.added += 1
        self.session.writer.later(self)

    def event(self, text: str) -> None:
        """Adds an event to those that are to be written."""
        self._events.append(text)
        self.added += 1
        self.session.writer.later(self)

    @property
    def has_records(self) -> bool:
        """True if records wait to be written."""
        return bool(self._steps or self._events)

    @property
    def fits_one_write(self) -> bool:
        """True if what waits fits a last write."""
        if len(self._steps) > STEPS_OF_WRITE or len(self._events) > EVENTS_OF_WRITE:
            return False
        if self.one_by_one:
            return not self.has_records
        return len(self._steps) < 2 or sum(len(text) for _, text in self._steps) <= BYTES_OF_WRITE

    def take_write(self) -> Write:
        """The next write, of what waits. Records are in it in the order in which they were added."""
        steps: list[str] = []
        names: list[str] = []
        events: list[str] = []
        size = 0
        most = 1 if self.one_by_one else STEPS_OF_WRITE
        while self._steps and len(steps) < most and size < BYTES_OF_WRITE:
            name, text = self._steps.popleft()
            steps.append(text)
            names.append(name)
            size += len(text)
        # Alone a refused record can be told from the others.
        while self._events and len(events) < EVENTS_OF_WRITE and not (self.one_by_one and (steps or events)):
            events.append(self._events.popleft())
        self.write_number += 1
        self.in_flight = Write(self.write_number, tuple(steps), tuple(events), tuple(names))
        return self.in_flight

    def put_back(self, write: Write) -> None:
        """Takes back a write that the server refused; its number is free."""
        self._steps.extendleft(reversed(list(zip(write.names, write.steps, strict=True))))
        self._events.extendleft(reversed(write.events))
        self.write_number -= 1
        self.in_flight = None
        self.tell_idle()

    def forget_events(self) -> None:
        """Drops the events that wait."""
        self.acked += len(self._events)
        self._events.clear()

    def drop_event(self) -> None:
        """Drops the oldest event that waits: the server refused it."""
        self._events.popleft()
        self.acked += 1
        self._tell_waiters()

    def text_of_write(self, write: Write) -> str:
        """JSON of an entry of `writes`."""
        return f"{{{self._lease},{write.text()}}}"

    def text_of_end(self, write: Write | None, outcome: str) -> str:
        """JSON of an entry of `ends`."""
        last = "null" if write is None else f"{{{write.text()}}}"
        return f'{{{self._lease},"write":{last},"outcome":{outcome}}}'

    def acknowledge(self, write: Write) -> None:
        """The server stored the write."""
        self.in_flight = None
        self.acked += len(write.steps) + len(write.events)
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.acked:
            future = self._waiters.popleft()[1]
            if not future.done():
                future.set_result(None)
        self.tell_idle()

    async def until_idle(self) -> None:
        """Returns when no write is under way, or the lease is over."""
        if self.in_flight is not None and not self.is_over:
            self.idle = asyncio.get_running_loop().create_future()
            await self.idle

    def tell_idle(self) -> None:
        """Tells that no write is under way."""
        if self.idle is not None and not self.idle.done():
            self.idle.set_result(None)

    async def barrier(self) -> None:
        """Returns when everything that was added is stored: nothing outside may depend on what is not."""
        self.check()
        if self.acked >= self.added:
            return
        stored = self._stored()
        self.session.writer.now(self)
        await stored
        self.check()

    async def until_stored(self) -> None:
        """As `barrier`, at the end of the attempt: returns whatever became of the records."""
        try:
            await self._stored()
        except (LeaseLost, NotStorable):
            pass

    def _stored(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self.added, future))
        return future

    def refuse(self, error: NotStorable) -> None:
        """A record was refused: raised where the function waits for a write, and at its next call."""
        self.broken = error
        self.in_flight = None
        self._steps.clear()
        self.forget_events()
        self.give_up(error)

    def give_up(self, error: BaseException) -> None:
        """Raises the error where the function waits for a write."""
        while self._waiters:
            future = self._waiters.popleft()[1]
            if not future.done():
                future.set_exception(error)
        self.tell_idle()

    @property
    def is_waited_for(self) -> bool:
        """True if the function waits for a write."""
        return bool(self._waiters)

    # State of the attempt.

    def check(self) -> None:
        """Raises what ends the attempt, if anything does."""
        if self.is_over or self.ending:
            raise LeaseLost(f"the lease of execution {self.id} is over")
        if self.broken is not None:
            raise self.broken
        if self.cancel_requested or self.timed_out:
            raise Cancelled(f"execution {self.id} is cancelled") if self.is_sync else asyncio.CancelledError

    def check_begin(self) -> None:
        """As `check`, before something new is begun: a worker that shuts down begins nothing."""
        self.check()
        if self.has_ended:
            raise LeaseLost(f"the function of execution {self.id} has ended, and waits for what it began")
        if self.draining:
            raise Draining(f"the worker of execution {self.id} shuts down")

    def begin_active(self) -> None:
        """A step's function begins."""
        self.active += 1

    def end_active(self) -> None:
        """A step's function ended."""
        self.active -= 1
        if self.active <= 0 and self.quiet is not None:
            self.quiet.set()

    async def until_quiet(self, own: int) -> None:
        """Returns when no step runs besides the `own` ones, whose functions wait here themselves.

        Otherwise a wait that unwinds the function would cut a parallel step that has begun.
        """
        for _ in range(own):
            self.end_active()
        try:
            for _ in range(3):
                while self.active > 0:
                    if self.quiet is None or self.quiet.is_set():
                        self.quiet = asyncio.Event()
                    await self.quiet.wait()
                await asyncio.sleep(0)
        finally:
            self.active += own

    def wait_of_all(self) -> Wait:
        """The one wait to park with, for all branches that wait."""
        order = {reason: place for place, reason in enumerate(WAIT_REASONS)}
        first = min(self.waits, key=lambda wait: order[wait.reason])
        untils = [wait.until for wait in self.waits if wait.until is not None]
        return Wait(
            reason=first.reason,
            wake_seq=min(wait.wake_seq for wait in self.waits),
            until=min(untils) if untils else None,
        )

    async def waits_for_children(self) -> bool:
        """Makes one wait of those for children; whether it is still to be waited for."""
        waits = [wait for wait in self.waits if wait.reason == "children"]
        if len(self.waits) == 1:
            return True
        children = sorted({child for wait in waits for child in wait.children})
        states = await self.wait_for_children(children, until_first=True)
        return not any(state["status"] in ENDED for state in states.values())

    async def wait_for_children(self, children: list[str], *, until_first: bool) -> dict[str, dict[str, Any]]:
        """Makes the wait known, and returns the children as they stand. Their ids are sorted.

        A wait for all has all outputs; one for the first is only about statuses.
        """
        states: dict[str, dict[str, Any]] = {}
        for first in range(0, len(children), CHILDREN_OF_WAIT):
            left = children[first : first + CHILDREN_OF_WAIT]
            while left:
                found = await self._ask_for_children(left, until_first)
                states.update(found)
                omitted = [] if until_first else [id for id in left if is_output_omitted(found[id])]
                # The first output of an answer is always there, so that each answer brings one.
                if len(omitted) == len(left):
                    raise ProtocolError("the answer about children leaves out every output")
                left = omitted
        return states

    async def _ask_for_children(self, children: list[str], until_first: bool) -> dict[str, dict[str, Any]]:
        key = step_key("wait", children, "first" if until_first else "all")
        body = text_of({"key": key, "children": children, "until_first": until_first})
        found = children_of(await self.ask("POST", "children/wait", body[1:-1]))
        if not all(child in found for child in children):
            raise ProtocolError("the answer about children lacks one")
        return found

    async def ask(self, method: str, tail: str, body: str | None = None, **params: Any) -> dict[str, Any]:
        """One of the execution's own requests, with its lease. `body` has the members beside the token."""
        self.check()
        text = None if body is None else f'{{"token":{text_of(self.claim.token)},{body}}}'
        query = {"token": self.claim.token, **params} if body is None else None
        return await self.session.ask(self, method, f"{self.path}/{tail}", text, query)


def is_output_omitted(child: dict[str, Any]) -> bool:
    """True if the child has an output that the answer had no room for."""
    return child["status"] == "FINISHED" and child.get("output_omitted") is True


def children_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The children of an answer by their ids."""
    children = answer.get("children")
    if not isinstance(children, list):
        raise ProtocolError("an answer about children has no list `children`")
    found: dict[str, dict[str, Any]] = {}
    for child in children:
        if not isinstance(child, dict) or not isinstance(child.get("id"), str) or "status" not in child:
            raise ProtocolError("an answer about children has one without id and status")
        found[child["id"]] = child
    return found
