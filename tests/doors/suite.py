"""What the suites share: arguments, checks, and the report.

A check is a function, sync or async, that raises when the product does something else than its client demands. Every
check runs; the exit code is 1 if one failed.
"""

import argparse
import asyncio
import inspect
import json
import os
import sys
import time
import traceback
import urllib.parse
import urllib.request

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default=os.environ.get("LONGHAUL_URL"), help="address of Longhaul, without /v1")
    parser.add_argument("--key", default=os.environ.get("LONGHAUL_API_KEY"))
    parser.add_argument("--stub", default=os.environ.get("DOORS_STUB"), help="address of model.py behind it")
    parser.add_argument("--agent", default="agent:helper", help="an agent on that model, without tools")
    parser.add_argument("--model", default="custom/stub", help="that model itself")
    parser.add_argument("--only", default="", help="checks whose names begin so, separated by commas")
    parser.add_argument("--seconds", type=float, help="starts no check after that many")
    args = parser.parse_args()
    args.url = args.url.rstrip("/")
    return args


ARGS = arguments()


def asked(text):
    """Requests that the model got whose last message of the user holds the text."""
    with urllib.request.urlopen(f"{ARGS.stub}/count?of={urllib.parse.quote(text)}") as answer:
        return json.load(answer)["count"]


def raises(kind, function, *args, **named):
    """The exception of that type, and of no other, that a call raises."""
    try:
        function(*args, **named)
    except Exception as error:
        assert type(error) is kind, f"{type(error).__name__}, not {kind.__name__}: {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def same(found, wanted):
    assert found == wanted, f"{found!r}, not {wanted!r}"


def main():
    begun, failed, left = time.monotonic(), 0, 0
    prefixes = tuple(ARGS.only.split(","))
    for function in CHECKS:
        if not function.__name__.startswith(prefixes):
            continue
        if ARGS.seconds and time.monotonic() - begun > ARGS.seconds:
            left += 1
            continue
        since = time.monotonic()
        try:
            outcome = function()
            if inspect.isawaitable(outcome):
                asyncio.run(outcome)
        except Exception:
            failed += 1
            print(f"FAILED {function.__name__}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"ok     {function.__name__} ({time.monotonic() - since:.1f} s)", flush=True)
    print(f"{len(CHECKS)} checks, {failed} failed, {left} left out for time", flush=True)
    sys.exit(1 if failed else 0)
