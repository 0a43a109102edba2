"""Captured after confirmation: authorised, confirmed, captured; or the sale is revoked and the fan notified."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import text

from services.orders.order.updates import Lease, OrderUpdate
from services.orders.payments.provider import ProviderCharge
from tests.orders.processing.test_crashes import Killer, lease_runs_out
from tests.orders.processing.test_states import ATTEMPT, ORDER
from tests.orders.refunds.test_oversold import ask as oversold
from tests.orders.shop import reference_of
from tests.support.wait import wait_until

TAKEN = ("before confirm", "after inventory", "after confirm", "before capture", "after the capture", "after capture")
GIVEN_UP = ("before cancel_charge", "after cancel_charge", "before revoke_unpaid_sale", "after revoke_unpaid_sale")


async def test_a_sale_is_confirmed_on_a_promise_and_paid_right_after(processes):
    """In between the invariants accept the authorisation, and the provider has captured nothing."""
    here, go_on = asyncio.Event(), asyncio.Event()

    async def pause(name: str, reference: str) -> None:
        if name == "before capture":
            here.set()
            await go_on.wait()

    shop = await processes.open(capture="after_confirm", failpoint=pause)
    reservation = shop.holds.hold()
    reference = await shop.order_of(reservation)
    await wait_until(here.is_set)
    [charge] = await shop.charges(reference)
    assert (await shop.status(reference), charge["captured_minor"]) == ("confirmed", 0)
    assert (await shop.row(reference)).is_paid is False
    assert (await shop.entries(), await shop.audit()) == ([], {})
    assert await oversold(shop, reference, reservation) == "later", "there is no money yet to give back"
    go_on.set()
    await shop.settled(reference, "confirmed")

    async def is_paid() -> bool:
        return (await shop.row(reference)).is_paid

    await wait_until(is_paid)
    assert await shop.entries() == await shop.booked()
    assert await shop.audit() == {}


async def test_a_capture_that_fails_once_is_tried_again(processes):
    shop = await processes.open(capture="after_confirm")
    reference = await shop.order(method="capture_fails_once")
    await shop.settled(reference, "confirmed")
    assert await shop.entries() == [("charge", reference, 6800)]


async def test_after_three_failures_the_sale_is_taken_back_and_the_fan_is_told(processes):
    shop = await processes.open(capture="after_confirm", webhooks=True)
    reservation = shop.holds.hold()
    token = "pm_capture_fails"
    reference = await shop.order_of(reservation, method="card", provider="stripe", token=token)
    await wait_until(lambda: _has(shop, reference, "cancelled"))
    assert sum(path.endswith("/capture") for _, path in processes.stripe.calls) == 3
    [intent] = [each for each in processes.stripe.books.objects.values() if each["object"] == "payment_intent"]
    assert (intent["status"], shop.holds.reservations[reservation].status) == ("canceled", "returned")
    assert [path for path, *_ in shop.holds.asked] == ["begin-payment", "confirm", "returns"]
    seen = await shop.see(reference)
    assert (seen["end_reason"], seen["attempt"]["status"]) == ("capture", "cancelled")
    assert await _told(shop, reference) == ["order.created", "order.confirmed", "order.cancelled"]
    assert (await shop.entries(), await shop.audit()) == ([], {})


async def test_a_worker_killed_at_any_point_of_a_capture_converges(processes):
    killer = Killer()
    shop = await processes.open(failpoint=killer, capture="after_confirm")
    flows = [("ok", point) for point in TAKEN] + [("capture_fails", point) for point in GIVEN_UP]

    async def flow(number: int, method: str, point: str) -> None:
        reference = reference_of(shop, f"flow-{number}")
        killer.points[reference] = point
        await shop.order_of(processes.holds.hold(), method=method, key=f"flow-{number}")
        await wait_until(lambda: reference in killer.killed, timeout_s=20)
        await lease_runs_out(shop, reference)
        await shop.settled(reference, "confirmed" if method == "ok" else "cancelled", timeout_s=20)
        assert [charge["status"] for charge in await shop.charges(reference)] == [
            "succeeded" if method == "ok" else "cancelled"
        ]

    await asyncio.gather(*(flow(number, *each) for number, each in enumerate(flows)))
    assert await shop.audit() == {}
    assert await shop.entries() == await shop.booked()


async def test_what_is_authorised_after_the_order_ended_is_given_up(processes):
    """The charge was cancelled and authorised all the same: the authorisation is cancelled too."""
    shop = await processes.open(capture="after_confirm", webhooks=True)
    reference = await shop.order(method="success_after_cancel")
    await wait_until(lambda: shop.attempt_is(reference, "processing"))
    await shop.expire(reference)
    await wait_until(lambda: _heard_of(shop, reference, "charge.succeeded"))
    await wait_until(lambda: _is(shop, reference, "cancelled"))
    assert (await shop.status(reference), await shop.entries(), await shop.audit()) == ("expired", [], {})


@pytest.mark.parametrize(("amount_minor", "reason"), [(100, None), (99, "mismatch")])
def test_a_promise_of_another_amount_is_none(amount_minor, reason):
    promised = ProviderCharge(
        charge_ref="c", reference="R", key="R:1", status="authorised", amount_minor=amount_minor, currency="EUR",
        occurred_at_ms=1,
    )  # fmt: skip
    change = OrderUpdate(Lease("R", "me", 1.0), _with_attempt()).record_charges("sandbox", [promised])
    [row] = change.inserts["attempts"]
    assert (row["sets"]["status"], row["sets"]["reason"], "money" in change.inserts) == ("authorised", reason, False)


def _with_attempt():
    return replace(ORDER, attempts=(replace(ATTEMPT, status="unknown"),))


async def _told(shop, reference):
    question = text("SELECT body ->> 'type' FROM orders.outbox WHERE body ->> 'aggregate' = :of ORDER BY id")
    async with shop.app.state.deps.db.connect() as connection:
        return list(await connection.scalars(question, {"of": f"order:{reference}"}))


async def _heard_of(shop, reference, kind):
    question = text("SELECT EXISTS (SELECT FROM orders.webhook_inbox WHERE reference = :of AND kind = :kind)")
    async with shop.app.state.deps.db.connect() as connection:
        return await connection.scalar(question, {"of": reference, "kind": kind})


async def _is(shop, reference, status):
    return [charge["status"] for charge in await shop.charges(reference)] == [status]


async def _has(shop, reference, status):
    return await shop.status(reference) == status
