"""Runs every test with `Client` and with `AsyncClient` against the API that LONGHAUL_URL and LONGHAUL_API_KEY name.

The API has the definition `mail-triage` of this repository, on the scripted model.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from proxy import Answer, Cut, Proxy

import longhaul
from longhaul.event_stream import EventDecoder

URL = os.environ["LONGHAUL_URL"]
MAIL = {"mail": "Subject: Refund\n\nPlease refund my last order."}
# The scripted model answers with the subject, which is longer than the output schema allows.
REFUSED_MAIL = {"mail": f"Subject: {'long ' * 40}\n\nHello."}
NOWHERE = str(uuid.UUID(int=0))


class BlockingClient:
    """An `AsyncClient` with the methods of `Client`: each call runs in an event loop to its end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = longhaul.AsyncClient(*args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._loop.run_until_complete(method(*args, **kwargs))

    def events(self, *args: Any, **kwargs: Any) -> Iterator[longhaul.Event]:
        events = self._client.events(*args, **kwargs)
        while event := self._loop.run_until_complete(anext(events, None)):
            yield event


def raised(kind: type[Any], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The error of exactly this class that the call raises."""
    try:
        result = call(*args, **kwargs)
    except longhaul.LonghaulError as error:
        assert type(error) is kind, repr(error)
        return error
    raise AssertionError(f"no error, but {result}")


def finished(client: longhaul.Client) -> str:
    """Id of an execution that is FINISHED."""
    execution = client.submit(definition="mail-triage", input=MAIL)
    return client.wait(execution.id, timeout=30).id


def later(client: longhaul.Client) -> str:
    """Id of an execution that does not start during the test."""
    run_at = datetime.now(timezone.utc) + timedelta(hours=1)
    return client.submit(definition="mail-triage", input=MAIL, run_at=run_at).id


def refusal(status: str, retry_after: int) -> Answer:
    """A proxy's answer: it has no problem+json."""
    text = f"HTTP/1.1 {status}\r\nRetry-After: {retry_after}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    return Answer(text.encode())


def submit_and_wait(new: Callable[..., longhaul.Client]) -> None:
    client = new()
    submitted = client.submit(definition="mail-triage", input=MAIL, metadata={"order": 17}, priority=7)
    assert submitted.status == "PENDING", submitted
    done = client.wait(submitted.id, timeout=30)
    assert (done.id, done.status, done.priority) == (submitted.id, "FINISHED", 7), done
    output: Any = done.output
    assert output["category"] == "billing", output
    assert done.metadata["order"] == 17 and done.created_at.tzinfo, done
    assert client.get(done.id).output == done.output


def events_come_in_order(new: Callable[..., longhaul.Client]) -> None:
    client = new()
    execution = client.submit(definition="mail-triage", input=MAIL)
    events = list(client.events(execution.id))
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), events
    assert (events[0].kind, events[-1].kind) == ("submitted", "finished"), events
    assert list(client.events(execution.id, after=2)) == events[2:]
    assert list(client.events(execution.id, after=len(events))) == []


def cut_stream_is_resumed(new: Callable[..., longhaul.Client]) -> None:
    execution_id = finished(new())
    proxy = Proxy(URL, Cut(after=b"\nid: 3"))
    events = list(new(proxy.url).events(execution_id))
    assert events == list(new().events(execution_id))
    assert [proxy.header(connection, "last-event-id") for connection in (0, 1)] == ["0", "2"], proxy.requests


def lost_answer_is_requested_again(new: Callable[..., longhaul.Client]) -> None:
    proxy = Proxy(URL, Cut(after=b""))
    execution = new(proxy.url).submit(definition="mail-triage", input=MAIL)
    keys = [proxy.header(connection, "idempotency-key") for connection in (0, 1)]
    assert keys[0] and keys[0] == keys[1], keys
    # The first request was stored.
    assert new().submit(definition="mail-triage", input=MAIL, idempotency_key=keys[0]).id == execution.id


def unavailable_api_is_asked_again(new: Callable[..., longhaul.Client]) -> None:
    busy, away = refusal("503 Service Unavailable", 1), refusal("429 Too Many Requests", 3600)
    url = Proxy(URL, busy, away, busy, busy).url
    begun = time.monotonic()
    limited = raised(longhaul.RateLimited, new(url).submit, definition="mail-triage", input=MAIL)
    assert time.monotonic() - begun >= 1
    assert (limited.status, limited.code, limited.retry_after) == (429, None, 3600)
    raised(longhaul.Unavailable, new(url, retry=longhaul.RetryPolicy(tries=2)).get, NOWHERE)
    assert new(url).submit(definition="mail-triage", input=MAIL).status == "PENDING"
    raised(longhaul.ConnectionFailed, new("http://127.0.0.1:1", retry=longhaul.RetryPolicy(tries=1)).get, NOWHERE)


def idempotency_key_gives_one_execution(new: Callable[..., longhaul.Client]) -> None:
    client = new()
    key = str(uuid.uuid4())
    first = client.submit(definition="mail-triage", input=MAIL, idempotency_key=key)
    assert client.submit(definition="mail-triage", input=MAIL, idempotency_key=key).id == first.id
    error = raised(longhaul.Conflict, client.submit, definition="mail-triage", input={"mail": "x"}, idempotency_key=key)
    assert (error.status, error.code, error.execution_id) == (409, "idempotency_key_reused", first.id)


def failure_is_raised(new: Callable[..., longhaul.Client]) -> None:
    client = new()
    execution = client.submit(definition="mail-triage", input=REFUSED_MAIL)
    error = raised(longhaul.ExecutionFailed, client.wait, execution.id, timeout=60)
    assert (error.code, error.failure_class) == ("max_retries_exceeded", "permanent"), error
    assert error.summary and error.execution.id == execution.id, error
    assert error.refusal and error.refusal.validator == "json_schema" and error.refusal.feedback, error
    text = str(error)
    assert text.index(error.refusal.feedback) < text.index(error.summary), text
    assert client.wait(execution.id, raise_on_failure=False).status == "FAILED"


def errors_have_codes(new: Callable[..., longhaul.Client]) -> None:
    client = new()
    error = raised(longhaul.NotFound, client.get, NOWHERE)
    assert (error.status, error.code) == (404, "not_found") and error.detail, error
    error = raised(longhaul.InvalidRequest, client.submit, definition="no-such-definition")
    assert (error.status, error.code) == (422, "unknown_definition"), error
    error = raised(longhaul.InvalidRequest, client.submit, definition="mail-triage", input={"mail": 7})
    assert (error.code, error.violations[0].path) == ("invalid_input", "/input/mail"), error
    error = raised(longhaul.ApiError, new(URL, "lh_wrong").get, NOWHERE)
    assert (error.status, error.code) == (401, "invalid_api_key"), error


def cancelled_execution_has_failed(new: Callable[..., longhaul.Client]) -> None:
    client = new()
    execution_id = later(client)
    for _ in range(2):
        assert client.cancel(execution_id).status == "FAILED"
    error = raised(longhaul.ExecutionFailed, client.wait, execution_id)
    assert (error.code, error.failure_class, error.refusal) == ("cancelled", "permanent", None), error
    error = raised(longhaul.Conflict, client.cancel, finished(client))
    assert error.code == "execution_is_terminal", error


def wait_ends_after_its_timeout(new: Callable[..., longhaul.Client]) -> None:
    client = new()
    error = raised(longhaul.WaitTimedOut, client.wait, later(client), timeout=0.3)
    assert error.execution.status == "PENDING" and isinstance(error, TimeoutError)


def misspelt_field_is_refused(new: Callable[..., longhaul.Client]) -> None:
    try:
        new().submit(definition="mail-triage", imput=MAIL)  # type: ignore[call-arg]
    except TypeError as error:
        assert "imput" in str(error)
    else:
        raise AssertionError("no error")


def events_are_decoded_from_any_chunks() -> None:
    # U+2028 ends a line for `str.splitlines`, and occurs inside JSON.
    text = (
        ':\n\nretry: 1000\nid: 1\nevent: call\ndata: {"seq": 1, "at": "2026-11-25T09:00:00.5Z", "kind": "call", '
        '"data": {"text": "é\u2028"}}\r\n\r\nid: 9\nevent: resync\ndata: {"last": 9}\n\n'
    ).encode()
    at = datetime(2026, 11, 25, 9, 0, 0, 500_000, timezone.utc)
    for size in range(1, len(text)):
        decoder = EventDecoder()
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        events = [event for chunk in chunks for event in decoder.feed(chunk)]
        expected = [longhaul.Event(1, "call", at, {"text": "é\u2028"}), longhaul.Event(9, "resync", None, {"last": 9})]
        assert events == expected, (size, events)


TESTS = [
    submit_and_wait,
    events_come_in_order,
    cut_stream_is_resumed,
    lost_answer_is_requested_again,
    unavailable_api_is_asked_again,
    idempotency_key_gives_one_execution,
    failure_is_raised,
    errors_have_codes,
    cancelled_execution_has_failed,
    wait_ends_after_its_timeout,
    misspelt_field_is_refused,
]


def main() -> None:
    events_are_decoded_from_any_chunks()
    kinds: list[Any] = [longhaul.Client, BlockingClient]
    for kind in kinds:
        for test in TESTS:
            begun = time.monotonic()
            test(kind)
            print(f"ok {kind.__name__} {test.__name__} {time.monotonic() - begun:.1f} s", flush=True)


main()
