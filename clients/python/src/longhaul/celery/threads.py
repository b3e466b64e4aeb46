"""Threads for functions that block, with limits of time."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import queue
import threading
from collections.abc import Callable
from typing import Any


class Job:
    """A function that runs in a thread."""

    def __init__(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self._function = function
        self._future = future
        self._loop = future.get_loop()
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._is_closed = False

    def interrupt(self, error: type[BaseException]) -> None:
        """Raises the exception in the function, at its next line of Python. No effect once it has returned."""
        with self._lock:
            if self._thread is not None and not self._is_closed:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(error))

    def run(self) -> None:
        """Runs the function in the thread that calls this."""
        value, error = None, None
        try:
            with self._lock:
                self._thread = threading.get_ident()
            value = self._context.run(self._function)
            self._close()
        except BaseException as raised:  # noqa: BLE001
            error = raised
        # An interrupt may arrive after the function has returned, as long as the job is open.
        while not self._is_closed:
            try:
                self._close()
            except BaseException as raised:  # noqa: BLE001
                error = raised
        self._loop.call_soon_threadsafe(self._deliver, value, error)

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True

    def _deliver(self, value: Any, error: BaseException | None) -> None:
        if self._future.done():
            return
        if error is None:
            self._future.set_result(value)
        elif isinstance(error, StopIteration):
            # A future cannot hold it.
            self._future.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            self._future.set_exception(error)


class Threads:
    """Threads that are made when needed and used again. They do not keep the process from ending."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Job]] = []

    def start(self, function: Callable[[], Any]) -> tuple[Job, asyncio.Future[Any]]:
        """Begins a function; the future has its value."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        job = Job(function, future)
        with self._lock:
            box = self._idle.pop() if self._idle else None
        if box is None:
            box = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(box,), name="longhaul-celery", daemon=True).start()
        box.put(job)
        return job, future

    def _work(self, box: queue.SimpleQueue[Job]) -> None:
        while True:
            job = box.get()
            try:
                job.run()
            except RuntimeError:
                # The event loop is closed: the process ends.
                return
            with self._lock:
                self._idle.append(box)
