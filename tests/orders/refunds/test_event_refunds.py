"""The refund of a whole event: at its rate, in any process, pausable, each order once, and done at its end."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from sqlalchemy import text

from services.orders.audit.audit_log import Actor
from services.orders.refunds.event_refunds import EventRefunds, start
from tests.orders.holds import EVENT
from tests.orders.shop import Shop
from tests.support.wait import wait_until

ALL = f"events/{EVENT}/refund"
PACE = f"/events/{EVENT}/refund"


async def sold(shop: Shop, n: int) -> list[str]:
    references = await asyncio.gather(*(shop.order() for _ in range(n)))
    for reference in references:
        await shop.is_now(reference, "confirmed")
    return list(references)


async def is_done(shop: Shop) -> bool:
    return bool((await shop.look_up(PACE))["status"] == "done")


async def asked_for(shop: Shop) -> int:
    async with shop.app.state.deps.db.connect() as connection:
        return int(await connection.scalar(text("SELECT count(*) FROM orders.refund")) or 0)


async def test_everybody_has_the_money_back_once_and_unpaid_orders_are_cancelled(shop: Shop) -> None:
    references = await sold(shop, 6)
    waits = await shop.order(method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(waits, "requires_action"))
    assert (await shop.operate(f"{references[0]}/refund", amount_minor=100, key="k")).status_code == 202
    asked: dict[str, Any] = {"rate_per_s": 200, "return_to_sale": True}
    answers = await asyncio.gather(*(shop.operate(ALL, **asked) for _ in range(3)))
    assert {answer.status_code for answer in answers} == {202}
    await wait_until(lambda: is_done(shop), timeout_s=10)
    for reference in references:
        await shop.is_now(reference, "refunded")
    await shop.is_now(waits, "cancelled")
    job = await shop.look_up(PACE)
    assert (job["asked"], job["cancelled"]) == (6, 1)
    assert job["refunds"] == {"succeeded": {"count": 7, "amount_minor": 6 * 6800}}
    assert len(shop.holds.returned) == 6
    assert [sum(e[2] for e in await shop.entries() if e[0] == kind) for kind in ("charge", "refund")] == [40800, 40800]
    assert await shop.audit() == {}


async def test_it_keeps_its_pace_whoever_works_on_it_and_goes_on_in_another_process(processes: Any) -> None:
    """Ten loops run at one order in two seconds; then the process that began is gone."""
    async with AsyncExitStack() as first:
        shop = await processes.open(stack=first)
        await sold(shop, 8)
        db = shop.app.state.deps.db
        by = Actor(name="ops", role="operator", reason="rain")
        await start(db, EVENT, by, rate_per_s=0.5, return_to_sale=False)
        await shop.run("UPDATE orders.event_refund SET paced_until = now() - interval '1 hour'")
        await asyncio.gather(*(EventRefunds(db).run_once() for _ in range(10)))
        assert await asked_for(shop) <= 2, "an hour in which nobody worked is no reason to hurry"
        assert (await shop.operate(f"{ALL}/pause")).json()["status"] == "paused"
        paused = await asked_for(shop)
        await shop.run("UPDATE orders.event_refund SET paced_until = now() - interval '1 hour'")
        assert await EventRefunds(db).run_once() == 0
    other = await processes.open()
    assert await asked_for(other) == paused < 8
    assert (await other.operate(f"{ALL}/resume", rate_per_s=200)).json()["rate_per_s"] == 200
    await wait_until(lambda: is_done(other), timeout_s=10)
    assert await asked_for(other) == 8
    for verb in ("pause", "resume"):
        assert (await other.operate(f"{ALL}/{verb}")).json()["type"] == "/problems/event-refund-finished"


async def test_only_a_refund_that_was_asked_for_can_be_seen_or_steered(shop: Shop) -> None:
    assert (await shop.operate(f"{ALL}/pause")).json()["type"] == "/problems/no-event-refund"
    for bad in ({"rate_per_s": 0}, {"rate_per_s": 201}, {"rate_per_s": "nan"}, {"reason": ""}):
        assert (await shop.operate(ALL, **bad)).status_code == 422
    assert await asked_for(shop) == 0
