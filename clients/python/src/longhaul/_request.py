"""Requests of the API: what the sync and the async client share."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from ._encode import encode, time_text
from .errors import ConnectionFailed, LonghaulError, NoServer, UnexpectedAnswer

T = TypeVar("T")

KEEP_ALIVE_SECONDS = 15.0
"""Silence after which the server sends a comment on an event stream."""
IDLE_SECONDS = 45.0
"""Maximum silence of an event stream."""


class StreamCut(Exception):
    """A connection was left because the time of its reader is nearly over."""


@dataclass
class Request:
    """One request of the API."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    """Parameters; None is left out."""
    metadata: Mapping[str, str] | None = None
    """Filters by metadata."""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: Any = None
    """JSON."""
    optional: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the body; None is left out."""
    content: bytes | None = None
    """A body that is not JSON."""
    wait_seconds: int | None = None
    """Time that the server may hold the answer."""
    is_once: bool = False
    """True for a request that costs something and has no idempotency key: not repeated if it may have arrived."""

    def arguments(self, timeout: float) -> dict[str, Any]:
        """Arguments for httpx."""
        headers = {name: value for name, value in self.headers.items() if value is not None}
        if self.wait_seconds is not None:
            headers["Prefer"] = f"wait={self.wait_seconds}"
        content = self.content
        if content is not None:
            headers["Content-Type"] = "application/octet-stream"
        elif self.body is not None or self.optional:
            given = {name: value for name, value in self.optional.items() if value is not None}
            body = encode({**(self.body or {}), **given})
            content = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        return {
            "method": self.method,
            "url": self.path,
            "params": self._query(),
            "headers": headers,
            "content": content,
            "timeout": httpx.Timeout(timeout, read=timeout + (self.wait_seconds or 0)),
        }

    def _query(self) -> dict[str, str]:
        given = {name: query_text(name, value) for name, value in self.query.items() if value is not None}
        return {**given, **{f"metadata.{name}": value for name, value in (self.metadata or {}).items()}}


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list."""

    items: list[T]
    next: Any
    """Cursor of the next page, for the list's parameter `cursor`, `after` or `before`; None on the last one."""


def query_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return time_text(value, name)
    return str(value)


def in_path(value: str | int) -> str:
    """A part of a path. One that would lead to another path is refused."""
    text = str(value)
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} names nothing: pass the id or key")
    return quote(text, safe="")


def new_key(key: str | None) -> str:
    """The idempotency key, or a new one: every try of a request sends the same."""
    return key or str(uuid.uuid4())


def address(url: str | None, api_key: str | None) -> tuple[str, str]:
    """Address and key, from the environment when absent."""
    url = url or os.environ.get("LONGHAUL_URL")
    api_key = api_key or os.environ.get("LONGHAUL_API_KEY")
    if not url or not api_key:
        raise ValueError("an address and an API key are needed: pass them, or set LONGHAUL_URL and LONGHAUL_API_KEY")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"the address {url!r} does not begin with http:// or https://")
    return url.rstrip("/"), api_key


def connection_failed(error: httpx.HTTPError, url: str) -> LonghaulError:
    """The error of this package for one of httpx."""
    reason = str(error) or type(error).__name__
    failure: LonghaulError
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        failure = NoServer(f"no server answers at {url} ({reason}): is it running, and is the address right?")
    elif isinstance(error, (httpx.DecodingError, httpx.TooManyRedirects)):
        failure = UnexpectedAnswer(f"the answer of {url} cannot be read: {reason}")
    else:
        failure = ConnectionFailed(f"the connection to {url} failed: {reason}")
    failure.__cause__ = error
    return failure
