"""Unchanged scripts of five frameworks as durable runs: killed with -9 around each model call and started again.

    pip install -r examples/durable-scripts/requirements.txt
    python tests/doors/frameworks.py --longhaul target/debug/longhaul

`longhaul dev` is started for its servers and a worker, and each API that a case kills is a process of its own. The
provider is a stub in this process: it answers by the number of replies in the conversation, so each of a script's three
calls has one right answer, and it counts the calls of a case by the name of the model. Exit code 1 if a case fails.
"""

import argparse
import collections
import concurrent.futures
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "durable-scripts"
SCRIPTS = {
    "openai": "openai_script.py",
    "openai-agents": "agents_script.py",
    "pydantic-ai": "pydantic_ai_script.py",
    "langgraph": "langgraph_script.py",
    "smolagents": "smolagents_script.py",
}
# Model calls of each script.
CALLS = 3
ANSWER = "Ten desk lamps can be in Lyon in 3 days."
TOOL_CALLS = [
    ("stock", {"product": "desk lamp"}),
    ("delivery_days", {"warehouse": "Hamburg", "city": "Lyon"}),
]
# Limits in seconds: of one start of a script, and of a server.
PATIENCE = 120
START = 60

# Fifty calls at once, as LiteLLM's callers make them; prints how many were answered and the codes of the others.
RACE = """
import asyncio, collections, json, os
from openai import APIStatusError, AsyncOpenAI

async def ask(client, number):
    messages = [{"role": "user", "content": f"question {number}"}]
    try:
        await client.chat.completions.create(model=os.environ["MODEL"], messages=messages)
        return "answered"
    except APIStatusError as error:
        return error.code

async def main():
    async with AsyncOpenAI() as client:
        ends = await asyncio.gather(*(ask(client, number) for number in range(50)))
    print(json.dumps(collections.Counter(ends)))

asyncio.run(main())
"""


class Case:
    """A run, and what the provider does and counts in it."""

    def __init__(self, name):
        self.name = name
        self.counts = collections.Counter()
        # (call, "request" or "answer") -> what happens there, once.
        self.hooks = {}
        # Calls that are answered 503, once each.
        self.refused = set()
        self.lock = threading.Lock()

    def hook(self, call, moment):
        with self.lock:
            return self.hooks.pop((call, moment), None)

    def asked(self, call):
        """Counts a call; true if it is to be refused."""
        with self.lock:
            is_refused = call in self.refused
            self.refused.discard(call)
            self.counts["refused" if is_refused else call] += 1
            return is_refused

    def provider_calls(self):
        return sum(count for call, count in self.counts.items() if call != "refused")


