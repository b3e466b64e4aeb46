"""A TCP proxy before the API processes: it takes them in turn, and can cut connections in the middle of answers."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections import Counter as Counts
from collections.abc import Sequence

CONNECT_SECONDS = 1.0
CUT_SHARE = {"claim": 0.7}
CUT_SHARE_OF_OTHERS = 0.3
_REQUEST = re.compile(rb"(?:POST|GET|PUT|DELETE) /v1/(workers/[^/ ]+/)?(?:executions/[^/ ]+/)?([a-z]+)")


class Proxy:
    """Listens at one port for the APIs at the others, in a thread of its own."""

    def __init__(self, port: int, backends: Sequence[int], seed: int) -> None:
        self.port = port
        self.cuts: Counts[str] = Counts()
        """Answers that were cut, by what they answered."""
        self.is_cutting = False
        self._backends = list(backends)
        self._turn = 0
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._run, args=(ready,), name="proxy", daemon=True).start()
        ready.wait(10)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=512))
        ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await self._connect()
        if upstream is None:
            writer.transport.abort()
            return
        asked: list[str] = [""]
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
            except (OSError, asyncio.TimeoutError):  # noqa: UP041 - in 3.10 they are two classes
                continue
        return None

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[str]) -> None:
        while data := await reader.read(65536):
            if (found := _REQUEST.match(data)) is not None:
                asked[0] = ("" if found[1] else "callers' ") + found[2].decode()
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[str]) -> None:
        while data := await reader.read(65536):
            # A claim without executions is no loss.
            is_worth = asked[0] != "claim" or b'"token"' in data
            if self.is_cutting and is_worth and self._random.random() < CUT_SHARE.get(asked[0], CUT_SHARE_OF_OTHERS):
                self.cuts[asked[0]] += 1
                writer.write(data[: len(data) // 2])
                return
            writer.write(data)
            await writer.drain()
