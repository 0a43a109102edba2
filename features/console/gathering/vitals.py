"""What is known of one event at one moment, and the figures of one second made from it. It computes and does nothing
else: no clock, no I/O.

What is not known is null. Nothing is interpolated: a figure is as old as the answer it comes from, and `ages` says so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from features.console.schemas import (
    FunnelStep,
    LineVitals,
    OrderVitals,
    Part,
    ProofVitals,
    RateVitals,
    RoomVitals,
    SectionVitals,
    SellVitals,
    StockVitals,
    StreamVitals,
    Vitals,
    WaitVitals,
)
from shared.contracts.admin.inventory import HoldsFlow, SectionFlow
from shared.contracts.admin.orders import OrdersFlow
from shared.contracts.admin.queue import LineFlow, RoomView
from shared.contracts.frames import LineFrame, LoadFrame, SectionCounts, StockFrame
from shared.report.invariants import CheckedInvariant
from shared.rules.sell_out import Held, forecast

PARTS: tuple[Part, ...] = ("queue", "inventory", "orders", "notifier")
MINUTE_S, RATE_OVER_MS = 60, 12_000
OVERSOLD = (
    "1 database: available + held + sold + blocked = capacity", "2 a seat has at most one live owner",
    "2 sold ≤ capacity",
)  # fmt: skip
DUPLICATES = (
    "3 a holder has one live place", "3 no number is given twice: the counter is at or past the database",
    "6 one order per idempotency key", "6 one order per reservation",
)  # fmt: skip
INVERSIONS = ("5 nobody is called beyond the head",)
CHARGED_TWICE = ("6 one live attempt per order", "7 a confirmed order is paid exactly, or authorised")


class Totals(NamedTuple):
    """Totals that only rise, at one time: their differences are rates."""

    at_ms: int
    called: int | None
    claimed: int | None
    confirmed: int | None


@dataclass(slots=True, kw_only=True)
class Facts:
    """`received_ms`: when each part answered last. `earlier`: totals of the last seconds, oldest first. `notifiers`:
    a fresh frame of each.
    """

    event_id: str
    line: LineFrame | None = None
    stock: StockFrame | None = None
    room: RoomView | None = None
    flow: LineFlow | None = None
    holds: HoldsFlow | None = None
    orders: OrdersFlow | None = None
    notifiers: Sequence[LoadFrame] = ()
    earlier: Sequence[Totals] = ()
    proof: ProofVitals = field(default_factory=ProofVitals)
    received_ms: dict[Part, int] = field(default_factory=dict)


def make_vitals(facts: Facts, *, at_ms: int) -> Vitals:
    """The figures at `at_ms`."""
    recent = [total for total in facts.earlier if at_ms - total.at_ms <= RATE_OVER_MS]
    totals = [*recent, totals_of(facts, at_ms=at_ms)]
    stock = _stock(facts)
    return Vitals(
        event_id=facts.event_id,
        at_ms=at_ms,
        ages={part: _age_s(facts.received_ms.get(part), at_ms) for part in PARTS},
        room=_room(facts),
        line=_line(facts),
        rate=_rate(facts, totals),
        wait=WaitVitals(p50_s=facts.flow.wait.p50_s, p95_s=facts.flow.wait.p95_s) if facts.flow else WaitVitals(),
        stock=stock,
        sell=_sell(facts, stock),
        orders=_orders(facts, totals),
        funnel=_funnel(facts),
        streams=_streams(facts),
        proof=facts.proof,
        without_reports=_without_reports(facts),
    )


def totals_of(facts: Facts, *, at_ms: int) -> Totals:
    """The totals from which later rates are computed."""
    flow, orders = facts.flow, facts.orders
    return Totals(
        at_ms, flow.called if flow else None, flow.claimed if flow else None, orders.confirmed_ever if orders else None
    )


def _without_reports(facts: Facts) -> list[Part]:
    flows: dict[Part, object] = {"queue": facts.flow, "inventory": facts.holds, "orders": facts.orders}
    return [part for part, flow in flows.items() if flow is None and part in facts.received_ms]


def _age_s(received_ms: int | None, at_ms: int) -> float | None:
    return None if received_ms is None else round(max(0, at_ms - received_ms) / 1000, 1)


def _room(facts: Facts) -> RoomVitals:
    line, room = facts.line, facts.room
    return RoomVitals(
        state=line.state if line else room.shown_state if room else None,
        version=line.config_version if line else room.version if room else None,
        active=room.active if room else None,
        max_active=room.max_active if room else None,
        message=line.message if line else room.message if room else None,
    )


def _line(facts: Facts) -> LineVitals:
    line, flow = facts.line, facts.flow
    lanes = list(line.lanes.values()) if line else []
    ahead = sum(max(0, lane.tail_seq - lane.head_seq) for lane in lanes) if line else None
    return LineVitals(
        waiting=flow.waiting if flow else ahead,
        head=sum(lane.head_seq for lane in lanes) if line else None,
        tail=sum(lane.tail_seq for lane in lanes) if line else None,
        live_share=line.live_ratio if line else None,
        called=flow.called if flow else None,
        claimed=flow.claimed if flow else None,
        missed_calls=flow.missed_calls if flow else None,
    )


def _rate(facts: Facts, totals: Sequence[Totals]) -> RateVitals:
    line, room = facts.line, facts.room
    measured = line.calls_per_s if line else None  # unknown while the line is empty
    counted = _per_s([(total.at_ms, total.called) for total in totals])
    return RateVitals(
        set_per_s=room.rate_per_s if room else None,
        effective_per_s=line.effective_rate_per_s if line else room.effective_rate_per_s if room else None,
        called_per_s=counted if measured is None else measured,
        claimed_per_s=_per_s([(total.at_ms, total.claimed) for total in totals]),
        why=_why(line) if line else None,
    )


def _why(line: LineFrame) -> str | None:
    """Why fewer are called than the rate allows."""
    if line.state in ("draft", "paused", "closed", "sold_out"):
        return line.state
    if line.throttled is not None:
        return line.throttled.reason
    if line.stock_bound:
        return "stock"
    return "full" if line.full else None


def _per_s(totals: Sequence[tuple[int, int | None]]) -> float | None:
    """The rise per second between the first and the last known total."""
    known = [(at_ms, total) for at_ms, total in totals if total is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return round(max(0, known[-1][1] - known[0][1]) * 1000 / (known[-1][0] - known[0][0]), 2)


def _free(section: SectionCounts | SectionFlow) -> int:
    """Places that somebody can buy, be it with a code."""
    return section.available + (section.reserved if isinstance(section, SectionCounts) else 0)


def _stock(facts: Facts) -> StockVitals:
    """The places by the last frame if it is complete, else by inventory's database."""
    holds = facts.holds
    counted = facts.stock if facts.stock and facts.stock.ready else holds
    vitals = StockVitals(
        paying=holds.by_status.get("paying", 0) if holds else None,
        oldest_hold_s=holds.oldest_hold_s if holds else None,
    )
    if counted is None:
        return vitals
    found = [
        SectionVitals(section_id=one.section_id, free=_free(one), held=one.held, sold=one.sold)
        for one in counted.sections
    ]
    free, held, sold = (sum(getattr(one, name) for one in found) for name in ("free", "held", "sold"))
    return vitals.model_copy(
        update={"free": free, "held": held, "sold": sold, "total": free + held + sold, "sections": found}
    )


