"""Publishes orders to their streams, the latest again for a while: a lost frame is made good within seconds."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from services.orders.model.order import Order
from services.orders.model.view import order_frame
from shared.concurrency.group_commit import GroupCommits
from shared.contracts.frames import order_channel
from shared.redis.client import Redis

REPEATED_S = 30.0
REPEATED_MAX = 500  # the latest
BATCH_MAX, WAITING_MAX = 200, 5000


class Frames(GroupCommits):
    """Use inside `async with`. A missing Redis is no error."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=1)
        self._redis = redis
        self._latest: OrderedDict[str, tuple[float, Order]] = OrderedDict()
        # Publishes an order as it is now.
        self.publish: Callable[[Order], Awaitable[None]] = self.grouped("orders-show", self._publish_new, rests=True)

    async def repeat(self) -> None:
        """Publishes what this process published of late again."""
        since_s = time.monotonic() - REPEATED_S
        while self._latest and next(iter(self._latest.values()))[0] < since_s:
            self._latest.popitem(last=False)
        if self._latest:
            await self._send([order for _, order in self._latest.values()])

    async def _publish_new(self, orders: Sequence[Order]) -> Sequence[None]:
        for order in orders:
            self._latest.pop(order.reference, None)
            self._latest[order.reference] = time.monotonic(), order
        while len(self._latest) > REPEATED_MAX:
            self._latest.popitem(last=False)
        return await self._send(orders)

    async def _send(self, orders: Sequence[Order]) -> Sequence[None]:
        pipe = self._redis.pipeline(transaction=False)
        for order in orders:
            pipe.publish(order_channel(order.reference), order_frame(order).model_dump_json())
        with suppress(RedisError, OSError):
            await pipe.execute()
        return [None] * len(orders)
