"""Celery and Longhaul's Python worker beside each other: tasks of three steps under `kill -9`, and their rates.

    pip install celery==5.7.0 redis psutil 'clients/python[worker]'
    python tests/doors/celery_beside.py target/release/longhaul

Celery has a redis-server of its own as broker and result backend, `acks_late` and `task_reject_on_worker_lost`.
Longhaul is `longhaul dev` of the program. Each has two worker processes with four tasks at a time; one of them, with
all its children, is killed with -9 three times and started again at once.

A step writes a line when it begins and one when it has ended. A task is lost if it has no result 60 s after the last
kill. A step is repeated if it began again after it was done: for Celery after its second line, for Longhaul after the
run whose result is in the journal. A step that a kill cut runs again without being a repeat; one that ended twice, as
the kill came between its second line and its record, is counted for both alike. Exit code 1 if Longhaul loses or
repeats, or if its tasks are back later than 10 s after a kill (p99).
"""

from __future__ import annotations

import argparse
import calendar
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

TASKS = 40
STEPS = 3
STEP_SECONDS = 0.4
KILLS = 3
KILL_PAUSE = 1.5
GIVE_UP = 60.0
"""Seconds after the last kill."""
BACK_SECONDS = 10.0
RATE_TASKS = 2000
IDLE_SECONDS = 5.0

STEP = """
import os, time, uuid

LOG = os.environ["BESIDE_LOG"]

def line(*words):
    # One write of less than a page is not mixed with those of other processes.
    fd = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (" ".join(map(str, (time.time(), os.getpid(), *words))) + "\\n").encode())
    os.close(fd)

def step(task, number):
    run = uuid.uuid4().hex
    line("begin", task, number, run)
    time.sleep(float(os.environ["BESIDE_SECONDS"]))
    line("end", task, number, run)
    return run
"""

CELERY_APP = (
    STEP
    + """
from celery import Celery

app = Celery("beside_celery", broker=os.environ["BESIDE_REDIS"], backend=os.environ["BESIDE_REDIS"])
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1,
                broker_connection_retry_on_startup=True)

@app.task
def three(task):
    return [step(task, number) for number in range(3)]

@app.task
def one(number):
    return number + 1
"""
)

LONGHAUL_APP = (
    STEP
    + """
import longhaul.worker

app = longhaul.worker.App("beside")

@app.task
def three(ctx: longhaul.worker.SyncContext, task: int) -> list[str]:
    return [ctx.step(f"step {number}", step, task, number) for number in range(3)]

def add(number: int) -> int:
    return number + 1

@app.task
async def one(ctx: longhaul.worker.Context, number: int) -> int:
    return await ctx.step("add", add_async, number)

async def add_async(number: int) -> int:
    return add(number)
"""
)


@dataclass
class Killing:
    """What the kills did."""

    lost: int = 0
    repeated: int = 0
    twice: int = 0
    """Runs of steps that had ended before, recorded or not."""
    cut: int = 0
    """Steps that were cut by a kill, and run again."""
    back: list[float] = field(default_factory=list)
    """Seconds from a kill to the next step of each task that it cut."""
    seconds: float = 0.0


@dataclass
class Rate:
    """One-step tasks."""

    per_second: float = 0.0
    cpu_seconds: float = 0.0
    """Of all processes, servers included, for all tasks."""
    worker_cpu_seconds: float = 0.0
    worker_megabytes: float = 0.0
    server_megabytes: float = 0.0


