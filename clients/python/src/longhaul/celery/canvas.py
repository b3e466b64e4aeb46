"""Signatures, and the canvas made of them: `chain`, `group`, `chord`, `map`, `starmap`, `chunks`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .exceptions import ImproperlyConfigured, Unsupported

if TYPE_CHECKING:
    from .app import Celery
    from .result import AsyncResult

_KINDS: dict[str, type[Signature]] = {}


class Signature(dict[str, Any]):
    """A call of a task that is not made yet. A dictionary of JSON values, so it may be an argument of a task."""

    def __init__(
        self,
        task: Any = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        subtask_type: str | None = None,
        immutable: bool = False,
        app: Celery | None = None,
        **more: Any,
    ) -> None:
        if isinstance(task, Mapping):
            super().__init__(task)
        else:
            super().__init__(
                task=task if isinstance(task, str) or task is None else task.name,
                args=list(args or ()),
                kwargs=dict(kwargs or {}),
                options={**(options or {}), **more},
                subtask_type=subtask_type,
                immutable=immutable,
            )
        self._app = app or getattr(task, "app", None)

    @staticmethod
    def from_dict(data: Mapping[str, Any], app: Celery | None = None) -> Signature:
        """The signature of this dictionary, and of those inside it."""
        kind = data.get("subtask_type")
        if kind is not None and kind not in _KINDS:
            raise ImproperlyConfigured(f"a signature has the unknown kind {kind!r}")
        made = Signature.__new__(_KINDS[kind] if kind else Signature)
        Signature.__init__(made, data, app=app or getattr(data, "_app", None))
        made["args"] = list(data.get("args") or ())
        made["kwargs"] = dict(data.get("kwargs") or {})
        made["options"] = dict(data.get("options") or {})
        made["immutable"] = bool(data.get("immutable"))
        for option in ("link", "link_error"):
            if made["options"].get(option):
                made["options"][option] = [_copy(one, app) for one in as_list(made["options"][option])]
        if kind:
            made["kwargs"] = {
                name: [_copy(one, app) for one in part] if name == "tasks" else _copy(part, app)
                for name, part in made["kwargs"].items()
            }
        return made

    @property
    def app(self) -> Celery:
        """The app, by default the one that was made last."""
        from .app import current

        return self._app or current()

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self["task"])

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments."""
        return tuple(self["args"])

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments."""
        return self["kwargs"]  # type: ignore[no-any-return]

    @property
    def options(self) -> dict[str, Any]:
        """Options of `apply_async`."""
        return self["options"]  # type: ignore[no-any-return]

    @property
    def immutable(self) -> bool:
        """Whether the result of an earlier task is not passed to it."""
        return bool(self["immutable"])

    @property
    def id(self) -> str | None:
        """Id given by `freeze` or the option `task_id`."""
        found = self.options.get("task_id")
        return str(found) if found else None

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.task

    def clone(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Signature:
        """A copy with more arguments, which come first, and options."""
        immutable = options.pop("immutable", self.immutable)
        made = Signature.from_dict(self, app=self._app)
        made["immutable"] = immutable
        made["options"].update(options)
        made._add(tuple(args or ()), dict(kwargs or {}))
        return made

    def _add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Puts arguments before those of the signature, unless that is immutable."""
        if not self.immutable:
            self["args"] = [*args, *self["args"]]
            self["kwargs"] = {**self["kwargs"], **kwargs}

    def set(self, immutable: bool | None = None, **options: Any) -> Signature:
        """Sets options, and returns the signature."""
        if immutable is not None:
            self["immutable"] = immutable
        self.options.update(options)
        return self

    def set_immutable(self, immutable: bool) -> None:
        """As `set(immutable=…)`."""
        self["immutable"] = immutable

    def link(self, callback: Mapping[str, Any]) -> Signature:
        """Adds a call that follows if the task succeeds, with its result. Returns that call."""
        return self._append("link", callback)

    def link_error(self, errback: Mapping[str, Any]) -> Signature:
        """Adds a call that follows if the task fails. Returns that call."""
        return self._append("link_error", errback)

    def on_error(self, errback: Mapping[str, Any]) -> Signature:
        """As `link_error`, but returns the signature itself."""
        self.link_error(errback)
        return self

    def _append(self, option: str, callback: Mapping[str, Any]) -> Signature:
        found = maybe_signature(callback, self._app)
        assert found is not None
        links = as_list(self.options.get(option))
        if found not in links:
            links.append(found)
        self.options[option] = links
        return found

    def stamp(self, visitor: Any = None, **headers: Any) -> None:
        """Adds headers to each task of the canvas, its callbacks too; they become metadata of the executions."""
        if visitor is not None:
            raise Unsupported("stamping visitors are not supported; pass headers to `stamp`")
        for part in self._parts():
            part.options["headers"] = {**(part.options.get("headers") or {}), **headers}
            for link in as_list(part.options.get("link")) + as_list(part.options.get("link_error")):
                link.stamp(**headers)

    def _parts(self) -> Iterable[Signature]:
        return (self,)

    def freeze(self, _id: str | None = None) -> AsyncResult:
        """Gives the call its id, and returns its result before it is sent."""
        from .result import AsyncResult
        from .utils import uuid

        self.options["task_id"] = _id or self.id or uuid()
        return AsyncResult(self.options["task_id"], app=self.app)

    def apply_async(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Sends the call, with more arguments and options."""
        made = self.clone(args, kwargs)
        return self.app.send_task(made.task, made.args, made.kwargs, **{**made.options, **options})

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """As `apply_async(args, kwargs)`."""
        return self.apply_async(args, kwargs)

    def apply(self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Runs the call here, and returns its result."""
        from .eager import apply_canvas

        return apply_canvas(self.clone(args, kwargs, **options))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function of the task here."""
        made = self.clone(args, kwargs)
        return self.app.task_named(made.task)(*made.args, **made.kwargs)

    def __invert__(self) -> Any:
        return self.apply_async().get()

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Signature):
            return NotImplemented
        return chain(self, other)

    def __deepcopy__(self, _: Any) -> Signature:
        return self.clone()

    def __repr__(self) -> str:
        shown = [repr(arg) for arg in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.task}({', '.join(shown)})"


class _Canvas(Signature):
    """A signature of several calls. It is sent as one execution, which starts the calls as its children."""

    kind = ""

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    def _make(self, app: Celery | None, options: Mapping[str, Any], **parts: Any) -> None:
        Signature.__init__(self, f"canvas.{self.kind}", (), parts, options, self.kind, app=app)

    def apply_async(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        made = self.clone(args, kwargs)
        return self.app.send_canvas(made, {**made.options, **options})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply_async(args, kwargs)

    def freeze(self, _id: str | None = None) -> Any:
        raise Unsupported(f"freeze of a {self.kind} is not supported; pass task_id to apply_async")


class chain(_Canvas):
    """Calls one after the other, each with the result of the one before."""

    kind = "chain"

    def __new__(cls, *tasks: Any, **options: Any) -> Any:
        made = super().__new__(cls)
        if tasks and not options and len(flat := _flatten(_listed(tasks))) == 1:
            return flat[0]
        return made

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        self._make(app, options, tasks=_flatten(_listed(tasks)))

    @property
    def tasks(self) -> list[Signature]:
        """The calls."""
        return self.kwargs["tasks"]  # type: ignore[no-any-return]

    @property
    def app(self) -> Celery:
        """The app of its first call."""
        return self._app or self.tasks[0].app

    def _add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.tasks:
            self.tasks[0]._add(args, kwargs)

    def _parts(self) -> Iterable[Signature]:
        return itertools.chain.from_iterable(task._parts() for task in self.tasks)

    def __repr__(self) -> str:
        return " | ".join(repr(task) for task in self.tasks)


class group(_Canvas):
    """Calls at the same time; the result is the list of their results."""

    kind = "group"

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        found = _listed(tasks)
        if len(found) == 1 and isinstance(found[0], group):
            found = list(found[0].tasks)
        self._make(app, options, tasks=found)

    @property
    def tasks(self) -> list[Signature]:
        """The calls."""
        return self.kwargs["tasks"]  # type: ignore[no-any-return]

    @property
    def app(self) -> Celery:
        """The app of its first call."""
        from .app import current

        return self._app or (self.tasks[0].app if self.tasks else current())

    def _add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for task in self.tasks:
            task._add(args, kwargs)

    def _parts(self) -> Iterable[Signature]:
        return itertools.chain.from_iterable(task._parts() for task in self.tasks)

    def link(self, callback: Mapping[str, Any]) -> Signature:
        """Adds a call without arguments of a result to its first call: the group has no result of its own to pass."""
        found = maybe_signature(callback, self._app)
        assert found is not None
        return self.tasks[0].link(found.clone().set(immutable=True))

    def link_error(self, errback: Mapping[str, Any]) -> Any:
        """Adds a call to each of its calls."""
        return tuple(task.link_error(errback) for task in self.tasks)

    def skew(self, start: float = 1.0, stop: float | None = None, step: float = 1.0) -> group:
        """Sets countdowns that grow by `step` from call to call, and begin again at `stop`."""

        def countdowns() -> Iterable[float]:
            while True:
                value = start
                while stop is None or value < stop:
                    yield value
                    value += step

        if stop is not None and start >= stop:
            raise ImproperlyConfigured("skew needs a start below its stop")
        for task, countdown in zip(self.tasks, countdowns()):
            task.set(countdown=countdown)
        return self

    def __len__(self) -> int:
        return len(self.tasks)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"({', '.join(repr(task) for task in self.tasks)})"


class chord(_Canvas):
    """A group, its header, and a call with the list of its results, the body."""

    kind = "chord"

    def __init__(self, header: Any, body: Any = None, app: Celery | None = None, **options: Any) -> None:
        found = header if isinstance(header, group) else group(header)
        self._make(app, options, header=found, body=maybe_signature(body, app))

    @property
    def header(self) -> group:
        """The header."""
        return self.kwargs["header"]  # type: ignore[no-any-return]

    @property
    def tasks(self) -> list[Signature]:
        """Calls of the header."""
        return self.header.tasks

    @property
    def body(self) -> Signature | None:
        """The body."""
        return self.kwargs["body"]  # type: ignore[no-any-return]

    @property
    def app(self) -> Celery:
        """The app of its body."""
        return self._app or (self.body.app if self.body else self.header.app)

    def _add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.header._add(args, kwargs)

    def _parts(self) -> Iterable[Signature]:
        return itertools.chain(self.header._parts(), self.body._parts() if self.body else ())

    def link(self, callback: Mapping[str, Any]) -> Signature:
        """Adds a call to the body."""
        return self._own_body().link(callback)

    def link_error(self, errback: Mapping[str, Any]) -> Any:
        """Adds a call to the body: it runs once if a task of the header or the body fails.

        With `task_allow_error_cb_on_chord_header` also to each task of the header.
        """
        if self.app.conf.task_allow_error_cb_on_chord_header:
            self.header.link_error(errback)
        return self._own_body().link_error(errback)

    def _own_body(self) -> Signature:
        if self.body is None:
            raise ImproperlyConfigured("a chord without a body has nothing to link to")
        return self.body

    def __call__(self, body: Any = None, **options: Any) -> Any:
        """Sends it; `body` is its body if it has none yet."""
        made = self.clone()
        if body is not None:
            made.kwargs["body"] = maybe_signature(body, self._app)
        return made.apply_async(**options)

    def __repr__(self) -> str:
        body = self.body
        if body is None:
            return f"%?({self.header!r})"
        rest = [repr(arg) for arg in body.args] + [f"{name}={value!r}" for name, value in body.kwargs.items()]
        return f"%{body.task}({', '.join([repr(self.header), *rest])})"


class xmap(_Canvas):
    """One execution that calls the function of a task for each item, one after the other."""

    kind = "map"

    def __init__(self, task: Any, it: Iterable[Any], app: Celery | None = None, **options: Any) -> None:
        found = maybe_signature(task, app) if isinstance(task, Mapping) else Signature(task)
        assert found is not None
        items = [list(one) if isinstance(one, (tuple, range)) else one for one in it]
        self._make(app or found._app, options, task=found, it=items)

    def _add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Takes no more arguments."""

    def __repr__(self) -> str:
        return f"[{self.kwargs['task']['task']}(x) for x in {self.kwargs['it']!r}]"


class xstarmap(xmap):
    """As `xmap`, with each item as the arguments."""

    kind = "starmap"

    def __repr__(self) -> str:
        return f"[{self.kwargs['task']['task']}(*x) for x in {self.kwargs['it']!r}]"


class chunks(_Canvas):
    """A group of `starmap`s of at most `n` items."""

    kind = "chunks"

    def __init__(self, task: Any, it: Iterable[Any], n: int, app: Celery | None = None, **options: Any) -> None:
        if n < 1:
            raise ImproperlyConfigured(f"chunks of {n} items are impossible")
        found = Signature(task)
        items = [list(one) if isinstance(one, (tuple, range)) else one for one in it]
        self._make(app or found._app, options, task=found, it=items, n=n)

    def group(self) -> group:
        """The group."""
        items, n = self.kwargs["it"], self.kwargs["n"]
        parts = [items[start : start + n] for start in range(0, len(items), n)]
        return group([xstarmap(self.kwargs["task"], part, app=self._app) for part in parts], app=self._app)

    def _add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Takes no more arguments."""

    def apply_async(
        self, args: Iterable[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        return self.group().apply_async(**{**self.options, **options})

    def __repr__(self) -> str:
        return f"{self.kwargs['task']['task']}.chunks({self.kwargs['it']!r}, {self.kwargs['n']})"


def signature(varies: Any, *args: Any, **kwargs: Any) -> Signature:
    """The signature of a dictionary, or of a task by its name: `signature("tasks.add", args=(2, 2), countdown=10)`."""
    if isinstance(varies, Mapping):
        made = varies if isinstance(varies, Signature) else Signature.from_dict(varies, kwargs.get("app"))
        return made.clone() if isinstance(varies, Signature) else made
    return Signature(varies, *args, **kwargs)


def maybe_signature(value: Any, app: Celery | None = None) -> Signature | None:
    """The signature of a dictionary; None stays None."""
    if value is None or isinstance(value, Signature):
        return value
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured(f"{value!r} is no signature; `task.s(…)` makes one")
    return Signature.from_dict(value, app)


def as_list(value: Any) -> list[Any]:
    """A list of links: one is a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _listed(tasks: Sequence[Any]) -> list[Signature]:
    """Signatures of the arguments of `group(a, b)` or `group([a, b])`."""
    if len(tasks) == 1 and not isinstance(tasks[0], Mapping):
        tasks = list(tasks[0])
    found = [maybe_signature(task) for task in tasks]
    return [task for task in found if task is not None]


def _flatten(tasks: Sequence[Signature]) -> list[Signature]:
    """Steps of a chain: chains become their steps, and a group that something follows becomes a chord."""
    tasks = [task.clone() for task in tasks]
    steps: list[Signature] = []
    for task in tasks:
        inner = task.tasks if isinstance(task, chain) and not _has_links(task) else [task]
        for step in inner:
            if isinstance(step, chunks):
                step = step.group()
            before = steps[-1] if steps else None
            if isinstance(before, group):
                if len(before) == 1:
                    steps[-1] = before.tasks[0]
                    steps.append(step)
                else:
                    steps[-1] = chord(before, step, app=before._app)
            else:
                steps.append(step)
    # A group of one call is that call, wherever it stands between others.
    return [step.tasks[0] if isinstance(step, group) and len(step) == 1 and len(steps) > 1 else step for step in steps]


def _has_links(task: Signature) -> bool:
    return bool(task.options.get("link") or task.options.get("link_error"))


def _copy(part: Any, app: Celery | None) -> Any:
    """A copy of a signature; items of `map` and numbers stay as they are."""
    is_signature = isinstance(part, Mapping) and "subtask_type" in part and "task" in part
    return Signature.from_dict(part, getattr(part, "_app", None) or app) if is_signature else part
