"""Tasks: options of `@app.task`, calls, and the request that a running task sees."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NoReturn

from . import canvas
from .conf import check_priority, check_queue, check_rate, check_seconds
from .exceptions import ImproperlyConfigured, MaxRetriesExceededError, OperationalError, Retry, Unsupported
from .spec import Spec, aware

if TYPE_CHECKING:
    from .app import Celery
    from .result import AsyncResult, EagerResult

log = logging.getLogger("longhaul.celery")

KEY = re.compile(r"\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")
"""Keys of definitions: the names of tasks."""
MAX_RETRIES = 1_000
"""Retries of a task with `max_retries=None`."""
_RETRIES_OF_BOUND = 100
"""Retries that the definition of a bound task allows at least, as `self.retry` may name more than the task."""
_LONGEST_DELAY = 86_400
"""Seconds: the longest delay that the server keeps."""


def _flag(where: str, value: Any) -> None:
    if not isinstance(value, bool) and value is not None:
        raise ImproperlyConfigured(f"{where} must be True or False, not {value!r}")


def _only(allowed: Any, reason: str) -> Callable[[str, Any], None]:
    def check(where: str, value: Any) -> None:
        if value is not None and value != allowed:
            raise Unsupported(f"{where} can only be {allowed!r}: {reason}")

    return check


def _classes(where: str, value: Any) -> None:
    found = value if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in found):
        raise ImproperlyConfigured(f"{where} must be a tuple of classes of exceptions")


def _retries(where: str, value: Any) -> None:
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_RETRIES):
        raise ImproperlyConfigured(f"{where} must be a number from 0 to {MAX_RETRIES}, or None for {MAX_RETRIES}")


def _delay(where: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LONGEST_DELAY:
        raise ImproperlyConfigured(f"{where} must be a number of seconds, at most a day")


def _backoff(where: str, value: Any) -> None:
    if value is not None and not isinstance(value, bool) and (not isinstance(value, (int, float)) or value < 0):
        raise ImproperlyConfigured(f"{where} must be True, False or a number of seconds")


def _retry_kwargs(where: str, value: Any) -> None:
    for name in value or {}:
        if name not in ("max_retries", "countdown"):
            raise Unsupported(f"{where}: {name!r} is not supported; max_retries and countdown are")


def _expires(where: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
        raise Unsupported(f"{where} can only be a number of seconds")


_OPTIONS: dict[str, tuple[Any, Callable[[str, Any], None]]] = {
    "max_retries": (3, _retries),
    "default_retry_delay": (180, _delay),
    "autoretry_for": ((), _classes),
    "dont_autoretry_for": ((), _classes),
    "retry_kwargs": ({}, _retry_kwargs),
    "retry_backoff": (False, _backoff),
    "retry_backoff_max": (600, _delay),
    "retry_jitter": (True, _flag),
    "acks_late": (None, _flag),
    "reject_on_worker_lost": (None, _only(True, "a task of a dead worker goes on elsewhere")),
    "acks_on_failure_or_timeout": (True, _only(True, "a failed task is not delivered again")),
    "time_limit": (None, check_seconds),
    "soft_time_limit": (None, check_seconds),
    "rate_limit": (None, lambda _, value: check_rate(value)),
    "ignore_result": (None, _flag),
    "store_errors_even_if_ignored": (True, _only(True, "failures are always kept")),
    "track_started": (True, _only(True, "the state STARTED is always there")),
    "serializer": ("json", _only("json", "values cross as JSON")),
    "compression": (None, _only(None, "requests are not compressed")),
    "throws": ((), _classes),
    "typing": (True, _flag),
    "expires": (None, _expires),
    "priority": (None, check_priority),
    "queue": (None, lambda where, value: None if value is None else check_queue(where, value)),
    "description": (None, lambda where, value: None),
    "deadline": (None, check_seconds),
    "concurrency": (None, lambda where, value: None),
    "budget": (None, lambda where, value: None),
}
"""Options of a task: default and check. The last three are Longhaul's own."""

_OPTION_ADVICE = {
    "exchange": "there are only queues",
    "routing_key": "there are only queues",
    "delivery_mode": "every task is stored in Postgres",
    "backend": "results are in Postgres",
    "pydantic": "annotate a task of `longhaul.App`, or validate in the function",
    "shared": "use shared_task",
}


