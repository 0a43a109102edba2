"""What one order costs PostgreSQL, from its insert to its sale, in batches of one, ten and sixty."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.measurement import US_PER_S, CheckFailed, Claim, Effort, Figures, Finding, Testbed, Trial, cpu_s
from services.orders.checkout.checkout import OrderDraft, OrderWriter, new_order
from services.orders.checkout.requests import NewOrder
from services.orders.pricing.quote import Prices, price
from services.orders.settings import Settings
from services.orders.steps.run import Heartbeat, Parts
from services.orders.store.store import Frames, OrderStore
from services.orders.tickets.show import ShowCache
from services.orders.worker.worker import OrderProcessor, Worker
from shared.contracts.inventory import PaymentStep, Reservation, ReservedItem, StepDone
from shared.contracts.prices import PriceRules
from shared.payment_provider import ChargeRequest, ProviderCharge
from shared.postgres import engine, migrations
from shared.process.load import Load
from shared.runtime.clock import Clocks, now_ms

ORDERS = {1: 1_500, 10: 4_000, 60: 12_000}  # by batch
QUICK_ORDERS, WARM_UP = 120, 240
AIMS_US = {1: (4_000, 3_000), 10: (750, 560), 60: (300, 220)}  # what one may cost, and should
WAL_KB, ROW_VERSIONS = (6.0, 4.5), (9, 7)
HEADINGS = ("batch", "beside a report", "PostgreSQL: µs of processor", "WAL: KB", "row versions", "HOT updates")
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'onsale-orders'"
COUNTS = (Path(__file__).parent / "sql" / "order_counts.sql").read_text()
REPORT = 'SELECT count(*) FROM orders."order"'
SETTLED_S = 1.5  # a backend tells its counters within a second


def order_cost() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Order",
        title="what an order costs PostgreSQL",
        settings=[
            "The service's own code from the insert to the confirmed sale: checkout's writer, worker and store; the "
            "provider and inventory answer at once, in memory. As many orders at a time as the batch is large.",
            "Processor time of the database's backends by the kernel, WAL and row versions by PostgreSQL itself. "
            "`fsync` is on.",
            "Beside a report: a transaction that reads all orders and stays open meanwhile.",
        ],
        find=find,
    )


class _Provider:
    """Takes every charge."""

    name, methods = "sandbox", frozenset({"ok"})

    async def create(self, charge: ChargeRequest) -> ProviderCharge:
        return ProviderCharge(
            charge_ref=f"ch_{charge.key}", reference=charge.reference, key=charge.key, status="succeeded",
            amount_minor=charge.amount_minor, currency=charge.currency, occurred_at_ms=now_ms(),
        )  # fmt: skip


class _Inventory:
    """Sells every hold."""

    async def confirm(self, step: PaymentStep) -> StepDone:
        return StepDone(outcome="done", order_reference=step.order_reference, status="confirmed")


class _NoFrames(Frames):
    """Publishes to nobody."""

    def __init__(self) -> None:
        self.publish = self._nothing

    async def _nothing(self, _: Any) -> None:
        pass


@dataclass
class _Orders:
    writer: OrderWriter
    worker: Worker

    async def buy(self, count: int) -> None:
        """So many orders at the same moment, from the insert to the sale."""
        orders = await asyncio.gather(*(self.writer.insert(_draft(n)) for n in range(count)))
        await asyncio.gather(*(self.worker.settle(order.reference) for order in orders))


async def find(testbed: Testbed, effort: Effort) -> Figures:
    rows, claims = list[tuple[str, ...]](), list[Claim]()
    for batch, orders in ORDERS.items():
        for reported in (False, True):
            async with testbed.trial() as trial, _open(trial) as ours:
                found = await _measure(trial, ours, batch, QUICK_ORDERS if effort.quick else orders, reported=reported)
                checked = await trial.count("SELECT count(*) FROM orders.\"order\" WHERE status <> 'confirmed'")
            if checked:
                raise CheckFailed(f"{checked} orders are not confirmed")
            rows.append((str(batch), "yes" if reported else "no", f"{found['us']:,.0f}", f"{found['wal_kb']:.1f}",
                         f"{found['versions']:.1f}", f"{found['hot']:.0%}"))  # fmt: skip
            if not reported:
                claims.append(_claim(batch, found))
    return Figures(HEADINGS, rows, claims)


def _claim(batch: int, found: dict[str, float]) -> Claim:
    most, aim = AIMS_US[batch]
    return Claim(
        f"PostgreSQL's processor time for an order, {batch} at a time", f"{found['us']:,.0f} µs",
        f"{found['wal_kb']:.1f} KB of WAL, {found['versions']:.1f} row versions", f"{found['us'] / most:.2f}",
        f"at most {most:,} µs, {WAL_KB[0]:g} KB, {ROW_VERSIONS[0]}; aim {aim:,}, {WAL_KB[1]:g}, {ROW_VERSIONS[1]}",
    )  # fmt: skip


async def _measure(trial: Trial, ours: _Orders, batch: int, count: int, *, reported: bool) -> dict[str, float]:
    for _ in range(max(1, WARM_UP // batch // 4)):
        await ours.buy(batch)
    async with trial.connection() as reader:
        if reported:
            await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await reader.fetch(REPORT)
        await asyncio.sleep(SETTLED_S)
        before, began = await trial.row(COUNTS), await _spent(trial)
        for _ in range(count // batch):
            await ours.buy(batch)
        spent_s = sum(seconds - began.get(pid, 0.0) for pid, seconds in (await _spent(trial)).items())
        await asyncio.sleep(SETTLED_S)
        after = await trial.row(COUNTS)
    bought = count // batch * batch
    each = {name: (after[name] - before[name]) / bought for name in after}
    return {
        "us": spent_s * US_PER_S / bought, "wal_kb": each["wal_bytes"] / 1000, "versions": each["versions"],
        "hot": each["hot"] / each["updates"],
    }  # fmt: skip


async def _spent(trial: Trial) -> dict[int, float]:
    """Processor seconds of each backend of ours; the pool opens another one when two batches are in flight."""
    return {row["pid"]: cpu_s(row["pid"]) for row in await trial.rows(BACKENDS)}


@asynccontextmanager
async def _open(trial: Trial) -> AsyncIterator[_Orders]:
    await migrations.upgrade(trial.postgres_url, "orders")
    settings = Settings(postgres_url=trial.postgres_url, redis_url=trial.redis_url)
    db = engine.connect(settings, name="orders")
    inventory: Any = _Inventory()
    provider: Any = _Provider()
    async with OrderStore(db, Clocks("orders")) as store:
        shows = ShowCache(store.db)
        parts = Parts(
            store=store, frames=_NoFrames(), inventory=inventory, providers={"sandbox": provider}, settings=settings,
            shows=shows,
        )  # fmt: skip
        worker = Worker(
            store, OrderProcessor(parts), settings, load=Load("orders").purchases, heartbeat=Heartbeat(3600.0)
        )
        await worker.require_alive()
        writer = OrderWriter(db, worker, store.clocks, Prices(store.db))
        yield _Orders(writer, worker)
        await writer.aclose()
        await shows.close()
    await db.dispose()


def _draft(number: int) -> OrderDraft:
    reservation_id = uuid.uuid4().hex
    held = Reservation(
        event_id="bench", reservation_id=reservation_id, holder=f"fan-{reservation_id}", status="paying",
        join_seq=number, total_minor=10_000, currency="EUR", reserved_until_ms=now_ms() + 600_000,
        lines=[ReservedItem(section_id="GA0", quantity=2, unit_price_minor=5_000)],
    )  # fmt: skip
    request = NewOrder.model_validate({
        "reservation_id": reservation_id, "expected_total_minor": 10_000, "currency": "EUR",
        "customer": {"name": "A Fan", "email": f"{reservation_id}@example.org"},
        "payment": {"provider": "sandbox", "method": "ok"},
    })  # fmt: skip
    quote = price(held.lines, PriceRules(), currency="EUR")
    order = new_order(reservation_id[:12].upper(), held, quote, request, language="en", capture=True)
    return OrderDraft(order, uuid.uuid4().bytes, uuid.uuid4().bytes * 2)
