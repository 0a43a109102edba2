"""The cost of a hold with more sections, and with more listeners that each receive a frame."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from bench.harness import system
from bench.harness.cost import US_PER_S
from bench.harness.load import request
from bench.harness.measurement import CheckFailed, Effort, Testbed, cpu_s
from bench.scale.growth_line import cost
from bench.stock.reservations import EVENT, SEATS_PER_ROW, TICKETS, reservation_request
from onsale.local.ports import HOST
from shared.contracts.event_file import EventFile, GaSection, SeatedSection
from shared.security.tokens import QueueToken, QueueTokens, development_keys

OF_A_KIND, REQUESTS, QUICK_REQUESTS, OPENED_AT_ONCE, SECTIONS = 100_000, 40_000, 400, 100, 10
FRAME = b"event: sections"
UPDATES = f"/events/{EVENT.event_id}/sections/updates"
LISTEN_S, LAST_FRAME_S = 60.0, 1.0


def event(sections: int) -> EventFile:
    """The same tickets, half seats and half general admission, in so many sections."""
    each = sections // 2
    size = OF_A_KIND // each
    seated = [
        SeatedSection(section_id=f"S{n}", name=f"Block {n}", kind="seated", rows=min(1000, size // SEATS_PER_ROW),
                      seats_per_row=SEATS_PER_ROW, price_minor=5000)
        for n in range(each)
    ]  # fmt: skip
    ga = [GaSection(section_id=f"GA{n}", name=f"Floor {n}", kind="ga", capacity=size, price_minor=5000)
          for n in range(each)]  # fmt: skip
    return EVENT.model_copy(update={"sections": [*seated, *ga]})


@functools.cache
def hold_requests(sections: int, count: int) -> list[bytes]:
    """Requests for seats and general admission alternately, from one section after another."""
    each, requests = sections // 2, []
    for n in range(count // 2):
        row, pair = divmod(n // each, SEATS_PER_ROW // 2)
        first = pair * 2 + 1
        seats = [f"S{n % each}-{row + 1}-{seat}" for seat in (first, first + 1)]
        requests.append(reservation_request(2 * n + 1, {"seats": seats}))
        requests.append(reservation_request(2 * n + 2, {"ga": [{"section_id": f"GA{n % each}", "quantity": TICKETS}]}))
    return requests


async def hold_cost(testbed: Testbed, effort: Effort, size: int) -> dict[str, float]:
    """µs of processor time for a reservation, with the stock in `size` sections."""
    async with testbed.trial() as trial:
        ports = await system.serve(trial, ("inventory",))
        await system.apply_to_inventory(event(size), ports["inventory"])
        await trial.sql("CHECKPOINT")
        requests = hold_requests(size, QUICK_REQUESTS * 10 if effort.quick else REQUESTS)
        return {"hold": await cost(trial, effort, ports["inventory"], requests, wanted=201, repeat=False)}


async def frame_cost_by_listeners(testbed: Testbed, effort: Effort, size: int) -> dict[str, float]:
    """µs of processor time for a reservation while `size` listen, and for the frame each of them is given."""
    async with testbed.trial() as trial:
        ports = await system.serve(trial, ("inventory", "queue", "notifier"))
        file = event(SECTIONS)
        await system.apply_to_inventory(file, ports["inventory"])
        await system.open_room(file, ports["queue"])
        async with listening(ports["notifier"], size) as listeners:
            notifier = trial.pids.pop("notifier")
            before_s, result = cpu_s(notifier), sum(listener.frames for listener in listeners)
            requests = hold_requests(SECTIONS, QUICK_REQUESTS * 10 if effort.quick else REQUESTS)
            hold = await cost(trial, effort, ports["inventory"], requests, wanted=201, repeat=False)
            await asyncio.sleep(LAST_FRAME_S)
            frames = sum(listener.frames for listener in listeners) - result
            if frames < size:
                raise CheckFailed(f"{size} listeners received {frames} frames")
            return {"hold": hold, "frame": (cpu_s(notifier) - before_s) * US_PER_S / frames}


class Listener(asyncio.Protocol):
    """A stream that counts the frames it was given."""

    def __init__(self, request: bytes) -> None:
        self._request, self.frames = request, 0
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's does not say so
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.frames += data.count(FRAME)
        if self.frames and not self.first.done():
            self.first.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.first.done():
            self.first.set_exception(CheckFailed("a stream ended before its first frame"))


@asynccontextmanager
async def listening(port: int, count: int) -> AsyncIterator[list[Listener]]:
    """So many streams, each of another fan, all of them past their first frame."""
    tokens, issued_s = QueueTokens(development_keys("queue-token")), int(time.time())
    loop, listeners = asyncio.get_running_loop(), list[Listener]()
    try:
        async with asyncio.timeout(LISTEN_S):
            for first in range(1, count + 1, OPENED_AT_ONCE):
                some = [
                    _stream_request(tokens, n, issued_s) for n in range(first, min(first + OPENED_AT_ONCE, count + 1))
                ]
                opened = (loop.create_connection(functools.partial(Listener, one), HOST, port) for one in some)
                listeners += [listener for _, listener in await asyncio.gather(*opened)]
            await asyncio.gather(*(listener.first for listener in listeners))
        yield listeners
    finally:
        for listener in listeners:
            listener.transport.close()


def _stream_request(tokens: QueueTokens, n: int, issued_s: int) -> bytes:
    token = tokens.sign(
        QueueToken(EVENT.event_id, epoch=1, lane=0, join_seq=n, holder=f"listener-{n}", issued_at_s=issued_s)
    )
    return request("GET", UPDATES, authorization=f"Bearer {token}")
