"""Refunds of an amount, of tickets, or in full: never more than was charged, each ticket once, every cent entered."""

import asyncio
from typing import Any

from shared.contracts.inventory import ReservedItem, ReturnTickets
from shared.payment_provider import ProviderRejected
from tests.orders.shop import Shop
from tests.support.running.suite import problem

LINES = [
    ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=2000),
    ReservedItem(section_id="A", seat_id="A-1-2", unit_price_minor=1800),
    ReservedItem(section_id="GA1", quantity=3, unit_price_minor=1000),
]


async def bought(shop: Shop, *, method: str = "ok", **hold: Any) -> tuple[str, str]:
    """A confirmed order of 68.00, and its reservation."""
    reservation_id = await shop.inventory.hold(lines=LINES, **hold)
    reference = await shop.order_of(reservation_id, method=method)
    await shop.wait_for_status(reference, "confirmed")
    return reference, reservation_id


async def test_an_amount_is_refunded_once_for_each_key(shop: Shop) -> None:
    reference, reservation_id = await bought(shop)
    assert problem(await shop.admin_post(f"{reference}/refund", amount_minor=500)) == (400, "idempotency-key-missing")
    for _ in range(3):
        assert (await shop.admin_post(f"{reference}/refund", amount_minor=500, key="k1")).status_code == 202
    reused = await shop.admin_post(f"{reference}/refund", amount_minor=600, key="k1")
    assert problem(reused) == (422, "idempotency-key-reused")
    await shop.wait_for_status(reference, "partially_refunded")
    assert problem(await shop.admin_post(f"{reference}/refund", amount_minor=6301, key="k2")) == (409, "refund-refused")
    assert (await shop.admin_post(f"{reference}/refund", amount_minor=6300, key="k3")).status_code == 202
    await shop.wait_for_status(reference, "refunded")
    assert await shop.money_entries() == [
        ("charge", reference, 6800), ("refund", reference, 500), ("refund", reference, 6300)
    ]  # fmt: skip
    assert len(await shop.inventory.tickets(reservation_id)) == 5, "the refund of an amount returns no tickets"
    assert await shop.violated_invariants() == {}


