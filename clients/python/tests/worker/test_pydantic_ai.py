"""`LonghaulDurability` with pydantic-ai's own models, on a journal in memory that dies at every boundary of a step."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai 2.66 needs Python 3.11")

import pydantic_ai.models
from fake_server import Execution, FakeServer
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.durable_exec import DurableOperationId
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from longhaul.pydantic_ai import LonghaulDurability, StepConfig, _content
from longhaul.worker import App
from longhaul.worker.claim import Claim
from longhaul.worker.context import Context, bind
from longhaul.worker.errors import OutcomeUnknown
from longhaul.worker.journal import Journal, enter_root_scope
from longhaul.worker.run import Run


class Killed(BaseException):
    """The process died."""


class Store:
    """The journal of one execution, and the place where its attempt dies."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.dies_at: int | None = None
        self.dies_after_it = False
        self.is_dead = False
        self.writes = 0

    def later(self, run: Run) -> None:
        """Stores what was added, in the place of the worker's writer."""
        if self.is_dead:
            raise Killed
        dies = self.dies_at == self.writes
        self.writes += 1
        self.is_dead = dies
        if dies and not self.dies_after_it:
            raise Killed
        write = run.take_write()
        for text in write.steps:
            step = json.loads(text)
            self.steps = [one for one in self.steps if one["seq"] != step["seq"]] + [step]
        run.acknowledge(write)
        if dies:
            raise Killed

    now = later

    async def attempt(self, function: Callable[[Context], Awaitable[Any]]) -> Any:
        """One attempt of the function, which dies at the boundary that is set."""
        journal = Journal()
        journal.load(sorted(self.steps, key=lambda step: int(step["seq"])), "the test")
        fields = dict.fromkeys(Claim.__dataclass_fields__)
        fields.update(id="e1", token="t", definition="d", version=1, queue="default", lane="normal", attempt=1)
        fields.update(wake_seq=0, cancel_requested=False, depth=0, metadata={}, journal=journal)

        async def in_thread(function: Any, args: Any, kwargs: Any) -> Any:
            return await asyncio.to_thread(function, *args, **kwargs)

        session = SimpleNamespace(writer=self, worker=SimpleNamespace(in_thread=in_thread), worker_id="w")
        run = Run(Claim(**fields), session)  # type: ignore[arg-type]

        async def body() -> Any:
            ctx = Context(run, enter_root_scope())
            bind(ctx)
            return await function(ctx)

        self.writes = 0
        others = asyncio.all_tasks()
        try:
            return await contextvars.copy_context().run(asyncio.ensure_future, body())
        finally:
            # Nothing of a process that died goes on.
            left = asyncio.all_tasks() - others
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self.is_dead = False

    async def until_done(self, function: Callable[[Context], Awaitable[Any]]) -> Any:
        """Attempts until one does not die; only the first dies."""
        try:
            return await self.attempt(function)
        except BaseException as error:
            # Of parallel tools a group comes.
            if not isinstance(error, Killed) and "Killed" not in repr(getattr(error, "exceptions", ())):
                raise
            self.dies_at = None
        return await self.attempt(function)


class World:
    """An agent with two tools, and how often each part of it ran."""

    def __init__(self, parallel: bool, streamed: bool, delays: tuple[float, float] = (0.0, 0.0)) -> None:
        self.calls: Counter[str] = Counter()
        self.events: list[str] = []
        self.parallel = parallel
        self.streamed = streamed
        self.delays = delays
        self.agent = self._agent()

    def _agent(self) -> Agent[None, str]:
        async def on_events(ctx: RunContext[None], events: AsyncIterable[Any]) -> None:
            async for event in events:
                self.events.append(event.event_kind)

        handler = on_events if self.streamed else None
        agent = Agent(
            FunctionModel(self._answer, stream_function=self._stream),
            name="shop",
            capabilities=[LonghaulDurability[None](event_stream_handler=handler)],
        )

        @agent.tool_plain
        async def stock(item: str) -> int:
            self.calls["stock"] += 1
            await asyncio.sleep(self.delays[0])
            return 3

        @agent.tool_plain
        async def price(item: str) -> str:
            self.calls["price"] += 1
            await asyncio.sleep(self.delays[1])
            return "5 EUR"

        return agent

    def _next(self, messages: list[ModelMessage]) -> list[tuple[str, dict[str, str]]] | str:
        """Tools that the model calls after these messages, or its answer."""
        self.calls["model"] += 1
        done = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        first, second = ("stock", {"item": "tea"}), ("price", {"item": "tea"})
        if self.parallel and not done:
            return [first, second]
        if not self.parallel and len(done) < 2:
            return [(first, second)[len(done)]]
        return ", ".join(f"{part.tool_name} {part.content}" for part in done)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        wanted = self._next(messages)
        if isinstance(wanted, str):
            return ModelResponse(parts=[TextPart(wanted)])
        return ModelResponse(parts=[ToolCallPart(name, args) for name, args in wanted])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        wanted = self._next(messages)
        if isinstance(wanted, str):
            for word in wanted.split(" "):
                yield f"{word} "
            return
        yield {
            place: DeltaToolCall(name=name, json_args=json.dumps(args), tool_call_id=f"call-{name}")
            for place, (name, args) in enumerate(wanted)
        }

    async def run(self, ctx: Context) -> str:
        """The function of the task."""
        result = await self.agent.run("How much tea is there?")
        return result.output.strip()


