"""Calls and canvases of `longhaul.celery` by a worker against the fake server, with deaths at every boundary."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery_server import CeleryServer
from fake_server import KEY

from longhaul.celery import AsyncResult, Celery, GroupResult, Task, chain, chord, group, signature
from longhaul.celery.exceptions import (
    ChordError,
    Ignore,
    Reject,
    ResultForgotten,
    SoftTimeLimitExceeded,
    TaskError,
    TaskRevokedError,
    TimeLimitExceeded,
    TimeoutError,
    Unsupported,
    WorkerLostError,
)

calls: Counter[str] = Counter()


@pytest.fixture
def server() -> Iterator[CeleryServer]:
    server = CeleryServer()
    yield server
    server.close()
    assert server.violations == []


@pytest.fixture
def app(server: CeleryServer) -> Celery:
    calls.clear()
    app = Celery("t", broker=server.url, api_key=KEY)

    @app.task(name="t.add")
    def add(x: int, y: int) -> int:
        calls["add"] += 1
        return x + y

    @app.task(name="t.mul")
    async def mul(x: int, y: int) -> int:
        calls["mul"] += 1
        return x * y

    @app.task(name="t.tsum")
    def tsum(numbers: list[int]) -> int:
        calls["tsum"] += 1
        return sum(numbers)

    @app.task(name="t.fail")
    def fail(text: str) -> None:
        calls["fail"] += 1
        raise ValueError(text)

    @app.task(name="t.errback")
    def errback(request: Any, exc: Exception, traceback: str) -> str:
        calls["errback"] += 1
        return f"{request.task}{request.args} {exc!r} {'raise ValueError' in (traceback or '')}"

    @app.task(name="t.errback_id")
    def errback_id(id: str) -> str:
        calls["errback_id"] += 1
        return id

    return app


@pytest.fixture
def run(app: Celery, serve: Callable[..., Any]) -> Callable[[], Celery]:
    """Starts a worker for the app, after the test has added its tasks."""

    def start() -> Celery:
        serve(app.longhaul_app)
        return app

    return start


def sig(app: Celery, name: str, *args: Any) -> Any:
    return app.tasks[f"t.{name}"].s(*args)


def big(app: Celery) -> Any:
    """A canvas of every kind of node: its result is 4 * (3 + 7 + 11) = 84."""
    add, mul, tsum = (app.tasks[f"t.{name}"] for name in ("add", "mul", "tsum"))
    header = group(add.s(1, 2), chain(add.s(1, 2), add.s(4)), chain(add.s(1, 1), group(add.s(1), mul.s(4)), tsum.s()))
    return chain(header, tsum.s(), mul.s(4).set(link=add.s(1)))


def test_canvas_survives_a_death_at_each_boundary(server: CeleryServer, run: Callable[[], Celery]) -> None:
    app = run()
    points: list[str] = []
    wanted = [-1]

    def boundary(execution: Any, point: str) -> bool:
        points.append(point)
        return len(points) - 1 == wanted[0]

    server.boundary = boundary
    result = big(app)()
    assert result.get(timeout=20) == 84
    # The callback lasts longer than the result.
    server.wait(server.executions[result._canvas.execution_id])
    count = len(points)
    assert count > 20
    for place in range(0, count, 2):
        points.clear()
        wanted[0] = place
        before = len(server.executions)
        result = big(app)()
        assert result.get(timeout=20) == 84, f"died at boundary {place}"
        assert result.children[0].get(timeout=20) == 85
        root = server.executions[result._canvas.execution_id]
        server.wait(root)
        assert len(server.executions) - before == 11, f"a child was started twice or not: boundary {place}"


def test_chain_passes_results_and_has_parents(run: Callable[[], Celery]) -> None:
    app = run()
    result = chain(sig(app, "add", 4, 4), sig(app, "mul", 8), sig(app, "mul", 10))()
    assert [result.get(timeout=10), result.parent.get(), result.parent.parent.get()] == [640, 64, 8]
    assert [value for _, value in result.collect()] == [640]


def test_chain_stops_at_a_failure_with_its_exception(run: Callable[[], Celery]) -> None:
    app = run()
    result = chain(sig(app, "add", 1, 1), app.tasks["t.fail"].si("no"), sig(app, "mul", 10))()
    with pytest.raises(ValueError, match="no"):
        result.get(timeout=10)
    assert result.state == "FAILURE" and result.parent.state == "FAILURE" and result.parent.parent.state == "SUCCESS"
    assert calls["mul"] == 0
    assert "raise ValueError(text)" in result.parent.traceback


def test_group_runs_all_and_raises_the_first_in_order(run: Callable[[], Celery]) -> None:
    app = run()
    result = group(sig(app, "fail", "a"), sig(app, "add", 1, 1), sig(app, "fail", "b"))()
    with pytest.raises(ValueError, match="a"):
        result.get(timeout=10)
    values = result.get(timeout=10, propagate=False)
    assert repr(values) == "[ValueError('a'), 2, ValueError('b')]"
    assert (result.completed_count(), result.failed(), result.successful()) == (1, True, False)
    restored = GroupResult.restore(result.id, app)
    assert restored is not None and restored[1].get() == 2


def test_chord_fails_with_its_header_and_calls_the_errback_once(server: CeleryServer, run: Any) -> None:
    app = run()
    body = app.tasks["t.tsum"].s().on_error(sig(app, "errback"))
    result = chord([sig(app, "fail", "x"), sig(app, "fail", "y"), sig(app, "add", 1, 1)], body)()
    with pytest.raises(ChordError, match=r"Dependency .* raised ValueError\('x'\)"):
        result.get(timeout=10)
    server.wait(server.executions[result._canvas.execution_id])
    assert calls == {"fail": 2, "add": 1, "errback": 1}


def test_links_follow_and_errbacks_get_what_they_take(server: CeleryServer, run: Any) -> None:
    app = run()
    result = app.tasks["t.add"].apply_async((2, 2), link=[sig(app, "add", 16), sig(app, "mul", 2) | sig(app, "add", 1)])
    assert result.get(timeout=10) == 4
    assert [child.get(timeout=10) for child in result.children] == [20, 9]
    both = [sig(app, "errback"), sig(app, "errback_id")]
    failed = app.tasks["t.fail"].apply_async(("oh",), link_error=both)
    assert repr(failed.get(timeout=10, propagate=False)) == "ValueError('oh')"
    server.wait(server.executions[failed._canvas.execution_id])
    outputs = [one.output for one in server.executions.values() if "errback" in one.definition]
    assert outputs == ["t.fail['oh'] ValueError('oh') True", failed.id]


def test_unknown_result_times_out_and_is_pending(run: Callable[[], Celery]) -> None:
    app = run()
    assert AsyncResult("nothing", app).state == "PENDING"
    with pytest.raises(TimeoutError):
        AsyncResult("nothing", app).get(timeout=0.1)


def test_task_id_makes_two_calls_one(server: CeleryServer, run: Callable[[], Celery]) -> None:
    app = run()
    first = app.tasks["t.add"].apply_async((1, 2), task_id="own")
    again = app.tasks["t.add"].apply_async((1, 2), task_id="own")
    assert first.get(timeout=10) == again.get(timeout=10) == AsyncResult("own", app).get(timeout=10) == 3
    assert len(server.executions) == 1


def test_chain_has_the_id_of_its_last_task(run: Callable[[], Celery]) -> None:
    app = run()
    result = (sig(app, "add", 1, 1) | sig(app, "add", 1)).apply_async(task_id="last")
    assert result.id == "last" and result.get(timeout=10) == 3 and app.AsyncResult("last").get(timeout=10) == 3


def test_retry_counts_and_ends_with_the_exception(app: Celery, run: Callable[[], Celery]) -> None:
    @app.task(name="t.flaky", bind=True, max_retries=2)
    def flaky(self: Task, good: int) -> int:
        calls[f"try {self.request.retries}"] += 1
        if self.request.retries < good:
            raise self.retry(exc=OSError("not yet"), countdown=0.05)
        return self.request.retries

    @app.task(name="t.auto", autoretry_for=(ValueError,), max_retries=1, default_retry_delay=0, retry_backoff=False)
    async def auto() -> None:
        calls["auto"] += 1
        raise ValueError("always")

    run()
    assert flaky.delay(2).get(timeout=15) == 2
    with pytest.raises(OSError, match="not yet"):
        flaky.delay(3).get(timeout=15)
    assert calls == {"try 0": 2, "try 1": 2, "try 2": 2}
    with pytest.raises(ValueError, match="always"):
        auto.delay().get(timeout=15)
    assert calls["auto"] == 2


def test_death_of_a_worker_is_no_retry(server: CeleryServer, app: Celery, run: Callable[[], Celery]) -> None:
    died = threading.Event()

    @app.task(name="t.slow", bind=True)
    def slow(self: Task) -> int:
        calls["slow"] += 1
        if not died.is_set():
            died.wait(5)
        return self.request.retries

    @app.task(name="t.once", acks_late=False)
    def once() -> None:
        calls["once"] += 1
        died.wait(5)

    run()
    results = [slow.delay(), once.delay()]
    executions = [server.executions[one.id] for one in results]
    server.wait(executions[0], lambda _: calls["slow"] == 1 and calls["once"] == 1)
    for execution in executions:
        server.take_away(execution)
    died.set()
    assert results[0].get(timeout=15) == 0
    with pytest.raises(WorkerLostError):
        results[1].get(timeout=15)
    assert calls["once"] == 1


def test_limits_of_time_end_a_try(app: Celery, run: Callable[[], Celery]) -> None:
    @app.task(name="t.soft", soft_time_limit=0.2)
    def soft() -> str:
        try:
            while True:
                time.sleep(0.01)
        except SoftTimeLimitExceeded:
            return "cleaned up"

    @app.task(name="t.hard", time_limit=0.2)
    def hard() -> None:
        while True:
            time.sleep(0.01)

    @app.task(name="t.ahard", soft_time_limit=0.1, time_limit=0.2)
    async def ahard() -> None:
        import asyncio

        await asyncio.sleep(30)

    run()
    assert soft.delay().get(timeout=10) == "cleaned up"
    with pytest.raises(TimeLimitExceeded):
        hard.delay().get(timeout=10)
    with pytest.raises(SoftTimeLimitExceeded):
        ahard.delay().get(timeout=10)
    assert soft.apply_async(soft_time_limit=0.1).get(timeout=10) == "cleaned up"


def test_expired_task_is_revoked_and_does_not_run(run: Callable[[], Celery]) -> None:
    app = run()
    result = app.tasks["t.add"].apply_async((1, 1), countdown=0.6, expires=0.1)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=10)
    assert result.state == "REVOKED" and calls["add"] == 0


def test_revoked_task_does_not_run(run: Callable[[], Celery]) -> None:
    app = run()
    result = app.tasks["t.add"].apply_async((1, 1), countdown=60)
    app.control.revoke(result.id)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=10)
    whole = group(sig(app, "add", i, i).set(countdown=60) for i in range(2))()
    whole.revoke()
    assert calls["add"] == 0


def test_terminated_task_ends_within_its_next_line(app: Celery, run: Callable[[], Celery]) -> None:
    ended: list[str] = []

    @app.task(name="t.forever", bind=True)
    def forever(self: Task, waits: bool) -> None:
        calls["begun"] += 1
        try:
            if waits:
                self.ctx.step("wait", time.sleep, 0.3)
            while True:
                time.sleep(0.01)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    run()
    for number, waits in enumerate((False, True), 1):
        result = forever.delay(waits)
        end = time.monotonic() + 5
        while calls["begun"] < number and time.monotonic() < end:
            time.sleep(0.01)
        result.revoke()
        assert result.state == "STARTED"
        result.revoke(terminate=True)
        with pytest.raises(TaskRevokedError):
            result.get(timeout=5)
    end = time.monotonic() + 5
    while len(ended) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert ended == ["Cancelled", "Cancelled"]


def test_forgotten_result_is_named(run: Callable[[], Celery]) -> None:
    app = run()
    result = app.tasks["t.add"].delay(1, 1)
    assert result.get(timeout=10) == 2
    result.forget()
    with pytest.raises(ResultForgotten):
        result.get(timeout=10)


def test_calls_inside_a_task_are_sent_once(server: CeleryServer, app: Celery, run: Callable[[], Celery]) -> None:
    @app.task(name="t.sender", bind=True, max_retries=1)
    def sender(self: Task) -> list[str]:
        sent = [app.tasks["t.add"].delay(1, 1), app.tasks["t.add"].apply_async((1, 1), countdown=0.01)]
        sent.append(chain(sig(app, "add", 1, 1), sig(app, "add", 1))())
        with pytest.raises(RuntimeError, match="does not wait"):
            sent[0].get()
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return [one.id for one in sent]

    run()
    result = sender.delay()
    ids = result.get(timeout=15)
    assert AsyncResult(ids[2], app).get(timeout=10) == 3
    assert sum(one.parent is None for one in server.executions.values()) == 4
    assert len(result.children) == 3


def test_states_of_the_task_reach_on_message(app: Celery, run: Callable[[], Celery]) -> None:
    @app.task(name="t.hello", bind=True)
    def hello(self: Task) -> str:
        self.update_state(state="PROGRESS", meta={"progress": 50})
        return "done"

    run()
    result = hello.delay()
    assert result.get(timeout=10) == "done"
    assert result._progress() == {"state": "PROGRESS", "meta": {"progress": 50}}


def test_handlers_of_a_class_are_called(app: Celery, run: Callable[[], Celery]) -> None:
    seen: list[str] = []

    class Noted(Task):
        max_retries = 1

        def before_start(self, task_id: Any, args: Any, kwargs: Any) -> None:
            seen.append("before")

        def on_retry(self, exc: Any, task_id: Any, args: Any, kwargs: Any, einfo: Any) -> None:
            seen.append(f"retry {exc!r}")

        def on_failure(self, exc: Any, task_id: Any, args: Any, kwargs: Any, einfo: Any) -> None:
            seen.append(f"failure {exc!r}")

        def on_success(self, retval: Any, task_id: Any, args: Any, kwargs: Any) -> None:
            seen.append(f"success {retval}")

        def after_return(self, status: str, *_: Any) -> None:
            seen.append(status)

    @app.task(name="t.noted", base=Noted, bind=True)
    def noted(self: Task, mode: str) -> str:
        if mode == "retry" and self.request.retries == 0:
            raise self.retry(exc=OSError("later"), countdown=0)
        if mode == "fail":
            raise KeyError("no")
        if mode == "ignore":
            raise Ignore
        if mode == "reject":
            raise Reject("bad")
        return mode

    run()
    assert noted.delay("retry").get(timeout=10) == "retry"
    assert seen == ["before", "retry OSError('later')", "RETRY", "before", "success retry", "SUCCESS"]
    seen.clear()
    with pytest.raises(KeyError):
        noted.delay("fail").get(timeout=10)
    assert seen == ["before", "failure KeyError('no')", "FAILURE"]
    assert noted.delay("ignore").get(timeout=10) is None
    with pytest.raises(Reject):
        noted.delay("reject").get(timeout=10)


def test_replaced_task_has_the_result_of_its_canvas(app: Celery, run: Callable[[], Celery]) -> None:
    @app.task(name="t.replaced", bind=True)
    def replaced(self: Task, n: int) -> None:
        raise self.replace(group(sig(app, "add", i, i) for i in range(n)) | app.tasks["t.tsum"].s())

    run()
    assert replaced.delay(4).get(timeout=15) == 12


def test_bound_task_has_the_context_of_the_worker(server: CeleryServer, app: Celery, run: Callable[[], Celery]) -> None:
    @app.task(name="t.stepped", bind=True, max_retries=1)
    def stepped(self: Task) -> int:
        value: int = self.ctx.step("count", lambda: calls.update(["count"]) or 7)
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return value

    run()
    assert stepped.delay().get(timeout=10) == 7
    assert calls["count"] == 1


def test_map_repeats_no_item_after_a_death(server: CeleryServer, run: Callable[[], Celery]) -> None:
    app = run()
    assert ~app.tasks["t.add"].starmap((i, i) for i in range(4)) == [0, 2, 4, 6]
    assert ~app.tasks["t.tsum"].map([[1, 2], [3]]) == [3, 3]
    calls.clear()
    deaths = iter([False, True])

    server.boundary = lambda execution, point: point == "after write" and next(deaths, False)
    assert ~app.tasks["t.add"].starmap((i, i) for i in range(4)) == [0, 2, 4, 6]
    assert calls["add"] <= 5


def test_rate_limit_spaces_starts(app: Celery, run: Callable[[], Celery]) -> None:
    times: list[float] = []

    @app.task(name="t.rated", rate_limit="5/s")
    def rated() -> None:
        times.append(time.monotonic())

    run()
    for result in [rated.delay() for _ in range(4)]:
        result.get(timeout=10)
    assert max(times) - min(times) >= 0.55


def test_ignored_result_is_none(run: Callable[[], Celery]) -> None:
    app = run()
    assert app.tasks["t.add"].apply_async((1, 1), ignore_result=True).get() is None


def test_exception_of_an_unknown_class_keeps_its_name(app: Celery, run: Callable[[], Celery]) -> None:
    @app.task(name="t.odd")
    def odd() -> None:
        class Odd(Exception):
            pass

        raise Odd("text", 7)

    run()
    error = odd.delay().get(timeout=10, propagate=False)
    assert isinstance(error, TaskError) and type(error).__name__ == "Odd" and error.args == ("text", 7)


def test_canvas_in_two_queues_is_refused(app: Celery) -> None:
    app.conf.task_routes = {"t.mul": "other"}
    with pytest.raises(Unsupported, match="several queues"):
        (sig(app, "add", 1, 1) | sig(app, "mul", 1)).apply_async()
    with pytest.raises(Unsupported, match="exchange"):
        sig(app, "add", 1, 1).apply_async(exchange="x")
    with pytest.raises(TypeError, match="missing a required argument"):
        app.tasks["t.add"].delay(1)
    with pytest.raises(TypeError, match="JSON"):
        app.tasks["t.add"].delay(1, object())


def test_signature_crosses_as_json(run: Callable[[], Celery]) -> None:
    import json

    app = run()
    sent = json.loads(json.dumps(chain(sig(app, "add", 1, 1), group(sig(app, "add", 1), sig(app, "mul", 5)))))
    assert signature(sent, app=app).apply_async().get(timeout=10) == [3, 10]


def test_schedules_follow_the_settings(server: CeleryServer, app: Celery) -> None:
    from longhaul.celery.schedules import crontab

    app.conf.timezone = "Europe/Oslo"
    app.conf.beat_schedule = {
        "Every Monday!": {"task": "t.add", "schedule": crontab(hour=7, minute=30, day_of_week="mon"), "args": (1, 2)},
        "often": {"task": "t.mul", "schedule": 300, "options": {"queue": "other", "priority": 1}},
    }
    assert app.publish_schedules() == ["t.every-monday", "t.often"]
    monday = server.schedules["t.every-monday"]
    assert (monday["cron"], monday["time_zone"], monday["input"]["args"]) == ("30 7 * * MON", "Europe/Oslo", [1, 2])
    assert (server.schedules["t.often"]["queue"], server.schedules["t.often"]["priority"]) == ("other", 1)
    server.schedules["foreign"] = {"key": "foreign", "metadata": {}}
    app.conf.beat_schedule = {}
    assert app.publish_schedules() == []
    assert list(server.schedules) == ["foreign"]


def test_worker_publishes_the_schedules(server: CeleryServer, app: Celery, run: Callable[[], Celery]) -> None:
    @app.on_after_configure.connect
    def setup(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(60.0, app.tasks["t.add"].s(1, 1), name="minutely")

    run()
    end = time.monotonic() + 5
    while not server.schedules and time.monotonic() < end:
        time.sleep(0.05)
    assert list(server.schedules) == ["t.minutely"]