async def test_named_tickets_are_refunded_once_each(shop: Shop) -> None:
    reference, reservation_id = await bought(shop)
    named = {"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 2}]}
    answer = await shop.admin_post(f"{reference}/refund", tickets=named, return_to_sale=True, key="k1")
    order = answer.json()
    assert (answer.status_code, order["refunded_minor"] + order["refunding_minor"]) == (202, 4000)
    await shop.wait_for_status(reference, "partially_refunded")
    assert await shop.inventory.tickets(reservation_id) == ["A-1-2", "GA1"]
    [returned] = shop.inventory.neighbour.received("/reservations/ticket-returns", ReturnTickets)
    assert returned.keep_blocked is False
    assert [line["returned"] for line in (await shop.view(reference))["lines"]] == [1, 0, 2]
    again = await shop.admin_post(f"{reference}/refund", tickets={"seats": ["A-1-1"]}, key="k2")
    assert problem(again) == (409, "refund-refused")
    more = {"ga": [{"section_id": "GA1", "quantity": 2}]}
    assert problem(await shop.admin_post(f"{reference}/refund", tickets=more, key="k3")) == (409, "refund-refused")
    assert (await shop.admin_post(f"{reference}/refund")).status_code == 202
    await shop.wait_for_status(reference, "refunded")
    assert await shop.inventory.tickets(reservation_id) == []
    assert await shop.net_minor(reference) == 0
    assert await shop.violated_invariants() == {}


async def test_concurrent_refunds_never_exceed_the_charge(shop: Shop) -> None:
    """Refused is what exceeds the charge; on a busy machine also what waited too long for the row of the order."""
    reference, _ = await bought(shop)
    requests = [shop.admin_post(f"{reference}/refund", amount_minor=400, key=f"k{n}") for n in range(22)]
    requests += [shop.admin_post(f"{reference}/refund", tickets={"seats": ["A-1-1"]}, key=f"t{n}") for n in range(6)]
    assert {answer.status_code for answer in await asyncio.gather(*requests)} - {503} == {202, 409}
    await shop.wait_for_status(reference, "refunded")
    refunded = sum(amount for kind, _, amount in await shop.money_entries() if kind == "refund")
    assert (refunded, await shop.net_minor(reference)) == (6800, 0)
    assert await shop.violated_invariants() == {}


async def test_a_refund_that_fails_is_retried_and_keeps_its_actor_and_reason(shop: Shop) -> None:
    reference, _ = await bought(shop, method="refund_fails_once")
    assert (await shop.admin_post(f"{reference}/refund", amount_minor=800, key="k")).status_code == 202
    await shop.wait_for_status(reference, "partially_refunded")
    assert await shop.net_minor(reference) == 6000
    rows = (await shop.admin_get(f"/{reference}/timeline"))["timeline"]
    (action,) = [row for row in rows if row["kind"] == "desk"]
    assert (action["actor"], action["role"], action["reason"]) == ("ops", "operator", "the show moved")
    assert action["before"] == {"status": "confirmed"}
    (command,) = [row for row in rows if row["kind"] == "command" and row["command_type"] == "refund"]
    assert (command["status"], command["payload"]["amount_minor"]) == ("completed", 800)


async def test_a_refund_that_the_provider_rejects_goes_to_review(shop: Shop, monkeypatch: Any) -> None:
    """The customer keeps the tickets. A refund requested again, under another key, may succeed."""
    reference, reservation_id = await bought(shop)

    async def reject(*_: Any, **__: Any) -> str:
        raise ProviderRejected("charge_disputed")

    with monkeypatch.context() as patched:
        patched.setattr(shop.state.providers["sandbox"], "refund", reject)
        assert (await shop.admin_post(f"{reference}/refund", return_to_sale=True)).status_code == 202
        await shop.wait_for_status(reference, "review")
    assert problem(await shop.admin_post(f"{reference}/refund")) == (409, "refund-refused")
    (order,) = (await shop.admin_get(q=reference))["orders"]
    assert (order["end_reason"], order["may_be_resolved_by"]) == ("refund-refused", ["confirm", "refund"])
    assert (order["refunded_minor"], [line["returned"] for line in order["lines"]]) == (0, [0, 0, 0])
    assert (await shop.admin_post(f"{reference}/resolve", decision="refund")).status_code == 202
    await shop.wait_for_status(reference, "refunded")
    assert await shop.inventory.tickets(reservation_id) == []
    assert await shop.net_minor(reference) == 0
    assert await shop.violated_invariants() == {}


async def test_free_tickets_are_returned_by_a_refund(shop: Shop) -> None:
    lines = [ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=0)]
    reservation_id = await shop.inventory.hold(total_minor=0, lines=lines)
    answer = await shop.post(shop.body(reservation_id, total_minor=0))
    reference = answer.json()["reference"]
    await shop.wait_for_status(reference, "confirmed")
    assert (await shop.admin_post(f"{reference}/refund")).status_code == 202
    await shop.wait_for_status(reference, "refunded")
    assert await shop.inventory.tickets(reservation_id) == []
    assert problem(await shop.admin_post(f"{reference}/refund")) == (409, "refund-refused")
    assert (await shop.money_entries(), await shop.violated_invariants()) == ([], {})


async def test_an_invalid_refund_request_changes_nothing(shop: Shop) -> None:
    reference, _ = await bought(shop)
    bad: list[dict[str, Any]] = [
        {"amount_minor": 0}, {"amount_minor": -1}, {"amount_minor": 10**13},
        {"amount_minor": 1, "tickets": {"seats": ["A-1-1"]}},
        {"amount_minor": 1, "return_to_sale": True}, {"tickets": {}}, {"tickets": {"seats": ["A-1-1", "A-1-1"]}},
        {"tickets": {"ga": [{"section_id": "GA1", "quantity": 0}]}}, {"reason": ""}, {"reason": "x\x00"}, {"more": 1},
    ]  # fmt: skip
    for body in bad:
        assert (await shop.admin_post(f"{reference}/refund", key="k", **body)).status_code == 422, body
    assert problem(await shop.admin_post("ZZZZZZZZZZZZ/refund")) == (404, "unknown-order")
    assert (await shop.row(reference)).charges[0].refunds == 0
