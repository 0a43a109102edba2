"""The dry run: with this rate, when is the line as it is now drained, and what holds it up?

From what was measured: the share of places that live, how long a call takes up a slot. By Little's law `max_active`
slots of `slot_s` seconds let through `max_active / slot_s` calls a second, however high the rate is set.
"""

import math
from dataclasses import dataclass
from typing import Literal

from services.queue.admin.schemas import PlanRequest, PlanView
from services.queue.rooms.model import WaitingRoom
from shared.contracts.frames import LineFrame
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.clock import from_datetime, now_ms, to_datetime

SLOT_USE = statement(__package__, "slot_use")
OVER_MIN = 5  # calls that must be over before their length says something
Bound = Literal["rate", "max_active", "nobody waits", "nothing moves"]


@dataclass(frozen=True)
class SlotUse:
    """Of the last calls: how long each takes up a slot, and which share of them is claimed."""

    slot_s: float | None = None
    claimed_share: float | None = None


async def slot_use(db: AsyncEngine, room: WaitingRoom, *, at_ms: int) -> SlotUse:
    """As the ledger tells; nothing while too few calls are over."""
    values = {
        "event_id": room.event_id, "epoch": room.epoch, "now_ms": at_ms,
        "claim_window_ms": room.claim_window_s * 1000,
    }  # fmt: skip
    async with db.connect() as connection:
        row = (await connection.execute(SLOT_USE, values)).one()
    if row.over < OVER_MIN:
        return SlotUse()
    return SlotUse(round(row.taken_s / row.over, 1), round(row.claimed / row.calls, 2))


def planned(
    room: WaitingRoom, frame: LineFrame, use: SlotUse, wish: PlanRequest, *, at_ms: int | None = None
) -> PlanView:
    """The plan from the live line. A paused room is taken as if it went on now."""
    at_ms = now_ms() if at_ms is None else at_ms
    rate = wish.rate_per_s if wish.rate_per_s is not None else room.rate_per_s
    max_active = wish.max_active if wish.max_active is not None else room.max_active
    waiting = sum(max(0, lane.tail_seq - lane.head_seq) for lane in frame.lanes.values())
    expected = math.ceil(waiting * frame.live_ratio)
    through = max_active / use.slot_s if use.slot_s else math.inf
    calls_per_s = min(rate, through) if max_active else 0.0
    bound = _bound(expected, rate, through if max_active else 0.0)
    starts_ms = max(at_ms, from_datetime(room.sale_starts_at) if room.sale_starts_at else 0)
    drains_at_ms = starts_ms + math.ceil(expected * 1000 / calls_per_s) if calls_per_s > 0 else None
    return PlanView(
        sentence=_sentence(rate, expected, bound, calls_per_s, drains_at_ms, max_active, use),
        waiting=waiting,
        expected_calls=expected,
        rate_per_s=rate,
        calls_per_s=round(calls_per_s, 3),
        bound_by=bound,
        max_active=max_active,
        slot_s=use.slot_s,
        claimed_share=use.claimed_share,
        drains_in_s=None if drains_at_ms is None else math.ceil((drains_at_ms - at_ms) / 1000),
        drains_at=None if drains_at_ms is None else to_datetime(drains_at_ms),
    )


def _bound(expected: int, rate: float, through: float) -> Bound:
    if min(rate, through) <= 0:
        return "nothing moves"
    if expected == 0:
        return "nobody waits"
    return "rate" if rate <= through else "max_active"


def _sentence(
    rate: float, expected: int, bound: Bound, calls_per_s: float, drains_at_ms: int | None, max_active: int,
    use: SlotUse,
) -> str:  # fmt: skip
    if bound == "nobody waits":
        return "Nobody waits."
    if drains_at_ms is None:
        return "With these values nobody is called."
    at = f"{to_datetime(drains_at_ms):%H:%M} UTC"
    told = f"With a rate of {rate:g} a second the line drains at {at}: {expected} calls."
    if bound == "max_active":
        told += (
            f" max_active {max_active} binds: a call takes up its slot for {use.slot_s:g} s, "
            f"so at most {calls_per_s:.3g} a second come in."
        )
    elif use.slot_s is None:
        told += " How long a call takes up a slot is not known yet; max_active may bind."
    return told
