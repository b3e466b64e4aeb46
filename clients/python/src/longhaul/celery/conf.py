"""Settings of an app, `app.conf`: each is checked when it is set."""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .exceptions import ImproperlyConfigured, Unsupported
from .schedules import check_entry, check_time_zone

QUEUE = re.compile(r"[a-z0-9._-]{1,64}")

_DEFAULTS: dict[str, Any] = {
    "beat_schedule": {},
    "broker_url": None,
    "imports": (),
    "include": (),
    "result_backend": None,
    "task_acks_late": None,
    "task_allow_error_cb_on_chord_header": False,
    "task_always_eager": False,
    "task_annotations": {},
    "task_default_priority": None,
    "task_default_queue": "default",
    "task_default_rate_limit": None,
    "task_eager_propagates": False,
    "task_ignore_result": False,
    "task_publish_retry": True,
    "task_routes": {},
    "task_soft_time_limit": None,
    "task_time_limit": None,
    "timezone": None,
}

_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "accept_content": ((("json",),), "values cross as JSON"),
    "broker_connection_retry_on_startup": ((True,), "a worker waits for the API"),
    "enable_utc": ((True,), "times are stored in UTC"),
    "result_extended": ((True,), "arguments and metadata are always kept"),
    "result_persistent": ((True,), "results are in Postgres"),
    "result_serializer": (("json",), "values cross as JSON"),
    "task_acks_on_failure_or_timeout": ((True,), "a failed task is not delivered again"),
    "task_compression": ((None,), "requests are not compressed"),
    "task_reject_on_worker_lost": ((True,), "a task of a dead worker goes on elsewhere"),
    "task_serializer": (("json",), "values cross as JSON"),
    "task_track_started": ((True,), "the state STARTED is always there"),
    "worker_prefetch_multiplier": ((1,), "a worker takes a task when it has room for it"),
}
"""Settings that may only say how it is, and the reason."""

_ADVICE: dict[str, str] = {
    "beat_max_loop_interval": "the server fires schedules",
    "beat_scheduler": "the server fires schedules",
    "broker_transport_options": "there is no broker; the lease of a worker replaces the visibility timeout",
    "broker_heartbeat": "there is no broker",
    "broker_pool_limit": "there is no broker",
    "result_expires": "results stay until `longhaul prune`",
    "result_compression": "requests are not compressed",
    "task_create_missing_queues": "a queue exists as soon as it is named",
    "task_default_delivery_mode": "every task is stored in Postgres",
    "task_default_exchange": "there are only queues",
    "task_default_routing_key": "there are only queues",
    "task_inherit_parent_priority": "name the priority in the call",
    "task_protocol": "the worker protocol has its own version",
    "task_publish_retry_policy": "pass `retry_policy` to the call",
    "task_queue_max_priority": "priorities are 0 to 9",
    "task_queues": "name queues with `longhaul-worker --queues`",
    "task_remote_tracebacks": "the traceback is in `result.traceback`",
    "task_send_sent_event": "events are always kept; see `Client.events`",
    "task_store_errors_even_if_ignored": "failures are always kept",
    "worker_autoscaler": "`longhaul-worker --concurrency` and the metric `workers_wanted`",
    "worker_concurrency": "`longhaul-worker --concurrency`",
    "worker_disable_rate_limits": "leave out `rate_limit`",
    "worker_hijack_root_logger": "`longhaul-worker --log-level`",
    "worker_log_format": "configure `logging` in the module of the app",
    "worker_max_memory_per_child": "restart the worker: what it runs goes on elsewhere",
    "worker_max_tasks_per_child": "restart the worker: what it runs goes on elsewhere",
    "worker_pool": "`longhaul-worker --processes`",
    "worker_send_task_events": "events are always kept; see `Client.events`",
}


class Settings:
    """Settings as attributes, items and by `update`."""

    _values: dict[str, Any]
    _on_change: Callable[[], None]

    def __init__(self, on_change: Callable[[], None]) -> None:
        object.__setattr__(self, "_values", dict(_DEFAULTS))
        object.__setattr__(self, "_on_change", on_change)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"there is no setting {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            allowed, reason = _FIXED[name]
            if _plain(value) not in allowed:
                wanted = " or ".join(repr(list(one) if isinstance(one, tuple) else one) for one in allowed)
                raise Unsupported(f"setting {name!r} can only be {wanted}: {reason}")
        elif name in _CHECKS:
            _CHECKS[name](name, value)
            value = dict(value) if isinstance(value, Mapping) else value
        elif name in _ADVICE:
            raise Unsupported(f"setting {name!r} is not supported: {_ADVICE[name]}")
        else:
            raise Unsupported(f"setting {name!r} is not supported")
        self._values[name] = value
        self._on_change()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        """The setting, or `default`."""
        return self._values.get(name, default)

    def update(self, *settings: Mapping[str, Any], **more: Any) -> None:
        """Sets several."""
        for name, value in [pair for one in settings for pair in one.items()] + list(more.items()):
            setattr(self, name, value)

    def load(self, source: Any, namespace: str | None = None) -> None:
        """Sets those of a module, an object, a mapping or the name of one.

        With `namespace`, only upper-case names that begin with it: `CELERY_TASK_ROUTES` is `task_routes`.
        """
        if isinstance(source, str):
            module, _, attribute = source.partition(":")
            source = importlib.import_module(module)
            for part in filter(None, attribute.split(".")):
                source = getattr(source, part)
        values = source if isinstance(source, Mapping) else _public(source)
        prefix = f"{namespace}_" if namespace else ""
        for name, value in values.items():
            if prefix and not name.startswith(prefix):
                continue
            own = name[len(prefix) :].lower() if prefix else name
            setattr(self, own, value)

    def routes(self, task: str) -> dict[str, Any]:
        """Queue and priority of a task by `task_routes`."""
        for pattern, route in self.task_routes.items():
            if pattern == task or fnmatch.fnmatchcase(task, pattern):
                return {"queue": route} if isinstance(route, str) else dict(route)
        return {}

    def annotations(self, task: str) -> dict[str, Any]:
        """Options of a task by `task_annotations`."""
        every = self.task_annotations.get("*", {})
        return {**every, **self.task_annotations.get(task, {})}