def check_options(where: str, options: Mapping[str, Any]) -> None:
    """Raises `Unsupported` for an option of a task that this package does not have, and for wrong values."""
    for name, value in options.items():
        if name not in _OPTIONS:
            advice = f": {_OPTION_ADVICE[name]}" if name in _OPTION_ADVICE else ""
            raise Unsupported(f"{where}: option {name!r} of a task is not supported{advice}")
        _OPTIONS[name][1](f"{where}: option {name!r}", value)


@dataclass
class Request:
    """The call that runs: `self.request` of a bound task."""

    id: str | None = None
    task: str = ""
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    retries: int = 0
    headers: dict[str, Any] = field(default_factory=dict)
    expires: str | None = None
    parent_id: str | None = None
    root_id: str | None = None
    group: str | None = None
    queue: str | None = None
    hostname: str | None = None
    is_eager: bool = False
    called_directly: bool = True
    timelimit: tuple[float | None, float | None] = (None, None)
    """Hard and soft limit in seconds."""
    execution_id: str | None = None

    @property
    def correlation_id(self) -> str | None:
        """As `id`."""
        return self.id

    @property
    def delivery_info(self) -> dict[str, Any]:
        """The queue."""
        return {"routing_key": self.queue, "is_eager": self.is_eager}


@dataclass
class Running:
    """A task that runs in this context."""

    task: Task
    request: Request
    ctx: Any = None
    """The context of the worker; None in a task that runs in the caller's process."""
    sync_ctx: Any = None
    sent: dict[str, int] = field(default_factory=dict)
    """Calls that the task has sent, by content."""
    errback: dict[str, Any] | None = None
    """Failure of another task, if this one is its error callback."""
    report: Callable[[dict[str, Any]], None] | None = None
    """Records a state that the task sets."""


_running: ContextVar[Running | None] = ContextVar("longhaul_celery_running", default=None)


def running() -> Running | None:
    """The task that runs in this context."""
    return _running.get()


def set_running(one: Running | None) -> Any:
    """Sets it; the token resets it."""
    return _running.set(one)


def reset_running(token: Any) -> None:
    """Sets the one before."""
    _running.reset(token)


