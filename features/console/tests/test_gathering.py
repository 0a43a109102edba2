"""One gatherer for all who watch: each service gets one question a second, and a silent one holds up nobody."""

import asyncio
import contextlib
import gc
import os
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from features.console.gathering import frames, history
from features.console.gathering.frames import SILENT_MS, FrameCache
from features.console.gathering.gatherer import AGAIN_S
from features.console.schemas import STREAM_PATH, FanView
from features.console.tests.admin import EVENT, FANS, PREVIEW, Admin
from features.console.tests.conftest import KEYS, TICK_S, Console, Start, next_of
from services.queue.rooms.model import RequestedBy
from shared.contracts.frames import (
    LineFrame,
    LoadFrame,
    RoomState,
    SectionCounts,
    StockFrame,
    line_channel,
    load_channel,
    stock_channel,
)
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis.client import Redis
from shared.runtime.clock import now_ms
from tests.support.running.suite import problem
from tests.support.wait import wait_until

PARTS = ("queue", "inventory", "orders")
HOUR_S, SHOWN_WITHIN_S, SHOWN_S = 3_600, 2.0, 1.0
LATER_MS = 10_000
LATEST = 5_000_000_000_000  # ms; a version that the queue gives at no time
RESIDENT_MORE_MB = 4.0


async def test_a_stream_begins_with_a_snapshot_and_goes_on_each_second(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("features.console.app.TICK_S", 1.0)
    async with start() as console, console.stream() as stream:
        name, snapshot = await anext(stream)
        assert name == "snapshot"
        assert (snapshot["name"], snapshot["venue"], snapshot["currency"]) == ("The Arena", "A hall", "EUR")
        assert snapshot["vitals"]["line"]["waiting"] == FANS
        assert snapshot["vitals"]["room"]["version"] == 2
        assert snapshot["vitals"]["proof"]["oversold"] == 0
        changes = {(entry["service"], entry["action"]) for entry in snapshot["changes"]}
        assert changes == {("queue", "create"), ("queue", "open"), ("inventory", "apply"), ("orders", "apply")}
        at_ms = [(await next_of(stream, "vitals"))["at_ms"] for _ in range(3)]
        assert 1500 < at_ms[2] - at_ms[0] < 3500
        assert all(age is not None and age < 2 for part, age in snapshot["vitals"]["ages"].items() if part in PARTS)


async def test_the_view_of_a_fan_is_the_gateways(console: Console, admin: Admin) -> None:
    path = f"/console/api/events/{EVENT}/fan-view"
    admin.given["gateway", "preview"] = FanView.model_validate(PREVIEW)
    async with console.client() as client:
        found = (await client.get(path, params={"position": 120})).json()
        assert (found["position_in_queue"], found["estimated_wait_high"], found["message"]) == (
            120,
            54,
            "Doors at eight.",
        )
        assert found["estimate_changed"]["reason"] == "throttled"
        assert (await client.get(path, params={"position": 0})).status_code == 422
        admin.silent.add("gateway")
        assert problem(await client.get(path, params={"position": 1}))[0] == 502
    async with console.client(key=None) as nobody:
        assert (await nobody.get(path, params={"position": 1})).status_code == 401


async def test_twenty_watchers_cost_each_service_one_question_a_second(console: Console, admin: Admin) -> None:
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(console.stream()) for _ in range(20)]
        for stream in streams:
            await next_of(stream, "snapshot")
        admin.questions.clear()
        started = time.monotonic()
        until_ms = now_ms() + round(SHOWN_S * 1000)

        async def times(stream: Any) -> set[int]:
            found = {(await next_of(stream, "vitals"))["at_ms"]}
            while max(found) < until_ms:
                found.add((await next_of(stream, "vitals"))["at_ms"])
            return {at_ms for at_ms in found if at_ms > until_ms - SHOWN_S * 800}

        made = await asyncio.gather(*map(times, streams))
        seconds = time.monotonic() - started
        assert len(made[0]) >= 2
        assert all(each == made[0] for each in made), "the same figures for all"
        for part in PARTS:
            assert 2 <= admin.questions[part, "flow"] <= seconds / TICK_S + 2


