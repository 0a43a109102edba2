"""Charged once or twice, refunded in part or in full, rejected or failing, in any order: what an order keeps matches
its status and is never negative, and the provider's records agree.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.inventory import ReservedItem
from shared.payment_provider import ProviderRejected
from tests.orders.shop import Shop
from tests.properties.examples import bounded
from tests.support.wait import wait_until

TOTAL_MINOR = 6800
LINES = [
    ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=2000),
    ReservedItem(section_id="A", seat_id="A-1-2", unit_price_minor=1800),
    ReservedItem(section_id="GA1", quantity=3, unit_price_minor=1000),
]
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
