"""Refunds of an amount, of tickets, in full: never more than was charged, each ticket once, every cent entered."""

import asyncio
from collections import Counter
from typing import Any

from services.orders.payments.provider import ProviderRejected
from shared.contracts.inventory import ReservedItem
from tests.orders.shop import Shop
from tests.support.wait import wait_until

LINES = [
    ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=2000),
    ReservedItem(section_id="A", seat_id="A-1-2", unit_price_minor=1800),
    ReservedItem(section_id="GA1", quantity=3, unit_price_minor=1000),
]


async def bought(shop: Shop, *, method: str = "ok", **hold: Any) -> tuple[str, str]:
    """A confirmed order of 68.00, and its reservation."""
    held = shop.holds.hold(lines=LINES, **hold)
    reference = await shop.order_of(held, method=method)
    await shop.is_now(reference, "confirmed")
    return reference, held


def problem(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


async def test_an_amount_goes_back_once_for_each_key(shop: Shop) -> None:
    reference, held = await bought(shop)
    assert problem(await shop.operate(f"{reference}/refund", amount_minor=500)) == (400, "idempotency-key-missing")
    for _ in range(3):
        assert (await shop.operate(f"{reference}/refund", amount_minor=500, key="k1")).status_code == 202
    reused = await shop.operate(f"{reference}/refund", amount_minor=600, key="k1")
    assert problem(reused) == (422, "idempotency-key-reused")
    await shop.is_now(reference, "partially_refunded")
    assert problem(await shop.operate(f"{reference}/refund", amount_minor=6301, key="k2")) == (409, "refund-refused")
    assert (await shop.operate(f"{reference}/refund", amount_minor=6300, key="k3")).status_code == 202
    await shop.is_now(reference, "refunded")
    assert await shop.entries() == [
        ("charge", reference, 6800), ("refund", reference, 500), ("refund", reference, 6300)
    ]  # fmt: skip
    assert shop.holds.back(held) == [], "an amount gives no tickets back"
    assert await shop.audit() == {}


async def test_tickets_are_given_back_by_name_and_each_once(shop: Shop) -> None:
    reference, held = await bought(shop)
    named = {"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 2}]}
    answer = await shop.operate(f"{reference}/refund", tickets=named, return_to_sale=True, key="k1")
    order = answer.json()
    assert (answer.status_code, order["refunded_minor"] + order["refunding_minor"]) == (202, 4000)
    await shop.is_now(reference, "partially_refunded")
    assert shop.holds.back(held) == ["A-1-1", "GA1", "GA1"]
    assert [asked.keep_blocked for asked in shop.holds.returned.values()] == [False]
    assert [line["returned"] for line in (await shop.see(reference))["lines"]] == [1, 0, 2]
    again = await shop.operate(f"{reference}/refund", tickets={"seats": ["A-1-1"]}, key="k2")
    assert problem(again) == (409, "refund-refused")
    more = {"ga": [{"section_id": "GA1", "quantity": 2}]}
    assert problem(await shop.operate(f"{reference}/refund", tickets=more, key="k3")) == (409, "refund-refused")
    assert (await shop.operate(f"{reference}/refund")).status_code == 202
    await shop.is_now(reference, "refunded")
    assert shop.holds.back(held) == ["A-1-1", "A-1-2", "GA1", "GA1", "GA1"]
    assert await shop.net_minor(reference) == 0
    assert await shop.audit() == {}


async def test_fifty_who_ask_at_once_never_get_more_than_was_charged(shop: Shop) -> None:
    reference, _ = await bought(shop)
    asked = [shop.operate(f"{reference}/refund", amount_minor=200, key=f"k{n}") for n in range(44)]
    asked += [shop.operate(f"{reference}/refund", tickets={"seats": ["A-1-1"]}, key=f"t{n}") for n in range(6)]
    answers = Counter(answer.status_code for answer in await asyncio.gather(*asked))
    assert answers.keys() == {202, 409}
    await wait_until(lambda: all_sent(shop, reference), timeout_s=10)
    charged = sum(amount for kind, _, amount in await shop.entries() if kind == "charge")
    refunded = sum(amount for kind, _, amount in await shop.entries() if kind == "refund")
    assert (charged, refunded) == (6800, 6800)
    assert await shop.net_minor(reference) == 0
    assert (await shop.row(reference)).status == "refunded"
    assert await shop.audit() == {}


async def all_sent(shop: Shop, reference: str) -> bool:
    return not (await shop.row(reference)).refunds


async def test_a_refund_that_fails_is_tried_again_and_tells_who_asked_and_why(shop: Shop) -> None:
    reference, _ = await bought(shop, method="refund_fails_once")
    assert (await shop.operate(f"{reference}/refund", amount_minor=800, key="k")).status_code == 202
    await shop.is_now(reference, "partially_refunded")
    assert await shop.net_minor(reference) == 6000
    rows = (await shop.look_up(f"/{reference}/timeline"))["timeline"]
    (desk,) = [row for row in rows if row["kind"] == "desk"]
    assert (desk["actor"], desk["role"], desk["reason"], desk["before"]) == (
        "ops",
        "operator",
        "the show moved",
        {"status": "confirmed"},
    )
    (command,) = [row for row in rows if row["kind"] == "command" and row["command_type"] == "refund"]
    assert (command["status"], command["payload"]["amount_minor"]) == ("completed", 800)


async def test_what_the_provider_never_gives_back_waits_for_a_person(shop: Shop, monkeypatch: Any) -> None:
    """Its tickets stay with the customer; requested again, with another key, it may succeed."""
    reference, held = await bought(shop)

    async def never(*_: Any, **__: Any) -> str:
        raise ProviderRejected("charge_disputed")

    with monkeypatch.context() as patched:
        patched.setattr(shop.app.state.deps.providers["sandbox"], "refund", never)
        assert (await shop.operate(f"{reference}/refund", return_to_sale=True)).status_code == 202
        await shop.is_now(reference, "review")
    assert problem(await shop.operate(f"{reference}/refund")) == (409, "refund-refused")
    found = await shop.look_up(q=reference)
    (order,) = found["orders"]
    assert (order["end_reason"], order["may_be_resolved_by"]) == ("refund-refused", ["confirm", "refund"])
    assert (order["refunded_minor"], [line["returned"] for line in order["lines"]]) == (0, [0, 0, 0])
    assert (await shop.operate(f"{reference}/resolve", decision="refund")).status_code == 202
    await shop.is_now(reference, "refunded")
    assert shop.holds.back(held) == ["A-1-1", "A-1-2", "GA1", "GA1", "GA1"]
    assert await shop.net_minor(reference) == 0
    assert await shop.audit() == {}


async def test_tickets_that_cost_nothing_are_given_back_too(shop: Shop) -> None:
    lines = [ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=0)]
    held = shop.holds.hold(total_minor=0, lines=lines)
    answer = await shop.post(shop.body(held, total_minor=0))
    reference = answer.json()["reference"]
    await shop.is_now(reference, "confirmed")
    assert (await shop.operate(f"{reference}/refund")).status_code == 202
    await shop.is_now(reference, "refunded")
    assert shop.holds.back(held) == ["A-1-1"]
    assert problem(await shop.operate(f"{reference}/refund")) == (409, "refund-refused")
    assert (await shop.entries(), await shop.audit()) == ([], {})


async def test_bad_wishes_change_nothing(shop: Shop) -> None:
    reference, _ = await bought(shop)
    bad: list[dict[str, Any]] = [
        {"amount_minor": 0}, {"amount_minor": -1}, {"amount_minor": 10**13},
        {"amount_minor": 1, "tickets": {"seats": ["A-1-1"]}},
        {"amount_minor": 1, "return_to_sale": True}, {"tickets": {}}, {"tickets": {"seats": ["A-1-1", "A-1-1"]}},
        {"tickets": {"ga": [{"section_id": "GA1", "quantity": 0}]}}, {"reason": ""}, {"reason": "x\x00"}, {"more": 1},
    ]  # fmt: skip
    for body in bad:
        assert (await shop.operate(f"{reference}/refund", key="k", **body)).status_code == 422, body
    assert problem(await shop.operate("ZZZZZZZZZZZZ/refund")) == (404, "unknown-order")
    assert (await shop.row(reference)).charges[0].refunds == 0
