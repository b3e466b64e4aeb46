# Written by `python3 clients/generate` from _async/streams.py: do not edit.
"""Methods that follow something for a while, below the generated ones."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

from .. import params
from .._request import Request, StreamCut, in_path, new_key
from .._sleep import sync_sleep
from ..errors import ConnectionFailed, LonghaulError, NoServer, NotFound, Unavailable, WaitTimedOut, execution_failed
from ..event_stream import ChatEvent, Event, chat_event, execution_event
from ..retry import before, wait_pause
from ..types import Execution
from .transport import PASSING, Transport

Message = str | Sequence[params.InputPart]
"""A text, or texts and files."""

AFTER_ALL = 2**31 - 1
"""A cursor behind every event: the stream begins with `resync`, and goes on with what happens from now on."""
PATIENCE = 60.0
"""Seconds without an answer after which `wait` gives up."""
NO_SLOT_PAUSE = 1.0
"""Seconds between the looks of `wait` while the server has no place for another stream."""


class Resource:
    """Operations of one kind."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class ExecutionStreams(Resource):
    def events(self, execution_id: str, *, after: int = 0) -> Iterator[Event]:
        """Yields the events after number `after`, until the execution has ended.

        Connects again after a lost connection, and continues with the next event.
        """
        failed = 0
        while True:
            failure: LonghaulError = ConnectionFailed("the event stream ended without an event")
            opened: dict[str, str] = {}
            count = 0
            try:
                with closing(self._transport.connection(events_request(execution_id, after), opened)) as events:
                    for sent in events:
                        event = execution_event(sent)
                        after, failed, count = event.seq, 0, count + 1
                        yield event
                if opened[":status"] == "204":
                    return
                if count:
                    # The stream ended, or the server stops. The answer to the next request is 204 if nothing follows.
                    continue
            except PASSING as error:
                failure = error
            failed += 1
            self._transport.pause(failed, failure)

    def wait(
        self, execution_id: str, *, timeout: float | None = None, raise_on_failure: bool = True
    ) -> Execution:
        """Waits until the execution has ended, by its event stream: two requests, however long it takes.

        Raises `ExecutionFailed` if it ended as FAILED (`ExecutionCancelled` if it was cancelled), unless
        `raise_on_failure` is false, and `WaitTimedOut` after `timeout` seconds. Goes on after lost connections and
        restarts of the server.
        """
        end = None if timeout is None else time.monotonic() + timeout
        execution: Execution | None = None
        failed = 0
        answered = time.monotonic()
        while True:
            begun = time.monotonic()
            failure: LonghaulError | None = None
            opened: dict[str, str] = {}
            try:
                self._until_over(execution_id, end, opened)
                request = Request("GET", f"/v1/executions/{in_path(execution_id)}")
                execution = self._transport.call_once(request, Execution)
                answered = time.monotonic()
                if execution.status == "FAILED" and raise_on_failure:
                    raise execution_failed(execution)
                if execution.status in ("FINISHED", "FAILED"):
                    return execution
            except PASSING as error:
                failure = error
                if opened:
                    answered = time.monotonic()
                is_wrong_address = isinstance(error, NoServer) and not self._transport.is_known
                if is_wrong_address or time.monotonic() - answered > PATIENCE:
                    raise
            if end is not None and time.monotonic() >= end:
                raise WaitTimedOut(execution_id, execution) from failure
            # A stream that told nothing for long was not in vain; one that ends at once may do so for ever.
            failed = 0 if failure is None and time.monotonic() - begun > 1 else failed + 1
            sync_sleep(before(end, wait_pause(failed, failure)))

    def _until_over(self, execution_id: str, end: float | None, opened: dict[str, str]) -> None:
        """Returns when the event stream has ended, or at `end`."""
        request = events_request(execution_id, AFTER_ALL)
        while True:
            try:
                with closing(self._transport.connection(request, opened, end)) as events:
                    for _ in events:
                        pass
                return
            except StreamCut:
                if before(end, 1) == 0:
                    return
            except Unavailable as error:
                if error.code != "too_many_streams":
                    raise
                sync_sleep(before(end, NO_SLOT_PAUSE))
                return


class Chat:
    """The turn of an agent. Iterating over it sends the message, and yields what the agent does until `done`."""

    def __init__(self, transport: Transport, request: Request) -> None:
        self.session_id: str | None = request.optional["session_id"]
        """The session; None before the first event of a new one."""
        self._transport = transport
        self._first = request

    def _request(self, last: str | None) -> Request:
        if last is None:
            # The same request finds the same session and message by its key.
            return self._first
        headers = {**self._first.headers, "Last-Event-ID": last}
        return dataclasses.replace(self._first, headers=headers, optional={"session_id": self.session_id})

    def __iter__(self) -> Iterator[ChatEvent]:
        last: str | None = None
        failed = 0
        while True:
            failure: LonghaulError = ConnectionFailed("the chat ended without `done`")
            opened: dict[str, str] = {}
            try:
                with closing(self._transport.connection(self._request(last), opened)) as events:
                    for sent in events:
                        self.session_id = opened.get("x-session-id", self.session_id)
                        last, failed = sent.id or last, 0
                        yield chat_event(sent)
                        if sent.kind == "done":
                            return
            except PASSING as error:
                failure = error
            failed += 1
            self._transport.pause(failed, failure)


class SessionStreams(Resource):
    def chat(
        self,
        agent_id: str,
        message: Message,
        *,
        session_id: str | None = None,
        project_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Chat:
        """Sends a message to an agent; iterate over the result for what the agent does.

        Connects again after a lost connection, and continues with the next event: the message is sent once.

        - `message`: A text, or texts and files.
        - `session_id`: Session to continue; a new one begins when absent.
        - `project_id`: Project that a new session is about.
        - `idempotency_key`: Sends the message once, however often it is sent; a random one when absent.
        """
        request = Request(
            "POST",
            f"/api/chat/{in_path(agent_id)}",
            headers={"Idempotency-Key": new_key(idempotency_key)},
            body={"message": message},
            optional={"session_id": session_id, "project_id": project_id},
        )
        return Chat(self._transport, request)

    def events(
        self, session_id: str, *, last_event_id: str | None = None, from_running: bool = False
    ) -> Iterator[ChatEvent]:
        """Yields the events of all messages of a session, until it is deleted; waits for further ones while it is idle.

        - `last_event_id`: Begin after this event.
        - `from_running`: Leave out messages that were answered before.
        """
        query = {"from": "running" if from_running else None}
        is_opened = False
        failed = 0
        while True:
            failure: LonghaulError | None = None
            opened: dict[str, str] = {}
            headers = {"Last-Event-ID": last_event_id}
            request = Request("GET", f"/v1/sessions/{in_path(session_id)}/events", query, headers=headers)
            try:
                with closing(self._transport.connection(request, opened)) as events:
                    for sent in events:
                        last_event_id, failed = sent.id or last_event_id, 0
                        yield chat_event(sent)
            except NotFound:
                if is_opened:
                    return
                raise
            except PASSING as error:
                failure = error
            is_opened = is_opened or bool(opened)
            failed += 1
            self._transport.pause(failed, failure or ConnectionFailed("the event stream of the session ended"))


def events_request(execution_id: str, after: int) -> Request:
    return Request("GET", f"/v1/executions/{in_path(execution_id)}/events", headers={"Last-Event-ID": str(after)})
