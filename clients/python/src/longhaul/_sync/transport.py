# Written by `python3 clients/generate` from _async/transport.py: do not edit.
"""Sending of requests."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import httpx

from .._model import decode
from .._request import IDLE_SECONDS, KEEP_ALIVE_SECONDS, Request, StreamCut, connection_failed
from .._sleep import sync_sleep
from ..errors import ConnectionFailed, LonghaulError, NoServer, RateLimited, Unavailable, UnexpectedAnswer, api_error
from ..event_stream import EventDecoder, ServerSentEvent
from ..retry import RetryPolicy, before, until_next_try

T = TypeVar("T")

MOST_IDLE = 20
"""Connections that are kept for later requests."""
PASSING = (ConnectionFailed, RateLimited, Unavailable)
"""Errors after which a request may be sent again."""


class Transport:
    """Sends requests, again where that may help, and reads their answers."""

    def __init__(self, url: str, api_key: str, timeout: float, retry: RetryPolicy) -> None:
        self.url = url
        self.timeout = timeout
        self.retry = retry
        self.is_known = False
        """True if the address has answered."""
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._certificates = httpx.create_ssl_context()
        self._idle: deque[httpx.Client] = deque()
        self._process = os.getpid()
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    # The time that httpx takes for a request grows with the square of the connections in its pool, and each wait holds
    # one. So each of its clients has one connection, and the clients are the pool.
    @contextmanager
    def _connection(self) -> Iterator[httpx.Client]:
        if self._process != os.getpid():
            # The connections of the process that forked this one are not its own.
            self._idle, self._process = deque(), os.getpid()
        try:
            client = self._idle.pop()
        except IndexError:
            limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
            client = httpx.Client(
                base_url=self.url, headers=self._headers, timeout=self.timeout, verify=self._certificates, limits=limits
            )
        try:
            yield client
        finally:
            if self._is_closed or len(self._idle) >= MOST_IDLE:
                client.close()
            else:
                self._idle.append(client)

    def call(self, request: Request, answer: type[T]) -> T:
        """The answer as an object."""
        return self.read(request, self.send(request), answer)

    def call_once(self, request: Request, answer: type[T]) -> T:
        """As `call`, in one try."""
        return self.read(request, self._send_once(request), answer)

    def call_text(self, request: Request) -> str:
        return (self.send(request)).text

    def call_bytes(self, request: Request) -> bytes:
        return (self.send(request)).content

    def call_none(self, request: Request) -> None:
        self.send(request)

    def send(self, request: Request) -> httpx.Response:
        """Sends the request until it is answered."""
        failed = 0
        while True:
            try:
                return self._send_once(request)
            except PASSING as error:
                if request.is_once and not isinstance(error, (NoServer, RateLimited)):
                    raise
                failure = error
            failed += 1
            self.pause(failed, failure)

    def pause(self, failed: int, failure: LonghaulError) -> None:
        """Sleeps before the next try; raises the failure if there is none."""
        sync_sleep(until_next_try(self.retry, failed, failure, is_known=self.is_known))

    def stream(self, request: Request) -> Iterator[ServerSentEvent]:
        """Events of a stream that cannot be resumed: only its beginning is tried again."""
        failed = 0
        while True:
            count = 0
            try:
                with closing(self.connection(request)) as events:
                    for event in events:
                        count += 1
                        yield event
                return
            except PASSING as error:
                if count or request.is_once and not isinstance(error, (NoServer, RateLimited)):
                    raise
                failure = error
            failed += 1
            self.pause(failed, failure)

    def connection(
        self, request: Request, opened: dict[str, str] | None = None, end: float | None = None
    ) -> Generator[ServerSentEvent, None, None]:
        """Events of one connection. `opened` gets the headers of the answer, with its status as `:status`.

        Raises `StreamCut` soon after the time `end`, and perhaps before it.
        """
        idle = before(end, IDLE_SECONDS)
        slack = min(1.0, idle / 10)
        arguments = request.arguments(self.timeout)
        arguments["headers"]["Accept"] = "text/event-stream"
        arguments["timeout"] = httpx.Timeout(self.timeout, read=max(idle, 0.001))
        try:
            with self._connection() as client, client.stream(**arguments) as response:
                self.is_known = True
                if not response.is_success:
                    response.read()
                    raise api_error(response)
                if opened is not None:
                    opened.update(response.headers)
                    opened[":status"] = str(response.status_code)
                if response.status_code == httpx.codes.NO_CONTENT:
                    return
                kind = response.headers.get("content-type", "no content type")
                if not kind.startswith("text/event-stream"):
                    raise UnexpectedAnswer(f"{self.url}{request.path} answered with {kind} in place of an event stream")
                decoder = EventDecoder()
                for chunk in response.iter_bytes():
                    for event in decoder.feed(chunk):
                        yield event
                    # The silence that a connection bears cannot be changed later: another one bears less of it.
                    if before(end, IDLE_SECONDS) < min(idle - slack, KEEP_ALIVE_SECONDS):
                        raise StreamCut
        except httpx.ReadTimeout as error:
            raise (StreamCut() if before(end, 1) == 0 else connection_failed(error, self.url)) from error
        except httpx.HTTPError as error:
            raise connection_failed(error, self.url) from error

    def _send_once(self, request: Request) -> httpx.Response:
        arguments = request.arguments(self.timeout)
        try:
            with self._connection() as client:
                response = client.request(**arguments)
        except httpx.HTTPError as error:
            raise connection_failed(error, self.url) from error
        self.is_known = True
        if response.is_success:
            return response
        raise api_error(response)

    def read(self, request: Request, response: httpx.Response, answer: type[T]) -> T:
        """The body of an answer as an object."""
        try:
            body = response.json()
        except (ValueError, RecursionError):
            kind = response.headers.get("content-type", "no content type")
            raise UnexpectedAnswer(
                f"{self.url}{request.path} answered {response.status_code} without JSON ({kind}): "
                "is the address that of the API?"
            ) from None
        return decode(answer, body)
