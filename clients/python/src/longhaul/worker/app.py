"""An application: functions that are definitions."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, TypeVar, cast, overload

from typing_extensions import ParamSpec

from .schema import Signature
from .steps import is_async
from .tool import Tool, ToolDecorator, tool
from .waits import seconds_of

if TYPE_CHECKING:
    from ..client import AsyncClient, Client
    from .context import Context
    from .sync_context import SyncContext

P = ParamSpec("P")
R = TypeVar("R")

_KEY = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_KEY_CHARACTERS = 64


@dataclass(frozen=True)
class Retry:
    """Delays in seconds between attempts, by the failure's class; their number is the number of retries.

    A class that is absent keeps the server's delays.
    """

    transient: Sequence[int] | None = None
    tool_error: Sequence[int] | None = None
    llm_error: Sequence[int] | None = None
    jitter: float | None = None
    """Maximum random addition to each delay, as a share of it."""
    max_total: int | None = None
    """Maximum number of retries over all classes."""

    def spec(self) -> dict[str, Any]:
        """As a definition has it."""
        spec: dict[str, Any] = {}
        for name in ("transient", "tool_error", "llm_error"):
            delays = getattr(self, name)
            if delays is not None:
                spec[f"{name}_delays_seconds"] = [_whole_seconds(delay, "a delay") for delay in delays]
        if self.jitter is not None:
            spec["jitter"] = self.jitter
        if self.max_total is not None:
            spec["max_total"] = self.max_total
        return spec


class Task(Generic[P, R]):
    """A function that is a definition. A call of it is a plain call, for tests."""

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        definition: str,
        queue: str | None,
        spec: dict[str, Any],
        localns: Mapping[str, Any] | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.app = app
        self.function = function
        self.definition = definition
        """Key of the definition."""
        self.queue = queue or app.queue
        """Queue of its executions, unless the submit names another one."""
        self.is_async = is_async(function)
        self.signature = Signature(function, definition, localns)
        self._spec = spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function itself, with its context if it takes one."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.definition}>"

    def spec(self) -> dict[str, Any]:
        """The definition, as a registration has it."""
        spec = {"key": self.definition, **self._spec, "input_schema": self.signature.input_schema()}
        output = self.signature.output_schema()
        if output is not None:
            spec["output_schema"] = output
        return spec

    def input_of(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The input, as JSON types, for a call with these arguments, the context left out."""
        return self.signature.input_of(args, kwargs)

    def submit(
        self, *args: Any, client: Client | None = None, submit: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Submits an execution, and returns it.

        Further fields of `Client.submit`, such as `priority`, are named beside the arguments, or in `submit` if the
        function has a parameter of that name.
        """
        return _client(client).submit(**self._request(args, kwargs, submit))

    def run(
        self,
        *args: Any,
        client: Client | None = None,
        submit: Mapping[str, Any] | None = None,
        wait_timeout: float | None = None,
        **kwargs: Any,
    ) -> R:
        """Submits an execution, waits for its end, and returns its output. Raises `ExecutionFailed`."""
        client = _client(client)
        execution = client.submit(**self._request(args, kwargs, submit))
        return self.output_of(client.wait(execution.id, timeout=wait_timeout))

    async def asubmit(
        self, *args: Any, client: AsyncClient | None = None, submit: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """As `submit`."""
        request = self._request(args, kwargs, submit)
        if client is not None:
            return await client.submit(**request)
        async with _new_async_client() as own:
            return await own.submit(**request)

    async def arun(
        self,
        *args: Any,
        client: AsyncClient | None = None,
        submit: Mapping[str, Any] | None = None,
        wait_timeout: float | None = None,
        **kwargs: Any,
    ) -> R:
        """As `run`."""
        request = self._request(args, kwargs, submit)
        if client is None:
            async with _new_async_client() as own:
                execution = await own.submit(**request)
                return self.output_of(await own.wait(execution.id, timeout=wait_timeout))
        execution = await client.submit(**request)
        return self.output_of(await client.wait(execution.id, timeout=wait_timeout))

    def output_of(self, execution: Any) -> R:
        """Output of a FINISHED execution, as the function returned it."""
        output = execution.output
        to_dict = getattr(output, "to_dict", None)
        return cast(R, self.signature.output.from_json(to_dict() if callable(to_dict) else output))

    def _request(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], submit: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        from ..client import SubmitRequest

        fields = {*SubmitRequest.__annotations__, "idempotency_key"} - set(self.signature.names)
        further = {name: kwargs.pop(name) for name in list(kwargs) if name in fields}
        return {
            "queue": self.queue,
            **further,
            **(submit or {}),
            "definition": self.definition,
            "input": self.signature.input_of(args, kwargs),
        }


class TaskDecorator(Protocol):
    """Makes a task of a function, with the types of its parameters and of what it returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class App:
    """A namespace of definitions: the function `charge` of the app `billing` is the definition `billing.charge`."""

    def __init__(self, name: str, *, queue: str = "default") -> None:
        if not _KEY.fullmatch(name):
            raise ValueError(f"the name of an app is of a-z, 0-9, _, - and dots, not {name!r}")
        self.name = name
        self.queue = queue
        """Queue of its tasks that name none."""
        self.tasks: dict[str, Task[Any, Any]] = {}
        """Tasks by the key of their definition."""

    def __repr__(self) -> str:
        return f"<app {self.name}>"

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[Concatenate[SyncContext, P], R], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | int | Sequence[int] | None = None,
        deadline: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
        concurrency: int | Sequence[Mapping[str, Any]] | None = None,
        budget: Mapping[str, Any] | None = None,
        description: str | None = None,
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | int | Sequence[int] | None = None,
        deadline: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
        concurrency: int | Sequence[Mapping[str, Any]] | None = None,
        budget: Mapping[str, Any] | None = None,
        description: str | None = None,
    ) -> Any:
        """Makes a task of a function, as a decorator with or without arguments.

        `name`: the last part of the definition's key; the function's name if absent. `retry`: a `Retry`, the
        delays for the class `transient`, or the maximum number of retries. `deadline`: maximum lifetime, waits
        included. `timeout`: maximum time under a worker, waits excluded. `concurrency`: maximum number of
        executions that run at a time, or limits as a definition has them.
        """
        localns = sys._getframe(1).f_locals

        def make(function: Callable[..., Any]) -> Task[Any, Any]:
            own = name or function.__name__
            key = f"{self.name}.{own}"
            spec: dict[str, Any] = {"name": own.replace("_", " ").capitalize()}
            told = description or inspect.getdoc(function)
            if told:
                spec["description"] = told
            if retry is not None:
                spec["retry"] = _retry_spec(retry)
            if deadline is not None:
                spec["deadline_seconds"] = max(1, _whole_seconds(deadline, "a deadline"))
            if timeout is not None:
                spec["active_timeout_seconds"] = max(1, _whole_seconds(timeout, "a timeout"))
            if isinstance(concurrency, int):
                spec["concurrency"] = [{"key": "definition", "limit": concurrency}]
            elif concurrency is not None:
                spec["concurrency"] = [dict(limit) for limit in concurrency]
            if budget is not None:
                spec["budget"] = dict(budget)
            return self.add(function, key, queue=queue, spec=spec, localns=localns)

        return make if function is None else make(function)

    agent = task

    def add(
        self,
        function: Callable[..., Any],
        key: str,
        *,
        queue: str | None = None,
        spec: Mapping[str, Any] | None = None,
        localns: Mapping[str, Any] | None = None,
    ) -> Task[Any, Any]:
        """Adds a function under a whole key. `spec` has fields of its definition."""
        if not _KEY.fullmatch(key) or len(key) > _KEY_CHARACTERS:
            raise ValueError(
                f"the key of a definition is of a-z, 0-9, _, - and dots, at most {_KEY_CHARACTERS} long, not {key!r}: "
                "give the task a name"
            )
        if key in self.tasks and self.tasks[key].function.__qualname__ != function.__qualname__:
            raise ValueError(f"{key} is the key of two functions: give one of them a name")
        task: Task[Any, Any] = Task(self, function, key, queue, {"name": key, **(spec or {})}, localns)
        self.tasks[key] = task
        return task

    @overload
    def tool(self, function: Callable[P, R], /, *, effect: str = ..., name: str | None = ...) -> Tool[P, R]: ...

    @overload
    def tool(self, /, *, effect: str = ..., name: str | None = ...) -> ToolDecorator: ...

    def tool(
        self, function: Callable[..., Any] | None = None, /, *, effect: str = "side_effect", name: str | None = None
    ) -> Any:
        """Makes a tool of a function: its calls inside an execution are steps with the effect.

        `read_only`, `idempotent` or `side_effect`; the strictest one when absent.
        """
        return tool(function, effect=effect, name=name) if function else tool(effect=effect, name=name)

    def queues(self) -> list[str]:
        """Queues of the app and of its tasks."""
        return list(dict.fromkeys([self.queue, *(task.queue for task in self.tasks.values())]))


def _retry_spec(retry: Retry | int | Sequence[int]) -> dict[str, Any]:
    if isinstance(retry, Retry):
        return retry.spec()
    if isinstance(retry, int):
        return Retry(max_total=int(retry)).spec()
    return Retry(transient=list(retry)).spec()


def _whole_seconds(duration: float | timedelta, what: str) -> int:
    seconds = seconds_of(duration)
    if seconds != int(seconds):
        raise ValueError(f"{what} is a whole number of seconds, not {seconds}")
    return int(seconds)


_shared: list[Any] = []
_lock = threading.Lock()


def _client(client: Client | None) -> Client:
    """The client given, or one of the process with address and key of the environment."""
    if client is not None:
        return client
    with _lock:
        if not _shared:
            from ..client import Client as Own

            _shared.append(Own())
        return cast("Client", _shared[0])


def _new_async_client() -> AsyncClient:
    from ..client import AsyncClient as Own

    # A client belongs to the event loop that it was first used in, so none is kept.
    return Own()
