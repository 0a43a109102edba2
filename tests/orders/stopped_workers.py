"""Workers that stop at failpoints of a story: each dies there, or sleeps until the story has ended. Its end stays the
same, to the cent.
"""

from collections.abc import Collection
from typing import get_args

from services.orders.model.rules import Step
from tests.orders.manual_orders import ManualShop, open_manual_shop
from tests.orders.reported_amounts import check_reported_amounts, provider_amounts, settlement_amounts, summed
from tests.orders.stories import AFTER_CONFIRM, STORIES, Fans, Story

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
