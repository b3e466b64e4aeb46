"""A worker: registers, runs executions, and registers anew when it was declared dead."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import hashlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .app import App, Task
from .errors import ProtocolError, RegistrationRefused, RequestRefused, WorkerDead
from .jsontext import text_of, time_of
from .session import UNWIND_SECONDS, Session
from .transport import Api, Server, pause_after

log = logging.getLogger("longhaul.worker")

PROTOCOL = 1
DEFINITIONS_MAX = 200
"""Definitions of one registration: the server's maximum."""


class Worker:
    """Runs the tasks of one or several apps."""

    def __init__(
        self,
        apps: App | Iterable[App],
        *,
        url: str | None = None,
        api_key: str | None = None,
        queues: Sequence[str] | None = None,
        concurrency: int = 100,
        drain_seconds: float = 25.0,
        build: str | None = None,
        serves: Mapping[str, Sequence[int]] | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Takes address and key from `LONGHAUL_URL` and `LONGHAUL_API_KEY` when absent.

        `queues`: those of the apps when absent. `drain_seconds`: the time that running steps have when the worker is
        told to stop. `build`: name of the code, by which a crash is blamed; a hash of the tasks' modules when absent.
        `serves`: older versions of definitions that this code runs too.
        """
        self.apps = [apps] if isinstance(apps, App) else list(apps)
        self.tasks: dict[str, Task[Any, Any]] = {}
        for app in self.apps:
            for key, task in app.tasks.items():
                if key in self.tasks:
                    raise ValueError(f"{key} is the key of a task in two apps: rename one app")
                self.tasks[key] = task
        if not self.tasks:
            raise ValueError("there is no task to serve: decorate a function with @app.task")
        if len(self.tasks) > DEFINITIONS_MAX:
            raise ValueError(f"a worker serves at most {DEFINITIONS_MAX} tasks, and these apps have {len(self.tasks)}")
        if not 1 <= concurrency <= 10_000:
            raise ValueError(f"concurrency is 1 to 10000, not {concurrency}")
        address = url or os.environ.get("LONGHAUL_URL")
        secret = api_key or os.environ.get("LONGHAUL_API_KEY")
        if not address or not secret:
            raise ValueError(
                "an address and an API key are needed: pass them, or set LONGHAUL_URL and LONGHAUL_API_KEY"
            )
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"the address of the API begins with http:// or https://, and {address!r} does not")
        self.server = Server(address, secret, timeout)
        self.queues = list(queues) if queues else list(dict.fromkeys(q for app in self.apps for q in app.queues()))
        self.concurrency = concurrency
        self.drain_seconds = drain_seconds
        self.unwind_seconds = UNWIND_SECONDS
        self.build = build or build_of(self.tasks.values())
        self.serves = {key: list(versions) for key, versions in (serves or {}).items()}
        self.session: Session | None = None
        """The present registration."""
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None

    @property
    def threads(self) -> concurrent.futures.ThreadPoolExecutor:
        """Threads of functions without `async`."""
        if self._threads is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(self.concurrency, "longhaul-task")
        return self._threads

    async def in_thread(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls a function in a thread, with the context variables of the caller."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)

    @property
    def worker_id(self) -> str | None:
        """Id of the present registration."""
        return self.session.worker_id if self.session else None

    def task_of(self, definition: str) -> Task[Any, Any] | None:
        """The task that serves a definition."""
        return self.tasks.get(definition)

    def clock_offset(self, answer: Mapping[str, Any]) -> float | None:
        """Seconds by which the server's clock is ahead, if the answer tells its time."""
        text = answer.get("now")
        if not isinstance(text, str):
            return None
        try:
            return time_of(text).timestamp() - time.time()
        except ValueError:
            return None

    def run(self) -> None:
        """Serves until the process gets SIGTERM or SIGINT; a second one ends it at once."""
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._run())
        finally:
            # A function that ends for no cancel must not keep the process: `asyncio.run` would wait for it.
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=1.0))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _run(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        me = asyncio.current_task()

        def on_signal() -> None:
            if stop.is_set() and me is not None:
                me.cancel()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, on_signal)
            except (NotImplementedError, RuntimeError, ValueError):
                # Windows, or a thread that is not the main one.
                continue
        try:
            await self.serve(stop)
        except asyncio.CancelledError:
            log.warning("worker is stopped without a drain; what it held runs elsewhere")

    async def serve(self, stop: asyncio.Event | None = None) -> None:
        """Serves until `stop` is set, then drains. Raises a `WorkerError` that names what cannot go on."""
        stop = stop or asyncio.Event()
        api = Api(self.server)
        try:
            while not stop.is_set():
                registration = await self._register(api, stop)
                if registration is None:
                    return
                session = Session(self, api, registration)
                self.session = session
                log.info(
                    "worker is registered: worker=%s queues=%s definitions=%d concurrency=%d",
                    session.worker_id,
                    ",".join(self.queues),
                    len(self.tasks),
                    self.concurrency,
                )
                try:
                    await session.serve(stop)
                    if session.is_draining:
                        return
                except WorkerDead as error:
                    log.warning("%s; it registers anew", error)
                    await asyncio.sleep(pause_after(1))
        finally:
            self.session = None
            await api.close()
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)
                self._threads = None

    async def _register(self, api: Api, stop: asyncio.Event) -> dict[str, Any] | None:
        """The answer to a registration; None if the worker is told to stop meanwhile."""
        body: dict[str, Any] = {
            "protocol": PROTOCOL,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "build": self.build,
            "queues": self.queues,
            "concurrency": self.concurrency,
            "definitions": [task.spec() for task in self.tasks.values()],
        }
        if self.serves:
            body["serves"] = self.serves
        call = asyncio.ensure_future(api.call("POST", "/v1/workers", text_of(body)))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({call, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return None
            return call.result()
        except RequestRefused as error:
            raise RegistrationRefused(f"the server refused the registration: {error}") from error
        except WorkerDead as error:
            raise ProtocolError(f"a registration was answered with: {error}") from error
        finally:
            call.cancel()
            stopped.cancel()


def build_of(tasks: Iterable[Task[Any, Any]]) -> str:
    """A name for the code of the tasks: a hash of their modules' files."""
    digest = hashlib.sha256()
    for name in sorted({task.function.__module__ for task in tasks}):
        module = sys.modules.get(name)
        path = getattr(module, "__file__", None)
        digest.update(name.encode())
        if path and os.path.isfile(path):
            with open(path, "rb") as file:
                digest.update(file.read())
    return f"python-{digest.hexdigest()[:16]}"
