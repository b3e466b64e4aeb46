"""Tasks and canvases as a worker runs them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
import traceback as tracebacks
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import Required, TypedDict

from ..worker.app import App
from ..worker.context import Context, bind
from ..worker.errors import Cancelled, ChildFailed, Failure, Permanent, RetryAfter
from ..worker.jsontext import step_key
from ..worker.sync_context import SyncContext
from .canvas import Signature
from .conf import parse_rate
from .eager import takes_failure
from .exceptions import (
    ChordError,
    Ignore,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
    TimeLimitExceeded,
    describe,
    rebuild,
)
from .result import EXPIRED, TASK_FAILED, TIME_LIMIT, failure_info
from .spec import Spec, freeze
from .task import Replaced, Request, Running, Task, input_of, reset_running, set_running
from .threads import Threads

if TYPE_CHECKING:
    from .app import Celery

log = logging.getLogger("longhaul.celery")

_LONGEST = 2_592_000
"""Seconds: thirty days, the longest time that an execution may run."""
_SLACK = 30
"""Seconds of a definition's limit beyond that of its tries, which the worker enforces itself."""
_SUMMARY = 500
_RETRY_STEP = "retry {}"
_REPLACE_STEP = "replace"

_PACKAGE = os.path.dirname(__file__)

_threads = Threads()


class TaskCall(TypedDict, total=False):
    """Input of a task."""

    args: list[Any]
    kwargs: dict[str, Any]
    celery: dict[str, Any]
    """Options of the call that concern the worker."""


class CanvasCall(TypedDict, total=False):
    """Input of a canvas."""

    canvas: Required[dict[str, Any]]
    args: list[Any] | None
    """Arguments that come first: the result of an earlier call."""
    celery: dict[str, Any]


def app_of(app: Celery) -> App:
    """The app for `longhaul.Worker`."""
    app.finalize()
    made = App(app.canvas_definition.rpartition(".")[0], queue=app.conf.task_default_queue)
    for task in app.tasks.values():
        made.add(_function_of(task), task.name, queue=app.route(task.name, task, {})["queue"], spec=_spec_of(task))

    async def canvas(ctx: Context, call: CanvasCall) -> Any:
        return await run_canvas(app, ctx, cast(Spec, call))

    made.add(canvas, app.canvas_definition, spec=_common(app, "Canvas", "Chains, groups and chords of the app"))
    return made


def _function_of(task: Task) -> Callable[..., Any]:
    async def run(ctx: Context, call: TaskCall) -> Any:
        return await run_task(task, ctx, cast(Spec, call))

    # The worker names its build by the modules of its functions.
    run.__module__ = task.__module__
    run.__qualname__ = task.name
    return run


def _spec_of(task: Task) -> dict[str, Any]:
    """The definition of a task. Its retries have no delay of their own: the worker names each."""
    spec = _common(task.app, task.name, task.description or inspect.getdoc(task.run))
    most = task.policy_retries
    spec["retry"] = {"transient_delays_seconds": [0] * most, "max_total": most}
    if task.time_limit:
        spec["active_timeout_seconds"] = min(_LONGEST, int(task.time_limit * (most + 1)) + _SLACK)
    if task.deadline:
        spec["deadline_seconds"] = max(1, int(task.deadline))
    if task.concurrency is not None:
        limit = task.concurrency
        spec["concurrency"] = [{"key": "definition", "limit": limit}] if isinstance(limit, int) else limit
    if task.budget is not None:
        spec["budget"] = task.budget
    return spec


