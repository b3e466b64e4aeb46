"""The command `longhaul-worker`, in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_server import KEY, FakeServer

import longhaul

APP = """
import os, time
from longhaul.worker import App, Context, SyncContext

app = App("t")


@app.task
async def pid(ctx: Context) -> int:
    return await ctx.step("pid", os.getpid)


@app.task
def slow(ctx: SyncContext, naps: int) -> int:
    for number in range(naps):
        ctx.step("nap", time.sleep, 0.05)
    return os.getpid()


@app.task
async def stuck() -> None:
    while True:
        try:
            import asyncio
            await asyncio.sleep(60)
        except BaseException:
            pass


@app.task
def stuck_thread() -> None:
    time.sleep(60)
"""

Start = Callable[..., "subprocess.Popen[str]"]


def until(reached: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not (found := reached()):
        assert time.monotonic() < end, "not reached in time"
        time.sleep(0.02)
    return found


@pytest.fixture
def start(server: FakeServer, tmp_path: Path) -> Iterator[Start]:
    """Starts the command in a folder with the module `tasks`."""
    (tmp_path / "tasks.py").write_text(APP)
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, key: str = KEY) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "LONGHAUL_URL": server.url,
            "LONGHAUL_API_KEY": key,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(Path(longhaul.__file__).parents[1]),
        }
        command = [sys.executable, "-m", "longhaul", *arguments]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def test_command_serves_and_drains_on_sigterm(server: FakeServer, start: Start) -> None:
    process = start("tasks:app", "--drain-seconds", "5")
    assert server.finished(server.submit("t.pid")) == process.pid
    execution = server.submit("t.slow", {"naps": 100})
    server.wait(execution, lambda execution: len(execution.steps) > 2)
    process.terminate()
    assert process.wait(10) == 0
    assert execution.outcomes == [{"type": "drain"}]
    assert all(worker.signed_off for worker in server.workers.values())
    start("tasks:app")
    execution.steps[3:] = []
    server.cancel(execution)
    assert server.failed(execution)["code"] == "cancelled"


def test_functions_that_never_end_do_not_keep_the_process(server: FakeServer, start: Start) -> None:
    process = start("tasks:app", "--drain-seconds", "0.1")
    executions = [server.submit("t.stuck"), server.submit("t.stuck_thread")]
    for execution in executions:
        server.wait(execution, lambda execution: execution.status == "RUNNING")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 0


def test_killed_process_is_replaced_and_loses_nothing(server: FakeServer, start: Start) -> None:
    server.lease_seconds = 1.5
    start("tasks:app", "--processes", "2", "--concurrency=4")
    until(lambda: len(server.workers) == 2)
    executions = [server.submit("t.slow", {"naps": 20}) for _ in range(8)]
    for execution in executions:
        server.wait(execution, lambda execution: len(execution.steps) > 2)
    pids = {worker.registration["pid"] for worker in server.workers.values()}
    assert len(pids) == 2
    os.kill(pids.pop(), signal.SIGKILL)
    for execution in executions:
        server.finished(execution, seconds=30)
        assert len(execution.steps) == 20
    assert any(execution.attempt == 2 for execution in executions)
    until(lambda: len(server.workers) == 3)


def test_reload_serves_the_changed_code(server: FakeServer, start: Start, tmp_path: Path) -> None:
    start("tasks:app", "--reload")
    first = server.finished(server.submit("t.pid"))
    assert isinstance(first, int)
    (tmp_path / "tasks.py").write_text(APP.replace('ctx.step("pid", os.getpid)', 'ctx.step("pid", lambda: 7)'))
    until(lambda: len(server.workers) == 2)
    assert server.finished(server.submit("t.pid")) == 7
    (tmp_path / "tasks.py").write_text("no Python at all")
    time.sleep(1.5)
    (tmp_path / "tasks.py").write_text(APP)
    until(lambda: len(server.workers) == 3)
    assert server.finished(server.submit("t.pid")) > 7


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["tasks"], 2, "module:attribute"),
        (["nothing:app"], 2, "there is no module nothing"),
        (["tasks:other"], 2, "it has app"),
        (["tasks:app", "--concurrency", "0"], 2, "concurrency is 1 to 10000"),
        (["tasks:app", "--processes", "0"], 2, "--processes"),
        (["tasks:app", "--processes", "2", "--url", "nowhere"], 2, "http://"),
        (["tasks:app", "--api-key", "wrong"], 1, "workers:run"),
    ],
)
def test_wrong_calls_are_named(start: Start, arguments: list[str], code: int, told: str) -> None:
    process = start(*arguments)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code, errors
    assert told in errors and "Traceback" not in errors and KEY not in errors
