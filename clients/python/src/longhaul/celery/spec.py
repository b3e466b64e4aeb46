"""A canvas as the input of its execution: every call with its id, so that its result can be named beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from .canvas import Signature, as_list, chain, chord, chunks, group, xmap, xstarmap
from .exceptions import ImproperlyConfigured, Unsupported
from .utils import uuid

if TYPE_CHECKING:
    from .app import Celery

Spec = dict[str, Any]

_CALL_OPTIONS = ("ignore_result", "time_limit", "soft_time_limit")
_MEMBER_OPTIONS = (
    "countdown", "eta", "expires", "headers", "link", "link_error", "priority", "queue", "retry", "retry_policy",
    "shadow", "task_id", *_CALL_OPTIONS,
)  # fmt: skip
_SIGNATURE_OPTIONS = (*_MEMBER_OPTIONS, "serializer", "compression")


def freeze(app: Celery, call: Signature, task_id: str | None, errbacks: list[Any] | None = None) -> Spec:
    """The spec of a signature. `task_id` becomes the id of its last call, `errbacks` are added to its calls."""
    inherited = [*(errbacks or []), *as_list(call.options.get("link_error"))]
    if isinstance(call, chunks):
        return freeze(app, call.group(), task_id, errbacks)
    if isinstance(call, chain):
        if not call.tasks:
            raise ImproperlyConfigured("an empty chain cannot be sent")
        steps = [step.clone() for step in call.tasks]
        for link in as_list(call.options.get("link")):
            steps[-1].link(link)
        last = task_id or call.id
        specs = [freeze(app, step, None if step is not steps[-1] else last, inherited) for step in steps]
        return {"id": specs[-1]["id"], "chain": specs}
    if isinstance(call, group):
        members = [freeze(app, member, None, inherited) for member in call.tasks]
        return {"id": task_id or call.id or uuid(), "group": members}
    if isinstance(call, chord):
        if call.body is None:
            raise ImproperlyConfigured("a chord needs a body")
        body = call.body.clone()
        for link in as_list(call.options.get("link")):
            body.link(link)
        header = freeze(app, call.header, None)
        end = freeze(app, body, task_id or call.id, inherited)
        return {"id": end["id"], "chord": header, "body": end}
    return _leaf(app, call, task_id, inherited)


def _leaf(app: Celery, call: Signature, task_id: str | None, errbacks: list[Any]) -> Spec:
    check_call_options(call.task, call.options, _SIGNATURE_OPTIONS)
    spec: Spec = {"id": task_id or call.id or uuid()}
    if isinstance(call, xmap):
        task = app.known(call.kwargs["task"]["task"])
        spec.update(map=task, star=isinstance(call, xstarmap), it=call.kwargs["it"])
    else:
        spec.update(task=app.known(call.task), args=list(call.args), kwargs=call.kwargs)
        if call.immutable:
            spec["immutable"] = True
    if (run_at := start_of(call.options)) is not None:
        spec["run_at"] = run_at.isoformat()
    if call.options.get("countdown") is not None:
        # Counted from the time at which the call would begin, not from the time at which the canvas is sent.
        spec.pop("run_at")
        spec["countdown"] = float(call.options["countdown"])
    meta = call_meta(call.options)
    if meta:
        spec["celery"] = meta
    if call.options.get("headers"):
        spec["headers"] = dict(call.options["headers"])
    if call.options.get("link"):
        spec["link"] = [freeze(app, Signature.from_dict(link), None) for link in as_list(call.options["link"])]
    if errbacks:
        spec["link_error"] = [_errback(app, Signature.from_dict(errback)) for errback in errbacks]
    return spec


def _errback(app: Celery, call: Signature) -> Spec:
    if call.get("subtask_type"):
        raise Unsupported(f"an error callback can only be one task, not a {call['subtask_type']}")
    return freeze(app, call, None)


def leaves(spec: Spec) -> list[Spec]:
    """The calls of a spec, callbacks too."""
    if "task" in spec or "map" in spec:
        return [spec, *(leaf for link in spec.get("link", []) + spec.get("link_error", []) for leaf in leaves(link))]
    parts = spec.get("chain") or spec.get("group") or []
    if "chord" in spec:
        parts = [spec["chord"], spec["body"]]
    return [leaf for part in parts for leaf in leaves(part)]


def has_links(spec: Spec) -> bool:
    """Whether a call of the spec has callbacks: the execution then lasts longer than its result."""
    return any(leaf.get("link") or leaf.get("link_error") for leaf in leaves(spec))


def check_call_options(task: str, options: Mapping[str, Any], known: tuple[str, ...] = _SIGNATURE_OPTIONS) -> None:
    """Raises `Unsupported` for an option of a call that this package does not have."""
    for name, value in options.items():
        if name == "serializer" and value not in (None, "json"):
            raise Unsupported(f"{task}: serializer {value!r} is not supported; values cross as JSON")
        if name == "compression" and value is not None:
            raise Unsupported(f"{task}: compression {value!r} is not supported")
        if name not in known:
            raise Unsupported(f"{task}: option {name!r} of a call is not supported")


def start_of(options: Mapping[str, Any]) -> datetime | None:
    """Earliest start by `countdown` or `eta`. Raises `ValueError` for a time without a time zone."""
    countdown, eta = options.get("countdown"), options.get("eta")
    if countdown is not None:
        if isinstance(countdown, bool) or not isinstance(countdown, (int, float)) or countdown < 0:
            raise ImproperlyConfigured(f"countdown {countdown!r} is no number of seconds")
        return datetime.now(timezone.utc) + timedelta(seconds=countdown)
    return None if eta is None else aware("eta", eta)


def call_meta(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the worker has to know about a call, beside its arguments."""
    meta = {name: options[name] for name in _CALL_OPTIONS if options.get(name) is not None}
    expires = options.get("expires")
    if expires is not None:
        if isinstance(expires, (int, float)) and not isinstance(expires, bool):
            expires = datetime.now(timezone.utc) + timedelta(seconds=expires)
        meta["expires"] = aware("expires", expires).isoformat()
    return meta


def aware(name: str, value: Any) -> datetime:
    """The time. Raises `ValueError` if it has no time zone: nobody could say when it is."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    if not isinstance(value, datetime):
        raise ImproperlyConfigured(f"{name} {value!r} is no datetime")
    if value.tzinfo is None:
        raise ValueError(f"{name} {value.isoformat()} has no time zone; use datetime.now(timezone.utc) + …")
    return value
