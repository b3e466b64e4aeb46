from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest
from fake_server import Execution, FakeServer
from pydantic import BaseModel

from longhaul.worker import App, Context, OutcomeUnknown, SyncContext, Transient


def test_parallel_steps_keep_their_occurrence(server: FakeServer, serve: Any) -> None:
    app = App("t")
    results: list[list[str]] = []
    made = Counter[str]()

    @app.task
    async def fan(ctx: Context) -> list[str]:
        async def make(branch: int) -> str:
            made["make"] += 1
            await asyncio.sleep(random.random() / 50)
            return f"{made['make']}"

        async def draw() -> str:
            made["draw"] += 1
            return f"draw {made['draw']}"

        async def branch(number: int) -> str:
            first = await ctx.step("make", make, number)
            # Equal calls in all branches, in an order that depends on which first step was faster.
            return f"{first} {await ctx.step('draw', draw)} {await ctx.step('draw', draw)}"

        found = await ctx.gather(*(branch(number) for number in range(8)))
        plain = await asyncio.gather(*(branch(number) for number in range(8)))
        results.append(found + list(plain))
        if len(results) < 4:
            raise Transient("again")
        return found + list(plain)

    serve(app)
    execution = server.submit("t.fan")
    server.finished(execution)
    assert len(results) == 4 and all(result == results[0] for result in results)
    assert made == {"make": 16, "draw": 32}


def test_changed_function_pays_for_what_changed(server: FakeServer, serve: Any) -> None:
    calls = Counter[str]()

    def app_of(version: int) -> App:
        app = App("t")

        @app.task
        async def flow(ctx: Context) -> str:
            async def work(what: str) -> str:
                calls[what] += 1
                return what

            await ctx.step("load", work, "load")
            if version == 1:
                await ctx.step("old", work, "old")
            else:
                await ctx.step("new", work, "new")
            await ctx.step("store", work, "store")
            await ctx.signal("go")
            return f"version {version}"

        return app

    first = serve(app_of(1))
    execution = server.parked(server.submit("t.flow"), "signal")
    first.stop()
    serve(app_of(2))
    server.signal(execution, "go", None)
    assert server.finished(execution) == "version 2"
    assert calls == {"load": 1, "old": 1, "new": 1, "store": 1}
    assert execution.logs() == ["recorded steps for which the function did not ask: old"]


def test_result_that_no_longer_fits_is_named(server: FakeServer, serve: Any) -> None:
    class Old(BaseModel):
        a: int

    class New(BaseModel):
        b: int

    def app_of(kind: type[BaseModel]) -> App:
        app = App("t")

        @app.task
        async def flow(ctx: Context) -> None:
            async def load() -> kind:  # type: ignore[valid-type]
                return kind.model_validate({"a": 1, "b": 2})

            load.__annotations__["return"] = kind
            await ctx.step("load", load)
            await ctx.signal("go")

        return app

    first = serve(app_of(Old))
    execution = server.parked(server.submit("t.flow"), "signal")
    first.stop()
    serve(app_of(New))
    server.signal(execution, "go", None)
    failure = server.failed(execution)
    assert failure["code"] == "step_mismatch"
    assert "load" in failure["summary"] and "b: Field required" in failure["summary"]


def kill_once(server: FakeServer, wanted: str, steps: int) -> None:
    """Kills one attempt at a point, at this length of the journal."""
    killed: list[str] = []

    def kill(execution: Execution, point: str) -> bool:
        if point == wanted and len(execution.steps) == steps and not killed:
            killed.append(point)
            return True
        return False

    server.boundary = kill


def test_begun_side_effect_raises_outcome_unknown(server: FakeServer, serve: Any) -> None:
    app = App("t")
    sent: list[str] = []

    @app.tool(effect="side_effect")
    async def send(text: str) -> str:
        sent.append(text)
        return "sent"

    @app.task
    async def caught(ctx: Context) -> str:
        try:
            return await send("hello")
        except OutcomeUnknown as error:
            return f"unknown: {error.name}"

    @app.task
    async def uncaught(ctx: Context) -> str:
        return await send("hello")

    serve(app)
    for task in (caught, uncaught):
        sent.clear()
        kill_once(server, "before end", 1)
        execution = server.submit(task.definition)
        if task is caught:
            assert server.finished(execution) == "unknown: send"
        else:
            assert server.failed(execution)["code"] == "outcome_unknown"
        assert sent == ["hello"]
        assert execution.attempt == 2


