"""The refund of a whole event: each order once, at a rate, in any process; operators pause and resume it."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from services.orders.requests.requests import request_next_batch, start_event_refund
from shared.audit_log import Actor
from shared.concurrency.background import Quiet
from tests.orders.inventory import EVENT
from tests.orders.shop import Shop
from tests.support.wait import wait_until

REFUND = f"events/{EVENT}/refund"


async def sold(shop: Shop, n: int) -> list[str]:
    references = await asyncio.gather(*(shop.order() for _ in range(n)))
    for reference in references:
        await shop.wait_for_status(reference, "confirmed")
    return list(references)


async def progress(shop: Shop) -> dict[str, Any]:
    return await shop.admin_get(f"/{REFUND}")


async def is_done(shop: Shop) -> bool:
    return bool((await progress(shop))["status"] == "done")


async def requested_refunds(shop: Shop) -> int:
    return int(await shop.scalar("SELECT count(*) FROM orders.refund"))


async def pass_an_hour(shop: Shop) -> None:
    """Without any refund."""
    await shop.run("UPDATE orders.event_refund SET paced_until = now() - interval '1 hour'")


@pytest.mark.usefixtures("loops")
async def test_an_event_refund_refunds_every_order_once_and_cancels_unpaid_ones(shop: Shop) -> None:
    references = await sold(shop, 6)
    unpaid = await shop.order(method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(unpaid, "requires_action"))
    assert (await shop.admin_post(f"{references[0]}/refund", amount_minor=100, key="k")).status_code == 202
    requests = (shop.admin_post(REFUND, rate_per_s=200, return_to_sale=True) for _ in range(3))
    answers = await asyncio.gather(*requests)
    assert {answer.status_code for answer in answers} == {202}
    await wait_until(lambda: is_done(shop))
    for reference in references:
        await shop.wait_for_status(reference, "refunded")
    await shop.wait_for_status(unpaid, "cancelled")
    job = await progress(shop)
    assert (job["asked"], job["cancelled"]) == (6, 1)
    assert job["refunds"] == {"succeeded": {"count": 7, "amount_minor": 6 * 6800}}
    held = [(await shop.view(reference))["reservation_id"] for reference in references]
    assert {await shop.inventory.status(reservation_id) for reservation_id in held} == {"returned"}
    sums = [sum(e[2] for e in await shop.money_entries() if e[0] == kind) for kind in ("charge", "refund")]
    assert sums == [40800, 40800]
    assert await shop.violated_invariants() == {}


@pytest.mark.usefixtures("loops")
async def test_an_event_refund_keeps_its_rate_and_resumes_in_another_process(processes: Any) -> None:
    """Ten loops share a rate of one order in two seconds. Then the first process ends and another one resumes."""
    async with AsyncExitStack() as first:
        shop = await processes.open(stack=first)
        await sold(shop, 8)
        store = shop.state.store
        actor = Actor(name="ops", role="operator", reason="rain")
        await start_event_refund(shop.state.db, EVENT, actor, rate_per_s=0.5, return_to_sale=False)
        await pass_an_hour(shop)
        await asyncio.gather(*(request_next_batch(store) for _ in range(10)))
        assert await requested_refunds(shop) <= 2, "the hour is not made up for"
        assert (await shop.admin_post(f"{REFUND}/pause")).json()["status"] == "paused"
        paused = await requested_refunds(shop)
        await pass_an_hour(shop)
        assert await request_next_batch(store) == Quiet()
    other = await processes.open()
    assert await requested_refunds(other) == paused < 8
    assert (await other.admin_post(f"{REFUND}/resume", rate_per_s=200)).json()["rate_per_s"] == 200
    await wait_until(lambda: is_done(other))
    assert await requested_refunds(other) == 8
    for verb in ("pause", "resume"):
        assert (await other.admin_post(f"{REFUND}/{verb}")).json()["type"] == "/problems/event-refund-finished"


async def test_an_event_refund_needs_valid_values_and_must_exist_to_be_paused(shop: Shop) -> None:
    assert (await shop.admin_post(f"{REFUND}/pause")).json()["type"] == "/problems/no-event-refund"
    for bad in ({"rate_per_s": 0}, {"rate_per_s": 5e-324}, {"rate_per_s": 201}, {"rate_per_s": "nan"}, {"reason": ""}):
        assert (await shop.admin_post(REFUND, **bad)).status_code == 422
    assert await requested_refunds(shop) == 0
