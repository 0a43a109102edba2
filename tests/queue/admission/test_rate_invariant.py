"""Invariant 4, the allowed number of calls: the rates of the audit log over time, bursts and manual admissions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.queue.line.invariants import allowed, allowed_since
from tests.queue.conftest import Queue

START = datetime(2027, 1, 1, tzinfo=UTC)


def entry(after_s: float, action: str = "change", **facts: Any) -> tuple[datetime, str, dict[str, Any]]:
    return START + timedelta(seconds=after_s), action, {"state": "open", "rate_per_s": 10, "burst": 50, **facts}


def test_the_bound_is_the_rate_over_time_plus_the_burst_and_manual_admissions() -> None:
    until = START + timedelta(seconds=100)
    assert allowed([entry(0)], until) == 10 * 101 + 50
    assert allowed([entry(0), entry(40, state="paused"), entry(90, state="draining")], until) == 10 * 41 + 10 * 11 + 50
    assert allowed([entry(0, state="draft"), entry(60, "admit", state="paused", admit=7)], until) == 7 + 50
    assert allowed([], until) == 0


async def broken(queue: Queue) -> list[str]:
    return [violation.detail for violation in await queue.violations() if "allow" in violation.invariant]


async def test_calls_beyond_the_allowed_number_are_reported(queue: Queue) -> None:
    await queue.open(fans=40, rate_per_s=1, burst=5)
    await queue.tick(4)
    assert await broken(queue) == []
    await queue.write_room_hash({"tokens": 40, "burst": 99, "token_cap": 99})
    await queue.tick(0.2)
    assert len(await queue.called()) == 40
    [detail] = await broken(queue)
    assert "40 calls" in detail


def test_a_lower_rate_cuts_the_saved_calls_in_proportion() -> None:
    until = START + timedelta(seconds=100)
    fast = entry(0, rate_per_s=200, burst=200)
    slow = allowed_since([fast, entry(60, rate_per_s=1, burst=200)], until)
    assert slow[1] == 1 + 41, "200 saved at 200 a second took a second: at 1 a second that is one call"
    stopped = allowed_since([fast, entry(60, rate_per_s=0, burst=200), entry(80, rate_per_s=5, burst=200)], until)
    assert stopped[1:] == [21 * 5, 21 * 5]
    faster = allowed_since([entry(0, rate_per_s=1, burst=30), entry(60, rate_per_s=10, burst=20)], until)
    assert faster[1] == 20 + 41 * 10, "a new burst bounds what was saved"


@pytest.mark.parametrize(("rate_per_s", "most"), [(0.0, 0), (1.0, 3)])
async def test_a_lower_rate_cuts_saved_tokens_and_the_invariant_checks_it(
    queue: Queue, rate_per_s: float, most: int
) -> None:
    await queue.open(rate_per_s=200, burst=200, max_active=500)
    for _ in range(8):
        await queue.tick(0.4)
    assert float((await queue.room_hash())["tokens"]) == 200, "no fan waited to be called"
    await queue.configure(rate_per_s=rate_per_s)
    await queue.tick(1.5)
    await queue.join_fans(40)
    await queue.tick(0.2)
    assert len(await queue.called()) <= most
    backdate = "UPDATE queue.audit_log SET at = at - interval '2 seconds'"  # the test moves Redis' clock only
    await queue.sql(backdate)
    assert await broken(queue) == []


async def test_a_token_returned_at_rate_0_calls_no_fan(queue: Queue) -> None:
    await queue.open(fans=5, rate_per_s=0)
    await queue.write_room_hash({"tokens": 3})  # as a call that is undone returns them
    await queue.tick()
    assert await queue.called() == []
