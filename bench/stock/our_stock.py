"""Our stock as one of the designs: the real Redis stock, group commit and database in this process, without HTTP.

The interface of every design of selling stock: create stock, sell from sections, end all holds, count.

One show at a time: creating one replaces the one before it.
"""

import functools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from bench.harness.pipes import Timing, run_calls
from bench.stock.reservations import EVENT
from services.inventory.api.reservations import ReserveBody, build_request
from services.inventory.catalogue.apply_event_file import apply_event_file
from services.inventory.layout.layout import EventCache
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.rebuild import RedisStockMonitor
from services.inventory.reservations.expiry_worker import ExpiryWorker
from services.inventory.reservations.payment import Payments
from services.inventory.reservations.reserve import ReservationBatcher, Reserved
from services.inventory.tuning import DEFAULTS
from shared.contracts.event_file import GaSection
from shared.contracts.orders import OrdersClient
from shared.errors.problems import SoldOut
from shared.postgres import engine as postgres_engine
from shared.postgres.settings import PostgresSettings
from shared.redis import client
from shared.rpc import ServiceClient
from shared.security.limits import Buckets
from shared.security.tokens import Pass, development_keys

TICKETS = 2


@dataclass(frozen=True)
class Venue:
    """General admission in `sections` sections of `each` tickets."""

    name: str
    sections: int
    each: int

    @property
    def capacity(self) -> int:
        return self.sections * self.each


@dataclass
class SaleResult:
    """The result of a run: holds granted, requests refused, and the processor time of the databases."""

    timing: Timing = field(default_factory=Timing)
    held: int = 0
    refused: int = 0
    database_cpu_s: float = 0.0

    def add(self, other: "SaleResult") -> None:
        self.timing.add(other.timing)
        self.held += other.held
        self.refused += other.refused
        self.database_cpu_s += other.database_cpu_s

    @property
    def per_second(self) -> float:
        return self.held / self.timing.seconds

    @property
    def database_cpu_us(self) -> float:
        return self.database_cpu_s * 1_000_000 / max(1, self.held)


class Design(Protocol):
    """One design of selling stock. Each request names a section by its number and is for two tickets."""

    name: str

    async def create_stock(self, show: Venue) -> None: ...
    async def sell(self, show: Venue, section_numbers: Iterator[int], contenders: int) -> SaleResult: ...
    async def holds_stored(self, show: Venue) -> int: ...
    async def end_all(self, show: Venue) -> None: ...
    async def tickets_left(self, show: Venue) -> int: ...


def until(section_numbers: Iterator[int], seconds: float) -> Iterator[int]:
    """Section numbers until the time is over."""
    ends_at_s = time.perf_counter() + seconds
    for section in section_numbers:
        if time.perf_counter() >= ends_at_s:
            return
        yield section


PASS_S = 3600


class OurStock:
    """Each show is an event. Batch size and the limit of waiting requests are the service's defaults."""

    name = "ours, gate + group commit"

    def __init__(self, db: postgres_engine.AsyncEngine, redis: client.Redis, orders: OrdersClient) -> None:
        self._db, self._redis_stock = db, RedisStock(redis)
        reading = db.execution_options(isolation_level="AUTOCOMMIT")
        self._catalogue = EventCache(reading)
        self._monitor = RedisStockMonitor(db, self._redis_stock, self._catalogue)
        given_back = Buckets(per_s=1, burst=1, keys_max=1)
        payments = Payments(db, self._redis_stock, self._catalogue, given_back)
        self._expiry_worker = ExpiryWorker(db, self._redis_stock, self._catalogue, payments, orders)
        self._fans = 0

    @classmethod
    @asynccontextmanager
    async def on(cls, postgres_url: str, redis_url: str) -> AsyncIterator["OurStock"]:
        """The database's tables must be there."""
        db = postgres_engine.connect(PostgresSettings(postgres_url=postgres_url, postgres_pool_max=32), name="bench")
        redis = client.connect(redis_url, timeout_s=60)
        try:
            async with httpx.AsyncClient(trust_env=False) as pool:
                orders = OrdersClient(ServiceClient(pool, "http://orders", development_keys("service"), name="orders"))
                yield cls(db, redis, orders)
        finally:
            await redis.aclose()
            await db.dispose()

    async def create_stock(self, show: Venue) -> None:
        sections = [
            GaSection(section_id=f"GA{n}", name=f"Floor {n}", kind="ga", capacity=show.each, price_minor=5000)
            for n in range(show.sections)
        ]
        await apply_event_file(self._db, EVENT.model_copy(update={"event_id": show.name, "sections": sections}))
        await self._monitor.check()

    async def sell(self, show: Venue, section_numbers: Iterator[int], contenders: int) -> SaleResult:
        layout, result = self._catalogue.layout(show.name), {True: 0, False: 0}
        reserver = ReservationBatcher(
            self._db, self._redis_stock, show.name, batch_max=DEFAULTS.hold_batch_max,
            waiting_max=DEFAULTS.hold_waiting_max,
        )  # fmt: skip

        async def reserve(section: int) -> None:
            self._fans += 1
            admission = Pass(
                show.name, f"fan-{self._fans}", jti=f"jti-{self._fans}", epoch=1, lane=0, join_seq=self._fans,
                qty_max=6, issued_at_s=0, expires_at_s=PASS_S,
            )  # fmt: skip
            body = ReserveBody(ga_section=f"GA{section}", ga_quantity=TICKETS)
            try:
                result[isinstance(await reserver.reserve(build_request(layout, admission, body, None)), Reserved)] += 1
            except SoldOut:
                result[False] += 1

        calls = (functools.partial(reserve, section) for section in section_numbers)
        timing = await run_calls(calls, connections=contenders, fans=0)
        await reserver.close()
        return SaleResult(timing, result[True], result[False])

    async def holds_stored(self, show: Venue) -> int:
        return await self._number(
            "SELECT coalesce(sum(quantity), 0) FROM inventory.reservation_ga JOIN inventory.reservation "
            "USING (event_id, reservation_id) WHERE event_id = $1 AND status = 'pending_payment'",
            show.name,
        )

    async def end_all(self, show: Venue) -> None:
        """Moves the clock of the scripts past every deadline, then runs the expiry worker once."""
        layout = self._catalogue.layout(show.name)
        self._redis_stock.clock_offset_ms += (layout.hold_ttl_s + layout.grace_s + 1) * 1000
        await self._expiry_worker.sweep()

    async def tickets_left(self, show: Venue) -> int:
        """The tickets left in the database; Redis must agree."""
        stored = await self._number("SELECT sum(seats_remaining) FROM inventory.section WHERE event_id = $1", show.name)
        keys = [f"GA{n}:available" for n in range(show.sections)]
        redis_stock = sum(map(int, await self._redis_stock.redis.hmget(f"inventory:{{{show.name}}}:counts", keys)))
        assert redis_stock == stored, f"{show.name}: Redis has {redis_stock} left, the database {stored}"
        return stored

    async def _number(self, query: str, *arguments: str) -> int:
        async with self._db.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            return int(await driver.fetchval(query, *arguments))
