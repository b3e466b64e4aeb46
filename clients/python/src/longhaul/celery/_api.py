"""Requests to the API that this package needs beside those of `Client`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import LonghaulError

if TYPE_CHECKING:
    from ..client import Client


class Api:
    """Requests over the connections of a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def request(self, method: str, path: str, *, json: Any = None, params: dict[str, Any] | None = None) -> Any:
        """The JSON of the answer, None if it has none. Raises the errors of `Client`, and repeats as it does."""
        return self.client.request(method, path, params=params, json=json)

    def executions(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Executions by the filters of the list, newest first."""
        return self.pages("/v1/executions", "executions", "cursor", "next_cursor", filters)

    def pages(
        self, path: str, field: str, parameter: str, following: str, filters: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Entries of all pages of a list."""
        params = {"limit": 200, **filters}
        while True:
            page = self.request("GET", path, params=params)
            entries = page.get(field) if isinstance(page, dict) else None
            if not isinstance(entries, list):
                raise LonghaulError(f"GET {path}: the answer has no list {field!r}")
            yield from entries
            place = page.get(following)
            if not place:
                return
            if place == params.get(parameter):
                raise LonghaulError(f"GET {path}: the page after {place!r} is the same page")
            params[parameter] = place
