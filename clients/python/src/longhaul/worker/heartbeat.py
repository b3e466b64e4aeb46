"""Renewal of the worker's lease, in a thread of its own: a function that blocks the event loop loses no lease."""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from .errors import ProtocolError, RequestRefused, WorkerDead
from .jsontext import text_of
from .transport import Server, answer_of, part, pause_after, raise_refusal, retry_after

log = logging.getLogger("longhaul.worker")

Beat = Callable[[dict[str, Any], Mapping[str, str]], None]


class Heartbeat:
    """Renews until it is stopped, and calls back from its own thread."""

    def __init__(
        self,
        server: Server,
        worker_id: str,
        lease_seconds: float,
        renew_seconds: float,
        held: Callable[[], Mapping[str, str]],
        on_answer: Beat,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._server = server
        self._path = f"/v1/workers/{part(worker_id)}/heartbeat"
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._held = held
        self._on_answer = on_answer
        self._on_error = on_error
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="longhaul-heartbeat", daemon=True)
        self._last_reading = time.monotonic()
        self._was_awake = True

    def start(self) -> None:
        """Begins to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; a request under way may take up to its timeout, and is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        # An answer that takes longer than the lease is of no use.
        timeout = httpx.Timeout(max(1.0, min(self._server.timeout, self._lease_seconds / 2)))
        try:
            with httpx.Client(
                base_url=self._server.url.rstrip("/"), headers=self._server.headers(), timeout=timeout
            ) as http:
                failed = 0
                while not self._sleep(self._pause(failed)):
                    failed = 0 if self._beat(http, failed) else failed + 1
        except Exception as error:  # noqa: BLE001 - the session raises it
            if not self._stopped.is_set():
                self._on_error(error)

    def _pause(self, failed: int) -> float:
        """Seconds until the next renewal. A lease ends soon after a failed one, so that no pause is long."""
        return self._renew_seconds if failed == 0 else min(pause_after(failed), self._renew_seconds / 2)

    def _beat(self, http: httpx.Client, failed: int) -> bool:
        held = self._held()
        self._read_clock()
        was_awake, self._was_awake = self._was_awake, True
        body = text_of(
            {
                "held": [{"execution": execution, "token": token} for execution, token in held.items()],
                "memory_bytes": memory_bytes(),
                "was_awake": was_awake,
            }
        )
        began = time.monotonic()
        try:
            response = http.post(self._path, content=body.encode(), headers={"Content-Type": "application/json"})
            if response.status_code < 400:
                answer = answer_of(response, self._path)
                self._waited(began)
                self._on_answer(answer, held)
                return True
            raise_refusal(response, self._path)
            reason = f"status {response.status_code}"
            self._sleep(min(retry_after(response) or 0.0, self._renew_seconds / 2))
        except WorkerDead:
            raise
        except (httpx.TransportError, httpx.DecodingError, ProtocolError, RequestRefused) as error:
            reason = f"{type(error).__name__} {error}".rstrip()
        self._waited(began)
        self._was_awake = was_awake and self._was_awake
        if failed in (0, 9) or failed % 100 == 99:
            log.warning("renewal is repeated: %s (try %d)", reason, failed + 1)
        return False

    def _sleep(self, seconds: float) -> bool:
        """Sleeps, and reads the clock meanwhile; whether the heartbeat is stopped."""
        end = time.monotonic() + seconds
        while not self._stopped.is_set() and (left := end - time.monotonic()) > 0:
            self._stopped.wait(min(left, self._lease_seconds / 8))
            self._read_clock()
        return self._stopped.is_set()

    def _read_clock(self) -> None:
        now = time.monotonic()
        if now - self._last_reading > self._lease_seconds / 2:
            self._was_awake = False
        self._last_reading = now

    # The thread reads no clock while it waits for an answer, for at most the request's timeouts: half a lease each to
    # connect, to write and to read. A longer silence is a process that did not run.
    def _waited(self, began: float) -> None:
        now = time.monotonic()
        if now - began > self._lease_seconds * 2:
            self._was_awake = False
        self._last_reading = now


def memory_bytes() -> int:
    """Memory of this process: what it has, or its peak where the system does not tell."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
