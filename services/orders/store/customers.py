"""Customers of orders: who owns an order, and the orders of a customer.

An order remembers its owner as `event_id:holder`, its owner id; a signed-in user is the same holder at every event.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, literal_column, or_, select

from services.orders.tables import HOLDER_SQL, SIGNED_IN_SQL, order
from shared.postgres.engine import AsyncEngine


def owner_id(event_id: str, holder: str) -> str:
    """The owner id of an order: one holder at one event."""
    return f"{event_id}:{holder}"


class Customer(NamedTuple):
    """Who buys: a holder at one event or, without an event, a signed-in user."""

    event_id: str | None
    holder: str

    def owns(self, owner: str) -> bool:
        """Whether an order with this owner id is this customer's."""
        event_id, _, holder = owner.partition(":")
        return holder == self.holder and self.event_id in (None, event_id)


async def references_of(
    db: AsyncEngine, customers: Sequence[Customer], opened: Sequence[str] = (), *, page: int, page_size: int
) -> list[str]:
    """References of these customers' orders and of the `opened` ones, newest first."""
    newest = select(order.c.reference).where(or_(order.c.reference.in_(opened), *map(_ordered_by, customers)))
    newest = newest.order_by(order.c.created_at.desc(), order.c.reference)
    async with db.connect() as connection:
        return list(await connection.scalars(newest.limit(page_size).offset((page - 1) * page_size)))


def _ordered_by(customer: Customer) -> ColumnElement[bool]:
    if customer.event_id is not None:
        return order.c.owner_id == owner_id(customer.event_id, customer.holder)
    return and_(literal_column(SIGNED_IN_SQL), literal_column(HOLDER_SQL) == customer.holder)
