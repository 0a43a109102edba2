"""Clocks step forward or back while an order waits for its fan: it never ends before its announced deadline."""

import pytest

from shared.process.clock_offsets import read_clocks
from tests.inventory.clocks import Steps, each_clock
from tests.inventory.clocks import steps as steps  # noqa: PLC0414 - a fixture
from tests.orders.manual_orders import PAY_TTL_S, ManualShop, open_manual_shop

STEP_MS, BEFORE_S = 55_000, 10


async def process_now(manual: ManualShop, reference: str) -> str:
    """Makes the order due by every clock and processes it; returns its status."""
    await manual.state.store.wake([reference])
    await manual.work()
    return await manual.status(reference)


@pytest.mark.parametrize(("clock", "by_ms"), each_clock(STEP_MS, -STEP_MS))
async def test_an_order_lasts_until_its_announced_deadline_although_a_clock_steps(
    steps: Steps, postgres_url: str, redis_url: str, clock: str, by_ms: int
) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        redirected, declined = [
            await manual.order_of(await manual.inventory.hold(), method=method) for method in ("redirect", "decline")
        ]
        await manual.work()
        await steps.set(clock, by_ms)
        await manual.travel(PAY_TTL_S - BEFORE_S)
        for refreshed in (False, True):
            if refreshed:
                await read_clocks(manual.state.store.clocks, manual.state.db, manual.state.redis)
            assert {await process_now(manual, reference) for reference in (redirected, declined)} == {"pending"}
        retry = await manual.pay_again(declined, method="redirect")
        assert retry.status_code == 202, retry.text
        await manual.travel(BEFORE_S + STEP_MS / 1000 + 1)
        assert {await process_now(manual, reference) for reference in (redirected, declined)} == {"expired"}
