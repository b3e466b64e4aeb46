"""An HTTP server that counts the calls of the functions, and sometimes loses its answer."""

from __future__ import annotations

import http.server
import json
import random
import threading
import time
from collections import Counter as Counts
from dataclasses import dataclass
from typing import Any

LOST_SHARE = 0.02
"""Share of first calls of a step whose answers are lost."""
SECONDS = (0.02, 0.4)
"""Shortest and longest time of an answer: executions are held, so that a killed worker has something to lose."""


@dataclass(frozen=True)
class Call:
    """One call as it arrived."""

    at: float
    run: str
    execution: str
    attempt: int
    step: str
    effect: str
    key: str
    pid: int
    is_lost: bool
    """Whether its answer was lost."""


class Counter:
    """The server with all calls so far."""

    def __init__(self, port: int, seed: int) -> None:
        self.calls: list[Call] = []
        self._seen: Counts[tuple[str, str]] = Counts()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        counter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # noqa: N802 - the name that the base class calls
                at = time.time()
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                call, count, seconds = counter.take(at, body)
                time.sleep(seconds)
                if call.is_lost:
                    self.close_connection = True
                    return
                answer = json.dumps({"run": call.run, "count": count}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A caller that was killed is no error."""

        self._server = Server(("127.0.0.1", port), Handler)
        threading.Thread(target=self._server.serve_forever, name="counter", daemon=True).start()
        self.url = f"http://127.0.0.1:{port}/"

    def take(self, at: float, body: dict[str, Any]) -> tuple[Call, int, float]:
        """Counts a call; its number within its step, and the seconds until its answer."""
        with self._lock:
            self._seen[body["execution"], body["step"]] += 1
            count = self._seen[body["execution"], body["step"]]
            # Only a first call: an execution must not use up its retries.
            is_lost = count == 1 and body["effect"] != "none" and self._random.random() < LOST_SHARE
            call = Call(
                at=at,
                run=f"{len(self.calls)}",
                execution=body["execution"],
                attempt=body["attempt"],
                step=body["step"],
                effect=body["effect"],
                key=body["key"],
                pid=body["pid"],
                is_lost=is_lost,
            )
            self.calls.append(call)
            return call, count, self._random.uniform(*SECONDS)

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
