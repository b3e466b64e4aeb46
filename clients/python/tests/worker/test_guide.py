"""Runs what docs/guide/python-workers.md shows: its programs against the fake server, its commands against a real one.

`LONGHAUL_PROGRAM`: path of the program `longhaul`, for the test of the commands, which is skipped without it.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer

import longhaul
from longhaul import worker as longhaul_worker

ROOT = Path(__file__).parents[4]
GUIDE = ROOT / "docs/guide/python-workers.md"
EXAMPLES = ROOT / "examples/python-worker"


def blocks(language: str) -> list[str]:
    """Code of the guide."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def guide() -> types.ModuleType:
    """The guide's parts after its first program, as one module."""
    module = types.ModuleType("guide_of_workers")
    sys.modules[module.__name__] = module
    given = {"asyncio": asyncio, **{name: getattr(longhaul_worker, name) for name in longhaul_worker.__all__}}
    vars(module).update(given)
    # A type stands behind the function that uses it, so that the function comes first for a reader.
    parts = sorted(blocks("python")[1:], key=lambda part: "app = App(" not in part)
    source = "from __future__ import annotations\n" + "\n".join(parts)
    account = "class Account(BaseModel):\n    iban: str\n"
    source = source.replace(account, "").replace("class Report", f"{account}\n\nclass Report", 1)
    exec(compile(source, str(GUIDE), "exec"), vars(module))  # noqa: S102
    return module


@pytest.fixture
def run(server: FakeServer, serve: Any) -> Any:
    """Submits a task of the guide."""
    serve(guide().app)
    return lambda name, input: server.submit(f"guide.{name}", input)


def test_first_program_is_the_example_and_finishes(server: FakeServer, serve: Any) -> None:
    program = blocks("python")[0]
    assert program == (EXAMPLES / "hello.py").read_text()
    lines = [line for line in program.splitlines() if line.strip()]
    assert len(lines) <= 10
    module = types.ModuleType("hello")
    exec(compile(program, "hello.py", "exec"), vars(module))  # noqa: S102
    serve(module.app)
    assert server.finished(server.submit("hello.greet", {"name": "Ada"})) == "Hello, Ada!"


def test_tasks_and_steps_of_the_guide(server: FakeServer, run: Any) -> None:
    assert server.finished(run("write", {"title": "Costs"})) == {"title": "Costs", "pages": 1}
    assert server.finished(run("load", {"url": "x"})) == len("first line of xsecond line")
    assert server.finished(run("complain", {"charge": "c1"})) == "500 cents of c1"
    assert server.finished(run("book", {"chapters": ["a", "b"]})) == 14
    assert server.finished(run("export", {"rows": 3})) == "3 rows"
    execution = run("copy", {"files": 3})
    assert server.finished(execution) == 3
    assert [event["kind"] for event in execution.events] == ["progress", "progress", "progress", "log"]


def test_waits_of_the_guide(server: FakeServer, run: Any) -> None:
    execution = server.parked(run("decide", {"cents": 5}), "approval")
    server.decide(execution, "approved")
    server.decide(server.parked(execution, "question"), "answered", {"iban": "DE1"})
    server.parked(execution, "sleep")
    server.advance(3601)
    server.signal(server.parked(execution, "signal"), "receipt", {"number": 7})
    assert server.finished(execution) == "5 to DE1: 7"
    execution = server.parked(run("decide", {"cents": 5}), "approval")
    server.decide(execution, "rejected", None, "too much")
    assert server.finished(execution) == "rejected: too much"


def test_shop_example_runs(server: FakeServer, serve: Any, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import shop  # type: ignore[import-not-found]

    serve(shop.app)
    execution = server.parked(server.submit("shop.buy", {"id": 7, "cents": 100}), "approval")
    server.decide(execution, "edited", {"cents": 90})
    server.parked(execution, "sleep")
    server.advance(3601)
    server.signal(server.parked(execution, "signal"), "rating", {"stars": 5})
    receipt = server.finished(execution)
    assert receipt["parcel"] == "parcel 7" and receipt["stars"] == 5 and receipt["charge"].endswith("of 90 cents")


def test_commands_of_the_guide_are_those_of_the_worker() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "longhaul", "--help"],
        env={**os.environ, "PYTHONPATH": str(Path(longhaul.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for option in re.findall(r"`(--[a-z-]+)`", GUIDE.read_text()):
        assert option in help_text
    shown = {option for block in blocks("sh") for option in re.findall(r"--[a-z-]+", block)}
    assert shown <= set(re.findall(r"--[a-z-]+", help_text))


def test_first_commands_print_the_greeting(tmp_path: Path) -> None:
    program = os.environ.get("LONGHAUL_PROGRAM")
    if not program:
        pytest.skip("LONGHAUL_PROGRAM names no program")
    (tmp_path / "hello.py").write_text(blocks("python")[0])
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    port = os.environ.get("LONGHAUL_TEST_PORT", "18170")
    (bin_folder / "longhaul").write_text(f'#!/bin/sh\nexec "{program}" "$@" --listen 127.0.0.1:{port}\n')
    (bin_folder / "longhaul-worker").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m longhaul "$@"\n')
    (bin_folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for file in bin_folder.iterdir():
        file.chmod(0o755)
    # Each block is a terminal of its own, whose reader waits for what the one before says.
    dev, worker, submit = (block.replace("pip install", "true") for block in blocks("sh")[:3])
    script = f"""
        trap 'kill $(jobs -p); wait' EXIT
        said() {{ for try in $(seq 300); do grep -q "$1" "$2" && return; sleep 0.2; done; cat "$2"; exit 1; }}
        (exec 2>&1; {dev}) > dev.log & said "Longhaul is running" dev.log
        (exec 2>&1; {worker}) > worker.log & said "worker is registered" worker.log
        ({submit})
    """
    found = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("LONGHAUL_")},
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(longhaul.__file__).parents[1]),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Hello, Ada!" in found.stdout, found.stderr[-3000:]
