"""A worker from its registration to its end: claims, attempts, and what becomes of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import attempt
from .claim import Claim, claims_of
from .errors import LeaseLost, NotStorable, ProtocolError, RequestRefused, WorkerDead, WorkerError
from .heartbeat import Heartbeat
from .jsontext import text_of
from .run import Run
from .transport import Api, part, pause_after
from .writer import End, Ender, Writer

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("longhaul.worker")

CLAIM_SECONDS = 20
"""Time that a claim waits for work."""
CLAIM_MAX = 100
"""Executions of one claim: the server's maximum."""
SUSPECTS_MAX = 4
"""Executions of the lane `suspect` that a worker may hold."""
GATHER_SECONDS = 0.003
"""Time in which a busy worker gathers free places before it claims for them."""
RENEW_LEAST_SECONDS = 0.05
"""Least time between two renewals, whatever the server asks for."""
UNWIND_SECONDS = 10.0
"""Time that a cancelled function has to end by itself."""


class Session:
    """One registration of a worker. It ends when the worker is told to stop, or is dead."""

    def __init__(self, worker: Worker, api: Api, registration: dict[str, Any]) -> None:
        self.worker = worker
        self.api = api
        self.worker_id, self.lease_seconds, self.renew_seconds = _registration(registration)
        self.path = f"/v1/workers/{part(self.worker_id)}"
        self.writer = Writer(self)
        self.ender = Ender(self)
        self.runs: dict[str, Run] = {}
        self.is_draining = False
        self._clock_offset = 0.0
        self._free = asyncio.Event()
        self._empty = asyncio.Event()
        self._drain = asyncio.Event()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # An error after the end, such as of a late renewal, has no reader.
        self._over.add_done_callback(lambda over: None if over.cancelled() else over.exception())
        self._tasks: set[asyncio.Task[Any]] = set()
        self.set_clock(registration)

    # Life.

    async def serve(self, stop: asyncio.Event) -> None:
        """Runs executions until `stop` is set or the server says to drain.

        Raises `WorkerDead`, or another `WorkerError` that ends the worker.
        """
        loop = asyncio.get_running_loop()
        heartbeat = Heartbeat(
            self.api.server,
            self.worker_id,
            self.lease_seconds,
            self.renew_seconds,
            self._held,
            lambda answer, held: _from_thread(loop, self._beat, answer, held),
            lambda error: _from_thread(loop, self.fail, error),
        )
        heartbeat.start()
        claims = loop.create_task(self._claim_loop())
        stopped = loop.create_task(_first(stop, self._drain))
        patience = self.worker.unwind_seconds
        try:
            ends: set[asyncio.Future[Any]] = {self._over, claims, stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if claims.done() and not claims.cancelled():
                claims.result()
            if not self._over.done():
                await self._wind_down(claims)
            if self._over.done():
                self._over.result()
        except asyncio.CancelledError:
            patience = 0.0
            raise
        finally:
            heartbeat.stop()
            for task in (claims, stopped):
                task.cancel()
            await asyncio.gather(claims, stopped, return_exceptions=True)
            await self._close(patience)

    async def _wind_down(self, claims: asyncio.Task[None]) -> None:
        self.is_draining = True
        claims.cancel()
        log.info("worker drains: worker=%s executions=%d", self.worker_id, len(self.runs))
        for run in self.runs.values():
            run.draining = True
        if await self._until_empty(self.worker.drain_seconds):
            return await self._sign_off()
        for run in list(self.runs.values()):
            self._interrupt(run)
        if not await self._until_empty(self.worker.unwind_seconds):
            for run in list(self.runs.values()):
                self._abandon(run)
            await self._until_empty(UNWIND_SECONDS)
        await self._sign_off()

    async def _until_empty(self, seconds: float) -> bool:
        if not self.runs:
            return True
        self._empty.clear()
        empty = asyncio.ensure_future(self._empty.wait())
        waited: set[asyncio.Future[Any]] = {empty, self._over}
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        empty.cancel()
        return not self.runs or self._over.done()

    async def _sign_off(self) -> None:
        if self._over.done():
            return
        self._over.set_result(None)
        try:
            await self.api.call("DELETE", self.path, tries=3, timeout=5.0)
        except (WorkerError, RequestRefused, ConnectionError) as error:
            # Its lease runs out, and what it holds runs elsewhere.
            log.warning("worker could not sign off: worker=%s: %s", self.worker_id, error)

    async def _close(self, patience: float) -> None:
        self.writer.close()
        self.ender.close()
        for run in list(self.runs.values()):
            self._drop(run)
        tasks = [task for task in self._tasks if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)

    def fail(self, error: BaseException) -> None:
        """Ends the session with the error."""
        if not self._over.done():
            self._over.set_exception(error)

    # Clock.

    def now(self) -> float:
        """Time in seconds since 1970, by the server's clock where it tells it."""
        return time.time() + self._clock_offset

    def set_clock(self, answer: Mapping[str, Any]) -> None:
        """Takes over the server's clock from an answer that has it."""
        offset = self.worker.clock_offset(answer)
        if offset is not None:
            self._clock_offset = offset

    # Claims.

    async def _claim_loop(self) -> None:
        failed = 0
        while True:
            free = self.worker.concurrency - len(self.runs)
            if free <= 0:
                self._free.clear()
                await self._free.wait()
                continue
            if free < min(CLAIM_MAX, self.worker.concurrency) // 2:
                # A few more places may become free meanwhile: one claim for all of them.
                await asyncio.sleep(GATHER_SECONDS)
                free = self.worker.concurrency - len(self.runs)
            suspects = [run for run in self.runs.values() if run.claim.lane != "normal"]
            alone = any(run.claim.lane == "alone" for run in suspects)
            body = {
                "max": min(free, CLAIM_MAX),
                "wait_seconds": CLAIM_SECONDS,
                "suspects": 0 if alone else max(0, SUSPECTS_MAX - len(suspects)),
                "may_take_alone": not suspects,
            }
            try:
                answer = await self.api.call(
                    "POST", f"{self.path}/claim", text_of(body), timeout=CLAIM_SECONDS + self.api.server.timeout
                )
                claims, odd = claims_of(answer)
            except (ProtocolError, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.server_code != "claim_under_way":
                    log.error("claim is refused: %s", error)
                elif isinstance(error, ProtocolError):
                    log.error("claim has an odd answer: %s", error)
                failed += 1
                await asyncio.sleep(pause_after(failed))
                continue
            for text in odd:
                log.error("claim has an odd execution, which is handed back: %s", text)
            failed = failed + 1 if odd and not claims else 0
            self.set_clock(answer)
            for claim in claims:
                self._begin(claim)
            if failed:
                await asyncio.sleep(pause_after(failed))

    def _begin(self, claim: Claim) -> None:
        run = Run(claim, self)
        if (before := self.runs.get(claim.id)) is not None:
            # The server leased it anew, so the older lease is over: by its end, if that was on its way.
            if before.ending:
                self.release(before)
            else:
                self.lose(before, "claimed anew")
        self.runs[claim.id] = run
        if claim.active_seconds is not None:
            loop = asyncio.get_running_loop()
            run.timer = loop.call_later(max(0.0, claim.active_seconds), self._time_out, run)
        self._spawn(run, attempt.perform(run))

    def _spawn(self, run: Run, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        run.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Renewal.

    def _held(self) -> Mapping[str, str]:
        # Called by the heartbeat's thread: one operation of the interpreter takes the copy.
        return {id: run.claim.token for id, run in list(self.runs.items())}

    def _beat(self, answer: dict[str, Any], held: Mapping[str, str]) -> None:
        self.set_clock(answer)
        for id in _ids(answer, "cancel"):
            if (run := self.runs.get(id)) is not None:
                self.cancel(run)
        for id in _ids(answer, "lost"):
            run = self.runs.get(id)
            # The end of an execution that ends meanwhile tells more than the renewal.
            if run is not None and run.claim.token == held.get(id) and not run.ending:
                self.lose(run, "lease_lost")
        if answer.get("state") == "draining":
            self._drain.set()

    # Ends of attempts.

    def cancel(self, run: Run) -> None:
        """The execution is cancelled: its function gets a while to end."""
        if not run.cancel_requested and not run.ending:
            run.cancel_requested = True
            self._interrupt(run)

    def _time_out(self, run: Run) -> None:
        if not run.ending and not run.is_over:
            run.timed_out = True
            self._interrupt(run)

    def _interrupt(self, run: Run) -> None:
        if run.ending or run.is_over:
            return
        if run.is_sync:
            for call in list(run.calls):
                call.cancel()
        elif run.task is not None:
            run.task.cancel()
        asyncio.get_running_loop().call_later(self.worker.unwind_seconds, self._abandon, run)

    def _abandon(self, run: Run) -> None:
        """Ends an execution whose function does not end."""
        if run.ending or run.is_over:
            return
        log.error("function does not end, and is left alone: execution.id=%s", run.id)
        task = asyncio.get_running_loop().create_task(self.end(run, attempt.outcome_of_interrupt(run)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self, run: Run, outcome: str | None) -> None:
        """Ends the lease with the outcome, and with what is not written yet. None drops it."""
        if run.is_over or run.ending:
            return
        if outcome is None:
            self._drop(run)
            return
        run.ending = True
        if run.timer is not None:
            run.timer.cancel()
        self.writer.forget(run)
        while run.in_flight is not None or not run.fits_one_write:
            if run.in_flight is None:
                self.writer.put(run)
                await run.until_stored()
            else:
                await run.until_idle()
            if run.is_over:
                return
        if run.broken is not None:
            outcome = attempt.failure(run.broken)
        self.ender.put(End(run, outcome, run.take_write() if run.has_records else None))

    def end_again(self, run: Run, outcome: str) -> None:
        """Ends a lease whose last write was refused."""
        run.ending = False
        task = asyncio.get_running_loop().create_task(self.end(run, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end_refused(self, run: Run, outcome: str, reason: str) -> None:
        """The server refuses an outcome: the execution fails, or is handed back if that is refused too."""
        if run.broken is None:
            log.error("outcome is refused: execution.id=%s: %s", run.id, reason)
            run.refuse(NotStorable("the outcome", reason))
            self.end_again(run, outcome)
        else:
            self.lose(run, reason)

    def release(self, run: Run) -> None:
        """The server ended the lease."""
        run.is_over = True
        self._forget(run)

    def lose(self, run: Run, reason: str) -> None:
        """Another worker holds the execution, or the server no longer takes this one's records: drop it."""
        if not run.is_over:
            log.warning("lease is lost: execution.id=%s: %s", run.id, reason)
            self._drop(run)

    def _drop(self, run: Run) -> None:
        run.is_over = True
        self._forget(run)
        run.give_up(LeaseLost(f"the lease of execution {run.id} is over"))
        for call in list(run.calls):
            call.cancel()
        if run.task is not None and not run.is_sync:
            run.task.cancel()

    def _forget(self, run: Run) -> None:
        if run.timer is not None:
            run.timer.cancel()
        self.writer.forget(run)
        if self.runs.get(run.id) is run:
            del self.runs[run.id]
            self._free.set()
        if not self.runs:
            self._empty.set()

    async def ask(
        self, run: Run, method: str, path: str, body: str | None, query: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """A request of an execution. Raises `RequestRefused`, or `LeaseLost` after dropping the execution."""
        try:
            answer = await self.api.call(method, path, body, params=query)
        except WorkerDead as error:
            self.fail(error)
            raise LeaseLost(str(error)) from error
        except RequestRefused as error:
            if error.server_code == "lease_lost":
                self.lose(run, "lease_lost")
                raise LeaseLost(str(error)) from error
            raise
        run.check()
        return answer


def _registration(answer: dict[str, Any]) -> tuple[str, float, float]:
    worker, lease, renew = answer.get("worker"), answer.get("lease_seconds"), answer.get("renew_seconds")
    if not isinstance(worker, str) or not worker:
        raise ProtocolError("the answer to a registration has no text `worker`")
    for name, value in (("lease_seconds", lease), ("renew_seconds", renew)):
        if not isinstance(value, (int, float)) or not 0 < value < 86400:
            raise ProtocolError(f"the answer to a registration has no number of seconds `{name}`")
    assert lease is not None and renew is not None
    return worker, float(lease), max(RENEW_LEAST_SECONDS, min(float(renew), float(lease) / 2))


def _ids(answer: Mapping[str, Any], name: str) -> list[str]:
    found = answer.get(name)
    return [id for id in found if isinstance(id, str)] if isinstance(found, list) else []


def _from_thread(loop: asyncio.AbstractEventLoop, call: Any, *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        # The event loop has been closed, so no session is left.
        pass


async def _first(*events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
