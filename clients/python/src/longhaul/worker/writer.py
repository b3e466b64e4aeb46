"""Writes and ends of all executions of a worker, many in one request.

While a request is under way the next ones gather, so that a busy worker sends few large requests and an idle one sends
each record at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .errors import NotStorable, ProtocolError, RequestRefused
from .run import Run, Write

if TYPE_CHECKING:
    from .session import Session

log = logging.getLogger("longhaul.worker")

ENTRIES_OF_REQUEST = 100
"""Maximum number of entries of one request: the server's."""
BYTES_OF_REQUEST = 4 << 20
"""Size at which a request is closed; one entry may be larger."""
REQUESTS_UNDER_WAY = 2
"""Requests of each kind that may be under way at a time."""
LATEST_SECONDS = 0.005
"""Age at which a record is written that nothing waits for."""

Item = TypeVar("Item")


class Pump(Generic[Item]):
    """Sends entries of one kind in batches."""

    refused_code = "write_refused"
    """Code of an entry for which the server refuses the request."""

    def __init__(self, session: Session, kind: str) -> None:
        self.session = session
        self._kind = kind
        self._waiting: dict[Item, None] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_woken = False

    def put(self, item: Item) -> None:
        """Sends the item with the next request."""
        self._waiting[item] = None
        if not self._is_woken and len(self._under_way) < REQUESTS_UNDER_WAY:
            self._is_woken = True
            # The other executions that are ready in this round of the event loop go with it.
            asyncio.get_running_loop().call_soon(self._pump)

    def close(self) -> None:
        """Stops the requests under way."""
        for task in list(self._under_way):
            task.cancel()

    def compose(self, item: Item) -> str | None:
        """JSON of the entry; None if there is nothing left to send."""
        raise NotImplementedError

    def settle(self, item: Item, result: dict[str, Any]) -> None:
        """Takes the server's answer to the entry."""
        raise NotImplementedError

    def drop(self, item: Item, reason: str) -> None:
        """Gives up the execution of the entry."""
        raise NotImplementedError

    def _pump(self) -> None:
        self._is_woken = False
        while self._waiting and len(self._under_way) < REQUESTS_UNDER_WAY:
            batch: list[tuple[Item, str]] = []
            size = 0
            while self._waiting and len(batch) < ENTRIES_OF_REQUEST and size < BYTES_OF_REQUEST:
                item = next(iter(self._waiting))
                del self._waiting[item]
                text = self.compose(item)
                if text is not None:
                    batch.append((item, text))
                    size += len(text)
            if batch:
                task = asyncio.get_running_loop().create_task(self._send(batch))
                self._under_way.add(task)
                task.add_done_callback(self._is_sent)

    def _is_sent(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.session.fail(error)
        elif self._waiting:
            self._pump()

    async def _send(self, batch: Sequence[tuple[Item, str]]) -> None:
        body = f'{{"{self._kind}":[{",".join(text for _, text in batch)}]}}'
        path = f"{self.session.path}/{self._kind}"
        try:
            answer = await self.session.api.call("POST", path, body, check=lambda found: _results(found, len(batch)))
        except RequestRefused as error:
            if len(batch) > 1:
                # One entry that the server cannot read must not hold up the others.
                middle = len(batch) // 2
                await self._send(batch[:middle])
                await self._send(batch[middle:])
            else:
                refused = {"code": self.refused_code, "detail": str(error)}
                self.settle(batch[0][0], {"error": refused})
            return
        except ProtocolError as error:
            for item, _ in batch:
                self.drop(item, str(error))
            return
        for (item, _), result in zip(batch, answer["results"], strict=True):
            self.settle(item, result)


class Writer(Pump[Run]):
    """Writes of executions under way."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, "writes")
        self._later: dict[Run, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def later(self, run: Run) -> None:
        """The execution has a record that nothing waits for yet."""
        if run.ending:
            return
        self._later[run] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LATEST_SECONDS, self._ripe)

    def now(self, run: Run) -> None:
        """The function waits until its records are stored."""
        self._later.pop(run, None)
        if run.in_flight is None:
            self.put(run)

    def forget(self, run: Run) -> None:
        """The rest goes with the execution's end."""
        self._later.pop(run, None)
        self._waiting.pop(run, None)

    def close(self) -> None:
        super().close()
        if self._timer is not None:
            self._timer.cancel()

    def compose(self, item: Run) -> str | None:
        if item.in_flight is not None or item.is_over or not item.has_records:
            return None
        return item.text_of_write(item.take_write())

    def settle(self, item: Run, result: dict[str, Any]) -> None:
        write = item.in_flight
        if item.is_over or write is None:
            return
        if (error := error_of(result)) is None:
            item.acknowledge(write)
            if type(result.get("wake_seq")) is int:
                item.wake_seq = max(item.wake_seq, result["wake_seq"])
            if result.get("cancel_requested") is True:
                self.session.cancel(item)
        elif error[0] == "write_refused":
            refuse_write(item, write, error[1])
        else:
            self.session.lose(item, error[0])
            return
        if item.has_records:
            (self.put if item.is_waited_for else self.later)(item)

    def drop(self, item: Run, reason: str) -> None:
        self.session.lose(item, reason)

    def _ripe(self) -> None:
        self._timer = None
        later, self._later = self._later, {}
        for run in later:
            # A write under way is followed by another one.
            if run.in_flight is None and run.has_records and not run.ending:
                self.put(run)


@dataclass(eq=False)
class End:
    """The end of a lease."""

    run: Run
    outcome: str
    write: Write | None


class Ender(Pump[End]):
    """Ends of leases."""

    refused_code = "end_refused"

    def __init__(self, session: Session) -> None:
        super().__init__(session, "ends")

    def compose(self, item: End) -> str | None:
        return None if item.run.is_over else item.run.text_of_end(item.write, item.outcome)

    def settle(self, item: End, result: dict[str, Any]) -> None:
        run = item.run
        if run.is_over:
            return
        error = error_of(result)
        if error is None:
            self.session.release(run)
        elif error[0] == "write_refused" and item.write is not None:
            refuse_write(run, item.write, error[1])
            self.session.end_again(run, item.outcome)
        elif error[0] == "end_refused" and item.write is not None:
            # Sent apart from the outcome, it tells which of the two is refused.
            run.put_back(item.write)
            run.one_by_one = True
            self.session.end_again(run, item.outcome)
        elif error[0] == "lease_lost":
            self.session.lose(run, error[0])
        else:
            self.session.end_refused(run, item.outcome, f"{error[0]}: {error[1]}")

    def drop(self, item: End, reason: str) -> None:
        self.session.lose(item.run, reason)


def refuse_write(run: Run, write: Write, reason: str) -> None:
    """Sends the records of a refused write one by one, to find the one that cannot be stored, and names that."""
    if len(write.steps) + len(write.events) > 1:
        run.put_back(write)
        run.one_by_one = True
    elif write.steps:
        log.error("step is refused: execution.id=%s step=%s: %s", run.id, write.names[0], reason)
        run.write_number -= 1
        run.refuse(NotStorable(f"the result of step {write.names[0]}", reason))
    else:
        log.warning("event is refused: execution.id=%s: %s", run.id, reason)
        run.put_back(write)
        run.drop_event()


def error_of(result: dict[str, Any]) -> tuple[str, str] | None:
    """Code and detail of an entry's error."""
    error = result.get("error")
    if error is None:
        return None
    if not isinstance(error, dict):
        return "odd_answer", str(error)[:200]
    return str(error.get("code")), str(error.get("detail") or "")[:1000]


def _results(answer: dict[str, Any], count: int) -> None:
    results = answer.get("results")
    if not isinstance(results, list) or len(results) != count or not all(isinstance(one, dict) for one in results):
        raise ProtocolError(f"the answer has not the {count} results of the {count} entries sent")
