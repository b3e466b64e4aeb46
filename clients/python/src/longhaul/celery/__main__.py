"""`python -m longhaul.celery -A tasks worker`: the command line with Celery's words."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import LonghaulError
from .load import find_app

_INSPECT = ("active", "scheduled", "reserved", "registered", "query_task", "ping", "stats", "active_queues")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "worker":
            return _worker(options)
        app = find_app(options.app)
        if options.command == "beat":
            print("\n".join(app.publish_schedules()))
        elif options.command == "purge":
            print(app.control.purge())
        elif options.command == "call":
            print(app.send_task(options.name, json.loads(options.args), json.loads(options.kwargs)).id)
        elif options.command == "result":
            print(json.dumps(app.AsyncResult(options.id).get(timeout=options.timeout)))
        else:
            answer: Any = getattr(app.control.inspect(), options.what)(*options.ids)
            print(json.dumps(answer, indent=2))
    except (LonghaulError, ImportError, ValueError) as error:
        print(f"longhaul.celery: {error}", file=sys.stderr)
        return 1
    return 0


def _worker(options: argparse.Namespace) -> int:
    from ..worker.cli import main as worker

    given = [f"longhaul.celery.load:{options.app}", "--log-level", options.loglevel.lower()]
    if options.concurrency is not None:
        given += ["--concurrency", str(options.concurrency)]
    if options.queues:
        given += ["--queues", options.queues]
    if options.processes is not None:
        given += ["--processes", str(options.processes)]
    if options.reload:
        given += ["--reload"]
    return worker(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m longhaul.celery", allow_abbrev=False)
    parser.add_argument("-A", "--app", required=True, help="module, or module:attribute, of the app")
    commands = parser.add_subparsers(dest="command", required=True)
    worker = commands.add_parser("worker", help="run tasks", allow_abbrev=False)
    worker.add_argument("-l", "--loglevel", default="info", help="least level (info)")
    worker.add_argument("-c", "--concurrency", type=int, help="executions at a time, in each process (100)")
    worker.add_argument("-Q", "--queues", help="queues, separated by commas (those of the app)")
    worker.add_argument("--processes", type=int, help="processes, each a worker of its own (1)")
    worker.add_argument("--reload", action="store_true", help="start anew when a .py file below this folder changes")
    commands.add_parser("beat", help="publish the periodic tasks now; workers do so when they start")
    commands.add_parser("purge", help="cancel the tasks that have not begun")
    call = commands.add_parser("call", help="send a call")
    call.add_argument("name")
    call.add_argument("-a", "--args", default="[]", help="JSON")
    call.add_argument("-k", "--kwargs", default="{}", help="JSON")
    result = commands.add_parser("result", help="wait for a result")
    result.add_argument("id")
    result.add_argument("--timeout", type=float)
    inspect = commands.add_parser("inspect", help="what workers and tasks are doing")
    inspect.add_argument("what", choices=_INSPECT)
    inspect.add_argument("ids", nargs="*")
    return parser


if __name__ == "__main__":
    sys.exit(main())
