"""Invariant 4 looked at live: calls against the integral of the rates that the audit log tells of."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.queue.rooms.invariants import allowed, allowed_since, check_invariants
from tests.queue.conftest import EVENT, Queue

START = datetime(2027, 1, 1, tzinfo=UTC)


def row(after_s: float, action: str = "change", **facts: Any) -> tuple[datetime, str, dict[str, Any]]:
    return START + timedelta(seconds=after_s), action, {"state": "open", "rate_per_s": 10, "burst": 50, **facts}


def test_the_bound_is_the_rate_over_time_and_what_was_admitted_by_hand() -> None:
    until = START + timedelta(seconds=100)
    assert allowed([row(0)], until) == 10 * 101 + 50
    assert allowed([row(0), row(40, state="paused"), row(90, state="draining")], until) == 10 * 41 + 10 * 11 + 50
    assert allowed([row(0, state="draft"), row(60, "admit", state="paused", admit=7)], until) == 7 + 50
    assert allowed([], until) == 0


async def broken(queue: Queue) -> list[str]:
    room = await queue.state.rooms.read(EVENT)
    rows = await check_invariants(queue.db, queue.redis, room, clock_offset_ms=queue.state.line.clock_offset_ms)
    return [row.detail for row in rows if "allow" in row.invariant and not row.holds]


async def test_calls_beyond_what_was_allowed_are_found(queue: Queue) -> None:
    await queue.open(rate_per_s=1, burst=5)
    await queue.crowd(40)
    await queue.tick(4)
    assert await broken(queue) == []
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", mapping={"tokens": 40, "burst": 99, "token_cap": 99})
    await queue.tick(0.2)
    assert len(await queue.called()) == 40
    [detail] = await broken(queue)
    assert "40 calls" in detail


def test_what_a_lower_rate_leaves_of_the_saved_calls() -> None:
    until = START + timedelta(seconds=100)
    fast = row(0, rate_per_s=200, burst=200)
    slow = allowed_since([fast, row(60, rate_per_s=1, burst=200)], until)
    assert slow[1] == 1 + 41, "200 saved at 200 a second took a second: at 1 a second that is one call"
    stopped = allowed_since([fast, row(60, rate_per_s=0, burst=200), row(80, rate_per_s=5, burst=200)], until)
    assert stopped[1:] == [21 * 5, 21 * 5]
    faster = allowed_since([row(0, rate_per_s=1, burst=30), row(60, rate_per_s=10, burst=20)], until)
    assert faster[1] == 20 + 41 * 10, "a new burst bounds what was saved"


@pytest.mark.parametrize(("rate_per_s", "most"), [(0.0, 0), (1.0, 3)])
@pytest.mark.parametrize("guarded", [True, False])
async def test_a_lower_rate_cuts_what_was_saved_and_the_audit_tells(
    queue: Queue, without, guarded: bool, rate_per_s: float, most: int
) -> None:
    if not guarded:
        without("tick", "if rate < saved_at or rate <= 0 then", "if false then")
    await queue.open(rate_per_s=200, burst=200, max_active=500)
    for _ in range(8):
        await queue.tick(0.4)
    assert float((await queue.room_hash())["tokens"]) == 200, "nobody was there to be called"
    await queue.configure(rate_per_s=rate_per_s)
    await queue.tick(1.5)
    await queue.crowd(40)
    await queue.tick(0.2)
    assert (len(await queue.called()) <= most) == guarded
    await queue.sql(
        "UPDATE queue.room_audit_log SET at = at - interval '2 seconds'"
    )  # the database's clock is not moved
    assert (await broken(queue) == []) == guarded


async def test_a_call_taken_back_at_rate_0_saves_nothing(queue: Queue) -> None:
    await queue.open(rate_per_s=0)
    await queue.crowd(5)
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", "tokens", 3)  # as `void` gives them back
    await queue.tick()
    assert await queue.called() == []
