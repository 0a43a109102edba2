"""The capacity plan: when the present line would be drained and everything sold at a given rate, and what limits it.

It uses measured values: the share of live places, and how long one call occupies a slot. By Little's law `max_active`
slots of `slot_s` seconds let `max_active / slot_s` calls a second through, however high the rate is set. A call sells
its share of buyers times the tickets of a holder. The band of the sell-out runs from every claimed call buying, of what
is free, to only the share measured, of what is free or held; unknown tickets per buyer are one to the most allowed.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter

from services.queue.admin.rooms import ROOM
from services.queue.rooms.model import WaitingRoom
from services.queue.state import StateDep
from shared.contracts.admin.queue import CapacityPlan, PlanRequest
from shared.contracts.frames import LineFrame, StockFrame
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.clock import from_datetime, now_ms, to_datetime
from shared.security.auth import Viewer
from shared.web.request import EventIdPath

SLOT_USE = statement(__package__, "slot_use")
HOLDERS_MIN = 5  # that are needed for a meaningful average of their tickets
ENDED_MIN = 5  # ended calls that are needed for a meaningful average
router = APIRouter(tags=["admin"])
LimitingFactor = Literal["rate", "max_active", "nobody waits", "nothing moves"]


@dataclass(frozen=True)
class SlotUse:
    """Averages of the last calls: how long each occupies a slot, which share is claimed, and which share of those that
    are over bought; None if unknown.
    """

    slot_s: float | None = None
    claimed_share: float | None = None
    bought_share: float | None = None


async def slot_use(db: AsyncEngine, room: WaitingRoom, *, at_ms: int) -> SlotUse:
    """Measures the last calls in the database; unknown while too few have ended."""
    values = {
        "event_id": room.event_id, "epoch": room.epoch, "now_ms": at_ms,
        "claim_window_ms": room.claim_window_s * 1000,
    }  # fmt: skip
    async with db.connect() as connection:
        row = (await connection.execute(SLOT_USE, values)).one()
    if row.over < ENDED_MIN:
        return SlotUse()
    return SlotUse(round(row.taken_s / row.over, 1), round(row.claimed / row.calls, 2), row.bought / row.over)


def make_plan(
    room: WaitingRoom,
    frame: LineFrame,
    use: SlotUse,
    request: PlanRequest,
    *,
    stock: StockFrame | None = None,
    at_ms: int | None = None,
) -> CapacityPlan:
    """The plan for the present line. A paused room is planned as if it resumed now."""
    at_ms = now_ms() if at_ms is None else at_ms
    rate = request.rate_per_s if request.rate_per_s is not None else room.rate_per_s
    max_active = request.max_active if request.max_active is not None else room.max_active
    waiting = sum(max(0, lane.tail_seq - lane.head_seq) for lane in frame.lanes.values())
    expected = math.ceil(waiting * frame.live_ratio)
    through = max_active / use.slot_s if use.slot_s else math.inf
    calls_per_s = min(rate, through) if max_active else 0.0
    limit = _limiting_factor(expected, rate, through if max_active else 0.0)
    starts_ms = max(at_ms, from_datetime(room.sale_starts_at) if room.sale_starts_at else 0)
    drains_at_ms = starts_ms + math.ceil(expected * 1000 / calls_per_s) if calls_per_s > 0 else None
    return CapacityPlan(
        summary=_summary(
            rate_per_s=rate,
            calls=expected,
            limit=limit,
            calls_per_s=calls_per_s,
            drains_at_ms=drains_at_ms,
            max_active=max_active,
            slot_s=use.slot_s,
        ),
        waiting=waiting,
        expected_calls=expected,
        rate_per_s=rate,
        calls_per_s=round(calls_per_s, 3),
        limiting_factor=limit,
        max_active=max_active,
        slot_s=use.slot_s,
        claimed_share=use.claimed_share,
        drains_in_s=None if drains_at_ms is None else math.ceil((drains_at_ms - at_ms) / 1000),
        drains_at=None if drains_at_ms is None else to_datetime(drains_at_ms),
        **_sell_out(room, use, stock, calls=expected, calls_per_s=calls_per_s, starts_ms=starts_ms),
    )


def _sell_out(
    room: WaitingRoom, use: SlotUse, stock: StockFrame | None, *, calls: int, calls_per_s: float, starts_ms: int
) -> dict[str, Any]:
    """When this many calls sell everything, and how many of them come after that; nothing without a stock."""
    if stock is None:
        return {}
    most, least = _tickets_per_buyer(room, stock)
    claimed = max(use.claimed_share or 1.0, use.bought_share or 0.0)  # the shares are of different calls
    likely = use.bought_share or claimed
    needed = {
        "earliest": stock.available / (claimed * most),
        "likely": stock.available / (likely * (most + least) / 2),
        "latest": (stock.available + stock.held) / (use.bought_share * least) if use.bought_share else math.inf,
    }
    if needed["likely"] > calls or calls_per_s <= 0:
        return {"in_vain": 0}
    at = {
        name: None if math.isinf(count) else to_datetime(starts_ms + math.ceil(count * 1000 / calls_per_s))
        for name, count in needed.items()
    }
    return {
        "sells_out_at": at["likely"], "sells_out_between": [at["earliest"], at["latest"]],
        "in_vain": calls - math.ceil(needed["likely"]),
    }  # fmt: skip


def _tickets_per_buyer(room: WaitingRoom, stock: StockFrame) -> tuple[float, float]:
    """The most and the least: as holders hold now, if enough do."""
    if stock.holders_holding >= HOLDERS_MIN:
        now = min(float(room.tickets_per_order), max(1.0, stock.held / stock.holders_holding))
        return now, now
    return float(room.tickets_per_order), 1.0


def _limiting_factor(expected: int, rate: float, through: float) -> LimitingFactor:
    if min(rate, through) <= 0:
        return "nothing moves"
    if expected == 0:
        return "nobody waits"
    return "rate" if rate <= through else "max_active"


def _summary(
    *, rate_per_s: float, calls: int, limit: LimitingFactor, calls_per_s: float, drains_at_ms: int | None,
    max_active: int, slot_s: float | None,
) -> str:  # fmt: skip
    if limit == "nobody waits":
        return "Nobody waits."
    if drains_at_ms is None:
        return "With these values nobody is called."
    at = f"{to_datetime(drains_at_ms):%H:%M} UTC"
    text = f"With a rate of {rate_per_s:g} a second the line drains at {at}: {calls} calls."
    if limit == "max_active":
        text += (
            f" max_active {max_active} limits: a call occupies its slot for {slot_s:g} s, "
            f"so at most {calls_per_s:.3g} a second come in."
        )
    elif slot_s is None:
        text += " How long a call occupies a slot is not known yet; max_active may limit."
    return text


@router.post(ROOM + "/capacity-plan", operation_id="plan_capacity", summary="Preview a rate without setting it")
async def plan(event_id: EventIdPath, request: PlanRequest, _operator: Viewer, state: StateDep) -> CapacityPlan:
    """When the present line would be drained and everything be sold, how many wait in vain, and what limits it."""
    room = await state.rooms.read(event_id)
    use = await slot_use(state.rooms.db, room, at_ms=now_ms() + state.line.clock_offset_ms)
    stock = state.gatekeeper.stock_cache.fresh(event_id)
    return make_plan(room, await state.gatekeeper.frame(event_id), use, request, stock=stock)