def test_idempotent_runs_again_with_same_key(server: FakeServer, serve: Any) -> None:
    app = App("t")
    keys: list[str] = []

    @app.task
    async def pay(ctx: Context) -> str:
        @ctx.tool(effect="idempotent")
        async def charge(cents: int) -> str:
            keys.append(ctx.idempotency_key)
            return "paid"

        return await charge(5)

    @app.task
    def pay_in_thread(ctx: SyncContext) -> str:
        @ctx.tool(effect="idempotent")
        def charge(cents: int) -> str:
            keys.append(ctx.idempotency_key)
            return "paid"

        return charge(5)

    serve(app)
    for task in (pay, pay_in_thread):
        keys.clear()
        kill_once(server, "before end", 1)
        execution = server.submit(task.definition)
        assert server.finished(execution) == "paid"
        assert len(keys) == 2 and len(set(keys)) == 1
        assert keys[0] == f"{execution.id}:{execution.steps[0]['key']}"
        assert [step["state"] for step in execution.steps] == ["done"]


def test_side_effect_that_did_not_happen_runs_again(server: FakeServer, serve: Any) -> None:
    app = App("t")
    tries: list[int] = []

    @app.tool(effect="side_effect")
    async def send() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise Transient("busy", "the other side refused the call")
        return "sent"

    @app.task
    async def flow() -> str:
        return await send()

    serve(app)
    execution = server.submit("t.flow")
    assert server.finished(execution) == "sent"
    assert len(tries) == 3


def test_results_are_stored_before_next_step_begins(server: FakeServer, serve: Any) -> None:
    app = App("t")
    journals: list[list[str]] = []

    @app.task
    async def flow(ctx: Context) -> None:
        async def look(number: int) -> None:
            journals.append([step["name"] for step in server.executions[ctx.execution_id].steps])

        for number in range(3):
            await ctx.step(f"s{number}", look, number)

    serve(app)
    server.finished(server.submit("t.flow"))
    assert journals == [[], ["s0"], ["s0", "s1"]]


def test_recorded_values_stay(server: FakeServer, serve: Any) -> None:
    app = App("t")
    seen: list[Any] = []

    @app.task
    async def flow(ctx: Context) -> str:
        seen.append((await ctx.now(), await ctx.random(), await ctx.uuid(), await ctx.uuid()))
        await ctx.signal("go")
        return "done"

    @app.task
    def flow_in_thread(ctx: SyncContext) -> str:
        seen.append((ctx.now(), ctx.random(), ctx.uuid(), ctx.uuid()))
        ctx.signal("go")
        return "done"

    serve(app)
    for task in (flow, flow_in_thread):
        seen.clear()
        execution = server.parked(server.submit(task.definition), "signal")
        server.signal(execution, "go", None)
        assert server.finished(execution) == "done"
        assert seen[0] == seen[1] and seen[0][2] != seen[0][3]


@pytest.mark.parametrize("value", [(1, 2), {"a": (1,)}, [{1}]])
def test_first_attempt_sees_what_a_replay_sees(server: FakeServer, serve: Any, value: Any) -> None:
    app = App("t")
    seen: list[Any] = []

    @app.task
    async def flow(ctx: Context) -> None:
        seen.append(await ctx.step("make", lambda: value))
        await ctx.signal("go")

    serve(app)
    execution = server.parked(server.submit("t.flow"), "signal")
    server.signal(execution, "go", None)
    server.finished(execution)
    assert seen[0] == seen[1]


def add_flow(app: App, steps: int) -> Counter[str]:
    """A task that adds the numbers of its steps after a signal. Returns the count of the steps that ran."""
    calls = Counter[str]()

    async def work(number: int) -> int:
        calls["work"] += 1
        return number

    @app.task
    async def flow(ctx: Context) -> int:
        numbers = await ctx.gather(*(ctx.step("work", work, number) for number in range(steps)))
        await ctx.signal("go")
        return sum(numbers)

    return calls


