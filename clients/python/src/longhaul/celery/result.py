"""Results of calls: `AsyncResult`, `GroupResult`, and `EagerResult` of calls that ran here."""

from __future__ import annotations

import time
import uuid as _uuid
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Union
from urllib.parse import quote

from ..errors import NotFound, WaitTimedOut
from . import exceptions
from .exceptions import IncompleteStream, ResultForgotten, TaskRevokedError, Unsupported, rebuild
from .spec import Spec, has_links

if TYPE_CHECKING:
    from .app import Celery

PENDING, STARTED, RETRY = "PENDING", "STARTED", "RETRY"
SUCCESS, FAILURE, REVOKED = "SUCCESS", "FAILURE", "REVOKED"
READY_STATES = frozenset({SUCCESS, FAILURE, REVOKED})

EXPIRED = "task_expired"
"""Failure code of a task that was not begun because it had expired."""
TASK_FAILED = "task_failed"
"""Failure code of a task that raised an exception."""
TIME_LIMIT = "time_limit"
"""Failure code of a task that ran longer than its `time_limit`."""

_ERRORS: dict[str, type[exceptions.CeleryError]] = {
    "cancelled": TaskRevokedError,
    EXPIRED: TaskRevokedError,
    TIME_LIMIT: exceptions.TimeLimitExceeded,
    "deadline_exceeded": exceptions.TimeLimitExceeded,
    "outcome_unknown": exceptions.WorkerLostError,
}

Result = Union["AsyncResult", "GroupResult"]


def failure_info(failure: Any, task_id: str) -> dict[str, Any]:
    """A failure of the API in the form of `describe`, with the id of the task that raised."""
    failure = failure if isinstance(failure, dict) else {}
    detail = failure.get("detail")
    told = detail.get("celery") if isinstance(detail, dict) else None
    if isinstance(told, dict):
        return {"task_id": task_id, **told}
    code = str(failure.get("code") or "unknown")
    summary = str(failure.get("summary") or code)
    if code == TASK_FAILED:
        # Without its detail only the summary tells the class.
        name, _, text = summary.partition(": ")
        return {"task_id": task_id, "exc_type": name, "exc_module": "builtins", "exc_message": [text]}
    known = _ERRORS.get(code)
    info = {"task_id": task_id, "code": code, "exc_message": [summary]}
    if known is not None:
        return {**info, "exc_type": known.__name__, "exc_module": exceptions.__name__}
    return {**info, "exc_type": "TaskError", "exc_module": exceptions.__name__}


