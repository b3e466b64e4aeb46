"""Requests to the API that this package needs beside those of `Client`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx

from ..errors import ConnectionFailed, LonghaulError, RateLimited, Unavailable

if TYPE_CHECKING:
    from ..client import Client


class Api:
    """Requests over the connections of a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def request(self, method: str, path: str, *, json: Any = None, params: dict[str, Any] | None = None) -> Any:
        """The JSON of the answer, None if it has none. Raises the errors of `Client`, and repeats as it does."""
        failed = 0
        while True:
            try:
                response = self.client._http.request(method, path, json=json, params=params)
                return response.json() if response.content else None
            except httpx.TransportError as error:
                failure: LonghaulError = ConnectionFailed(f"no answer from the API: {error or type(error).__name__}")
                failure.__cause__ = error
            except (RateLimited, Unavailable) as error:
                failure = error
            failed += 1
            # A repeated POST might do twice what the first one did.
            pause = None if method == "POST" else self.client._retry.pause(failed, failure)
            if pause is None:
                raise failure
            time.sleep(pause)

    def executions(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Executions by the filters of the list, newest first."""
        cursor: str | None = None
        while True:
            page = self.request(
                "GET", "/v1/executions", params={"limit": 200, **filters, **({"cursor": cursor} if cursor else {})}
            )
            yield from page["executions"]
            cursor = page.get("next_cursor")
            if not cursor:
                return
