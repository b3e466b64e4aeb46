"""A fake server and a worker in a thread, for each test."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_server import KEY, FakeServer

from longhaul.worker import App, Worker


class Running:
    """A worker that serves in a thread of its own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self.loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None
        self._began = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self._began.wait(5)

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001
            self.error = error

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._began.set()
        await self.worker.serve(self._stop)

    def stop(self, seconds: float = 15.0) -> None:
        """Drains, and waits for the end."""
        assert self._stop is not None
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the worker does not stop"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.close()
    assert server.violations == []


@pytest.fixture
def serve(server: FakeServer) -> Iterator[Callable[..., Running]]:
    """Starts a worker for an app."""
    started: list[Running] = []

    def start(app: App, **settings: Any) -> Running:
        settings.setdefault("drain_seconds", 2.0)
        worker = Worker(app, url=server.url, api_key=KEY, **settings)
        worker.unwind_seconds = 1.0
        running = Running(worker)
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()
