"""Requests that no client should send, and more streams than usual: refused by name, without harm to others."""

import asyncio
import http.client
import json
import os
import time
from urllib.parse import urlsplit

from suite import ARGS, check, main, same

HOST = urlsplit(ARGS.url)
# A key of another tenant.
OTHER = os.environ.get("DOORS_OTHER_KEY", ARGS.key)
STREAMS = int(os.environ.get("DOORS_STREAMS", "1000"))
POSTS = (
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/agui/helper",
)


def send(path, body, method="POST", **headers):
    connection = http.client.HTTPConnection(HOST.hostname, HOST.port, timeout=60)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    base = {"authorization": f"Bearer {ARGS.key}", "content-type": "application/json"}
    connection.request(method, path, body, {**base, **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


def refused(path, body, **more):
    """The status of an answer that has to be an error in the shape of a wire."""
    status, answer = send(path, body, **more)
    assert 400 <= status < 500, f"{path} {body[:60] if body else body}: {status} {answer[:200]}"
    assert json.loads(answer)["error"]["message"], answer
    return status


def plain(**more):
    user = {"role": "user", "content": "hi", "id": "1"}
    return {
        "model": ARGS.model,
        "max_tokens": 9,
        "input": "hi",
        "messages": [user],
        "threadId": "t",
        "runId": "r",
        **more,
    }


def saying(text):
    return plain(input=text, messages=[{"role": "user", "content": text, "id": "1"}])


def tool(name, schema):
    function = {"name": name, "parameters": schema}
    return {"type": "function", **function, "function": function, "input_schema": schema}


@check
def bodies_that_are_no_request_are_refused():
    for path in POSTS:
        for body in (b"", b"null", b"[]", b"1e999", b'{"a":', b'{"model":"\xff"}', b"\xef\xbb\xbf{}"):
            refused(path, body)
        for depth in (200, 100_000):
            refused(path, b'{"model":' + b"[" * depth + b"]" * depth + b"}")
            refused(path, b'{"messages":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}")


@check
def odd_members_are_refused():
    for path in POSTS:
        for name in ("messages", "input", "tools"):
            for value in (
                7,
                "\0",
                True,
                {"a": 1},
                [7],
                [[]],
                [{}],
                [{"role": "user"}],
                [{"role": "\0", "content": "x"}],
            ):
                status, answer = send(path, json.dumps(plain(**{name: value})))
                assert status < 500, f"{path} {name} {value}: {answer}"
        for name in (
            "model",
            "stream",
            "metadata",
            "temperature",
            "max_tokens",
            "text",
            "tool_choice",
            "reasoning",
            "store",
        ):
            for value in ([], "\0", {"\0": "\0"}, -1, 10**400, "x" * 100_000):
                status, answer = send(path, json.dumps(plain(**{name: value})))
                assert status < 500, f"{path} {name} {str(value)[:40]}: {answer}"


@check
def texts_that_cannot_be_stored_are_refused_or_kept():
    for path in POSTS:
        for text in ("\0", "a\0b", "\ud800"):
            status, answer = send(path, json.dumps(saying(text)))
            assert status < 500, f"{path} {text!r}: {answer}"
        for schema in ({"type": "object", "description": "\0"}, {"type": "object", "properties": {"\0": {}}}):
            status, answer = send(path, json.dumps(plain(tools=[tool("f", schema)])))
            assert status < 500, f"{path} {schema}: {answer}"


@check
def too_much_is_refused():
    for path in POSTS:
        many = [{"role": "user", "content": "x", "id": "1"}] * 5_000
        refused(path, json.dumps(plain(input=many, messages=many)))
        refused(path, json.dumps(plain(tools=[tool(f"f{at}", {"type": "object"}) for at in range(200)])))
        try:
            same(refused(path, json.dumps(saying("x" * 22_000_000))), 413)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The answer came before the body was sent.


@check
def odd_headers_and_paths_are_refused():
    for path in POSTS:
        for headers in (
            {"longhaul_run": "r"},
            {"longhaul_attempt": "a"},
            {"longhaul_run": "r" * 201, "longhaul_attempt": "a"},
            {"longhaul_run": "r\t", "longhaul_attempt": "\xe9"},
            {"idempotency_key": "x" * 5_000},
            {"content_type": "text/plain"},
            {"authorization": "Bearer x"},
        ):
            if "longhaul" in " ".join(headers) and path not in (
                "/v1/responses",
                "/v1/chat/completions",
                "/v1/messages",
            ):
                continue
            if "idempotency_key" in headers and path.endswith(("compact", "tokens")):
                continue
            refused(path, json.dumps(plain()), **headers)
    nothing = "0" * 32
    for path in (
        "/v1/responses/%00",
        "/v1/responses/resp_%ff",
        f"/v1/responses/{'x' * 6_000}",
        f"/v1/responses/resp_{nothing}",
        f"/v1/responses/resp_{nothing}?stream=true&starting_after=-1",
        f"/v1/responses/resp_{nothing}/input_items?limit=0",
        "/v1/models/%00",
        "/v1/models/agent:%00",
        f"/v1/agui/helper/runs/{nothing}",
        f"/v1/agui/helper/runs/{nothing}?after=99999999999999999999",
        "/runs/a/attempts/b/v1/nothing",
        f"/runs/{'k' * 500}/attempts/b/v1/responses",
    ):
        refused(path, None, method="GET")


@check
def responses_of_another_tenant_are_not_found():
    made = json.loads(send("/v1/responses", json.dumps(plain()))[1])["id"]
    other = f"Bearer {OTHER}"
    if OTHER == ARGS.key:
        return
    for method, path in (
        ("GET", f"/v1/responses/{made}"),
        ("GET", f"/v1/responses/{made}?stream=true"),
        ("GET", f"/v1/responses/{made}/input_items"),
        ("POST", f"/v1/responses/{made}/cancel"),
        ("DELETE", f"/v1/responses/{made}"),
    ):
        same(refused(path, None, method=method, authorization=other), 404)
    same(send(f"/v1/responses/{made}", None, method="GET")[0], 200)
    refused("/v1/responses", json.dumps(plain(previous_response_id=made)), authorization=other)


async def post(path, body, key, is_slow=False, pause=0):
    """The bytes of an answer. A slow reader takes a few at a time; a slow writer pauses inside its body."""
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    reader, writer = await asyncio.open_connection(HOST.hostname, HOST.port)
    writer.write(f"{head}content-length: {len(text)}\r\nconnection: close\r\n\r\n".encode() + text[:5])
    await writer.drain()
    await asyncio.sleep(pause)
    writer.write(text[5:])
    answer = b""
    while part := await reader.read(256 if is_slow else 65_536):
        answer += part
        await asyncio.sleep(0.05 if is_slow else 0)
    writer.close()
    return answer


@check
async def many_streams_leave_another_tenant_alone():
    async def stream(at):
        model = ARGS.agent if at % 2 else ARGS.model
        body = {"model": model, "input": f"[slow 40] [words 30] {at}", "stream": True}
        answer = b"HTTP/1.1 503"
        # So many at once are more than the database takes at a time: told so, SDKs try again.
        while answer.startswith(b"HTTP/1.1 503"):
            answer = await post("/v1/responses", body, ARGS.key, is_slow=at % 50 == 0, pause=at % 70 / 7)
        assert b"response.completed" in answer and b"[DONE]" in answer, answer[-300:]

    streams = [asyncio.create_task(stream(at)) for at in range(STREAMS)]
    waits = []
    while not all(one.done() for one in streams):
        since = time.monotonic()
        body = {"model": ARGS.model, "messages": [{"role": "user", "content": "Hello."}]}
        answer = await asyncio.wait_for(post("/v1/chat/completions", body, OTHER), 60)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:300]
        waits.append(time.monotonic() - since)
        await asyncio.sleep(0.5)
    await asyncio.gather(*streams)
    waits.sort()
    median, longest = waits[len(waits) // 2], waits[-1]
    print(f"       {STREAMS} streams; calls of the other: median {median:.2f} s, longest {longest:.2f} s")


if __name__ == "__main__":
    main()