async def boundaries(world: World) -> tuple[int, str, Counter[str], list[str]]:
    store = Store()
    output = await store.attempt(world.run)
    return store.writes, output, world.calls, [step["name"] for step in store.steps]


@pytest.mark.parametrize("streamed", [False, True], ids=["request", "stream"])
@pytest.mark.parametrize("parallel", [False, True], ids=["one-by-one", "parallel"])
def test_death_at_each_boundary_repeats_nothing_recorded(parallel: bool, streamed: bool) -> None:
    async def check() -> None:
        count, output, once, _ = await boundaries(World(parallel, streamed))
        assert output == "stock 3, price 5 EUR"
        assert once == {"model": 2 if parallel else 3, "stock": 1, "price": 1}
        assert count >= 4
        for place in range(count):
            world, store = World(parallel, streamed), Store()
            store.dies_at, store.dies_after_it = place, True
            assert await store.until_done(world.run) == output
            assert world.calls["model"] == once["model"], f"died after write {place}"
            # Of parallel tools, the one that is under way when the other is recorded is cut, and runs again.
            again = world.calls - once
            assert sum(again.values()) <= (1 if parallel else 0), f"died after write {place}: {again}"

    asyncio.run(check())


@pytest.mark.parametrize("streamed", [False, True], ids=["request", "stream"])
def test_death_before_a_record_repeats_that_step_only(streamed: bool) -> None:
    async def check() -> None:
        count, output, once, _ = await boundaries(World(True, streamed))
        for place in range(count):
            world, store = World(True, streamed), Store()
            store.dies_at = place
            assert await store.until_done(world.run) == output
            # A parallel call that was cut is made again too.
            assert sum((world.calls - once).values()) <= 2, f"died before write {place}"

    asyncio.run(check())


@pytest.mark.parametrize("delays", [(0.02, 0.0), (0.0, 0.02)], ids=["first-slow", "second-slow"])
def test_parallel_calls_keep_their_results_whichever_ends_first(delays: tuple[float, float]) -> None:
    async def check() -> None:
        count, output, once, _ = await boundaries(World(True, False))
        for place in range(count):
            world, store = World(True, False, delays), Store()
            store.dies_at, store.dies_after_it = place, True
            assert await store.until_done(world.run) == output
            assert all(world.calls[name] - once[name] <= 1 for name in once)
            world.delays = (delays[1], delays[0])

    asyncio.run(check())


def test_replay_of_a_finished_run_calls_nothing() -> None:
    async def check() -> None:
        world, store = World(True, True), Store()
        output = await store.attempt(world.run)
        calls = dict(world.calls)
        assert await store.attempt(world.run) == output
        assert dict(world.calls) == calls

    asyncio.run(check())


def test_names_of_steps_never_change() -> None:
    async def check() -> None:
        *_, names = await boundaries(World(False, False))
        assert list(dict.fromkeys(name for name in names if "run_start_time" not in name)) == [
            "shop__model.request",
            "shop__function_toolset__<agent>.call_tool:stock",
            "shop__function_toolset__<agent>.call_tool:price",
        ]
        *_, names = await boundaries(World(True, True))
        assert {"shop__model.request_stream", "shop__event_stream_handler"} <= set(names)

    asyncio.run(check())


