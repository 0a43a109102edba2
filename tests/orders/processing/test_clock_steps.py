"""Clocks are set forward and back while an order waits for its fan: it never ends before its announced deadline."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sqlalchemy import text

from tests.inventory.clocks import Steps, stepping
from tests.orders.manual_orders import PAY_TTL_S, ManualShop, open_manual_shop
from tests.orders.shop import pass_of

DUE = text('UPDATE orders."order" SET due_at = now() WHERE reference = :reference')
STEP_MS, BEFORE_S = 55_000, 10


@pytest_asyncio.fixture(loop_scope="session")
async def steps(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Steps]:
    async with stepping(postgres_url, monkeypatch) as set_by_hand:
        yield set_by_hand


async def look_at(manual: ManualShop, reference: str) -> str:
    """A worker processes the order, whatever its clock says; returns the order."""
    async with manual.state.db.begin() as connection:
        await connection.execute(DUE, {"reference": reference})
    await manual.work()
    return await manual.status(reference)


@pytest.mark.parametrize("by_ms", [STEP_MS, -STEP_MS])
@pytest.mark.parametrize("which", ["redis", "postgres", "process"])
async def test_an_order_lasts_until_the_time_it_was_told_although_a_clock_steps(
    steps: Steps, postgres_url: str, redis_url: str, which: str, by_ms: int
) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        redirected, declined = [
            await manual.order_of(manual.holds.hold(), method=method) for method in ("redirect", "decline")
        ]
        await manual.work()
        await steps.set(which, by_ms)
        await manual.travel(PAY_TTL_S - BEFORE_S)
        for noticed in (False, True):
            if noticed:
                await manual.state.repository.clocks.refresh(manual.state.db, manual.state.redis)
            assert {await look_at(manual, reference) for reference in (redirected, declined)} == {"pending"}
        again = await manual.http.post(
            f"/orders/{declined}/payments",
            json={"payment": {"provider": "sandbox", "method": "redirect"}},
            headers={"authorization": f"Bearer {pass_of()}", "idempotency-key": "another-way-to-pay"},
        )
        assert again.status_code == 202, again.text
        await manual.travel(BEFORE_S + STEP_MS / 1000 + 1)
        assert {await look_at(manual, reference) for reference in (redirected, declined)} == {"expired"}
