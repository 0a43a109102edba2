"""What a hold costs with more sections, and with more listeners, who each get a frame."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from bench.harness import system
from bench.harness.cpu import cpu_s
from bench.harness.load import request
from bench.harness.measurement import Effort, Wrong
from bench.harness.stage import Stage
from bench.scale.growth_room import US_PER_S, cost
from bench.stock.reservations import EVENT, SEATS_PER_ROW, TICKETS, wish
from onsale.local.ports import HOST
from shared.contracts.event_file import EventFile, GaSection, SeatedSection
from shared.runtime.settings import development_keys
from shared.security.tokens import QueueToken, QueueTokens

OF_A_KIND, WISHES, QUICK_WISHES, OPENED_AT_ONCE, SECTIONS = 100_000, 40_000, 400, 100, 10
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
def wishes(sections: int, count: int) -> list[bytes]:
    """Reservations of so many fans, seats and general admission in turn, from one section after another."""
    each, made = sections // 2, []
    for n in range(count // 2):
        row, pair = divmod(n // each, SEATS_PER_ROW // 2)
        first = pair * 2 + 1
        seats = [f"S{n % each}-{row + 1}-{seat}" for seat in (first, first + 1)]
        made.append(wish(2 * n + 1, {"seats": seats}))
        made.append(wish(2 * n + 2, {"ga": [{"section_id": f"GA{n % each}", "quantity": TICKETS}]}))
    return made


async def of_a_hold(stage: Stage, effort: Effort, size: int) -> dict[str, float]:
    """µs of processor time for a reservation, with the stock in `size` sections."""
    async with stage.turn() as turn:
        ports = await system.serve(turn, ("inventory",))
        await system.apply_to_inventory(event(size), ports["inventory"])
        await turn.sql("CHECKPOINT")
        asked = wishes(size, QUICK_WISHES * 10 if effort.quick else WISHES)
        return {"hold": await cost(turn, effort, ports["inventory"], asked, wanted=201, repeat=False)}


async def with_listeners(stage: Stage, effort: Effort, size: int) -> dict[str, float]:
    """µs of processor time for a reservation while `size` listen, and for the frame each of them is given."""
    async with stage.turn() as turn:
        limits = {"NOTIFIER_STREAMS_NEW_PER_S": "100000"}
        ports = await system.serve(turn, ("inventory", "queue", "notifier"), limits)
        file = event(SECTIONS)
        await system.apply_to_inventory(file, ports["inventory"])
        await system.open_room(file, ports["queue"])
        async with listening(ports["notifier"], size) as listeners:
            notifier = turn.pids.pop("notifier")
            before_s, heard = cpu_s(notifier), sum(listener.frames for listener in listeners)
            asked = wishes(SECTIONS, QUICK_WISHES * 10 if effort.quick else WISHES)
            hold = await cost(turn, effort, ports["inventory"], asked, wanted=201, repeat=False)
            await asyncio.sleep(LAST_FRAME_S)
            frames = sum(listener.frames for listener in listeners) - heard
            if frames < size:
                raise Wrong(f"{size} listeners heard {frames} frames")
            return {"hold": hold, "frame": (cpu_s(notifier) - before_s) * US_PER_S / frames}


class Listener(asyncio.Protocol):
    """A stream that counts the frames it was given."""

    def __init__(self, asked: bytes) -> None:
        self._asked, self.frames = asked, 0
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's does not say so
        self.transport.write(self._asked)

    def data_received(self, data: bytes) -> None:
        self.frames += data.count(FRAME)
        if self.frames and not self.first.done():
            self.first.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.first.done():
            self.first.set_exception(Wrong("a stream ended before its first frame"))


@asynccontextmanager
async def listening(port: int, count: int) -> AsyncIterator[list[Listener]]:
    """So many streams, each of another fan, all of them past their first frame."""
    tokens, issued_s = QueueTokens(development_keys("queue-token")), int(time.time())
    loop, listeners = asyncio.get_running_loop(), list[Listener]()
    try:
        async with asyncio.timeout(LISTEN_S):
            for first in range(1, count + 1, OPENED_AT_ONCE):
                some = [_asked(tokens, n, issued_s) for n in range(first, min(first + OPENED_AT_ONCE, count + 1))]
                opened = (loop.create_connection(functools.partial(Listener, one), HOST, port) for one in some)
                listeners += [listener for _, listener in await asyncio.gather(*opened)]
            await asyncio.gather(*(listener.first for listener in listeners))
        yield listeners
    finally:
        for listener in listeners:
            listener.transport.close()


def _asked(tokens: QueueTokens, n: int, issued_s: int) -> bytes:
    token = tokens.sign(QueueToken(EVENT.event_id, 1, 0, n, f"listener-{n}", issued_s))
    return request("GET", UPDATES, authorization=f"Bearer {token}")
