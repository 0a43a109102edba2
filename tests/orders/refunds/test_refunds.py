"""Refunds of an amount, of tickets, or in full: never more than was charged, each ticket once, every cent entered; also
of an order that inventory oversold: made once, and the fan reads the reason. Charged
once or twice, refunded in any way and order, rejected or failing: what an order keeps matches its status and is never
negative, and the provider's records agree.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orders.model.order import OrderLine
from services.orders.model.rules import RefundSelection, plan
from services.orders.problems import RefundRefused
from shared.contracts.inventory import ReservedItem, ReturnTickets
from shared.payment_provider import ProviderRejected
from shared.web.app import internal
from tests.contracts.test_calls_of_one_process import call_internal, client_of
from tests.orders.processing.test_states import CHARGE, ORDER
from tests.orders.shop import Shop, events_of
from tests.properties.examples import bounded
from tests.support.running.suite import problem
from tests.support.wait import wait_until

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


async def refund_oversold(shop: Shop, reference: str, reservation_id: str) -> str:
    """As inventory does; returns the answer."""
    refs = [{"order_reference": reference, "reservation_id": reservation_id}]
    async with client_of(internal(shop.app)) as client:
        status, body = await call_internal(client, "/orders/refund", refunds=refs, reason="oversell")
    assert status == 200, body
    return str(body["refunds"][0])


async def test_an_oversold_order_is_refunded_once_despite_repeated_requests_and_shows_the_reason(shop: Shop) -> None:
    reservation_id = await shop.inventory.hold()
    reference = await shop.order_of(reservation_id)
    await shop.wait_until_settled(reference, "confirmed")
    assert (await shop.view(reference))["oversold"] is False
    answers = await asyncio.gather(*(refund_oversold(shop, reference, reservation_id) for _ in range(6)))
    assert set(answers) == {"asked"}
    await shop.wait_until_settled(reference, "refunded")
    assert await refund_oversold(shop, reference, reservation_id) == "asked"
    assert [c["refunded_minor"] for c in await shop.charges(reference)] == [6800]
    assert [entry[0] for entry in await shop.money_entries()] == ["charge", "refund"]
    assert await shop.scalar("SELECT count(*) FROM orders.checkout_command WHERE command_type = 'refund'") == 1
    assert await shop.query("SELECT requested_by, reason FROM orders.refund") == [("oversell", "oversell")]
    assert await shop.violated_invariants() == {}
    assert (await shop.view(reference))["oversold"] is True
    events = await events_of(shop, reference)
    assert [event["after"]["reason"] for event in events if event["type"] == "order.refunded"] == ["oversell"]


async def test_the_refund_of_a_pending_order_is_answered_later(shop: Shop) -> None:
    reservation_id = await shop.inventory.hold()
    reference = await shop.order_of(reservation_id, method="redirect", return_url="http://shop/o/back")
    assert await refund_oversold(shop, reference, reservation_id) == "later"
    assert await refund_oversold(shop, reference, "0" * 32) == "none", "another reservation's order"
    assert await refund_oversold(shop, "0" * 26, reservation_id) == "none"
    assert await shop.scalar("SELECT count(*) FROM orders.refund") == 0


FEW = (
    OrderLine(section_id="A", seat_id="A-1-1", quantity=1, unit_price_minor=40, paid_minor=40),
    OrderLine(section_id="GA", seat_id=None, quantity=2, unit_price_minor=30, paid_minor=60, line_no=2, returned=1),
)
SOLD = replace(ORDER, status="confirmed", charge_ref="c1", charges=(replace(CHARGE, refunded_minor=30),), lines=FEW)


@pytest.mark.parametrize(
    ("selection", "amount_minor"),
    [
        ({"amount_minor": 70}, 70),
        ({"amount_minor": 71}, None),
        ({"amount_minor": 0}, None),
        ({"amount_minor": -1}, None),
        ({"seats": ("A-1-1",)}, 40),
        ({"seats": ("A-1-1", "A-1-1")}, 80),
        ({"seats": ("A-1-2",)}, None),
        ({"ga": (("GA", 1, None),)}, 30),
        ({"ga": (("GA", 2, None),)}, None),
        ({}, 70),
    ],
)
def test_a_refund_is_never_more_than_what_is_left(selection: dict[str, Any], amount_minor: int | None) -> None:
    if amount_minor is None:
        with pytest.raises(RefundRefused):
            plan(SOLD, RefundSelection(**selection))
    else:
        assert plan(SOLD, RefundSelection(**selection))[0] == min(70, amount_minor)


def test_what_was_refunded_whole_is_refunded_no_more() -> None:
    refunded = replace(SOLD, charges=(replace(CHARGE, refunded_minor=100),), lines=())
    with pytest.raises(RefundRefused):
        plan(refunded, RefundSelection())


TOTAL_MINOR = 6800
REQUESTS = st.one_of(
    st.fixed_dictionaries({"amount_minor": st.integers(1, 5000)}),
    st.sampled_from(["A-1-1", "A-1-2"]).map(lambda seat: {"tickets": {"seats": [seat]}}),
    st.integers(1, 3).map(lambda n: {"tickets": {"ga": [{"section_id": "GA1", "quantity": n}]}}),
    st.just({"return_to_sale": True}),
)
ROUNDS = st.lists(st.lists(REQUESTS, min_size=1, max_size=4), max_size=3)  # the requests of a round are concurrent


@pytest.fixture
def rejections_left(shop: Shop) -> Any:
    """How many refunds the provider still rejects."""
    provider: Any = shop.state.providers["sandbox"]
    original, left = provider.refund, [0]

    async def refund(*args: Any, **named: Any) -> str:
        if left[0]:
            left[0] -= 1
            raise ProviderRejected("never")
        return str(await original(*args, **named))

    provider.refund = refund
    yield left
    provider.refund = original


@bounded(examples=5, steps=1)
@given(
    method=st.sampled_from(["ok", "double_success", "refund_fails_once"]),
    rounds=ROUNDS,
    rejections=st.integers(0, 2),
    decisions=st.lists(st.sampled_from(["confirm", "refund"]), min_size=4, max_size=4),
)
async def test_the_money_an_order_keeps_matches_its_status(
    shop: Shop, rejections_left: list[int], method: str, rounds: list[list[dict[str, Any]]], rejections: int,
    decisions: list[str],
) -> None:  # fmt: skip
    reservation_id = await shop.inventory.hold(lines=LINES)
    reference = await shop.order_of(reservation_id, method=method)
    try:
        await shop.wait_for_status(reference, "confirmed", "review")
        rejections_left[0] = rejections
        for number, requests in enumerate(rounds):
            posts = [
                shop.admin_post(f"{reference}/refund", key=f"{number}.{n}", **each) for n, each in enumerate(requests)
            ]
            assert {answer.status_code for answer in await asyncio.gather(*posts)} <= {202, 409}
            await wait_until_finished(shop, reference)
            if (await shop.row(reference)).status == "review":
                await decide(shop, reference, decisions[number])
        rejections_left[0] = 0
        await wait_until_finished(shop, reference)
        if (await shop.row(reference)).status == "review":
            await decide(shop, reference, decisions[-1])
        await check_amounts(shop, reference, reservation_id)
    finally:
        await shop.inventory.return_all(reservation_id)  # the next example sells the same seats
        await shop.inventory.unblock("A-1-1", "A-1-2")


async def decide(shop: Shop, reference: str, decision: str) -> None:
    """Confirms if the decision is not allowed, as when nothing is left to refund."""
    if (await shop.admin_post(f"{reference}/resolve", decision=decision)).status_code == 409:
        assert (await shop.admin_post(f"{reference}/resolve", decision="confirm")).status_code == 202


async def wait_until_finished(shop: Shop, reference: str) -> None:
    """Every charge is entered, nothing is due, and no charge without a sale is left, unless an operator must decide."""

    async def finished() -> bool:
        order = await shop.row(reference)
        all_entered = len(order.charges) == sum(c["captured_minor"] > 0 for c in await shop.charges(reference))
        pending = order.refunds or order.returns or order.review_decision or not all_entered
        return not pending and (order.status == "review" or not order.unmatched_charges)

    await wait_until(finished, timeout_s=10, interval_s=0.02)


async def check_amounts(shop: Shop, reference: str, reservation_id: str) -> None:
    await wait_until_finished(shop, reference)
    order = await shop.row(reference)
    entries = [entry for entry in await shop.money_entries() if entry[1] == reference]
    charged = sum(minor for kind, _, minor in entries if kind == "charge")
    refunded = sum(minor for kind, _, minor in entries if kind == "refund")
    kept = charged - refunded
    limits = {"confirmed": (TOTAL_MINOR,) * 2, "partially_refunded": (1, TOTAL_MINOR - 1), "refunded": (0, 0)}
    assert order.status in limits
    low, high = limits[order.status]
    assert low <= kept <= high
    assert kept == await shop.net_minor(reference)
    assert len(await shop.inventory.tickets(reservation_id)) == sum(
        line.quantity - line.returned for line in order.lines
    )
    assert await shop.violated_invariants() == {}
