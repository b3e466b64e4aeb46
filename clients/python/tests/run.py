"""Runs every test with `Client` and with `AsyncClient` against the API that LONGHAUL_URL and LONGHAUL_API_KEY name.

The API has the definition `mail-triage` of this repository, on the scripted model.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any
from unittest.mock import patch

import operations
from proxy import Cut, Drip, Proxy
from support import MAIL, NOWHERE, REFUSED_MAIL, URL, New, answer, blocking_client, finished, later, raised, refusal

import longhaul
from longhaul.event_stream import EventDecoder, execution_event


def submit_and_wait(new: New) -> None:
    client = new()
    submitted = client.submit(definition="mail-triage", input=MAIL, metadata={"order": 17}, priority=7)
    assert submitted.status == "PENDING", submitted
    done = client.wait(submitted.id, timeout=30)
    assert (done.id, done.status, done.priority) == (submitted.id, "FINISHED", 7), done
    output: Any = done.output
    assert output["category"] == "billing", output
    assert done.metadata["order"] == 17 and done.created_at.tzinfo, done
    assert client.get(done.id).output == done.output


def events_come_in_order(new: New) -> None:
    client = new()
    execution = client.submit(definition="mail-triage", input=MAIL)
    events = list(client.events(execution.id))
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), events
    assert (events[0].kind, events[-1].kind) == ("submitted", "finished"), events
    assert list(client.events(execution.id, after=2)) == events[2:]
    assert list(client.events(execution.id, after=len(events))) == []


def cut_stream_is_resumed(new: New) -> None:
    execution_id = finished(new())
    proxy = Proxy(URL, Cut(after=b"\nid: 3"))
    events = list(new(proxy.url).events(execution_id))
    assert events == list(new().events(execution_id))
    assert [proxy.header(connection, "last-event-id") for connection in (0, 1)] == ["0", "2"], proxy.requests


def lost_answer_is_requested_again(new: New) -> None:
    proxy = Proxy(URL, Cut(after=b""))
    execution = new(proxy.url).submit(definition="mail-triage", input=MAIL)
    keys = [proxy.header(connection, "idempotency-key") for connection in (0, 1)]
    assert keys[0] and keys[0] == keys[1], keys
    # The first request was stored.
    assert new().submit(definition="mail-triage", input=MAIL, idempotency_key=keys[0]).id == execution.id


def unavailable_api_is_asked_again(new: New) -> None:
    busy, away = refusal("503 Service Unavailable", 1), refusal("429 Too Many Requests", 3600)
    url = Proxy(URL, busy, away, busy, busy).url
    begun = time.monotonic()
    limited = raised(longhaul.RateLimited, new(url).submit, definition="mail-triage", input=MAIL)
    assert time.monotonic() - begun >= 1
    assert (limited.status, limited.code, limited.retry_after) == (429, None, 3600)
    raised(longhaul.Unavailable, new(url, retry=longhaul.RetryPolicy(tries=2)).get, NOWHERE)
    assert new(url).submit(definition="mail-triage", input=MAIL).status == "PENDING"
    gateway = Proxy(URL, refusal("502 Bad Gateway", 0), refusal("504 Gateway Timeout", 0))
    assert new(gateway.url).server.health()


def idempotency_key_gives_one_execution(new: New) -> None:
    client = new()
    key = str(uuid.uuid4())
    first = client.submit(definition="mail-triage", input=MAIL, idempotency_key=key)
    assert client.submit(definition="mail-triage", input=MAIL, idempotency_key=key).id == first.id
    error = raised(longhaul.Conflict, client.submit, definition="mail-triage", input={"mail": "x"}, idempotency_key=key)
    assert (error.status, error.code, error.execution_id) == (409, "idempotency_key_reused", first.id)


def failure_is_raised(new: New) -> None:
    client = new()
    execution = client.submit(definition="mail-triage", input=REFUSED_MAIL)
    error = raised(longhaul.ExecutionFailed, client.wait, execution.id, timeout=60)
    assert (error.code, error.failure_class) == ("max_retries_exceeded", "permanent"), error
    assert error.summary and error.execution.id == execution.id, error
    assert error.refusal and error.refusal.validator == "json_schema" and error.refusal.feedback, error
    text = str(error)
    assert text.index(error.refusal.feedback) < text.index(error.summary), text
    assert client.wait(execution.id, raise_on_failure=False).status == "FAILED"


def errors_have_codes(new: New) -> None:
    client = new()
    error = raised(longhaul.NotFound, client.get, NOWHERE)
    assert (error.status, error.code) == (404, "not_found") and error.detail, error
    error = raised(longhaul.InvalidRequest, client.submit, definition="no-such-definition")
    assert (error.status, error.code) == (422, "unknown_definition"), error
    error = raised(longhaul.InvalidRequest, client.submit, definition="mail-triage", input={"mail": 7})
    assert (error.code, error.violations[0].path) == ("invalid_input", "/input/mail"), error
    error = raised(longhaul.AuthenticationFailed, new(URL, "lh_wrong").get, NOWHERE)
    assert (error.status, error.code) == (401, "invalid_api_key") and error.request_id, error
    reader = client.keys.create(name="reader", scopes=["executions:read"])
    error = raised(longhaul.PermissionDenied, new(URL, reader.key).submit, definition="mail-triage", input=MAIL)
    assert (error.status, error.code) == (403, "missing_scope"), error
    client.keys.revoke(reader.id)


def cancelled_execution_has_failed(new: New) -> None:
    client = new()
    execution_id = later(client)
    for _ in range(2):
        assert client.cancel(execution_id).status == "FAILED"
    error = raised(longhaul.ExecutionCancelled, client.wait, execution_id)
    assert (error.code, error.failure_class, error.refusal) == ("cancelled", "permanent", None), error
    assert isinstance(error, longhaul.ExecutionFailed)
    error = raised(longhaul.Conflict, client.cancel, finished(client))
    assert error.code == "execution_is_terminal", error


def wait_ends_after_its_timeout(new: New) -> None:
    client = new()
    begun = time.monotonic()
    error = raised(longhaul.WaitTimedOut, client.wait, later(client), timeout=0.3)
    assert error.execution.status == "PENDING" and isinstance(error, TimeoutError)
    assert time.monotonic() - begun < 5
    # The comments of a stream that lives do not lengthen the timeout.
    begun = time.monotonic()
    raised(longhaul.WaitTimedOut, new(Proxy(URL, *[Drip()] * 50).url).wait, later(client), timeout=0.3)
    assert time.monotonic() - begun < 5


def wait_makes_two_requests(new: New) -> None:
    client = new()
    execution_id = later(client)
    proxy = Proxy(URL)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(raised, longhaul.ExecutionCancelled, new(proxy.url).wait, execution_id, timeout=60)
        # Nothing is asked while the execution goes on: the stream tells its end.
        proxy.wait_for("GET")
        client.cancel(execution_id)
        waiting.result()
    path = f"GET /v1/executions/{execution_id}"
    assert proxy.lines == [f"{path}/events", path], proxy.lines


def wait_goes_on_after_lost_connections(new: New) -> None:
    client = new()
    execution_id = later(client)
    proxy = Proxy(URL, Cut(after=b"resync"), answer("503 Service Unavailable", Retry_After="0"), Cut(after=b""))
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(raised, longhaul.ExecutionCancelled, new(proxy.url).wait, execution_id, timeout=60)
        proxy.wait_for_connections(4)
        client.cancel(execution_id)
        waiting.result()


def wait_bears_a_cut_after_a_long_silence(new: New) -> None:
    client = new()
    execution_id = finished(client)
    proxy = Proxy(URL, Drip(count=10))
    # The stream lives longer than a server may be away.
    with patch("longhaul._sync.streams.PATIENCE", 0.2), patch("longhaul._async.streams.PATIENCE", 0.2):
        assert new(proxy.url).wait(execution_id, timeout=30).status == "FINISHED"
    assert len(proxy.requests) == 2, proxy.lines


def wait_needs_no_stream(new: New) -> None:
    client = new()
    body = '{"status": 503, "code": "too_many_streams", "detail": "no place for another stream"}'
    problem = answer("503 Service Unavailable", body, Content_Type="application/problem+json", Retry_After="1")
    assert new(Proxy(URL, problem).url).wait(finished(client), timeout=30).status == "FINISHED"


def absent_server_is_named(new: New) -> None:
    begun = time.monotonic()
    for call in ("get", "wait"):
        error = raised(longhaul.NoServer, getattr(new("http://127.0.0.1:1"), call), NOWHERE)
        assert "http://127.0.0.1:1 " in str(error), error
    assert time.monotonic() - begun < 10
    raised(longhaul.NoServer, new("http://no-such-host.invalid").get, NOWHERE)


def odd_answers_are_named(new: New) -> None:
    page = answer("200 OK", "<html>Hello</html>", Content_Type="text/html")
    error = raised(longhaul.UnexpectedAnswer, new(Proxy(URL, page).url).get, NOWHERE)
    assert "without JSON (text/html)" in str(error), error
    other = answer("200 OK", '{"id": 7}', Content_Type="application/json")
    error = raised(longhaul.UnexpectedAnswer, new(Proxy(URL, other).url).get, NOWHERE)
    assert "the answer has no `agent`" in str(error), error
    error = raised(longhaul.UnexpectedAnswer, new(Proxy(URL, page).url).wait, NOWHERE)
    assert "in place of an event stream" in str(error), error
    again = answer("200 OK", '{"executions": [], "next_cursor": "a"}', Content_Type="application/json")
    error = raised(longhaul.UnexpectedAnswer, list, new(Proxy(URL, again, again).url).executions.list())
    assert "the same page" in str(error), error
    deep = answer("200 OK", "[" * 100_000, Content_Type="application/json")
    raised(longhaul.UnexpectedAnswer, new(Proxy(URL, deep).url).get, NOWHERE)
    moved = answer("302 Found", Location="/login")
    assert raised(longhaul.ApiError, new(Proxy(URL, moved).url).get, NOWHERE).status == 302


def naive_times_are_refused(new: New) -> None:
    client = new("http://127.0.0.1:1")
    naive = datetime(2026, 12, 1, 9, 0)
    for name, call in {
        "run_at": lambda: client.submit(definition="mail-triage", run_at=naive),
        "executions.0.run_at": lambda: client.executions.submit_batch(executions=[{"run_at": naive}]),
        "created_after": lambda: list(client.executions.list(created_after=naive)),
    }.items():
        error = raised(longhaul.NaiveTime, call)
        assert f"`{name}` has no time zone" in str(error) and isinstance(error, ValueError), error


def ids_cannot_leave_their_path(new: New) -> None:
    client = new("http://127.0.0.1:1")
    for wrong in ("", ".", ".."):
        try:
            client.get(wrong)
        except ValueError:
            continue
        raise AssertionError(f"{wrong!r} was sent")
    raised(longhaul.NotFound, new().get, "a/../b?c#d")


def misspelt_field_is_refused(new: New) -> None:
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
        events = [execution_event(event) for chunk in chunks for event in decoder.feed(chunk)]
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
    wait_makes_two_requests,
    wait_goes_on_after_lost_connections,
    wait_bears_a_cut_after_a_long_silence,
    wait_needs_no_stream,
    absent_server_is_named,
    odd_answers_are_named,
    naive_times_are_refused,
    ids_cannot_leave_their_path,
    misspelt_field_is_refused,
    *operations.TESTS,
]


def main() -> None:
    events_are_decoded_from_any_chunks()
    kinds: dict[str, Any] = {"sync": longhaul.Client, "async": blocking_client}
    for name, kind in kinds.items():
        for test in TESTS:
            begun = time.monotonic()
            test(kind)
            print(f"ok {name} {test.__name__} {time.monotonic() - begun:.1f} s", flush=True)


main()
