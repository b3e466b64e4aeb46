"""One function with a step, an approval, a child, a sleep of an hour and a signal, killed at every boundary."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import Any

import pytest
from fake_server import Execution, FakeServer
from pydantic import BaseModel

from longhaul.worker import App, Context, SyncContext

calls: Counter[str] = Counter()
app = App("shop")


class Order(BaseModel):
    id: int
    cents: int


class Receipt(BaseModel):
    order: int
    charge: str
    shipped: str
    paid_by: str
    note: str


@app.tool(effect="idempotent")
async def charge(cents: int) -> str:
    calls["charge"] += 1
    return f"charge of {cents}"


@app.task
async def ship(order: int) -> str:
    calls["ship"] += 1
    return f"parcel {order}"


@app.task
async def buy(ctx: Context, order: Order) -> Receipt:
    total = await ctx.step("total", add_tax, order.cents)
    decision = await ctx.approve("pay", {"cents": total}, text=f"Pay {total} cents?")
    paid = await charge(decision.arguments["cents"])
    parcel = await ctx.spawn("ship", ship, order.id)
    shipped = await parcel.result()
    await ctx.sleep(3600)
    payment = await ctx.signal("paid")
    note = await ctx.step("note", write_note, shipped)
    ctx.log("done")
    return Receipt(order=order.id, charge=paid, shipped=shipped, paid_by=payment["by"], note=note)


async def add_tax(cents: int) -> int:
    calls["total"] += 1
    return cents + cents // 10


def write_note(shipped: str) -> str:
    calls["note"] += 1
    return f"{shipped} is on its way"


@app.task
def buy_in_thread(ctx: SyncContext, order: Order) -> Receipt:
    total = ctx.step("total", lambda cents: cents + cents // 10, order.cents)
    decision = ctx.approve("pay", {"cents": total}, text=f"Pay {total} cents?")
    paid = ctx.step("charge", lambda cents: f"charge of {cents}", decision.arguments["cents"])
    parcel = ctx.spawn("ship", ship, order.id)
    shipped = parcel.result()
    ctx.sleep(3600)
    payment = ctx.signal("paid")
    note = ctx.step("note", write_note, shipped)
    return Receipt(order=order.id, charge=paid, shipped=shipped, paid_by=payment["by"], note=note)


RECEIPT = {
    "order": 7,
    "charge": "charge of 990",
    "shipped": "parcel 7",
    "paid_by": "card",
    "note": "parcel 7 is on its way",
}


class Script:
    """Plays the world around the execution: approves edited arguments, moves the clock, sends the signal."""

    def __init__(self, server: FakeServer, execution: Execution) -> None:
        self.server = server
        self.execution = execution
        self._sent = False
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        server, execution = self.server, self.execution
        until = time.monotonic() + 15
        while execution.status not in ("FINISHED", "FAILED") and time.monotonic() < until:
            if any(request["state"] == "waiting" for request in execution.requests.values()):
                server.decide(execution, "edited", {"cents": 990})
            elif execution.wait_reason == "sleep":
                server.advance(3601)
            elif execution.wait_reason == "signal" and not self._sent:
                self._sent = True
                server.signal(execution, "paid", {"by": "card"})
            time.sleep(0.002)


def play(server: FakeServer, definition: str) -> Execution:
    """Runs it to its end."""
    execution = server.submit(definition, {"id": 7, "cents": 1000})
    Script(server, execution)
    assert server.finished(execution) == RECEIPT
    return execution


@pytest.mark.parametrize("definition", ["shop.buy", "shop.buy_in_thread"])
def test_killed_at_every_boundary_gives_same_output(server: FakeServer, serve: Any, definition: str) -> None:
    serve(app)
    names = [step["name"] for step in play(server, definition).steps]

    for number in itertools.count():
        seen: list[str] = []

        def kill(execution: Execution, point: str, number: int = number, seen: list[str] = seen) -> bool:
            seen.append(point)
            return len(seen) == number + 1

        server.boundary = kill
        before = Counter(calls)
        execution = play(server, definition)
        if len(seen) <= number:
            break
        assert [step["name"] for step in execution.steps] == names, seen[number]
        assert all(step["state"] == "done" for step in execution.steps)
        assert len(execution.children) == len(execution.requests) == 1
        again = {name: count for name, count in (calls - before).items() if count > 1}
        # Only what was under way at the kill ran twice.
        assert len(again) <= 1 and sum(again.values()) <= 2, (seen[number], again)
    assert number >= 20, "boundaries of an execution that nothing kills"


def test_killed_at_every_boundary_at_once(server: FakeServer, serve: Any) -> None:
    serve(app)
    seen: set[tuple[str, int]] = set()

    def kill(execution: Execution, point: str) -> bool:
        # Each point of each journal length once: every attempt dies a little later than the one before.
        place = (f"{execution.id} {point}", len(execution.steps))
        if place in seen:
            return False
        seen.add(place)
        return True

    server.boundary = kill
    execution = play(server, "shop.buy")
    assert execution.attempt > 15
