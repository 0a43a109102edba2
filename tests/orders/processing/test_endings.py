"""Fans cancel and pay again, and workers die meanwhile. Every other ending is a story of `test_failpoints`. Orders that
are opened again, and owners that are alive again: what was decided before changes nothing any more.
"""

import asyncio
from typing import Any

import pytest

from services.orders.model.order import OpenOrder
from services.orders.model.update import OrderUpdate
from services.orders.requests import requests
from services.orders.steps import purchase
from services.orders.steps.run import OrderRun
from services.orders.store.store import NotWritten, OrderLost
from services.orders.worker import worker
from shared.payment_provider import ProviderRejected
from tests.orders.manual_orders import ManualShop
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
