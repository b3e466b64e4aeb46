"""The fake server with the part of the API that callers of `longhaul.celery` use."""

from __future__ import annotations

import json
import threading
import time
import uuid
from datetime import datetime, timezone
from typing import Any

from fake_server import ENDED, Cut, Execution, FakeServer, Problem

_USAGE = ("turns", "calls", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "uncosted_turns")
_LINKS = ("self", "steps", "attempts", "events", "cancel", "retry", "fork", "children", "tool_results")


class CeleryServer(FakeServer):
    """Executions and schedules over HTTP, beside the worker protocol. Times of countdowns are real."""

    def __init__(self) -> None:
        super().__init__()
        self.by_key: dict[str, tuple[Any, str]] = {}
        self.schedules: dict[str, dict[str, Any]] = {}
        self._local = threading.local()
        self._http.RequestHandlerClass = self._with_key(self._http.RequestHandlerClass)

    def _with_key(self, handler: Any) -> Any:
        local = self._local

        class WithKey(handler):  # type: ignore[misc]
            do_PUT = handler._serve

            def _send(self, status: int, body: bytes, kind: str) -> None:
                is_stream = local.streams and status == 200
                super()._send(status, body, "text/event-stream" if is_stream else kind)

            def _answer(self, *args: Any) -> Any:
                local.key = self.headers.get("idempotency-key")
                local.streams = self.headers.get("accept") == "text/event-stream"
                local.after = int(self.headers.get("last-event-id") or 0)
                try:
                    return super()._answer(*args)
                except Problem as problem:
                    if not hasattr(problem, "execution_id"):
                        raise
                    body = {"type": "t", "title": "t", "status": 409, "code": problem.code, "detail": "",
                            "execution_id": problem.execution_id}  # fmt: skip
                    self._send(409, json.dumps(body).encode(), "application/problem+json")
                    raise Cut from None

        return WithKey

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """Answer of one request."""
        with self.changed:
            self._wake_due()
            # A claim that waits looks anew whether the time of a retry or a countdown has come.
            self.changed.notify_all()
        parts = path.strip("/").split("/")
        if parts[:2] == ["v1", "executions"]:
            return self._executions(method, parts[2:], query, body)
        if parts[:2] == ["v1", "schedules"]:
            return self._schedules(method, parts[2:], body)
        if path == "/v1/workers" and method == "GET":
            live = [row for row in self.workers.values() if not row.dead]
            return {"workers": [{"id": row.id, "queues": row.registration["queues"], "dead_at": None} for row in live]}
        return super().answer(method, path, query, body)

    def _executions(self, method: str, tail: list[str], query: dict[str, str], body: Any) -> Any:
        with self.changed:
            if not tail and method == "POST":
                return self._submitted(body)
            if not tail:
                found = [one for one in self.executions.values() if _matches(self, one, query)]
                return {"executions": [self._view(one) for one in reversed(found)], "next_cursor": None}
            execution = self.executions.get(tail[0])
            if execution is None:
                raise Problem(404, "execution_not_found")
            if tail[1:] == ["cancel"]:
                self.cancel(execution)
            elif tail[1:] == ["content"]:
                execution.output = None
                execution.metadata["erased"] = True
                return {}
            elif tail[1:] == ["events"]:
                return self._events(execution, query)
            return self._view(execution)

    def _submitted(self, body: Any) -> Any:
        key = self._local.key
        if key in self.by_key:
            before, id = self.by_key[key]
            if before != body:
                raise _conflict(id)
            return self._view(self.executions[id])
        execution = Execution(
            str(uuid.uuid4()),
            body["definition"],
            body.get("input", {}),
            queue=body.get("queue", "default"),
            metadata=body.get("metadata", {}),
        )
        if body.get("run_at"):
            execution.retry_at = datetime.fromisoformat(body["run_at"].replace("Z", "+00:00")).timestamp()
            execution.wait_reason = "scheduled"
        self.executions[execution.id] = execution
        self.by_key[key] = (body, execution.id)
        self.changed.notify_all()
        return self._view(execution)

    def _events(self, execution: Execution, query: dict[str, str]) -> Any:
        after = self._local.after if self._local.streams else int(query.get("after", 0))
        if self._local.streams:
            self.changed.wait_for(lambda: len(execution.events) > after or execution.status in ENDED, 10)
        page = [{"seq": n, "at": _now(), **event} for n, event in enumerate(execution.events, 1)]
        if not self._local.streams:
            is_over = execution.status in ENDED
            return {"events": page[after:], "last": len(page), "is_over": is_over, "resync": False}
        if not page[after:]:
            return None
        lines = [f"id: {one['seq']}\nevent: {one['kind']}\ndata: {json.dumps(one)}\n\n" for one in page[after:]]
        return "".join(lines).encode()

    def _schedules(self, method: str, tail: list[str], body: Any) -> Any:
        if not tail and method == "GET":
            return {"schedules": [{"key": key, "spec": spec} for key, spec in self.schedules.items()]}
        if not tail:
            self.schedules[body["key"]] = body
        elif method == "DELETE":
            del self.schedules[tail[0]]
            return None
        elif tail[0] not in self.schedules:
            raise Problem(404, "schedule_not_found")
        elif method == "PUT":
            self.schedules[tail[0]] = body
        return {"key": tail[0] if tail else body["key"]}

    def _view(self, execution: Execution) -> dict[str, Any]:
        status = {"RUNNABLE": "PENDING", "RUNNING": "IN_PROGRESS", "WAITING": "IN_PROGRESS"}
        waits = execution.wait_reason
        if execution.status == "RUNNABLE" and execution.retry_at is not None and execution.attempt:
            waits = "retry_backoff"
        failure = execution.failure
        root = execution
        while root.parent is not None:
            root = self.executions[root.parent]
        return {
            "id": execution.id,
            "status": status.get(execution.status, execution.status),
            "definition": {"key": execution.definition, "version": 1},
            "agent": {"key": "remote", "version": 1},
            "queue": execution.queue,
            "priority": 5,
            "metadata": execution.metadata,
            "attempts": execution.attempt,
            "retries": {"transient": 0, "tool_error": 0, "llm_error": 0},
            "usage": {**dict.fromkeys(_USAGE, 0), "active_seconds": 0.0, "cost_usd": None},
            "created_at": _now(),
            "deadline_at": _now(),
            "root_id": root.id,
            "depth": 0,
            "children": 0,
            "trace_id": "0",
            "tenant": {"org_id": "o", "group_id": None},
            "links": dict.fromkeys(_LINKS, "/"),
            "cancel_requested_at": None,
            "erased_at": _now() if execution.metadata.get("erased") else None,
            "failure": failure and {**failure, "class": failure.get("class")},
            "finished_at": _now() if execution.status in ENDED else None,
            "forked_from": None,
            "parent_id": execution.parent,
            "retry_of": None,
            "started_at": None,
            "wait_reason": waits if waits in ("retry_backoff", "scheduled", "children", "approval") else None,
            "wait_until": None,
            "worker_id": execution.worker,
            "input": execution.input,
            "output": execution.output,
        }

    def wait_for_workers(self) -> None:
        """Waits until a worker is registered."""
        end = time.monotonic() + 10
        with self.changed:
            self.changed.wait_for(lambda: bool(self.workers) or time.monotonic() > end, 10)


def _matches(server: CeleryServer, one: Execution, query: dict[str, str]) -> bool:
    view = server._view(one)
    for name, value in query.items():
        found = {
            "root": view["root_id"],
            "parent": view["parent_id"],
            "status": view["status"],
            "definition": view["definition"]["key"],
            "wait_reason": view["wait_reason"],
        }
        if name.startswith("metadata."):
            if view["metadata"].get(name.removeprefix("metadata.")) != value:
                return False
        elif name in found and found[name] != value:
            return False
    return True


def _conflict(id: str) -> Problem:
    problem = Problem(409, "idempotency_conflict")
    problem.execution_id = id  # type: ignore[attr-defined]
    return problem


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()


__all__ = ["CeleryServer"]