def parse_rate(rate: Any) -> float | None:
    """Seconds between two starts of `10/m`, `5/s`, `100/h` or a number a second. None for no limit."""
    if rate is None:
        return None
    if isinstance(rate, (int, float)) and not isinstance(rate, bool):
        count, unit = float(rate), "s"
    elif isinstance(rate, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)(?:/([smh]))?", rate.strip())):
        count, unit = float(match[1]), match[2] or "s"
    else:
        raise ImproperlyConfigured(f"rate_limit {rate!r} is no rate such as '10/m', '5/s' or '100/h'")
    return {"s": 1.0, "m": 60.0, "h": 3600.0}[unit] / count if count else None


def check_rate(rate: Any) -> None:
    """Raises `ImproperlyConfigured` if `rate` is no rate."""
    parse_rate(rate)


def check_queue(where: str, queue: Any) -> None:
    """Raises `ImproperlyConfigured` if `queue` cannot be the name of a queue."""
    if not isinstance(queue, str) or not QUEUE.fullmatch(queue):
        raise ImproperlyConfigured(f"{where}: {queue!r} is no name of a queue, which has 1 to 64 of a-z 0-9 . _ -")


def check_priority(where: str, priority: Any) -> None:
    """Raises `ImproperlyConfigured` if `priority` is no number from 0 to 9."""
    if priority is not None and (type(priority) is not int or not 0 <= priority <= 9):
        raise ImproperlyConfigured(f"{where}: priority {priority!r} is not from 0 to 9, the highest")


def check_seconds(where: str, value: Any) -> None:
    """Raises `ImproperlyConfigured` if `value` is neither None nor a positive number."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
        raise ImproperlyConfigured(f"{where}: {value!r} is no number of seconds above 0")


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else value


def _public(source: Any) -> dict[str, Any]:
    """Settings among the attributes of a module or object: lower-case values, no modules and functions."""
    kinds = (str, int, float, bool, type(None), list, tuple, dict, set, frozenset)
    found = {name: getattr(source, name) for name in dir(source) if not name.startswith("_")}
    return {name: value for name, value in found.items() if isinstance(value, kinds) or name == "beat_schedule"}


def _check_url(name: str, url: Any) -> None:
    if url is not None and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise Unsupported(
            f"setting {name!r} has the address of a {str(url).partition(':')[0]!r} server. There is no broker and no "
            "result backend: leave it out and set LONGHAUL_URL, or give the address of the Longhaul API"
        )


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool) and not (value is None and _DEFAULTS[name] is None):
        raise ImproperlyConfigured(f"setting {name!r} is {value!r}, and must be True or False")


def _check_modules(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise ImproperlyConfigured(f"setting {name!r} must be a list of names of modules")


def _check_beat(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured(f"setting {name!r} must be a dictionary of entries by their names")
    for key, entry in value.items():
        check_entry(key, entry)


def _check_routes(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise Unsupported(f"setting {name!r} can only be a dictionary of queues by names or patterns of tasks")
    for pattern, route in value.items():
        where = f"task_routes[{pattern!r}]"
        if not isinstance(pattern, str):
            raise Unsupported(f"{where}: the task must be a name or a pattern such as 'feed.*'")
        options = {"queue": route} if isinstance(route, str) else route
        if not isinstance(options, Mapping):
            raise Unsupported(f"{where} can only be a queue, or a dictionary with queue and priority")
        for option in options:
            if option not in ("queue", "priority"):
                raise Unsupported(f"{where}: option {option!r} is not supported; queue and priority are")
        check_priority(where, options.get("priority"))
        if "queue" in options:
            check_queue(where, options["queue"])


def _check_annotations(name: str, value: Any) -> None:
    from .task import check_options

    if not isinstance(value, Mapping) or not all(isinstance(one, Mapping) for one in value.values()):
        raise Unsupported(f"setting {name!r} can only be a dictionary of options by names of tasks")
    for task, options in value.items():
        check_options(f"task_annotations[{task!r}]", options)


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "beat_schedule": _check_beat,
    "broker_url": _check_url,
    "imports": _check_modules,
    "include": _check_modules,
    "result_backend": _check_url,
    "task_acks_late": _check_flag,
    "task_allow_error_cb_on_chord_header": _check_flag,
    "task_always_eager": _check_flag,
    "task_annotations": _check_annotations,
    "task_default_priority": check_priority,
    "task_default_queue": check_queue,
    "task_default_rate_limit": lambda _, value: check_rate(value),
    "task_eager_propagates": _check_flag,
    "task_ignore_result": _check_flag,
    "task_publish_retry": _check_flag,
    "task_routes": _check_routes,
    "task_soft_time_limit": check_seconds,
    "task_time_limit": check_seconds,
    "timezone": lambda _, value: check_time_zone(value),
}
