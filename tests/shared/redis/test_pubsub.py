"""A silent subscription wakes its process only to ping the server."""

import pytest

from shared.redis import pubsub
from shared.redis.client import Redis
from shared.redis.pubsub import Subscription


async def test_a_silent_subscription_is_read_once_between_two_pings(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub, "ANSWER_WITHIN_S", 0.1)
    async with Subscription(redis) as subscription:
        await subscription.subscribe("nothing")
        read = [message and message["type"] for message in [await subscription.next() for _ in range(5)]]
    assert read == ["subscribe", None, "pong", None, "pong"]
