"""Every story of a purchase, stopped at every point of it: it ends as if nothing had happened, to the cent."""

import asyncio
from typing import get_args

import pytest

from services.orders.order.next_step import Step
from tests.orders.books import booked_of, books_agree, settled_minor
from tests.orders.manual_orders import Desk, open_desk
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
    """A fan for each point, whose worker dies there; and one whose worker sleeps there and acts when all is over."""
    end, steps = STORIES[story]
    capture = "after_confirm" if story in AFTER_CONFIRM else "before_confirm"
    async with open_desk(postgres_url, redis_url, capture=capture) as desk:
        alone = Fans(desk, "alone", [None])
        await story(alone)
        points = list(desk.trap.passed[alone.references[0]])
        assert {f"{when} {step}" for when in ("before", "after") for step in steps.split()} <= set(points)
        acting = [number for number, point in enumerate(points) if point.startswith("before")]
        traps = [(number, "dies") for number in range(len(points))] + [(number, "sleeps") for number in acting]
        fans = Fans(desk, "many", traps)
        await story(fans)
        assert desk.trap.sprung == set(fans.references), "everybody was stopped"
        assert len(desk.trap.asleep) == len(acting)
        await desk.trap.wake()
        await fans.go_on()
        await _all_ended(desk, alone, end)
        await _all_ended(desk, fans, end)


def test_every_step_is_part_of_a_story() -> None:
    told = {step for _, steps in STORIES.values() for step in steps.split()}
    assert told == set(get_args(Step)) - {"wait"}


@pytest.mark.parametrize("how", ["unreachable", "answer lost"])
@pytest.mark.parametrize("story", [paid, cancelled_on_the_page, paid_late, hold_lost_and_found])
async def test_a_step_that_inventory_does_not_answer_is_asked_for_again(
    story: Story, how: str, postgres_url: str, redis_url: str
) -> None:
    """The first call of every step for every order gets no answer, whether it was carried out or not."""
    end, _ = STORIES[story]
    known = set[tuple[str, str]]()

    def mood(verb: str, reference: str) -> str | None:
        again = (verb, reference) in known
        known.add((verb, reference))
        return None if again else how

    async with open_desk(postgres_url, redis_url) as desk:
        desk.shelf.mood = mood
        fans = Fans(desk, "fan", [None] * 3)
        await story(fans)
        await fans.go_on()
        await _all_ended(desk, fans, end)


async def test_a_crowd_shares_its_calls_to_inventory(postgres_url: str, redis_url: str) -> None:
    """Forty purchases at once: begun and confirmed in a few calls, each of them once."""
    async with open_desk(postgres_url, redis_url) as desk:
        fans = Fans(desk, "crowd", [None] * 40)
        await paid(fans)
        for verb in ("begin", "confirm"):
            sizes = [size for name, size in desk.shelf.calls if name == verb]
            assert sum(sizes) == 40
            assert len(sizes) <= 10, sizes
        await _all_ended(desk, fans, "confirmed")


async def test_a_thousand_retries_of_one_purchase_are_one_charge(postgres_url: str, redis_url: str) -> None:
    async with open_desk(postgres_url, redis_url) as desk:
        body = desk.body(desk.holds.hold())
        answers = [await desk.post(body)]
        for _ in range(10):
            more = asyncio.gather(*(desk.post(body) for _ in range(100)))
            await desk.work()
            answers += await more
        [reference] = {answer.json()["reference"] for answer in answers}
        await desk.work()
        assert len(await desk.charges()) == 1
        assert await desk.entries() == [("charge", reference, 6800)]
        assert await desk.audit() == {}


async def _all_ended(desk: Desk, fans: Fans, end: str) -> None:
    """Each order as told, its hold with it, and every cent where the provider's books say it is."""
    await desk.travel(SETTLED_S)
    for reference in fans.references:
        order = await desk.row(reference)
        assert order.status == end, f"{reference} came by {desk.trap.passed[reference]}, stopped {desk.trap.at}"
        kept = order.total_minor if end == "confirmed" else 0
        assert await desk.net_minor(reference) == kept
        held = desk.holds.reservations[fans.reservations[reference]]
        assert held.status != "paying"
        assert end != "confirmed" or held.status == "confirmed"
        assert order.confirmed_at_ms or held.status != "confirmed"
        await books_agree(desk, reference)
    assert await desk.entries() == await desk.booked()
    booked = (await booked_of(desk)).values()
    assert await settled_minor(desk) == [sum(minor) for minor in zip((0, 0), *booked, strict=True)]
    assert await desk.audit() == {}
