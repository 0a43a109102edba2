"""Polls and streams of orders in work: answered from memory, and published only to those who listen."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from services.orders import internal
from services.orders.model.order import Order
from services.orders.model.view import order_frame
from services.orders.store import store as store_module
from services.orders.worker.worker import SWEEP_S
from shared.contracts.frames import OrderFrame, order_channel
from shared.contracts.orders import OrdersQuestion
from tests.orders.conftest import OrdersProcesses
from tests.orders.shop import Shop, pass_header
from tests.support.wait import wait_until

SYNC_S = 60.0  # long before an order is due by itself


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The references that are read in the database meanwhile."""
    found, real = list[str](), store_module._rows_in

    async def rows_in(connection: Any, references: list[str]) -> Any:
        found.extend(references)
        return await real(connection, references)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_rows_in", rows_in)
        yield found


async def waits_for_the_fan(shop: Shop) -> str:
    """An order of this process that waits for its fan at the provider, and is known as it was written."""
    reference = await shop.order(method="redirect")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    await wait_until(lambda: not shop.state.worker.in_work())
    await wait_until(lambda: shop.state.worker.known(reference) is not None)
    return reference


async def row_view(shop: Shop, reference: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The order as its customer reads it, by the database."""
    with monkeypatch.context() as patch:
        patch.setattr(shop.state.worker, "known", lambda _: None)
        return await shop.view(reference)


async def test_an_order_in_work_is_polled_without_the_database(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = await processes.open(provider_sync_interval_s=SYNC_S, inline_slots_max=0)
    await wait_until(lambda: shop.state.worker._hears)
    with shop.busy_workers():
        new = await shop.order()
        with counted_reads(monkeypatch) as reads:
            view = await shop.view(new)
            assert (view["status"], view["progress"], reads) == ("pending", "paying", [])
        left = "expires_in_seconds"
        assert {**view, left: 0} == {**await row_view(shop, new, monkeypatch), left: 0}
    await shop.wait_until_settled(new, "confirmed")
    waiting = await waits_for_the_fan(shop)
    with counted_reads(monkeypatch) as reads:
        assert (await shop.view(waiting))["progress"] == "your-turn"
        stranger = await shop.http.get(f"/orders/{waiting}", headers={"authorization": "Bearer nonsense"})
        assert (stranger.status_code, reads) == (401, [])
        shop.state.store.sold.clear()
        assert (await shop.view(new))["status"] == "confirmed"
        assert reads == [new], "an order that is not in work is read"


async def test_what_was_asked_of_an_order_is_seen_in_its_next_poll(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = [await processes.open(provider_sync_interval_s=SYNC_S) for _ in range(2)]
    await wait_until(lambda: owner.state.worker._hears)
    for asked in (owner, other):
        reference = await waits_for_the_fan(owner)
        address = f"{uuid.uuid4().hex}@example.org"
        body = {"email": address, "check_spelling": False}
        with owner.busy_workers():  # until somebody works on it again it is not read anew
            assert (await asked.http.post(f"/orders/{reference}/email", json=body, headers=pass_header())).is_success
            if asked is owner:
                assert (await owner.view(reference))["customer"]["email"] == address

        async def shows(reference: str = reference, address: str = address) -> bool:
            return bool((await owner.view(reference))["customer"]["email"] == address)

        await wait_until(shows, timeout_s=SWEEP_S / 2)
        left = "expires_in_seconds"
        assert {**await owner.view(reference), left: 0} == {**await row_view(owner, reference, monkeypatch), left: 0}


async def test_an_order_that_was_just_sold_is_polled_without_the_database_until_something_is_asked_of_it(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = [await processes.open(provider_sync_interval_s=SYNC_S) for _ in range(2)]
    monkeypatch.setattr(owner.state.store, "sold", sold := dict[str, Order]())  # kept for longer than a second
    await wait_until(lambda: owner.state.worker._hears)
    for asked in (owner, other):
        reference = await owner.order()
        await wait_until(partial(sold.__contains__, reference))
        with counted_reads(monkeypatch) as reads:
            assert ((view := await owner.view(reference))["status"], reads) == ("confirmed", [])
        assert view == await row_view(owner, reference, monkeypatch)
        address = f"{uuid.uuid4().hex}@example.org"
        body = {"email": address, "check_spelling": False}
        assert (await asked.http.post(f"/orders/{reference}/email", json=body, headers=pass_header())).is_success

        def is_forgotten(reference: str = reference) -> bool:
            return reference not in sold

        await wait_until(is_forgotten)
        assert (await owner.view(reference))["customer"]["email"] == address


async def test_a_sold_order_that_changes_is_forgotten_before_anybody_hears_of_it(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its mail could not be sent: no process is asked to look at it."""
    shop = await processes.open()
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    store = shop.state.store
    store.sold[reference] = await shop.row(reference)

    async def lose(*_: Any) -> None:
        return None

    monkeypatch.setattr(store_module, "notify", lose)
    await store.forget_sold([reference])
    assert reference not in store.sold


async def test_a_process_that_is_silent_or_deaf_asks_the_database(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = await processes.open(provider_sync_interval_s=SYNC_S)
    worker = shop.state.worker
    await wait_until(lambda: worker._hears)
    reference = await waits_for_the_fan(shop)
    for attribute, value in (("_beat_s", None), ("_hears", False)):
        of = worker._heartbeat if attribute == "_beat_s" else worker
        with monkeypatch.context() as patch, counted_reads(patch) as reads:
            patch.setattr(of, attribute, value)
            assert worker.known(reference) is None
            assert (await shop.view(reference))["status"] == "pending"
            assert reads == [reference]


async def test_what_was_known_while_a_process_was_deaf_is_forgotten_once_it_hears(processes: OrdersProcesses) -> None:
    """Somebody may have asked something of it meanwhile."""
    shop = await processes.open(provider_sync_interval_s=SYNC_S)
    worker = shop.state.worker
    await wait_until(lambda: worker._hears)
    reference = await waits_for_the_fan(shop)
    again = asyncio.create_task(worker.listen())
    await wait_until(lambda: worker.known(reference) is None, timeout_s=SYNC_S / 4)
    assert worker._hears
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_an_answer_that_was_read_before_a_request_is_not_kept_after_it(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run reads the order, and before it has the answer something is asked of it."""
    shop = await processes.open(provider_sync_interval_s=SYNC_S)
    worker = shop.state.worker
    await wait_until(lambda: worker._hears)
    reference = await waits_for_the_fan(shop)
    read, go_on, real = asyncio.Event(), asyncio.Event(), shop.state.store.read_claimed

    async def read_late(claim: Any) -> Any:
        order = await real(claim)
        read.set()
        await go_on.wait()
        return order

    monkeypatch.setattr(shop.state.store, "read_claimed", read_late)
    await shop.state.store.wake([reference])
    await read.wait()
    await shop.state.store.wake([reference])
    worker._store.latest[reference] = await shop.row(reference)  # what the run is about to keep
    assert worker.known(reference) is None
    go_on.set()
    await wait_until(lambda: worker.known(reference) is not None)


async def test_streams_of_orders_get_them_from_memory_too(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = await processes.open(provider_sync_interval_s=SYNC_S)
    await wait_until(lambda: shop.state.worker._hears)
    reference, unknown = await waits_for_the_fan(shop), "UNKNOWN12345"
    with counted_reads(monkeypatch) as reads:
        answer = await internal.read(shop.state, OrdersQuestion(references=[reference, unknown]))
    assert [frame and frame.reference for frame in answer.orders] == [reference, None]
    assert reads == [unknown]


async def test_only_orders_that_somebody_listens_to_are_published(
    processes: OrdersProcesses, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = await processes.open()
    made = list[str]()

    def encoded(order: Order) -> OrderFrame:
        made.append(order.reference)
        return order_frame(order)

    monkeypatch.setattr("services.orders.store.store.order_frame", encoded)
    with shop.busy_workers():
        heard, unheard = await shop.order(), await shop.order()
        async with redis.pubsub() as listener:
            await listener.subscribe(order_channel(heard))
            await shop.state.frames.publish(await shop.row(unheard))
            await shop.state.frames.publish(await shop.row(heard))
            received = list[bytes]()

            async def arrived() -> bool:
                message = await listener.get_message(ignore_subscribe_messages=True, timeout=0.1)
                received.extend([message["channel"]] if message else [])
                return bool(received)

            await wait_until(arrived)
    assert (made, received) == ([heard], [order_channel(heard).encode()])
