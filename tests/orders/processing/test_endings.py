"""Fans cancel and pay again, and workers die meanwhile. Every other ending is a story of `test_failpoints`. Orders that
are opened again, and owners that are alive again: what was decided before changes nothing any more.

The gauges of waiting work say what the worker of this process has to do.

The heartbeat of a process: providers are called, and orders are written, only while others see that it is alive.
Clocks step while an order waits for its fan: it never ends before its announced deadline.
"""

import asyncio
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from services.orders.model.order import OpenOrder
from services.orders.model.update import OrderUpdate
from services.orders.requests import requests
from services.orders.steps import purchase
from services.orders.steps.run import Heartbeat, OrderRun, ProviderClient
from services.orders.store.store import NotWritten, OrderLost
from services.orders.worker import worker
from services.orders.worker import worker as worker_module
from shared.http.outgoing import ExternalResponse, NotReached
from shared.payment_provider import ProviderRejected
from shared.process.clock_offsets import read_clocks
from shared.process.load import Load
from tests.inventory.clocks import Steps, each_clock
from tests.inventory.clocks import steps as steps  # noqa: PLC0414 - a fixture
from tests.orders.conftest import OrdersProcesses
from tests.orders.manual_orders import PAY_TTL_S, ManualShop, open_manual_shop
from tests.support.running.suite import problem
from tests.support.wait import wait_until


