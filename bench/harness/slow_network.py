"""A TCP proxy that delays data: a database that is further away, for both sides alike.

`python -m bench.harness.slow_network HOST PORT DELAY_MS` prints its port and serves until its standard input ends. It
delays what goes to the server, so a round trip takes that much longer.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

from onsale.local.ports import HOST


class RelayEnd(asyncio.Protocol):
    """One end of a relayed connection; what it receives goes to the other end after `delay_s`."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self.other: RelayEnd | None = None
        self._buffered: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's does not say so

    def connect_to(self, other: "RelayEnd") -> None:
        self.other = other
        for data in self._buffered:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._buffered.append(data)
        elif self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, self.other.transport.write, data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


async def relay(host: str, port: int, delay_s: float) -> asyncio.Server:
    """Listens on a free port."""
    loop, joining = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    async def join(near: RelayEnd) -> None:
        _, far = await loop.create_connection(lambda: RelayEnd(0), host, port)
        far.connect_to(near)
        near.connect_to(far)

    class Near(RelayEnd):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            task = asyncio.ensure_future(join(self))
            joining.add(task)
            task.add_done_callback(joining.discard)

    return await loop.create_server(lambda: Near(delay_s), HOST, 0)


async def serve(host: str, port: int, delay_s: float) -> None:
    """Until standard input ends."""
    server = await relay(host, port, delay_s)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


@asynccontextmanager
async def with_delay(url: str, delay_ms: float) -> AsyncIterator[str]:
    """The same address through the proxy, which is a process of its own."""
    at = urlsplit(url)
    command = [sys.executable, "-P", "-m", "bench.harness.slow_network", str(at.hostname), str(at.port), str(delay_ms)]
    pipe, environment = asyncio.subprocess.PIPE, {"PYTHONPATH": str(Path(__file__).parents[2])}
    proxy = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    try:
        port = int(await proxy.stdout.readline())
        yield at._replace(netloc=at.netloc.replace(f":{at.port}", f":{port}")).geturl()
    finally:
        proxy.stdin.close()
        await proxy.wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000))
