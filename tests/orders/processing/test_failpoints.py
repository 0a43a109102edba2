"""Every story of a purchase, stopped at each of its failpoints: it ends as if nothing had happened, to the cent."""

import asyncio
from typing import get_args

import pytest

from services.orders.order.next_step import Step
from tests.orders.books import booked_of, books_agree, settled_minor
from tests.orders.manual_orders import ManualShop, open_manual_shop
from tests.orders.stories import (
    AFTER_CONFIRM,
    STORIES,
    Fans,
    Story,
    cancelled_on_the_page,
    hold_lost_and_found,
    paid,
    paid_late,
)

SETTLED_S = 20


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_worker_stopped_at_any_point_of_a_story_does_not_change_its_end(
    story: Story, postgres_url: str, redis_url: str
) -> None:
    """For each failpoint one fan whose worker dies there, and one whose worker sleeps there until all is over."""
    end, steps = STORIES[story]
    capture = "after_confirm" if story in AFTER_CONFIRM else "before_confirm"
    async with open_manual_shop(postgres_url, redis_url, capture=capture) as manual:
        alone = Fans(manual, "alone", [None])
        await story(alone)
        points = list(manual.failpoint.passed[alone.references[0]])
        assert {f"{when} {step}" for when in ("before", "after") for step in steps.split()} <= set(points)
        acting = [number for number, point in enumerate(points) if point.startswith("before")]
        failpoints = [(number, "dies") for number in range(len(points))] + [(number, "sleeps") for number in acting]
        fans = Fans(manual, "many", failpoints)
        await story(fans)
        assert manual.failpoint.sprung == set(fans.references), "everybody was stopped"
        assert len(manual.failpoint.asleep) == len(acting)
        await manual.failpoint.wake()
        await fans.go_on()
        await _all_ended(manual, alone, end)
        await _all_ended(manual, fans, end)


def test_every_step_is_part_of_a_story() -> None:
    told = {step for _, steps in STORIES.values() for step in steps.split()}
    assert told == set(get_args(Step)) - {"wait"}


@pytest.mark.parametrize("how", ["unreachable", "answer lost"])
@pytest.mark.parametrize("story", [paid, cancelled_on_the_page, paid_late, hold_lost_and_found])
async def test_a_step_that_inventory_does_not_answer_is_asked_for_again(
    story: Story, how: str, postgres_url: str, redis_url: str
) -> None:
    """The first call of every step of every order gets no answer, whether it was carried out or not."""
    end, _ = STORIES[story]
    known = set[tuple[str, str]]()

    def fault(verb: str, reference: str) -> str | None:
        again = (verb, reference) in known
        known.add((verb, reference))
        return None if again else how

    async with open_manual_shop(postgres_url, redis_url) as manual:
        manual.inventory.fault = fault
        fans = Fans(manual, "fan", [None] * 3)
        await story(fans)
        await fans.go_on()
        await _all_ended(manual, fans, end)


async def test_a_crowd_shares_its_calls_to_inventory(postgres_url: str, redis_url: str) -> None:
    """Forty concurrent purchases: begun and confirmed in a few calls, each order once."""
    async with open_manual_shop(postgres_url, redis_url) as manual:
        fans = Fans(manual, "crowd", [None] * 40)
        await paid(fans)
        for verb in ("begin", "confirm"):
            sizes = [size for name, size in manual.inventory.calls if name == verb]
            assert sum(sizes) == 40
            assert len(sizes) <= 10, sizes
        await _all_ended(manual, fans, "confirmed")


async def test_a_thousand_retries_of_one_purchase_are_one_charge(postgres_url: str, redis_url: str) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        body = manual.body(manual.holds.hold())
        answers = [await manual.post(body)]
        for _ in range(10):
            more = asyncio.gather(*(manual.post(body) for _ in range(100)))
            await manual.work()
            answers += await more
        [reference] = {answer.json()["reference"] for answer in answers}
        await manual.work()
        assert len(await manual.charges()) == 1
        assert await manual.entries() == [("charge", reference, 6800)]
        assert await manual.audit() == {}


async def _all_ended(manual: ManualShop, fans: Fans, end: str) -> None:
    """Each order has the story's status, its hold agrees, and so does every cent at the provider."""
    await manual.travel(SETTLED_S)
    for reference in fans.references:
        order = await manual.row(reference)
        assert order.status == end, (
            f"{reference} came by {manual.failpoint.passed[reference]}, stopped {manual.failpoint.at}"
        )
        kept = order.total_minor if end == "confirmed" else 0
        assert await manual.net_minor(reference) == kept
        held = manual.holds.reservations[fans.reservations[reference]]
        assert held.status != "paying"
        assert end != "confirmed" or held.status == "confirmed"
        assert order.confirmed_at_ms or held.status != "confirmed"
        await books_agree(manual, reference)
    assert await manual.entries() == await manual.booked()
    booked = (await booked_of(manual)).values()
    assert await settled_minor(manual) == [sum(minor) for minor in zip((0, 0), *booked, strict=True)]
    assert await manual.audit() == {}
