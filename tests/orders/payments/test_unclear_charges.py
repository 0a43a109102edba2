"""What a provider answers after an unclear call decides: a charge that is there is no failure, a stray authorisation is
cancelled.

Capture after confirmation: an order is authorised, confirmed, captured; without the capture its sale is revoked.
"""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from prometheus_client import REGISTRY

from services.orders.model.order import Customer, OpenOrder
from services.orders.model.update import OrderUpdate
from services.orders.problems import BadSignature
from services.orders.settings import Settings
from services.orders.steps import purchase
from services.orders.steps.run import OrderRun, Parts
from services.orders.store import provider_reports
from services.orders.store.provider_reports import Webhook, WebhookInbox, _verify
from services.orders.store.store import OrderStore
from shared.payment_provider import OutcomeUnknown, ProviderCharge, WebhookEvent
from shared.runtime.clock import Clocks
from tests.orders.processing.test_states import ATTEMPT, ORDER
from tests.orders.refunds.test_refunds import refund_oversold
from tests.orders.shop import events_of
from tests.support.wait import wait_until

CHARGE = ProviderCharge(
    charge_ref="c1", reference="R", key="R:1", status="processing", amount_minor=100, currency="EUR", occurred_at_ms=1
)


def run_over(order: Any, **calls: Any) -> OrderRun:
    """With a provider that answers these calls."""
    store = SimpleNamespace(
        latest={}, save=AsyncMock(side_effect=lambda update: update.after()),
        read_claimed=AsyncMock(return_value=order), clocks=Clocks("orders"),
    )  # fmt: skip
    show = SimpleNamespace(event_id="e", name="Night", starts_at=None, venue="", timezone="UTC")
    shows = SimpleNamespace(read=AsyncMock(return_value=show))
    provider = SimpleNamespace(**{name: AsyncMock(**behaviour) for name, behaviour in calls.items()})
    doubles: dict[str, Any] = {"store": store, "providers": {"sandbox": provider}, "shows": shows}
    without: dict[str, Any] = {"frames": None, "inventory": None}
    return OrderRun(Parts(**doubles, **without, settings=Settings()), OpenOrder("R", "me", 0))


def written(run: OrderRun) -> list[Any]:
    """The updates that it wrote."""
    saves: Any = run.parts.store.save
    return [call.args[0] for call in saves.await_args_list]


def calls_of(run: OrderRun, call: str) -> list[Any]:
    """The arguments of each such call to the provider."""
    return [each.args for each in getattr(run.parts.providers["sandbox"], call).await_args_list]


async def test_a_charge_found_after_an_error_counts_as_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orders.steps.purchase._charge_request", lambda *_: None)
    order = replace(ORDER, attempts=(replace(ATTEMPT, status="unknown"),))
    for found, errors in (([CHARGE], 0), ([], 1)):
        run = run_over(order, create={"side_effect": OutcomeUnknown}, find={"return_value": found})
        [outcome] = await asyncio.gather(purchase.charge(run, order), return_exceptions=True)
        assert isinstance(outcome, OutcomeUnknown) == bool(errors)
        assert max(update.after().attempts[0].errors for update in written(run)) == errors


async def test_a_charge_is_written_down_as_unknown_before_the_provider_is_called() -> None:
    order = replace(ORDER, attempts=(ATTEMPT,))
    run = run_over(order, create={"side_effect": AssertionError("called")})
    [stopped] = await asyncio.gather(purchase.charge(run, order), return_exceptions=True)
    assert isinstance(stopped, AssertionError)
    [update] = written(run)
    assert update.after().attempts[0].status == "unknown"


async def test_every_try_of_a_charge_has_the_key_of_its_attempt() -> None:
    for errors in (0, 1, 2):
        order = replace(ORDER, attempts=(replace(ATTEMPT, status="unknown", errors=errors),))
        run = run_over(order, create={"return_value": CHARGE})
        await purchase.charge(run, order)
        [(sent,)] = calls_of(run, "create")
        assert (sent.key, sent.amount_minor) == ("R:1", 100)


async def test_an_authorisation_of_an_ended_attempt_is_cancelled() -> None:
    order = replace(ORDER, attempts=(replace(ATTEMPT, status="failed"),))
    stray = replace(CHARGE, charge_ref="c9", key="R:0", status="authorised")
    run = run_over(order, find={"return_value": [stray]}, cancel={"return_value": replace(stray, status="cancelled")})
    await purchase.sync_provider(run, order)
    assert calls_of(run, "cancel") == [("c9",)]


@pytest.mark.parametrize("field", ["webhook_id", "kind", "reference", "charge_ref", "succeeded"])
@pytest.mark.parametrize("text", ["x" * 201, "a\0b"])
def test_a_webhook_with_an_endless_id_is_refused(field: str, text: str) -> None:
    event = WebhookEvent(**{"webhook_id": "w", "kind": "k", field: text})
    provider: Any = SimpleNamespace(name="sandbox", verify_webhook=lambda *_, **__: event)
    with pytest.raises(BadSignature):
        _verify(provider, {}, b"")


async def test_a_webhook_is_stored_and_applied_once(postgres, monkeypatch) -> None:
    applied = list[OrderStore]()

    async def apply(store: OrderStore, busy: Any) -> None:
        applied.append(store)

    monkeypatch.setattr(provider_reports, "apply_webhooks", apply)
    async with OrderStore(postgres, Clocks("orders")) as store:
        inbox = WebhookInbox(store, list, linger_s=0)
        event = WebhookEvent(webhook_id="w", kind="k", reference="R")
        for _ in range(3):
            await inbox._store([Webhook("sandbox", event, b"{}")])
    assert applied == [store], "a webhook that is known wakes nobody"


def test_an_order_of_another_event_is_not_owned() -> None:
    assert Customer("show", "ann").owns("show:ann")
    assert not Customer("show", "ann").owns("another:ann")
    assert not Customer("show", "ann").owns("show:ben")
    assert Customer(None, "user.ann").owns("another:user.ann"), "a signed-in user is the same everywhere"


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
