"""Requests to the API that this package needs beside those of `Client`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx

from ..errors import ConnectionFailed

if TYPE_CHECKING:
    from ..client import Client


class Api:
    """Requests over the connections of a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def request(self, method: str, path: str, *, json: Any = None, params: dict[str, Any] | None = None) -> Any:
        """The JSON of the answer, None if it has none. Raises the errors of `Client`."""
        try:
            response = self.client._http.request(method, path, json=json, params=params)
        except httpx.TransportError as error:
            raise ConnectionFailed(f"no answer from the API: {error or type(error).__name__}") from error
        return response.json() if response.content else None

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
