"""Quiet rooms: nobody waits, is called or buys, and no time comes soon. While all are, their loops run rarely."""

from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from services.queue.admission import gatekeeper as gatekeeping
from services.queue.line.redis_line import LineNotReady
from shared.concurrency.background import Quiet
from shared.contracts.frames import FRAME_REPEAT_S, LoadFrame, SectionCounts, StockFrame
from shared.contracts.queue import EventHeartbeats, HeartbeatReport
from shared.runtime.clock import now_ms, to_datetime
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


async def version(queue: Queue) -> int:
    return int((await queue.room_hash())["version"])


async def run_once(queue: Queue) -> Quiet | None:
    """One run of the gatekeeper's loop."""
    gatekeeper = queue.state.gatekeeper
    found = await gatekeeper.tick_all()
    await wait_until(lambda: not gatekeeper._ticks)
    return found


async def report(queue: Queue, *join_seqs: int) -> None:
    events = [EventHeartbeats(event_id=EVENT, epoch=1, lanes={0: list(join_seqs)})] if join_seqs else []
    await queue.state.heartbeats.report(HeartbeatReport(reporter="gateway-1", final=False, events=events))


@pytest.fixture
async def quiet(queue: Queue) -> Queue:
    """A room without fans; every reporter reports."""
    await queue.open()
    await report(queue)
    await run_once(queue)
    return queue


async def test_the_loop_is_quiet_until_a_frame_of_a_quiet_room_must_be_repeated(quiet: Queue) -> None:
    found, frames = await run_once(quiet), quiet.state.gatekeeper.frames
    assert found is not None
    assert FRAME_REPEAT_S - 2 < found.for_s <= FRAME_REPEAT_S - 1
    shown_s, frame = frames._published[EVENT]
    assert not frames.is_due(EVENT), "at once"
    frames._published[EVENT] = shown_s - found.for_s + 1, frame
    await run_once(quiet)
    assert frames._published[EVENT][0] >= shown_s, "a pause that ended up to a second early repeats it"


async def test_a_fan_who_joins_a_quiet_room_is_called_and_wakes_the_loop(quiet: Queue, woken: list[str]) -> None:
    await run_once(quiet)
    woken.clear()
    joined = (await quiet.join("ann"))[0]
    assert joined.status == "ready", "called by the tick of the join"
    assert "queue" in woken
    assert await run_once(quiet) is None


async def test_a_tick_that_finds_something_in_a_quiet_room_wakes_the_loop(quiet: Queue, woken: list[str]) -> None:
    await quiet.join("ann")
    quiet.state.gatekeeper._quiet.add(EVENT)
    woken.clear()
    await run_once(quiet)
    assert woken == ["queue"]


@pytest.mark.parametrize("room", [{"max_active": 1}, {"rate_per_s": 0.001, "burst": 1}])
async def test_a_room_in_which_a_fan_waits_is_not_quiet(queue: Queue, room: dict[str, Any]) -> None:
    await queue.open("ann", "bob", **room)
    await report(queue, 1, 2)
    await run_once(queue)
    assert await run_once(queue) is None


@pytest.mark.parametrize(("seconds", "quiet"), [(5, False), (60, True), (-60, True)])
async def test_a_room_is_not_quiet_before_one_of_its_times(queue: Queue, seconds: int, quiet: bool) -> None:
    starts_at = to_datetime(now_ms()) + timedelta(seconds=seconds)
    await queue.open(queue_opens_at=starts_at - timedelta(hours=1), sale_starts_at=starts_at)
    await report(queue)
    await run_once(queue)
    assert (await run_once(queue) is not None) is quiet


def test_a_coming_time_is_noticed_between_two_ticks_of_a_quiet_room() -> None:
    assert gatekeeping.SOON_MS > 1000 * FRAME_REPEAT_S


async def test_a_room_whose_heartbeats_may_be_lost_is_not_quiet(quiet: Queue) -> None:
    await quiet.redis.delete("queue:reporters")
    quiet.state.gatekeeper._refresh_at_s = 0.0
    assert await run_once(quiet) is None


async def test_only_heartbeats_of_fans_wake_the_loops(quiet: Queue, woken: list[str]) -> None:
    await report(quiet)
    assert not woken
    await report(quiet, 1)
    assert woken == ["queue"]


async def test_stock_that_changes_wakes_the_loops_and_a_repeated_frame_does_not(quiet: Queue, woken: list[str]) -> None:
    cache = quiet.state.gatekeeper.stock_cache

    def show(version: int, available: int) -> None:
        sections = [SectionCounts(section_id="GA", available=available, held=0, sold=10 - available, at_ms=now_ms())]
        frame = StockFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), sections=sections)
        cache.on_frame(frame.model_dump_json().encode())

    show(1, 10)
    woken.clear()
    show(2, 10)
    assert not woken
    show(3, 9)
    assert woken == ["queue"]


async def test_places_that_redis_lacks_and_joins_being_inserted_are_not_quiet(
    quiet: Queue, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = quiet.state.joins
    assert (await joins.renew(), await joins.pending_commits.commit_all()) == (Quiet(), Quiet())
    async with quiet.blocked_join("ann") as joining:
        assert "queue" in woken, "before anything is written"
        assert await joins.renew() is None
    await joining
    woken.clear()
    joins.pending_commits.add(await quiet.state.rooms.get(EVENT), 0, {1})
    assert woken == ["queue"]
    monkeypatch.setattr(joins.pending_commits, "commit", AsyncMock(side_effect=LineNotReady))
    assert await joins.pending_commits.commit_all() is None


async def test_the_control_loop_is_quiet_while_there_is_no_load(quiet: Queue, woken: list[str]) -> None:
    control_loop = quiet.state.control_loop
    assert await control_loop.run_once() == Quiet()
    load = LoadFrame(
        service="orders", process="one", at_ms=now_ms(), work=1.0, average_work=1.0, done_per_s=0.0, refused=0,
        p95_ms=1.0,
    )  # fmt: skip
    control_loop.ceilings.load_cache.on_frame(load.model_dump_json().encode())
    assert woken == ["queue"]
    assert await control_loop.run_once() is None