class Task:
    """A task of an app. Also the base class of tasks with handlers: `@app.task(base=MyTask)`."""

    OperationalError = OperationalError
    MaxRetriesExceededError = MaxRetriesExceededError

    name: str = ""
    app: Celery
    max_retries: int | None
    default_retry_delay: float
    autoretry_for: tuple[type[BaseException], ...]
    dont_autoretry_for: tuple[type[BaseException], ...]
    retry_kwargs: dict[str, Any]
    retry_backoff: bool | float
    retry_backoff_max: float
    retry_jitter: bool
    acks_late: bool | None
    time_limit: float | None
    soft_time_limit: float | None
    rate_limit: Any
    ignore_result: bool | None
    throws: tuple[type[BaseException], ...]
    typing: bool
    expires: float | None
    priority: int | None
    queue: str | None
    description: str | None
    deadline: float | None
    concurrency: Any
    budget: Any

    def __init__(
        self, app: Celery, name: str, function: Callable[..., Any], bind: bool, options: Mapping[str, Any]
    ) -> None:
        check_options(f"task {name!r}", options)
        if not KEY.fullmatch(name) or len(name) > 64:
            raise ImproperlyConfigured(
                f"task {name!r}: its name cannot be the key of a definition, which has at most 64 of a-z 0-9 _ - and "
                "dots between them; pass name= to the decorator"
            )
        self.app = app
        self.name = name
        self.run = function
        self.bind = bind
        own = {key: getattr(type(self), key) for key in _OPTIONS if key in dir(type(self))}
        check_options(f"class {type(self).__name__}", own)
        self._declared = {key: default for key, (default, _) in _OPTIONS.items()} | own | dict(options)
        self.__dict__.update(self._declared)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__module__ = getattr(function, "__module__", "")
        self.__wrapped__ = function
        signature = inspect.signature(function)
        if bind:
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        self.signature_of_function = signature
        self.is_async = inspect.iscoroutinefunction(function)
        self.apply_settings()

    def apply_settings(self) -> None:
        """Takes over settings of the app: defaults below the task's own options, annotations above them."""
        conf = self.app.conf
        self.__dict__.update(self._declared)
        for option, setting in (
            ("time_limit", "task_time_limit"),
            ("soft_time_limit", "task_soft_time_limit"),
            ("rate_limit", "task_default_rate_limit"),
            ("ignore_result", "task_ignore_result"),
            ("acks_late", "task_acks_late"),
            ("priority", "task_default_priority"),
        ):
            if self.__dict__[option] is None:
                self.__dict__[option] = conf[setting]
        self.__dict__.update(conf.annotations(self.name))
        for option in ("autoretry_for", "dont_autoretry_for", "throws"):
            value = self.__dict__[option]
            self.__dict__[option] = (
                value if isinstance(value, tuple) else (tuple(value) if isinstance(value, list) else (value,))
            )
        if self.time_limit and self.soft_time_limit and self.soft_time_limit >= self.time_limit:
            raise ImproperlyConfigured(f"task {self.name!r}: soft_time_limit must be below time_limit")

    # Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function here."""
        one = running()
        if one is not None and one.task is self:
            return self._call(args, kwargs)
        token = set_running(Running(self, Request(task=self.name, args=list(args), kwargs=kwargs)))
        try:
            return self._call(args, kwargs)
        finally:
            reset_running(token)

    def _call(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.run(self, *args, **kwargs) if self.bind else self.run(*args, **kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Sends a call."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Sends a call with options: countdown, eta, expires, priority, queue, task_id, headers, link, link_error,
        ignore_result, time_limit, soft_time_limit, retry, retry_policy, shadow.
        """
        result: AsyncResult = self.app.send_task(self.name, args, kwargs, **options)
        return result

    async def adelay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """As `delay`, for asyncio."""
        return await asyncio.to_thread(self.delay, *args, **kwargs)

    async def aapply_async(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """As `apply_async`, for asyncio."""
        return await asyncio.to_thread(lambda: self.apply_async(args, kwargs, **options))

    def apply(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> EagerResult:
        """Runs a call here, retries included, and returns its result."""
        from .eager import apply_task

        return apply_task(self, list(args or ()), dict(kwargs or {}), options)

    def check_arguments(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises `TypeError` if the function does not take these arguments."""
        if self.typing:
            try:
                self.signature_of_function.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.name}: {error}") from None

    # Signatures

    def signature(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, immutable: bool = False,
        **options: Any,
    ) -> canvas.Signature:  # fmt: skip
        """A call that is not made yet, with options."""
        return canvas.Signature(self.name, args, kwargs, options, immutable=immutable, app=self.app)

    subtask = signature

    def s(self, *args: Any, **kwargs: Any) -> canvas.Signature:
        """A call that is not made yet."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> canvas.Signature:
        """A call that is not made yet, and takes no result of an earlier one."""
        return self.signature(args, kwargs, immutable=True)

    def map(self, it: Iterable[Any]) -> canvas.xmap:
        """Calls the function for each item, in one execution."""
        return canvas.xmap(self, it, app=self.app)

    def starmap(self, it: Iterable[Any]) -> canvas.xstarmap:
        """Calls the function with each item as its arguments, in one execution."""
        return canvas.xstarmap(self, it, app=self.app)

    def chunks(self, it: Iterable[Any], n: int) -> canvas.chunks:
        """A group of starmaps of `n` items."""
        return canvas.chunks(self, it, n, app=self.app)

    # In a running task

    @property
    def request(self) -> Request:
        """The call that runs."""
        one = running()
        return one.request if one is not None and one.task is self else Request(task=self.name)

    @property
    def ctx(self) -> Any:
        """The worker's context of the execution: steps, models, approvals. Only in a task that a worker runs."""
        one = running()
        if one is None or one.ctx is None:
            raise RuntimeError(f"task {self.name} has a context only while a worker runs it")
        return one.ctx if self.is_async else one.sync_ctx

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Retry:
        """Ends this try, and runs the task again after `countdown` seconds or at `eta`.

        Raises `exc`, or `MaxRetriesExceededError` without one, if no retry is left.
        """
        if args is not None or kwargs is not None:
            raise Unsupported(f"{self.name}: retry with other arguments is not supported; send a new call")
        for name in options:
            raise Unsupported(f"{self.name}: option {name!r} of retry is not supported")
        request = self.request
        if request.called_directly:
            _raise(exc, f"{self.name} was called directly and cannot be tried again")
        most = self.most_retries if max_retries is None else max_retries
        if request.retries >= most:
            _raise(exc, f"{self.name} has had its {most} retries")
        if request.retries >= self.policy_retries:
            _raise(exc, f"{self.name} has had {request.retries} retries, and its definition allows no more")
        if eta is not None:
            countdown = max(0.0, (aware("eta", eta) - datetime.now(timezone.utc)).total_seconds())
        if countdown is None:
            countdown = self.default_retry_delay
        _delay(f"{self.name}: countdown of retry", countdown)
        retry = Retry(f"retry in {countdown:g}s", exc, countdown)
        if throw:
            raise retry from exc
        return retry

    @property
    def most_retries(self) -> int:
        """Retries of the task."""
        return MAX_RETRIES if self.max_retries is None else self.max_retries

    @property
    def policy_retries(self) -> int:
        """Retries that the definition allows."""
        declared = max(self.most_retries, int(self.retry_kwargs.get("max_retries") or 0))
        return max(declared, _RETRIES_OF_BOUND) if self.bind else declared

    def retry_for(self, error: BaseException, retries: int) -> Retry | None:
        """The retry of an exception by `autoretry_for`, if one is left."""
        if not self.autoretry_for or not isinstance(error, self.autoretry_for):
            return None
        if isinstance(error, self.dont_autoretry_for):
            return None
        most = self.retry_kwargs.get("max_retries", self.most_retries)
        if retries >= (MAX_RETRIES if most is None else most):
            return None
        if self.retry_backoff:
            factor = 1 if self.retry_backoff is True else self.retry_backoff
            delay = min(self.retry_backoff_max, factor * 2 ** min(retries, 40))
            countdown = random.uniform(0, delay) if self.retry_jitter else delay
        else:
            countdown = self.retry_kwargs.get("countdown", self.default_retry_delay)
        return Retry(f"retry in {countdown:g}s", error, min(countdown, _LONGEST_DELAY))

    def update_state(self, task_id: str | None = None, state: str | None = None, meta: Any = None) -> None:
        """Sets a state of the running call, with values for its caller."""
        one = running()
        if task_id is not None and (one is None or task_id != one.request.id):
            raise Unsupported("update_state of another task is not supported")
        if one is not None and one.report is not None:
            one.report({"state": state or "PROGRESS", "meta": meta})

    def replace(self, sig: canvas.Signature) -> NoReturn:
        """Ends the task; its result is that of the call or canvas."""
        raise Replaced(sig)

    # Handlers, for subclasses

    def before_start(self, task_id: str | None, args: Any, kwargs: Any) -> None:
        """Called before each try."""

    def on_success(self, retval: Any, task_id: str | None, args: Any, kwargs: Any) -> None:
        """Called after a try without an exception."""

    def on_retry(self, exc: Any, task_id: str | None, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called when a try failed and another follows."""

    def on_failure(self, exc: Any, task_id: str | None, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called when the task failed."""

    def after_return(self, status: str, retval: Any, task_id: str | None, args: Any, kwargs: Any, einfo: Any) -> None:
        """Called after each try."""

    def __getattr__(self, name: str) -> Any:
        if name in (
            "get_publisher",
            "AsyncResult",
            "add_around",
            "backend",
            "send_event",
            "add_to_chord",
            "subtask_from_request",
        ):
            if name == "AsyncResult":
                return self.app.AsyncResult
            raise Unsupported(f"{name} of a task is not supported")
        raise AttributeError(f"task {self.__dict__.get('name', '')} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<@task: {self.name} of {self.app.main}>"


class Replaced(Exception):
    """Raised by `self.replace`."""

    def __init__(self, call: canvas.Signature) -> None:
        super().__init__("replaced")
        self.call = call


def _raise(exc: BaseException | None, text: str) -> NoReturn:
    raise exc if exc is not None else MaxRetriesExceededError(text)


def input_of(args: Iterable[Any], kwargs: Mapping[str, Any], meta: Mapping[str, Any]) -> Spec:
    """Input of an execution of a task."""
    call: Spec = {"args": list(args), "kwargs": dict(kwargs)}
    if meta:
        call["celery"] = dict(meta)
    return call
