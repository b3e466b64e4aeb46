"""The worker itself: leases, cancels, drains, lost workers, and servers that are away or answer oddly."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fake_server import KEY, Cut, Execution, FakeServer, Problem

from longhaul.worker import (
    App,
    Context,
    NoSuchProtocol,
    NotAllowed,
    ProtocolError,
    RegistrationRefused,
    SyncContext,
    Worker,
    heartbeat,
)
from longhaul.worker.transport import Api, Server


def until(reached: Callable[[], Any], seconds: float = 10.0) -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "not reached in time"
        time.sleep(0.005)


def test_thousand_executions_in_flight(server: FakeServer, serve: Any) -> None:
    app = App("t")
    running: set[str] = set()
    all_run: list[asyncio.Event] = []

    @app.task
    async def hold(ctx: Context) -> str:
        if not all_run:
            all_run.append(asyncio.Event())
        running.add(ctx.execution_id)
        if len(running) == 1000:
            all_run[0].set()
        await all_run[0].wait()
        return await ctx.step("end", lambda: "done")

    executions = [server.submit("t.hold") for _ in range(1000)]
    serve(app, concurrency=1000)
    for execution in executions:
        assert server.finished(execution, seconds=30) == "done"
    assert len(server.workers) == 1
    ends = sum(1 for _, path in server.requests if path.endswith("/ends"))
    assert ends < 200, "ends are not batched"


def test_heartbeats_go_on_while_loop_is_blocked(server: FakeServer, serve: Any) -> None:
    app = App("t")
    server.lease_seconds = 1.0

    @app.task
    async def block(ctx: Context) -> str:
        time.sleep(2.5)  # noqa: ASYNC251
        return await ctx.step("after", lambda: "done")

    serve(app)
    assert server.finished(server.submit("t.block")) == "done"
    assert len(server.workers) == 1


@pytest.mark.parametrize("refusal", [Problem(503, None), Cut()], ids=["503", "cut"])
def test_refused_renewals_are_repeated_within_the_lease(server: FakeServer, serve: Any, refusal: Exception) -> None:
    app = App("t")
    server.lease_seconds = 4.0
    server.renew_seconds = 1.0
    go_on = threading.Event()

    @app.task
    async def flow(ctx: Context) -> int:
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        return await ctx.step("after", lambda: ctx.attempt)

    refused: list[float] = []
    renewed: list[float] = []

    def fault(method: str, path: str, done: bool) -> Any:
        if path.endswith("/heartbeat"):
            now = time.monotonic()
            if not done and (not refused or now - refused[0] < server.lease_seconds / 2):
                refused.append(now)
                raise refusal
            if done:
                renewed.append(now)
        return None

    serve(app)
    execution = server.wait(server.submit("t.flow"), lambda execution: execution.status == "RUNNING")
    server.fault = fault
    until(lambda: renewed)
    # No pause is longer than half of that between renewals, so that the outage ends long before the lease.
    assert len(refused) >= 4
    assert renewed[0] - refused[-1] < server.renew_seconds
    go_on.set()
    assert server.finished(execution) == 1
    assert len(server.workers) == 1


def test_cancel_interrupts_async_function(server: FakeServer, serve: Any) -> None:
    app = App("t")
    seen: list[Any] = []

    @app.task
    async def forever(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(ctx.cancelled)
            raise

    @app.task
    async def stubborn(ctx: Context) -> None:
        while True:
            try:
                seen.append("began")
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if len(seen) > 50:
                    raise

    @app.task
    async def swallows(ctx: Context) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return "finished all the same"

    serve(app)
    for task in (forever, stubborn, swallows):
        seen.clear()
        execution = server.wait(server.submit(task.definition), lambda execution: execution.status == "RUNNING")
        server.cancel(execution)
        assert server.failed(execution)["code"] == "cancelled"
        assert execution.attempt == 1
        if task is forever:
            assert seen == [True]


def test_cancel_interrupts_function_in_thread(server: FakeServer, serve: Any) -> None:
    app = App("t")
    ended = threading.Event()
    free = threading.Event()

    @app.task
    def steps(ctx: SyncContext) -> None:
        try:
            for number in range(10_000):
                ctx.step("nap", time.sleep, 0.01)
        except Exception as error:
            raise AssertionError("caught as an error") from error
        finally:
            ended.set()

    @app.task
    def stubborn(ctx: SyncContext) -> None:
        free.wait(20)

    serve(app)
    for task in (steps, stubborn):
        execution = server.wait(server.submit(task.definition), lambda execution: execution.status == "RUNNING")
        server.cancel(execution)
        assert server.failed(execution)["code"] == "cancelled"
    assert ended.wait(5)
    free.set()


def test_cancelled_while_parked_runs_no_code(server: FakeServer, serve: Any) -> None:
    app = App("t")
    runs: list[int] = []

    @app.task
    async def waits(ctx: Context) -> None:
        runs.append(1)
        await ctx.signal("never")

    serve(app)
    execution = server.parked(server.submit("t.waits"), "signal")
    server.cancel(execution)
    assert server.failed(execution)["code"] == "cancelled"
    assert len(runs) == 1


def test_active_time_ends_attempt(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def forever() -> None:
        await asyncio.sleep(60)

    serve(app)
    execution = server.submit("t.forever", active_seconds=0.2)
    assert server.failed(execution)["code"] == "deadline_exceeded"
    assert execution.outcomes == [{"type": "timed_out"}]


def test_drain_ends_at_step_and_another_worker_goes_on(server: FakeServer, serve: Any) -> None:
    app = App("t")
    ran: list[int] = []

    @app.task
    async def many(ctx: Context) -> int:
        async def nap(number: int) -> None:
            ran.append(number)
            await asyncio.sleep(0.03)

        for number in range(20):
            await ctx.step("nap", nap, number)
        return len(ran)

    first = serve(app)
    executions = [server.submit("t.many") for _ in range(5)]
    until(lambda: len(ran) > 20)
    first.stop()
    assert all(execution.status == "RUNNABLE" for execution in executions)
    assert {outcome["type"] for execution in executions for outcome in execution.outcomes} == {"drain"}
    assert next(iter(server.workers.values())).signed_off
    serve(app)
    for execution in executions:
        server.finished(execution)
    assert len(ran) == 100, "a step ran twice"


def test_drain_interrupts_what_does_not_end(server: FakeServer, serve: Any) -> None:
    app = App("t")

    began = threading.Event()

    @app.task
    async def forever() -> None:
        began.set()
        await asyncio.sleep(60)

    running = serve(app, drain_seconds=0.2)
    execution = server.submit("t.forever")
    assert began.wait(10)
    running.stop()
    assert execution.outcomes == [{"type": "drain"}]


def test_server_tells_worker_to_drain(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def quick() -> int:
        return 1

    running = serve(app)
    server.finished(server.submit("t.quick"))
    server.drain()
    running.thread.join(10)
    assert not running.thread.is_alive() and running.error is None
    assert next(iter(server.workers.values())).signed_off


def test_lost_lease_stops_the_function(server: FakeServer, serve: Any) -> None:
    app = App("t")
    seen: list[str] = []

    @app.task
    async def flow(ctx: Context) -> str:
        if ctx.attempt == 1:
            server.take_away(server.executions[ctx.execution_id])
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("interrupted")
                raise
        return "second"

    serve(app)
    execution = server.submit("t.flow")
    assert server.finished(execution) == "second"
    until(lambda: seen == ["interrupted"])
    assert [outcome["type"] for outcome in execution.outcomes] == ["finish"]


def test_fenced_write_begins_nothing_more(server: FakeServer, serve: Any) -> None:
    app = App("t")
    ran: list[tuple[int, str]] = []

    def flow_steps(ctx: SyncContext) -> str:
        for name in ("a", "b", "c"):
            ctx.step(name, ran.append, (ctx.attempt, name))
            if ctx.attempt == 1 and name == "a":
                server.take_away(server.executions[ctx.execution_id])
        return "done"

    app.add(flow_steps, "t.flow")
    serve(app)
    execution = server.submit("t.flow")
    assert server.finished(execution) == "done"
    assert [name for attempt, name in ran if attempt == 1] == ["a"]


def test_dead_worker_registers_anew(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def flow(ctx: Context) -> int:
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return ctx.attempt

    running = serve(app)
    execution = server.wait(server.submit("t.flow"), lambda execution: execution.status == "RUNNING")
    server.declare_dead()
    assert server.finished(execution) == 2
    assert len(server.workers) == 2
    assert running.worker.worker_id is not None


def test_frozen_worker_says_that_it_slept(server: FakeServer, monkeypatch: Any) -> None:
    app = App("t")

    @app.task
    async def quick() -> int:
        return 1

    beats: list[bool] = []
    answer = server.answer

    def noting(method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if path.endswith("/heartbeat"):
            beats.append(body["was_awake"])
        return answer(method, path, query, body)

    server.answer = noting  # type: ignore[method-assign]
    registration = Worker(app, url=server.url, api_key=KEY)
    body = {"protocol": 1, "host": "h", "pid": 1, "build": "b", "queues": ["default"], "concurrency": 1}
    worker = answer("POST", "/v1/workers", {}, {**body, "definitions": []})["worker"]
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    nothing: Any = lambda *_: None
    beat = heartbeat.Heartbeat(registration.server, worker, 6.0, 2.0, dict, nothing, nothing)
    with httpx.Client(base_url=server.url, headers=registration.server.headers()) as http:
        # Two readings of the clock more than half a lease apart: the process did not run in between.
        for seconds in (2.9, 3.1, 2.9):
            clock[0] += seconds
            beat._beat(http, 0)
    assert beats == [True, False, True]


def test_server_restart_loses_nothing(serve: Any, server: FakeServer) -> None:
    app = App("t")

    @app.task
    async def many(ctx: Context) -> int:
        async def nap(number: int) -> int:
            await asyncio.sleep(0.02)
            return number

        return sum([await ctx.step("nap", nap, number) for number in range(20)])

    serve(app)
    executions = [server.submit("t.many") for _ in range(20)]
    until(lambda: any(execution.steps for execution in executions))
    mode = ["cut"]

    def fault(method: str, path: str, done: bool) -> Any:
        if mode[0] == "cut":
            raise Cut
        if mode[0] == "500":
            raise Problem(500, "internal_error")
        if mode[0] == "503":
            raise Problem(503, None)
        return b"<html>" if mode[0] == "odd" else None

    server.fault = fault
    for fault_mode in ("cut", "500", "503"):
        mode[0] = fault_mode
        time.sleep(0.4)
    mode[0] = ""
    for execution in executions:
        assert server.finished(execution) == sum(range(20))
        assert len(execution.steps) == 20
    assert len(server.workers) == 1


def test_lost_answers_change_nothing(server: FakeServer, serve: Any) -> None:
    app = App("t")
    ran: list[int] = []

    @app.task
    async def flow(ctx: Context) -> int:
        async def work(number: int) -> int:
            ran.append(number)
            return number

        for number in range(5):
            await ctx.step("work", work, number)
        ctx.log("once")
        return 5

    dropped: set[str] = set()

    def fault(method: str, path: str, done: bool) -> Any:
        kind = path.rsplit("/", 1)[1]
        if done and kind in ("writes", "ends") and f"{kind}{len(server.requests) % 3}" not in dropped:
            dropped.add(f"{kind}{len(server.requests) % 3}")
            raise Cut

    server.fault = fault
    serve(app)
    executions = [server.submit("t.flow") for _ in range(10)]
    for execution in executions:
        assert server.finished(execution) == 5
        assert execution.attempt == 1 and execution.logs() == ["once"]
    assert len(ran) == 50


ODD = [
    b"",
    b"<html>hello</html>",
    b"[]",
    b"null",
    b"{}",
    b'{"results": 1, "executions": 2, "signals": {}, "children": null}',
    b'{"results": [{"error": 1}, {"error": 2}], "executions": [{}, 1, {"id": "x", "token": "y"}]}',
    b"\xff\xfe",
    b"[" * 100_000,
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_odd_answers_hang_nothing(server: FakeServer, serve: Any, odd: bytes, caplog: Any) -> None:
    app = App("t")

    @app.task
    async def child() -> int:
        return 1

    @app.task
    async def flow(ctx: Context) -> int:
        await ctx.step("a", lambda: 1)
        handle = await ctx.spawn("child", child)
        await handle.result()
        await ctx.signal("go", timeout=3600)
        return 1

    bad = [True]
    server.fault = lambda method, path, done: odd if bad[0] and path.count("/") > 3 and not done else None
    serve(app)
    execution = server.submit("t.flow")
    server.signal(execution, "go", 1)

    def is_told() -> bool:
        return any("odd" in record.message or "repeated" in record.message for record in caplog.records)

    until = time.monotonic() + 30
    while not is_told() and time.monotonic() < until:
        time.sleep(0.02)
    bad[0] = False
    # A lease whose requests were answered oddly is dropped, and the server takes it back when its time is over.
    with server.changed:
        for one in list(server.executions.values()):
            one.claimed_at -= 60
    assert server.finished(execution, seconds=30) == 1
    assert is_told()


def test_refusals_at_registration_end_the_worker_by_name(server: FakeServer) -> None:
    app = App("t")

    @app.task
    async def quick() -> int:
        return 1

    def error_of(fault: Any, key: str = KEY) -> BaseException:
        server.fault = lambda method, path, done: None if fault is None else fault()
        with pytest.raises(Exception) as raised:
            asyncio.run(asyncio.wait_for(Worker(app, url=server.url, api_key=key).serve(), 10))
        assert KEY not in str(raised.value)
        return raised.value

    def problem(status: int, code: str | None) -> Any:
        def fault() -> None:
            raise Problem(status, code, "it says why")

        return fault

    assert type(error_of(None, "wrong")) is NotAllowed
    assert type(error_of(problem(403, "missing_scope"))) is NotAllowed
    assert type(error_of(problem(404, None))) is NoSuchProtocol
    refused = error_of(problem(422, "invalid_request"))
    assert type(refused) is RegistrationRefused and "it says why" in str(refused)
    assert type(error_of(lambda: b"<html>")) is ProtocolError
    assert type(error_of(lambda: b'{"worker": 1}')) is ProtocolError


def test_key_taken_away_ends_the_worker_by_name(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def quick() -> int:
        return 1

    running = serve(app)
    server.finished(server.submit("t.quick"))

    def fault(method: str, path: str, done: bool) -> None:
        raise Problem(401, "unauthenticated", "the key was revoked")

    server.fault = fault
    running.thread.join(10)
    assert type(running.error) is NotAllowed


def test_refused_result_is_named(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def flow(ctx: Context, bad: str) -> str:
        async def work(what: str) -> str:
            return what

        await ctx.gather(ctx.step("good", work, "fine"), ctx.step("bad", work, bad), ctx.step("more", work, "fine"))
        await ctx.step("last", work, "fine")
        return "done"

    @app.task
    async def last(ctx: Context) -> None:
        ctx.log("this event is refused")
        await ctx.step("fine", lambda: 1)
        await ctx.step("bad", lambda: "refused")

    @app.task
    async def output() -> str:
        return "refused output"

    serve(app)
    execution = server.submit("t.flow", {"bad": "it is refused"})
    failure = server.failed(execution)
    assert failure["code"] == "not_storable" and "step bad" in failure["summary"]
    assert [step["name"] for step in execution.steps] == ["good"]
    failure = server.failed(server.submit("t.last"))
    assert failure["code"] == "not_storable" and "step bad" in failure["summary"]
    failure = server.failed(server.submit("t.output"))
    assert failure["code"] == "not_storable" and "outcome" in failure["summary"]
    # A value that the server cannot take is refused before it is sent.
    for bad in ("a\0b", "\ud800", "x" * (5 << 20)):
        failure = server.failed(server.submit("t.flow", {"bad": bad}))
        assert failure["code"] == "not_storable" and "step bad" in failure["summary"]
    assert server.finished(server.submit("t.flow", {"bad": "a\\u0000b is text"})) == "done"


def test_one_unreadable_entry_holds_up_no_other(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def echo(ctx: Context, text: str) -> str:
        return text

    answer = server.answer

    def refusing(method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if path.endswith("/ends") and "poison" in json.dumps(body):
            raise Problem(422, "invalid_request", "an entry cannot be read")
        return answer(method, path, query, body)

    server.answer = refusing  # type: ignore[method-assign]
    executions = [server.submit("t.echo", {"text": "poison" if number == 7 else "fine"}) for number in range(40)]
    serve(app)
    for number, execution in enumerate(executions):
        if number != 7:
            assert server.finished(execution) == "fine"
    assert server.failed(executions[7])["code"] == "not_storable"


def test_suspects_are_counted(server: FakeServer, serve: Any) -> None:
    app = App("t")
    bodies: list[Any] = []
    answer = server.answer

    def noting(method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if path.endswith("/claim"):
            bodies.append(body)
        return answer(method, path, query, body)

    server.answer = noting  # type: ignore[method-assign]

    @app.task
    async def hold() -> None:
        await asyncio.sleep(0.3)

    execution = server.submit("t.hold", lane="suspect")
    serve(app)
    server.finished(execution)
    server.finished(server.submit("t.hold"))
    assert (bodies[0]["suspects"], bodies[0]["may_take_alone"]) == (4, True)
    assert (bodies[1]["suspects"], bodies[1]["may_take_alone"]) == (3, False)


def test_definition_that_is_not_served_is_released(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def quick() -> int:
        return 1

    running = serve(app)
    execution = server.submit("t.quick")
    server.finished(execution)
    tasks = running.worker.tasks
    running.worker.tasks = {}
    other: Execution = server.submit("t.quick")
    server.wait(other, lambda execution: {"type": "release"} in execution.outcomes)
    running.worker.tasks = tasks
    assert server.finished(other) == 1


def test_answer_that_never_ends_is_given_up(server: FakeServer) -> None:
    app = App("t")

    @app.task
    async def quick() -> int:
        return 1

    dripping = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        while not over.is_set():
            connection, _ = dripping.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not over.wait(0.05):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        break

    threading.Thread(target=drip, daemon=True).start()

    async def call() -> None:
        api = Api(Server(f"http://127.0.0.1:{dripping.getsockname()[1]}", KEY, timeout=0.2))
        try:
            await api.call("POST", "/v1/workers", "{}", tries=1)
        finally:
            await api.close()

    with pytest.raises(ConnectionError, match="POST /v1/workers"):
        asyncio.run(asyncio.wait_for(call(), 5))
    over.set()
    dripping.close()
