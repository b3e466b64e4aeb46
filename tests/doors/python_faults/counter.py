"""An HTTP server that counts the calls of the functions, and sometimes loses its answer."""

from __future__ import annotations

import dataclasses
import http.server
import json
import multiprocessing
import pathlib
import random
import signal
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
    """The server, in a process of its own, and what it wrote."""

    def __init__(self, port: int, seed: int, file: pathlib.Path) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self._file = file
        spawn = multiprocessing.get_context("spawn")
        self._process = spawn.Process(target=_run, args=(port, seed, file), name="counter", daemon=True)
        self._process.start()

    def calls(self) -> list[Call]:
        """All calls so far, in the order in which they arrived."""
        return [Call(**json.loads(line)) for line in self._file.read_text().splitlines()]

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()


def _run(port: int, seed: int, file: pathlib.Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(("127.0.0.1", port), _Handler)
    server.seen = _Seen(seed, file)
    server.serve_forever()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    seen: _Seen

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed is no error."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # A caller may be stopped between head and body.
        call, count, seconds = self.server.seen.take(time.time(), body)
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


class _Seen:
    def __init__(self, seed: int, file: pathlib.Path) -> None:
        self._file = open(file, "w", buffering=1)  # noqa: SIM115 - open as long as the process lives
        self._calls = 0
        self._seen: Counts[tuple[str, str]] = Counts()
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def take(self, at: float, body: dict[str, Any]) -> tuple[Call, int, float]:
        """Counts a call; its number within its step, and the seconds until its answer."""
        with self._lock:
            self._seen[body["execution"], body["step"]] += 1
            count = self._seen[body["execution"], body["step"]]
            # Only a first call: an execution must not use up its retries.
            is_lost = count == 1 and body["effect"] != "none" and self._random.random() < LOST_SHARE
            call = Call(
                at=at,
                run=str(self._calls),
                execution=body["execution"],
                attempt=body["attempt"],
                step=body["step"],
                effect=body["effect"],
                key=body["key"],
                pid=body["pid"],
                is_lost=is_lost,
            )
            self._calls += 1
            self._file.write(json.dumps(dataclasses.asdict(call)) + "\n")
            return call, count, self._random.uniform(*SECONDS)
