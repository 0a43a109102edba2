"""The invariants of a sale: each service's, asked over its admin API, and the one between two of them."""

from dataclasses import dataclass

from shared.contracts.admin.operator_calls import OperatorCalls


@dataclass(frozen=True, slots=True)
class CheckedInvariant:
    """An invariant, the service that checked it (`both`: orders and inventory), and whether it holds."""

    service: str
    invariant: str
    holds: bool
    detail: str


async def check_invariants(admin: OperatorCalls, event_id: str) -> list[CheckedInvariant]:
    """The invariants of queue, orders and inventory, and the one between orders and inventory.

    Inventory is asked last: what orders had confirmed by then must be sold there.
    """
    line = await admin.check_queue_invariants(event_id)
    money = await admin.check_orders_invariants(event_id)
    stock = await admin.check_inventory_invariants(event_id)
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
