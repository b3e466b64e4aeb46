"""The processes of the installation: a private PostgreSQL and Redis, APIs and workers, which can be killed."""

from __future__ import annotations

import grp
import json
import os
import pathlib
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

START_SECONDS = 60.0


class Process:
    """A process that is started again after each fault, with one log for all its lives."""

    def __init__(
        self,
        name: str,
        command: list[str],
        folder: pathlib.Path,
        env: dict[str, str],
        is_ready: Callable[[], bool] = lambda: True,
        user: str | None = None,
    ) -> None:
        self.name = name
        self.pids: list[int] = []
        """Of all its lives."""
        self.unasked: list[str] = []
        """Ends that nobody asked for."""
        self._command = command
        self._folder = folder
        self._env = env
        self._is_ready = is_ready
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Id of its present life."""
        return self.pids[-1]

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        self.begin()
        wait_for(lambda: self._is_ready() or not self.is_alive, START_SECONDS, f"{self.name} is not ready")
        if not self.is_alive:
            raise RuntimeError(f"{self.name} ended at its start: see {self._folder / self.name}.log")

    def begin(self) -> None:
        """Starts it without waiting."""
        # Only root can, and must: PostgreSQL refuses to run as root.
        with open(self._folder / f"{self.name}.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=self._user,
                group=pwd.getpwnam(self._user).pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )
        self.pids.append(self._process.pid)

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        return self._is_ready()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def look(self) -> None:
        """Notes an end that nobody asked for, and starts the process again."""
        if self._process is not None and not self.is_alive:
            self.unasked.append(f"{self.name} ended by itself with code {self._process.returncode}")
            self.start()

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        if self.is_alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills it and all its children with -9."""
        if self._process is None:
            return
        pids = [self.pid, *descendants(self.pid)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        self._process = None
        # PostgreSQL does not start while a process of its former life holds the shared memory.
        wait_for(lambda: not any(map(runs, pids)), 10, f"{self.name} does not die")

    def drain(self, seconds: float) -> int | None:
        """Sends SIGTERM and waits for the end; its code, or None if it had to be killed."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        self._process = None
        return code


class Database(Process):
    """A private PostgreSQL."""

    def __init__(self, folder: pathlib.Path, port: int) -> None:
        self._bin = postgres_folder()
        self._data = folder / "postgres"
        self._data.mkdir()
        self._password = secrets.token_hex(16)
        self._port = port
        user = unprivileged_user(self._data)
        tools = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        password = self._data / "password"
        password.write_text(self._password)
        if user:
            shutil.chown(password, user)
        initdb = [
            str(self._bin / "initdb"),
            "-D",
            str(self._data / "data"),
            "-U",
            "longhaul",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        initdb += ["--locale=C", "--no-instructions", "--auth=md5", "--pwfile", str(password)]
        subprocess.run(
            initdb,
            check=True,
            cwd=self._data,
            env=tools,
            stdout=subprocess.DEVNULL,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )
        command = [str(self._bin / "postgres"), "-D", str(self._data / "data")]
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "timezone": "UTC",
            "max_connections": 200,
        }
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        super().__init__("postgres", command, folder, tools, self._answers, user)
        self.url = f"postgres://longhaul:{self._password}@127.0.0.1:{port}/longhaul"

    def create(self) -> None:
        """Creates the database."""
        self._psql("create database longhaul", "postgres")

    def _answers(self) -> bool:
        try:
            return self._psql("select 1", "postgres") == "1\n"
        except subprocess.CalledProcessError:
            return False

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Rows of a query, each by its columns."""
        text = self._psql(f"select row_to_json(found) from ({query}) found", "longhaul")
        return [json.loads(line) for line in text.splitlines()]

    def _psql(self, query: str, database: str) -> str:
        command = [str(self._bin / "psql"), "-XAtq", "-h", "127.0.0.1", "-p", str(self._port), "-U", "longhaul"]
        command += ["-d", database, "-c", query]
        env = {"PATH": os.environ["PATH"], "PGPASSWORD": self._password, "PGCONNECT_TIMEOUT": "5"}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


class Redis(Process):
    """A private Redis without persistence."""

    def __init__(self, folder: pathlib.Path, port: int) -> None:
        program = shutil.which("redis-server")
        if program is None:
            sys.exit("redis-server is not in PATH")
        self._port = port
        self._password = secrets.token_hex(16)
        # The password goes into a file, because every user of the machine can read a command line.
        config = folder / "redis.conf"
        config.touch(0o600)
        config.write_text(
            f'bind 127.0.0.1\nport {port}\nprotected-mode yes\nrequirepass {self._password}\nsave ""\nappendonly no\n'
        )
        super().__init__("redis", [program, str(config)], folder, {"PATH": os.environ["PATH"]}, self._answers)
        self.url = f"redis://:{self._password}@127.0.0.1:{port}/"

    def _answers(self) -> bool:
        try:
            return self.command("PING") == "+PONG"
        except OSError:
            return False

    def command(self, text: str) -> str:
        """First line of the answer to a command."""
        with socket.create_connection(("127.0.0.1", self._port), 5) as connection:
            connection.sendall(f"AUTH {self._password}\r\n{text}\r\n".encode())
            answers = connection.makefile()
            answers.readline()
            return answers.readline().strip()


def postgres_folder() -> pathlib.Path:
    """Folder of the newest installed PostgreSQL."""

    def major(folder: pathlib.Path) -> int:
        return int(found[0]) if (found := re.findall(r"\d+", str(folder))) else 0

    found = [folder for folder in pathlib.Path("/usr/lib/postgresql").glob("*/bin") if (folder / "initdb").exists()]
    if found:
        return max(found, key=major)
    initdb = shutil.which("initdb")
    if initdb is None:
        sys.exit("PostgreSQL is not installed: there is no initdb")
    return pathlib.Path(initdb).resolve().parent


def unprivileged_user(folder: pathlib.Path) -> str | None:
    """User for PostgreSQL if this process is root, made the owner of the folder; None if it is not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in known else "nobody"
    shutil.chown(folder, user, grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name)
    return user


def descendants(pid: int) -> Iterator[int]:
    """All processes below one, deepest last."""
    children: dict[int, list[int]] = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    waiting = [pid]
    while waiting:
        found = children.get(waiting.pop(), [])
        yield from found
        waiting += found


def runs(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def connects(port: int) -> bool:
    """Whether something listens at the port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def wait_for(is_so: Callable[[], bool], seconds: float, message: str) -> None:
    """Waits until something is so, and raises with the message if it does not become so."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(message)
        time.sleep(0.05)
