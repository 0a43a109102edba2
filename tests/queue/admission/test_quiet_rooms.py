"""Quiet rooms: nobody waits, is called or buys, and no time comes soon. They are ticked rarely."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from services.queue.admission import gatekeeper as gatekeeping
from shared.concurrency.background import ACTIVITY
from shared.contracts.frames import FRAME_REPEAT_S, SectionCounts, StockFrame
from shared.contracts.queue import EventHeartbeats, HeartbeatReport
from shared.runtime.clock import now_ms, to_datetime
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


async def version(queue: Queue) -> int:
    return int((await queue.room_hash())["version"])


async def run_once(queue: Queue) -> bool:
    """One run of the gatekeeper's loop; whether it ticked the room."""
    before, gatekeeper = await version(queue), queue.state.gatekeeper
    await gatekeeper.tick_all()
    await wait_until(lambda: not gatekeeper._ticks)
    return await version(queue) != before


async def report(queue: Queue, *join_seqs: int) -> None:
    events = [EventHeartbeats(event_id=EVENT, epoch=1, lanes={0: list(join_seqs)})] if join_seqs else []
    await queue.state.heartbeats.report(HeartbeatReport(reporter="gateway-1", final=False, events=events))


@pytest.fixture
async def quiet(queue: Queue, silence: Callable[[], None]) -> Queue:
    """A room without fans, in a process with nothing to do; every reporter reports."""
    await queue.open()
    await report(queue)
    await run_once(queue)
    silence()
    return queue


async def test_a_quiet_room_is_ticked_to_repeat_its_frame(quiet: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not await run_once(quiet)
    assert ACTIVITY.silent
    frames = quiet.state.gatekeeper.frames
    shown_s, frame = frames._published[EVENT]
    frames._published[EVENT] = shown_s - FRAME_REPEAT_S, frame
    assert await run_once(quiet)
    assert frames._published[EVENT][0] >= shown_s, "the frame was repeated"
    assert ACTIVITY.silent


async def test_a_request_wakes_a_quiet_room(quiet: Queue) -> None:
    ACTIVITY.stir()
    assert await run_once(quiet)


async def test_a_fan_who_joins_a_quiet_room_is_called_and_keeps_it_awake(
    quiet: Queue, silence: Callable[[], None]
) -> None:
    await run_once(quiet)
    joined = (await quiet.join("ann"))[0]
    assert joined.status == "ready", "called by the tick of the join"
    silence()
    assert await run_once(quiet)
    assert not ACTIVITY.silent


@pytest.mark.parametrize("room", [{"max_active": 1}, {"rate_per_s": 0.001, "burst": 1}])
async def test_a_room_in_which_a_fan_waits_is_not_quiet(
    queue: Queue, silence: Callable[[], None], room: dict[str, Any]
) -> None:
    await queue.open("ann", "bob", **room)
    await report(queue, 1, 2)
    assert await run_once(queue)
    silence()
    assert await run_once(queue)
    assert not ACTIVITY.silent


@pytest.mark.parametrize(("seconds", "quiet"), [(5, False), (60, True), (-60, True)])
async def test_a_room_is_not_quiet_before_one_of_its_times(
    queue: Queue, silence: Callable[[], None], seconds: int, quiet: bool
) -> None:
    starts_at = to_datetime(now_ms()) + timedelta(seconds=seconds)
    await queue.open(queue_opens_at=starts_at - timedelta(hours=1), sale_starts_at=starts_at)
    await report(queue)
    await run_once(queue)
    silence()
    assert await run_once(queue) is not quiet
    assert ACTIVITY.silent is quiet


def test_a_coming_time_is_noticed_between_two_ticks_of_a_quiet_room() -> None:
    assert gatekeeping.SOON_MS > 1000 * (FRAME_REPEAT_S - 1 + gatekeeping.IDLE_TICK_S)


async def test_a_frame_that_is_requested_after_a_room_was_passed_over_is_new(quiet: Queue) -> None:
    gatekeeper = quiet.state.gatekeeper
    before = await gatekeeper.frame(EVENT)
    await run_once(quiet)
    after = await gatekeeper.frame(EVENT)
    assert after.version > before.version
    assert await gatekeeper.frame(EVENT) == after


async def test_a_room_whose_heartbeats_may_be_lost_is_ticked(quiet: Queue) -> None:
    await quiet.redis.delete("queue:reporters")
    assert await run_once(quiet)


async def test_only_heartbeats_of_fans_stir(quiet: Queue) -> None:
    await report(quiet)
    assert ACTIVITY.silent
    await report(quiet, 1)
    assert not ACTIVITY.silent


async def test_stock_that_changes_wakes_the_room_and_a_repeated_frame_does_not(
    quiet: Queue, silence: Callable[[], None]
) -> None:
    cache = quiet.state.gatekeeper.stock_cache

    def show(version: int, available: int) -> None:
        sections = [SectionCounts(section_id="GA", available=available, held=0, sold=10 - available, at_ms=now_ms())]
        frame = StockFrame(event_id=EVENT, epoch=1, version=version, ready=True, at_ms=now_ms(), sections=sections)
        cache.on_frame(frame.model_dump_json().encode())

    show(1, 10)
    silence()
    show(2, 10)
    assert ACTIVITY.silent
    show(3, 9)
    assert not ACTIVITY.silent


async def test_places_that_redis_lacks_and_joins_being_inserted_keep_the_process_awake(
    quiet: Queue, silence: Callable[[], None]
) -> None:
    joins = quiet.state.joins
    await joins.renew()
    await joins.pending_commits.commit_all()
    assert ACTIVITY.silent
    async with quiet.blocked_join("ann") as joining:
        silence()
        await joins.renew()
        assert not ACTIVITY.silent
    await joining
    joins.pending_commits.add(await quiet.state.rooms.get(EVENT), 0, {1})
    silence()
    await joins.pending_commits.commit_all()
    assert not ACTIVITY.silent
