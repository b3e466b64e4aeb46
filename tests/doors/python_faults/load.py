"""The load: submits at a steady rate, signals and decisions, each repeated until it is answered."""

from __future__ import annotations

import collections
import http.client
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

MIX = {
    "faults.three": 3,
    "faults.blocking": 2,
    "faults.parallel": 2,
    "faults.wait": 2,
    "faults.tree": 2,
    "faults.gate": 2,
    "faults.flaky": 2,
    "agent": 3,
}
AGENT = "repeater"
QUEUES = ("default", "default", "python")
"""Queues of the functions: a third of them has a Python worker of its own."""
ANSWER_SECONDS = 60.0
"""Time in which a repeated request must be answered."""
KEY_SECONDS = 75.0
"""The same, while its idempotency key is in use: a minute, if the API died under a request."""
ALREADY_DECIDED = "it was approved with the key `key-1`"
KEY_IN_USE = b"idempotency_key_in_use"
TRY_SECONDS = 15.0
PAUSE_SECONDS = 0.2
SENDERS = 128


@dataclass
class Submit:
    """One submit, with the ids of all its answers."""

    number: int
    what: str
    queue: str
    at: float
    ids: set[str]
    error: str = ""


class Refused(Exception):
    """An answer that no repetition changes."""


class Client:
    """Requests by one key; each thread has a connection of its own."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key
        self._local = threading.local()

    def request(self, method: str, path: str, body: Any = None, idempotency_key: str = "") -> Any:
        """JSON of the answer. Repeated until there is one; raises `Refused`, and `TimeoutError` after a minute."""
        begun = time.monotonic()
        while True:
            longest = ANSWER_SECONDS
            try:
                status, answer = self._once(method, path, body, idempotency_key)
                if status < 300:
                    # An answer that was cut in its head has no body.
                    return json.loads(answer)
                reason = f"{method} {path} answered {status}: {answer[:300].decode(errors='replace')}"
                if status == 409 and KEY_IN_USE in answer:
                    longest += KEY_SECONDS
                elif status < 500 and status != 429:
                    raise Refused(reason)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = f"{method} {path}: {type(error).__name__} {error}"
                self._local.connection = None
            if time.monotonic() > begun + longest:
                raise TimeoutError(reason)
            time.sleep(PAUSE_SECONDS)

    def _once(self, method: str, path: str, body: Any, idempotency_key: str) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TRY_SECONDS)
            self._local.connection = connection
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        if path == "/v1/executions":
            headers["Prefer"] = "return=minimal"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


class Load:
    """Submits until it is told to stop; then answers what still waits."""

    def __init__(self, caller: Client, decider: Client, rate: float, seed: int) -> None:
        self.submits: list[Submit] = []
        self.errors: list[str] = []
        """Requests other than submits that were refused or not answered."""
        self.decided = 0
        self._caller = caller
        self._decider = decider
        self._rate = rate
        self._random = random.Random(seed)
        self._stop_submits = threading.Event()
        self._stop_decisions = threading.Event()
        self._senders = ThreadPoolExecutor(SENDERS, "sender")
        self._threads = [
            threading.Thread(target=self._submit_all, name="submits", daemon=True),
            threading.Thread(target=self._decide_all, name="decisions", daemon=True),
        ]

    def start(self) -> None:
        """Begins."""
        for thread in self._threads:
            thread.start()

    def stop_submits(self) -> None:
        """Ends the submits, and waits until all of them are answered."""
        self._stop_submits.set()
        self._threads[0].join()
        self._senders.shutdown(wait=True)

    def stop(self) -> None:
        """Ends the decisions."""
        self._stop_decisions.set()
        self._threads[1].join()

    def close(self) -> None:
        """Ends everything, answered or not."""
        self._stop_submits.set()
        self._stop_decisions.set()
        self._senders.shutdown(wait=False, cancel_futures=True)

    def _submit_all(self) -> None:
        begun = time.monotonic()
        kinds = list(MIX)
        number = 0
        while not self._stop_submits.is_set():
            number += 1
            what = self._random.choices(kinds, list(MIX.values()))[0]
            queue = "default" if what == "agent" else self._random.choice(QUEUES)
            submit = Submit(number, what, queue, time.time(), set())
            self.submits.append(submit)
            self._senders.submit(self._submit, submit, self._random.random() < 0.1, self._random.uniform(0.0, 3.0))
            self._stop_submits.wait(max(0.0, begun + number / self._rate - time.monotonic()))

    def _submit(self, submit: Submit, is_sent_twice: bool, pause: float) -> None:
        body: dict[str, Any] = {"queue": submit.queue, "metadata": {"submit": submit.number}}
        if submit.what == "agent":
            body |= {"agent": AGENT, "input": {"prompt": f"repeat {submit.number}"}}
        else:
            body |= {"definition": submit.what, "input": {"number": submit.number}}
        try:
            for _ in range(2 if is_sent_twice else 1):
                answer = self._caller.request("POST", "/v1/executions", body, f"submit-{submit.number}")
                submit.ids.add(answer["id"])
        except (Refused, TimeoutError) as error:
            submit.error = str(error)
            return
        if submit.what == "faults.wait":
            time.sleep(pause)
            (id,) = list(submit.ids)[:1]
            signal = {"name": "go", "payload": {"number": submit.number}}
            self._try(self._caller, f"/v1/executions/{id}/signals", signal, f"signal-{submit.number}")

    def _decide_all(self) -> None:
        decided: collections.OrderedDict[str, None] = collections.OrderedDict()
        while not self._stop_decisions.wait(0.3):
            try:
                page = self._decider.request("GET", "/v1/approvals?state=waiting&limit=200")
            except (Refused, TimeoutError) as error:
                self.errors.append(str(error))
                continue
            for approval in page["approvals"]:
                if approval["id"] in decided:
                    continue
                decided[approval["id"]] = None
                body = {"decision": "approve", "hash": approval["hash"]}
                self._try(self._decider, f"/v1/approvals/{approval['id']}/decision", body, approval["id"])
                self.decided += 1

    def _try(self, client: Client, path: str, body: Any, key: str) -> None:
        try:
            client.request("POST", path, body, key)
        except (Refused, TimeoutError) as error:
            # A decision that was stored by an API that died before it answered.
            if ALREADY_DECIDED not in str(error):
                self.errors.append(str(error))
