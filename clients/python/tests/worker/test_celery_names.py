"""What `longhaul.celery` refuses, by name and where it is declared; signatures and eager calls beside Celery's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from longhaul.celery import Celery, Signature, Task, chain, chord, current_task, group, shared_task, signature
from longhaul.celery.conf import parse_rate
from longhaul.celery.exceptions import ImproperlyConfigured, NotRegistered, Unsupported, describe, rebuild
from longhaul.celery.schedules import crontab, solar, timing


@pytest.fixture
def app() -> Celery:
    app = Celery("t")

    @app.task(name="t.add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="t.tsum")
    def tsum(numbers: list[int]) -> int:
        return sum(numbers)

    return app


@pytest.mark.parametrize(
    ("declare", "name"),
    [
        (lambda app: app.task(routing_key="x"), "routing_key"),
        (lambda app: app.task(serializer="pickle"), "serializer"),
        (lambda app: app.task(rate_limit="10/day"), "10/day"),
        (lambda app: app.task(priority=255)(print_it), "priority"),
        (lambda app: app.task(no_such=1), "no_such"),
        (lambda app: app.task(autoretry_for=("ValueError",)), "autoretry_for"),
        (lambda app: app.task(name="t.Upper")(print_it), "t.Upper"),
        (lambda app: app.task(name="t.limits", time_limit=1, soft_time_limit=2)(print_it), "soft_time_limit"),
        (lambda app: Celery("x", broker="redis://localhost"), "broker_url"),
        (lambda app: Celery("x", backend="rpc://"), "result_backend"),
        (lambda app: app.conf.update(task_serializer="pickle"), "task_serializer"),
        (lambda app: app.conf.update(accept_content=["json", "pickle"]), "accept_content"),
        (lambda app: app.conf.update(result_expires=1), "result_expires"),
        (lambda app: app.conf.update(worker_max_tasks_per_child=1), "worker_max_tasks_per_child"),
        (lambda app: app.conf.update(no_such_setting=1), "no_such_setting"),
        (lambda app: app.conf.update(task_routes=[print_it]), "task_routes"),
        (lambda app: app.conf.update(task_routes={"t.add": {"exchange": "x"}}), "exchange"),
        (lambda app: app.conf.update(task_annotations={"t.add": {"no_such": 1}}), "no_such"),
        (lambda app: app.conf.update(timezone="Mars/Olympus"), "Mars/Olympus"),
        (lambda app: app.conf.update(beat_schedule={"a": {"task": "t.add", "schedule": 30.0}}), "30 s"),
        (lambda app: app.conf.update(beat_schedule={"a": {"task": "t.add", "schedule": object()}}), "object"),
        (lambda app: app.conf.update(beat_schedule={"a": {"schedule": 60}}), "name a task"),
        (lambda app: solar("sunset", 1, 2), "solar"),
        (lambda app: crontab(nowfun=datetime.now), "nowfun"),
        (lambda app: crontab(minute="a b;c"), "minute"),
        (lambda app: app.control.rate_limit("t.add", "1/s"), "rate_limit"),
        (lambda app: app.control.add_consumer("q"), "add_consumer"),
        (lambda app: app.steps, "steps"),
        (lambda app: app.amqp, "amqp"),
        (lambda app: app.tasks["t.add"].s(1, 1).apply_async(exchange="x"), "exchange"),
        (lambda app: app.tasks["t.add"].apply_async((1, 1), compression="zlib"), "zlib"),
        (lambda app: app.tasks["t.add"].s(1, 1).stamp(visitor=object()), "visitors"),
        (lambda app: group(app.tasks["t.add"].s(1, 1)).freeze(), "freeze"),
        (lambda app: app.autodiscover_tasks(), "autodiscover_tasks"),
        (lambda app: app.worker_main(), "worker_main"),
    ],
)
def test_what_is_unsupported_is_named_where_it_is_declared(
    app: Celery, declare: Callable[[Celery], Any], name: str
) -> None:
    with pytest.raises(ImproperlyConfigured) as raised:
        declare(app)
    assert name in str(raised.value)


def print_it() -> None:
    """A function for tasks."""


def test_unsupported_import_is_named() -> None:
    with pytest.raises(Unsupported, match="signals"):
        exec("from longhaul.celery import signals", {})  # noqa: S102
    with pytest.raises(ImportError, match="no_such"):
        exec("from longhaul.celery import no_such", {})  # noqa: S102


def test_times_without_a_zone_are_refused(app: Celery) -> None:
    for option in ("eta", "expires"):
        with pytest.raises(ValueError, match="no time zone"):
            options: dict[str, Any] = {option: datetime.now() + timedelta(days=1)}
            app.tasks["t.add"].apply_async((1, 1), **options)


def test_settings_come_from_modules_and_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("settings_of_a_test")
    module.__dict__.update(CELERY_TIMEZONE="Europe/Oslo", CELERY_TASK_DEFAULT_QUEUE="low", DEBUG=True)
    monkeypatch.setitem(sys.modules, "settings_of_a_test", module)
    app = Celery("t", set_as_current=False)
    app.config_from_object("settings_of_a_test", namespace="CELERY")
    assert (app.conf.timezone, app.conf["task_default_queue"]) == ("Europe/Oslo", "low")
    with pytest.raises(Unsupported, match="is not supported"):
        app.config_from_object("settings_of_a_test")
    with pytest.raises(AttributeError, match="no_such"):
        _ = app.conf.no_such


def test_annotations_and_defaults_reach_tasks_declared_before(app: Celery) -> None:
    add = app.tasks["t.add"]
    app.conf.task_time_limit = 60
    app.conf.task_annotations = {"*": {"priority": 2}, "t.add": {"rate_limit": "10/m"}}
    assert (add.time_limit, add.priority, add.rate_limit) == (60, 2, "10/m")
    assert app.route("t.add", add, {}) == {"queue": "default", "priority": 2}
    app.conf.task_routes = {"t.*": {"queue": "feeds", "priority": 7}}
    assert app.route("t.add", add, {"priority": 9}) == {"queue": "feeds", "priority": 9}


def test_rates_and_timings() -> None:
    assert [parse_rate(rate) for rate in ("10/m", "5/s", "100/h", 2, None, 0)] == [6.0, 0.2, 36.0, 0.5, None, None]
    assert timing("x", crontab(minute="*/15", hour=[1, 2], day_of_week="monday,fri")) == {
        "cron": "*/15 1,2 * * MON,FRI"
    }
    assert timing("x", timedelta(minutes=5)) == {"interval_seconds": 300}


def test_shared_tasks_belong_to_later_apps_too() -> None:
    @shared_task(name="shared.double")
    def double(x: int) -> int:
        return 2 * x

    app = Celery("later")
    assert app.tasks["shared.double"](4) == double(4) == 8
    assert double.s(2).app is app


def test_retry_called_directly_raises_the_exception(app: Celery) -> None:
    @app.task(name="t.direct", bind=True)
    def direct(self: Task) -> None:
        assert current_task.request is self.request
        raise self.retry(exc=OSError("no"))

    with pytest.raises(OSError, match="no"):
        direct()
    assert not current_task


def test_eager_tasks_retry_link_and_fail(app: Celery) -> None:
    app.conf.task_always_eager = True
    seen: list[Any] = []

    @app.task(name="t.flaky", bind=True, max_retries=2)
    def flaky(self: Task) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=100)
        return self.request.retries

    @app.task(name="t.fail")
    def fail() -> None:
        raise ValueError("x")

    @app.task(name="t.errback")
    def errback(request: Any, exc: Any, traceback: Any) -> None:
        seen.append((request.task, repr(exc)))

    assert flaky.delay().get() == 2
    result = app.tasks["t.add"].apply_async((1, 1), link=app.tasks["t.add"].s(5))
    assert (result.get(), result.children[0].get()) == (2, 7)
    failed = fail.apply_async(link_error=errback.s())
    assert (failed.state, seen) == ("FAILURE", [("t.fail", "ValueError('x')")])
    with pytest.raises(ValueError, match="x"):
        failed.get()


def test_exceptions_cross_and_no_module_is_imported() -> None:
    assert repr(rebuild(describe(ValueError("a", 1)))) == "ValueError('a', 1)"
    assert "wsgiref" not in sys.modules
    odd = rebuild({"exc_type": "Odd", "exc_module": "wsgiref.types", "exc_message": ["b"]})
    assert (type(odd).__name__, str(odd)) == ("Odd", "b")
    assert "wsgiref" not in sys.modules
    assert (
        type(rebuild({"exc_type": "SystemExit", "exc_module": "builtins", "exc_message": []})).__name__ == "SystemExit"
    )
    assert isinstance(rebuild({"exc_type": "eval", "exc_module": "builtins", "exc_message": ["1"]}), Exception)


def test_unknown_task_is_named(app: Celery) -> None:
    with pytest.raises(NotRegistered, match=r"t\.none"):
        signature("t.none", app=app)()


SHAPES = [
    lambda c, add, tsum: c.chain(add.s(2, 2), add.s(4), add.s(8)),
    lambda c, add, tsum: add.s(2, 2) | add.s(4),
    lambda c, add, tsum: (add.s(1) | add.s(2)) | (add.s(3) | add.s(4)),
    lambda c, add, tsum: c.chain(add.s(2, 2), c.group(add.s(1)), add.s(1)),
    lambda c, add, tsum: c.chain(add.s(2, 2), c.group(add.s(1), add.s(2)), tsum.s()),
    lambda c, add, tsum: c.chain(c.group(add.s(1, 1)), add.s(2)),
    lambda c, add, tsum: c.group(add.s(i, i) for i in range(4)) | tsum.s() | add.s(1),
    lambda c, add, tsum: c.chord([add.s(i, i) for i in range(3)], tsum.s()) | add.s(1),
    lambda c, add, tsum: c.chain(c.group(add.s(1, 1), add.s(2, 2)), c.group(tsum.s(), tsum.s())),
    lambda c, add, tsum: add.s(2).clone(args=(4,)),
    lambda c, add, tsum: add.si(2, 2).clone(args=(4,)),
]


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_canvas_has_the_value_that_it_has_in_celery(app: Celery, number: int) -> None:
    celery = pytest.importorskip("celery")
    theirs: Any = celery.Celery("theirs", set_as_current=False, broker="memory://", backend="cache+memory://")
    theirs.conf.task_always_eager = True

    @theirs.task(name="t.add")  # type: ignore[untyped-decorator]
    def add(x: int, y: int) -> int:
        return x + y

    @theirs.task(name="t.tsum")  # type: ignore[untyped-decorator]
    def tsum(numbers: list[int]) -> int:
        return sum(numbers)

    app.conf.task_always_eager = True
    ours_module = importlib.import_module("longhaul.celery")
    ours = SHAPES[number](ours_module, app.tasks["t.add"], app.tasks["t.tsum"])
    same = SHAPES[number](celery, add, tsum)
    args = (1,) if number == 2 else ()
    assert ours.apply_async(args).get() == same.apply_async(args).get()


def test_signatures_keep_their_parts(app: Celery) -> None:
    add = app.tasks["t.add"]
    sig = add.signature((2, 2), {"debug": True}, countdown=10)
    assert (sig.args, sig.kwargs, sig.options) == ((2, 2), {"debug": True}, {"countdown": 10})
    whole = chord(group(add.s(1, 1)), chain(add.s(1), add.s(2)))
    copy: Any = Signature.from_dict(dict(whole))
    assert copy == whole and copy is not whole
    copy.tasks[0].set(countdown=1)
    assert whole.tasks[0].options == {}
    assert repr(whole.clone()) == repr(whole)
