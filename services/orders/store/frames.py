"""Publishes orders to their streams: only those that somebody listens to.

A process that shows an order subscribes to its channel before it reads the order, and an order is written before it is
published. So whoever is not a subscriber yet reads the order as it was written. A frame that is lost is made good by
the process that shows the order: it reads it again when nothing was heard for a while.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from services.orders.model.order import Order
from services.orders.model.view import order_frame
from shared.concurrency.coalescing import GroupCommits
from shared.contracts.frames import order_channel
from shared.redis.client import Redis, subscribed_channels

BATCH_MAX, WAITING_MAX = 200, 5000


class Frames(GroupCommits):
    """Use inside `async with`. A missing Redis is no error."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=1)
        self._redis = redis
        # Publishes an order as it is now.
        self.publish: Callable[[Order], Awaitable[None]] = self.grouped("orders-show", self._publish, rests=True)

    async def _publish(self, orders: Sequence[Order]) -> Sequence[None]:
        with suppress(RedisError, OSError):
            channels = await subscribed_channels(self._redis, [order_channel(order.reference) for order in orders])
            pipe = self._redis.pipeline(transaction=False)
            for order in orders:
                if (channel := order_channel(order.reference)) in channels:
                    pipe.publish(channel, order_frame(order).model_dump_json())
            if channels:
                await pipe.execute()
        return [None] * len(orders)
