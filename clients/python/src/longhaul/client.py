"""Clients of the API: `Client`, and `AsyncClient` with the same methods."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict
from urllib.parse import quote

import httpx
from typing_extensions import Self, Unpack

from ._generated.api.executions import cancel_execution, get_execution, submit_execution
from ._generated.client import AuthenticatedClient
from ._generated.models.execution import Execution
from ._generated.models.submit_body import SubmitBody
from ._generated.types import Response
from .errors import (
    ConnectionFailed,
    ExecutionFailed,
    LonghaulError,
    RateLimited,
    Unavailable,
    WaitTimedOut,
    api_error,
)
from .event_stream import Event, EventDecoder
from .retry import RetryPolicy, look_pauses

_IDLE_SECONDS = 45.0
"""Maximum silence of an event stream: the server sends a comment every 15 seconds."""


class SubmitRequest(TypedDict, total=False):
    """Fields of a submit; exactly one of `definition` and `agent`."""

    definition: str
    agent: str
    version: int
    """Version of the definition or agent; the newest when absent."""
    input: Any
    queue: str
    priority: int
    """0 to 9; higher first."""
    metadata: Mapping[str, Any]
    """Metadata for filters."""
    run_at: datetime
    """Earliest start, with its time zone."""
    deadline_seconds: int
    """Maximum lifetime in seconds, waits included."""
    budget: Mapping[str, Any]
    """Budget of the execution and everything it starts."""
    tools: Sequence[Mapping[str, Any]]
    """Further tools, whose calls the caller runs."""


class Client:
    """A client for code without an event loop. May be shared between threads."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Takes address and key from `LONGHAUL_URL` and `LONGHAUL_API_KEY` when absent.

        `timeout` is the maximum time in seconds to connect, and between two parts of an answer.
        """
        self._api = _api(url, api_key, timeout, _raise_api_error)
        self._http = self._api.get_httpx_client()
        self._timeout = timeout
        self._retry = retry or RetryPolicy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def submit(self, *, idempotency_key: str | None = None, **request: Unpack[SubmitRequest]) -> Execution:
        """Submits an execution of a definition or an agent; stored durably when this returns.

        Every try of the request has the same idempotency key, a random one when absent, so the execution is stored
        once. A call with the key of an earlier one returns the execution of that.
        """
        body = _submit_body(request)
        key = idempotency_key or str(uuid.uuid4())
        return self._repeat(lambda: submit_execution.sync_detailed(client=self._api, body=body, idempotency_key=key))

    def get(self, execution_id: str) -> Execution:
        """Reads an execution."""
        return self._repeat(lambda: get_execution.sync_detailed(execution_id, client=self._api))

    def cancel(self, execution_id: str) -> Execution:
        """Cancels an execution and everything it started. One that a worker holds ends within seconds."""
        return self._repeat(lambda: cancel_execution.sync_detailed(execution_id, client=self._api))

    def wait(self, execution_id: str, *, timeout: float | None = None, raise_on_failure: bool = True) -> Execution:
        """Waits until the execution has ended.

        Raises `ExecutionFailed` if it ended as FAILED, and `WaitTimedOut` after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pauses = look_pauses()
        while True:
            execution = self.get(execution_id)
            if _has_ended(execution, raise_on_failure):
                return execution
            time.sleep(_until_next_look(next(pauses), end, execution))

    def events(self, execution_id: str, *, after: int = 0) -> Iterator[Event]:
        """Yields the events after number `after`, until the execution has ended.

        Connects again after a lost connection, and continues with the next event.
        """
        failed = 0
        while True:
            failure: LonghaulError = ConnectionFailed("the event stream ended without an event")
            try:
                with self._http.stream(**_stream_request(execution_id, after, self._timeout)) as response:
                    if response.status_code == httpx.codes.NO_CONTENT:
                        return
                    decoder = EventDecoder()
                    count = 0
                    for chunk in response.iter_bytes():
                        for event in decoder.feed(chunk):
                            after, failed, count = event.seq, 0, count + 1
                            yield event
                if count:
                    # The stream ended, or the server stops. The answer to the next request is 204 if nothing follows.
                    continue
            except httpx.TransportError as error:
                failure = _connection_failed(error)
            except (RateLimited, Unavailable) as error:
                failure = error
            failed += 1
            time.sleep(_until_next_try(self._retry, failed, failure))

    def _repeat(self, send: Callable[[], Response[Any]]) -> Execution:
        failed = 0
        while True:
            try:
                return _execution(send())
            except httpx.TransportError as error:
                failure: LonghaulError = _connection_failed(error)
            except (RateLimited, Unavailable) as error:
                failure = error
            failed += 1
            time.sleep(_until_next_try(self._retry, failed, failure))