class System:
    """One of the two: servers, workers, and calls of tasks."""

    name = ""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.log = folder / f"{self.name}.log"
        self.log.touch()
        self.env = {
            **os.environ,
            "BESIDE_LOG": str(self.log),
            "BESIDE_SECONDS": str(STEP_SECONDS),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])),
        }
        self.servers: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self, *, is_for_rate: bool = False) -> subprocess.Popen[bytes]:
        """Starts a worker with its children in a process group of its own."""
        with open(self.folder / f"{self.name}-worker.txt", "ab") as output:
            worker = subprocess.Popen(
                self.worker_command(is_for_rate),
                cwd=self.folder,
                env=self.env,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def worker_command(self, is_for_rate: bool) -> list[str]:
        """Command of a worker."""
        raise NotImplementedError

    def send(self, name: str, inputs: list[int]) -> list[str]:
        """Sends calls, and returns their ids."""
        raise NotImplementedError

    def unfinished(self, ids: list[str]) -> list[str]:
        """Ids of those that have no result yet."""
        raise NotImplementedError

    def ended_at(self, ids: list[str]) -> list[float]:
        """Times at which those that have a result got it."""
        raise NotImplementedError

    def recorded_runs(self, ids: list[str]) -> set[str] | None:
        """Runs of steps whose results are in a journal; None without one."""
        return None

    def server_processes(self) -> list[psutil.Process]:
        """Processes of the servers as they are now: some begin with the load."""
        return [process for server in self.servers for process in tree(server.pid)]

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Kills a worker and its children with -9."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self.workers.remove(worker)

    def stop(self) -> None:
        """Ends what was started."""
        for worker in list(self.workers):
            self.kill(worker)
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


class CelerySystem(System):
    """Celery with Redis."""

    name = "celery"

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        (folder / "beside_celery.py").write_text(CELERY_APP)
        port = free_port()
        redis = shutil.which("redis-server")
        if redis is None:
            sys.exit("redis-server is needed for Celery's side")
        command = [redis, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.servers.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL))
        self.env["BESIDE_REDIS"] = os.environ["BESIDE_REDIS"] = f"redis://127.0.0.1:{port}/0"
        os.environ.update(BESIDE_LOG=str(self.log), BESIDE_SECONDS=str(STEP_SECONDS))
        wait_for(lambda: connects(port), 10, "redis-server does not listen")
        sys.path.insert(0, str(folder))
        import beside_celery

        self.app = beside_celery

    def worker_command(self, is_for_rate: bool) -> list[str]:
        concurrency = "2" if is_for_rate else "4"
        name = f"w{time.time_ns()}@localhost"
        return [sys.executable, "-m", "celery", "-A", "beside_celery", "worker", "-c", concurrency, "-n", name]

    def send(self, name: str, inputs: list[int]) -> list[str]:
        task = getattr(self.app, name)
        return [task.delay(one).id for one in inputs]

    def unfinished(self, ids: list[str]) -> list[str]:
        return [id for id, meta in zip(ids, self.metas(ids)) if meta.get("status") != "SUCCESS"]

    def ended_at(self, ids: list[str]) -> list[float]:
        done = [meta["date_done"] for meta in self.metas(ids) if meta.get("status") == "SUCCESS"]
        return [timestamp(text) for text in done]

    def metas(self, ids: list[str]) -> list[dict[str, Any]]:
        """Results as they are stored, by one command."""
        backend = self.app.app.backend
        found = backend.client.mget([backend.get_key_for_task(id) for id in ids])
        return [{} if value is None else json.loads(value) for value in found]


