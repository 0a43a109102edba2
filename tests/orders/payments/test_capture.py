"""Capture after confirmation: an order is authorised, confirmed, captured; without the capture its sale is revoked."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from services.orders.model.update import OrderUpdate
from shared.payment_provider import ProviderCharge
from tests.orders.processing.test_states import ATTEMPT, ORDER
from tests.orders.refunds.test_refunds import refund_oversold
from tests.orders.reported_amounts import events_of
from tests.support.wait import wait_until


async def test_a_sale_is_confirmed_on_an_authorisation_and_captured_afterwards(processes):
    """Before the capture the provider has taken nothing, and the invariants hold."""
    paused, resume = asyncio.Event(), asyncio.Event()

    async def pause(name: str, reference: str) -> None:
        if name == "before capture":
            paused.set()
            await resume.wait()

    shop = await processes.open(capture="after_confirm", failpoint=pause)
    reservation = await shop.inventory.hold()
    reference = await shop.order_of(reservation)
    await wait_until(paused.is_set)
    [charge] = await shop.charges(reference)
    assert (await shop.status(reference), charge["captured_minor"]) == ("confirmed", 0)
    assert (await shop.row(reference)).is_paid is False
    assert (await shop.money_entries(), await shop.violated_invariants()) == ([], {})
    assert await refund_oversold(shop, reference, reservation) == "later", "there is no money yet to refund"
    resume.set()
    await shop.wait_until_settled(reference, "confirmed")

    async def is_paid() -> bool:
        return (await shop.row(reference)).is_paid

    async def is_fulfilled() -> bool:
        return [event["type"] for event in await events_of(shop, reference)][1:] == [
            "order.confirmed",
            "order.fulfilled",
        ]

    await wait_until(is_paid)
    await wait_until(is_fulfilled)
    assert await shop.money_entries() == await shop.provider_entries()
    assert await shop.violated_invariants() == {}


async def test_after_three_failed_captures_the_sale_is_revoked_and_the_fan_notified(processes):
    shop = await processes.open(capture="after_confirm", webhooks=True)
    reservation, captures_before = await shop.inventory.hold(), captures()
    reference = await shop.order_of(reservation, method="capture_fails")
    await wait_until(lambda: shop.status_is(reference, "cancelled"))
    assert captures() - captures_before == 3
    [charge] = await shop.charges(reference)
    assert (charge["status"], await shop.inventory.status(reservation)) == ("cancelled", "returned")
    assert shop.inventory.steps == ["begin-payment", "confirm", "returns"]
    order = await shop.view(reference)
    assert (order["end_reason"], order["attempt"]["status"]) == ("capture", "cancelled")
    events = [event["type"] for event in await events_of(shop, reference)]
    assert events == ["order.created", "order.confirmed", "order.cancelled"]
    assert (await shop.money_entries(), await shop.violated_invariants()) == ([], {})


def captures() -> float:
    """Calls of the sandbox so far that would capture."""
    labels = {"provider": "sandbox", "call": "capture"}
    return REGISTRY.get_sample_value("orders_provider_seconds_count", labels) or 0


@pytest.mark.parametrize(("amount_minor", "reason"), [(100, None), (99, "mismatch")])
def test_an_authorisation_of_another_amount_is_a_mismatch(amount_minor, reason):
    authorised = ProviderCharge(
        charge_ref="c", reference="R", key="R:1", status="authorised", amount_minor=amount_minor, currency="EUR",
        occurred_at_ms=1,
    )  # fmt: skip
    order = replace(ORDER, attempts=(replace(ATTEMPT, status="unknown"),))
    update = OrderUpdate(order).record_charges("sandbox", [authorised])
    [attempt] = update.changed["attempts"]
    assert (attempt.status, attempt.reason, update.after().charges) == ("authorised", reason, ())
