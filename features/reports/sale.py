"""The figures of one sale, gathered from the databases of queue, inventory and orders by their admin APIs.

They are the same after a restart and without Redis; only the check of the invariants needs every part.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from features.reports import schemas
from shared.contracts.admin import inventory, orders, queue
from shared.contracts.admin.audit import AuditEntry
from shared.contracts.admin.operator_calls import OperatorCalls
from shared.contracts.catalogue import EventDetails
from shared.contracts.event_parts.price_types import Trait
from shared.report.invariants import CheckedInvariant, check_invariants
from shared.rules.sell_out import Held, SellOut, forecast

STEPS_WANTED = 240
STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
    2_592_000,
)  # fmt: skip
CHANGES_MAX, CHANGES_PAGE = 1000, 200
SOLD_MIN = 20  # of a section, before its rate says anything


class FunnelShare(NamedTuple):
    """Fans who came so far, how many of the step before did not, and which share of those and of all who joined."""

    name: str
    fans: int
    lost: int
    of_previous: float | None
    of_joined: float | None


class OperatorChange(NamedTuple):
    """An entry of the audit log, and the service that keeps it."""

    service: str
    entry: AuditEntry


@dataclass(frozen=True)
class Flow:
    """A sale at one moment, as `onsale flow` shows it."""

    line: queue.LineFlow
    holds: inventory.HoldsFlow
    orders: orders.OrdersFlow

    @property
    def funnel(self) -> list[FunnelShare]:
        counts = {
            "joined": self.line.joined, "called": self.line.called, "claimed": self.line.claimed,
            "held": self.holds.fans_held, "ordered": self.orders.fans_ordered, "confirmed": self.orders.fans_confirmed,
        }  # fmt: skip
        steps: list[FunnelShare] = []
        joined = before = self.line.joined
        for name, fans in counts.items():
            of_previous, of_joined = fans / before if before and steps else None, fans / joined if joined else None
            steps.append(FunnelShare(name, fans, max(0, before - fans), of_previous, of_joined))
            before = fans
        return steps

    @property
    def on_sale(self) -> int:
        return sum(section.on_sale for section in self.holds.sections)

    @property
    def sold(self) -> int:
        return sum(section.sold for section in self.holds.sections)

    @property
    def forecast(self) -> SellOut | None:
        free = sum(section.available for section in self.holds.sections)
        tickets, holds, recent = sum(section.held for section in self.holds.sections), self.holds, self.orders.recent
        held = Held(tickets, holds.oldest_open_s or 0.0, holds.earlier, holds.earlier_given_back)
        return forecast(recent.tickets, orders=recent.orders, free=free, held=held)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """From the first join, hold or order to the last thing that happened."""
        parts = (self.line, self.holds, self.orders)
        now = datetime.now(UTC)
        first = min((part.first_at for part in parts if part.first_at), default=now)
        return first.replace(microsecond=0), max((part.last_at for part in parts if part.last_at), default=now)


@dataclass(frozen=True)
class Sale:
    """A whole sale, as `onsale report` writes it. `broken_off` says why the invariants could not be checked."""

    event_id: str
    made_at: datetime
    event: EventDetails
    flow: Flow
    traits: Mapping[Trait, inventory.TraitCounts]
    start: datetime
    step_s: int
    line: schemas.LineHistory
    holds: schemas.HoldsHistory
    orders: schemas.OrdersHistory
    changes: Sequence[OperatorChange]
    changes_left_out: bool
    invariants: Sequence[CheckedInvariant]
    broken_off: str | None

    @property
    def suggested(self) -> dict[str, int]:
        """How many tickets each section should have had on sale."""
        sold = {sales.section_id: sales for sales in self.orders.sections}
        if not sold:
            return {section.section_id: section.on_sale for section in self.flow.holds.sections}
        begun, ended = min(sales.first_at for sales in sold.values()), max(sales.last_at for sales in sold.values())
        demand = {}
        for section in self.flow.holds.sections:
            sales, sold_out = sold.get(section.section_id), section.available + section.held == 0
            until = sales.last_at if sales and sold_out else ended
            selling_s = (until - begun).total_seconds()
            demand[section.section_id] = SectionDemand(sales.sold if sales else 0, section.on_sale, selling_s)
        return suggest_quantities(demand)


async def read_flow(admin: OperatorCalls, event_id: str) -> Flow:
    """The sale at this moment."""
    return Flow(*await asyncio.gather(
        admin.read_queue_flow(event_id), admin.read_inventory_flow(event_id), admin.read_order_flow(event_id)
    ))  # fmt: skip


async def read_sale(admin: OperatorCalls, event_id: str, *, failure: type[Exception]) -> Sale:
    """The whole sale. If the invariants cannot be checked, the `failure` of `admin` is a line of the report."""
    flow = await read_flow(admin, event_id)
    start, end = flow.span
    step_s = step_of((end - start).total_seconds())
    steps = math.floor((end - start).total_seconds() / step_s) + 1
    since = start.isoformat()
    line, holds, ordered, event, traits = await asyncio.gather(
        admin.read_queue_flow_history(event_id, since=since, step_s=step_s, steps=steps),
        admin.read_inventory_flow_history(event_id, since=since, step_s=step_s, steps=steps),
        admin.read_order_flow_history(event_id, since=since, step_s=step_s, steps=steps),
        admin.read_event_on_sale(event_id),
        admin.read_places_by_trait(event_id),
    )
    changes, left_out = await _changes(admin, event_id)
    try:
        invariants, broken_off = await check_invariants(admin, event_id), None
    except failure as failed:
        invariants, broken_off = [], str(failed)
    return Sale(
        event_id=event_id, made_at=datetime.now(UTC), event=event, flow=flow, traits=traits.total, start=start,
        step_s=step_s, line=line, holds=holds, orders=ordered, changes=changes, changes_left_out=left_out,
        invariants=invariants, broken_off=broken_off,
    )  # fmt: skip


def step_of(span_s: float) -> int:
    """The shortest round step of which a span has at most `STEPS_WANTED`."""
    return next((step for step in STEPS_S if span_s / step <= STEPS_WANTED), STEPS_S[-1])


async def _changes(admin: OperatorCalls, event_id: str) -> tuple[list[OperatorChange], bool]:
    """What operators did to the event, oldest first, and whether older entries were left out. What they did to single
    orders is not in it: its reasons may name a fan.
    """
    found: list[OperatorChange] = []
    left_out = False
    logs: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "queue": ("list_queue_changes", {}, {"event_id": event_id}),
        "inventory": ("list_inventory_changes", {}, {"event_id": event_id}),
        "orders": ("list_audit_log", {"subject": f"event:{event_id}"}, {}),
    }
    for service, (operation, query, path) in logs.items():
        entries: list[AuditEntry] = []
        async for page in admin.pages(operation, query={"page_size": CHANGES_PAGE, **query}, **path):
            entries += page.changes
            if page.next is not None and len(entries) >= CHANGES_MAX:
                left_out = True
                break
        found += [OperatorChange(service, entry) for entry in entries]
    return sorted(found, key=lambda change: change.entry.at), left_out


# -- suggested tickets by section --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SectionDemand:
    """Tickets a section sold, and for how many seconds it had any to sell."""

    sold: int
    on_sale: int
    selling_s: float


def suggest_quantities(sections: Mapping[str, SectionDemand]) -> dict[str, int]:
    """How to divide the tickets on sale so that all sections would have sold out together: in proportion to the rate at
    which each sold while it had tickets. Sections that sold less than `SOLD_MIN` tickets keep what they have.

    A section that sold out early hides the demand that came later; its rate while it was open stands for it, as in the
    unconstraining of revenue management (Talluri, van Ryzin: The Theory and Practice of Revenue Management, chapter 9).
    Fans who took another section instead are counted there: the suggestion moves too little rather than too much.
    """
    rates = {name: one.sold / max(1.0, one.selling_s) for name, one in sections.items() if one.sold >= SOLD_MIN}
    total, rate = sum(sections[name].on_sale for name in rates), sum(rates.values())
    shares = {name: total * rates[name] / rate for name in rates}
    whole = {name: math.floor(share) for name, share in shares.items()}
    for name in sorted(shares, key=lambda name: whole[name] - shares[name])[: total - sum(whole.values())]:
        whole[name] += 1  # the largest remainders
    return {name: whole.get(name, one.on_sale) for name, one in sections.items()}
