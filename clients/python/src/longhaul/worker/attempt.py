"""One attempt: the function's call, and its outcome as the protocol has it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import re
from typing import TYPE_CHECKING, Any

from ..errors import LonghaulError
from .claim import next_after_of
from .context import Context, bind
from .errors import (
    Cancelled,
    Draining,
    Failure,
    LeaseLost,
    NotStorable,
    Parked,
    Permanent,
    ProtocolError,
    Transient,
)
from .journal import enter_root_scope
from .jsontext import storable_text, text_of
from .run import Run
from .sync_context import SyncContext

if TYPE_CHECKING:
    from .app import Task

log = logging.getLogger("longhaul.worker")

CANCELLED = '{"type":"cancelled"}'
TIMED_OUT = '{"type":"timed_out"}'
DRAIN = '{"type":"drain"}'
RELEASE = '{"type":"release"}'

_CODE = re.compile(r"[a-zA-Z0-9._-]{1,128}")
_SUMMARY_CHARACTERS = 2000
_DETAIL_BYTES = 60 << 10
"""The server takes 64 KiB."""


async def perform(run: Run) -> None:
    """Runs the function and ends the lease with its outcome."""
    try:
        outcome = await _outcome(run)
    except asyncio.CancelledError:
        outcome = outcome_of_interrupt(run)
    await run.session.end(run, outcome)


def outcome_of_interrupt(run: Run) -> str | None:
    """Outcome of a function that was interrupted; None if its lease is over."""
    if run.is_over:
        return None
    if run.cancel_requested:
        return CANCELLED
    if run.timed_out:
        return TIMED_OUT
    if run.draining:
        return DRAIN
    return failure(Transient("exception", "CancelledError: the function cancelled itself"))


async def _outcome(run: Run) -> str | None:
    if run.cancel_requested:
        return CANCELLED
    task = run.session.worker.task_of(run.claim.definition)
    if task is None:
        log.error("definition is not served here: execution.id=%s definition=%s", run.id, run.claim.definition)
        return RELEASE
    try:
        await _load_journal(run)
        value = await _call(run, task)
        if run.cancel_requested or run.timed_out:
            return outcome_of_interrupt(run)
        text = storable_text(task.signature.output.to_json(value, "the output"), "the output")
        _tell_unasked(run)
        return f'{{"type":"finish","output":{text}}}'
    except Parked:
        await _quiet(run)
        return await _park(run)
    except Draining:
        await _quiet(run)
        return DRAIN
    except (LeaseLost, Cancelled, asyncio.CancelledError):
        return outcome_of_interrupt(run)
    except Failure as error:
        await _quiet(run, run.session.worker.drain_seconds)
        if isinstance(error, Permanent):
            _tell_unasked(run)
        log.info("attempt failed: execution.id=%s code=%s: %s", run.id, error.code, error.summary)
        return failure(error)
    except ProtocolError as error:
        log.error("request has an odd answer: execution.id=%s: %s", run.id, error)
        return failure(Transient("protocol_error", str(error)))
    except GeneratorExit:
        raise
    except BaseException as error:
        # SystemExit too: a function must not end the worker.
        log.warning("attempt raised: execution.id=%s attempt=%d", run.id, run.claim.attempt, exc_info=error)
        await _quiet(run, run.session.worker.drain_seconds)
        after = error.retry_after if isinstance(error, LonghaulError) else None
        return failure(Transient("exception", f"{type(error).__name__}: {error}"), after)


async def _call(run: Run, task: Task[Any, Any]) -> Any:
    args, kwargs = task.signature.arguments_of(run.claim.input)
    scope = enter_root_scope()
    ctx = Context(run, scope)
    if task.is_async:
        bind(ctx)
        if task.signature.takes_context:
            return await task.function(ctx, *args, **kwargs)
        return await task.function(*args, **kwargs)
    run.is_sync = True
    loop = asyncio.get_running_loop()
    sync = SyncContext(ctx, loop)
    context = contextvars.copy_context()
    context.run(bind, sync)
    if task.signature.takes_context:
        args = [sync, *args]
    call = functools.partial(context.run, functools.partial(task.function, *args, **kwargs))
    return await loop.run_in_executor(run.session.worker.threads, call)


async def _quiet(run: Run, seconds: float | None = None) -> None:
    """Waits for the steps that tasks of the function have begun: the next attempt is to know their results."""
    run.has_ended = True
    if run.active > 0:
        try:
            await asyncio.wait_for(run.until_quiet(0), seconds)
        except asyncio.TimeoutError:
            log.error("steps do not end, and are left alone: execution.id=%s", run.id)


async def _load_journal(run: Run) -> None:
    after = run.claim.next_after
    while after is not None:
        answer = await run.ask("GET", "journal", after=after)
        where = f"journal of execution {run.id[:64]}"
        run.journal.load(answer.get("steps"), where)
        after = next_after_of(answer, after, where)


async def _park(run: Run) -> str | None:
    # Records go before the wait: what is parked may go on elsewhere at once.
    wait = run.wait_of_all()
    try:
        if wait.reason == "children" and not await run.waits_for_children():
            wait.until = 0.0
    except (LeaseLost, Cancelled, asyncio.CancelledError):
        return outcome_of_interrupt(run)
    except Failure as error:
        return failure(error)
    except ProtocolError as error:
        return failure(Transient("protocol_error", str(error)))
    seconds = None if wait.until is None else max(0.0, wait.until - run.session.now())
    return text_of({"type": "park", "reason": wait.reason, "seconds": seconds, "wake_seq": wait.wake_seq})


def failure(error: Failure, retry_after: float | None = None) -> str:
    """Outcome of a failure."""
    after = error.retry_after if retry_after is None else retry_after
    outcome: dict[str, Any] = {
        "type": "fail",
        "class": error.failure_class,
        "code": error.code if _CODE.fullmatch(str(error.code)) else "exception",
        "summary": _storable_summary(str(error.summary)),
        "detail": _storable_detail(error.detail),
        "retry_after_seconds": after,
    }
    return text_of(outcome)


def _storable_summary(text: str) -> str:
    text = text.replace("\0", "\\0")[:_SUMMARY_CHARACTERS]
    return text.encode(errors="replace").decode()


def _storable_detail(detail: Any) -> Any:
    try:
        if len(storable_text(detail, "the detail").encode()) <= _DETAIL_BYTES:
            return detail
    except NotStorable:
        pass
    return _storable_summary(repr(detail))


def _tell_unasked(run: Run) -> None:
    """Names the recorded steps that the function no longer asks for."""
    names = run.journal.unasked()
    if names:
        told = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        message = f"recorded steps for which the function did not ask: {told}"
        log.warning("%s: execution.id=%s", message, run.id)
        run.event(text_of({"kind": "log", "data": {"message": message, "level": "warning"}}))