class LonghaulSystem(System):
    """Longhaul with a Python worker."""

    name = "longhaul"

    def __init__(self, folder: pathlib.Path, program: str) -> None:
        super().__init__(folder)
        (folder / "beside.py").write_text(LONGHAUL_APP)
        port = free_port()
        # An empty folder: a server may run as a user that cannot read others.
        self.data = pathlib.Path(tempfile.mkdtemp(prefix="beside"))
        self.data.chmod(0o755)
        with open(folder / "longhaul-dev.txt", "wb") as output:
            command = [program, "dev", "--data-dir", str(self.data / "longhaul"), "--listen", f"127.0.0.1:{port}"]
            env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
            self.servers.append(subprocess.Popen(command, cwd=self.data, env=env, stdout=output, stderr=output))
        self.url = f"http://127.0.0.1:{port}"
        wait_for(lambda: (self.data / "longhaul" / "env").exists() and connects(port), 90, "longhaul dev is not ready")
        for line in (self.data / "longhaul" / "env").read_text().splitlines():
            if line.startswith(("export LONGHAUL_URL=", "export LONGHAUL_API_KEY=")):
                name, _, value = line.removeprefix("export ").partition("=")
                self.env[name] = value.strip("'")

    def worker_command(self, is_for_rate: bool) -> list[str]:
        concurrency = "200" if is_for_rate else "4"
        command = [sys.executable, "-m", "longhaul", "beside:app", "--log-level", "warning"]
        return [*command, "--concurrency", concurrency]

    def send(self, name: str, inputs: list[int]) -> list[str]:
        field = "task" if name == "three" else "number"
        ids: list[str] = []
        for start in range(0, len(inputs), 1000):
            part = [{"definition": f"beside.{name}", "input": {field: one}} for one in inputs[start : start + 1000]]
            for _ in range(20):
                answer = self.request("POST", "/v1/executions/batch", {"executions": part})
                ids += [one["id"] for one in answer["results"] if "id" in one]
                refused = [one["error"]["detail"] for one in answer["results"] if one["status"] not in (200, 201, 503)]
                if refused:
                    sys.exit(f"{len(refused)} submits are refused: {refused[0]}")
                # What was refused by a busy server was not stored.
                part = [one for one, told in zip(part, answer["results"], strict=True) if told["status"] == 503]
                if not part:
                    break
                time.sleep(0.5)
            else:
                sys.exit(f"{len(part)} submits are refused: {answer['results'][0]['error']['detail']}")
        return ids

    def unfinished(self, ids: list[str]) -> list[str]:
        waiting = {one["id"] for status in ("PENDING", "IN_PROGRESS", "FAILED") for one in self.executions(status)}
        return [id for id in ids if id in waiting]

    def executions(self, status: str) -> Iterator[dict[str, Any]]:
        """Executions in a state."""
        cursor = ""
        while True:
            page = self.request("GET", f"/v1/executions?status={status}&limit=200{cursor}")
            yield from page["executions"]
            if not page["next_cursor"]:
                return
            cursor = f"&cursor={page['next_cursor']}"

    def ended_at(self, ids: list[str]) -> list[float]:
        if len(ids) == 1:
            found = [self.request("GET", f"/v1/executions/{ids[0]}")]
        else:
            found = list(self.executions("FINISHED"))
        wanted = set(ids)
        ends = [one["finished_at"] for one in found if one["id"] in wanted and one["status"] == "FINISHED"]
        return [timestamp(text) for text in ends]

    def recorded_runs(self, ids: list[str]) -> set[str] | None:
        runs: set[str] = set()
        for id in ids:
            execution = self.request("GET", f"/v1/executions/{id}")
            runs.update(execution.get("output") or [])
        return runs

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.env['LONGHAUL_API_KEY']}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def wait_for_definitions(self) -> None:
        """Waits until a worker has published the tasks."""

        def published() -> bool:
            keys = {one["key"] for one in self.request("GET", "/v1/definitions")["items"]}
            return {"beside.one", "beside.three"} <= keys

        wait_for(published, 60, "the worker does not register")

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.data, ignore_errors=True)


def kill_workers(system: System) -> Killing:
    """Runs tasks of three steps, and kills workers meanwhile."""
    killing = Killing()
    workers = [system.start_worker(), system.start_worker()]
    if isinstance(system, LonghaulSystem):
        system.wait_for_definitions()
    began = time.monotonic()
    ids = system.send("three", list(range(TASKS)))
    wait_for(lambda: len(list(lines(system.log))) > 8, 60, f"{system.name} does not begin")
    kills: list[tuple[float, set[int]]] = []
    for number in range(KILLS):
        time.sleep(KILL_PAUSE)
        worker = workers[number % 2]
        pids = {worker.pid} | {child.pid for child in psutil.Process(worker.pid).children(recursive=True)}
        kills.append((time.time(), pids))
        system.kill(worker)
        workers[number % 2] = system.start_worker()
    end = time.monotonic() + GIVE_UP
    left = ids
    while left and time.monotonic() < end:
        left = system.unfinished(left)
        time.sleep(0.25)
    killing.lost = len(left)
    killing.seconds = time.monotonic() - began
    judge(killing, list(lines(system.log)), kills, system.recorded_runs(ids))
    for worker in list(system.workers):
        system.kill(worker)
    return killing


