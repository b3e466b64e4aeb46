"""Runs docs/guide/from-celery.md: each section that ports one of Celery's pages is a test of its name.

Against the API of LONGHAUL_URL and LONGHAUL_API_KEY if they are set, else against the fake server.
"""

from __future__ import annotations

import asyncio
import doctest
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from celery_server import CeleryServer
from fake_server import KEY

from longhaul.worker import Worker

GUIDE = Path(__file__).parents[4] / "docs" / "guide" / "from-celery.md"
TEXT = GUIDE.read_text(encoding="utf-8") if GUIDE.exists() else ""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def sections() -> list[tuple[str, str]]:
    """Headings and examples of the sections that have any."""
    found: list[tuple[str, str]] = []
    page = ""
    for part in re.split(r"^(?=##)", TEXT, flags=re.MULTILINE):
        heading, _, body = part.partition("\n")
        title = heading.lstrip("# ").strip()
        if heading.startswith("## "):
            page = title
        examples = "\n".join(re.findall(r"^```pycon\n(.*?)^```", body, flags=re.MULTILINE | re.DOTALL))
        if examples:
            found.append((page if heading.startswith("## ") else f"{page}: {title}", examples))
    return found


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names of a Python session beside a worker that serves the guide's tasks."""
    server = None
    before = dict(os.environ)
    if "LONGHAUL_URL" not in os.environ:
        server = CeleryServer()
        os.environ.update(LONGHAUL_URL=server.url, LONGHAUL_API_KEY=KEY)
    source = re.search(r"^```python\n(# tasks\.py\n.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert source is not None
    module = ModuleType("tasks")
    sys.modules["tasks"] = module
    path = tmp_path_factory.mktemp("guide") / "tasks.py"
    path.write_text(source[1], encoding="utf-8")
    module.__file__ = str(path)
    exec(compile(source[1], str(path), "exec"), module.__dict__)  # noqa: S102
    stop, loop = asyncio.Event(), asyncio.new_event_loop()
    worker = Worker(module.app.longhaul_app, drain_seconds=2.0)
    thread = threading.Thread(target=lambda: loop.run_until_complete(worker.serve(stop)), daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while worker.worker_id is None:
        assert time.monotonic() < end, "the worker does not register"
        time.sleep(0.02)
    yield {"__name__": "__main__"}
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    assert not thread.is_alive()
    os.environ.clear()
    os.environ.update(before)
    if server is not None:
        server.close()
        assert server.violations == []


@pytest.mark.skipif(not TEXT, reason="the guide is not beside the package")
@pytest.mark.parametrize(("title", "examples"), sections(), ids=[title for title, _ in sections()])
def test_section(title: str, examples: str, names: dict[str, Any]) -> None:
    for line in "\n".join(text for _, text in sections()).splitlines():
        if line.startswith((">>> from ", ">>> import ")):
            exec(line.removeprefix(">>> "), names)  # noqa: S102
    report: list[str] = []
    test = doctest.DocTestParser().get_doctest(examples, names, title, str(GUIDE), 0)
    # The session goes on in the next section.
    test.globs = names
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
    assert result.failed == 0, "\n".join(report)
