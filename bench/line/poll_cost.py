"""`python -m bench.line.poll_cost`: processor time of a waiting fan's poll in a gateway, sockets apart.

Few fans who poll in turn are in every cache of the process, as in P2; of a crowd each fan polls once, as in the night:
the token is verified, the fan's rate limit is new, and the memory is cold. Requests go through the server's protocol.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import uvloop
from rich.console import Console
from rich.table import Table
from uvicorn import Config
from uvicorn.server import ServerState

from bench.line.joins import EVENT
from bench.line.status import status_requests
from onsale.server.pauses import short_pauses
from onsale.server.request_limits import IncompleteRequests
from onsale.server.uvicorn_protocol import SingleWriteProtocol
from services.gateway.app import build_state, create_app
from services.gateway.settings import Settings
from services.gateway.tuning import DEFAULTS
from shared.contracts.frames import LaneHead, LineFrame
from shared.runtime.clock import now_ms
from shared.web.app import public

CONNECTIONS, AT_ONCE, PORTION, US_PER_S = 512, 32, 10_000, 1_000_000
CASES = {"5,000 fans, each often": (5_000, 10), "200,000 fans, each once": (200_000, 1)}
NOBODY: Any = MagicMock()  # a poll asks no other service


class Transport(asyncio.Transport):
    """Takes what the server writes, and is read by nobody."""

    written = 0

    def write(self, data: Any) -> None:
        self.written += len(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default

    def fileno(self) -> int:
        return 10

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    getpeername = getsockname

    def is_closing(self) -> bool:
        return False


def connections(fans: int) -> list[tuple[SingleWriteProtocol, Transport]]:
    """Connections to a gateway that knows a line of so many waiting fans, and has no other service."""
    app, settings = create_app(), Settings()
    state = build_state(settings, DEFAULTS, NOBODY, NOBODY)
    app.state.deps = state
    state.line_cache.store(LineFrame(
        event_id=EVENT.event_id, epoch=1, version=now_ms(), ready=True, at_ms=now_ms(), state="open", rate_per_s=10.0,
        lanes={0: LaneHead(head_seq=0, tail_seq=fans)},
    ), source="pubsub")  # fmt: skip
    config = Config(public(app), ws="none", proxy_headers=False, log_config=None, access_log=False, server_header=False)
    config.load()
    shared, incomplete = ServerState(), IncompleteRequests()
    made = [(SingleWriteProtocol(config, shared, {}, incomplete=incomplete), Transport()) for _ in range(CONNECTIONS)]
    for connection, transport in made:
        connection.connection_made(transport)
    return made


async def poll_us(fans: int, times: int) -> float:
    """Microseconds of processor time a poll of so many fans who poll so many times in turn."""
    served, spent_s = connections(fans), 0.0
    async with short_pauses():
        for numbers in _portions(fans, times):
            requests = status_requests(EVENT.event_id, numbers)
            await asyncio.sleep(0)
            began_s = time.process_time()
            for at in range(0, len(requests), AT_ONCE):
                for number, request in enumerate(requests[at : at + AT_ONCE], at):
                    served[number % CONNECTIONS][0].data_received(request)
                await asyncio.sleep(0)
            spent_s += time.process_time() - began_s
    written = sum(transport.written for _, transport in served)
    assert written > 200 * fans * times, "each was answered"
    return spent_s / (fans * times) * US_PER_S


def _portions(fans: int, times: int) -> Iterator[range]:
    for _ in range(times):
        for first in range(1, fans + 1, PORTION):
            yield range(first, min(first + PORTION, fans + 1))


def main() -> None:
    table = Table("", "µs a poll", title="a poll in the gateway, sockets apart")
    for name, (fans, times) in CASES.items():
        table.add_row(name, f"{uvloop.run(poll_us(fans, times)):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