def judge(killing: Killing, log: list[Line], kills: list[tuple[float, set[int]]], recorded: set[str] | None) -> None:
    """Repeats, cut steps, and the time until tasks were back, from the lines of the steps."""
    runs: dict[tuple[int, int], list[Line]] = defaultdict(list)
    ends: dict[str, float] = {}
    for line in log:
        if line.kind == "begin":
            runs[line.task, line.step].append(line)
        else:
            ends[line.run] = line.at
    for begun in runs.values():
        done = [ends[one.run] for one in begun if one.run in ends and (recorded is None or one.run in recorded)]
        if done:
            killing.repeated += sum(one.at > min(done) for one in begun)
        killing.twice += max(0, sum(one.run in ends for one in begun) - 1)
        killing.cut += sum(one.run not in ends for one in begun)
    by_task: dict[int, list[Line]] = defaultdict(list)
    for line in log:
        by_task[line.task].append(line)
    for at, pids in kills:
        for own in by_task.values():
            before = [line for line in own if line.at <= at]
            held = before and before[-1].pid in pids and not (before[-1].kind == "end" and before[-1].step == STEPS - 1)
            after = [line.at for line in own if line.at > at and line.kind == "begin"]
            if held and after:
                killing.back.append(min(after) - at)


def measure_rate(system: System, count: int) -> Rate:
    """One-step tasks that wait when the worker starts: the rate from the first end to the last."""
    # What a worker needs to start is no cost of a task.
    idle = system.start_worker(is_for_rate=True)
    if isinstance(system, LonghaulSystem):
        system.wait_for_definitions()
    time.sleep(IDLE_SECONDS)
    start_cost = cpu(tree(idle.pid))
    system.kill(idle)
    ids = system.send("one", list(range(count)))
    before = cpu(system.server_processes())
    worker = system.start_worker(is_for_rate=True)
    # Looks are at one task: they must not cost what they measure.
    wait_for(lambda: system.ended_at(ids[-1:]) != [], 300, f"{system.name} does not end")
    wait_for(lambda: not system.unfinished(ids), 300, f"{system.name} does not end")
    rate = Rate(worker_cpu_seconds=max(0.0, cpu(tree(worker.pid)) - start_cost))
    rate.cpu_seconds = rate.worker_cpu_seconds + cpu(system.server_processes()) - before
    rate.worker_megabytes = memory(tree(worker.pid))
    rate.server_megabytes = memory(system.server_processes())
    ends = sorted(system.ended_at(ids))
    rate.per_second = (count - 1) / max(ends[-1] - ends[0], 0.001)
    system.kill(worker)
    return rate


@dataclass(frozen=True)
class Line:
    """A line of a step."""

    at: float
    pid: int
    kind: str
    task: int
    step: int
    run: str


def lines(path: pathlib.Path) -> Iterator[Line]:
    """Lines of the steps so far."""
    for text in path.read_text().splitlines():
        words = text.split()
        if len(words) == 6:
            yield Line(float(words[0]), int(words[1]), words[2], int(words[3]), int(words[4]), words[5])


