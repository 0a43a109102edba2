"""What is known of one event at one moment: the last frames and answers, and when each part answered last."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.contracts.admin.console import Part, ProofVitals
from shared.contracts.admin.inventory import HoldsFlow
from shared.contracts.admin.order_reports import OrdersFlow
from shared.contracts.admin.queue import LineFlow, RoomView
from shared.contracts.frames import LineFrame, LoadFrame, StockFrame


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
