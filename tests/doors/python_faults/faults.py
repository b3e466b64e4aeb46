"""The faults, each of which must have an effect."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .proxy import Proxy
from .servers import Database, Process, Redis, wait_for

PAUSE_SECONDS = 9.0
"""Longer than a lease."""
APIS_SECONDS = 3.0
REDIS_SECONDS = 3.0
CUT_SECONDS = 4.0
CUT_LONGEST = 15.0
DRAIN_SECONDS = 45.0
VICTIM_SECONDS = 15.0
"""Longest wait for a worker that holds an execution."""
CUT_KINDS = ("claim", "writes", "ends")


KINDS = (
    "kill-python",
    "pause-python",
    "drain-python",
    "kill-api",
    "kill-apis",
    "kill-postgres",
    "flush-redis",
    "kill-redis",
    "kill-rust",
    "cut-replies",
)


@dataclass
class Fault:
    """One fault as it happened."""

    kind: str
    victim: str
    began: float
    ended: float = 0.0
    pid: int = 0
    """Of a victim that is a worker."""
    complaint: str = ""
    """Reason for which it had no effect, or a wrong one."""


@dataclass
class Fleet:
    """The processes that faults happen to."""

    database: Database
    redis: Redis
    apis: list[Process]
    rust: Process
    pythons: list[Process]
    proxy: Proxy
    faults: list[Fault] = field(default_factory=list)

    def all(self) -> list[Process]:
        """All processes, those first that others depend on."""
        return [self.database, self.redis, *self.apis, self.rust, *self.pythons]

    def look(self) -> None:
        """Notes and starts again those that ended by themselves."""
        for process in self.all():
            process.look()


class Faults:
    """Injects faults in an order given by a seed: rounds in which each kind comes once."""

    def __init__(self, fleet: Fleet, seed: int, only: Sequence[str]) -> None:
        self._fleet = fleet
        self._random = random.Random(seed)
        self._round: list[str] = []
        kinds: dict[str, Callable[[], Fault]] = {
            "kill-python": self._kill_python,
            "pause-python": self._pause_python,
            "drain-python": self._drain_python,
            "kill-api": self._kill_api,
            "kill-apis": self._kill_apis,
            "kill-postgres": self._kill_postgres,
            "flush-redis": self._flush_redis,
            "kill-redis": self._kill_redis,
            "kill-rust": self._kill_rust,
            "cut-replies": self._cut_replies,
        }
        self._kinds = {kind: kinds[kind] for kind in only}

    @property
    def has_injected_all(self) -> bool:
        """Whether each kind came at least once."""
        return {fault.kind for fault in self._fleet.faults} == set(self._kinds)

    def inject(self) -> Fault:
        """Injects the next one, and waits until it is over."""
        self._fleet.look()
        if not self._round:
            self._round = self._random.sample(list(self._kinds), len(self._kinds))
        kind = self._round.pop()
        fault = self._kinds[kind]()
        fault.ended = time.time()
        self._fleet.faults.append(fault)
        return fault

    def _worker(self, kind: str, processes: list[Process]) -> tuple[Process, Fault]:
        """A worker that holds an execution."""
        end = time.monotonic() + VICTIM_SECONDS
        query = (
            "select w.pid from workers w where w.dead_at is null"
            " and exists (select from executions e where e.worker_id = w.id)"
        )
        order = self._random.sample(processes, len(processes))
        while True:
            holding = {row["pid"] for row in self._fleet.database.rows(query)}
            # The first in the order of the seed, unless it holds nothing.
            found = next((process for process in order if process.pid in holding), None)
            if found is not None:
                return found, Fault(kind, found.name, time.time(), pid=found.pid)
            if time.monotonic() > end:
                fault = Fault(kind, order[0].name, time.time(), pid=order[0].pid)
                fault.complaint = "no worker held an execution"
                return order[0], fault
            time.sleep(0.05)

    def _kill_python(self) -> Fault:
        worker, fault = self._worker("kill-python", self._fleet.pythons)
        worker.kill()
        worker.start()
        return fault

    def _pause_python(self) -> Fault:
        worker, fault = self._worker("pause-python", self._fleet.pythons)
        worker.send(signal.SIGSTOP)
        time.sleep(PAUSE_SECONDS)
        worker.send(signal.SIGCONT)
        return fault

    def _drain_python(self) -> Fault:
        worker, fault = self._worker("drain-python", self._fleet.pythons)
        code = worker.drain(DRAIN_SECONDS)
        if code != 0:
            fault.complaint = f"the drain ended with code {code}"
        worker.start()
        return fault

    def _kill_rust(self) -> Fault:
        worker, fault = self._worker("kill-rust", [self._fleet.rust])
        worker.kill()
        worker.start()
        return fault

    def _kill_api(self) -> Fault:
        api = self._random.choice(self._fleet.apis)
        fault = Fault("kill-api", api.name, time.time())
        api.kill()
        api.start()
        return fault

    def _kill_apis(self) -> Fault:
        fault = Fault("kill-apis", "both", time.time())
        for api in self._fleet.apis:
            api.kill()
        time.sleep(APIS_SECONDS)
        for api in self._fleet.apis:
            api.begin()
        for api in self._fleet.apis:
            wait_for(lambda api=api: api.is_ready, 30, f"{api.name} is not back")  # type: ignore[misc]
        return fault

    def _kill_postgres(self) -> Fault:
        fault = Fault("kill-postgres", "postgres", time.time())
        self._fleet.database.kill()
        self._fleet.database.start()
        return fault

    def _flush_redis(self) -> Fault:
        fault = Fault("flush-redis", "redis", time.time())
        if (answer := self._fleet.redis.command("FLUSHALL")) != "+OK":
            fault.complaint = f"FLUSHALL answered {answer}"
        return fault

    def _kill_redis(self) -> Fault:
        fault = Fault("kill-redis", "redis", time.time())
        self._fleet.redis.kill()
        time.sleep(REDIS_SECONDS)
        self._fleet.redis.start()
        return fault

    def _cut_replies(self) -> Fault:
        fault = Fault("cut-replies", "proxy", time.time())
        before = dict(self._fleet.proxy.cuts)
        end = time.monotonic() + CUT_LONGEST
        self._fleet.proxy.cut(True)
        try:
            time.sleep(CUT_SECONDS)
            while missing := [kind for kind in CUT_KINDS if self._fleet.proxy.cuts[kind] <= before.get(kind, 0)]:
                if time.monotonic() > end:
                    fault.complaint = f"no answer was cut of {', '.join(missing)}"
                    break
                time.sleep(0.1)
        finally:
            self._fleet.proxy.cut(False)
        return fault