async def test_a_fan_pays_by_another_card_after_a_decline_and_no_more_once_it_is_sold(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    order = await shop.view(reference)
    assert (order["status"], order["attempt"]["reason"]) == ("pending", "card_declined")
    assert (await shop.pay_again(reference)).status_code == 202
    await shop.wait_until_settled(reference, "confirmed")
    assert [c["idempotency_key"] for c in await shop.charges(reference)] == [f"{reference}:1", f"{reference}:2"]
    assert problem(await shop.pay_again(reference, key="third")) == (409, "order-not-pending")
    assert problem(await shop.cancel(reference)) == (409, "order-not-pending")


async def test_a_second_attempt_is_refused_while_the_first_is_live(shop):
    reference = await shop.order(method="redirect")
    assert problem(await shop.pay_again(reference)) == (409, "payment-in-progress")


async def test_an_order_is_tried_to_be_paid_twenty_times_at_most(shop, monkeypatch):
    monkeypatch.setattr(requests, "ATTEMPTS_MAX", 1)
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    assert problem(await shop.pay_again(reference)) == (409, "limit-exceeded")
    assert (await shop.view(reference))["attempt"]["n"] == 1


async def test_an_order_is_cancelled_before_payment_once(shop):
    reservation = await shop.inventory.hold()
    reference = await shop.order_of(reservation, method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    assert (await shop.cancel(reference)).is_success
    await wait_until(lambda: shop.inventory.has_status(reservation, "cancelled"))
    assert (await shop.cancel(reference)).status_code == 200
    assert shop.inventory.steps.count("release") == 1


async def test_a_worker_that_died_during_the_charge_leaves_the_attempt_unknown(processes):
    """A cancel request therefore reads the charge from the provider first, and finds it paid."""
    died = list[str]()

    async def die_once(name: str, reference: str) -> None:
        if name == "after the provider" and not died:
            died.append(reference)
            raise asyncio.CancelledError

    shop = await processes.open(failpoint=die_once)
    reference = await shop.order()
    await wait_until(lambda: died)
    await shop.lose(reference)
    assert (await shop.cancel(reference)).status_code == 202
    await shop.wait_until_settled(reference, "confirmed")
    assert "release" not in shop.inventory.steps


async def test_stock_sold_by_a_stopped_worker_is_returned_if_the_order_ended(processes):
    """The worker stopped between inventory's confirmation and its own update; another worker ended the order unpaid."""
    shop = await processes.open()
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    reservation_id = await shop.inventory.hold()
    reference = await shop.order_of(reservation_id)
    await shop.inventory.sell(reservation_id)
    assert (await shop.cancel(reference)).status_code in (200, 202)
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    await shop.wait_for_status(reference, "cancelled")
    await wait_until(lambda: shop.inventory.has_status(reservation_id, "returned"))


async def test_a_sale_stays_that_another_process_made_while_this_one_was_silent(manual):
    """This one read the order as it had ended, and asks inventory to release its hold only now."""
    reservation_id = await manual.inventory.hold()
    reference = await manual.order_of(reservation_id)
    await manual.work()
    state = manual.state
    run = OrderRun(state.worker._processor.parts, OpenOrder(reference, "silent", 0))
    with pytest.raises(NotWritten):
        await purchase.release_hold(run, await state.store.read(reference))
    assert await manual.inventory.has_status(reservation_id, "confirmed")


async def test_an_order_whose_hold_was_taken_by_force_is_refunded(manual):
    """Inventory does not sell it, so it is not sold here either, and its money goes back."""
    reservation_id = await manual.inventory.hold()
    reference = await manual.order_of(reservation_id)
    await manual.inventory.expire(reservation_id)
    await manual.inventory.sell_to_another(reservation_id)
    for _ in range(3):
        await manual.work()
        await manual.travel(60)
    assert await manual.status(reference) == "refunded"
    assert [kind for kind, *_ in await manual.money_entries()] == ["charge", "refund"]


async def test_a_run_from_before_an_order_was_closed_writes_nothing_into_its_next_life(manual: ManualShop) -> None:
    """Its owner is the same again, and as much was asked of it. Nor does the run read the order as its own."""
    store, reference = manual.state.store, await manual.order()
    await manual.work()

    async def opened_again() -> OpenOrder:
        await store.wake([reference], sync=True)
        [[epoch]] = await manual.query("SELECT epoch FROM orders.open_order")
        return OpenOrder(reference, store.owner, epoch)

    before = await opened_again()
    left = await store.read_claimed(before)
    await manual.work()
    now = await opened_again()
    with pytest.raises(NotWritten):
        await store.save(OrderUpdate(left, before).set_order(status="refunded"))
    assert await manual.status(reference) == "confirmed"
    for stale in (before, before._replace(epoch=0)):
        with pytest.raises(OrderLost):
            await store.read_claimed(stale)
    update = OrderUpdate(await store.read_claimed(now), now).set_order(dispute="open")
    await store.save(update)
    assert (await manual.row(reference)).dispute == "open"
    assert (await manual.row(reference)).sync_requested, "what was asked since is still to be done"


async def test_a_sync_that_is_requested_before_the_sale_is_done_after_it(manual: ManualShop) -> None:
    """An order that is sold on money it knows already is not closed with its sale then."""
    reference = await manual.order(method="late_success")
    await manual.work()
    manual.finish_delayed_charges()
    manual.failpoint.next = ("before confirm", "sleeps")
    await manual.state.store.wake([reference], sync=True)
    await manual.work()
    await manual.state.store.wake([reference], sync=True)
    await manual.failpoint.wake()
    assert await manual.status(reference) == "confirmed"
    assert "before sync_provider" in manual.failpoint.passed[reference][-4:], manual.failpoint.passed[reference]


async def test_a_process_that_beats_again_before_it_is_taken_over_keeps_its_orders(manual: ManualShop) -> None:
    reference = await manual.order()
    await manual.run("UPDATE orders.open_order SET owner = 'late'")
    await manual.run("INSERT INTO orders.process (owner) VALUES ('late')")
    found_dead = {"dead": ["late"], "takeover_s": 5.0, "many": 10}
    assert await manual.state.worker._fetch(worker._TAKE_OVER, **found_dead) == []
    await manual.run("UPDATE orders.process SET beat_at = now() - interval '6 s' WHERE owner = 'late'")
    [taken] = await manual.state.worker._fetch(worker._TAKE_OVER, **found_dead)
    assert (taken.reference, taken.epoch) == (reference, 1)


async def test_a_sync_that_is_requested_before_the_charge_finds_a_second_one(manual: ManualShop) -> None:
    """What the provider answers to the charge tells of that charge alone."""
    reference = await manual.order(method="double_success")
    await manual.state.store.wake([reference], sync=True)
    await manual.work()
    manual.outgoing_webhooks.webhooks.clear()
    assert await manual.status(reference) == "confirmed"
    assert (len(await manual.charges(reference)), await manual.net_minor(reference)) == (2, 6800)


async def test_a_sync_that_is_requested_before_a_rejected_refund_finds_a_second_charge(manual: ManualShop) -> None:
    """The charge that is read after the rejection tells of itself alone, and the order in review is still synced."""
    reference = await manual.order(method="double_success")
    await manual.work()
    manual.outgoing_webhooks.webhooks.clear()
    assert len((await manual.row(reference)).charges) == 1

    async def reject(*_: Any, **__: Any) -> str:
        raise ProviderRejected("never")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manual.state.providers["sandbox"], "refund", reject)
        assert (await manual.admin_post(f"{reference}/refund", amount_minor=100, key="k")).status_code == 202
        await manual.state.store.wake([reference], sync=True)
        await manual.work()
    assert await manual.status(reference) == "review"
    assert len((await manual.row(reference)).charges) == 2


def value(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(name, labels)
    assert found is not None
    return found


async def test_due_orders_are_counted_until_a_worker_has_done_them(manual: ManualShop) -> None:
    worker = manual.state.worker
    await worker.sweep()
    assert (value("orders_due"), value("orders_oldest_due_seconds")) == (0, 0)
    for _ in range(3):
        await manual.order()
    for held in worker._held.values():
        held.since_s = asyncio.get_running_loop().time() - 20
    await worker.sweep()
    assert value("orders_due") == 3
    assert 20 <= value("orders_oldest_due_seconds") < 60
    charged = value("orders_step_seconds_count", step="charge")
    await manual.work()
    await worker.sweep()
    assert (value("orders_due"), value("orders_oldest_due_seconds")) == (0, 0)
    assert value("orders_step_seconds_count", step="charge") == charged + 3


TAKEOVER_S = 5.0


class Provider:
    """A provider as a process with this heartbeat calls it; `calls` are those that it got."""

    def __init__(self) -> None:
        self.now_s, self.calls = 100.0, 0
        self.heartbeat = Heartbeat(TAKEOVER_S, lambda: self.now_s)
        self._client = ProviderClient(cast(Any, self), Load("orders").purchases, self.heartbeat)

    async def request(self, method: str, url: str, **_: Any) -> ExternalResponse:
        self.calls += 1
        return ExternalResponse(200, {}, b"")

    async def charge(self) -> None:
        await self._client.request("POST", "/charges", headers={}, timeout_s=1)

    def beat(self) -> None:
        self.heartbeat.record(self.heartbeat.begin())


@pytest.fixture
def provider() -> Provider:
    return Provider()


async def test_nothing_is_sent_to_a_provider_without_a_fresh_heartbeat(provider: Provider) -> None:
    for after_s, beats, is_sent in ((0, False, False), (0, True, True), (2.4, False, True), (0.2, False, False)):
        provider.now_s += after_s
        if beats:
            provider.beat()
        begun, before = provider.heartbeat.is_fresh, provider.calls
        if not is_sent:
            with pytest.raises(NotReached):
                await provider.charge()
        else:
            await provider.charge()
        assert (begun, provider.calls - before) == (is_sent, int(is_sent))


async def test_a_run_from_before_a_silence_charges_nobody_though_its_process_is_heard_again(provider: Provider) -> None:
    """Its order may be another process' since. One that begins now charges."""
    provider.beat()
    provider.heartbeat.enter()
    await provider.charge()
    provider.now_s += TAKEOVER_S / 2
    provider.beat()
    assert provider.heartbeat.is_fresh
    with pytest.raises(NotReached):
        await provider.charge()
    provider.heartbeat.enter()
    await provider.charge()
    assert provider.calls == 2


async def test_a_beat_counts_from_before_it_was_sent(provider: Provider) -> None:
    begun_s = provider.heartbeat.begin()
    provider.now_s += 3
    provider.heartbeat.record(begun_s)
    assert not provider.heartbeat.is_fresh


async def test_an_order_is_written_by_a_process_that_others_see_alive(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that rested for long says so before: what it writes is its own at once, and nobody takes it over."""
    monkeypatch.setattr(worker_module, "SWEEP_S", 3600.0)
    shop = await processes.open(inline_slots_max=0)
    with shop.busy_workers():
        heartbeat = shop.state.worker._heartbeat
        await wait_until(lambda: heartbeat.is_fresh)
        heartbeat._beat_s = 0.0
        assert not heartbeat.is_fresh
        await shop.order()
        assert heartbeat.is_fresh


STEP_MS, BEFORE_S = 55_000, 10


async def process_now(manual: ManualShop, reference: str) -> str:
    """Makes the order due by every clock and processes it; returns its status."""
    await manual.state.store.wake([reference])
    await manual.work()
    return await manual.status(reference)


@pytest.mark.parametrize(("clock", "by_ms"), each_clock(STEP_MS, -STEP_MS))
async def test_an_order_lasts_until_its_announced_deadline_although_a_clock_steps(
    steps: Steps, postgres_url: str, redis_url: str, clock: str, by_ms: int
) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        redirected, declined = [
            await manual.order_of(await manual.inventory.hold(), method=method) for method in ("redirect", "decline")
        ]
        await manual.work()
        await steps.set(clock, by_ms)
        await manual.travel(PAY_TTL_S - BEFORE_S)
        for refreshed in (False, True):
            if refreshed:
                await read_clocks(manual.state.store.clocks, manual.state.db, manual.state.redis)
            assert {await process_now(manual, reference) for reference in (redirected, declined)} == {"pending"}
        retry = await manual.pay_again(declined, method="redirect")
        assert retry.status_code == 202, retry.text
        await manual.travel(BEFORE_S + STEP_MS / 1000 + 1)
        assert {await process_now(manual, reference) for reference in (redirected, declined)} == {"expired"}
