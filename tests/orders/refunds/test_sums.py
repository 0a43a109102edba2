"""Charged once or twice, refunded in part or in full, rejected or failing, in any order: what an order keeps matches
its status and is never negative, and the provider's records agree.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.orders.payments.provider import ProviderRejected
from shared.contracts.inventory import ReservedItem
from tests.orders.shop import Shop
from tests.properties.examples import bounded
from tests.support.wait import wait_until

TOTAL_MINOR = 6800
LINES = [
    ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=2000),
    ReservedItem(section_id="A", seat_id="A-1-2", unit_price_minor=1800),
    ReservedItem(section_id="GA1", quantity=3, unit_price_minor=1000),
]
WISHES = st.one_of(
    st.fixed_dictionaries({"amount_minor": st.integers(1, 5000)}),
    st.sampled_from(["A-1-1", "A-1-2"]).map(lambda seat: {"tickets": {"seats": [seat]}}),
    st.integers(1, 3).map(lambda n: {"tickets": {"ga": [{"section_id": "GA1", "quantity": n}]}}),
    st.just({"return_to_sale": True}),
)
ROUNDS = st.lists(st.lists(WISHES, min_size=1, max_size=4), max_size=3)  # those of a round are asked at once


@pytest.fixture
def refusing(shop: Shop) -> Any:
    """The provider, which rejects as many refunds as the test wants."""
    provider = shop.app.state.deps.providers["sandbox"]
    real, left = provider.refund, [0]

    async def refund(*args: Any, **named: Any) -> str:
        if left[0]:
            left[0] -= 1
            raise ProviderRejected("never")
        return str(await real(*args, **named))

    provider.refund = refund
    yield left
    provider.refund = real


@pytest.mark.asyncio(loop_scope="session")
@bounded(examples=5, steps=1)
@given(
    method=st.sampled_from(["ok", "double_success", "refund_fails_once"]),
    rounds=ROUNDS,
    refusals=st.integers(0, 2),
    decisions=st.lists(st.sampled_from(["confirm", "refund"]), min_size=4, max_size=4),
)
async def test_what_an_order_keeps_is_what_its_state_says(
    shop: Shop, refusing: list[int], method: str, rounds: list[list[dict[str, Any]]], refusals: int,
    decisions: list[str],
) -> None:  # fmt: skip
    held = shop.holds.hold(lines=LINES)
    reference = await shop.order_of(held, method=method)
    await shop.is_now(reference, "confirmed", "review")
    refusing[0] = refusals
    for number, wishes in enumerate(rounds):
        asked = [shop.operate(f"{reference}/refund", key=f"{number}.{n}", **wish) for n, wish in enumerate(wishes)]
        answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} <= {202, 409}
        await at_rest(shop, reference)
        if (await shop.row(reference)).status == "review":
            await decide(shop, reference, decisions[number])
    refusing[0] = 0
    await at_rest(shop, reference)
    if (await shop.row(reference)).status == "review":
        await decide(shop, reference, decisions[-1])
    await check(shop, reference, held)


async def decide(shop: Shop, reference: str, decision: str) -> None:
    """Or another allowed decision: a sale of which nothing is left can only be kept."""
    if (await shop.operate(f"{reference}/resolve", decision=decision)).status_code == 409:
        assert (await shop.operate(f"{reference}/resolve", decision="confirm")).status_code == 202


async def at_rest(shop: Shop, reference: str) -> None:
    """Every charge is known, nothing is due, and no money without a sale is left, unless an operator must decide."""

    async def rests() -> bool:
        seen = await shop.row(reference)
        known = len(seen.charges) == sum(c["captured_minor"] > 0 for c in await shop.charges(reference))
        on_its_way = seen.refunds or seen.returns or seen.review_decision or not known
        return not on_its_way and (seen.status == "review" or not seen.unmatched_charges)

    await wait_until(rests, timeout_s=10, interval_s=0.02)


async def check(shop: Shop, reference: str, held: str) -> None:
    await at_rest(shop, reference)
    seen = await shop.row(reference)
    mine = [entry for entry in await shop.entries() if entry[1] == reference]
    charged = sum(minor for kind, _, minor in mine if kind == "charge")
    refunded = sum(minor for kind, _, minor in mine if kind == "refund")
    kept = charged - refunded
    assert seen.status in ("confirmed", "partially_refunded", "refunded")
    low, high = {"confirmed": (TOTAL_MINOR,) * 2, "partially_refunded": (1, TOTAL_MINOR - 1), "refunded": (0, 0)}[
        seen.status
    ]
    assert low <= kept <= high
    assert kept == await shop.net_minor(reference)
    returned = sum(line.returned for line in seen.lines)
    assert len(shop.holds.back(held)) == returned
    assert await shop.audit() == {}
