"""Orders that are opened again, and owners that are alive again: what was decided before changes nothing any more."""

from typing import Any

import pytest

from services.orders.model.order import OpenOrder
from services.orders.model.update import OrderUpdate
from services.orders.store.store import NotWritten, OrderLost
from services.orders.worker import worker
from shared.payment_provider import ProviderRejected
from tests.orders.manual_orders import ManualShop


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
