"""What every event log must do, whichever it is. On Kafka this is a test of the wire: its brokers here are a mock."""

import asyncio
import os
import sys
import time
from pathlib import Path

import asyncpg
import pytest
from prometheus_client import REGISTRY

from onsale.local.engines import with_driver
from shared.contracts.events import Event
from shared.messaging import jetstream, kafka
from shared.messaging.log import START
from shared.messaging.outbox import Relay, emit_events
from tests.shared.messaging import reader
from tests.shared.messaging.conftest import LogEnvironment, event, pending_events, versions
from tests.support.wait import wait_until

ROOMS = ("arena", "club", "hall")
TELL_WITHIN_S = 1.0


async def test_each_on_sale_is_read_in_the_order_in_which_it_was_told(ground: LogEnvironment) -> None:
    log = await ground.open()
    for start in (0, 100, 200):
        batch = zip(*(pending_events(*range(start, start + 100), event_id=room) for room in ROOMS), strict=True)
        await log.publish(ground.source, [event for row in batch for event in row])
    entries = await ground.reads(await ground.open(), 900)
    for room in ROOMS:
        assert versions(entries, room) == list(range(300))


async def test_a_batch_that_is_given_again_overtakes_nothing(ground: LogEnvironment) -> None:
    """The relay died between log and mark; rows that committed late have meanwhile come before and between."""
    log = await ground.open()
    await log.publish(ground.source, pending_events(2, 4))
    await (await ground.open()).publish(ground.source, pending_events(1, 2, 3, 4, 5))
    found = versions(await ground.reads(log, 5))
    assert list(dict.fromkeys(found)) == [2, 4, 1, 3, 5]
    if ground.server.url.startswith("nats"):
        assert found == [2, 4, 1, 3, 5], "a repetition is recognised"


async def test_reading_begins_at_any_point_and_again_at_the_same(ground: LogEnvironment) -> None:
    log = await ground.open()
    await log.publish(ground.source, pending_events(*range(5)))
    entries = await ground.reads(log, 5)
    points = dict.fromkeys(await log.streams(ground.source), START)
    for number, entry in enumerate(entries):
        rest = await ground.reads(log, 4 - number, points | {entry.stream: entry.position})
        assert versions(rest) == list(range(number + 1, 5))
    assert versions(await ground.reads(await ground.open(), 5)) == list(range(5)), "also by somebody else"


async def test_a_reader_waits_for_what_is_told_next(ground: LogEnvironment) -> None:
    log, reader = await ground.open(), await ground.open()
    await log.publish(ground.source, pending_events(1))
    first = await ground.reads(reader, 1)
    reached = dict.fromkeys(await reader.streams(ground.source), START) | {e.stream: e.position for e in first}
    reading = asyncio.create_task(reader.read(reached, count=10, wait_s=3))
    began_s = time.monotonic()
    await log.publish(ground.source, pending_events(2))
    assert versions(await reading) == [2]
    assert time.monotonic() - began_s < 2.5, "it did not wait for the end of its wait"


async def test_a_reader_is_killed_between_reading_and_writing_down(ground: LogEnvironment, postgres_url: str) -> None:
    """The next one goes on where its predecessor's effects end: none is missing, none comes twice."""
    log, ledger = await ground.open(), await asyncpg.connect(with_driver(postgres_url))
    await ledger.execute(reader.TABLES)
    await log.publish(ground.source, pending_events(*range(5)))
    await reader.write_down(await reader.read(log, ground.source, ledger), ledger)
    command = [sys.executable, "-m", reader.__name__, ground.server.url, ground.source, with_driver(postgres_url)]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    killed = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env)
    try:
        assert killed.stdout is not None
        assert await asyncio.wait_for(killed.stdout.readline(), 30) == b"has read 2\n"
    finally:
        killed.kill()
        await killed.communicate()
    while entries := await reader.read(log, ground.source, ledger):
        await reader.write_down(entries, ledger)
    effects = [Event.model_validate_json(row["body"]) for row in await ledger.fetch("SELECT * FROM effect ORDER BY n")]
    assert [event.version for event in effects] == [0, 1, 2, 3, 4]
    await ledger.close()


async def test_the_log_is_away_and_what_is_told_meanwhile_follows_in_order(
    ground: LogEnvironment, postgres, tables, monkeypatch
) -> None:
    """Facts are written as fast as ever; the relay fails, keeps trying, and loses nothing."""
    monkeypatch.setattr(jetstream, "PUBLISH_S", 1.0)
    monkeypatch.setattr(kafka, "PUBLISH_S", 1.0)
    relay, log = Relay(postgres, await ground.open(), *tables), await ground.open()
    ground.source = tables[0].schema

    async def write(first: int, last: int) -> None:
        for number in range(first, last):
            async with postgres.begin() as connection:
                await emit_events(connection, tables[0], [event(number)])

    def behind_s() -> float:
        return REGISTRY.get_sample_value("onsale_event_log_behind_seconds", {"source": ground.source}) or 0

    await write(0, 5)
    assert await relay.relay_batch() == 5
    before = await ground.reads(log, 5)
    ground.server.kill()
    try:
        began_s = time.monotonic()
        await write(5, 20)
        assert time.monotonic() - began_s < TELL_WITHIN_S
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, the relay's loop tries again
            await relay.relay_batch()
        assert behind_s() > 0
    finally:
        ground.server.restart()

    async def drained() -> bool:
        try:
            return await relay.relay_batch() == 0
        except Exception:  # noqa: BLE001 - as its loop does
            return False

    await wait_until(drained, timeout_s=20)
    assert behind_s() == 0
    reached = dict.fromkeys(await log.streams(ground.source), START) | {e.stream: e.position for e in before}
    found: list[int] = []

    async def all_of_it() -> bool:
        try:
            found[:] = versions(await ground.read(log, reached))
        except Exception:  # noqa: BLE001 - as its loop does
            return False
        return len(set(found)) >= 15

    await wait_until(all_of_it, timeout_s=20)
    assert list(dict.fromkeys(found)) == list(range(5, 20))
