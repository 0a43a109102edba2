"""Sends the links of a customer's orders again, for who has lost the mail and is in another browser.

Only to the address that an order has, so nobody else learns anything; a repeated request sends nothing for a while.
"""

from services.orders.order.states import SOLD_STATUSES
from shared.postgres.engine import AsyncEngine, statement

ORDERS_MAX = 10
_SEND_AGAIN = statement(__package__, "send_again")


async def send_again(db: AsyncEngine, address: str) -> None:
    """Queues the confirmations of this address's latest orders; of an unknown address none."""
    async with db.begin() as connection:
        await connection.execute(
            _SEND_AGAIN, {"address": address, "statuses": sorted(SOLD_STATUSES), "many": ORDERS_MAX}
        )
