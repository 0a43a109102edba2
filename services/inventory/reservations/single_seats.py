"""Single seats: what a fan hears who chooses seats that leave one alone, or gives such seats back.

Whether a choice leaves one alone is decided by the script that makes the hold, in the same step
(`redis_stock/lua/single_seats.lua`). A release is never refused; what it leaves alone is read after it.
"""

from typing import NamedTuple

from services.inventory.layout.layout import Layout
from services.inventory.layout.selection import SeatPosition, Selection, StockSelection
from services.inventory.problems import SingleSeat
from services.inventory.redis_stock.client import HoldGranted, RedisStock
from services.inventory.redis_stock.seat_map import alone_among


class SingleSeats(NamedTuple):
    """The seats left alone, and a choice of as many seats as were chosen that leaves none; None if there is none."""

    left_alone: list[str]
    better: list[str] | None


def left_by_hold(layout: Layout, granted: HoldGranted) -> SingleSeats:
    """What a hold left alone."""
    return _single_seats(layout, granted.left_alone, granted.better)


def refused(layout: Layout, detail: str) -> SingleSeat:
    """The problem for a denial: both choices as text, with a `|` between them."""
    left, _, better = detail.partition("|")
    found = _single_seats(layout, left, better)
    alone, instead = ", ".join(found.left_alone), ", ".join(found.better or [])
    says = f"{alone} would be left alone. Choose {instead} instead, or other seats. Nothing was reserved."
    return SingleSeat(says, seats=found.left_alone, better=found.better)


async def left_by_release(
    redis_stock: RedisStock, layout: Layout, *, before: Selection, after: Selection
) -> SingleSeats | None:
    """What a partial release left alone."""
    released = set(before.stock.seats) - set(after.stock.seats)
    if layout.single_seats == "allow" or not released:
        return None
    alone = await alone_among(redis_stock, layout.event_id, sorted(released))
    return SingleSeats(layout.seat_ids(alone), None) if alone else None


def _single_seats(layout: Layout, left: str, better: str) -> SingleSeats:
    return SingleSeats(_seat_ids(layout, left), _seat_ids(layout, better) if better else None)


def _seat_ids(layout: Layout, places: str) -> list[str]:
    seats: tuple[SeatPosition, ...] = StockSelection.parse(places).seats
    return layout.seat_ids(seats)
