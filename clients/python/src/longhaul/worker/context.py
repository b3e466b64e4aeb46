"""Context of an asynchronous function: what it may ask Longhaul for."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeVar, overload

from typing_extensions import ParamSpec

from . import steps, waits
from .errors import Draining, Failure, Interrupted, LeaseLost, NotStorable
from .journal import Scope, current_scope
from .jsontext import jsonable, text_of
from .model import Model
from .run import Run
from .schema import Codec
from .tool import Tool, ToolDecorator, tool
from .waits import Decision, Handle, Spawner

if TYPE_CHECKING:
    from .app import Task
    from .sync_context import SyncContext

log = logging.getLogger("longhaul.task")

P = ParamSpec("P")
R = TypeVar("R")

_EVENT_CHARACTERS = 4000
_EVENT_BYTES = 16 << 10
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_current: ContextVar[Context | SyncContext | None] = ContextVar("longhaul_context", default=None)


def bind(ctx: Context | SyncContext) -> None:
    """Makes it the context of the function that runs."""
    _current.set(ctx)


def current() -> Context | SyncContext | None:
    """The context of the function that runs; None outside an execution."""
    return _current.get()


class Context:
    """Context of one attempt. `SyncContext` is its twin for functions without `async`."""

    def __init__(self, run: Run, root: Scope) -> None:
        self._run = run
        self._root = root
        self._spawner = Spawner(run)
        self._model: Model | None = None

    # The execution.

    @property
    def execution_id(self) -> str:
        """Id of the execution."""
        return self._run.claim.id

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1. Each wake after a wait is an attempt."""
        return self._run.claim.attempt

    @property
    def definition(self) -> str:
        """Key of the definition."""
        return self._run.claim.definition

    @property
    def queue(self) -> str:
        """Queue of the execution."""
        return self._run.claim.queue

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of the submit; empty if the server does not tell it."""
        return self._run.claim.metadata

    @property
    def created_at(self) -> datetime | None:
        """Time of the submit."""
        return self._run.claim.created_at

    @property
    def deadline_at(self) -> datetime | None:
        """Time at which the execution fails, waits included."""
        return self._run.claim.deadline_at

    @property
    def cancelled(self) -> bool:
        """True if the execution is being cancelled or out of time."""
        return self._run.cancel_requested or self._run.timed_out

    @property
    def idempotency_key(self) -> str:
        """Key of the step under way for a call outside; the same in each attempt."""
        step = steps.current_step.get()
        if step is None:
            raise RuntimeError("idempotency_key belongs to a step: use it inside its function")
        return step.idempotency_key

    @property
    def model(self) -> Model:
        """Clients for model calls of this execution."""
        if self._model is None:
            self._model = Model(self._run, is_async=True)
        return self._model

    # Steps.

    @overload
    async def step(
        self, name: str, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def step(self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function once in the life of the execution, and returns its recorded result after that.

        The step is found again by its name, its arguments and the number of equal calls before. A function without
        `async` runs in a thread. Before a step begins, all results before it are stored.
        """
        return await self._step(name, function, args, kwargs)

    async def _step(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        effect: str | None = None,
    ) -> Any:
        if isinstance(function, Tool):
            effect, function = function.effect, function.function
        step = await steps.begin(self._run, self._scope(), name, function, effect, args, kwargs)
        if step.is_done:
            return step.value
        token = steps.enter(step)
        try:
            if steps.is_async(function):
                value = await function(*args, **kwargs)
            else:
                value = await self._run.session.worker.in_thread(function, args, kwargs)
                if isinstance(value, Awaitable):
                    value = await value
        except Failure:
            steps.not_done(step)
            raise
        finally:
            steps.leave(step, token)
        return steps.complete(step, value)

    @overload
    def tool(self, function: Callable[P, R], /, *, effect: str = ..., name: str | None = ...) -> Tool[P, R]: ...

    @overload
    def tool(self, /, *, effect: str = ..., name: str | None = ...) -> ToolDecorator: ...

    def tool(
        self, function: Callable[..., Any] | None = None, /, *, effect: str = "side_effect", name: str | None = None
    ) -> Any:
        """As `App.tool`, for a function that is made inside the task."""
        return tool(function, effect=effect, name=name) if function else tool(effect=effect, name=name)

    async def checkpoint(self) -> None:
        """Returns when the results of all steps so far are stored."""
        await self._run.barrier()

    async def now(self) -> datetime:
        """The time when the function came here first."""
        run = self._run
        text = steps.recorded(
            run, self._scope(), "now", lambda: datetime.fromtimestamp(run.session.now(), timezone.utc).isoformat()
        )
        return datetime.fromisoformat(text)

    async def random(self) -> float:
        """A recorded random number from 0 to 1."""
        return float(steps.recorded(self._run, self._scope(), "random", random.random))

    async def uuid(self) -> uuid.UUID:
        """A recorded random UUID."""
        return uuid.UUID(steps.recorded(self._run, self._scope(), "uuid", lambda: str(uuid.uuid4())))

    # Waits.

    async def sleep(
        self, duration: float | timedelta | None = None, *, until: datetime | None = None, name: str = "sleep"
    ) -> None:
        """Waits at no cost, counted from the first time that the function came here."""
        await waits.sleep(self._run, self._scope(), name, duration, until)

    async def signal(self, name: str, *, timeout: float | timedelta | None = None) -> Any:
        """Payload of the next signal of this name, sent before or after. Raises `TimeoutError` after `timeout`."""
        return await waits.signal(self._run, self._scope(), name, timeout)

    async def approve(
        self,
        name: str,
        arguments: Any = None,
        *,
        text: str | None = None,
        expires: float | timedelta | None = None,
        allow_self: bool = False,
    ) -> Decision:
        """Waits until a person has approved. Raises `Rejected`, and `Expired` after `expires`, a day when absent.

        `allow_self`: the key that submitted the execution may decide too.
        """
        body = waits.request_body("approval", name, arguments, text, None, expires)
        if allow_self:
            body["allow_self"] = True
        decided = await waits.request(self._run, self._scope(), body)
        return waits.decision_of(name, body.get("arguments"), decided)

    async def ask(
        self,
        name: str,
        text: str,
        *,
        schema: Any = None,
        expires: float | timedelta | None = None,
    ) -> Any:
        """Waits for a person's answer. `schema` is a JSON Schema, or a type that the answer is parsed as."""
        codec = None if schema is None or isinstance(schema, dict) else Codec(schema)
        shown = schema if codec is None else codec.schema("validation")
        body = waits.request_body("question", name, None, text, shown, expires)
        decided = await waits.request(self._run, self._scope(), body)
        answer = waits.answer_of_question(name, decided)
        return answer if codec is None else codec.from_json(answer)

    # Children.

    @overload
    async def spawn(
        self,
        name: str,
        what: Task[P, R],
        /,
        *args: Any,
        agent: bool = False,
        version: int | None = None,
        metadata: dict[str, Any] | None = None,
        deadline: float | timedelta | None = None,
        **kwargs: Any,
    ) -> Handle[R]: ...

    @overload
    async def spawn(
        self,
        name: str,
        what: str,
        /,
        *args: Any,
        agent: bool = False,
        version: int | None = None,
        metadata: dict[str, Any] | None = None,
        deadline: float | timedelta | None = None,
        **kwargs: Any,
    ) -> Handle[Any]: ...

    async def spawn(
        self,
        name: str,
        what: Task[Any, Any] | str,
        /,
        *args: Any,
        agent: bool = False,
        version: int | None = None,
        metadata: dict[str, Any] | None = None,
        deadline: float | timedelta | None = None,
        **kwargs: Any,
    ) -> Handle[Any]:
        """Starts a child in the execution's tree and budget. `what` is a task, or the key of a definition or agent.

        The arguments after it are those of the task; for a key there is one, the input.
        """
        run = self._run
        run.check()
        if isinstance(what, str):
            if len(args) > 1 or kwargs:
                raise TypeError("a child by key takes one input")
            key, codec = what, Codec(Any)
            value = jsonable(args[0] if args else {}, f"the input of child {name}")
        else:
            key, codec, value = what.definition, what.signature.output, what.signature.input_of(args, kwargs)
        body: dict[str, Any] = {
            "key": self._scope().key(f"child:{name}", [key, value]),
            "agent" if agent else "definition": key,
            "input": value,
            "metadata": {} if metadata is None else metadata,
        }
        if version is not None:
            body["version"] = version
        if deadline is not None:
            body["deadline_seconds"] = max(1, round(waits.seconds_of(deadline)))
        run.check_begin()
        await run.barrier()
        state = await self._spawner.start(body)
        return Handle(run, name, codec, state)

    async def gather(self, *branches: Handle[Any] | Awaitable[Any]) -> list[Any]:
        """Results of children and coroutines, in their order. Each is driven until it is done or waits.

        Raises the first error after that.
        """
        loop = asyncio.get_running_loop()
        handles = [branch for branch in branches if isinstance(branch, Handle)]
        others = [asyncio.ensure_future(branch) for branch in branches if not isinstance(branch, Handle)]
        waited = list(others)
        if handles:
            waited.append(loop.create_task(waits.children(self._run, handles)))
        if not waited:
            return []
        try:
            await asyncio.wait(waited)
        except asyncio.CancelledError:
            for task in waited:
                task.cancel()
            await asyncio.gather(*waited, return_exceptions=True)
            raise
        _raise_first(waited)
        results = iter(others)
        return [branch.value() if isinstance(branch, Handle) else next(results).result() for branch in branches]

    # Events.

    def log(self, message: str, *, level: str = "info", **data: Any) -> None:
        """Adds a line to the execution's events and to the worker's log.

        Not while recorded steps are repeated: only the lines after the last recorded step are told by the next attempt
        too.
        """
        if level not in _LEVELS:
            raise ValueError(f"level is one of {', '.join(_LEVELS)}, not {level}")
        run = self._run
        if run.journal.is_replaying or run.is_over or run.ending:
            return
        log.log(_LEVELS[level], "%s", message, extra={"execution_id": run.id})
        shown = str(message)[:_EVENT_CHARACTERS]
        run.event(_event("log", {"message": shown, "level": level, **data}, {"message": shown, "level": level}))

    def progress(self, **data: Any) -> None:
        """Tells how far the execution is, by values of any kind."""
        run = self._run
        if not (run.journal.is_replaying or run.is_over or run.ending):
            run.event(_event("progress", data, {}))

    def _scope(self) -> Scope:
        return current_scope(self._root)


def _raise_first(tasks: list[Any]) -> None:
    """Raises what ends the attempt, else the first error, else a wait."""
    found = [task.exception() if not task.cancelled() else asyncio.CancelledError() for task in tasks]
    errors = [error for error in found if error is not None]
    for kinds in ((LeaseLost, Draining), (Exception, asyncio.CancelledError), (Interrupted,), (BaseException,)):
        for error in errors:
            if isinstance(error, kinds):
                raise error


def _event(kind: str, data: dict[str, Any], shortened: dict[str, Any]) -> str:
    try:
        text = text_of({"kind": kind, "data": jsonable(data, f"the data of {kind}")})
        if len(text.encode()) <= _EVENT_BYTES and "\\u0000" not in text:
            return text
    except (NotStorable, ValueError):
        pass
    # An event is for people: a value that cannot be shown must not end the function.
    plain = {key: str(value).replace("\0", "").encode(errors="replace").decode() for key, value in shortened.items()}
    return text_of({"kind": kind, "data": {**plain, "shortened": True}})