class Canvas:
    """The execution of a canvas, shared by the results of its calls."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.execution_id: str | None = None
        self.has_links = has_links(spec)

    @property
    def id(self) -> str:
        """Id of its last call or of its group."""
        return str(self.spec["id"])


class AsyncResult:
    """The result of one call, by the id of its task."""

    def __init__(
        self,
        id: str,
        app: Celery | None = None,
        parent: Result | None = None,
        *,
        execution_id: str | None = None,
        canvas: Canvas | None = None,
    ) -> None:
        from .app import current

        self.id = id
        self.app = app or current()
        self.parent = parent
        self._canvas = canvas
        self._execution_id = execution_id
        self._ended: dict[str, Any] | None = None
        self._callbacks: list[Result] = []
        self._ignored = False

    @property
    def task_id(self) -> str:
        """As `id`."""
        return self.id

    # Finding

    def _find(self) -> dict[str, Any] | None:
        """The execution of the call, of the canvas if that stands for the call, or None if there is none yet."""
        if self._ended is not None:
            return self._ended
        if self._execution_id is None:
            self._locate()
        if self._execution_id is None:
            return None
        return self._keep(self.app.api.request("GET", f"/v1/executions/{quote(self._execution_id, safe='')}"))

    def _keep(self, execution: dict[str, Any]) -> dict[str, Any]:
        if execution["status"] in ("FINISHED", "FAILED"):
            self._ended = execution
        return execution

    def _locate(self) -> None:
        canvas = self._canvas
        if canvas is not None:
            if canvas.execution_id is None:
                return
            if canvas.id == self.id and not canvas.has_links:
                self._execution_id = canvas.execution_id
                return
            found = self.app.api.executions(**{"root": canvas.execution_id, "metadata.task_id": self.id})
            self._execution_id = next((one["id"] for one in found), None)
            return
        if _is_uuid(self.id):
            try:
                self._execution_id = self.app.api.request("GET", f"/v1/executions/{self.id}")["id"]
                return
            except NotFound:
                pass
        # The canvas comes last in the list, as it was made first; it has the id of its last call too.
        ids = [one["id"] for one in self.app.api.executions(**{"metadata.task_id": self.id})]
        if not ids:
            ids = [one["id"] for one in self.app.api.executions(**{"metadata.result_id": self.id})]
        self._execution_id = ids[-1] if ids else None

    def _canvas_end(self) -> dict[str, Any] | None:
        """The canvas, if it has ended without having begun this call."""
        if self._canvas is None or self._canvas.execution_id is None:
            return None
        canvas = self.app.api.request("GET", f"/v1/executions/{self._canvas.execution_id}")
        return canvas if canvas["status"] in ("FINISHED", "FAILED") else None

    # States

    @property
    def state(self) -> str:
        """`PENDING` (also of an unknown id), `STARTED`, `RETRY`, `SUCCESS`, `FAILURE`, `REVOKED`, or one set by the
        task with `update_state`."""
        execution = self._find()
        if execution is None:
            canvas = self._canvas_end()
            return FAILURE if canvas is not None and canvas["status"] == "FAILED" else PENDING
        state = state_of(execution)
        if state == STARTED:
            progress = self._progress()
            return str(progress["state"]) if progress else STARTED
        return state

    @property
    def status(self) -> str:
        """As `state`."""
        return self.state

    def ready(self) -> bool:
        """Whether the task has ended."""
        return self.state in READY_STATES

    def successful(self) -> bool:
        """Whether the task has ended without an exception. Raises `ValueError` if it has not ended."""
        state = self.state
        if state not in READY_STATES:
            raise ValueError(f"task {self.id} has not ended: {state}")
        return state == SUCCESS

    def failed(self) -> bool:
        """Whether the task has ended with an exception."""
        return self.state == FAILURE

    @property
    def result(self) -> Any:
        """The return value; the exception of a task that failed; the `meta` of a state that the task set."""
        execution = self._find()
        if execution is None:
            canvas = self._canvas_end()
            return self._error(canvas) if canvas is not None and canvas["status"] == "FAILED" else None
        if execution["status"] == "FINISHED":
            return self._value(execution)
        if execution["status"] == "FAILED":
            return self._error(execution)
        progress = self._progress()
        return progress.get("meta") if progress else None

    @property
    def info(self) -> Any:
        """As `result`."""
        return self.result

    @property
    def traceback(self) -> str | None:
        """Traceback of the exception, without values of variables."""
        execution = self._find()
        if execution is None or execution["status"] != "FAILED":
            return None
        found = failure_info(execution.get("failure"), self.id).get("traceback")
        return str(found) if found else None

    @property
    def date_done(self) -> datetime | None:
        """Time of the end."""
        execution = self._find()
        finished = execution.get("finished_at") if execution else None
        return _time(str(finished)) if finished else None

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of the execution: `headers` of the call, among others."""
        execution = self._find()
        return dict(execution["metadata"]) if execution else {}

    @property
    def execution_id(self) -> str | None:
        """Id of the execution in the API; None as long as there is none."""
        execution = self._find()
        return str(execution["id"]) if execution else None

    def _progress(self) -> dict[str, Any] | None:
        """The newest state that the task set."""
        after, newest = 0, None
        while True:
            page = self.app.api.request(
                "GET", f"/v1/executions/{self._execution_id}/events", params={"after": after, "limit": 1000}
            )
            for event in page["events"]:
                after = event["seq"]
                data = event.get("data")
                if event["kind"] == "progress" and isinstance(data, dict) and isinstance(data.get("state"), str):
                    newest = data
            if not page["events"] or after >= page["last"]:
                return newest

    # Waiting

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.1,
        on_message: Callable[[dict[str, Any]], Any] | None = None,
        follow_parents: bool = True,
        disable_sync_subtasks: bool = True,
    ) -> Any:
        """Waits for the end, and returns the value or raises the exception of the task.

        `propagate=False` returns the exception. Raises `TimeoutError` after `timeout` seconds. `on_message` is called
        with each state that the task sets, and with the last one. `interval` is the time between two looks as long as
        the call has not begun; `follow_parents` has no effect, as a chain fails as a whole.
        """
        from .task import running

        if disable_sync_subtasks and running() is not None:
            raise RuntimeError(
                "a task does not wait for another one: it would hold a worker. Use a chain or a chord, or ctx.spawn"
            )
        if self._ignored:
            return None
        end = None if timeout is None else time.monotonic() + timeout
        if on_message is not None:
            self._follow(on_message, end)
        execution = self._wait(end, interval)
        failed = execution["status"] == "FAILED"
        if on_message is not None:
            on_message(
                self._message(state_of(execution), self._error(execution) if failed else execution.get("output"))
            )
        if not failed:
            return self._value(execution)
        error = self._error(execution)
        if propagate:
            raise error
        return error

    def wait(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> Any:
        """As `get`."""
        return self.get(timeout, propagate, **options)

    async def aget(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> Any:
        """As `get`, for asyncio: the wait is in a thread."""
        import asyncio

        return await asyncio.to_thread(self.get, timeout, propagate, **options)

    def maybe_throw(self, propagate: bool = True) -> Any:
        """Raises the exception of a task that failed; else as `result`."""
        result = self.result
        if propagate and self.state in (FAILURE, REVOKED):
            raise result
        return result

    def _wait(self, end: float | None, interval: float) -> dict[str, Any]:
        while True:
            if self._find() is not None:
                return self._ended or self._wait_for(end)
            canvas = self._canvas_end()
            if canvas is not None and self._find() is None:
                if canvas["status"] == "FAILED":
                    return canvas
                raise exceptions.TaskError(f"task {self.id} was not run: its canvas ended without it")
            if end is not None and time.monotonic() >= end:
                raise exceptions.TimeoutError(f"task {self.id} has not ended: {self.state}")
            time.sleep(max(0.01, interval))

    def _wait_for(self, end: float | None) -> dict[str, Any]:
        assert self._execution_id is not None
        left = None if end is None else max(0.0, end - time.monotonic())
        try:
            self.app.client.wait(self._execution_id, timeout=left, raise_on_failure=False)
        except WaitTimedOut as error:
            raise exceptions.TimeoutError(f"task {self.id} has not ended: {self.state}") from error
        execution = self._find()
        assert execution is not None
        return execution

    def _follow(self, on_message: Callable[[dict[str, Any]], Any], end: float | None) -> None:
        while self._find() is None and (end is None or time.monotonic() < end):
            time.sleep(0.1)
        if self._execution_id is None:
            return
        for event in self.app.client.events(self._execution_id):
            data = event.data
            if event.kind == "progress" and isinstance(data, dict) and isinstance(data.get("state"), str):
                on_message(self._message(data["state"], data.get("meta")))
            if end is not None and time.monotonic() >= end:
                return

    def _message(self, state: str, result: Any) -> dict[str, Any]:
        return {"task_id": self.id, "status": state, "result": result, "traceback": None, "children": []}

    def _value(self, execution: dict[str, Any]) -> Any:
        if execution.get("erased_at"):
            raise ResultForgotten(f"the result of task {self.id} was erased")
        return execution.get("output")

    def _error(self, execution: dict[str, Any]) -> Exception:
        return rebuild(failure_info(execution.get("failure"), self.id))

    # What belongs to it

    @property
    def children(self) -> list[Result]:
        """Results of its callbacks and, if it has none, of the calls that the task sent."""
        if self._callbacks:
            return list(self._callbacks)
        execution = self._find()
        if execution is None:
            return []
        sent = self.app.api.executions(**{"metadata.parent_id": execution["id"]})
        found = [
            AsyncResult(one["metadata"].get("task_id") or one["id"], self.app, self, execution_id=one["id"])
            for one in sent
        ]
        return list(reversed(found))

    def collect(self, intermediate: bool = False) -> Iterator[tuple[Result, Any]]:
        """This result and those of its callbacks, with their values. Raises `IncompleteStream` if one is not ready."""
        waiting: deque[Result] = deque([self])
        while waiting:
            one = waiting.popleft()
            if not one.ready() and not intermediate:
                raise IncompleteStream(f"task {one.id} has not ended")
            yield one, (one.get() if one.ready() else None)
            waiting.extend(one.children)

    @property
    def graph(self) -> Any:
        """Not supported: raises."""
        raise Unsupported("graph of a result is not supported; use parent, children and collect")

    def revoke(self, terminate: bool = False, **unsupported: Any) -> None:
        """Keeps the task from being run. With `terminate`, also ends it while it runs.

        The result of a chain, chord or group stands for the canvas, which is revoked as a whole.
        """
        for name, value in unsupported.items():
            if not (name == "signal" and value in (None, "SIGTERM")) and value is not None:
                raise Unsupported(f"revoke({name}={value!r}) is not supported")
        execution = self._find()
        if execution is None and self._canvas is not None and self._canvas.execution_id is not None:
            self.app.client.cancel(self._canvas.execution_id)
            return
        if execution is None:
            raise exceptions.NotRegistered(f"task {self.id}")
        is_canvas = self._canvas is not None and execution["id"] == self._canvas.execution_id
        runs = execution["status"] == "IN_PROGRESS" and execution.get("wait_reason") is None and not is_canvas
        if self._ended is None and (terminate or not runs):
            self.app.client.cancel(execution["id"])

    def forget(self) -> None:
        """Erases arguments and result of a task that has ended."""
        execution = self._find()
        if execution is not None:
            self.app.api.request("DELETE", f"/v1/executions/{execution['id']}/content")
            self._ended = None

    def as_tuple(self) -> tuple[Any, Any]:
        """The id, with that of the parent."""
        return (self.id, self.parent and self.parent.as_tuple()), None

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AsyncResult) and other.id == self.id if not isinstance(other, str) else other == self.id
        )

    def __hash__(self) -> int:
        return hash(self.id)