async def test_a_line_that_obeys_is_shown_at_once_a_few_times_a_second_and_without_a_question(
    start: Start, admin: Admin, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("features.console.app.TICK_S", HOUR_S)  # no record comes by itself
    publisher, made = SnapshotPublisher(redis), LATEST

    async def obey(version: int, rate_per_s: float = 50.0, state: RoomState = "open") -> None:
        nonlocal made
        made += 1
        frame = LineFrame(
            event_id=EVENT, epoch=1, version=made, ready=True, at_ms=now_ms(), lanes={}, state=state,
            rate_per_s=rate_per_s, config_version=version,
        )  # fmt: skip
        await publisher.publish(line_channel(EVENT), frame)

    async with start() as console, console.stream() as stream:
        await next_of(stream, "snapshot")
        admin.questions.clear()
        await wait_until(lambda: has_subscribed(redis))
        vitals = await obeyed(stream, obey(8, 25.0))
        assert (vitals["room"]["version"], vitals["rate"]["effective_per_s"]) == (8, 25.0)
        await asyncio.sleep(AGAIN_S)
        await obey(8, 24.0)
        vitals = await obeyed(stream, obey(9, state="paused"))
        assert vitals["room"]["state"] == "paused", "nothing is shown for a rate that moves by itself"
        began = time.monotonic()
        for version in range(10, 30):
            await obey(version)
        shown = []
        while 29 not in shown:
            shown.append((await next_of(stream, "vitals"))["room"]["version"])
        assert len(shown) <= 2 + (time.monotonic() - began) / AGAIN_S
        assert not admin.questions


async def obeyed(stream: Any, publish: Awaitable[None]) -> Any:
    """The next figures after a frame."""
    await publish
    async with asyncio.timeout(SHOWN_WITHIN_S):
        return await next_of(stream, "vitals")


async def has_subscribed(redis: Redis) -> bool:
    return bool(await redis.pubsub_numpat() >= len(("lines", "stocks", "loads")))


async def test_nothing_is_read_while_nobody_watches(console: Console, admin: Admin) -> None:
    async with console.stream() as stream:
        await next_of(stream, "vitals")
    gathering = console.app.state.deps.gathering
    await wait_until(lambda: gathering.known(EVENT).watchers.count == 0)
    admin.questions.clear()
    for _ in range(3):
        await gathering.tick()
    assert not admin.questions


async def test_the_age_of_a_silent_part_grows_and_the_others_stay_fresh(
    console: Console, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console.stream() as stream:
        await next_of(stream, "snapshot")
        admin.silent.add("inventory")
        monkeypatch.setattr("features.console.gathering.gatherer.now_ms", lambda: now_ms() + LATER_MS)
        vitals: Any = await next_of(stream, "vitals")
        while vitals["ages"]["inventory"] < 2 or vitals["ages"]["queue"] > 2:
            vitals = await next_of(stream, "vitals")
        assert max(vitals["ages"]["queue"], vitals["ages"]["orders"]) < 2
        assert vitals["stock"]["free"] == 100, "the last figure stays, with its age"
        alarms: Any = []
        while "ServiceDown" not in [alarm["name"] for alarm in alarms]:
            alarms = await next_of(stream, "alarms")
        admin.silent.clear()
        while vitals["ages"]["inventory"] > 1.5:
            vitals = await next_of(stream, "vitals")


async def test_a_part_without_reports_is_not_silent_and_its_figures_are_named_as_missing(
    console: Console, admin: Admin
) -> None:
    neighbours = admin.neighbours
    for service in (neighbours.real_queue, neighbours.real_inventory, neighbours.real_orders):
        service.leave_out("reports")
    async with console.stream() as stream:
        vitals: Any = await next_of(stream, "vitals")
        while tuple(vitals["without_reports"]) != PARTS:
            vitals = await next_of(stream, "vitals")
        assert all(vitals["ages"][part] is not None for part in PARTS)
        assert (vitals["room"]["version"], vitals["line"]["called"], vitals["orders"]["pending"]) == (2, None, None)


async def test_a_slow_part_is_not_asked_again_before_it_has_answered(console: Console, admin: Admin) -> None:
    admin.silent_s = 1.0
    async with console.stream() as stream:
        await next_of(stream, "snapshot")
        admin.silent.add("inventory")
        for _ in range(4):
            await next_of(stream, "vitals")
    assert admin.under_way_max == 1


async def test_with_every_part_away_the_console_starts_and_says_so(start: Start) -> None:
    away = {"admin_url": "http://127.0.0.1:9", "redis_url": "redis://127.0.0.1:9/0"}
    async with start(**away, postgres_url="postgresql+asyncpg://x:y@127.0.0.1:9/z") as console:
        async with console.client() as client:
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.get("/console/api/events")).json() == {"events": []}
        async with console.stream() as stream:
            snapshot = await next_of(stream, "snapshot")
            assert snapshot["name"] == EVENT
            vitals = await next_of(stream, "vitals")
            assert set(vitals["ages"].values()) == {None}
            assert vitals["line"]["waiting"] is None


async def test_only_new_changes_are_sent(console: Console, admin: Admin) -> None:
    queue = await admin.neighbours.real_queue.open()
    async with console.stream() as stream:
        await next_of(stream, "snapshot")
        await queue.operations.transition(EVENT, "pause", RequestedBy("ann", "a test"))
        sent = await next_of(stream, "change")
        assert (sent["service"], sent["actor"], sent["action"], sent["reason"]) == ("queue", "ann", "pause", "a test")
        await queue.operations.transition(EVENT, "resume", RequestedBy("ann"))
        assert (await next_of(stream, "change"))["action"] == "resume"


async def test_an_unknown_event_and_a_stranger_get_no_stream(console: Console) -> None:
    async with console.client() as client:
        assert problem(await client.get(STREAM_PATH.format(event_id="nowhere"))) == (404, "unknown-event")
    async with console.client(None) as client:
        for path in (STREAM_PATH.format(event_id=EVENT), "/console/api/events"):
            assert (await client.get(path)).status_code == 401


async def test_at_most_so_many_events_are_watched(start: Start) -> None:
    async with start(events_max=1) as console, console.client() as client:
        async with console.stream() as stream:
            await next_of(stream, "snapshot")
            assert problem(await client.get(STREAM_PATH.format(event_id="another"))) == (503, "overloaded")
        gathering = console.app.state.deps.gathering
        await wait_until(lambda: gathering.known(EVENT).watchers.count == 0)
        assert problem(await client.get(STREAM_PATH.format(event_id="another"))) == (404, "unknown-event")


@pytest.mark.parametrize(("rests_ms", "silent_after_ms"), [(0, SILENT_MS), (5_000, 5_000 + SILENT_MS)])
def test_a_process_is_silent_only_after_the_time_in_which_it_said_to_rest(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, rests_ms: int, silent_after_ms: int
) -> None:
    frame = LoadFrame(
        service="notifier", process="notifier-1", at_ms=1,
        rests_ms=rests_ms,
    )  # fmt: skip
    cache = FrameCache(redis)
    monkeypatch.setattr(frames, "now_ms", lambda: 1_000_000)
    cache.on_load(frame.model_dump_json().encode())
    for after_ms, state in ((silent_after_ms - 1, "up"), (silent_after_ms, "silent")):
        monkeypatch.setattr(frames, "now_ms", lambda after_ms=after_ms: 1_000_000 + after_ms)
        up, heard_ms = cache.notifiers()
        assert [process.state for process in cache.processes()] == [state]
        assert (bool(up), heard_ms) == (state == "up", 1_000_000 + min(rests_ms, after_ms))


async def test_frames_and_processes_are_shown(console: Console, redis: Redis) -> None:
    frame = StockFrame(
        event_id=EVENT, epoch=1, version=1, ready=True, at_ms=now_ms(),
        sections=[SectionCounts(section_id="A", available=3, held=2, sold=95, at_ms=now_ms())],
    )  # fmt: skip
    load = LoadFrame(
        service="notifier", process="notifier-1", at_ms=now_ms(),
        streams_open=4, streams_rejected=1,
    )  # fmt: skip
    async with console.stream() as stream:
        await next_of(stream, "snapshot")

        async def shown() -> bool:
            await SnapshotPublisher(redis).publish(stock_channel(EVENT), frame)
            await redis.publish(load_channel("notifier"), load.model_dump_json())
            vitals = await next_of(stream, "vitals")
            return vitals["stock"]["free"] == 3 and vitals["streams"]["open"] == 4

        await wait_until(shown)
        states: dict[str, str] = {}
        while not states.keys() >= {"console", "notifier"}:  # each tells of itself when its loop begins
            states = {one["service"]: one["state"] for one in await next_of(stream, "processes")}
        assert set(states.values()) == {"up"}, "the neighbours, too"
    async with console.client(KEYS["viewer"]) as client:
        [event] = (await client.get("/console/api/events")).json()["events"]
        assert (event["event_id"], event["name"], event["sold"], event["total"]) == (EVENT, "The Arena", 95, 100)


@pytest.fixture
async def idle(start: Start, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Console]:
    """A console that does nothing by itself."""
    await admin.open()
    monkeypatch.setattr("features.console.app.TICK_S", HOUR_S)
    async with start() as console:
        yield console


async def hours_of_figures(
    console: Console, monkeypatch: pytest.MonkeyPatch, hours: int, hour_s: int = HOUR_S
) -> AsyncIterator[None]:
    """Every second makes figures for somebody who reads; after each hour the caller may look."""
    gatherer = await console.app.state.deps.gathering.watched(EVENT)
    await wait_until(lambda: gatherer._facts.flow is not None)
    clock_ms, watcher = now_ms(), gatherer.watchers.add()
    monkeypatch.setattr("features.console.gathering.gatherer.now_ms", lambda: clock_ms)
    try:
        for second in range(hours * hour_s):
            clock_ms += 1000
            gatherer._facts.flow = gatherer._facts.flow.model_copy(update={"waiting": second, "called": second})
            gatherer._make()
            await watcher.next(within_s=0.1)
            await asyncio.sleep(0)
            if second % hour_s == hour_s - 1:
                yield
    finally:
        gatherer.watchers.remove(watcher)


@pytest.mark.parametrize(("hours", "hour_s"), [(5, 120), pytest.param(8, HOUR_S, marks=pytest.mark.proof)])
async def test_the_memory_of_a_gatherer_is_flat_for_hours(
    idle: Console, monkeypatch: pytest.MonkeyPatch, hours: int, hour_s: int
) -> None:
    """What is kept is full after the first hour; a short one keeps less. All that a process keeps is counted, so single
    hours are larger by something else.
    """
    monkeypatch.setattr(history, "RECORDS_MAX", hour_s)
    tracemalloc.start()
    try:
        each_hour = hours_of_figures(idle, monkeypatch, hours, hour_s)
        kept = [kept_bytes() async for _ in each_hour]
    finally:
        tracemalloc.stop()
    assert min(kept[3:]) < 1.05 * kept[1], kept


@pytest.mark.proof
async def test_the_process_of_a_gatherer_stays_as_large_as_after_an_hour(
    idle: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes_mb = [resident_mb() async for _ in hours_of_figures(idle, monkeypatch, 8)]
    assert sizes_mb[-1] - sizes_mb[0] < RESIDENT_MORE_MB, sizes_mb


def kept_bytes() -> int:
    """The bytes that Python keeps, without what waits to be collected."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def resident_mb() -> float:
    """The resident size of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
