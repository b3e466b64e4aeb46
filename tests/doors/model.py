"""An OpenAI-compatible model server whose answers follow from the request.

The last message of the user may hold words in brackets that change the answer:

    [words N]    a text of N words
    [slow S]     pauses S seconds between the first portion of the answer and the rest
    [wait S]     pauses S seconds before the answer
    [fail CODE]  answers with this HTTP status, every time
    [once CODE]  answers with this HTTP status the first time, by the whole text of the message
    [cut]        ends with finish_reason `length`
    [quiet]      calls no function

Without `[quiet]`, a request with functions is answered with a call of the first (with `[both]`, of each), until the
results are there. A request for JSON with a schema gets the least value of the schema.

GET /count tells how many calls there were, and how many held each text: `/count?of=TEXT`.
"""

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

LOCK = threading.Lock()
CALLS = []


def least(schema):
    """A small value of a JSON Schema."""
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return least(schema[key][0])
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: least(value) for name, value in schema.get("properties", {}).items()}
    if kind == "array":
        return [least(schema.get("items", {"type": "string"}))]
    return {"string": "Oslo", "integer": 7, "number": 1.5, "boolean": True, "null": None}.get(kind)


def text_of(content):
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content if part.get("type") == "text")
    return content or ""


def option(text, name):
    found = re.search(rf"\[{name}(?: ([0-9.]+))?\]", text)
    return None if found is None else float(found.group(1) or 0)


class Answer:
    """The answer to one request: an error's status, or a text and calls."""

    def __init__(self, request):
        messages = request.get("messages", [])
        users = [at for at, message in enumerate(messages) if message["role"] == "user"]
        self.asked = text_of(messages[users[-1]]["content"]) if users else ""
        after = messages[users[-1] + 1 :] if users else []
        results = [text_of(message["content"]) for message in after if message["role"] == "tool"]
        self.status, self.calls, self.finish = None, [], "stop"
        self.text = f"You said: {self.asked}"
        tools = [tool["function"] for tool in request.get("tools") or []]
        choice = request.get("tool_choice")
        if isinstance(choice, dict):
            tools = [tool for tool in tools if tool["name"] == choice["function"]["name"]]
        schema = (request.get("response_format") or {}).get("json_schema", {}).get("schema")
        if tools and not results and choice != "none" and option(self.asked, "quiet") is None:
            many = tools if option(self.asked, "both") is not None else tools[:1]
            stamp = f"{len(messages)}_{len(self.asked)}"
            self.calls = [
                {
                    "id": f"call_{stamp}_{at}",
                    "type": "function",
                    "function": {"name": tool["name"], "arguments": json.dumps(least(tool.get("parameters") or {}))},
                }
                for at, tool in enumerate(many)
            ]
            self.text, self.finish = "", "tool_calls"
        elif results:
            self.text = "Results: " + "; ".join(results)
        elif schema:
            self.text = json.dumps(least(schema))
        elif option(self.asked, "words"):
            self.text = " ".join(f"word{at}" for at in range(int(option(self.asked, "words"))))
        if option(self.asked, "cut") is not None:
            self.finish = "length"
        self.reasoning = "Thinking about it." if "gpt-5" in request.get("model", "") else None
        self.usage = {
            "prompt_tokens": sum(len(text_of(message.get("content"))) for message in messages) // 4 + 1,
            "completion_tokens": len(self.text) // 4 + 1,
        }
        self.usage["total_tokens"] = sum(self.usage.values())


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request, client_address):
        # A caller that cancels leaves in the middle of an answer.
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/count":
            text = parse_qs(url.query).get("of", [""])[0]
            with LOCK:
                self.reply(200, {"count": sum(text in call for call in CALLS)})
        else:
            self.reply(404, {"error": {"message": "not found"}})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(body)
        answer = Answer(request)
        with LOCK:
            is_first = answer.asked not in CALLS
            CALLS.append(answer.asked)
        status = option(answer.asked, "fail") or (is_first and option(answer.asked, "once"))
        time.sleep(option(answer.asked, "wait") or 0)
        if status:
            self.reply(int(status), {"error": {"message": "as asked", "type": "test"}})
        elif request.get("stream"):
            self.stream(request, answer)
        else:
            message = {"role": "assistant", "content": answer.text or None}
            if answer.calls:
                message["tool_calls"] = answer.calls
            if answer.reasoning:
                message["reasoning_content"] = answer.reasoning
            choice = {"index": 0, "message": message, "finish_reason": answer.finish}
            self.reply(200, {**head(request, "chat.completion"), "choices": [choice], "usage": answer.usage})

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, request, answer):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        deltas = [{"role": "assistant", "content": ""}]
        if answer.reasoning:
            deltas.append({"reasoning_content": answer.reasoning})
        words = re.findall(r"\S+\s*", answer.text)
        deltas += [{"content": "".join(words[at : at + 5])} for at in range(0, len(words), 5)]
        deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(answer.calls)]
        for at, delta in enumerate(deltas):
            self.chunk(request, delta, None)
            if at == 1:
                time.sleep(option(answer.asked, "slow") or 0)
        self.chunk(request, {}, answer.finish)
        self.event({**head(request, "chat.completion.chunk"), "choices": [], "usage": answer.usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def chunk(self, request, delta, finish):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self.event({**head(request, "chat.completion.chunk"), "choices": [choice]})

    def event(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


def head(request, kind):
    return {"id": "chatcmpl-model", "object": kind, "created": 1700000000, "model": request.get("model", "model")}


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
