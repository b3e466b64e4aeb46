"""Shared parts of the tests."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from proxy import Answer

import longhaul

URL = os.environ["LONGHAUL_URL"]
MAIL = {"mail": "Subject: Refund\n\nPlease refund my last order."}
# The scripted model answers with the subject, which is longer than the output schema allows.
REFUSED_MAIL = {"mail": f"Subject: {'long ' * 40}\n\nHello."}
NOWHERE = str(uuid.UUID(int=0))

New = Callable[..., longhaul.Client]


class Blocking:
    """An `AsyncClient` with the methods of `Client`: each call runs in an event loop to its end."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if callable(found):
            return lambda *args, **kwargs: self._result(found(*args, **kwargs))
        return Blocking(found, self._loop) if type(found).__module__.startswith("longhaul._async") else found

    def __iter__(self) -> Iterator[Any]:
        items = aiter(self._inner)
        end = object()
        try:
            while (item := self._loop.run_until_complete(_next(items, end))) is not end:
                yield item
        finally:
            self._loop.run_until_complete(_close(items))

    def _result(self, result: Any) -> Any:
        if asyncio.iscoroutine(result):
            return self._loop.run_until_complete(result)
        return Blocking(result, self._loop) if hasattr(result, "__aiter__") else result


async def _next(items: Any, end: object) -> Any:
    return await anext(items, end)


async def _close(items: Any) -> None:
    await items.aclose()
    # The loop closes generators inside it, such as those of httpx, in its next turns.
    for _ in range(3):
        await asyncio.sleep(0)


def blocking_client(*args: Any, **kwargs: Any) -> Any:
    return Blocking(longhaul.AsyncClient(*args, **kwargs), asyncio.new_event_loop())


def raised(kind: type[Any], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The error of exactly this class that the call raises."""
    try:
        result = call(*args, **kwargs)
    except longhaul.LonghaulError as error:
        assert type(error) is kind, repr(error)
        return error
    raise AssertionError(f"no error, but {result}")


def finished(client: longhaul.Client) -> str:
    """Id of an execution that is FINISHED."""
    execution = client.submit(definition="mail-triage", input=MAIL)
    return client.wait(execution.id, timeout=30).id


def later(client: longhaul.Client, **request: Any) -> str:
    """Id of an execution that does not start during the test."""
    run_at = datetime.now(timezone.utc) + timedelta(hours=1)
    return client.submit(definition="mail-triage", input=MAIL, run_at=run_at, **request).id


def answer(status: str, body: str = "", **headers: str) -> Answer:
    """An answer that is not the API's."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status}\r\n{lines}Connection: close\r\nContent-Length: {len(body.encode())}\r\n\r\n"
    return Answer((head + body).encode())


def refusal(status: str, retry_after: int) -> Answer:
    """A proxy's answer: it has no problem+json."""
    return answer(status, Retry_After=str(retry_after))
