"""Streams of orders: an order is published only to those who listen, and none of its states is missed."""

from typing import Any

import pytest

from services.notifier.feeds import order_feed
from services.orders.requests.requests import change_address
from services.orders.state import State
from services.orders.store import store
from shared.contracts.frames import order_channel
from shared.contracts.orders import OrdersAnswer
from shared.redis.client import subscribed_channels
from tests.notifier.client import SseClient
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import REFERENCE, order_frame
from tests.support.running.services import Neighbours
from tests.support.wait import wait_until

CHANNEL, ADDRESS = order_channel(REFERENCE), "other@example.org"


@pytest.fixture
async def orders(neighbours: Neighbours) -> State:
    return await neighbours.real_orders.open()


async def change(orders: State) -> None:
    """Changes the address of the order, and publishes that to those who are known to listen."""
    order = await orders.store.read(REFERENCE)
    assert order is not None
    await change_address(orders.store, order, ADDRESS, sends_mail=False)
    latest = await orders.store.read(REFERENCE)
    assert latest is not None
    await orders.frames.publish(latest)


def is_changed(client: SseClient) -> bool:
    shown = client.last("order")
    return bool(shown and shown["customer"]["email"] == ADDRESS)


async def lose(*_: Any) -> set[str]:
    """Nobody seems to listen."""
    return set()


async def test_a_listener_is_known_before_its_order_is_read(
    notifier: Notifier, orders: State, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order changes while the stream of it begins, at the latest moment of each side: after the publisher saw that
    nobody listens, and after the order was read for the stream.
    """
    real, listened = notifier.state.feeds._orders.read, list[set[str]]()

    async def read_early(references: list[str]) -> OrdersAnswer:
        listened.append(await subscribed_channels(redis, [CHANNEL]))
        answer = await real(references)
        await change(orders)
        return answer

    assert await subscribed_channels(redis, [CHANNEL]) == set()
    monkeypatch.setattr(notifier.state.feeds._orders, "read", read_early)
    client = await notifier.listen_order()
    await wait_until(lambda: is_changed(client))
    assert listened[0] == {CHANNEL}


async def test_a_change_that_nobody_heard_is_in_the_first_frame_of_a_later_listener(
    notifier: Notifier, orders: State, redis: Any
) -> None:
    await change(orders)
    assert await subscribed_channels(redis, [CHANNEL]) == set()
    client = await notifier.connect_order()
    assert is_changed(client)


async def test_a_lost_frame_of_an_order_is_made_good(
    start: Start, orders: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_feed, "SILENT_MAX_S", 0.3)
    notifier = await start()
    client = await notifier.connect_order()
    monkeypatch.setattr(store, "subscribed_channels", lose)
    await change(orders)
    await wait_until(lambda: is_changed(client))


async def test_an_order_that_was_heard_of_or_has_ended_is_read_again_rarely(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_feed, "SILENT_MAX_S", 0.2)
    notifier = await start()
    await notifier.connect_order()
    [feed] = notifier.state.feeds._feeds.values()
    last_s = max(feed.loaded_s, feed.channels[CHANNEL].received_s)
    assert (feed.is_due(last_s + 0.19), feed.is_due(last_s + 0.21)) == (False, True)
    await notifier.publish(order_frame(1, "confirmed"))
    await wait_until(lambda: getattr(feed.channels[CHANNEL].frame, "status", None) == "confirmed")
    ended_s = feed.channels[CHANNEL].received_s + order_feed.ENDED_SILENT_MAX_S
    assert (feed.is_due(ended_s - 0.01), feed.is_due(ended_s + 0.01)) == (False, True)
