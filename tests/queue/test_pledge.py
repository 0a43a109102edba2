"""Invariant 4 looked at live: calls against the integral of the rates that the audit trail tells of."""

from datetime import UTC, datetime, timedelta
from typing import Any

from services.queue.audit import audit
from services.queue.pledge import allowed
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


async def test_calls_beyond_what_was_allowed_are_found(queue: Queue) -> None:
    await queue.open(rate_per_s=1, burst=5)
    await queue.crowd(40)
    await queue.turn(4)
    room = await queue.running.rooms.read(EVENT)

    async def broken() -> list[str]:
        rows = await audit(queue.engine, queue.redis, room, clock_offset_ms=queue.running.line.clock_offset_ms)
        return [row["detail"] for row in rows if "allow" in row["invariant"] and not row["holds"]]

    assert await broken() == []
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", mapping={"tokens": 40, "burst": 99, "token_cap": 99})
    await queue.turn(0.2)
    assert len(await queue.called()) == 40
    [detail] = await broken()
    assert "40 calls" in detail
