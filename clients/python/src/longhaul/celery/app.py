"""`Celery`: the app that holds tasks, settings and the connection to Longhaul."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, overload

from ..client import Client
from ..errors import Conflict
from ..retry import RetryPolicy
from ._api import Api
from .canvas import Signature, chain, chord, chunks, group, maybe_signature
from .conf import Settings, check_priority, check_queue
from .exceptions import ImproperlyConfigured, NotRegistered, Unsupported
from .result import AsyncResult, Canvas, GroupResult, Result, results_of
from .spec import Spec, call_meta, check_call_options, freeze, leaves, start_of
from .task import KEY, check_options, input_of, running
from .task import Task as _Task
from .utils import uuid

if TYPE_CHECKING:
    from ..worker import App
    from .control import Control

_SLUG = re.compile(r"[^a-z0-9_-]+")
_MAX_METADATA_HEADERS = 60

_lock = threading.Lock()
_apps: list[Celery] = []
_shared: list[tuple[Callable[..., Any], dict[str, Any]]] = []


def current() -> Celery:
    """The app that was made last."""
    if not _apps:
        raise ImproperlyConfigured("there is no app: make one with Celery(name)")
    return _apps[-1]


class _Hook:
    """A signal of the app, for `connect`."""

    def __init__(self) -> None:
        self._receivers: list[Callable[..., Any]] = []

    def connect(self, receiver: Callable[..., Any] | None = None, **_: Any) -> Any:
        """Adds a function that is called with `sender`, the app."""
        if receiver is None:
            return self.connect
        self._receivers.append(receiver)
        return receiver

    def send(self, sender: Celery) -> None:
        """Calls the functions, once each."""
        receivers, self._receivers = self._receivers, []
        for receiver in receivers:
            receiver(sender=sender)


class Celery:
    """An app with the habits of Celery's, on Longhaul.

    `broker` and `backend` may be the address of Longhaul's API; without them it is that of `LONGHAUL_URL`.
    """

    Task: Any
    AsyncResult: Any
    GroupResult: Any

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,
        include: Iterable[str] | None = None,
        config_source: Any = None,
        task_cls: type[_Task] | None = None,
        set_as_current: bool = True,
        client: Client | None = None,
        api_key: str | None = None,
        **settings: Any,
    ) -> None:
        self.main = main or "celery"
        if not _slug(self.main):
            raise ImproperlyConfigured(f"app {main!r}: its name must have letters or digits")
        self.tasks: dict[str, _Task] = {}
        self._client = client
        self._api_key = api_key
        self._task_class = task_cls or _Task
        self.on_after_configure = _Hook()
        self.on_after_finalize = _Hook()
        self._is_configured = False
        self._imported: set[str] = set()
        self.conf = Settings(self._settings_changed)
        self.conf.update(settings)
        if broker is not None:
            self.conf.broker_url = broker
        if backend is not None:
            self.conf.result_backend = backend
        if include is not None:
            self.conf.include = list(include)
        if config_source is not None:
            self.config_from_object(config_source)
        self.AsyncResult = lambda id, **more: AsyncResult(id, app=self, **more)
        self.GroupResult = GroupResult
        self.Task = self._task_class
        for function, options in _shared:
            self._add_task(function, options)
        if set_as_current:
            with _lock:
                _apps.append(self)

    # Settings

    def config_from_object(
        self, obj: Any, silent: bool = False, force: bool = False, namespace: str | None = None
    ) -> None:
        """Sets the settings of a module or an object, or of the one with this name."""
        self.conf.load(obj, namespace)

    def config_from_envvar(self, variable: str) -> None:
        """As `config_from_object`, with the name in an environment variable."""
        import os

        if not os.environ.get(variable):
            raise ImproperlyConfigured(f"the environment variable {variable} does not name a module of settings")
        self.conf.load(os.environ[variable])

    def autodiscover_tasks(self, packages: Any = None, related_name: str = "tasks", force: bool = False) -> None:
        """Imports the modules `<package>.tasks` when a worker starts."""
        found = packages() if callable(packages) else packages
        if found is None:
            raise Unsupported("autodiscover_tasks without packages is not supported; name them")
        names = [f"{package}.{related_name}" for package in found]
        existing = [name for name in names if _exists(name)]
        self.conf.imports = [*self.conf.imports, *existing]

    def _settings_changed(self) -> None:
        for task in self.tasks.values():
            task.apply_settings()

    def finalize(self) -> None:
        """Imports the modules of `include` and `imports`, and calls the functions of `on_after_configure`."""
        for name in [*self.conf.include, *self.conf.imports]:
            if name not in self._imported:
                self._imported.add(name)
                importlib.import_module(name)
        self.on_after_configure.send(self)
        self.on_after_finalize.send(self)

    def add_periodic_task(
        self,
        schedule: Any,
        sig: Mapping[str, Any],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Adds an entry to `beat_schedule`, and returns its name."""
        call = maybe_signature(sig, self)
        assert call is not None
        if call.get("subtask_type"):
            raise Unsupported(f"a periodic {call['subtask_type']} is not supported; make it a task")
        entry: dict[str, Any] = {
            "task": call.task,
            "schedule": schedule,
            "args": [*args, *call.args],
            "kwargs": {**call.kwargs, **(kwargs or {})},
        }
        if merged := {**call.options, **options}:
            entry["options"] = merged
        name = name or repr(call)
        self.conf.beat_schedule = {**self.conf.beat_schedule, name: entry}
        return name

    # Tasks

    @overload
    def task(self, function: Callable[..., Any], /) -> _Task: ...

    @overload
    def task(self, **options: Any) -> Callable[[Callable[..., Any]], _Task]: ...

    def task(self, *args: Any, **options: Any) -> Any:
        """Makes a task of a function: `@app.task` or `@app.task(bind=True, …)`."""
        if len(args) == 1 and callable(args[0]) and not options:
            return self._add_task(args[0], {})
        if args:
            raise TypeError("@app.task takes named options only")
        check = {key: value for key, value in options.items() if key not in ("name", "bind", "base")}
        check_options("@app.task", check)
        return lambda function: self._add_task(function, options)

    def _add_task(self, function: Callable[..., Any], options: Mapping[str, Any]) -> _Task:
        options = dict(options)
        base = options.pop("base", None) or self._task_class
        if not (isinstance(base, type) and issubclass(base, _Task)):
            raise ImproperlyConfigured(f"base {base!r} is no subclass of longhaul.celery.Task")
        name = options.pop("name", None) or self.gen_task_name(function.__name__, function.__module__)
        bind = bool(options.pop("bind", False))
        if name in self.tasks:
            before = self.tasks[name].run
            if (before.__module__, before.__qualname__) != (function.__module__, function.__qualname__):
                raise ImproperlyConfigured(f"two functions are the task {name!r}")
        if name == self.canvas_definition:
            raise ImproperlyConfigured(f"the name {name!r} is that of the app's canvas")
        task = base(self, name, function, bind, options)
        self.tasks[name] = task
        return task

    def gen_task_name(self, name: str, module: str) -> str:
        """`module.function`; of a function of the main program, `app.function`."""
        if module == "__main__":
            module = self.main
        return f"{module}.{name}"

    def task_named(self, name: str) -> _Task:
        """The task. Raises `NotRegistered` if this process has none of this name."""
        try:
            return self.tasks[name]
        except KeyError:
            raise NotRegistered(name) from None

    def known(self, name: Any) -> str:
        """The name, if it can be that of a task."""
        if not isinstance(name, str) or not KEY.fullmatch(name) or len(name) > 64:
            raise NotRegistered(name)
        return name

    def definition_of(self, name: str) -> str:
        """Key of the definition of a task."""
        return self.known(name)

    @property
    def canvas_definition(self) -> str:
        """Key of the definition that runs canvases."""
        return f"{_slug(self.main)}.canvas"

    # Calls

    @property
    def client(self) -> Client:
        """The client of the app."""
        with _lock:
            if self._client is None:
                url = self.conf.broker_url or self.conf.result_backend
                self._client = Client(url, self._api_key)
            return self._client

    @cached_property
    def api(self) -> Api:
        """Further requests."""
        return Api(self.client)

    def signature(self, varies: Any, *args: Any, **kwargs: Any) -> Signature:
        """As the function `signature`, of this app."""
        made = Signature.from_dict(varies, self) if isinstance(varies, Mapping) else Signature(varies, *args, **kwargs)
        made._app = self
        return made

    def route(self, name: str, task: _Task | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """Queue and priority of a call: of the call, of `task_routes`, of the task, of the settings."""
        routes = self.conf.routes(name)
        queue = options.get("queue") or routes.get("queue") or (task.queue if task else None)
        priority = options.get("priority")
        if priority is None:
            priority = routes.get("priority")
        if priority is None:
            priority = task.priority if task else self.conf.task_default_priority
        route = {"queue": queue or self.conf.task_default_queue, "priority": priority}
        check_queue(name, route["queue"])
        check_priority(name, route["priority"])
        return route

    def send_task(
        self,
        name: str,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Sends a call of a task by its name, which this process need not have."""
        name = self.known(name)
        check_call_options(name, options)
        task = self.tasks.get(name)
        positional, named = list(args or ()), dict(kwargs or {})
        if task is not None:
            task.check_arguments(positional, named)
            if self.conf.task_always_eager:
                return task.apply(positional, named, **options)
            if task.expires is not None:
                options.setdefault("expires", task.expires)
        if options.get("link") or options.get("link_error"):
            call = Signature(name, positional, named, options, app=self)
            result = self.send_canvas(call, options)
            assert isinstance(result, AsyncResult)
            return result
        meta = call_meta(options)
        if options.get("task_id"):
            meta["id"] = str(options["task_id"])
        body = input_of(positional, named, meta)
        execution_id, _ = self._submit(name, body, options, self.route(name, task, options), {})
        result = AsyncResult(str(options.get("task_id") or execution_id), self, execution_id=execution_id)
        result._ignored = self._ignores(task, options)
        return result

    def send_canvas(self, call: Signature, options: Mapping[str, Any]) -> Any:
        """Sends a canvas as one execution."""
        check_call_options(repr(call)[:80], options)
        if self.conf.task_always_eager:
            return call.apply()
        made = call.clone()
        own = {key: value for key, value in options.items() if key in ("link", "link_error")}
        made.options.clear()
        if own.get("link") and isinstance(made, group):
            for link in _listed(own.pop("link")):
                made.link(link)
        made.options.update(own)
        if not isinstance(made, (chain, group, chord, chunks)):
            made.options.update({key: options[key] for key in _OF_LEAF if options.get(key) is not None})
        spec = freeze(self, made, str(options["task_id"]) if options.get("task_id") else None)
        route = self._route_of_canvas(spec, call, options)
        meta = call_meta(options)
        body: Spec = {"canvas": spec}
        if meta:
            body["celery"] = meta
        execution_id, is_earlier = self._submit(self.canvas_definition, body, options, route, {"result_id": spec["id"]})
        if is_earlier:
            spec = self.api.request("GET", f"/v1/executions/{execution_id}")["input"]["canvas"]
        canvas = Canvas(spec)
        canvas.execution_id = execution_id
        return results_of(spec, self, canvas)

    def _route_of_canvas(self, spec: Spec, call: Signature, options: Mapping[str, Any]) -> dict[str, Any]:
        """The queue of a canvas, which is that of all its calls: children run in the queue of their parent."""
        given = {key: options[key] for key in ("queue", "priority") if options.get(key) is not None}
        queues: dict[str, str] = {}
        priorities: set[int | None] = set()
        members = {id(part): part for part in call._parts()}.values()
        for part in members:
            name = part.kwargs["task"]["task"] if "task" in part.kwargs and part.get("subtask_type") else part.task
            if part.get("subtask_type") == "chunks":
                name = part.kwargs["task"]["task"]
            route = self.route(name, self.tasks.get(name), {**part.options, **given})
            queues.setdefault(route["queue"], name)
            priorities.add(route["priority"])
        for leaf in leaves(spec):
            name = leaf.get("task") or leaf["map"]
            if not any(name == known for known in queues.values()):
                queues.setdefault(self.route(name, self.tasks.get(name), given)["queue"], name)
        if len(queues) > 1:
            told = ", ".join(f"{name} in {queue}" for queue, name in sorted(queues.items()))
            raise Unsupported(
                f"a canvas in several queues is not supported ({told}): its calls run in one queue. Pass queue= to the "
                "apply_async of the canvas"
            )
        if len(priorities) > 1:
            raise Unsupported(
                "calls of a canvas with different priorities are not supported; pass priority= to its apply_async"
            )
        priority = next(iter(priorities), None)
        return {"queue": next(iter(queues), self.conf.task_default_queue), "priority": priority}

    def _submit(
        self, definition: str, body: Any, options: Mapping[str, Any], route: Mapping[str, Any], metadata: dict[str, Any]
    ) -> tuple[str, bool]:
        """Id of the execution, and whether it is one that this task has sent before, with other times or ids."""
        task_id = str(options["task_id"]) if options.get("task_id") else None
        headers = options.get("headers")
        if task_id and "result_id" not in metadata:
            metadata["task_id"] = task_id
        if headers:
            metadata["headers"] = dict(headers)
        if options.get("shadow"):
            metadata["shadow"] = str(options["shadow"])
        key = f"celery:{task_id}" if task_id else None
        one = running()
        if one is not None and one.ctx is not None:
            metadata["parent_id"] = one.request.execution_id
            if key is None:
                key = self._key_of_sent(one, definition, body)
        request: dict[str, Any] = {
            "definition": definition,
            "input": _checked(definition, body),
            "queue": route["queue"],
        }
        if metadata:
            request["metadata"] = metadata
        if route.get("priority") is not None:
            request["priority"] = route["priority"]
        start = start_of(options)
        if start is not None:
            request["run_at"] = start
        if key is not None and len(key) > 255:
            raise ImproperlyConfigured(f"task_id of {len(task_id or key)} characters is too long; at most 240")
        client = self._client_for(options)
        try:
            return str(client.submit(idempotency_key=key, **request).id), False
        except Conflict as conflict:
            if task_id is not None or conflict.execution_id is None:
                raise
            return str(conflict.execution_id), True
        finally:
            if client is not self.client:
                client.close()

    def _key_of_sent(self, one: Any, definition: str, body: Any) -> str:
        """Idempotency key of a call that a task sends: run again, the task finds the call that it has sent."""
        comparable = _without_ids(body)
        content = json.dumps([definition, comparable], sort_keys=True, default=str)
        digest = sha256(content.encode()).hexdigest()[:40]
        with _lock:
            count = one.sent.get(digest, 0)
            one.sent[digest] = count + 1
        return f"celery:{one.request.execution_id}:{digest}:{count}"

    def _client_for(self, options: Mapping[str, Any]) -> Client:
        """The client, with the tries of `retry` and `retry_policy` if the call has them."""
        retry, policy = options.get("retry"), options.get("retry_policy")
        if retry is None:
            retry = self.conf.task_publish_retry
        if retry and not policy:
            return self.client
        known = {"max_retries", "interval_start", "interval_step", "interval_max"}
        for name, value in (policy or {}).items():
            if name not in known and value is not None:
                raise Unsupported(f"retry_policy {name!r} is not supported; {', '.join(sorted(known))} are")
        tries = 1
        longest = 30.0
        if retry and policy:
            most = policy.get("max_retries", 3)
            tries = 1_000_000 if most is None else int(most) + 1
            longest = float(policy.get("interval_max") or 30.0)
        first = float((policy or {}).get("interval_start") or 0.2)
        url = self.conf.broker_url or self.conf.result_backend
        return Client(
            url, self._api_key, retry=RetryPolicy(tries=tries, first_pause=first, longest_pause=max(first, longest))
        )

    def _ignores(self, task: _Task | None, options: Mapping[str, Any]) -> bool:
        given = options.get("ignore_result")
        return bool(task.ignore_result if given is None and task else given)

    # Control

    @cached_property
    def control(self) -> Control:
        """Commands for workers."""
        from .control import Control

        return Control(self)

    def publish_schedules(self) -> list[str]:
        """Makes the schedules of the server those of `beat_schedule`. Each worker does so when it starts."""
        from .schedules import publish

        self.finalize()
        return publish(self)

    # The worker

    @cached_property
    def longhaul_app(self) -> App:
        """The app as a worker has it: each task is a definition, and one more runs canvases.

        Also publishes the periodic tasks, once the worker has published the definitions.
        """
        from .schedules import publish_in_background
        from .worker import app_of

        made = app_of(self)
        publish_in_background(self)
        return made

    def worker_main(self, argv: list[str] | None = None) -> None:
        """Not supported: raises."""
        raise Unsupported("worker_main is not supported; run `python -m longhaul.celery -A module worker`")

    def start(self, argv: list[str] | None = None) -> None:
        """Not supported: raises."""
        raise Unsupported("start is not supported; run `python -m longhaul.celery -A module worker`")

    def __getattr__(self, name: str) -> Any:
        if name in _UNSUPPORTED:
            raise Unsupported(f"app.{name} is not supported{_UNSUPPORTED[name]}")
        raise AttributeError(f"an app has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<Celery {self.main}>"


_OF_LEAF = ("ignore_result", "time_limit", "soft_time_limit", "countdown", "eta", "expires", "headers")
_UNSUPPORTED = {
    "amqp": ": there is no broker",
    "backend": ": results are in Postgres",
    "bugreport": "",
    "connection": ": there is no broker",
    "connection_for_write": ": there is no broker",
    "events": ": use Client.events",
    "loader": "",
    "log": ": configure logging",
    "pool": ": the client keeps its connections",
    "producer_pool": ": the client keeps its connections",
    "register_task": ": use @app.task(base=…)",
    "steps": ": there are no bootsteps",
    "user_options": ": `longhaul-worker` has its own options",
}


@overload
def shared_task(function: Callable[..., Any], /) -> _SharedTask: ...


@overload
def shared_task(**options: Any) -> Callable[[Callable[..., Any]], _SharedTask]: ...


def shared_task(*args: Any, **options: Any) -> Any:
    """Makes a task of a function for every app, those that are made later too."""
    if len(args) == 1 and callable(args[0]) and not options:
        return _share(args[0], {})
    if args:
        raise TypeError("@shared_task takes named options only")
    check_options("@shared_task", {key: value for key, value in options.items() if key not in ("name", "bind", "base")})
    return lambda function: _share(function, options)


class _SharedTask:
    """The task of the app that was made last."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options

    def _get_current_object(self) -> _Task:
        app = current()
        name = self._options.get("name") or app.gen_task_name(self._function.__name__, self._function.__module__)
        return app.tasks[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get_current_object(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._get_current_object()(*args, **kwargs)


def _share(function: Callable[..., Any], options: dict[str, Any]) -> _SharedTask:
    _shared.append((function, options))
    for app in _apps:
        app._add_task(function, options)
    return _SharedTask(function, options)


def _slug(name: str) -> str:
    return _SLUG.sub("-", name.lower().replace(".", "-")).strip("-")[:57]


def _exists(module: str) -> bool:
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _checked(name: str, body: Any) -> Any:
    """The input as JSON. Raises `TypeError` that says which value is none."""
    try:
        return json.loads(json.dumps(body, allow_nan=False, default=_special))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: arguments must be JSON: {error}") from None


def _special(value: Any) -> Any:
    """Values for which Celery's JSON has a form: dates, decimals, ids and sets."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if type(value).__name__ in ("UUID", "Decimal"):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{type(value).__name__} {value!r} has no JSON form")


def _without_ids(value: Any) -> Any:
    """A canvas without the random ids of its calls, and without times that depend on now."""
    if isinstance(value, dict):
        is_spec = "id" in value and any(part in value for part in ("task", "map", "chain", "group", "chord"))
        skipped = ("id", "run_at") if is_spec else ("expires",)
        return {name: _without_ids(part) for name, part in value.items() if name not in skipped}
    if isinstance(value, list):
        return [_without_ids(part) for part in value]
    return value


__all__ = ["Celery", "Result", "chunks", "current", "shared_task", "uuid"]
