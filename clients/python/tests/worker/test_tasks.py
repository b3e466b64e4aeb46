"""Tasks: inputs, outputs, schemas, failures, children, requests, signals and events."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from fake_server import KEY, FakeServer
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import longhaul.worker as lw
from longhaul.worker import App, Context, Retry, SyncContext, Worker


class Order(BaseModel):
    id: int = Field(ge=1)
    at: datetime


class Options(TypedDict):
    fast: bool


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


def app_of_inputs() -> App:
    app = App("t")

    @app.task
    async def model(order: Order) -> Order:
        return order

    @app.task
    async def typed(ctx: Context, options: Options) -> list[bool]:
        return [options["fast"]]

    @app.task
    async def point(p: Point) -> Point:
        return Point(p.y, p.x)

    @app.task
    async def named(ctx: Context, a: int, b: str = "b", *, _c: Order | None = None, copy: int = 1) -> str:
        return f"{a} {b} {_c and _c.id} {copy}"

    @app.task
    def nothing() -> None:
        return None

    @app.task
    async def untyped(ctx, value):  # type: ignore[no-untyped-def]
        return {"got": value}

    return app


def test_one_step_task_costs_one_end(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def double(ctx: Context, n: int) -> int:
        async def twice(n: int) -> int:
            return 2 * n

        return await ctx.step("twice", twice, n)

    serve(app)
    execution = server.submit("t.double", {"n": 4})
    assert server.finished(execution) == 8
    assert [(step["name"], step["result"], step["preview"]) for step in execution.steps] == [("twice", 8, "8")]
    assert not [path for _, path in server.requests if path.endswith("/writes")]


@pytest.mark.parametrize(
    ("task", "input", "output"),
    [
        ("model", {"id": 1, "at": "2026-01-01T00:00:00Z"}, {"id": 1, "at": "2026-01-01T00:00:00Z"}),
        ("typed", {"fast": True}, [True]),
        ("point", {"x": 1, "y": 2}, {"x": 2, "y": 1}),
        ("named", {"a": 3, "_c": {"id": 4, "at": "2026-01-01T00:00:00Z"}, "copy": 2}, "3 b 4 2"),
        ("nothing", {}, None),
        ("untyped", {"value": [1, {"a": None}]}, {"got": [1, {"a": None}]}),
    ],
)
def test_inputs_and_outputs_are_converted(server: FakeServer, serve: Any, task: str, input: Any, output: Any) -> None:
    serve(app_of_inputs())
    assert server.finished(server.submit(f"t.{task}", input)) == output


def test_definitions_are_published_with_schemas(server: FakeServer, serve: Any) -> None:
    app = app_of_inputs()

    @app.task(
        name="limited",
        queue="slow",
        retry=Retry(transient=[1, 2], max_total=2),
        deadline=timedelta(hours=1),
        timeout=60,
        concurrency=[{"key": "metadata.customer", "limit": 2}],
        budget={"tokens": 1000},
    )
    async def charge(a: int) -> int:
        """Charges a card."""
        return a

    serve(app)
    server.finished(server.submit("t.nothing"))
    registration = next(iter(server.workers.values())).registration
    assert registration["queues"] == ["default", "slow"]
    found = {definition["key"]: definition for definition in registration["definitions"]}
    assert found["t.limited"] == {
        "key": "t.limited",
        "name": "Limited",
        "description": "Charges a card.",
        "retry": {"transient_delays_seconds": [1, 2], "max_total": 2},
        "deadline_seconds": 3600,
        "active_timeout_seconds": 60,
        "concurrency": [{"key": "metadata.customer", "limit": 2}],
        "budget": {"tokens": 1000},
        "input_schema": found["t.limited"]["input_schema"],
        "output_schema": {"type": "integer"},
    }
    assert found["t.limited"]["input_schema"]["required"] == ["a"]
    assert found["t.limited"]["input_schema"]["additionalProperties"] is False
    assert found["t.model"]["input_schema"]["properties"]["id"]["minimum"] == 1
    assert set(found["t.named"]["input_schema"]["properties"]) == {"a", "b", "_c", "copy"}
    assert "output_schema" not in found["t.untyped"]


def test_inputs_of_submits_are_checked_before_sending() -> None:
    app = app_of_inputs()
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    named, model = app.tasks["t.named"], app.tasks["t.model"]
    assert named.input_of(1, copy=3) == {"a": 1, "b": "b", "_c": None, "copy": 3}
    assert model.input_of(Order(id=2, at=at)) == {"id": 2, "at": "2026-01-01T00:00:00Z"}
    for args, kwargs in (((), {}), ((1, 2, 3), {}), (("x",), {}), ((1,), {"d": 1})):
        with pytest.raises(TypeError):
            named.input_of(*args, **kwargs)
    assert asyncio.run(app.tasks["t.point"](Point(1, 2))) == Point(2, 1)


def test_submit_fields_stand_beside_arguments() -> None:
    class Recorder:
        def submit(self, **request: Any) -> dict[str, Any]:
            return request

    app = app_of_inputs()
    sent = app.tasks["t.named"].submit(
        1, client=cast(Any, Recorder()), priority=3, metadata={"a": 1}, idempotency_key="k"
    )
    assert sent == {
        "queue": "default",
        "priority": 3,
        "metadata": {"a": 1},
        "idempotency_key": "k",
        "definition": "t.named",
        "input": {"a": 1, "b": "b", "_c": None, "copy": 1},
    }


def test_wrong_tasks_are_refused_when_they_are_made() -> None:
    app = App("t")
    with pytest.raises(ValueError, match="a-z"):
        App("Bad Name")
    with pytest.raises(ValueError, match="give the task a name"):

        @app.task
        async def Upper() -> None: ...

    with pytest.raises(TypeError, match=r"\*args"):

        @app.task
        async def many(*args: int) -> None: ...

    with pytest.raises(TypeError, match="JSON form"):

        @app.task
        async def odd(thing: asyncio.Event) -> None: ...

    with pytest.raises(ValueError, match="effect"):
        app.tool(effect="some")(lambda: 1)
    with pytest.raises(ValueError, match="no task"):
        Worker(app, url="http://127.0.0.1:1", api_key=KEY)


def test_errors_map_to_failure_classes(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def fail(ctx: Context, how: str) -> None:
        if how == "permanent":
            raise lw.Permanent("bad_card", "the card is closed", {"card": 1})
        if how == "tool":
            raise lw.ToolError("shop_down", "no answer")
        if how == "after" and ctx.attempt == 1:
            raise lw.RetryAfter(2, "busy")
        if how == "exit":
            sys.exit(3)
        if how == "detail":
            raise lw.Permanent("odd code!", "x\0\ud800", {"big": "x" * 100_000})
        if how == "plain":
            raise ValueError("secret-free text")

    serve(app)

    def outcome(how: str) -> dict[str, Any]:
        execution = server.submit("t.fail", {"how": how})
        server.wait(execution, lambda execution: bool(execution.outcomes))
        return execution.outcomes[0]

    assert outcome("permanent") == {
        "type": "fail",
        "class": "permanent",
        "code": "bad_card",
        "summary": "the card is closed",
        "detail": {"card": 1},
        "retry_after_seconds": None,
    }
    assert (outcome("tool")["class"], outcome("tool")["code"]) == ("tool_error", "shop_down")
    assert outcome("after")["retry_after_seconds"] == 2
    assert outcome("exit")["summary"] == "SystemExit: 3"
    assert outcome("detail")["code"] == "exception" and len(outcome("detail")["detail"]) < 5000
    plain = outcome("plain")
    assert (plain["class"], plain["code"]) == ("transient", "exception")
    assert plain["summary"] == "ValueError: secret-free text"
    failure = server.failed(server.submit("t.fail", {"how": 7}))
    assert failure["code"] == "invalid_input" and "how" in failure["summary"]


def test_retry_goes_on_from_the_journal(server: FakeServer, serve: Any) -> None:
    app = App("t")
    calls: list[str] = []

    @app.task
    async def flow(ctx: Context) -> int:
        await ctx.step("once", calls.append, "once")
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    serve(app)
    assert server.finished(server.submit("t.flow")) == 3
    assert calls == ["once"]


def test_children_are_gathered_and_fail_by_name(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def child(n: int) -> int:
        if n == -13:
            raise lw.Permanent("unlucky", "thirteen")
        return n * n

    @app.task
    async def parent(ctx: Context, n: int) -> int:
        handles = [await ctx.spawn("square", child, number) for number in range(n)]
        more = await ctx.gather(*(ctx.spawn("square", child, number) for number in range(n)))
        return sum(await ctx.gather(*handles, *more))

    @app.task
    def in_thread(ctx: SyncContext, n: int) -> int:
        handles = [ctx.spawn("square", child, number) for number in range(n)]
        return sum(ctx.gather(*handles))

    @app.task
    async def unlucky(ctx: Context) -> str:
        handle = await ctx.spawn("bad", "t.child", {"n": -13}, metadata={"a": 1}, deadline=60)
        try:
            await handle.result()
        except lw.ChildFailed as error:
            return f"{error.child_code} {error.child == handle.id}"
        return "no"

    @app.task
    async def unknown(ctx: Context) -> None:
        await ctx.spawn("bad", "no.such", {})

    serve(app)
    execution = server.submit("t.parent", {"n": 120})
    assert server.finished(execution, seconds=30) == 2 * sum(n * n for n in range(120))
    assert server.finished(server.submit("t.in_thread", {"n": 10})) == sum(n * n for n in range(10))
    assert server.finished(server.submit("t.unlucky")) == "unlucky True"
    failure = server.failed(server.submit("t.unknown"))
    assert failure["code"] == "request_refused" and "no.such" in failure["summary"]


def test_omitted_outputs_of_children_are_asked_for_again(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def child(n: int) -> int:
        return n * n

    @app.task
    async def parent(ctx: Context, n: int) -> int:
        handles = await ctx.gather(*(ctx.spawn("square", child, number) for number in range(n)))
        return sum(await ctx.gather(*handles))

    @app.task
    def in_thread(ctx: SyncContext, n: int) -> int:
        return sum(ctx.gather(*(ctx.spawn("square", child, number) for number in range(n))))

    @app.task
    async def statuses(ctx: Context) -> list[str]:
        spawns = (ctx.spawn("square", child, number) for number in range(3))
        handles = await ctx.gather(*spawns)
        await ctx.signal("go")
        return [handle.status for handle in handles]

    server.outputs_per_answer = 3
    serve(app)
    assert server.finished(server.submit("t.parent", {"n": 110}), seconds=30) == sum(n * n for n in range(110))
    assert server.finished(server.submit("t.in_thread", {"n": 7})) == sum(n * n for n in range(7))
    server.outputs_per_answer = 1
    execution = server.parked(server.submit("t.statuses"), "signal")
    for id in execution.children.values():
        server.finished(server.executions[id])
    server.signal(execution, "go", None)
    assert server.finished(execution) == ["FINISHED"] * 3
    waits = [path for _, path in server.requests if path.endswith("children/wait") and execution.id in path]
    assert waits == [], "outputs that nothing needs are asked for"


def test_answer_without_any_output_of_children_is_named(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def child(n: int) -> int:
        return n

    @app.task
    async def parent(ctx: Context) -> int:
        return sum(await ctx.gather(*[await ctx.spawn("child", child, number) for number in range(2)]))

    server.outputs_per_answer = 0
    serve(app)
    failure = server.failed(server.submit("t.parent"))
    assert failure["code"] == "protocol_error" and "leaves out every output" in failure["summary"]


def test_gather_drives_each_branch_until_it_waits(server: FakeServer, serve: Any) -> None:
    app = App("t")
    began: list[str] = []

    @app.task
    async def child() -> str:
        return "child"

    @app.task
    async def flow(ctx: Context) -> list[Any]:
        async def step(name: str) -> str:
            began.append(name)
            await asyncio.sleep(0.02)
            return name

        async def branch() -> Any:
            await ctx.step("one", step, "one")
            await ctx.step("two", step, "two")
            return await ctx.signal("a")

        async def nap() -> str:
            await ctx.sleep(600)
            return "slept"

        spawned = await ctx.spawn("child", child)
        return await ctx.gather(branch(), ctx.signal("b"), nap(), spawned)

    serve(app)
    execution = server.submit("t.flow")
    server.wait(execution, lambda execution: execution.wait_reason == "signal" and len(execution.children) == 1)
    server.signal(execution, "b", 2)
    server.signal(execution, "a", 1)
    server.advance(601)
    assert server.finished(execution) == [1, 2, "slept", "child"]
    assert began == ["one", "two"]
    parks = [outcome for outcome in execution.outcomes if outcome["type"] == "park"]
    # An attempt that a signal woke may park after the clock was moved: for no time at all.
    assert all(0 <= park["seconds"] <= 600 for park in parks)


def test_gather_raises_the_first_error_after_all_ended(server: FakeServer, serve: Any) -> None:
    app = App("t")
    ended: list[str] = []

    @app.task
    async def flow(ctx: Context) -> str:
        async def good() -> None:
            await asyncio.sleep(0.05)
            ended.append("good")

        async def bad() -> None:
            raise ValueError("bad")

        try:
            await ctx.gather(ctx.step("bad", bad), ctx.step("good", good))
        except ValueError as error:
            return str(error)
        return "no"

    serve(app)
    assert server.finished(server.submit("t.flow")) == "bad"
    assert ended == ["good"]


def test_plain_gather_cuts_no_step_that_has_begun(server: FakeServer, serve: Any) -> None:
    app = App("t")
    sent: list[int] = []

    @app.tool(effect="side_effect")
    async def send(n: int) -> int:
        sent.append(n)
        await asyncio.sleep(0.05)
        return n

    @app.task
    async def flow(ctx: Context) -> list[int]:
        return list(await asyncio.gather(send(1), ctx.signal("go"), send(2)))

    serve(app)
    execution = server.parked(server.submit("t.flow"), "signal")
    server.signal(execution, "go", 7)
    assert server.finished(execution) == [1, 7, 2]
    assert sorted(sent) == [1, 2]


def test_wait_inside_an_effect_is_refused(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def bad(ctx: Context) -> None:
        @ctx.tool(effect="idempotent")
        async def waits() -> None:
            await ctx.signal("go")

        await waits()

    @app.task
    async def fine(ctx: Context) -> int:
        async def waits() -> Any:
            return int(await ctx.signal("go"))

        return await ctx.step("waits", waits)

    serve(app)
    execution = server.submit("t.bad")
    server.wait(execution, lambda execution: bool(execution.outcomes))
    assert "waits inside the step waits" in execution.outcomes[0]["summary"]
    execution = server.parked(server.submit("t.fine"), "signal")
    server.signal(execution, "go", 5)
    assert server.finished(execution) == 5


def test_approvals_and_questions(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def pay(ctx: Context) -> list[Any]:
        try:
            decision = await ctx.approve("pay", {"cents": 5}, text="Pay?", expires=3600, allow_self=True)
        except lw.Expired as error:
            return ["expired", error.name]
        except lw.Rejected as error:
            return ["rejected", error.reason, error.decided_by]
        return [decision.state, decision.arguments, decision.value]

    @app.task
    def ask(ctx: SyncContext) -> list[Any]:
        point = ctx.ask("where", "Where?", schema=Point)
        return [point.x, point.y]

    serve(app)

    def decided(task: str, state: str, value: Any = None, reason: str | None = None) -> Any:
        execution = server.parked(server.submit(task), "approval" if task == "t.pay" else "question")
        server.decide(execution, state, value, reason)
        return server.finished(execution)

    assert decided("t.pay", "approved") == ["approved", {"cents": 5}, None]
    assert decided("t.pay", "edited", {"cents": 4}) == ["edited", {"cents": 4}, {"cents": 4}]
    assert decided("t.pay", "replaced", "paid by hand") == ["replaced", {"cents": 5}, "paid by hand"]
    assert decided("t.pay", "rejected", reason="no") == ["rejected", "no", "ada"]
    assert decided("t.pay", "expired") == ["expired", "pay"]
    assert decided("t.ask", "answered", {"x": 3}) == [3, 0]


def test_signals_are_taken_in_order_and_time_out(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def flow(ctx: Context) -> list[Any]:
        taken = [await ctx.signal("n") for _ in range(3)]
        taken += await ctx.gather(ctx.signal("n"), ctx.signal("n"))
        try:
            await ctx.signal("late", timeout=60)
        except TimeoutError:
            taken.append("late")
        return taken

    serve(app)
    execution = server.submit("t.flow")
    for number in range(4):
        server.signal(execution, "n", number)
    server.wait(execution, lambda execution: execution.wait_reason == "signal" and len(execution.steps) == 4)
    server.signal(execution, "other", "x")
    server.signal(execution, "n", 4)
    server.wait(execution, lambda execution: execution.wait_until is not None)
    server.advance(61)
    assert server.finished(execution) == [0, 1, 2, 3, 4, "late"]


def test_sleep_until_and_short_sleeps(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def flow(ctx: Context) -> str:
        await ctx.sleep(0.05)
        await ctx.sleep(timedelta(milliseconds=50), name="again")
        await ctx.sleep(until=await ctx.now() + timedelta(hours=2))
        return "done"

    @app.task
    async def naive(ctx: Context) -> None:
        try:
            await ctx.sleep(until=datetime(2030, 1, 1))
        except ValueError as error:
            raise lw.Permanent("naive", str(error)) from error

    serve(app)
    execution = server.parked(server.submit("t.flow"), "sleep")
    assert execution.attempt == 1
    server.advance(7201)
    assert server.finished(execution) == "done"
    assert "time zone" in server.failed(server.submit("t.naive"))["summary"]


def test_logs_are_told_once(server: FakeServer, serve: Any, caplog: Any) -> None:
    app = App("t")
    caplog.set_level(logging.INFO)

    @app.task
    async def flow(ctx: Context) -> None:
        ctx.log("before", order=7)
        await ctx.step("one", lambda: 1)
        ctx.log("after", level="warning")
        ctx.progress(done=1, of=2)
        ctx.log("big", text="x" * 40_000, odd=object())
        await ctx.signal("go")
        ctx.log("end")

    serve(app)
    execution = server.parked(server.submit("t.flow"), "signal")
    server.signal(execution, "go", None)
    server.finished(execution)
    # The lines after the last recorded step are those of both attempts.
    assert execution.logs() == ["before", "after", "big", "after", "big", "end"]
    assert execution.events[0]["data"] == {"message": "before", "level": "info", "order": 7}
    assert [record.message for record in caplog.records if record.name == "longhaul.task"] == execution.logs()


def test_model_clients_are_bound_to_the_execution(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def flow(ctx: Context) -> list[Any]:
        headers = ctx.model.http_headers()
        openai, anthropic = ctx.model.openai(max_retries=1), ctx.model.anthropic()
        for client in (openai, anthropic):
            assert all(client.default_headers[name] == value for name, value in headers.items())
        return [headers, str(openai.base_url), str(anthropic.base_url), ctx.model.base_url]

    @app.task
    def in_thread(ctx: SyncContext) -> list[str]:
        return [type(ctx.model.openai()).__name__, type(ctx.model.anthropic()).__name__]

    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    serve(app)
    execution = server.submit("t.flow")
    headers, openai, anthropic, base = server.finished(execution)
    assert headers["Longhaul-Execution"] == execution.id and len(headers["Longhaul-Lease"]) == 36
    assert (openai, anthropic, base) == (f"{server.url}/v1/", server.url, f"{server.url}/v1")
    assert server.finished(server.submit("t.in_thread")) == ["OpenAI", "Anthropic"]


def test_arguments_that_are_not_json_are_named(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def flow(ctx: Context) -> None:
        await ctx.step("use", lambda client: 1, object())

    serve(app)
    failure = server.failed(server.submit("t.flow"))
    assert failure["code"] == "not_storable" and "functools.partial" in failure["summary"]


def test_tools_are_plain_functions_outside(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.tool(effect="read_only")
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool(effect="idempotent", name="twice")
    async def double(a: int) -> int:
        return 2 * a

    @app.task
    async def flow(ctx: Context) -> int:
        try:
            add(1, 2)
        except TypeError as error:
            assert "ctx.step" in str(error)
        return await ctx.step("add", add, 1, 2) + await double(a=4)

    @app.task
    def in_thread() -> int:
        return add(1, 2)

    assert add(1, 2) == 3 and asyncio.run(double(2)) == 4
    serve(app)
    execution = server.submit("t.flow")
    assert server.finished(execution) == 11
    assert [(step["name"], step["effect"]) for step in execution.steps] == [
        ("add", "read_only"),
        ("twice", "idempotent"),
    ]
    execution = server.submit("t.in_thread")
    assert server.finished(execution) == 3 and execution.steps[0]["effect"] == "read_only"


def test_context_tells_the_execution(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def flow(ctx: Context) -> list[Any]:
        assert ctx.deadline_at is not None and ctx.created_at is not None
        return [ctx.execution_id, ctx.attempt, ctx.definition, ctx.queue, ctx.metadata, ctx.cancelled]

    serve(app)
    execution = server.submit("t.flow", metadata={"a": 1})
    assert server.finished(execution) == [execution.id, 1, "t.flow", "default", {"a": 1}, False]


def test_missing_pydantic_is_named() -> None:
    code = "import sys; sys.modules['pydantic'] = None; import longhaul.worker"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'longhaul[worker]'" in found.stderr