def _common(app: Celery, name: str, description: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": name, "active_timeout_seconds": _LONGEST}
    if description:
        spec["description"] = description
    return spec


class _Rate:
    """Starts of a task in this process, evenly spaced."""

    def __init__(self) -> None:
        self._next = 0.0

    def reserve(self, interval: float) -> float:
        """Seconds until the start that is taken now."""
        now = time.monotonic()
        start = max(now, self._next)
        self._next = start + interval
        return start - now


_rates: dict[tuple[str, str], _Rate] = {}


async def run_task(task: Task, ctx: Context, call: dict[str, Any]) -> Any:
    """One try of a task."""
    meta = call.get("celery") or {}
    retries = 0
    while ctx._run.journal.find(step_key(_RETRY_STEP.format(retries + 1), [], 0)) is not None:
        retries += 1
    request = _request(task, ctx, call, meta, retries)
    if retries == 0 and ctx.attempt == 1:
        _check_expiry(task, meta, ctx.created_at)
    if retries == 0 and (interval := parse_rate(task.rate_limit)) is not None:
        rate = _rates.setdefault((task.app.main, task.name), _Rate())
        await ctx.sleep(rate.reserve(interval), name="rate limit")
    one = Running(task, request, ctx, errback=meta.get("errback"))
    replaced = ctx._run.journal.find(step_key(_REPLACE_STEP, [], 0))
    if replaced is not None:
        # The function has ended by this: it does not run again when the canvas goes on.
        ended = {"replaced": replaced.result}
    elif task.acks_late is False:
        # The intent is recorded before the function begins. If the worker dies, the next attempt finds the intent
        # without a result, and does not begin the function again.
        guarded = ctx.tool(effect="side_effect", name=f"run {retries + 1}")(partial(_try, one))
        ended = await guarded()
    else:
        ended = await _try(one)
    if "replaced" in ended:
        spec = await ctx.step(_REPLACE_STEP, partial(_same, ended["replaced"]))
        value = await _Canvas(task.app, ctx).whole(spec)
    else:
        value = ended["value"]
    ignored = meta.get("ignore_result", task.ignore_result)
    return None if ignored else value


def _same(value: Any) -> Any:
    return value


def _request(task: Task, ctx: Context, call: dict[str, Any], meta: dict[str, Any], retries: int) -> Request:
    metadata = ctx.metadata
    return Request(
        id=meta.get("id") or metadata.get("task_id") or ctx.execution_id,
        task=task.name,
        args=list(call.get("args") or []),
        kwargs=dict(call.get("kwargs") or {}),
        retries=retries,
        headers=dict(meta.get("headers") or metadata.get("headers") or {}),
        expires=meta.get("expires"),
        parent_id=metadata.get("parent_id"),
        root_id=ctx._run.claim.root,
        group=meta.get("group"),
        queue=ctx.queue,
        called_directly=False,
        timelimit=(meta.get("time_limit", task.time_limit), meta.get("soft_time_limit", task.soft_time_limit)),
        execution_id=ctx.execution_id,
    )


def _check_expiry(task: Task, meta: dict[str, Any], created_at: datetime | None) -> None:
    """Fails a task that is begun too late. One that has begun runs to its end."""
    expires = datetime.fromisoformat(meta["expires"]) if meta.get("expires") else None
    if meta.get("expires_after") is not None and created_at is not None:
        # Of a periodic task: its time is that of the tick.
        expires = created_at + timedelta(seconds=meta["expires_after"])
    if expires is not None and expires <= datetime.now(timezone.utc):
        raise Permanent(EXPIRED, f"{task.name} had expired at {expires.isoformat()} before it began")


async def _try(one: Running) -> dict[str, Any]:
    """Runs the function, and turns what it raises into a retry or a failure of the execution.

    The result has the function's `value`, or the canvas that is `replaced`.
    """
    task, ctx, request = one.task, one.ctx, one.request
    hard, soft = request.timelimit
    token = set_running(one)
    try:
        args, kwargs = _arguments(task, request, one)
        if task.is_async:
            one.report = lambda state: ctx.progress(**state)
            outcome = await _limited_coroutine(_body_async(one, args, kwargs), hard, soft)
        else:
            one.sync_ctx = SyncContext(ctx, asyncio.get_running_loop())
            one.report = lambda state: one.sync_ctx.progress(**state)
            outcome = await _limited_thread(ctx, partial(_body, one, args, kwargs), hard, soft)
    finally:
        reset_running(token)
    return await _conclude(one, outcome)


def _arguments(task: Task, request: Request, one: Running) -> tuple[list[Any], dict[str, Any]]:
    info = one.errback
    if info is None:
        return request.args, request.kwargs
    if not takes_failure(task):
        return [info["task_id"], *request.args], request.kwargs
    failed = Request(
        id=info["task_id"],
        task=str(info.get("task") or ""),
        args=list(info.get("args") or []),
        kwargs=dict(info.get("kwargs") or {}),
        called_directly=False,
    )
    return [failed, rebuild(info), info.get("traceback")], {}


@dataclass
class _Outcome:
    """How a try ended."""

    value: Any = None
    error: BaseException | None = None
    retry: Retry | None = None
    traceback: str | None = None
    replaced: Signature | None = None


def _body(one: Running, args: list[Any], kwargs: dict[str, Any]) -> _Outcome:
    """A try with its handlers, in a thread."""
    task, request = one.task, one.request
    bind(one.sync_ctx)
    try:
        task.before_start(request.id, args, kwargs)
        outcome = _Outcome(value=task._call(args, kwargs))
    except Exception as error:  # noqa: BLE001
        outcome = _outcome_of(one, error)
    return _handled(one, outcome, args, kwargs)


async def _body_async(one: Running, args: list[Any], kwargs: dict[str, Any]) -> _Outcome:
    """As `_body`, of an async function."""
    task, request = one.task, one.request
    try:
        task.before_start(request.id, args, kwargs)
        outcome = _Outcome(value=await task._call(args, kwargs))
    except Exception as error:  # noqa: BLE001
        outcome = _outcome_of(one, error)
    return _handled(one, outcome, args, kwargs)


def _outcome_of(one: Running, error: Exception) -> _Outcome:
    """What becomes of an exception. Those of the worker's context pass: it knows how to end with them."""
    task, request = one.task, one.request
    if isinstance(error, Failure):
        raise error
    if isinstance(error, Ignore):
        return _Outcome()
    if isinstance(error, Replaced):
        return _Outcome(replaced=error.call)
    told = _traceback(error)
    if isinstance(error, Retry):
        return _Outcome(error=error.exc or error, retry=error, traceback=told)
    if isinstance(error, Reject):
        retry = Retry("requeued") if error.requeue and request.retries < task.policy_retries else None
        return _Outcome(error=error, retry=retry, traceback=told)
    return _Outcome(error=error, retry=task.retry_for(error, request.retries), traceback=told)


def _handled(one: Running, outcome: _Outcome, args: list[Any], kwargs: dict[str, Any]) -> _Outcome:
    """Calls the handlers of the task's class."""
    task, id = one.task, one.request.id
    if outcome.replaced is not None:
        return outcome
    if outcome.retry is not None:
        task.on_retry(outcome.error, id, args, kwargs, outcome.traceback)
        task.after_return("RETRY", outcome.retry, id, args, kwargs, outcome.traceback)
    elif outcome.error is not None:
        task.on_failure(outcome.error, id, args, kwargs, outcome.traceback)
        task.after_return("FAILURE", outcome.error, id, args, kwargs, outcome.traceback)
    else:
        task.on_success(outcome.value, id, args, kwargs)
        task.after_return("SUCCESS", outcome.value, id, args, kwargs, None)
    return outcome


async def _limited_thread(
    ctx: Context, function: Callable[[], _Outcome], hard: float | None, soft: float | None
) -> _Outcome:
    """Runs the function in a thread. At the soft limit an exception is raised in it; at the hard one it is left."""
    job, future = _threads.start(function)
    loop = asyncio.get_running_loop()
    timer = loop.call_later(soft, job.interrupt, SoftTimeLimitExceeded) if soft else None
    try:
        await asyncio.wait([future], timeout=hard)
    except BaseException:
        # The execution is cancelled. A call of the context in which the thread waits ends first.
        for call in list(ctx._run.calls):
            call.cancel()
        job.interrupt(Cancelled)
        future.cancel()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if not future.done():
        job.interrupt(Cancelled)
        future.cancel()
        return _Outcome(error=TimeLimitExceeded(f"{hard:g} seconds"))
    return cast(_Outcome, future.result())


async def _limited_coroutine(body: Awaitable[_Outcome], hard: float | None, soft: float | None) -> _Outcome:
    """Runs an async function. At the soft limit it is cancelled, and may clean up until the hard one."""
    if hard is None and soft is None:
        return await body
    work = asyncio.ensure_future(body)
    try:
        if soft is not None:
            await asyncio.wait([work], timeout=soft)
            if work.done():
                return work.result()
            work.cancel()
            await asyncio.wait([work], timeout=None if hard is None else max(0.0, hard - soft))
            if work.done() and not work.cancelled():
                return work.result()
            if work.done():
                return _Outcome(error=SoftTimeLimitExceeded())
        else:
            await asyncio.wait([work], timeout=hard)
            if work.done():
                return work.result()
        return _Outcome(error=TimeLimitExceeded(f"{hard:g} seconds"))
    finally:
        if not work.done():
            work.cancel()


async def _conclude(one: Running, outcome: _Outcome) -> dict[str, Any]:
    task, ctx, request = one.task, one.ctx, one.request
    if outcome.replaced is not None:
        return {"replaced": freeze(task.app, outcome.replaced, None)}
    error = outcome.error
    if error is None:
        return {"value": outcome.value}
    if outcome.retry is not None:
        log.info("task is to be tried again: task=%s id=%s: %s: %r", task.name, request.id, outcome.retry, error)
        # The record counts the retries: attempts after the death of a worker are none.
        await ctx.step(_RETRY_STEP.format(request.retries + 1), _nothing)
        raise RetryAfter(outcome.retry.countdown, "retry", _summary(error), {"celery": describe(error)})
    level = logging.INFO if isinstance(error, task.throws) else logging.ERROR
    log.log(level, "task failed: task=%s id=%s: %r\n%s", task.name, request.id, error, outcome.traceback or "")
    code = TIME_LIMIT if isinstance(error, TimeLimitExceeded) else TASK_FAILED
    raise Permanent(code, _summary(error), {"celery": describe(error, outcome.traceback)})


def _nothing() -> None:
    """Result of a step that only counts."""


def _traceback(error: BaseException) -> str:
    """Text of the traceback, from the first line of code that is not of this package."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return "".join(tracebacks.format_exception(type(error), error, frames or error.__traceback__))


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_SUMMARY]


class _NodeFailed(Exception):
    """A call of a canvas failed."""

    def __init__(self, info: dict[str, Any]) -> None:
        super().__init__(info.get("exc_type"))
        self.info = info


class _Canvas:
    """A canvas as an execution: each call is a child, found again by its id after a crash."""

    def __init__(self, app: Celery, ctx: Context) -> None:
        self._app = app
        self._ctx = ctx
        self._callbacks: list[Any] = []

    async def whole(self, spec: Spec, args: list[Any] | None = None) -> Any:
        """The result of the canvas, when its callbacks have ended too: the end of an execution cancels its children."""
        try:
            value = await self._run(spec, args)
            failed = None
        except _NodeFailed as error:
            value, failed = None, error
        await self._ctx.gather(*[_ended(handle) for handle in self._callbacks])
        if failed is None:
            return value
        info = failed.info
        text = ", ".join(str(part) for part in info.get("exc_message") or [])
        raise Permanent(TASK_FAILED, f"{info.get('exc_type')}: {text}"[:_SUMMARY], {"celery": info})

    async def _run(self, spec: Spec, args: list[Any] | None) -> Any:
        if "chain" in spec:
            for part in spec["chain"]:
                args = [value := await self._run(part, args)]
            return value
        if "group" in spec:
            return await self._all(spec["group"], args)
        if "chord" in spec:
            try:
                results = await self._all(spec["chord"]["group"], args)
            except _NodeFailed as failed:
                inner = failed.info
                text = f"Dependency {inner['task_id']} raised {rebuild(inner)!r}"
                info = {**describe(ChordError(text)), "task_id": _last(spec["body"])["id"]}
                await self._errbacks(_last(spec["body"]), info)
                raise _NodeFailed(info) from None
            return await self._run(spec["body"], [results])
        return await self._leaf(spec, args)

    async def _all(self, members: list[Spec], args: list[Any] | None) -> list[Any]:
        """Results of calls at the same time. One that fails leaves the others running."""
        outcomes = await self._ctx.gather(*[self._outcome(member, args) for member in members])
        for outcome in outcomes:
            if isinstance(outcome, _NodeFailed):
                raise outcome
        return list(outcomes)

    async def _outcome(self, spec: Spec, args: list[Any] | None) -> Any:
        try:
            return await self._run(spec, args)
        except _NodeFailed as failed:
            return failed

    async def _leaf(self, spec: Spec, args: list[Any] | None) -> Any:
        if spec.get("countdown"):
            await self._ctx.sleep(spec["countdown"], name=f"countdown {spec['id']}")
        if spec.get("run_at"):
            await self._ctx.sleep(until=datetime.fromisoformat(spec["run_at"]), name=f"eta {spec['id']}")
        handle = await self._spawn(spec, args)
        try:
            value = await handle.result()
        except ChildFailed:
            info = failure_info(handle.state.get("failure"), spec["id"])
            info.update(task=spec.get("task") or spec["map"], args=spec.get("args"), kwargs=spec.get("kwargs"))
            await self._errbacks(spec, info)
            raise _NodeFailed(info) from None
        for link in spec.get("link", []):
            await self._callback(link, [value])
        return value

    async def _callback(self, spec: Spec, args: list[Any]) -> None:
        """Begins a callback without waiting for it. One with calls of its own is a canvas of its own."""
        simple = "task" in spec and not any(spec.get(name) for name in ("link", "link_error", "countdown", "run_at"))
        if simple:
            self._callbacks.append(await self._spawn(spec, args))
            return
        call = {"canvas": spec, "args": args}
        metadata = {"result_id": spec["id"]}
        name = f"{self._app.canvas_definition} {spec['id']}"
        self._callbacks.append(await self._ctx.spawn(name, self._app.canvas_definition, call, metadata=metadata))

    async def _errbacks(self, spec: Spec, info: dict[str, Any]) -> None:
        for errback in spec.get("link_error", []):
            handle = await self._spawn({**errback, "celery": {**errback.get("celery", {}), "errback": info}}, None)
            self._callbacks.append(handle)

    async def _spawn(self, spec: Spec, args: list[Any] | None) -> Any:
        metadata: dict[str, Any] = {"task_id": spec["id"]}
        if spec.get("headers"):
            metadata["headers"] = spec["headers"]
        if "map" in spec:
            name, definition = f"{spec['map']} {spec['id']}", self._app.canvas_definition
            call: Spec = {"canvas": {key: spec[key] for key in ("id", "map", "star", "it")}}
        else:
            name, definition = f"{spec['task']} {spec['id']}", spec["task"]
            more = [] if spec.get("immutable") else list(args or [])
            call = input_of([*more, *spec["args"]], spec["kwargs"], {**spec.get("celery", {}), "id": spec["id"]})
        return await self._ctx.spawn(name, definition, call, metadata=metadata)


async def run_canvas(app: Celery, ctx: Context, call: dict[str, Any]) -> Any:
    """One attempt of a canvas."""
    meta = call.get("celery") or {}
    spec = call["canvas"]
    if ctx.attempt == 1 and meta.get("expires"):
        expires = datetime.fromisoformat(meta["expires"])
        if expires <= datetime.now(timezone.utc):
            raise Permanent(EXPIRED, f"the canvas had expired at {meta['expires']} before it began")
    try:
        if "map" in spec:
            return await _run_map(app, ctx, spec)
        return await _Canvas(app, ctx).whole(spec, call.get("args"))
    except (AttributeError, KeyError, TypeError) as error:
        # The input may come from any caller of the API; no attempt would succeed.
        raise Permanent("invalid_canvas", f"the canvas is malformed: {_summary(error)}") from error


async def _run_map(app: Celery, ctx: Context, spec: Spec) -> list[Any]:
    """Calls the function of a task for each item. Each call is a step, so that a crash repeats none that is done."""
    task = app.task_named(spec["map"])
    values = []
    for item in spec["it"]:
        args = list(item) if spec["star"] else [item]
        step = partial(_map_item, task, ctx, str(spec["id"]))
        values.append(await ctx.step(str(task.name), step, args))
    return values


async def _map_item(task: Task, ctx: Context, id: str, args: list[Any]) -> Any:
    request = Request(id=id, task=task.name, args=args, called_directly=False, execution_id=ctx.execution_id)
    one = Running(task, request, ctx)
    token = set_running(one)
    try:
        if task.is_async:
            return await task._call(args, {})
        one.sync_ctx = SyncContext(ctx, asyncio.get_running_loop())
        _, future = _threads.start(partial(_call_bound, one, args))
        return await future
    except Failure:
        raise
    except Exception as error:
        told = _traceback(error)
        raise Permanent(TASK_FAILED, _summary(error), {"celery": describe(error, told)}) from error
    finally:
        reset_running(token)


def _call_bound(one: Running, args: list[Any]) -> Any:
    bind(one.sync_ctx)
    return one.task._call(args, {})


async def _ended(handle: Any) -> None:
    """Waits for the end of a callback, whatever it is."""
    try:
        await handle.result()
    except ChildFailed:
        pass


def _last(spec: Spec) -> Spec:
    """The call that ends a canvas."""
    while "chain" in spec or "body" in spec:
        spec = spec["body"] if "body" in spec else spec["chain"][-1]
    return spec
