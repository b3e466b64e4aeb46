"""Periodic tasks: `crontab`, and the entries of `app.conf.beat_schedule` as schedules of the server."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..errors import LonghaulError, NotFound
from .exceptions import ImproperlyConfigured, Unsupported

if TYPE_CHECKING:
    from .app import Celery

log = logging.getLogger("longhaul.celery")

Field = str | int | Iterable[int]

_KEY = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*")
_MAX_INTERVAL = 31_622_400
_ENTRY_FIELDS = ("task", "schedule", "args", "kwargs", "options", "relative")
_ENTRY_OPTIONS = ("queue", "priority", "headers", "expires")


class crontab:
    """Times of a cron line, in the time zone of `app.conf.timezone`."""

    def __init__(
        self,
        minute: Field = "*",
        hour: Field = "*",
        day_of_week: Field = "*",
        day_of_month: Field = "*",
        month_of_year: Field = "*",
        **unsupported: Any,
    ) -> None:
        for name in unsupported:
            raise Unsupported(f"crontab option {name!r} is not supported; the time zone is app.conf.timezone")
        fields = (minute, hour, day_of_month, month_of_year, day_of_week)
        names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        self.line = " ".join(_field(name, field) for name, field in zip(names, fields))
        """The cron line: minute, hour, day of month, month, day of week."""

    def __repr__(self) -> str:
        return f"<crontab: {self.line}>"


def solar(*_: Any, **__: Any) -> Any:
    """Not supported: raises."""
    raise Unsupported("solar schedules are not supported; use crontab")


def _field(name: str, value: Field) -> str:
    if isinstance(value, bool):
        raise ImproperlyConfigured(f"crontab({name}={value!r}) is no field of a cron line")
    if isinstance(value, (int, str)):
        text = str(value).replace(" ", "")
    else:
        text = ",".join(str(one) for one in value)
    if not re.fullmatch(r"[0-9A-Za-z*,/-]+", text):
        raise ImproperlyConfigured(f"crontab({name}={value!r}) is no field of a cron line")
    if name == "day_of_week":
        # Celery knows the English names in full.
        text = re.sub(r"[A-Za-z]+", lambda match: match[0][:3].upper(), text)
    return text


def check_time_zone(name: Any) -> None:
    """Raises `ImproperlyConfigured` if there is no such time zone."""
    if name is None:
        return
    try:
        ZoneInfo(str(name))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ImproperlyConfigured(f"setting 'timezone': there is no time zone {name!r}") from error


def timing(where: str, schedule: Any) -> dict[str, Any]:
    """The timing of a schedule of the server. Raises if it has none like this."""
    if isinstance(schedule, crontab):
        return {"cron": schedule.line}
    if isinstance(schedule, timedelta):
        schedule = schedule.total_seconds()
    if isinstance(schedule, bool) or not isinstance(schedule, (int, float)):
        kind = type(schedule).__name__
        raise Unsupported(f"{where}: a schedule of the type {kind} is not supported; seconds, timedelta, crontab are")
    if not 60 <= schedule <= _MAX_INTERVAL:
        raise Unsupported(f"{where}: every {schedule:g} s is not supported; an interval is from 60 s to a year")
    if schedule != int(schedule):
        raise Unsupported(f"{where}: every {schedule:g} s is not supported; an interval has whole seconds")
    return {"interval_seconds": int(schedule)}


def check_entry(name: Any, entry: Any) -> None:
    """Raises if an entry of `beat_schedule` cannot become a schedule of the server."""
    where = f"beat_schedule[{name!r}]"
    if not isinstance(entry, Mapping):
        raise ImproperlyConfigured(f"{where} must be a dictionary")
    for field in entry:
        if field not in _ENTRY_FIELDS:
            raise Unsupported(f"{where}: {field!r} is not supported")
    if not isinstance(entry.get("task"), str):
        raise ImproperlyConfigured(f"{where} must name a task")
    if entry.get("relative"):
        raise Unsupported(f"{where}: 'relative' is not supported; an interval counts from the time at which it was set")
    for option in entry.get("options") or {}:
        if option not in _ENTRY_OPTIONS:
            known = ", ".join(_ENTRY_OPTIONS)
            raise Unsupported(f"{where}: option {option!r} is not supported; {known} are")
    if isinstance((entry.get("options") or {}).get("expires"), (int, float, type(None))) is False:
        raise Unsupported(f"{where}: 'expires' can only be seconds")
    timing(where, entry.get("schedule"))


def schedule_key(app: str, name: str) -> str:
    """Key of an entry's schedule: `app.name`, with other characters than a-z 0-9 . _ - made `-`."""
    key = re.sub(r"[^a-z0-9._-]+", "-", f"{app}.{name}".lower()).strip(".-")
    if not _KEY.fullmatch(key) or len(key) > 64:
        raise ImproperlyConfigured(f"beat_schedule[{name!r}]: the key {key!r} of its schedule is invalid or too long")
    return key


def specs(app: Celery) -> dict[str, dict[str, Any]]:
    """Schedules of the app by their keys."""
    found: dict[str, dict[str, Any]] = {}
    for name, entry in app.conf.beat_schedule.items():
        options = dict(entry.get("options") or {})
        task = app.tasks.get(entry["task"])
        route = app.route(entry["task"], task, options)
        celery: dict[str, Any] = {}
        if options.get("expires") is not None:
            celery["expires_after"] = options["expires"]
        call: dict[str, Any] = {"args": list(entry.get("args") or ()), "kwargs": dict(entry.get("kwargs") or {})}
        if celery:
            call["celery"] = celery
        spec: dict[str, Any] = {
            **timing(name, entry["schedule"]),
            "definition": app.definition_of(entry["task"]),
            "input": call,
            "metadata": {"celery_app": app.main, "periodic_task_name": name, **_headers(options)},
            "queue": route["queue"],
            # Celery starts a run at each tick, also if the last one has not ended. Schedules never overlap; a tick
            # that comes too early waits.
            "overlap": "queue",
            "pause_after": 0,
        }
        if route.get("priority") is not None:
            spec["priority"] = route["priority"]
        if "cron" in spec and app.conf.timezone:
            spec["time_zone"] = str(app.conf.timezone)
        found[schedule_key(app.main, name)] = spec
    return found


def publish(app: Celery) -> list[str]:
    """Makes the schedules of the server those of `beat_schedule`, and returns their keys.

    Deletes schedules of the app that have no entry any more.
    """
    wanted = specs(app)
    for key, spec in wanted.items():
        try:
            app.api.request("PUT", f"/v1/schedules/{quote(key)}", json={"key": key, **spec})
        except NotFound:
            app.api.request("POST", "/v1/schedules", json={"key": key, **spec})
    for one in list(app.api.pages("/v1/schedules", "schedules", "after", "next_after", {})):
        if one["spec"].get("metadata", {}).get("celery_app") == app.main and one["key"] not in wanted:
            app.api.request("DELETE", f"/v1/schedules/{quote(one['key'])}")
    return sorted(wanted)


def publish_in_background(app: Celery) -> None:
    """Publishes in a thread, as soon as the worker has published the definitions that the schedules name."""
    if app.conf.beat_schedule:
        threading.Thread(target=_publish_patiently, args=(app,), name="longhaul-schedules", daemon=True).start()


def _publish_patiently(app: Celery) -> None:
    for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0):
        time.sleep(pause)
        try:
            log.info("schedules are published: %s", ", ".join(publish(app)))
            return
        except LonghaulError as error:
            last = error
    log.error("schedules are not published: %s", last)


def _headers(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"headers": dict(options["headers"])} if options.get("headers") else {}