class GroupResult:
    """The results of a group, as one."""

    def __init__(
        self,
        id: str,
        results: list[Result],
        app: Celery | None = None,
        parent: Result | None = None,
        *,
        canvas: Canvas | None = None,
    ) -> None:
        from .app import current

        self.id = id
        self.results = results
        self.app = app or current()
        self.parent = parent
        self._canvas = canvas

    @property
    def children(self) -> list[Result]:
        """The results."""
        return self.results

    def _refresh(self) -> None:
        """Reads the executions of the whole canvas by few requests."""
        if self._canvas is None or self._canvas.execution_id is None:
            return
        waiting = {one.id: one for one in self._flat() if one._ended is None}
        if not waiting:
            return
        for execution in self.app.api.executions(root=self._canvas.execution_id):
            one = waiting.get(execution["metadata"].get("task_id", ""))
            if one is not None:
                one._execution_id = execution["id"]

    def _flat(self) -> list[AsyncResult]:
        flat: list[AsyncResult] = []
        for one in self.results:
            flat.extend(one._flat() if isinstance(one, GroupResult) else [one])
        return flat

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.1,
        callback: Callable[[str, Any], Any] | None = None,
        disable_sync_subtasks: bool = True,
        **options: Any,
    ) -> list[Any]:
        """The values in the order of the calls. Raises the exception of the first call in this order that failed."""
        for name in options:
            raise Unsupported(f"option {name!r} of the get of a group is not supported")
        end = None if timeout is None else time.monotonic() + timeout
        canvas = self._canvas
        if canvas is not None and canvas.id == self.id and canvas.execution_id is not None and not canvas.has_links:
            # One wait for all of them.
            whole = AsyncResult(self.id, self.app, canvas=canvas)
            value = whole.get(timeout, False, interval, disable_sync_subtasks=disable_sync_subtasks)
            if not isinstance(value, Exception) and callback is None:
                return list(value)
        self._refresh()
        values: list[Any] = []
        for one in self.results:
            left = None if end is None else max(0.0, end - time.monotonic())
            value = one.get(left, propagate, interval, disable_sync_subtasks=disable_sync_subtasks)
            if callback is not None:
                callback(one.id, value)
            values.append(value)
        return values

    def join(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> list[Any]:
        """As `get`."""
        return self.get(timeout, propagate, **options)

    def join_native(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> list[Any]:
        """As `get`."""
        return self.get(timeout, propagate, **options)

    async def aget(self, timeout: float | None = None, propagate: bool = True, **options: Any) -> list[Any]:
        """As `get`, for asyncio: the wait is in a thread."""
        import asyncio

        return await asyncio.to_thread(lambda: self.get(timeout, propagate, **options))

    def ready(self) -> bool:
        """Whether all tasks have ended."""
        self._refresh()
        return all(one.ready() for one in self.results)

    def waiting(self) -> bool:
        """Whether a task has not ended."""
        return not self.ready()

    def successful(self) -> bool:
        """Whether all tasks have ended without an exception."""
        self._refresh()
        return all(one.ready() and one.successful() for one in self.results)

    def failed(self) -> bool:
        """Whether a task has failed."""
        self._refresh()
        return any(one.failed() for one in self.results)

    def completed_count(self) -> int:
        """Number of tasks that have ended without an exception."""
        self._refresh()
        return sum(one.ready() and one.successful() for one in self.results)

    def maybe_throw(self, propagate: bool = True) -> None:
        """Raises the exception of a task that failed."""
        for one in self.results:
            one.maybe_throw(propagate)

    def revoke(self, terminate: bool = False, **unsupported: Any) -> None:
        """Revokes all tasks."""
        if self._canvas is not None and self._canvas.id == self.id and self._canvas.execution_id is not None:
            self.app.client.cancel(self._canvas.execution_id)
            return
        for one in self.results:
            one.revoke(terminate, **unsupported)

    def forget(self) -> None:
        """Erases arguments and results of all tasks."""
        for one in self.results:
            one.forget()

    def save(self) -> None:
        """Has no effect: a group is stored when it is sent."""

    @classmethod
    def restore(cls, id: str, app: Celery | None = None) -> GroupResult | None:
        """The result of a group that was sent, by its id; None if there is none."""
        from .app import current

        app = app or current()
        for one in app.api.executions(**{"metadata.result_id": id}):
            execution = app.api.request("GET", f"/v1/executions/{one['id']}")
            canvas = Canvas(execution["input"]["canvas"])
            canvas.execution_id = execution["id"]
            result = results_of(canvas.spec, app, canvas)
            return result if isinstance(result, cls) else None
        return None

    def as_tuple(self) -> tuple[Any, Any]:
        """The id, with those of its parent and its results."""
        return (self.id, self.parent and self.parent.as_tuple()), [one.as_tuple() for one in self.results]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> Result:
        return self.results[index]

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(one.id for one in self.results)}]>"


