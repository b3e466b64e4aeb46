"""Lists over all their pages."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

from .._model import decode
from .._request import Page, Request
from ..errors import UnexpectedAnswer
from .transport import AsyncTransport

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """A list. Iterating over it asks for one page after the other."""

    def __init__(
        self,
        transport: AsyncTransport,
        request: Request,
        kind: type[T],
        items: str,
        cursor: str | None,
        *,
        is_by_seq: bool = False,
    ) -> None:
        self._transport = transport
        self._request = request
        self._kind = kind
        self._items = items
        self._cursor = cursor
        self._is_by_seq = is_by_seq

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.items:
                yield item

    async def pages(self) -> AsyncIterator[Page[T]]:
        """The pages, with their cursors."""
        request = self._request
        while True:
            page = await self._page(request)
            yield page
            if page.next is None or self._cursor is None:
                return
            if page.next == request.query.get(self._cursor):
                raise UnexpectedAnswer(f"{request.path} answers the same page again and again")
            request = dataclasses.replace(request, query={**request.query, self._cursor: page.next})

    async def _page(self, request: Request) -> Page[T]:
        answer = await self._transport.call(request, dict[str, Any])
        found = answer.get(self._items)
        if not isinstance(found, list):
            raise UnexpectedAnswer(f"the answer of {request.path} has no list `{self._items}`")
        following = answer.get(f"next_{self._cursor}")
        if self._is_by_seq:
            following = found[-1].get("seq") if found and isinstance(found[-1], dict) else None
        return Page([decode(self._kind, item) for item in found], following)
