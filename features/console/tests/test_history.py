"""Samples are kept once however many consoles write, and charts get at most 4,000 points."""

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from features.console.gathering import gatherer as module
from features.console.gathering.history import (
    DAY_S,
    PATHS,
    POINTS_MAX,
    Record,
    Sample,
    Samples,
    step_ms_of,
    thinned,
)
from features.console.schemas import LineVitals, OrderVitals, RoomVitals, StockVitals
from features.console.tables import sample
from features.console.tests.admin import EVENT, FANS, Admin
from features.console.tests.conftest import Console, Start, next_of
from shared.contracts.frames import LaneHead, LineFrame, line_channel
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis.client import Redis
from shared.runtime.clock import now_ms
from tests.support.wait import wait_until

PATH = f"/console/api/events/{EVENT}/vitals"


def record(at_ms: int, waiting: float) -> Record:
    return Record(at_ms, (waiting, *[None] * (len(PATHS) - 1)))


async def test_two_processes_keep_a_sample_once_and_old_ones_go(postgres: AsyncEngine) -> None:
    one, other = Samples(postgres, kept_days=30), Samples(postgres, kept_days=30)
    now_s = now_ms() // 10_000 * 10
    await one.keep([Sample(EVENT, now_s, record(1, 5.0)), Sample(EVENT, now_s - 31 * DAY_S, record(1, 1.0))])
    await other.keep([Sample(EVENT, now_s, record(2, 6.0)), Sample("another", now_s, record(2, 7.0))])
    await one.forget()
    assert await other.between(EVENT, 0, now_ms()) == [Sample(EVENT, now_s, record(now_s * 1000, 5.0))]
    async with postgres.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(sample)) == 2


async def test_an_open_sale_is_sampled_though_nobody_watches(
    start: Start, redis: Redis, postgres: AsyncEngine, admin: Admin
) -> None:
    frame = LineFrame(
        event_id=EVENT, epoch=1, version=1, ready=True, at_ms=now_ms(), state="open", rate_per_s=1.0,
        lanes={0: LaneHead(head_seq=0, tail_seq=FANS)},
    )  # fmt: skip
    await admin.open()
    async with start() as one, start() as two:

        async def sampled() -> bool:
            await SnapshotPublisher(redis).publish(line_channel(EVENT), frame)
            for console in (one, two):
                console.app.state.deps.gathering._sampled_at_10s = 0
            async with postgres.connect() as connection:
                return (await connection.scalar(select(func.count()).select_from(sample)) or 0) > 0

        await wait_until(sampled, timeout_s=15)
        async with one.client() as client:
            found = (await client.get(PATH)).json()
    assert not {word for _, word in admin.questions} - {"flow", "room"}, "only what charts show"
    assert found["series"].keys() == set(PATHS)
    assert found["series"]["line.waiting"][-1] == FANS
    assert len(found["at_ms"]) == len(found["series"]["stock.sold"])


async def test_a_sale_in_which_nothing_moves_is_read_once_a_minute(
    console: Console, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = console.app.state.deps.gathering
    gatherer = gathering._gatherer(EVENT)
    later = now_ms() + 3_600_000  # than any version that the real queue publishes meanwhile
    frame = LineFrame(
        event_id=EVENT, epoch=1, version=later, ready=True, at_ms=now_ms(), state="open", rate_per_s=1.0, lanes={}
    )
    gathering._frames.on_line(frame.model_dump_json().encode())
    await gatherer.tick(watched=False)
    assert not gatherer.repeat(), "fans wait"
    quiet = {
        "line": LineVitals(waiting=0), "room": RoomVitals(active=0), "stock": StockVitals(held=0, paying=0),
        "orders": OrderVitals(pending=0, due=0),
    }  # fmt: skip
    gatherer.vitals = gatherer.vitals.model_copy(update=quiet)
    before = gatherer.ring.last
    admin.questions.clear()
    gathering._sampled_at_10s = 0
    await gathering.sample()
    assert not admin.questions
    kept = list(gatherer.ring.between(before.at_ms, now_ms()))
    assert [one.values for one in kept] == [before.values] * 2, "the last record again"
    gathering._frames.on_line(
        frame.model_copy(update={"version": later + 1, "at_ms": now_ms()}).model_dump_json().encode()
    )
    assert gatherer.repeat()
    gathering._frames.on_line(
        frame.model_copy(update={"version": later + 2, "state": "paused"}).model_dump_json().encode()
    )
    assert not gatherer.repeat(), "the frame has changed"
    gathering._frames.on_line(frame.model_copy(update={"version": later + 3}).model_dump_json().encode())
    assert gatherer.repeat()
    monkeypatch.setattr(module, "QUIET_S", 0.0)
    assert not gatherer.repeat(), "it was read too long ago"


async def test_the_last_hour_comes_from_memory_a_second_apart(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_ms, time = now_ms(), {"to_ms": now_ms() + 60_000}
    monkeypatch.setattr(module, "now_ms", lambda: began_ms + 10 * (now_ms() - began_ms))  # ten seconds are one
    async with console.stream() as stream:
        for _ in range(3):
            await next_of(stream, "vitals")
        async with console.client() as client:
            found = (await client.get(PATH, params=time)).json()
            while len(found["at_ms"]) < 3:  # on a busy machine two of them may be of one second
                await next_of(stream, "vitals")
                found = (await client.get(PATH, params=time)).json()
            assert found["series"]["stock.free"][-1] == 100
            assert (await client.get(PATH, params={"to_ms": 1})).json()["at_ms"] == []
            assert (await client.get(PATH, params={"step_s": 0})).status_code == 422


def test_there_are_never_more_than_four_thousand_points() -> None:
    records = [record(second * 1000, second) for second in range(30_000)]
    step_ms = step_ms_of(0, 30_000_000, 1)
    assert step_ms == 8_000
    found = thinned(records, step_ms)
    assert len(found) == 30_000 // 8 <= POINTS_MAX
    assert found[0] == record(7_000, 7), "the last of each step, none made up"
    assert len(thinned(records, 1000)) == POINTS_MAX