class EagerResult(AsyncResult):
    """The result of a call that ran in this process."""

    def __init__(
        self, id: str, value: Any, state: str, traceback: str | None = None, app: Celery | None = None
    ) -> None:
        super().__init__(id, app)
        self._value_here = value
        self._state_here = state
        self._traceback_here = traceback

    @property
    def state(self) -> str:
        return self._state_here

    @property
    def result(self) -> Any:
        return self._value_here

    @property
    def traceback(self) -> str | None:
        return self._traceback_here

    @property
    def children(self) -> list[Result]:
        return list(self._callbacks)

    def get(self, timeout: float | None = None, propagate: bool = True, *_: Any, **__: Any) -> Any:
        """The value, or raises the exception."""
        if propagate and self._state_here in (FAILURE, REVOKED):
            raise self._value_here
        return self._value_here

    def revoke(self, terminate: bool = False, **unsupported: Any) -> None:
        """Has no effect: the task has ended."""

    def forget(self) -> None:
        """Has no effect: nothing is stored."""

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"


def state_of(execution: dict[str, Any]) -> str:
    """Celery's name for the state of an execution."""
    status = execution["status"]
    if status == "FINISHED":
        return SUCCESS
    if status == "FAILED":
        code = (execution.get("failure") or {}).get("code")
        return REVOKED if code in ("cancelled", EXPIRED) else FAILURE
    if execution.get("wait_reason") == "retry_backoff":
        return RETRY
    return PENDING if status == "PENDING" else STARTED


