"""The heartbeat of a process: providers are called, and orders are written, only while others see that it is alive.
Clocks step while an order waits for its fan: it never ends before its announced deadline.
"""

from typing import Any, cast

import pytest

from services.orders.steps.run import Heartbeat, ProviderClient
from services.orders.worker import worker as worker_module
from shared.http.outgoing import ExternalResponse, NotReached
from shared.process.clock_offsets import read_clocks
from shared.process.load import Load
from tests.inventory.clocks import Steps, each_clock
from tests.inventory.clocks import steps as steps  # noqa: PLC0414 - a fixture
from tests.orders.conftest import OrdersProcesses
from tests.orders.manual_orders import PAY_TTL_S, ManualShop, open_manual_shop
from tests.support.wait import wait_until

TAKEOVER_S = 5.0


class Provider:
    """A provider as a process with this heartbeat calls it; `calls` are those that it got."""

    def __init__(self) -> None:
        self.now_s, self.calls = 100.0, 0
        self.heartbeat = Heartbeat(TAKEOVER_S, lambda: self.now_s)
        self._client = ProviderClient(cast(Any, self), Load("orders").purchases, self.heartbeat)

    async def request(self, method: str, url: str, **_: Any) -> ExternalResponse:
        self.calls += 1
        return ExternalResponse(200, {}, b"")

    async def charge(self) -> None:
        await self._client.request("POST", "/charges", headers={}, timeout_s=1)

    def beat(self) -> None:
        self.heartbeat.record(self.heartbeat.begin())


@pytest.fixture
def provider() -> Provider:
    return Provider()


async def test_nothing_is_sent_to_a_provider_without_a_fresh_heartbeat(provider: Provider) -> None:
    for after_s, beats, is_sent in ((0, False, False), (0, True, True), (2.4, False, True), (0.2, False, False)):
        provider.now_s += after_s
        if beats:
            provider.beat()
        begun, before = provider.heartbeat.is_fresh, provider.calls
        if not is_sent:
            with pytest.raises(NotReached):
                await provider.charge()
        else:
            await provider.charge()
        assert (begun, provider.calls - before) == (is_sent, int(is_sent))


async def test_a_run_from_before_a_silence_charges_nobody_though_its_process_is_heard_again(provider: Provider) -> None:
    """Its order may be another process' since. One that begins now charges."""
    provider.beat()
    provider.heartbeat.enter()
    await provider.charge()
    provider.now_s += TAKEOVER_S / 2
    provider.beat()
    assert provider.heartbeat.is_fresh
    with pytest.raises(NotReached):
        await provider.charge()
    provider.heartbeat.enter()
    await provider.charge()
    assert provider.calls == 2


async def test_a_beat_counts_from_before_it_was_sent(provider: Provider) -> None:
    begun_s = provider.heartbeat.begin()
    provider.now_s += 3
    provider.heartbeat.record(begun_s)
    assert not provider.heartbeat.is_fresh


async def test_an_order_is_written_by_a_process_that_others_see_alive(
    processes: OrdersProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that rested for long says so before: what it writes is its own at once, and nobody takes it over."""
    monkeypatch.setattr(worker_module, "SWEEP_S", 3600.0)
    shop = await processes.open(inline_slots_max=0)
    with shop.busy_workers():
        heartbeat = shop.state.worker._heartbeat
        await wait_until(lambda: heartbeat.is_fresh)
        heartbeat._beat_s = 0.0
        assert not heartbeat.is_fresh
        await shop.order()
        assert heartbeat.is_fresh


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
