"""Runs pending calls of an execution with the tool runner of the openai or the anthropic SDK, and posts the results.

    pip install -r requirements.txt
    export LONGHAUL_URL=http://127.0.0.1:8080 LONGHAUL_API_KEY=lh_...
    python run_calls.py anthropic EXECUTION_ID            # every pending call, the last one first
    python run_calls.py openai EXECUTION_ID --limit 1

Longhaul is plain HTTP here: one GET lists the calls, one POST takes the results. A tool runner asks a model for calls,
runs them and sends the results back, so it is given a model that replies with the pending calls and keeps the results.
"""

import argparse
import json
import os
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def open_file(path: str) -> str:
    """Opens a file at the user's.

    Args:
        path: Path of the file.
    """
    if path.startswith("/"):
        raise ValueError(f"{path} is outside the project")
    return f"the text of {path}"


def add(numbers: list[int]) -> str:
    """Adds numbers.

    Args:
        numbers: The numbers.
    """
    return str(sum(numbers))


TOOLS = [open_file, add]


def longhaul(method: str, path: str, body: dict | None = None) -> dict:
    request = urllib.request.Request(
        os.environ["LONGHAUL_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {os.environ['LONGHAUL_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


class PendingCalls:
    """A model server for one run of a tool runner: replies with `calls`, and then ends the turn."""

    def __init__(self, calls: list[dict]):
        self.calls, self.results, pending = calls, {}, self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                is_anthropic = self.path.endswith("/messages")
                reply = pending.anthropic(body) if is_anthropic else pending.openai(body)
                data = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def anthropic(self, body: dict) -> dict:
        last = body["messages"][-1]["content"]
        results = [part for part in last if part["type"] == "tool_result"] if isinstance(last, list) else []
        for result in results:
            content = result["content"]
            text = content if isinstance(content, str) else "".join(part["text"] for part in content)
            self.results[result["tool_use_id"]] = {"error" if result.get("is_error") else "output": text}
        uses = [
            {"type": "tool_use", "id": call["call_id"], "name": call["name"], "input": call["arguments"]}
            for call in self.calls
        ]
        done = [{"type": "text", "text": "done"}]
        return {
            "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
            "content": done if results else uses, "stop_reason": "end_turn" if results else "tool_use",
            "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def openai(self, body: dict) -> dict:
        items = body["input"] if isinstance(body["input"], list) else []
        results = [item for item in items if item.get("type") == "function_call_output"]
        for result in results:
            self.results[result["call_id"]] = {"output": result["output"]}
        calls = [
            {
                "type": "function_call", "id": f"fc_{at}", "call_id": call["call_id"], "name": call["name"],
                "arguments": json.dumps(call["arguments"]), "status": "completed",
            }
            for at, call in enumerate(self.calls)
        ]
        text = {"type": "output_text", "text": "done", "annotations": []}
        done = [{"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": [text]}]
        return {
            "id": "resp_2" if results else "resp_1", "object": "response", "created_at": 0, "model": body["model"],
            "status": "completed", "output": done if results else calls, "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": body.get("tools", []), "error": None, "incomplete_details": None,
            "usage": {
                "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
            },
        }


def with_anthropic(pending: PendingCalls) -> None:
    from anthropic import Anthropic, beta_tool

    client = Anthropic(api_key="not needed", base_url=pending.url)
    runner = client.beta.messages.tool_runner(
        model="longhaul", max_tokens=1024, tools=[beta_tool(tool) for tool in TOOLS],
        messages=[{"role": "user", "content": "Run the calls."}],
    )
    runner.until_done()


def with_openai(pending: PendingCalls) -> None:
    from openai import OpenAI
    from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner

    def registered(tool) -> RegisteredFunction:
        def execute(arguments: dict) -> str:
            try:
                return json.dumps({"output": tool(**arguments)})
            except Exception as error:  # The runner has no form for an error of a tool.
                return json.dumps({"error": str(error)})

        parameters = {"type": "object", "properties": {}, "additionalProperties": True}
        return RegisteredFunction(
            {"type": "function", "name": tool.__name__, "parameters": parameters, "strict": False}, execute
        )

    client = OpenAI(api_key="not needed", base_url=pending.url)
    ResponsesToolRunner(functions=[registered(tool) for tool in TOOLS]).run(
        client, {"model": "longhaul", "input": "Run the calls."}
    )
    pending.results = {call: json.loads(result["output"]) for call, result in pending.results.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sdk", choices=["anthropic", "openai"])
    parser.add_argument("execution")
    parser.add_argument("--limit", type=int, help="number of calls to run, from the last one on")
    args = parser.parse_args()

    calls = longhaul("GET", f"/v1/executions/{args.execution}").get("requires_action", [])
    calls = calls[::-1][: args.limit]
    if not calls:
        print("no call is pending")
        return
    pending = PendingCalls(calls)
    (with_anthropic if args.sdk == "anthropic" else with_openai)(pending)
    results = [
        {"call_id": call["call_id"], "hash": call["hash"], **pending.results[call["call_id"]]} for call in calls
    ]
    answer = longhaul("POST", f"/v1/executions/{args.execution}/tool-results", {"results": results})
    print(json.dumps({"results": results, "left": len(answer["requires_action"])}))


if __name__ == "__main__":
    main()
