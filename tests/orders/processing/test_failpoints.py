"""Every story of a purchase ends as it says, also with workers stopped at each failpoint of each step."""

import asyncio
from typing import get_args

import pytest

from services.orders.model.rules import Step
from tests.orders.manual_orders import ManualShop
from tests.orders.stopped_workers import check_end, check_story
from tests.orders.stories import (
    STORIES,
    Fans,
    Story,
    cancelled_on_the_hosted_page,
    declined_then_paid,
    hold_reacquired,
    paid,
    paid_late,
)

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
