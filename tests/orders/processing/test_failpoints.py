"""Every story of a purchase, with workers stopped at each of its failpoints: its end stays the same, to the cent."""

import asyncio
from typing import get_args

import pytest

from services.orders.order.next_step import Step
from tests.orders.manual_orders import ManualShop, open_manual_shop
from tests.orders.reported_amounts import check_reported_amounts, provider_amounts, settlement_amounts, summed
from tests.orders.stories import (
    AFTER_CONFIRM,
    STORIES,
    Fans,
    Story,
    cancelled_on_the_hosted_page,
    hold_reacquired,
    paid,
    paid_late,
)

SYNC_S = 20


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_worker_stopped_at_any_failpoint_does_not_change_the_end_of_a_story(
    story: Story, postgres_url: str, redis_url: str
) -> None:
    """For each failpoint, one worker dies there and one sleeps there until the story has ended."""
    end, steps = STORIES[story]
    capture = "after_confirm" if story in AFTER_CONFIRM else "before_confirm"
    async with open_manual_shop(postgres_url, redis_url, capture=capture) as manual:
        undisturbed = Fans(manual, "undisturbed", [None])
        await story(undisturbed)
        points = list(manual.failpoint.passed[undisturbed.references[0]])
        assert {point.removeprefix("before ") for point in points} & set(get_args(Step)) == set(steps.split())
        acting = [number for number, point in enumerate(points) if point.startswith("before")]
        failpoints = [(number, "dies") for number in range(len(points))] + [(number, "sleeps") for number in acting]
        fans = Fans(manual, "disturbed", failpoints)
        await story(fans)
        assert manual.failpoint.triggered == set(fans.references), "every worker was stopped"
        assert len(manual.failpoint.asleep) == len(acting)
        await manual.failpoint.wake()
        await fans.process()
        await _check_end(manual, undisturbed, end)
        await _check_end(manual, fans, end)


def test_every_step_is_part_of_a_story() -> None:
    covered = {step for _, steps in STORIES.values() for step in steps.split()}
    assert covered == set(get_args(Step)) - {"wait"}


@pytest.mark.parametrize("how", ["unreachable", "answer lost"])
@pytest.mark.parametrize("story", [paid, cancelled_on_the_hosted_page, paid_late, hold_reacquired])
async def test_a_step_that_inventory_does_not_answer_is_retried(manual: ManualShop, story: Story, how: str) -> None:
    """The first call of every step of every order fails, before or after inventory executed it."""
    end, _ = STORIES[story]
    failed = set[tuple[str, str]]()

    def fault(verb: str, reference: str) -> str | None:
        if (verb, reference) in failed:
            return None
        failed.add((verb, reference))
        return how

    manual.inventory.fault = fault
    fans = Fans(manual, "fan", [None] * 3)
    await story(fans)
    await fans.process()
    await _check_end(manual, fans, end)


async def test_concurrent_purchases_share_their_calls_to_inventory(manual: ManualShop) -> None:
    """Forty orders begin and confirm in a few calls, each order once."""
    fans = Fans(manual, "fan", [None] * 40)
    await paid(fans)
    for verb in ("begin", "confirm"):
        sizes = [size for name, size in manual.inventory.calls if name == verb]
        assert sum(sizes) == 40
        assert len(sizes) <= 10, sizes
    await _check_end(manual, fans, "confirmed")


async def test_a_hundred_retries_of_one_purchase_make_one_charge(manual: ManualShop) -> None:
    body = manual.body(manual.holds.hold())
    answers = [await manual.post(body)]
    for _ in range(10):
        posts = asyncio.gather(*(manual.post(body) for _ in range(10)))
        await manual.work()
        answers += await posts
    [reference] = {answer.json()["reference"] for answer in answers}
    await manual.work()
    assert len(await manual.charges()) == 1
    assert await manual.money_entries() == [("charge", reference, 6800)]
    assert await manual.violated_invariants() == {}


async def _check_end(manual: ManualShop, fans: Fans, end: str) -> None:
    """Each order has the story's status, and its hold and the provider's money agree with that. No charge is open."""
    await manual.travel(SYNC_S)
    charges = await manual.charges()
    assert {c["status"] for c in charges if not c["captured_minor"]} <= {"failed", "cancelled"}
    for reference in fans.references:
        order = await manual.row(reference)
        assert order.status == end, (
            f"{reference} passed {manual.failpoint.passed[reference]}, stopped {manual.failpoint.at}"
        )
        kept = order.total_minor if end == "confirmed" else 0
        assert sum(c["captured_minor"] - c["refunded_minor"] for c in charges if c["reference"] == reference) == kept
        held = manual.holds.reservations[fans.reservations[reference]]
        assert held.status != "paying"
        assert end != "confirmed" or held.status == "confirmed"
        assert order.confirmed_at_ms or held.status != "confirmed"
    await check_reported_amounts(manual, *fans.references)
    assert summed(await manual.money_entries()) == summed(await manual.provider_entries())
    amounts = (await provider_amounts(manual)).values()
    assert await settlement_amounts(manual) == [sum(minor) for minor in zip((0, 0), *amounts, strict=True)]
    assert await manual.violated_invariants() == {}