def _sell(facts: Facts, stock: StockVitals) -> SellVitals:
    if facts.orders is None:
        return SellVitals()
    recent = facts.orders.recent
    vitals = SellVitals(per_min=sum(recent.tickets[-MINUTE_S:]))
    if stock.free is None or stock.held is None:
        return vitals
    held, holds = Held(stock.held, 0.0, 0, 0), facts.holds
    if holds is not None:
        held = Held(stock.held, holds.oldest_open_s or 0.0, holds.earlier, holds.earlier_given_back)
    found = forecast(recent.tickets, orders=recent.orders, free=stock.free, held=held)
    if found is None:
        return vitals
    return vitals.model_copy(
        update={
            "out_s": found.expected_s, "out_earliest_s": found.earliest_s, "out_latest_s": found.latest_s,
        }
    )  # fmt: skip


def _orders(facts: Facts, totals: Sequence[Totals]) -> OrderVitals:
    flow = facts.orders
    if flow is None:
        return OrderVitals()
    return OrderVitals(
        pending=flow.by_status.get("pending", 0),
        confirmed=flow.by_status.get("confirmed", 0),
        confirmed_per_s=_per_s([(total.at_ms, total.confirmed) for total in totals]),
        due=flow.due,
        oldest_due_s=None if flow.oldest_due_s is None else max(0.0, flow.oldest_due_s),
        in_review=flow.by_status.get("review", 0),
        declines=flow.declines,
    )


def _funnel(facts: Facts) -> list[FunnelStep]:
    flow, holds, orders = facts.flow, facts.holds, facts.orders
    fans = {
        "joined": flow.joined if flow else None,
        "called": flow.called if flow else None,
        "claimed": flow.claimed if flow else None,
        "held": holds.fans_held if holds else None,
        "ordered": orders.fans_ordered if orders else None,
        "confirmed": orders.fans_confirmed if orders else None,
    }
    return [FunnelStep(name=name, fans=count) for name, count in fans.items()]


def _streams(facts: Facts) -> StreamVitals:
    if not facts.notifiers:
        return StreamVitals()
    return StreamVitals(
        open=sum(frame.streams_open or 0 for frame in facts.notifiers),
        turned_away=sum(frame.streams_rejected or 0 for frame in facts.notifiers),
    )


def proof_of(checked: Iterable[CheckedInvariant], *, at_ms: int) -> ProofVitals:
    """The proof line: what the services' checks of the invariants say about the four promises of a sale.

    Each figure counts the rules that were found broken, by their names in the reports. A rule that nobody checked is
    not known to hold: its figure is null.
    """
    holds = {row.invariant: row.holds for row in checked}

    def broken(rules: tuple[str, ...]) -> int | None:
        found = [holds.get(rule) for rule in rules]
        return None if None in found else found.count(False)

    return ProofVitals(
        oversold=broken(OVERSOLD), duplicates=broken(DUPLICATES), inversions=broken(INVERSIONS),
        charged_twice=broken(CHARGED_TWICE), at_ms=at_ms,
    )  # fmt: skip
