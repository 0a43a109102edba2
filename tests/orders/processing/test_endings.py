"""Fans cancel and pay again, and workers die meanwhile. Every other ending is a story of `test_failpoints`."""

import asyncio

import pytest

from services.orders.model.order import OpenOrder
from services.orders.requests import requests
from services.orders.steps import purchase
from services.orders.steps.run import OrderRun
from services.orders.store.store import NotWritten
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
