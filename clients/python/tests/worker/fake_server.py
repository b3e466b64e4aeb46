"""The worker protocol in memory, over HTTP on the loopback interface: strict, with a clock that tests move.

It keeps to docs/reference/worker-protocol.md. What a worker does against it is noted in `violations`, which each test
expects to be empty. `Faults` says what goes wrong.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "lh_test"
ENDED = ("FINISHED", "FAILED")
HANDED_BACK_SECONDS = 7.0
PARK_REASONS = ("sleep", "signal", "children", "approval", "question")


@dataclass
class Execution:
    """An execution as the server has it."""

    id: str
    definition: str
    input: Any
    queue: str = "default"
    version: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)
    parent: str | None = None
    status: str = "RUNNABLE"
    output: Any = None
    failure: dict[str, Any] | None = None
    attempt: int = 0
    worker: str | None = None
    token: str | None = None
    claimed_at: float = 0.0
    last_write: int = 0
    wake_seq: int = 0
    wait_reason: str | None = None
    wait_until: float | None = None
    retry_at: float | None = None
    cancel_requested: bool = False
    active_seconds: float = 3600.0
    lane: str = "normal"
    steps: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    awaits_first: bool = False
    signals: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    changed: int = 0

    def logs(self) -> list[str]:
        """Messages of its log."""
        return [event["data"]["message"] for event in self.events if event["kind"] == "log"]


@dataclass
class WorkerRow:
    """A registered worker."""

    id: str
    renewed_at: float
    registration: dict[str, Any]
    state: str = "live"
    dead: bool = False
    claiming: bool = False
    signed_off: bool = False


class Problem(Exception):
    """An error that the server answers."""

    def __init__(self, status: int, code: str | None, detail: str = "") -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.detail = detail


class Cut(Exception):
    """Closes the connection without an answer."""


class FakeServer:
    """The server. `fault` is called before (`done` false) and after each request with method and path."""

    def __init__(self, *, lease_seconds: float = 6.0, renew_seconds: float = 0.2, port: int = 0) -> None:
        self.lease_seconds = lease_seconds
        self.renew_seconds = renew_seconds
        self.changed = threading.Condition()
        self.executions: dict[str, Execution] = {}
        self.workers: dict[str, WorkerRow] = {}
        self.violations: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.boundary: Callable[[Execution, str], bool] | None = None
        """True if the attempt dies at this point of an execution."""
        self.fault: Callable[[str, str, bool], Any] | None = None
        """May raise `Problem` or `Cut`, or return bytes to answer instead."""
        self.steps_per_page = 1000
        self.steps_per_claim: int | None = None
        """Steps that one claim's answer has room for, of all its executions together."""
        self.outputs_per_answer: int | None = None
        """FINISHED children of one answer that have their output; the protocol has at least 1."""
        self._ids = itertools.count(1)
        self._offset = 0.0
        self._ends: dict[str, dict[str, Any]] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving."""
        with self.changed:
            self.fault = _cut
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    # Operations of tests.

    def submit(self, definition: str, input: Any = None, **fields: Any) -> Execution:
        """Stores an execution."""
        with self.changed:
            execution = Execution(f"e{next(self._ids)}", definition, {} if input is None else input, **fields)
            self.executions[execution.id] = execution
            self.changed.notify_all()
            return execution

    def wait(
        self, execution: Execution, until: Callable[[Execution], bool] | None = None, seconds: float = 15.0
    ) -> Execution:
        """Waits until it has ended, or `until` holds."""
        reached = until or (lambda execution: execution.status in ENDED)
        with self.changed:
            if not self.changed.wait_for(lambda: reached(execution), seconds):
                raise AssertionError(f"not reached within {seconds} s: {execution}; violations: {self.violations}")
        return execution

    def finished(self, execution: Execution, seconds: float = 15.0) -> Any:
        """Output of an execution that ends well."""
        self.wait(execution, seconds=seconds)
        assert execution.status == "FINISHED", execution.failure
        return execution.output

    def failed(self, execution: Execution) -> dict[str, Any]:
        """Failure of an execution that fails."""
        self.wait(execution)
        assert execution.status == "FAILED", execution.output
        assert execution.failure is not None
        return execution.failure

    def parked(self, execution: Execution, reason: str) -> Execution:
        """Waits until it is parked with the reason."""
        return self.wait(execution, lambda execution: execution.wait_reason == reason)

    def advance(self, seconds: float) -> None:
        """Moves the clock, and wakes what was to wait until then."""
        with self.changed:
            self._offset += seconds
            self._wake_due()
            self.changed.notify_all()

    def now(self) -> float:
        """The server's clock."""
        return time.time() + self._offset

    def signal(self, execution: Execution, name: str, payload: Any) -> None:
        """Sends a signal."""
        with self.changed:
            sent = execution.signals.setdefault(name, [])
            seq = sum(len(one) for one in execution.signals.values()) + 1
            sent.append({"seq": seq, "payload": payload, "sent_at": self._time(self.now())})
            self._wake(execution)

    def decide(self, execution: Execution, state: str, value: Any = None, reason: str | None = None) -> None:
        """Decides the one request that waits."""
        with self.changed:
            for request in execution.requests.values():
                if request["state"] == "waiting":
                    request.update(state=state, value=value, reason=reason, decided_by="ada")
            self._wake(execution)

    def cancel(self, execution: Execution) -> None:
        """Cancels."""
        with self.changed:
            execution.cancel_requested = True
            if execution.token is None and execution.status not in ENDED:
                self._end(execution, "FAILED", failure={"class": "permanent", "code": "cancelled", "summary": ""})
            self.changed.notify_all()

    def take_away(self, execution: Execution) -> None:
        """Ends the lease as if the worker had died: the execution is runnable again."""
        with self.changed:
            self._hand_back(execution)

    def declare_dead(self) -> None:
        """Declares all workers dead."""
        with self.changed:
            for worker in self.workers.values():
                self._die(worker)

    def drain(self) -> None:
        """Tells all workers to drain."""
        with self.changed:
            for worker in self.workers.values():
                worker.state = "draining"

    # The protocol.

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """Answer of one request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] != ["v1", "workers"]:
            raise Problem(404, "not_found")
        if len(parts) == 2:
            return self._register(body)
        with self.changed:
            self._reap()
            worker = self.workers.get(parts[2])
            if worker is None:
                raise Problem(404, "worker_not_found")
            if worker.dead:
                raise Problem(410, "worker_dead", "the lease ran out")
        tail = parts[3:]
        if method == "DELETE" and not tail:
            with self.changed:
                worker.signed_off = worker.dead = True
                for execution in self._held_by(worker):
                    self._hand_back(execution)
            return None
        if tail == ["claim"]:
            return self._claim(worker, body)
        with self.changed:
            if tail == ["heartbeat"]:
                return self._heartbeat(worker, body)
            if tail == ["writes"]:
                self._expect(1 <= len(body["writes"]) <= 100, "100 writes a request")
                return {"results": [self._write_entry(worker, entry) for entry in body["writes"]]}
            if tail == ["ends"]:
                self._expect(1 <= len(body["ends"]) <= 100, "100 ends a request")
                return {"results": [self._end_entry(worker, entry) for entry in body["ends"]]}
            if tail and tail[0] == "executions" and len(tail) >= 3:
                token = query.get("token") or (body or {}).get("token")
                leased = self._leased(worker, tail[1], token)
                if leased is None:
                    raise Problem(409, "lease_lost")
                return self._asked(leased, method, "/".join(tail[2:]), query, body)
        raise Problem(404, "not_found")

    def _register(self, body: Any) -> Any:
        self._expect(body.get("protocol") == 1, "protocol 1")
        for name in ("host", "pid", "build", "queues", "concurrency", "definitions"):
            self._expect(name in body, f"registration has {name}")
        for definition in body["definitions"]:
            self._expect("agent_key" not in definition and "runner" not in definition, "definitions without runner")
        with self.changed:
            worker = WorkerRow(f"w{next(self._ids)}", time.monotonic(), body)
            self.workers[worker.id] = worker
            self.changed.notify_all()
        return {
            "worker": worker.id,
            "lease_seconds": self.lease_seconds,
            "renew_seconds": self.renew_seconds,
            "definitions": {definition["key"]: 1 for definition in body["definitions"]},
            "now": self._time(self.now()),
        }

    def _heartbeat(self, worker: WorkerRow, body: Any) -> Any:
        self._expect(set(body) == {"held", "memory_bytes", "was_awake"}, f"heartbeat's fields {sorted(body)}")
        worker.renewed_at = time.monotonic()
        held = {entry["execution"]: entry["token"] for entry in body["held"]}
        lost = [id for id, token in held.items() if self._leased(worker, id, token) is None]
        for execution in self._held_by(worker):
            if execution.id not in held and time.monotonic() - execution.claimed_at > HANDED_BACK_SECONDS:
                self._hand_back(execution)
        cancel = [id for id in held if id not in lost and self.executions[id].cancel_requested]
        return {"state": worker.state, "cancel": cancel, "lost": lost, "lease_seconds": self.lease_seconds}

    def _claim(self, worker: WorkerRow, body: Any) -> Any:
        self._expect(set(body) == {"max", "wait_seconds", "suspects", "may_take_alone"}, "fields of a claim")
        self._expect(1 <= body["max"] <= 100 and 0 <= body["wait_seconds"] <= 30, "bounds of a claim")
        with self.changed:
            if worker.claiming:
                raise Problem(409, "claim_under_way")
            worker.claiming = True
            try:
                self.changed.wait_for(
                    lambda: self.fault is _cut or worker.dead or self._runnable(worker, body), body["wait_seconds"]
                )
            finally:
                worker.claiming = False
            if worker.dead:
                raise Problem(410, "worker_dead")
            if worker.state == "draining":
                return {"executions": []}
            taken = self._runnable(worker, body)[: body["max"]]
            now = self._time(self.now())
            room = self.steps_per_claim
            leased: list[Any] = []
            for execution in taken:
                leased.append(self._lease(worker, execution, room))
                if room is not None:
                    room = max(0, room - len(leased[-1]["steps"]))
            return {"executions": leased, "now": now}

    def _runnable(self, worker: WorkerRow, body: Any) -> list[Execution]:
        served = {definition["key"] for definition in worker.registration["definitions"]}
        now = self.now()
        return [
            execution
            for execution in self.executions.values()
            if execution.status == "RUNNABLE"
            and execution.definition in served
            and execution.queue in worker.registration["queues"]
            and (execution.retry_at is None or execution.retry_at <= now)
        ]

    def _lease(self, worker: WorkerRow, execution: Execution, room: int | None) -> Any:
        execution.status = "RUNNING"
        execution.worker = worker.id
        execution.token = str(uuid.uuid4())
        execution.attempt += 1
        execution.claimed_at = time.monotonic()
        execution.last_write = 0
        execution.wait_reason = execution.wait_until = execution.retry_at = None
        self.changed.notify_all()
        page = execution.steps[: self.steps_per_page if room is None else min(room, self.steps_per_page)]
        last = page[-1]["seq"] if page else 0
        return {
            "id": execution.id,
            "token": execution.token,
            "definition": execution.definition,
            "version": execution.version,
            "queue": execution.queue,
            "lane": execution.lane,
            "attempt": execution.attempt,
            "wake_seq": execution.wake_seq,
            "cancel_requested": execution.cancel_requested,
            "active_seconds": execution.active_seconds,
            "deadline_at": self._time(self.now() + 86400),
            "created_at": self._time(self.now()),
            "root": execution.id,
            "depth": 0,
            "traceparent": None,
            "metadata": execution.metadata,
            "input": execution.input,
            "steps": page,
            "next_after": last if len(page) < len(execution.steps) else None,
        }

    def _write_entry(self, worker: WorkerRow, entry: Any) -> Any:
        execution = self._leased(worker, entry["execution"], entry["token"])
        if execution is None or self._dies(execution, "before write"):
            return _error("lease_lost")
        if entry["write"] == execution.last_write:
            return self._written(execution)
        if not self._expect(entry["write"] == execution.last_write + 1, f"write {entry['write']} in order"):
            return _error("write_refused")
        if refused := self._store(execution, entry):
            return refused
        execution.last_write = entry["write"]
        if self._dies(execution, "after write"):
            return _error("lease_lost")
        return self._written(execution)

    def _written(self, execution: Execution) -> Any:
        return {"wake_seq": execution.wake_seq, "cancel_requested": execution.cancel_requested}

    def _store(self, execution: Execution, write: Any) -> Any:
        self._expect(len(write["steps"]) <= 500 and len(write["events"]) <= 100, "sizes of a write")
        stored = list(execution.steps)
        for step in write["steps"]:
            if "refused" in str(step.get("result")):
                return _error("write_refused", "the value is refused")
            before = next((one for one in stored if one["key"] == step["key"]), None)
            if before is not None:
                self._expect(before["state"] == "intent" and step["state"] == "done", f"a result for {step['name']}")
                self._expect(before["seq"] == step["seq"], f"number of the result of {step['name']}")
                stored[stored.index(before)] = step
            else:
                last = max((one["seq"] for one in stored), default=0)
                if not self._expect(step["seq"] == last + 1, f"step {step['seq']} after {last}"):
                    return _error("write_refused", "gap")
                stored.append(step)
            self._expect(len(step["key"]) == 64 and 0 < len(step["name"]) <= 200, "key and name of a step")
            self._expect(len(step.get("preview") or "") <= 500, "preview")
            self._expect(step["effect"] in (None, "read_only", "idempotent", "side_effect"), "effect of a step")
        for event in write["events"]:
            if "refused" in str(event):
                return _error("write_refused", "the event is refused")
            self._expect(event["kind"] in ("log", "progress"), "kind of an event")
            self._expect(len(json.dumps(event, ensure_ascii=False).encode()) <= 17 << 10, "size of an event")
        execution.steps = stored
        execution.events.extend(write["events"])
        self.changed.notify_all()
        return None

    def _end_entry(self, worker: WorkerRow, entry: Any) -> Any:
        if entry["token"] in self._ends:
            return self._ends[entry["token"]]
        execution = self._leased(worker, entry["execution"], entry["token"])
        if execution is None or self._dies(execution, "before end"):
            return _error("lease_lost")
        if (write := entry["write"]) is not None:
            self._expect(write["write"] == execution.last_write + 1, "number of the last write")
            if refused := self._store(execution, write):
                return refused
        outcome = entry["outcome"]
        kind = outcome["type"]
        if kind == "finish" and outcome["output"] == "refused output":
            return _error("write_refused", "the output is refused")
        execution.outcomes.append(outcome)
        execution.worker = execution.token = None
        if kind == "finish":
            self._end(execution, "FINISHED", output=outcome["output"])
        elif kind == "fail":
            self._fail(execution, outcome)
        elif kind == "park":
            self._park(execution, outcome)
        elif kind in ("release", "drain"):
            execution.status = "RUNNABLE"
        elif kind == "cancelled":
            self._expect(execution.cancel_requested, "a cancel before the outcome cancelled")
            self._end(execution, "FAILED", failure={"class": "permanent", "code": "cancelled", "summary": ""})
        elif kind == "timed_out":
            self._end(execution, "FAILED", failure={"class": "permanent", "code": "deadline_exceeded", "summary": ""})
        else:
            self._expect(False, f"outcome {kind}")
        self.changed.notify_all()
        answer = {"status": execution.status, "wait_reason": execution.wait_reason}
        self._ends[entry["token"]] = answer
        return answer

    def _fail(self, execution: Execution, outcome: Any) -> None:
        for name in ("class", "code", "summary", "detail", "retry_after_seconds"):
            self._expect(name in outcome, f"a failure has {name}")
        retries = sum(1 for one in execution.outcomes if one["type"] == "fail")
        if outcome["class"] == "permanent" or retries > 3:
            self._end(execution, "FAILED", failure=outcome)
        else:
            execution.status = "RUNNABLE"
            execution.retry_at = self.now() + (outcome["retry_after_seconds"] or 0.0)

    def _park(self, execution: Execution, outcome: Any) -> None:
        self._expect(outcome["reason"] in PARK_REASONS, f"reason {outcome['reason']}")
        self._expect(outcome["wake_seq"] <= execution.wake_seq, "wake_seq that was heard")
        if outcome["wake_seq"] != execution.wake_seq or execution.cancel_requested:
            execution.status = "RUNNABLE"
            return
        execution.status = "WAITING"
        execution.wait_reason = outcome["reason"]
        seconds = outcome["seconds"]
        execution.wait_until = None if seconds is None else self.now() + seconds
        self._wake_due()

    def _asked(self, execution: Execution, method: str, what: str, query: dict[str, str], body: Any) -> Any:
        if self._dies(execution, f"before {what}"):
            raise Problem(409, "lease_lost")
        if (method, what) == ("GET", "journal"):
            left = [step for step in execution.steps if step["seq"] > int(query["after"])]
            page = left[: self.steps_per_page]
            answer: Any = {"steps": page, "next_after": page[-1]["seq"] if len(page) < len(left) else None}
        elif (method, what) == ("GET", "signals"):
            sent = execution.signals.get(query["name"], [])
            answer = {"signals": [one for one in sent if one["seq"] > int(query["after"])][:100]}
        elif (method, what) == ("POST", "requests"):
            answer = self._request(execution, body)
        elif (method, what) == ("POST", "children"):
            self._expect(1 <= len(body["children"]) <= 100, "children of a request")
            answer = self._bounded([self._child(execution, child) for child in body["children"]])
        elif (method, what) == ("POST", "children/wait"):
            self._expect(len(body["key"]) == 64, "key of a wait")
            self._expect(1 <= len(body["children"]) <= 100, "children of a wait")
            self._await(execution, body["children"], body["until_first"])
            answer = self._bounded([self._child_state(execution, id) for id in body["children"]])
        else:
            raise Problem(404, "not_found")
        if self._dies(execution, f"after {what}"):
            raise Problem(409, "lease_lost")
        return answer

    def _request(self, execution: Execution, body: Any) -> Any:
        optional = {"arguments", "text", "schema", "expires_seconds", "allow_self"}
        self._expect(set(body) - optional == {"token", "kind", "key", "name"}, f"fields of a request: {sorted(body)}")
        self._expect(None not in body.values(), "optional fields are absent")
        request = execution.requests.get(body["key"])
        if request is None:
            request = {
                "id": f"r{next(self._ids)}",
                "state": "waiting",
                "value": None,
                "reason": None,
                "decided_by": None,
            }
            execution.requests[body["key"]] = request
            self.changed.notify_all()
        return request

    def _child(self, execution: Execution, child: Any) -> Any:
        if child.get("definition") == "no.such":
            raise Problem(404, "definition_not_found", "there is no definition no.such")
        id = execution.children.get(child["key"])
        if id is None:
            started = Execution(
                f"e{next(self._ids)}",
                child.get("definition") or child["agent"],
                child["input"],
                queue=execution.queue,
                parent=execution.id,
                metadata=child["metadata"],
            )
            self.executions[started.id] = started
            id = execution.children[child["key"]] = started.id
            self.changed.notify_all()
        return self._child_state(execution, id)

    def _child_state(self, execution: Execution, id: str) -> Any:
        key = next(key for key, child in execution.children.items() if child == id)
        child = self.executions[id]
        return {"id": id, "key": key, "status": child.status, "output": child.output, "failure": child.failure}

    def _bounded(self, children: list[Any]) -> Any:
        finished = [child for child in children if child["status"] == "FINISHED"]
        room = len(finished) if self.outputs_per_answer is None else self.outputs_per_answer
        for child in finished[room:]:
            child.update(output=None, output_omitted=True)
        return {"children": children}

    def _await(self, execution: Execution, ids: list[str], until_first: bool) -> None:
        execution.awaited |= {id for id in ids if self.executions[id].status not in ENDED}
        execution.awaits_first = until_first

    # State.

    def _expect(self, holds: bool, what: str) -> bool:
        if not holds:
            self.violations.append(what)
        return holds

    def _leased(self, worker: WorkerRow, id: str, token: Any) -> Execution | None:
        execution = self.executions.get(id)
        if execution is None or token is None or execution.token != token or execution.worker != worker.id:
            return None
        return execution

    def _held_by(self, worker: WorkerRow) -> list[Execution]:
        return [execution for execution in self.executions.values() if execution.worker == worker.id]

    def _dies(self, execution: Execution, point: str) -> bool:
        if self.boundary is not None and self.boundary(execution, point):
            self._hand_back(execution)
            return True
        return False

    def _hand_back(self, execution: Execution) -> None:
        if execution.token is not None:
            execution.worker = execution.token = None
            execution.status = "RUNNABLE"
            self.changed.notify_all()

    def _die(self, worker: WorkerRow) -> None:
        worker.dead = True
        for execution in self._held_by(worker):
            self._hand_back(execution)
        self.changed.notify_all()

    def _reap(self) -> None:
        for worker in self.workers.values():
            if not worker.dead and time.monotonic() - worker.renewed_at > self.lease_seconds:
                self._die(worker)

    def _end(self, execution: Execution, status: str, *, output: Any = None, failure: Any = None) -> None:
        execution.status = status
        execution.output = output
        execution.failure = failure
        execution.wait_reason = None
        if execution.parent is not None:
            parent = self.executions[execution.parent]
            if execution.id in parent.awaited:
                parent.awaited.discard(execution.id)
                if parent.awaits_first or not parent.awaited:
                    parent.awaited.clear()
                    self._wake(parent)
        self.changed.notify_all()

    def _wake(self, execution: Execution) -> None:
        execution.wake_seq += 1
        if execution.status == "WAITING":
            execution.status = "RUNNABLE"
            execution.wait_reason = None
        self.changed.notify_all()

    def _wake_due(self) -> None:
        for execution in self.executions.values():
            if execution.wait_until is not None and execution.wait_until <= self.now():
                execution.wait_until = None
                self._wake(execution)

    def _time(self, seconds: float) -> str:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def _cut(method: str, path: str, done: bool) -> Any:
    raise Cut


def _error(code: str, detail: str = "") -> dict[str, Any]:
    return {"error": {"code": code, "detail": detail}}


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *args: Any) -> None:
            pass

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(length)
            url = urlsplit(self.path)
            try:
                answer = self._answer(url.path, {k: v[0] for k, v in parse_qs(url.query).items()}, raw)
            except Cut:
                self.close_connection = True
                return
            except Problem as problem:
                body = {
                    "type": "t",
                    "title": "t",
                    "status": problem.status,
                    "code": problem.code,
                    "detail": problem.detail,
                }
                kind = "application/problem+json" if problem.code else "text/plain"
                self._send(problem.status, json.dumps(body).encode() if problem.code else b"no", kind)
                return
            if isinstance(answer, bytes):
                self._send(200, answer, "application/json")
            elif answer is None:
                self._send(204, b"", "application/json")
            else:
                self._send(200, json.dumps(answer).encode(), "application/json")

        def _answer(self, path: str, query: dict[str, str], raw: bytes) -> Any:
            method = self.command
            server.requests.append((method, path))
            if server.fault is not None and (instead := server.fault(method, path, False)) is not None:
                return instead
            if self.headers.get("authorization") != f"Bearer {KEY}":
                raise Problem(401, "unauthenticated", "no such key")
            answer = server.answer(method, path, query, json.loads(raw) if raw else None)
            if server.fault is not None and (instead := server.fault(method, path, True)) is not None:
                return instead
            return answer

        def _send(self, status: int, body: bytes, kind: str) -> None:
            head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            try:
                self.wfile.write((head.encode() + body) if status != 204 else b"HTTP/1.1 204 X\r\n\r\n")
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_DELETE = _serve

    return Handler