class AsyncClient:
    """A client for asyncio, with the methods of `Client`."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        """As `Client`."""
        self._api = _api(url, api_key, timeout, _raise_api_error_async)
        self._http = self._api.get_async_httpx_client()
        self._timeout = timeout
        self._retry = retry or RetryPolicy()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def submit(self, *, idempotency_key: str | None = None, **request: Unpack[SubmitRequest]) -> Execution:
        """As `Client.submit`."""
        body = _submit_body(request)
        key = idempotency_key or str(uuid.uuid4())
        return await self._repeat(
            lambda: submit_execution.asyncio_detailed(client=self._api, body=body, idempotency_key=key)
        )

    async def get(self, execution_id: str) -> Execution:
        """As `Client.get`."""
        return await self._repeat(lambda: get_execution.asyncio_detailed(execution_id, client=self._api))

    async def cancel(self, execution_id: str) -> Execution:
        """As `Client.cancel`."""
        return await self._repeat(lambda: cancel_execution.asyncio_detailed(execution_id, client=self._api))

    async def wait(
        self, execution_id: str, *, timeout: float | None = None, raise_on_failure: bool = True
    ) -> Execution:
        """As `Client.wait`."""
        end = None if timeout is None else time.monotonic() + timeout
        pauses = look_pauses()
        while True:
            execution = await self.get(execution_id)
            if _has_ended(execution, raise_on_failure):
                return execution
            await asyncio.sleep(_until_next_look(next(pauses), end, execution))

    async def events(self, execution_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """As `Client.events`."""
        failed = 0
        while True:
            failure: LonghaulError = ConnectionFailed("the event stream ended without an event")
            try:
                async with self._http.stream(**_stream_request(execution_id, after, self._timeout)) as response:
                    if response.status_code == httpx.codes.NO_CONTENT:
                        return
                    decoder = EventDecoder()
                    count = 0
                    async for chunk in response.aiter_bytes():
                        for event in decoder.feed(chunk):
                            after, failed, count = event.seq, 0, count + 1
                            yield event
                if count:
                    continue
            except httpx.TransportError as error:
                failure = _connection_failed(error)
            except (RateLimited, Unavailable) as error:
                failure = error
            failed += 1
            await asyncio.sleep(_until_next_try(self._retry, failed, failure))

    async def _repeat(self, send: Callable[[], Awaitable[Response[Any]]]) -> Execution:
        failed = 0
        while True:
            try:
                return _execution(await send())
            except httpx.TransportError as error:
                failure: LonghaulError = _connection_failed(error)
            except (RateLimited, Unavailable) as error:
                failure = error
            failed += 1
            await asyncio.sleep(_until_next_try(self._retry, failed, failure))


def _api(
    url: str | None, api_key: str | None, timeout: float, on_response: Callable[[httpx.Response], Any]
) -> AuthenticatedClient:
    url = url or os.environ.get("LONGHAUL_URL")
    api_key = api_key or os.environ.get("LONGHAUL_API_KEY")
    if not url or not api_key:
        raise ValueError("an address and an API key are needed: pass them, or set LONGHAUL_URL and LONGHAUL_API_KEY")
    return AuthenticatedClient(
        base_url=url.rstrip("/"),
        token=api_key,
        timeout=httpx.Timeout(timeout),
        httpx_args={"event_hooks": {"response": [on_response]}},
    )


# The generated functions parse errors as problem+json, which the answer of a proxy is not. These hooks run before them.
def _raise_api_error(response: httpx.Response) -> None:
    if response.is_error:
        response.read()
        raise api_error(response)


async def _raise_api_error_async(response: httpx.Response) -> None:
    if response.is_error:
        await response.aread()
        raise api_error(response)


def _submit_body(request: SubmitRequest) -> SubmitBody:
    body: dict[str, Any] = dict(request)
    if unknown := body.keys() - SubmitRequest.__annotations__.keys():
        raise TypeError(f"a submit has no field {', '.join(sorted(unknown))}")
    if "run_at" in body:
        body["run_at"] = body["run_at"].isoformat()
    return SubmitBody.from_dict(body)


# The generated function for events reads a whole page, so the stream's request is written by hand.
def _stream_request(execution_id: str, after: int, timeout: float) -> dict[str, Any]:
    return {
        "method": "GET",
        "url": f"/v1/executions/{quote(execution_id, safe='')}/events",
        "headers": {"Accept": "text/event-stream", "Last-Event-ID": str(after)},
        "timeout": httpx.Timeout(timeout, read=_IDLE_SECONDS),
    }


def _execution(response: Response[Any]) -> Execution:
    if isinstance(response.parsed, Execution):
        return response.parsed
    raise LonghaulError(f"the server answered {response.status_code.value} in place of an execution")


def _has_ended(execution: Execution, raise_on_failure: bool) -> bool:
    if execution.status == "FAILED" and raise_on_failure:
        raise ExecutionFailed(execution)
    return execution.status in ("FINISHED", "FAILED")


def _until_next_look(pause: float, end: float | None, execution: Execution) -> float:
    """Seconds to sleep before the next look of a wait that lasts until `end`."""
    if end is None:
        return pause
    left = end - time.monotonic()
    if left <= 0:
        raise WaitTimedOut(execution)
    return min(pause, left)


def _until_next_try(retry: RetryPolicy, failed: int, failure: LonghaulError) -> float:
    """Seconds to sleep before the next try; raises the failure if there is none."""
    pause = retry.pause(failed, failure)
    if pause is None:
        raise failure
    return pause


def _connection_failed(error: httpx.TransportError) -> ConnectionFailed:
    failure = ConnectionFailed(str(error) or type(error).__name__)
    failure.__cause__ = error
    return failure
