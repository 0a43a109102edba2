"""The inventory service under a model test: set-up, clock, outages of Redis, and the comparison with the model."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import text

from services.inventory.api.reservations import ReserveBody, build_request
from services.inventory.reconcile.redis_diff import differences, read_redis_stock
from services.inventory.store.snapshot import read_stock
from services.inventory.tables import metadata
from shared.contracts.inventory import Binding
from shared.runtime.clock import now_ms
from shared.security.tokens import Pass
from tests.inventory.conftest import EVENT, Inventory, event_file, settings_of, start
from tests.properties.paused_process import PausedProcess
from tests.properties.stock_model import (
    GA_CAPACITY,
    GRACE_S,
    HOLD_TTL_S,
    LIVE_MAX,
    PAY_TTL_S,
    SEATS,
    TICKETS_MAX,
    Selection,
    StockModel,
)

EDGE_MS = 2_000  # the test reads the clock a little before or after the servers do
ROWS = text(
    "SELECT reservation_id, status, order_reference, reserved_until_ms, fingerprint = '' AS tombstone "
    "FROM inventory.reservation ORDER BY reservation_id"
)


class StockSystem(RuleBasedStateMachine):
    """One inventory on real servers whose background work runs only as a rule, and paused processes of it."""

    redis_url: str
    postgres_url: str

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.Runner()
        self.model, self.paused, self.key_count = StockModel(), list[PausedProcess](), 0
        self.bindings = dict[str, Binding]()  # the latest of each reservation
        self.invariants_held, self.reconcile_s, self.snapshot = False, 0.0, dict[bytes, bytes]()
        self.app = start(settings_of(self.redis_url, self.postgres_url))
        self.loop.run(self._open())

    async def _open(self) -> None:
        self.inventory: Inventory = await anext(self.app)
        self.state, self.redis = self.inventory.state, self.inventory.state.redis_stock.redis
        await self.redis.flushall()
        async with self.state.db.begin() as connection:
            await connection.execute(text(f"TRUNCATE {', '.join(map(str, metadata.sorted_tables))}"))
        file = event_file(
            hold_ttl_s=HOLD_TTL_S, pay_ttl_s=PAY_TTL_S, grace_s=GRACE_S, tickets_per_customer=TICKETS_MAX,
            active_reservations_per_customer=LIVE_MAX,
        )  # fmt: skip
        seated, _, ga = file["sections"]
        file["sections"] = [seated | {"rows": 2, "seats_per_row": 3}, ga | {"capacity": GA_CAPACITY}]
        assert (await self.inventory.put(file)).is_success
        await self.state.redis_monitor.check()
        self.state.reconciler._clock = lambda: self.reconcile_s

    def run(self, work: Any) -> Any:
        self.invariants_held = False
        return self.loop.run(work)

    def now_ms(self) -> int:
        return now_ms() + self.state.redis_stock.clock_offset_ms

    def request(self, holder: str, selection: Selection, key: str) -> Any:
        at = now_ms() // 1000
        admission = Pass(EVENT, holder, f"jti-{holder}", 1, 0, 7, 6, at, at + 900)
        ga = {"ga_section": "GA1", "ga_quantity": selection.ga} if selection.ga else {}
        body = ReserveBody.model_validate({"seats": sorted(selection.seats), **ga})
        return build_request(self.state.catalogue.layout(EVENT), admission, body, key)

    def new_key(self) -> str:
        self.key_count += 1
        return f"key-{self.key_count}"

    @contextlib.contextmanager
    def redis_updates(self, *, arrive: bool) -> Iterator[None]:
        """While updates do not arrive, the database decides and Redis misses it."""
        with pytest.MonkeyPatch.context() as patch:
            if not arrive:
                patch.setattr(self.state.redis_stock, "follow", AsyncMock(side_effect=RedisConnectionError))
            yield

    async def read_database(self, *, redis_missed_it: bool = False) -> None:
        """Compares every row with the model, and takes over what may have happened: due holds that have expired, and
        tombstones of reservations that were never written.
        """
        async with self.state.db.connect() as connection:
            rows = (await connection.execute(ROWS)).all()
        assert {row.reservation_id for row in rows if not row.tombstone} == set(self.model.reservations)
        for row in rows:
            unwritten = self.model.unwritten.pop(row.reservation_id, None)
            if row.tombstone:
                assert row.reservation_id not in self.model.reservations
                if unwritten and redis_missed_it:
                    self.model.out_of_sync.add(row.reservation_id)
                continue
            reservation = self.model.reservations[row.reservation_id]
            if row.status == "expired" and reservation.is_overdue(self.now_ms()):
                reservation.status = "expired"
                if redis_missed_it:
                    self.model.out_of_sync.add(row.reservation_id)
            assert (row.status, row.order_reference) == (reservation.status, reservation.reference)
            assert abs(row.reserved_until_ms - reservation.until_ms) < EDGE_MS
            reservation.until_ms = row.reserved_until_ms

    @invariant()
    def database_and_redis_match_the_model(self) -> None:
        self.run(self.read_database())
        stock = self.run(read_stock(self.state.db, EVENT))
        seats, ga = self.model.taken(self.model.reservations.values())
        available = {section_id: section.available for section_id, section in stock.sections.items()}
        assert available == {"A": len(SEATS) - len(seats), "GA1": GA_CAPACITY - ga}
        assert all(x.available + x.held + x.sold == x.capacity for x in stock.sections.values())
        if not (self.model.redis_lost or self.model.out_of_sync):
            redis_stock = self.run(read_redis_stock(self.redis, EVENT, self.state.catalogue.layout(EVENT)))
            found = set(differences(redis_stock, stock))
            assert bool(found) == bool(self.model.unwritten), found
            unwritten = sum(reservation.selection.size for reservation in self.model.unwritten.values())
            held = sum(x.held for x in stock.sections.values()) + unwritten
            assert sum(redis_stock.counts.get(f"{s}:held", 0) for s in stock.sections) == held
        self.invariants_held = True

    def teardown(self) -> None:
        try:
            if self.invariants_held:
                self._nothing_stays_held()
        finally:
            self.loop.run(self._close())
            self.loop.close()

    def _nothing_stays_held(self) -> None:
        """Invariant 9: an hour later, with every process dead and every order ended, nothing is held."""
        for process in self.paused:
            self.run(process.die())
        self.paused.clear()
        self.inventory.orders.states = {"order-1": "cancelled", "order-2": "unknown"}
        self.inventory.travel(3_600_000)
        self.run(self.state.redis_monitor.check())
        for expire in (self.state.expiry_worker.sweep, self.state.expiry_worker.scan, self.state.expiry_worker.sweep):
            self.run(expire())
        for _ in range(3):
            self.reconcile_s += 6
            self.run(self.state.reconciler.reconcile(self.state.catalogue.layout(EVENT)))
        assert self.run(self.inventory.violations(at_rest=True)) == []

    async def _close(self) -> None:
        for process in self.paused:
            await process.die()
        await self.app.aclose()
