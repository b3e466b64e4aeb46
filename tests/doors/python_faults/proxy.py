"""A TCP proxy before the API processes: it takes them in turn, and can cut connections in the middle of answers."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import re
import signal
from collections import Counter as Counts
from collections.abc import Sequence
from typing import Any

CONNECT_SECONDS = 1.0
CUT_SHARE = {"claim": 0.7}
CUT_SHARE_OF_OTHERS = 0.3
KINDS = ("claim", "writes", "ends", "heartbeat", "requests", "children", "signals", "callers", "others")
_REQUEST = re.compile(rb"(?:POST|GET|PUT|DELETE) /v1/(workers/[^/ ]+/)?(?:executions/[^/ ]+/)?([a-z]+)")


class Proxy:
    """Listens at one port for the APIs at the others, in a process of its own: the load must not slow it down."""

    def __init__(self, port: int, backends: Sequence[int], seed: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._is_cutting = spawn.Value("b", 0)
        self._cuts = spawn.Array("i", len(KINDS))
        arguments = (port, list(backends), seed, self._is_cutting, self._cuts)
        self._process = spawn.Process(target=_run, args=arguments, name="proxy", daemon=True)
        self._process.start()

    @property
    def cuts(self) -> Counts[str]:
        """Answers that were cut, by what they answered."""
        return Counts(dict(zip(KINDS, self._cuts[:], strict=True)))

    def cut(self, is_cutting: bool) -> None:
        """Begins or ends to cut connections."""
        self._is_cutting.value = is_cutting

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join()


def _run(port: int, backends: list[int], seed: int, is_cutting: Any, cuts: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(backends, random.Random(seed), is_cutting, cuts)

    async def serve() -> None:
        async with await asyncio.start_server(server.serve, "127.0.0.1", port, backlog=512) as listening:
            await listening.serve_forever()

    asyncio.run(serve())


class _Server:
    def __init__(self, backends: list[int], source: random.Random, is_cutting: Any, cuts: Any) -> None:
        self._backends = backends
        self._random = source
        self._is_cutting = is_cutting
        self._cuts = cuts
        self._turn = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await self._connect()
        if upstream is None:
            writer.transport.abort()
            return
        asked = ["others"]
        both = (writer, upstream[1])
        pumps = (
            asyncio.ensure_future(self._requests(reader, upstream[1], asked)),
            asyncio.ensure_future(self._answers(upstream[0], writer, asked)),
        )
        # Either side that closes, or a cut, ends both: HTTP needs no half-closed connection.
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for one in both:
            one.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._backends:
            self._turn += 1
            port = self._backends[self._turn % len(self._backends)]
            try:
                return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), CONNECT_SECONDS)
            except (OSError, asyncio.TimeoutError):
                continue
        return None

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[str]) -> None:
        while data := await reader.read(65536):
            if (found := _REQUEST.match(data)) is not None:
                kind = found[2].decode() if found[1] else "callers"
                asked[0] = kind if kind in KINDS else "others"
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[str]) -> None:
        while data := await reader.read(65536):
            # A claim without executions is no loss.
            is_worth = asked[0] != "claim" or b'"token"' in data
            if (
                self._is_cutting.value
                and is_worth
                and self._random.random() < CUT_SHARE.get(asked[0], CUT_SHARE_OF_OTHERS)
            ):
                self._cuts[KINDS.index(asked[0])] += 1
                writer.write(data[: len(data) // 2])
                return
            writer.write(data)
            await writer.drain()