class Stub(http.server.ThreadingHTTPServer):
    """The provider, which speaks chat completions."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cases = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def case(self, name):
        return self.cases.setdefault(name, Case(name))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


def reply(body):
    """The call that a conversation is at, from 1, and its answer as a message."""
    done = sum(message["role"] == "assistant" for message in body["messages"])
    tools = {tool["function"]["name"] for tool in body.get("tools") or []}
    if tools and done < len(TOOL_CALLS):
        name, arguments = TOOL_CALLS[done]
    elif "final_answer" in tools:
        name, arguments = "final_answer", {"answer": ANSWER}
    else:
        return done + 1, {"role": "assistant", "content": ANSWER}
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{done + 1}", "type": "function", "function": function}
    return done + 1, {"role": "assistant", "content": None, "tool_calls": [call]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        case = self.server.case(body["model"])
        call, message = reply(body)
        is_refused = case.asked(call)
        if hook := case.hook(call, "request"):
            hook()
        try:
            if is_refused:
                self.send(503, "application/json", json.dumps({"error": {"message": "overloaded"}}))
            elif body.get("stream"):
                self.send(200, "text/event-stream", streamed(body["model"], message))
            else:
                self.send(200, "application/json", json.dumps(whole(body["model"], message)))
        except OSError:
            return
        if hook := case.hook(call, "answer"):
            hook()

    def send(self, status, kind, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def whole(model, message):
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice],
        "usage": USAGE,
    }


def streamed(model, message):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    delta = dict(message)
    for index, call in enumerate(delta.get("tool_calls") or []):
        call["index"] = index
    reason = "tool_calls" if "tool_calls" in message else "stop"
    chunks = [
        head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        head | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        head | {"choices": [], "usage": USAGE},
    ]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Service:
    """`longhaul dev` over a directory, and APIs beside it."""

    def __init__(self, program, directory, stub):
        self.program = program
        self.directory = directory
        self.processes = []
        listen = f"127.0.0.1:{free_port()}"
        given = os.environ | {
            "LONGHAUL_LLM_URL": stub.url,
            "LONGHAUL_LLM_API_KEY": "stub",
            "LONGHAUL_LLM_MODEL": "gpt-5-mini",
        }
        data = directory / "data"
        self.start(["dev", "--data-dir", data, "--listen", listen], given, listen)
        self.environment = os.environ | dict(self.settings(data / "env"))

    @staticmethod
    def settings(path):
        for line in path.read_text().splitlines():
            if line.startswith("export "):
                name, value = line.removeprefix("export ").split("=", 1)
                yield name, value.strip("'\"")

    def start(self, arguments, environment, listen):
        log = open(self.directory / f"{arguments[0]}.log", "ab")
        command = [self.program, *map(str, arguments)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.directory)
        self.processes.append(process)
        host, port = listen.split(":")
        until = time.monotonic() + START
        while time.monotonic() < until and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://{host}:{port}/readyz", timeout=5) as answer:
                    if answer.status == 200:
                        return process
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{arguments[0]} does not start; see {log.name}")

    def api(self, listen):
        return self.start(["api", "--listen", listen], self.environment, listen)

    def run(self, key):
        request = urllib.request.Request(f"{self.environment['LONGHAUL_URL']}/v1/runs/{key}")
        request.add_header("Authorization", f"Bearer {self.environment['LONGHAUL_API_KEY']}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def stop(self):
        # The newest first: the servers of all are those of the first.
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


def children(process):
    try:
        text = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


class Start:
    """One start of a program under `longhaul run`, or of the program alone."""

    def __init__(self, command, environment):
        self.output, self.errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, env=environment, stdout=self.output, stderr=self.errors)
        self.is_killed = False

    def kill(self, whole):
        """Kills the script, and its wrapper first if `whole`."""
        self.is_killed = True
        scripts = children(self.process.pid)
        for process in ([self.process.pid] if whole else []) + scripts:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def end(self):
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill(True)
            code = "timeout"
        texts = []
        for file in (self.output, self.errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return code, texts[0], texts[1]


class Check:
    """What a case shows, or why not."""

    def __init__(self, service, stub, framework, name):
        self.service = service
        self.framework = framework
        self.case = stub.case(f"{framework}-{name}")
        self.key = self.case.name
        self.starts = 0
        self.last = None

    def environment(self):
        return self.service.environment | {"MODEL": self.case.name, "PYTHONDONTWRITEBYTECODE": "1"}

    def command(self):
        return [sys.executable, str(EXAMPLES / SCRIPTS[self.framework])]

    def wrapped(self, command, *flags, environment=None):
        wrapper = [self.service.program, "run", "--key", self.key, *flags, "--"]
        self.starts += 1
        self.last = Start(wrapper + command, environment or self.environment())
        return self.last

    def ends(self, *, starts):
        """Starts the script until it ends by itself, at most this many times."""
        for _ in range(starts):
            started = self.wrapped(self.command())
            code, output, errors = started.end()
            if code == 0:
                return self.is_right(output)
            if not started.is_killed:
                return f"exit code {code}: {errors[-600:]}"
        return f"not ended after {starts} starts"

    def is_right(self, output):
        lines = output.strip().splitlines()
        return None if lines and lines[-1].strip() == ANSWER else f"output {output!r}"

    def paid(self, calls=CALLS):
        counts = dict(self.case.counts)
        return None if self.case.provider_calls() == calls else f"provider calls {counts}, not {calls}"


def killed_once(service, stub, framework, call, moment, whole):
    check = Check(service, stub, framework, f"{moment}-{call}-{'both' if whole else 'script'}")
    check.case.hooks[(call, moment)] = lambda: check.last.kill(whole)
    wrong = check.ends(starts=2) or check.paid()
    if not wrong and check.starts != 2:
        wrong = "the script ended before it was killed"
    return check, wrong


def killed_everywhere(service, stub, framework):
    """One run that is killed at each call in turn."""
    check = Check(service, stub, framework, "everywhere")
    for call in range(1, CALLS + 1):
        moment = "answer" if call == 2 else "request"
        check.case.hooks[(call, moment)] = lambda whole=call == 2: check.last.kill(whole)
    wrong = check.ends(starts=CALLS + 1) or check.paid()
    if not wrong and check.starts != CALLS + 1:
        wrong = "the script ended before it was killed"
    return check, wrong


def two_at_once(service, stub, framework):
    """Two processes of one run without the wrapper, which carry run and attempt in their address."""
    check = Check(service, stub, framework, "two-at-once")
    environment = check.environment()

    def both_ask():
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and service.run(check.key)["attempts"] < 2:
            time.sleep(0.05)

    check.case.hooks[(1, "request")] = both_ask
    starts = []
    for _ in range(2):
        base = f"{environment['LONGHAUL_URL']}/runs/{check.key}/attempts/{uuid.uuid4()}/v1"
        own = {"OPENAI_BASE_URL": base, "OPENAI_API_KEY": environment["LONGHAUL_API_KEY"]}
        starts.append(Start(check.command(), environment | own))
    check.starts = 2
    for code, output, errors in [start.end() for start in starts]:
        wrong = f"exit code {code}: {errors[-600:]}" if code else check.is_right(output)
        if wrong:
            return check, wrong
    return check, check.paid()


def refused_once(service, stub, framework):
    check = Check(service, stub, framework, "503")
    check.case.refused.add(2)
    wrong = check.ends(starts=1) or check.paid()
    if not wrong and check.case.counts["refused"] != 1:
        wrong = "the provider refused nothing"
    return check, wrong


def api_restarts(service, stub, framework):
    """The API dies while each call is under way, and is started again before the provider answers."""
    check = Check(service, stub, framework, "api-restarts")
    listen = f"127.0.0.1:{free_port()}"
    apis = [service.api(listen)]

    def restart():
        apis[-1].kill()
        apis[-1].wait()
        apis.append(service.api(listen))

    for call in range(1, CALLS + 1):
        check.case.hooks[(call, "request")] = restart
    environment = check.environment() | {"LONGHAUL_URL": f"http://{listen}"}
    for _ in range(CALLS + 1):
        code, output, errors = check.wrapped(check.command(), environment=environment).end()
        if code == 0:
            break
    wrong = f"exit code {code}: {errors[-600:]}" if code else check.is_right(output) or check.paid()
    return check, wrong or (None if len(apis) == CALLS + 1 else "the API was not restarted at each call")


def race(service, stub):
    check = Check(service, stub, "litellm", "race")
    code, output, errors = check.wrapped([sys.executable, "-c", RACE], "--budget", "max_model_calls=10").end()
    if code:
        return check, f"exit code {code}: {errors[-600:]}"
    ends = json.loads(output)
    # An overloaded machine may answer some of the forty 503, after the SDK's own retries.
    if ends["answered"] != 10 or ends.keys() - {"answered", "budget_exhausted", "unavailable"}:
        return check, f"ends {ends}"
    return check, check.paid(10)


def cases(frameworks):
    for framework in frameworks:
        for call in range(1, CALLS + 1):
            for moment in ("request", "answer"):
                for whole in (False, True):
                    yield killed_once, (framework, call, moment, whole)
        for play in (killed_everywhere, two_at_once, refused_once, api_restarts):
            yield play, (framework,)
    yield race, ()


def run_case(service, stub, play, arguments):
    began = time.monotonic()
    try:
        check, wrong = play(service, stub, *arguments)
        row = check.key, check.starts, check.case.provider_calls()
    except (OSError, urllib.error.URLError, ValueError) as error:
        row, wrong = (f"{play.__name__} {arguments}", 0, 0), repr(error)
    return *row, time.monotonic() - began, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longhaul", required=True, help="the program", type=pathlib.Path)
    parser.add_argument("--only", help="frameworks, separated by commas", default=",".join(SCRIPTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at a time")
    arguments = parser.parse_args()
    stub = Stub()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="longhaul-doors-") as directory:
        os.chmod(directory, 0o755)
        service = Service(str(arguments.longhaul.resolve()), pathlib.Path(directory), stub)
        try:
            print(f"{'case':<40} {'starts':>6} {'calls':>6} {'seconds':>8}", flush=True)
            with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
                running = [
                    pool.submit(run_case, service, stub, play, of) for play, of in cases(arguments.only.split(","))
                ]
                for done in concurrent.futures.as_completed(running):
                    key, starts, calls, seconds, wrong = done.result()
                    failed += wrong is not None
                    print(f"{key:<40} {starts:>6} {calls:>6} {seconds:>8.1f} {wrong or 'ok'}", flush=True)
        finally:
            service.stop()
    print(f"{failed} failed" if failed else "all are right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
