"""Context of a function without `async`, which runs in a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import uuid
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from typing_extensions import ParamSpec

from . import steps, waits
from .context import Context
from .errors import Cancelled, Failure, LeaseLost
from .model import Model
from .tool import Tool, ToolDecorator, tool
from .waits import Decision, Handle

if TYPE_CHECKING:
    from .app import Task

P = ParamSpec("P")
R = TypeVar("R")


class SyncHandle(Generic[R]):
    """A child that was started; `handle.result()` waits for it."""

    def __init__(self, ctx: SyncContext, handle: Handle[R]) -> None:
        self._ctx = ctx
        self.handle = handle
        self.name = handle.name
        self.id = handle.id
        """Id of the child's execution."""

    @property
    def status(self) -> str:
        """Status as far as it is known."""
        return self.handle.status

    def result(self) -> R:
        """Its output. Raises `ChildFailed`."""
        value: R = self._ctx._call(self.handle.result())
        return value


class SyncContext:
    """Context of one attempt, as `Context`, whose methods return when they are done."""

    def __init__(self, ctx: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._ctx = ctx
        self._loop = loop
        self._run = ctx._run
        self._root = ctx._root
        # One function, one count of its calls: each call below is an asyncio task of its own.
        ctx._scope = lambda: self._root  # type: ignore[method-assign]

    @property
    def execution_id(self) -> str:
        """Id of the execution."""
        return self._ctx.execution_id

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1. Each wake after a wait is an attempt."""
        return self._ctx.attempt

    @property
    def definition(self) -> str:
        """Key of the definition."""
        return self._ctx.definition

    @property
    def queue(self) -> str:
        """Queue of the execution."""
        return self._ctx.queue

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of the submit; empty if the server does not tell it."""
        return self._ctx.metadata

    @property
    def created_at(self) -> datetime | None:
        """Time of the submit."""
        return self._ctx.created_at

    @property
    def deadline_at(self) -> datetime | None:
        """Time at which the execution fails, waits included."""
        return self._ctx.deadline_at

    @property
    def cancelled(self) -> bool:
        """True if the execution is being cancelled or out of time. The next call of the context raises `Cancelled`."""
        return self._ctx.cancelled

    @property
    def idempotency_key(self) -> str:
        """Key of the step under way for a call outside; the same in each attempt."""
        return self._ctx.idempotency_key

    @property
    def model(self) -> Model:
        """Clients for model calls of this execution."""
        if self._ctx._model is None:
            self._ctx._model = Model(self._run, is_async=False)
        return self._ctx._model

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `Context.step`; the function runs in the task's own thread."""
        value: R = self._step(name, function, args, kwargs)
        return value

    def _step(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        effect: str | None = None,
    ) -> Any:
        if isinstance(function, Tool):
            effect, function = function.effect, function.function
        if steps.is_async(function):
            raise TypeError(f"step {name}: a function with async needs a task with async")
        step = self._call(steps.begin(self._run, self._root, name, function, effect, args, kwargs))
        if step.is_done:
            return step.value
        step.outer = steps.current_step.get()
        token = steps.current_step.set(step)
        ended = False
        try:
            value = function(*args, **kwargs)
            ended = True
        except Failure:
            self._call(_do(steps.not_done, step))
            raise
        finally:
            steps.current_step.reset(token)
            if not ended:
                self._loop.call_soon_threadsafe(self._run.end_active)
        return self._call(self._complete(step, value))

    # One call of the event loop for each: a change of threads costs more than the rest of a step.
    async def _complete(self, step: steps.Step, value: Any) -> Any:
        try:
            return steps.complete(step, value)
        finally:
            self._run.end_active()

    @overload
    def tool(self, function: Callable[P, R], /, *, effect: str = ..., name: str | None = ...) -> Tool[P, R]: ...

    @overload
    def tool(self, /, *, effect: str = ..., name: str | None = ...) -> ToolDecorator: ...

    def tool(
        self, function: Callable[..., Any] | None = None, /, *, effect: str = "side_effect", name: str | None = None
    ) -> Any:
        """As `App.tool`, for a function that is made inside the task."""
        return tool(function, effect=effect, name=name) if function else tool(effect=effect, name=name)

    def checkpoint(self) -> None:
        """Returns when the results of all steps so far are stored."""
        self._call(self._ctx.checkpoint())

    def now(self) -> datetime:
        """The time when the function came here first."""
        return self._call(self._ctx.now())

    def random(self) -> float:
        """A recorded random number from 0 to 1."""
        return self._call(self._ctx.random())

    def uuid(self) -> uuid.UUID:
        """A recorded random UUID."""
        return self._call(self._ctx.uuid())

    def sleep(
        self, duration: float | timedelta | None = None, *, until: datetime | None = None, name: str = "sleep"
    ) -> None:
        """As `Context.sleep`."""
        self._call(self._ctx.sleep(duration, until=until, name=name))

    def signal(self, name: str, *, timeout: float | timedelta | None = None) -> Any:
        """As `Context.signal`."""
        return self._call(self._ctx.signal(name, timeout=timeout))

    def approve(
        self,
        name: str,
        arguments: Any = None,
        *,
        text: str | None = None,
        expires: float | timedelta | None = None,
        allow_self: bool = False,
    ) -> Decision:
        """As `Context.approve`."""
        return self._call(self._ctx.approve(name, arguments, text=text, expires=expires, allow_self=allow_self))

    def ask(self, name: str, text: str, *, schema: Any = None, expires: float | timedelta | None = None) -> Any:
        """As `Context.ask`."""
        return self._call(self._ctx.ask(name, text, schema=schema, expires=expires))

    @overload
    def spawn(self, name: str, what: Task[P, R], /, *args: Any, **kwargs: Any) -> SyncHandle[R]: ...

    @overload
    def spawn(self, name: str, what: str, /, *args: Any, **kwargs: Any) -> SyncHandle[Any]: ...

    def spawn(self, name: str, what: Any, /, *args: Any, **kwargs: Any) -> SyncHandle[Any]:
        """As `Context.spawn`."""
        return SyncHandle(self, self._call(self._ctx.spawn(name, what, *args, **kwargs)))

    def gather(self, *handles: SyncHandle[Any]) -> list[Any]:
        """Outputs of children, in their order. Raises `ChildFailed`."""
        self._call(waits.children(self._run, [handle.handle for handle in handles]))
        return [handle.handle.value() for handle in handles]

    def log(self, message: str, *, level: str = "info", **data: Any) -> None:
        """As `Context.log`."""
        self._call(_do(self._ctx.log, message, level=level, **data))

    def progress(self, **data: Any) -> None:
        """As `Context.progress`."""
        self._call(_do(self._ctx.progress, **data))

    def _call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        run = self._run
        try:
            if run.is_over or run.ending:
                raise LeaseLost(f"the lease of execution {run.id} is over")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise
        run.calls.add(future)
        try:
            # A cancel that came before the call was known here finds it by its next look.
            if run.is_over or run.cancel_requested or run.timed_out:
                future.cancel()
            return future.result()
        except concurrent.futures.CancelledError:
            if run.is_over or run.ending:
                raise LeaseLost(f"the lease of execution {run.id} is over") from None
            raise Cancelled(f"execution {run.id} is interrupted") from None
        finally:
            run.calls.discard(future)


async def _do(function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    return function(*args, **kwargs)
