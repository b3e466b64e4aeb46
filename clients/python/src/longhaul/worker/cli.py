"""The command `longhaul-worker module:app`."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import threading
from collections.abc import Sequence

from .app import App
from .errors import WorkerError
from .processes import run_processes, run_with_reload
from .worker import Worker

EXIT_USAGE = 2
EXIT_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # Each claim and each write would be a line.
    for name in ("httpx", "httpcore", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if options.processes < 1:
        parser.error("--processes is 1 or more")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if options.reload:
        return run_with_reload(without_option(given, "--reload", takes_value=False))
    if options.processes > 1:
        return run_processes(without_option(given, "--processes", takes_value=True), options.processes)
    try:
        worker = Worker(
            [load_app(name) for name in options.app],
            url=options.url,
            api_key=options.api_key,
            queues=[queue for queue in (options.queues or "").split(",") if queue],
            concurrency=options.concurrency,
            drain_seconds=options.drain_seconds,
        )
    except (ValueError, TypeError, ImportError) as error:
        print(f"longhaul-worker: {error}", file=sys.stderr)
        return EXIT_USAGE
    code = 0
    try:
        worker.run()
    except WorkerError as error:
        print(f"longhaul-worker: {error}", file=sys.stderr)
        code = EXIT_FAILED
    if any(thread.name.startswith("longhaul-task") for thread in threading.enumerate()):
        # Python waits for threads at its end, and a function that does not end would keep the process.
        logging.shutdown()
        os._exit(code)
    return code


def load_app(name: str) -> App:
    """The app of `module:attribute`, by way of the current folder."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"name the app as module:attribute, not {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ImportError(f"there is no module {module_name} in {os.getcwd()} or on Python's path") from error
        raise
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        apps = [key for key, value in vars(module).items() if isinstance(value, App)]
        hint = f"; it has {', '.join(apps)}" if apps else ""
        raise TypeError(f"{module_name} has no longhaul.App named {attribute!r}{hint}")
    return app


def without_option(arguments: Sequence[str], name: str, *, takes_value: bool) -> list[str]:
    """The arguments without an option, for the processes that the command starts."""
    left: list[str] = []
    skips = False
    for argument in arguments:
        if skips:
            skips = False
        elif argument == name:
            skips = takes_value
        elif not argument.startswith(f"{name}="):
            left.append(argument)
    return left


def _parser() -> argparse.ArgumentParser:
    # Options are not shortened: the processes that the command starts get the same arguments.
    parser = argparse.ArgumentParser(
        prog="longhaul-worker", description="Runs the tasks of Longhaul apps.", allow_abbrev=False
    )
    parser.add_argument("app", nargs="+", help="module:attribute of a longhaul.App")
    parser.add_argument("--concurrency", type=int, default=100, help="executions at a time, in each process (100)")
    parser.add_argument("--queues", help="queues, separated by commas (those of the apps)")
    parser.add_argument("--processes", type=int, default=1, help="processes, each a worker of its own (1)")
    parser.add_argument("--reload", action="store_true", help="start anew when a .py file below this folder changes")
    parser.add_argument("--url", help="address of the API (LONGHAUL_URL)")
    parser.add_argument(
        "--api-key", help="API key with the scope workers:run (LONGHAUL_API_KEY, which ps does not show)"
    )
    parser.add_argument("--drain-seconds", type=float, default=25.0, help="time of running steps after SIGTERM (25)")
    parser.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"], help="least level (info)"
    )
    return parser
