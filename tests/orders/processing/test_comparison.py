"""The comparison of the provider's charges with the ledger finds what a lost webhook told nobody, page by page."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from services.orders.store import provider_reports
from services.orders.tables import order
from tests.orders.manual_orders import ManualShop, open_manual_shop

AFTER_A_MINUTE_S, AFTER_AN_HOUR_S, PAGE_S = 61, 3600, 60
TOTAL_MINOR = 6800


async def bought(manual: ManualShop) -> tuple[str, str]:
    """A sold order and its charge; no webhook of it comes."""
    reference = await manual.order()
    await manual.work()
    manual.outgoing_webhooks.webhooks.clear()
    [charge] = await manual.charges(reference)
    return reference, charge["id"]


async def row(manual: ManualShop, reference: str) -> Any:
    async with manual.state.db.connect() as connection:
        return (await connection.execute(select(order).where(order.c.reference == reference))).one()


def calls_of(manual: ManualShop, word: Callable[[], str | None] = lambda: None) -> list[str]:
    """The calls of the provider from now on, each of which fails so."""
    calls: list[str] = []

    def fault(call: str, _: str) -> str | None:
        calls.append(call)
        return word()

    manual.connection.fault = fault
    return calls


async def refund_outside(manual: ManualShop, charge_id: str) -> None:
    path, key = f"/charges/{charge_id}/refunds", {"idempotency-key": uuid.uuid4().hex}
    assert (await manual.sandbox.post(path, json={"amount_minor": TOTAL_MINOR}, headers=key)).status_code == 201
    manual.outgoing_webhooks.webhooks.clear()


async def dispute_outside(manual: ManualShop, charge_id: str, status: str = "open") -> None:
    assert (await manual.sandbox.post(f"/charges/{charge_id}/dispute", json={"status": status})).is_success
    manual.outgoing_webhooks.webhooks.clear()


async def test_nothing_new_changes_nothing_and_costs_one_call_for_all_orders(manual: ManualShop) -> None:
    """A minute after the charges and again after an hour; in between, and once nothing was sold, nothing is asked."""
    sold = [await bought(manual) for _ in range(3)]
    before = [await row(manual, reference) for reference, _ in sold]
    calls = calls_of(manual)
    assert await manual.compare() == []
    calls.clear()
    for seconds in (AFTER_A_MINUTE_S, AFTER_AN_HOUR_S):
        await manual.travel(seconds)
        assert await manual.compare() == []
        await manual.work()
        assert calls in (["GET charges"], ["GET charges"] * 2), "one for each of the two spans"
        calls.clear()
    after = [await row(manual, reference) for reference, _ in sold]
    assert [one.version for one in after] == [one.version for one in before]
    assert await manual.scalar("SELECT count(*) FROM orders.open_order") == 0
    await manual.travel(3 * AFTER_AN_HOUR_S)
    assert await manual.compare() == []
    calls.clear()
    await manual.travel(AFTER_A_MINUTE_S)
    assert (await manual.compare(), calls) == ([], []), "nobody has bought anything of late"


@pytest.mark.parametrize("page", [1000, 1])
@pytest.mark.parametrize("after_s", [AFTER_A_MINUTE_S, AFTER_AN_HOUR_S + 1])
@pytest.mark.parametrize(("move", "status"), [(refund_outside, "refunded"), (dispute_outside, "review")])
async def test_what_a_lost_webhook_told_nobody_is_found_in_any_page(
    manual: ManualShop, monkeypatch: pytest.MonkeyPatch, move: Any, status: str, after_s: int, page: int
) -> None:
    monkeypatch.setattr(provider_reports, "PAGE", page)
    sold = [await bought(manual) for _ in range(3)]
    if after_s > AFTER_A_MINUTE_S:
        await manual.travel(AFTER_A_MINUTE_S)
        assert await manual.compare() == []
    reference, charge_id = sold[1]
    await move(manual, charge_id)
    await manual.travel(after_s)
    assert await manual.compare() == [reference]
    await manual.work()
    assert [(await row(manual, each)).status for each, _ in sold] == ["confirmed", status, "confirmed"]
    await manual.travel(AFTER_A_MINUTE_S)
    assert await manual.compare() == [], "it is known now"
    assert await manual.violated_invariants() == {}


async def test_a_lost_dispute_that_no_webhook_told_of_is_found(manual: ManualShop) -> None:
    """No money moves then: it was withdrawn when the dispute began."""
    reference, charge_id = await bought(manual)
    await dispute_outside(manual, charge_id)
    await manual.travel(AFTER_A_MINUTE_S)
    assert await manual.compare() == [reference]
    await manual.work()
    await dispute_outside(manual, charge_id, "lost")
    await manual.travel(AFTER_AN_HOUR_S)
    assert await manual.compare() == [reference]
    await manual.work()
    assert (await row(manual, reference)).dispute == "lost"


async def test_money_of_an_order_that_nobody_noticed_is_found(manual: ManualShop) -> None:
    """Somebody charged it once more."""
    reference, _ = await bought(manual)
    await manual.charge_at_sandbox(reference, amount_minor=TOTAL_MINOR, key="stray")
    manual.outgoing_webhooks.webhooks.clear()
    await manual.travel(AFTER_A_MINUTE_S)
    assert await manual.compare() == [reference]
    await manual.work()
    assert await manual.net_minor(reference) == TOTAL_MINOR
    assert [kind for kind, *_ in await manual.money_entries()] == ["charge", "charge", "refund"]


async def test_an_authorisation_that_nobody_cancelled_or_captured_is_found(postgres_url: str, redis_url: str) -> None:
    async with open_manual_shop(postgres_url, redis_url, capture="after_confirm") as manual:
        reference, _ = await bought(manual)
        key = "stray"
        body = {"reference": reference, "amount_minor": 5, "currency": "EUR", "method": "ok", "capture": False}
        assert (await manual.sandbox.post("/charges", json=body, headers={"idempotency-key": key})).status_code == 201
        await manual.travel(AFTER_A_MINUTE_S)
        assert await manual.compare() == [reference]
        await manual.work()
        assert {charge["status"] for charge in await manual.charges(reference)} == {"succeeded", "cancelled"}


async def test_charges_of_another_shop_are_ignored(manual: ManualShop) -> None:
    """It uses the same account."""
    await bought(manual)
    await manual.charge_at_sandbox("ANOTHERSHOP1", amount_minor=5, key="another")
    await manual.travel(AFTER_A_MINUTE_S)
    assert await manual.compare() == []
    assert await manual.scalar("SELECT count(*) FROM orders.open_order") == 0


async def test_two_processes_at_once_compare_once(manual: ManualShop, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, charge_id = await bought(manual)
    await refund_outside(manual, charge_id)
    await manual.travel(AFTER_A_MINUTE_S)
    provider, asked, answer = manual.state.providers["sandbox"], asyncio.Event(), asyncio.Event()
    list_since = provider.list_since

    async def list_later(since_ms: int, until_ms: int | None = None) -> Any:
        asked.set()
        await answer.wait()
        return await list_since(since_ms, until_ms)

    monkeypatch.setattr(provider, "list_since", list_later)
    monkeypatch.setattr(provider_reports, "AFTER_S", (60,))
    first = asyncio.create_task(manual.compare())
    await asked.wait()
    assert await asyncio.gather(*(manual.compare() for _ in range(4))) == [[]] * 4
    answer.set()
    assert await first == [reference]


async def test_a_comparison_that_the_provider_did_not_answer_is_made_again_in_a_minute(manual: ManualShop) -> None:
    reference, charge_id = await bought(manual)
    await refund_outside(manual, charge_id)
    await manual.travel(AFTER_A_MINUTE_S)
    calls = calls_of(manual, lambda: "unreachable")
    assert await manual.compare() == []
    failed = len(calls)
    assert failed > 0
    assert (await manual.compare(), len(calls)) == ([], failed), "not at once"
    calls_of(manual)
    await manual.travel(PAGE_S + 1)
    assert await manual.compare() == [reference]
    await manual.work()
    assert (await row(manual, reference)).status == "refunded"
