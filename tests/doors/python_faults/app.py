"""The functions of the load. Their tools call the counting server, which knows each call by execution, step and key."""

from __future__ import annotations

import os
from typing import Any

import httpx
from longhaul.worker import App, Context, OutcomeUnknown, Retry, SyncContext, Transient, current

COUNTER = os.environ["FAULTS_COUNTER"]
TIMEOUT = 5.0
RETRY = Retry(transient=[1] * 8, jitter=0.0)
UNKNOWN = "unknown"
"""Stands in an output for a side effect that was begun by an attempt that died."""

app = App("faults")
_http = httpx.AsyncClient(timeout=TIMEOUT)
_blocking_http = httpx.Client(timeout=TIMEOUT)


def request(step: str, effect: str) -> dict[str, Any]:
    """Body of a call to the counting server."""
    ctx = current()
    assert ctx is not None
    return {
        "execution": ctx.execution_id,
        "attempt": ctx.attempt,
        "step": step,
        "effect": effect,
        "key": ctx.idempotency_key if effect != "none" else "",
        "pid": os.getpid(),
    }


async def call(step: str, effect: str) -> dict[str, Any]:
    """One call of the counting server."""
    answer: dict[str, Any] = (await _http.post(COUNTER, json=request(step, effect))).raise_for_status().json()
    return answer


def blocking_call(step: str, effect: str) -> str:
    """As `call`, for functions without async."""
    return str(_blocking_http.post(COUNTER, json=request(step, effect)).raise_for_status().json()["run"])


@app.tool(effect="read_only")
async def look(step: str) -> str:
    """A step that may be repeated."""
    return str((await call(step, "read_only"))["run"])


@app.tool(effect="idempotent")
async def pay(step: str) -> str:
    """A step that is repeated under the same key."""
    return str((await call(step, "idempotent"))["run"])


@app.tool(effect="side_effect")
async def send(step: str) -> str:
    """A step that is never repeated."""
    return str((await call(step, "side_effect"))["run"])


async def sent(step: str) -> str:
    """A side effect; `unknown` if an attempt died in it."""
    try:
        return await send(step)
    except OutcomeUnknown:
        return UNKNOWN


@app.tool(effect="read_only")
def blocking_look(step: str) -> str:
    """As `look`."""
    return blocking_call(step, "read_only")


@app.tool(effect="idempotent")
def blocking_pay(step: str) -> str:
    """As `pay`."""
    return blocking_call(step, "idempotent")


@app.tool(effect="side_effect")
def blocking_send(step: str) -> str:
    """As `send`."""
    return blocking_call(step, "side_effect")


@app.task(retry=RETRY)
async def three(ctx: Context, number: int) -> dict[str, Any]:
    """Three steps in a row."""
    return {"number": number, "runs": {"a": await look("a"), "b": await pay("b"), "c": await sent("c")}}


@app.task(retry=RETRY)
def blocking(ctx: SyncContext, number: int) -> dict[str, Any]:
    """Three steps in a row, in a thread."""
    runs = {"a": blocking_look("a"), "b": blocking_pay("b")}
    try:
        runs["c"] = blocking_send("c")
    except OutcomeUnknown:
        runs["c"] = UNKNOWN
    return {"number": number, "runs": runs}


@app.task(retry=RETRY)
async def parallel(ctx: Context, number: int) -> dict[str, Any]:
    """Five steps at a time."""
    names = ["a", "b", "c", "d", "e"]
    runs = await ctx.gather(look("a"), pay("b"), sent("c"), look("d"), pay("e"))
    return {"number": number, "runs": dict(zip(names, runs, strict=True))}


@app.task(retry=RETRY)
async def wait(ctx: Context, number: int) -> dict[str, Any]:
    """A sleep and a signal between steps."""
    runs = {"a": await look("a")}
    await ctx.sleep(2)
    runs["b"] = await pay("b")
    payload = await ctx.signal("go")
    runs["c"] = await sent("c")
    return {"number": number, "runs": runs, "payload": payload}


@app.task(retry=RETRY)
async def leaf(ctx: Context, number: int, part: int) -> dict[str, Any]:
    """A child."""
    return {"number": number, "part": part, "runs": {"a": await pay("a"), "b": await sent("b")}}


@app.task(retry=RETRY)
async def tree(ctx: Context, number: int) -> dict[str, Any]:
    """Two children."""
    runs = {"a": await pay("a")}
    children = [await ctx.spawn(f"leaf {part}", leaf, number, part) for part in range(2)]
    parts = await ctx.gather(*children)
    runs["b"] = await sent("b")
    return {"number": number, "runs": runs, "children": [child.id for child in children], "parts": parts}


@app.task(retry=RETRY)
async def gate(ctx: Context, number: int) -> dict[str, Any]:
    """An approval."""
    runs = {"a": await pay("a")}
    decision = await ctx.approve("gate", {"number": number})
    runs["b"] = await sent("b")
    return {"number": number, "runs": runs, "approved": decision.arguments}


@app.task(retry=RETRY)
async def flaky(ctx: Context, number: int) -> dict[str, Any]:
    """Fails once."""
    runs = {"a": await pay("a"), "b": await sent("b")}
    # Outside of a step, so that it is asked anew by each attempt.
    if (await call_plain("fails"))["count"] == 1:
        raise Transient("first_time", "the first attempt fails")
    runs["c"] = await look("c")
    return {"number": number, "runs": runs}


async def call_plain(step: str) -> dict[str, Any]:
    """A call that is no step."""
    return await call(step, "none")
