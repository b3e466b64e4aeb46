"""Faults under load with Python workers: what they hold, and what Rust workers hold, are the same bars.

    pip install 'clients/python[worker]'
    python tests/doors/faults_python.py target/release/longhaul --duration 180 --seed 1

Needs installed PostgreSQL and Redis, of which it starts private ones. Two APIs behind a proxy, one `longhaul worker`
and three Python workers, two of which serve the queue of the Rust worker; a counting server that the functions call. A
steady load, and each fault at least once, one after the other in an order given by the seed. Then each execution is
audited, as docs/reference/verify.md says. The exit code is 1 if a bar does not hold; then the folder with data and logs
is kept.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from python_faults.audit import BACK_SECONDS, Audit, Bars
from python_faults.counter import Counter
from python_faults.faults import KINDS, Faults, Fleet
from python_faults.load import AGENT, Client, Load
from python_faults.proxy import Proxy
from python_faults.servers import Database, Process, Redis, connects, wait_for

HERE = pathlib.Path(__file__).resolve().parent
PEPPER = "a pepper of the fault suite, thirty-two characters"
STUCK_SECONDS = 60.0
"""Time after the load in which all executions must have ended."""
REACTION_SECONDS = 10.0
"""Time after that for rows that the sweep removes."""
GAP_SECONDS = 3.0
"""Time between two faults."""
KILLS = ("kill-python", "kill-rust")
"""Faults after which the time is measured until the executions of the worker run again."""
SETTLE_SECONDS = 5.0
"""Time of the load after the last fault."""
SHOWN = 8
"""Findings of a bar that are printed."""


def main() -> int:
    """Runs the suite; its exit code."""
    options = arguments()
    # A server may run as a user that cannot enter other folders.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-faults-python-"))
    folder.chmod(0o755)
    print(f"seed {options.seed}, {options.duration} s, {options.rate} submits/s, data in {folder}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    bars = None
    fleet = None
    counter = None
    try:
        fleet, keys, counter = installation(options, folder)
        bars = run(options, fleet, keys, counter)
        report(bars)
    except Exception:  # noqa: BLE001 - the processes are stopped and the folder is named
        traceback.print_exc()
    finally:
        if fleet is not None:
            stop(fleet)
        if counter is not None:
            counter.close()
        if bars is not None and bars.hold and not options.keep:
            shutil.rmtree(folder)
        else:
            print(f"data and logs are kept in {folder}")
    return 0 if bars is not None and bars.hold else 1


def arguments() -> argparse.Namespace:
    """Options of the command."""
    parser = argparse.ArgumentParser(description="Faults under load with Python workers")
    parser.add_argument("program", type=pathlib.Path, help="path of longhaul")
    parser.add_argument("--duration", type=float, default=180.0, help="seconds of the load; at least a round of faults")
    parser.add_argument("--seed", type=int, default=random.randrange(10000))
    parser.add_argument("--rate", type=float, default=15.0, help="submits per second")
    parser.add_argument("--faults", default=",".join(KINDS), help="kinds, separated by commas; none: the load alone")
    parser.add_argument("--first-port", type=int, default=18250, help="first of six ports")
    parser.add_argument("--keep", action="store_true", help="keep data and logs although all bars hold")
    options = parser.parse_args()
    options.program = options.program.resolve()
    options.faults = [] if options.faults == "none" else options.faults.split(",")
    if unknown := set(options.faults) - set(KINDS):
        parser.error(f"there is no fault {', '.join(unknown)}: {', '.join(KINDS)}")
    if not os.access(options.program, os.X_OK):
        parser.error(f"{options.program} is no program")
    return options


def installation(options: argparse.Namespace, folder: pathlib.Path) -> tuple[Fleet, list[str], Counter]:
    """Starts all processes; with the keys of a caller and of a decider."""
    ports = range(options.first_port, options.first_port + 6)
    for port in ports:
        if connects(port):
            sys.exit(f"port {port} is in use: name others with --first-port")
    database, redis = Database(folder, ports[0]), Redis(folder, ports[1])
    fleet = Fleet(database, redis, [], Process("", [], folder, {}), [], Proxy(ports[2], ports[3:5], options.seed))
    try:
        database.start()
        redis.start()
        database.create()
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("LONGHAUL", "OPENAI", "ANTHR"))
        }
        env |= {"DATABASE_URL": database.url, "REDIS_URL": redis.url, "LONGHAUL_API_KEY_PEPPER": PEPPER}
        env["LONGHAUL__LLM__DEFAULT_PROVIDER"] = "scripted"
        program = str(options.program)

        def command(*words: str) -> str:
            done = subprocess.run([program, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"longhaul {' '.join(words)}: {done.stdout}{done.stderr}")
            return done.stdout.strip()

        command("migrate")
        scopes = (
            "executions:read,executions:write,definitions:read",
            "executions:read,approvals:decide",
            "workers:run",
        )
        keys = [
            command("keys", "create", "--org", "faults", "--name", f"key-{number}", "--scopes", scope).splitlines()[-1]
            for number, scope in enumerate(scopes)
        ]
        agent = folder / "agent.yaml"
        agent.write_text(
            f"key: {AGENT}\nname: Repeater\ndescription: Repeats.\nprompts:\n  conversation: Repeat.\n"
            "model:\n  provider: scripted\n  script: |\n"
            '    {{ text({"response": input_text}, latency_ms=150) }}\n'
        )
        command("apply", "-f", str(agent), "--direct", "--shared")
        for number, port in enumerate(ports[3:5]):
            words = [program, "api", "--listen", f"127.0.0.1:{port}"]
            fleet.apis.append(Process(f"api-{number}", words, folder, env, functools.partial(connects, port)))
        fleet.rust = Process("rust-worker", [program, "worker", "--queues", "default"], folder, env)
        counter = Counter(ports[5], options.seed, folder / "calls.jsonl")
        of_python = {
            **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
            "LONGHAUL_URL": f"http://127.0.0.1:{ports[2]}",
            "LONGHAUL_API_KEY": keys[2],
            "FAULTS_COUNTER": counter.url,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")])),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for number, queue in enumerate(("default", "default", "python")):
            words = [
                sys.executable,
                "-m",
                "longhaul",
                "python_faults.app:app",
                "--queues",
                queue,
                "--concurrency",
                "50",
            ]
            fleet.pythons.append(Process(f"python-worker-{number}", words, folder, of_python))
        wait_for(lambda: connects(ports[2]) and connects(ports[5]), 30, "proxy and counting server do not listen")
        for process in (*fleet.apis, fleet.rust, *fleet.pythons):
            process.start()
        query = "select count(*) as live from workers where dead_at is null"
        wait_for(lambda: database.rows(query)[0]["live"] == 4, 60, "the workers do not register")
    except BaseException:
        stop(fleet)
        raise
    return fleet, keys, counter


def run(options: argparse.Namespace, fleet: Fleet, keys: list[str], counter: Counter) -> Bars:
    """Load and faults, and the bars after them."""
    port = options.first_port + 2
    caller, decider = Client(port, keys[0]), Client(port, keys[1])
    load = Load(caller, decider, options.rate, options.seed)
    load.start()
    try:
        return measured(options, fleet, load, counter, caller)
    finally:
        load.close()


def measured(options: argparse.Namespace, fleet: Fleet, load: Load, counter: Counter, caller: Client) -> Bars:
    """The faults, the end of the load, and the audit."""
    faults = Faults(fleet, options.seed, options.faults)
    began = time.monotonic()
    time.sleep(GAP_SECONDS)
    last = options.duration - SETTLE_SECONDS - GAP_SECONDS
    while not faults.has_injected_all or time.monotonic() - began < last:
        if not options.faults:
            time.sleep(GAP_SECONDS)
            continue
        fault = faults.inject()
        seconds = fault.ended - fault.began
        words = f"{fault.kind} of {fault.victim}, {seconds:.1f} s {fault.complaint}".rstrip()
        print(f"{fault.began - began - time.time() + time.monotonic():6.1f} s: {words}", flush=True)
        time.sleep(BACK_SECONDS if fault.kind in KILLS else GAP_SECONDS)
        if time.monotonic() - began > options.duration * 2 + 120:
            raise TimeoutError("the faults take too long")
    time.sleep(SETTLE_SECONDS)
    load.stop_submits()
    ended = time.monotonic()
    open_query = "select count(*) as open from executions where finished_at is null"
    try:
        wait_for(lambda: fleet.database.rows(open_query)[0]["open"] == 0, STUCK_SECONDS, "executions are stuck")
    except TimeoutError as error:
        print(error)
    print(f"quiet {time.monotonic() - ended:.1f} s after the load, which took {ended - began:.0f} s", flush=True)
    load.stop()
    fleet.look()
    left = "select (select count(*) from ending_parents) + (select count(*) from ends) as left"
    try:
        wait_for(lambda: fleet.database.rows(left)[0]["left"] == 0, REACTION_SECONDS, "rows of the sweep are left")
    except TimeoutError as error:
        print(error)
    return Audit(fleet, load, counter.calls(), caller).bars()


def report(bars: Bars) -> None:
    """Prints the table."""
    for what, value in bars.apart.items():
        print(f"  {what}: {value}")
    print(f"\n{'bar':42} found\n{'-' * 42} -----")
    for bar, found in bars.found.items():
        print(f"{bar:42} {len(found):5}{'' if not found else '  VIOLATED'}")
    for bar, found in bars.found.items():
        for finding in found[:SHOWN]:
            print(f"\n{bar}: {finding}")
        if len(found) > SHOWN:
            print(f"… and {len(found) - SHOWN} more")


def stop(fleet: Fleet) -> None:
    """Ends all processes."""
    for process in reversed(fleet.all()):
        process.send(signal.SIGCONT)
    for process in (*fleet.pythons, fleet.rust, *fleet.apis):
        process.kill()
    fleet.redis.kill()
    fleet.database.drain(10)
    fleet.proxy.close()


if __name__ == "__main__":
    sys.exit(main())