def test_two_runs_in_one_execution_have_records_of_their_own() -> None:
    async def both(world: World, ctx: Context) -> list[str]:
        return list(await asyncio.gather(world.run(ctx), world.run(ctx)))

    async def check() -> None:
        world, store = World(True, False), Store()
        first = await store.attempt(partial(both, world))
        assert world.calls == {"model": 4, "stock": 2, "price": 2}
        for place in range(store.writes):
            again, other = World(True, False), Store()
            other.dies_at, other.dies_after_it = place, True
            assert await other.until_done(partial(both, again)) == first
            assert again.calls["model"] <= 5

    asyncio.run(check())


def test_tool_with_a_side_effect_is_not_repeated() -> None:
    calls: Counter[str] = Counter()
    agent = Agent(TestModel(), name="bank", capabilities=[LonghaulDurability[None]()])

    @agent.tool_plain(metadata={"longhaul": StepConfig(effect="side_effect")})
    async def pay(amount: int) -> str:
        calls["pay"] += 1
        return "paid"

    async def run(ctx: Context) -> str:
        return (await agent.run("Pay.")).output

    async def check() -> None:
        store = Store()
        await store.attempt(run)
        intent = next(i for i, step in enumerate(store.steps) if step.get("effect") == "side_effect")
        assert calls["pay"] == 1 and intent >= 0
        unknown = 0
        for place in range(store.writes):
            calls.clear()
            other = Store()
            other.dies_at, other.dies_after_it = place, False
            try:
                await other.until_done(run)
            except OutcomeUnknown:
                unknown += 1
            assert calls["pay"] <= 1
        assert unknown == 1

    asyncio.run(check())


def test_retry_asked_for_by_a_tool_is_recorded() -> None:
    calls: Counter[str] = Counter()
    agent = Agent(TestModel(), name="shop", capabilities=[LonghaulDurability[None]()])

    @agent.tool_plain
    async def stock(item: str) -> int:
        calls["stock"] += 1
        if calls["stock"] == 1:
            raise ModelRetry("name the item")
        return 3

    async def run(ctx: Context) -> str:
        return (await agent.run("Tea?")).output

    async def check() -> None:
        store = Store()
        output = await store.attempt(run)
        assert calls["stock"] == 2
        assert await store.attempt(run) == output
        assert calls["stock"] == 2

    asyncio.run(check())


def test_agent_outside_a_worker_runs_as_without_it() -> None:
    world = World(True, False)
    assert asyncio.run(world.agent.run("Tea?")).output == "stock 3, price 5 EUR"


def test_unknown_effect_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="effect='twice'"):
        LonghaulDurability[None](tool_step={"effect": "twice"})  # type: ignore[arg-type]


def test_operation_of_a_later_release_is_a_step_of_its_run() -> None:
    class Later:
        pass

    later: DurableOperationId = Later()  # type: ignore[assignment]
    assert _content(later, (1, 2)) == {"run": None}


def test_blocking_task_is_refused_by_name() -> None:
    from longhaul.worker.sync_context import SyncContext

    world = World(False, False)

    async def check() -> None:
        store = Store()

        async def blocking(ctx: Context) -> None:
            bind(SyncContext(ctx, asyncio.get_running_loop()))
            with pytest.raises(UserError, match="async def"):
                await world.agent.run("Tea?")

        await store.attempt(blocking)

    asyncio.run(check())


def test_worker_that_dies_at_each_boundary_goes_on(server: FakeServer, serve: Callable[..., Any]) -> None:
    worlds: dict[str, World] = {}
    app = App("shop")

    @app.task
    async def answer(ctx: Context, world: str) -> str:
        return await worlds[world].run(ctx)

    serve(app)
    points: list[str] = []
    dies_at = [-1]

    def boundary(execution: Execution, point: str) -> bool:
        points.append(point)
        return len(points) - 1 == dies_at[0]

    server.boundary = boundary
    worlds["first"] = World(True, True)
    output = server.finished(server.submit("shop.answer", {"world": "first"}))
    once, found = worlds["first"].calls, list(points)
    assert (output, once["model"]) == ("stock 3, price 5 EUR", 2)
    for place, point in enumerate(found):
        points.clear()
        dies_at[0] = place
        worlds[str(place)] = World(True, True)
        assert server.finished(server.submit("shop.answer", {"world": str(place)})) == output
        again = sum((worlds[str(place)].calls - once).values())
        assert again <= (1 if point.startswith("after") else 2), f"died {point}, boundary {place}"


pydantic_ai.models.ALLOW_MODEL_REQUESTS = False
