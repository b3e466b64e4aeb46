"""Runs the programs of docs/guide/pydantic-ai.md that need no model of a provider, against the fake server.

With LONGHAUL_URL and LONGHAUL_API_KEY of an API whose default model can be called, those of all frameworks installed.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from celery_server import CeleryServer
from fake_server import KEY

from longhaul.worker import App, Worker

pytest.importorskip("pydantic_ai", reason="pydantic-ai 2.66 needs Python 3.11")

GUIDE = Path(__file__).parents[4] / "docs" / "guide" / "pydantic-ai.md"
TEXT = GUIDE.read_text(encoding="utf-8") if GUIDE.exists() else ""

pytestmark = pytest.mark.skipif(not TEXT, reason="the guide is not beside the package")


def program(name: str) -> str:
    """The program of the guide with this name."""
    found = re.search(rf"^```python\n(# {name}\.py\n.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def run(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Runs it as a module."""
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(program(name), f"{name}.py", "exec"), module.__dict__)  # noqa: S102
    return module.__dict__


@contextmanager
def served(app: App) -> Iterator[None]:
    """Serves the app beside the block."""
    stop, loop = asyncio.Event(), asyncio.new_event_loop()
    worker = Worker(app, drain_seconds=2.0)
    thread = threading.Thread(target=lambda: loop.run_until_complete(worker.serve(stop)), daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while worker.worker_id is None:
        assert time.monotonic() < end, "the worker does not register"
        time.sleep(0.02)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)


def test_shop_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    server = None
    if "LONGHAUL_URL" not in os.environ:
        server = CeleryServer()
        monkeypatch.setenv("LONGHAUL_URL", server.url)
        monkeypatch.setenv("LONGHAUL_API_KEY", KEY)
    with served(run("shop", monkeypatch)["app"]):
        run("ask", monkeypatch)
    assert "reserved" in capsys.readouterr().out
    if server is not None:
        (execution,) = server.executions.values()
        names = [step["name"] for step in execution.steps]
        assert "shop__function_toolset__<agent>.call_tool:reserve" in names
        server.close()


@pytest.mark.skipif("LONGHAUL_URL" not in os.environ, reason="needs an API with a model")
@pytest.mark.parametrize(
    ("name", "task", "needs"),
    [("budgeted", "answer", "openai"), ("delivery", "plan", "agents"), ("graph", "plan", "langgraph")],
)
def test_framework_answers(name: str, task: str, needs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(needs)
    module = run(name, monkeypatch)
    with served(module["app"]):
        assert module[task].run("When can ten desk lamps be in Lyon?", wait_timeout=60)
