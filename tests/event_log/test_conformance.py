"""What every event log must do, whichever it is. On Kafka this is a test of the wire: its brokers here are a mock."""

import asyncio
import sys
import time

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from shared.event_log import jetstream, kafka
from shared.event_log.log import START
from shared.outbox import Relay, tell
from tests.event_log.conftest import Ground, event, told, versions
from tests.support.wait import wait_until

ROOMS = ("arena", "club", "hall")
TELL_WITHIN_S = 1.0
READER = """
import asyncio, sys
import asyncpg, redis.asyncio
from shared.event_log.opening import open_log
from shared.settings import ServiceSettings

async def main(url, source, ledger, lives):
    connection = await asyncpg.connect(ledger)
    async with open_log(ServiceSettings(event_log_url=url), redis.asyncio.Redis()) as log:
        while True:
            stored = dict(await connection.fetch("SELECT stream, position FROM reached"))
            reached = {stream: stored.get(stream, "") for stream in await log.streams(source)}
            entries = await log.read(reached, count=2, wait_s=0.5)
            print("has read", len(entries), flush=True)
            if lives == "no" and entries:
                await asyncio.Event().wait()
            async with connection.transaction():
                for entry in entries:
                    await connection.execute("INSERT INTO effect (body) VALUES ($1)", entry.body.decode())
                    await connection.execute(
                        "INSERT INTO reached VALUES ($1, $2) ON CONFLICT (stream) DO UPDATE SET position = $2",
                        entry.stream, entry.position)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_each_on_sale_is_read_in_the_order_in_which_it_was_told(ground: Ground) -> None:
    log = await ground.open()
    for start in (0, 100, 200):
        batch = zip(*(told(*range(start, start + 100), event_id=room) for room in ROOMS), strict=True)
        await log.publish(ground.source, [event for row in batch for event in row])
    entries = await ground.reads(await ground.open(), 900)
    for room in ROOMS:
        assert versions(entries, room) == list(range(300))


async def test_a_batch_that_is_given_again_overtakes_nothing(ground: Ground) -> None:
    """The relay died between log and mark; rows that committed late have meanwhile come before and between."""
    log = await ground.open()
    await log.publish(ground.source, told(2, 4))
    await (await ground.open()).publish(ground.source, told(1, 2, 3, 4, 5))
    found = versions(await ground.reads(log, 5))
    assert list(dict.fromkeys(found)) == [2, 4, 1, 3, 5]
    if ground.server.url.startswith("nats"):
        assert found == [2, 4, 1, 3, 5], "a repetition is recognised"


async def test_reading_begins_at_any_point_and_again_at_the_same(ground: Ground) -> None:
    log = await ground.open()
    await log.publish(ground.source, told(*range(5)))
    entries = await ground.reads(log, 5)
    points = dict.fromkeys(await log.streams(ground.source), START)
    for number, entry in enumerate(entries):
        rest = await ground.reads(log, 4 - number, points | {entry.stream: entry.position})
        assert versions(rest) == list(range(number + 1, 5))
    assert versions(await ground.reads(await ground.open(), 5)) == list(range(5)), "also by somebody else"


async def test_a_reader_waits_for_what_is_told_next(ground: Ground) -> None:
    log, reader = await ground.open(), await ground.open()
    await log.publish(ground.source, told(1))
    first = await ground.reads(reader, 1)
    reached = dict.fromkeys(await reader.streams(ground.source), START) | {e.stream: e.position for e in first}
    reading = asyncio.create_task(reader.read(reached, count=10, wait_s=3))
    began_s = time.monotonic()
    await log.publish(ground.source, told(2))
    assert versions(await reading) == [2]
    assert time.monotonic() - began_s < 2.5, "it did not wait for the end of its wait"


async def test_a_reader_is_killed_between_reading_and_writing_down(ground: Ground, postgres) -> None:
    """The next one goes on where its predecessor's effects end: none is missing, none comes twice."""
    async with postgres.begin() as connection:
        await connection.execute(text("CREATE TABLE effect (n serial, body text)"))
        await connection.execute(text("CREATE TABLE reached (stream text PRIMARY KEY, position text)"))
    ledger = postgres.url.set(drivername="postgresql").render_as_string(hide_password=False)
    log = await ground.open()
    await log.publish(ground.source, told(*range(7)))
    await ground.reads(log, 7)

    async def effects() -> list[int]:
        async with postgres.connect() as connection:
            rows = await connection.execute(text("SELECT (body::json ->> 'version')::int FROM effect ORDER BY n"))
            return list(rows.scalars())

    for lives, done in (("no", []), ("yes", list(range(7)))):
        command = [sys.executable, "-c", READER, ground.server.url, ground.source, ledger, lives]
        reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            assert reader.stdout is not None
            while b"has read 0" in (said := await asyncio.wait_for(reader.stdout.readline(), 20)):
                pass
            assert b"has read" in said
            await wait_until(lambda done=done: _equals(effects, done), timeout_s=10)  # type: ignore[misc]
        finally:
            reader.kill()
            await reader.communicate()


async def _equals(effects, done: list[int]) -> bool:
    return bool(await effects() == done)


async def test_the_log_is_away_and_what_is_told_meanwhile_follows_in_order(
    ground: Ground, postgres, tables, monkeypatch
) -> None:
    """Facts are written as fast as ever; the relay fails, keeps trying, and loses nothing."""
    monkeypatch.setattr(jetstream, "PUBLISH_S", 1.0)
    monkeypatch.setattr(kafka, "PUBLISH_S", 1.0)
    relay, log = Relay(postgres, await ground.open(), *tables), await ground.open()
    ground.source = tables[0].schema

    async def write(first: int, last: int) -> None:
        for number in range(first, last):
            async with postgres.begin() as connection:
                await tell(connection, tables[0], [event(number)])

    def behind_s() -> float:
        return REGISTRY.get_sample_value("onsale_event_log_behind_seconds", {"source": ground.source}) or 0

    await write(0, 5)
    assert await relay.turn() == 5
    before = await ground.reads(log, 5)
    ground.server.away()
    try:
        began_s = time.monotonic()
        await write(5, 20)
        assert time.monotonic() - began_s < TELL_WITHIN_S
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, the relay's loop tries again
            await relay.turn()
        assert behind_s() > 0
    finally:
        ground.server.back()

    async def drained() -> bool:
        try:
            return await relay.turn() == 0
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
