"""Every story of a purchase ends as it says, also with workers stopped at each failpoint of each step.

Workers that stop at failpoints of a story: each dies there, or sleeps until the story has ended. Its end stays the
same, to the cent.
"""

import asyncio
from collections.abc import Collection
from typing import get_args

import pytest

from services.orders.model.rules import Step
from tests.orders.manual_orders import ManualShop, open_manual_shop
from tests.orders.shop import check_reported_amounts, provider_amounts, settlement_amounts, summed
from tests.orders.stories import (
    AFTER_CONFIRM,
    STORIES,
    Fans,
    Story,
    cancelled_on_the_hosted_page,
    declined_then_paid,
    hold_reacquired,
    paid,
    paid_late,
)

SYNC_S = 20


async def check_story(
    story: Story, postgres_url: str, redis_url: str, *, stopped_in: Collection[str] | None = None
) -> None:
    """The story without a stop, and with a worker that dies and one that sleeps at each failpoint, or at those of the
    steps `stopped_in`, once each. A worker that sleeps before a step acts late, so it sleeps there only.
    """
    end, steps = STORIES[story]
    capture = "after_confirm" if story in AFTER_CONFIRM else "before_confirm"
    async with open_manual_shop(postgres_url, redis_url, capture=capture) as manual:
        undisturbed = Fans(manual, "undisturbed", [None])
        await story(undisturbed)
        points = list(manual.failpoint.passed[undisturbed.references[0]])
        assert {point.removeprefix("before ") for point in points} & set(get_args(Step)) == set(steps.split())
        numbers = range(len(points)) if stopped_in is None else _first_of_each(points, stopped_in)
        acting = [number for number in numbers if points[number].startswith("before")]
        failpoints = [(number, "dies") for number in numbers] + [(number, "sleeps") for number in acting]
        if failpoints:
            fans = Fans(manual, "disturbed", failpoints)
            await story(fans)
            assert manual.failpoint.triggered == set(fans.references), "every worker was stopped"
            assert len(manual.failpoint.asleep) == len(acting)
            await manual.failpoint.wake()
            await fans.process()
            await check_end(manual, fans, end)
        await check_end(manual, undisturbed, end)


def _first_of_each(points: list[str], steps: Collection[str]) -> list[int]:
    """The numbers of the failpoints inside these steps, each name once a step."""
    step, found = "", dict[tuple[str, str], int]()
    for number, point in enumerate(points):
        name = point.removeprefix("before ")
        step = name if name in get_args(Step) else step
        if step in steps:
            found.setdefault((step, point), number)
    return list(found.values())


async def check_end(manual: ManualShop, fans: Fans, end: str) -> None:
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
        held = await manual.inventory.read(fans.reservations[reference])
        assert held.status != "paying"
        assert end != "confirmed" or held.status == "confirmed"
        assert order.confirmed_at_ms or held.status != "confirmed"
    await check_reported_amounts(manual, *fans.references)
    assert summed(await manual.money_entries()) == summed(await manual.provider_entries())
    amounts = (await provider_amounts(manual)).values()
    assert await settlement_amounts(manual) == [sum(minor) for minor in zip((0, 0), *amounts, strict=True)]
    assert await manual.violated_invariants() == {}


# By story: the steps in which workers stop in `make test`. After a decline alone a worker passes "after charge".
STOPPED_IN: dict[Story, set[str]] = {declined_then_paid: {"charge"}}
_seen = set[str]()
for _story, (_, _steps) in sorted(STORIES.items(), key=lambda item: len(item[1][1])):
    STOPPED_IN.setdefault(_story, set()).update(set(_steps.split()) - _seen)
    _seen |= set(_steps.split())


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_worker_stopped_at_a_failpoint_does_not_change_the_end_of_a_story(
    story: Story, postgres_url: str, redis_url: str
) -> None:
    await check_story(story, postgres_url, redis_url, stopped_in=STOPPED_IN[story])


@pytest.mark.proof
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_worker_stopped_at_any_failpoint_does_not_change_the_end_of_a_story(
    story: Story, postgres_url: str, redis_url: str
) -> None:
    await check_story(story, postgres_url, redis_url)


def test_every_step_is_part_of_a_story() -> None:
    assert set().union(*STOPPED_IN.values()) == set(get_args(Step)) - {"wait"}


@pytest.mark.parametrize(("story", "how"), [
    (paid, "answer lost"), (cancelled_on_the_hosted_page, "answer lost"), (paid_late, "unreachable"),
    (hold_reacquired, "answer lost"), pytest.param(paid, "unreachable", marks=pytest.mark.proof),
    pytest.param(cancelled_on_the_hosted_page, "unreachable", marks=pytest.mark.proof),
    pytest.param(paid_late, "answer lost", marks=pytest.mark.proof),
    pytest.param(hold_reacquired, "unreachable", marks=pytest.mark.proof),
])  # fmt: skip
async def test_a_step_that_inventory_does_not_answer_is_retried(manual: ManualShop, story: Story, how: str) -> None:
    """The first call of every step of every order fails, before or after inventory executed it."""
    end, _ = STORIES[story]
    failed = set[tuple[str, str]]()

    def fault(verb: str, reference: str) -> str | None:
        if (verb, reference) in failed:
            return None
        failed.add((verb, reference))
        return how

    manual.inventory_connection.fault = fault
    fans = Fans(manual, "fan", [None] * 3)
    await story(fans)
    await fans.process()
    await check_end(manual, fans, end)


async def test_concurrent_purchases_share_their_calls_to_inventory(manual: ManualShop) -> None:
    """Forty orders begin and confirm in a few calls, each order once."""
    fans = Fans(manual, "fan", [None] * 40)
    await paid(fans)
    for verb in ("begin-payment", "confirm"):
        sizes = [size for name, size in manual.inventory_connection.batches if name == verb]
        assert sum(sizes) == 40
        assert len(sizes) <= 10, sizes
    await check_end(manual, fans, "confirmed")


async def test_a_hundred_retries_of_one_purchase_make_one_charge(manual: ManualShop) -> None:
    body = manual.body(await manual.inventory.hold())
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