def test_long_journal_is_read_in_pages(server: FakeServer, serve: Any) -> None:
    app = App("t")
    calls = add_flow(app, 1203)
    server.steps_per_page = 100
    serve(app)
    execution = server.parked(server.submit("t.flow"), "signal")
    server.signal(execution, "go", None)
    assert server.finished(execution) == sum(range(1203))
    assert calls["work"] == 1203


def test_claim_without_room_for_a_journal_reads_it_from_its_start(server: FakeServer, serve: Any) -> None:
    app = App("t")
    calls = add_flow(app, 5)
    server.steps_per_claim = 7
    running = serve(app)
    executions = [server.submit("t.flow") for _ in range(3)]
    for execution in executions:
        server.parked(execution, "signal")
    running.stop()
    # All three are in the answer of one claim: five steps of the first, two of the second, none of the third.
    for execution in executions:
        server.signal(execution, "go", None)
    serve(app)
    for execution in executions:
        assert server.finished(execution) == sum(range(5))
    read = [path.split("/")[5] for _, path in server.requests if path.endswith("/journal")]
    assert sorted(read) == [execution.id for execution in executions[1:]]
    assert calls["work"] == 15


def test_page_of_a_journal_that_does_not_go_on_is_named(server: FakeServer, serve: Any) -> None:
    app = App("t")

    @app.task
    async def flow(ctx: Context) -> int:
        number = await ctx.step("work", lambda: 1)
        await ctx.signal("go")
        return number

    server.steps_per_claim = 0
    server.fault = lambda method, path, done: (
        b'{"steps": [], "next_after": 0}' if path.endswith("/journal") and not done else None
    )
    serve(app)
    execution = server.parked(server.submit("t.flow"), "signal")
    server.signal(execution, "go", None)
    failure = server.failed(execution)
    assert failure["code"] == "protocol_error" and "does not go on" in failure["summary"]


def test_effects_that_began_end_before_a_park_a_failure_and_a_drain(server: FakeServer, serve: Any) -> None:
    app = App("t")
    sent: list[str] = []
    began = threading.Event()

    @app.tool(effect="side_effect")
    async def send(text: str) -> str:
        began.set()
        await asyncio.sleep(0.2)
        sent.append(text)
        return text

    @app.task
    async def parks(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.signal("go"), send("a"), send("b")))

    @app.task
    async def fails(ctx: Context) -> list[Any]:
        async def bad() -> None:
            if ctx.attempt == 1:
                await asyncio.sleep(0.05)
                raise Transient("bad")

        return list(await asyncio.gather(bad(), send("a"), send("b")))

    @app.task
    async def drains(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(send("a"), send("b"), send("c")))

    running = serve(app)
    execution = server.parked(server.submit("t.parks"), "signal")
    server.signal(execution, "go", 1)
    assert server.finished(execution) == [1, "a", "b"]
    assert server.finished(server.submit("t.fails")) == [None, "a", "b"]
    assert sorted(sent) == ["a", "a", "b", "b"]
    for delay in (0.0, 0.01, 0.1):
        sent.clear()
        began.clear()
        execution = server.submit("t.drains")
        if delay:
            assert began.wait(10)
            time.sleep(delay)
        running.stop()
        running = serve(app)
        assert server.finished(execution) == ["a", "b", "c"]
        assert sorted(sent) == ["a", "b", "c"]


def test_drain_between_intent_and_call_does_not_lose_the_call(server: FakeServer, serve: Any) -> None:
    app = App("t")
    sent: list[str] = []

    @app.tool(effect="side_effect")
    async def send() -> str:
        sent.append("sent")
        return "sent"

    @app.task
    async def flow(ctx: Context) -> str:
        return await send()

    running = serve(app)

    def drain(execution: Execution, point: str) -> bool:
        if point == "after write":
            for run in running.worker.session.runs.values():
                run.draining = True
        return False

    server.boundary = drain
    assert server.finished(server.submit("t.flow")) == "sent"
    assert sent == ["sent"]
