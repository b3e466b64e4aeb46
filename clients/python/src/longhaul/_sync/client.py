# Written by `python3 clients/generate` from _async/client.py: do not edit.
"""The client of the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import Self, Unpack

from .. import params
from .._request import Request, address, new_key
from ..event_stream import Event
from ..retry import RetryPolicy
from ..types import Execution
from .resources import Resources
from .transport import Transport


class Client(Resources):
    """A client for code without an event loop. May be shared between threads.

    The operations of the API are in its attributes: `client.executions.list()`, `client.approvals.decide(…)`. The
    most frequent ones are methods of the client itself.
    """

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
        url, api_key = address(url, api_key)
        self._transport = Transport(url, api_key, timeout, retry or RetryPolicy())
        super().__init__(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def submit(
        self,
        *,
        idempotency_key: str | None = None,
        wait_seconds: int | None = None,
        **request: Unpack[params.Submit],
    ) -> Execution:
        """As `executions.submit`."""
        return self.executions.submit(idempotency_key=idempotency_key, wait_seconds=wait_seconds, **request)

    def get(self, execution_id: str) -> Execution:
        """As `executions.get`."""
        return self.executions.get(execution_id)

    def cancel(self, execution_id: str) -> Execution:
        """As `executions.cancel`."""
        return self.executions.cancel(execution_id)

    def wait(
        self, execution_id: str, *, timeout: float | None = None, raise_on_failure: bool = True
    ) -> Execution:
        """As `executions.wait`."""
        return self.executions.wait(execution_id, timeout=timeout, raise_on_failure=raise_on_failure)

    def request(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, json: Any = None
    ) -> Any:
        """Sends a request that has no method here, such as one of a newer API, and returns the JSON of its answer.

        Repeats it as the other methods do, a POST with an idempotency key; None for an answer without a body.
        """
        if not path.startswith("/") or path.startswith("//"):
            raise ValueError(f"{path!r} is not a path of the API, such as /v1/executions")
        headers = {"Idempotency-Key": new_key(None)} if method == "POST" else {}
        request = Request(method, path, params or {}, headers=headers, body=json)
        response = self._transport.send(request)
        return self._transport.read(request, response, object) if response.content else None

    def events(self, execution_id: str, *, after: int = 0) -> Iterator[Event]:
        """As `executions.events`."""
        return self.executions.events(execution_id, after=after)
