"""Several processes of a worker, and a process that starts anew when its code changes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

log = logging.getLogger("longhaul.worker")

SHORT_LIFE_SECONDS = 5.0
"""A process that ends sooner is started again after a pause, the longer the more often that happens."""
LONGEST_PAUSE = 30.0
LOOK_SECONDS = 0.5
"""Time between two looks at the files for `--reload`."""
EXIT_USAGE = 2
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}


class Process:
    """One process of the command, without the options that start others."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.began = time.monotonic()
        self._popen = subprocess.Popen([sys.executable, "-m", "longhaul", *arguments])

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def code(self) -> int | None:
        """Exit code; None while it runs."""
        return self._popen.poll()

    def tell(self, number: int) -> None:
        """Sends a signal."""
        if self.code() is None:
            self._popen.send_signal(number)

    def wait(self) -> int:
        """Waits until it has ended."""
        return self._popen.wait()


class _Stop:
    """Passes SIGTERM and SIGINT on to the processes."""

    def __init__(self) -> None:
        self.is_set = threading.Event()
        self.processes: list[Process] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.is_set.set()
        for process in self.processes:
            # A terminal sends Ctrl-C to the whole group, and a second signal would end a worker without a drain.
            if number != signal.SIGINT or not sys.stdin.isatty():
                process.tell(signal.SIGTERM)


def run_processes(arguments: Sequence[str], count: int) -> int:
    """Keeps `count` processes running until SIGTERM or SIGINT; each is a worker of its own."""
    stop = _Stop()
    short_lives = [0] * count
    stop.processes = [Process(arguments) for _ in range(count)]
    while not stop.is_set.wait(0.2):
        for place, process in enumerate(stop.processes):
            code = process.code()
            if code is None:
                continue
            if code == EXIT_USAGE:
                # The others end for the same reason.
                _end(stop.processes)
                return code
            lived = time.monotonic() - process.began
            short_lives[place] = short_lives[place] + 1 if lived < SHORT_LIFE_SECONDS else 0
            pause = min(LONGEST_PAUSE, 2.0 ** short_lives[place] - 1)
            log.error("process %d ended with %d; another one starts in %.0f s", process.pid, code, pause)
            if stop.is_set.wait(pause):
                break
            stop.processes[place] = Process(arguments)
            if stop.is_set.is_set():
                stop.processes[place].tell(signal.SIGTERM)
    return max(abs(process.wait()) for process in stop.processes)


def run_with_reload(arguments: Sequence[str]) -> int:
    """Runs one process, and starts it anew when a file changes; one that ended waits for a change."""
    stop = _Stop()
    while True:
        seen = _files()
        process = Process(arguments)
        stop.processes = [process]
        changed = False
        while not changed and not stop.is_set.wait(LOOK_SECONDS):
            changed = _files() != seen
        if stop.is_set.is_set():
            process.tell(signal.SIGTERM)
            return abs(process.wait())
        log.info("code has changed: the worker starts anew")
        _end([process])


def _end(processes: Sequence[Process]) -> None:
    for process in processes:
        process.tell(signal.SIGTERM)
    for process in processes:
        process.wait()


def _files() -> dict[str, int]:
    """Times of change of the Python files below the current folder."""
    return dict(_python_files(Path.cwd()))


def _python_files(folder: Path) -> Iterator[tuple[str, int]]:
    for root, folders, files in os.walk(folder):
        is_venv = "pyvenv.cfg" in files
        folders[:] = [] if is_venv else [name for name in folders if name not in _SKIPPED and name[0] != "."]
        for name in [] if is_venv else files:
            if name.endswith(".py"):
                path = os.path.join(root, name)
                try:
                    yield path, os.stat(path).st_mtime_ns
                except OSError:
                    continue
