"""Sends the links of a customer's orders again, for who has lost the mail and is in another browser.

Only to the address that an order has, so nobody else learns anything; a repeated request sends nothing for a while.
"""

from services.orders.model.states import SOLD_STATUSES
from shared.postgres.engine import AsyncEngine, statement
from shared.rules.email_addresses import spellings

ORDERS_MAX = 10
_SEND_AGAIN = statement(__package__, "send_again")


async def send_again(db: AsyncEngine, address: str) -> None:
    """Queues the confirmations of this address's latest orders; of an unknown address none."""
    in_ascii, in_unicode = spellings(address)
    bound = {"address": in_ascii, "in_unicode": in_unicode, "statuses": sorted(SOLD_STATUSES), "many": ORDERS_MAX}
    async with db.begin() as connection:
        await connection.execute(_SEND_AGAIN, bound)
