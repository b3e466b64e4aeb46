"""A proxy in front of the API that spoils connections."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Cut:
    """The connection ends in the answer, after this text."""

    after: bytes


@dataclass
class Answer:
    """The client gets these bytes, and the API nothing."""

    text: bytes


@dataclass
class Drip:
    """Events are answered with a stream that has a comment every 50 ms and no event, and that is cut in the end."""

    count: int = 200
    """Comments."""


Fault = Cut | Answer | Drip

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Proxy:
    """Forwards connections; each of the first ones has its fault."""

    def __init__(self, upstream: str, *faults: Fault) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._faults = list(faults)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []
        """First request of each connection, in lower case."""
        self.lines: list[str] = []
        """First line of every request."""
        self._news = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def header(self, connection: int, name: str) -> str | None:
        """A header of the first request of a connection."""
        found = re.search(rf"^{name}: (.*)\r$", self.requests[connection], re.MULTILINE)
        return found and found[1]

    def wait_for(self, line: str) -> None:
        """Waits until a request begins with this line."""
        self._wait(lambda: any(found.startswith(line) for found in self.lines))

    def wait_for_connections(self, count: int) -> None:
        """Waits until so many connections have sent a request."""
        self._wait(lambda: len(self.requests) >= count)

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(condition, timeout=30), self.lines

    def _note(self, data: bytes) -> None:
        found = re.findall(rb"^([A-Z]+ \S+) HTTP/1\.1\r$", data, re.MULTILINE)
        with self._news:
            self.lines += [line.decode() for line in found]
            self._news.notify_all()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            fault = self._faults.pop(0) if self._faults else None
            threading.Thread(target=self._serve, args=(client, fault), daemon=True).start()

    def _serve(self, client: socket.socket, fault: Fault | None) -> None:
        request = _read_request(client)
        self.requests.append(request.decode(errors="replace").lower())
        self._note(request)
        if isinstance(fault, Answer):
            client.sendall(fault.text)
            _close(client)
            return
        if isinstance(fault, Drip) and b"/events " in request:
            with contextlib.suppress(OSError):
                client.sendall(HEAD)
                for _ in range(fault.count):
                    client.sendall(b"3\r\n:\n\n\r\n")
                    time.sleep(0.05)
            _close(client)
            return
        server = socket.create_connection(self._upstream)
        server.sendall(request)
        threading.Thread(target=_copy, args=(client, server, None, self._note), daemon=True).start()
        _copy(server, client, fault if isinstance(fault, Cut) else None)


def _read_request(client: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        request += client.recv(65536)
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(body) < int(length[1]):
        body += client.recv(65536)
    return head + b"\r\n\r\n" + body


def _copy(
    source: socket.socket, target: socket.socket, cut: Cut | None, note: Callable[[bytes], None] | None = None
) -> None:
    seen = b""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if note:
                note(data)
            sent = len(seen)
            seen += data if cut else b""
            if cut and cut.after in seen:
                target.sendall(seen[sent : seen.index(cut.after) + len(cut.after)])
                break
            target.sendall(data)
    _close(source)
    _close(target)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