def tree(pid: int) -> list[psutil.Process]:
    """A process and its descendants."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu(processes: list[psutil.Process]) -> float:
    """Seconds of processor time so far."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def memory(processes: list[psutil.Process]) -> float:
    """Proportional resident memory in megabytes: shared pages count once."""
    total = 0.0
    for process in processes:
        try:
            full = process.memory_full_info()
            total += getattr(full, "pss", full.rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total / (1 << 20)


def free_port() -> int:
    """A port of the loopback interface that nothing listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def connects(port: int) -> bool:
    """Whether something listens."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait_for(holds: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Waits until it holds; ends the program after that time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            sys.exit(otherwise)
        time.sleep(0.1)


def timestamp(text: str) -> float:
    """Seconds since 1970 of a time in UTC, with any number of digits after the point."""
    whole, _, fraction = text.removesuffix("Z").removesuffix("+00:00").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")


def p99(values: list[float]) -> float:
    """99th percentile; the largest of few values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))] if values else 0.0


def table(rows: list[tuple[str, str, str]]) -> str:
    """Rows of a table, aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main() -> int:
    """Runs both sides; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program `longhaul`")
    parser.add_argument("--tasks", type=int, default=RATE_TASKS, help="one-step tasks (2000)")
    parser.add_argument("--least-ratio", type=float, help="exit with 1 if the rate is less than so many times Celery's")
    parser.add_argument("--only", choices=["kills", "rate"], help="one half")
    options = parser.parse_args()
    # Ends by the `finally` below, which ends what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    program = shutil.which(options.program) or os.path.abspath(options.program)
    killings: dict[str, Killing] = {}
    rates: dict[str, Rate] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # One after the other: both have all processors.
        for make in (lambda: CelerySystem(folder), lambda: LonghaulSystem(folder, program)):
            system: System = make()
            try:
                if options.only != "rate":
                    killings[system.name] = kill_workers(system)
                if options.only != "kills":
                    rates[system.name] = measure_rate(system, options.tasks)
            finally:
                system.stop()
                for output in sorted(folder.glob(f"{system.name}-*.txt")):
                    if os.environ.get("BESIDE_OUTPUT"):
                        shutil.copy(output, os.environ["BESIDE_OUTPUT"])
    rows = [("", "celery", "longhaul")]
    failed = False
    if killings:
        both = [killings["celery"], killings["longhaul"]]
        ours = both[1]
        rows += [
            (f"tasks of {STEPS} steps, kills -9", *[f"{TASKS}, {KILLS}"] * 2),
            (f"lost (no result {GIVE_UP:.0f} s after the last kill)", *[str(one.lost) for one in both]),
            ("steps repeated after they were done", *[str(one.repeated) for one in both]),
            ("steps that ended twice", *[str(one.twice) for one in both]),
            ("steps cut by a kill", *[str(one.cut) for one in both]),
            ("tasks that a kill cut and that came back", *[str(len(one.back)) for one in both]),
            ("back after a kill, p99 in s", *[f"{p99(one.back):.1f}" if one.back else "-" for one in both]),
            ("until all had ended, in s", *[f"{one.seconds:.1f}" if not one.lost else "never" for one in both]),
        ]
        failed = bool(ours.lost or ours.repeated or p99(ours.back) > BACK_SECONDS)
    if rates:
        pair = [rates["celery"], rates["longhaul"]]
        ratio = pair[1].per_second / pair[0].per_second
        rows += [
            (f"one-step tasks a second, of {options.tasks}", *[f"{one.per_second:.0f}" for one in pair]),
            ("processor ms a task, worker", *[f"{one.worker_cpu_seconds / options.tasks * 1e3:.2f}" for one in pair]),
            ("processor ms a task, with servers", *[f"{one.cpu_seconds / options.tasks * 1e3:.2f}" for one in pair]),
            ("memory of the worker, MB", *[f"{one.worker_megabytes:.0f}" for one in pair]),
            ("memory of the servers, MB", *[f"{one.server_megabytes:.0f}" for one in pair]),
            ("rate as a multiple of Celery's", "1.0", f"{ratio:.1f}"),
        ]
        failed = failed or (options.least_ratio is not None and ratio < options.least_ratio)
    print(table(rows))
    print("failed" if failed else "ok")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
