"""The invariants of a sale: each service's, asked over its admin API, and the one between two of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from shared.contracts.admin import inventory, orders, queue
from shared.contracts.admin.endpoint import Endpoint

Answer = TypeVar("Answer")


class Ask(Protocol):
    """Asks an endpoint of one service of the suite; what it raises is the caller's."""

    async def __call__(
        self, service: str, endpoint: Endpoint[Answer], query: Mapping[str, Any] | None = None, /, **path_values: str
    ) -> Answer: ...


@dataclass(frozen=True, slots=True)
class CheckedInvariant:
    """An invariant, the service that checked it (`both`: orders and inventory), and whether it holds."""

    service: str
    invariant: str
    holds: bool
    detail: str


async def check_invariants(ask: Ask, event_id: str) -> list[CheckedInvariant]:
    """The invariants of queue, orders and inventory, and the one between orders and inventory.

    Inventory is asked last: what orders had confirmed by then must be sold there.
    """
    line = await ask("queue", queue.CHECK_INVARIANTS, event_id=event_id)
    money = await ask("orders", orders.CHECK_INVARIANTS, event_id=event_id)
    stock = await ask("inventory", inventory.CHECK_INVARIANTS, event_id=event_id)
    rows = [
        CheckedInvariant(service, row.invariant, row.holds, row.detail)
        for service, report in (("queue", line), ("orders", money), ("inventory", stock))
        for row in report.invariants
    ]
    return [*rows, both_sold(money.confirmed, stock.confirmed)]


def both_sold(confirmed: int, sold: int) -> CheckedInvariant:
    """The invariant that no service can check alone: the tickets of every confirmed order are sold to it."""
    detail = f"{confirmed} orders confirmed, {sold} reservations sold"
    return CheckedInvariant("both", "7 confirmed orders are sold", confirmed <= sold, detail)