def results_of(spec: Spec, app: Celery, canvas: Canvas, parent: Result | None = None) -> Result:
    """The result of a spec, with its parents and callbacks."""
    result: Result
    if "chain" in spec:
        for part in spec["chain"]:
            parent = result = results_of(part, app, canvas, parent)
        return result
    if "group" in spec:
        members = [results_of(part, app, canvas, parent) for part in spec["group"]]
        return GroupResult(spec["id"], members, app, parent, canvas=canvas)
    if "chord" in spec:
        header = results_of(spec["chord"], app, canvas, parent)
        return results_of(spec["body"], app, canvas, header)
    result = AsyncResult(spec["id"], app, parent, canvas=canvas)
    result._callbacks = [results_of(link, app, canvas, result) for link in spec.get("link", [])]
    result._ignored = bool(spec.get("celery", {}).get("ignore_result"))
    return result


def _time(text: str) -> datetime:
    """A time of the API, whose second may have any number of digits after the point."""
    whole, _, fraction = text.replace("Z", "+00:00").removesuffix("+00:00").partition(".")
    microseconds = int(f"{fraction:0<6}"[:6]) if fraction else 0
    return datetime.fromisoformat(f"{whole}+00:00").replace(microsecond=microseconds)


def _is_uuid(text: str) -> bool:
    try:
        _uuid.UUID(text)
    except ValueError:
        return False
    return True
