"""Requests of the worker protocol over one pool of connections, repeated while the server is away."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from .errors import NoSuchProtocol, NotAllowed, ProtocolError, RequestRefused, WorkerDead

log = logging.getLogger("longhaul.worker")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
"""Seconds between tries while the server is away: from the one to the other, with jitter."""
ODD_ANSWERS = 5
"""Tries of a request whose answers are not the protocol's."""


@dataclass(frozen=True)
class Server:
    """Address and key of the API."""

    url: str
    api_key: str
    timeout: float = 30.0
    """Maximum seconds to connect, and between two parts of an answer."""

    def headers(self) -> dict[str, str]:
        """Headers of each request."""
        return {"Authorization": f"Bearer {self.api_key}", "Accept": "application/json"}

    def __repr__(self) -> str:
        return f"Server({self.url!r})"


class Api:
    """One pool of connections to the server."""

    def __init__(self, server: Server, connections: int = 64) -> None:
        self.server = server
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._http = httpx.AsyncClient(
            base_url=server.url.rstrip("/"), headers=server.headers(), timeout=server.timeout, limits=limits
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        params: Mapping[str, str | int] | None = None,
        timeout: float | None = None,
        tries: int | None = None,
        check: Callable[[dict[str, Any]], object] | None = None,
    ) -> dict[str, Any]:
        """The object that the server answers. Repeated after a lost connection, 429 and 5xx, at most `tries` times.

        `check` raises `ProtocolError` for an answer that is not the protocol's; a few of those too are tried again.

        Raises `WorkerDead`, `NotAllowed`, `RequestRefused`, `ProtocolError` and, after the last try, `ConnectionError`.
        """
        failed = odd = 0
        read = self.server.timeout if timeout is None else timeout
        limits = httpx.Timeout(self.server.timeout, read=read)
        content = None if body is None else body.encode()
        headers = None if body is None else {"Content-Type": "application/json"}
        while True:
            wait: float | None = None
            try:
                request = self._http.request(
                    method, path, content=content, headers=headers, params=params, timeout=limits
                )
                # The limits above are of single reads: an answer that comes byte by byte would never end.
                response = await asyncio.wait_for(request, self.server.timeout + 2 * read)
                if response.status_code < 400:
                    try:
                        answer = answer_of(response, f"{method} {path}")
                        if check is not None:
                            check(answer)
                        return answer
                    except ProtocolError as error:
                        odd += 1
                        if odd >= ODD_ANSWERS:
                            raise
                        reason = str(error)
                else:
                    raise_refusal(response, f"{method} {path}")
                    reason = f"status {response.status_code}"
                    wait = retry_after(response)
            except (httpx.TransportError, httpx.DecodingError, asyncio.TimeoutError) as error:
                reason = f"{type(error).__name__} {error}".rstrip()
            failed += 1
            if tries is not None and failed >= tries:
                raise ConnectionError(f"{method} {path}: {reason}")
            if failed in (1, 10) or failed % 100 == 0:
                log.warning("request is repeated: %s %s: %s (try %d)", method, _shown(path), reason, failed)
            await asyncio.sleep(pause_after(failed) if wait is None else wait)


def pause_after(failed: int) -> float:
    """Seconds until the next try after `failed` failed ones."""
    ceiling = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failed - 1, 10))
    return random.uniform(ceiling / 2, ceiling)


def answer_of(response: httpx.Response, where: str) -> dict[str, Any]:
    """The object of an answer; an empty one for an answer without a body."""
    if response.status_code == httpx.codes.NO_CONTENT:
        return {}
    try:
        answer = response.json()
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{_shown(where)} answered {response.status_code} without JSON") from error
    if not isinstance(answer, dict):
        raise ProtocolError(f"{_shown(where)} answered {response.status_code} with JSON that is no object")
    return answer


def raise_refusal(response: httpx.Response, where: str) -> None:
    """Raises what the status says, unless the request is to be repeated."""
    status = response.status_code
    if status == 429 or status >= 500:
        return
    code, detail = problem_of(response)
    if status == 410 or code == "worker_dead":
        raise WorkerDead(f"the server declared the worker dead ({detail})")
    if status in (401, 403):
        raise NotAllowed(f"{status} {code or ''}: {detail}. The API key needs the scope workers:run")
    if status in (404, 405) and code is None:
        raise NoSuchProtocol(f"{_shown(where)} answered {status}: the address has no worker protocol 1")
    raise RequestRefused(status, code, detail)


def problem_of(response: httpx.Response) -> tuple[str | None, str]:
    """Code and detail of an error; without a code if it is not the API's."""
    try:
        problem = response.json()
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        return None, response.reason_phrase
    detail = str(problem.get("detail") or problem.get("title") or "")[:1000]
    found = problem.get("errors")
    for violation in found[:5] if isinstance(found, list) else []:
        if isinstance(violation, dict):
            detail += f"; {violation.get('path')}: {violation.get('message')}"
    return problem["code"], detail


def retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks for, at most a minute."""
    text = response.headers.get("retry-after", "")
    return min(60.0, float(text)) if text.isdecimal() else None


def part(text: str) -> str:
    """The text as one part of a path."""
    return quote(text, safe="")


def _shown(path: str) -> str:
    return path.split("?", 1)[0]
