"""Clients for model calls that belong to an execution."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from .run import Run
from .transport import Server


class Model:
    """Model calls of one execution: recorded, answered from the record by a later attempt, within its budget."""

    def __init__(self, run: Run, *, is_async: bool) -> None:
        self._run = run
        self._is_async = is_async

    @property
    def base_url(self) -> str:
        """Address for SDKs of OpenAI's kind, which append `/chat/completions`."""
        return f"{self._server.url.rstrip('/')}/v1"

    def http_headers(self) -> dict[str, str]:
        """Headers that make a request a call of this execution. They hold for this attempt."""
        return {"Longhaul-Execution": self._run.claim.id, "Longhaul-Lease": self._run.claim.token}

    def openai(self, **options: Any) -> Any:
        """A client of the package `openai`: `AsyncOpenAI`, or `OpenAI` in a function without async."""
        sdk = _sdk("openai")
        kind = sdk.AsyncOpenAI if self._is_async else sdk.OpenAI
        client = _shared(kind, self._server, base_url=self.base_url, api_key=self._server.api_key)
        return client.with_options(default_headers=self._headers(options), **options)

    def anthropic(self, **options: Any) -> Any:
        """A client of the package `anthropic`: `AsyncAnthropic`, or `Anthropic` in a function without async."""
        sdk = _sdk("anthropic")
        kind = sdk.AsyncAnthropic if self._is_async else sdk.Anthropic
        # Its paths begin with /v1.
        url = self._server.url.rstrip("/")
        client = _shared(kind, self._server, base_url=url, api_key=self._server.api_key)
        return client.with_options(default_headers=self._headers(options), **options)

    def _headers(self, options: dict[str, Any]) -> dict[str, str]:
        return {**options.pop("default_headers", {}), **self.http_headers()}

    @property
    def _server(self) -> Server:
        return self._run.session.api.server


_clients: dict[tuple[Any, Server], Any] = {}
_lock = threading.Lock()


def _shared(kind: Any, server: Server, **settings: Any) -> Any:
    """One client with its pool of connections for all executions."""
    with _lock:
        key = (kind, server)
        if key not in _clients:
            _clients[key] = kind(**settings)
        return _clients[key]


def _sdk(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"ctx.model.{name}() needs the package {name}: pip install {name}") from error
