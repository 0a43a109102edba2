"""The same cases on every kind of event log, and opening one by its URL. For Kafka they test the protocol only: its
brokers here are a mock.
"""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from features.event_logs import jetstream, kafka
from features.event_logs.tests import reader
from onsale.local.engines import with_driver
from onsale.local.ports import free_port
from shared.contracts.frames import Event
from shared.messaging.log import START, LogRefused, open_log
from shared.messaging.relay import Outbox
from shared.process.settings import ServiceSettings
from tests.shared.messaging.conftest import SERVERS, LogEnvironment, emit, pending_events, versions
from tests.shared.messaging.test_relay import Process
from tests.support.wait import wait_until

EVENTS = ("arena", "club", "hall")


def in_make_test(*kinds: str) -> pytest.MarkDecorator:
    """Other kinds are for `make proof`: what differs between kinds is their order and their positions."""
    of_proof = [pytest.param(kind, marks=pytest.mark.proof) for kind in SERVERS if kind not in kinds]
    return pytest.mark.parametrize("server", [*kinds, *of_proof], indirect=True)


EMIT_WITHIN_S = 1.0


async def test_events_of_one_on_sale_are_read_in_the_order_of_publishing(environment: LogEnvironment) -> None:
    log = await environment.open()
    for start in (0, 100, 200):
        batch = zip(
            *(pending_events(*range(start, start + 100), event_id=event_id) for event_id in EVENTS), strict=True
        )
        await log.publish(environment.source, [event for row in batch for event in row])
    entries = await environment.read_until(await environment.open(), 900)
    for event_id in EVENTS:
        assert versions(entries, event_id) == list(range(300))


async def test_a_repeated_batch_keeps_the_order_of_first_publishing(environment: LogEnvironment) -> None:
    """The relay died after publishing and before it moved the cursor."""
    log = await environment.open()
    await log.publish(environment.source, pending_events(2, 4))
    await (await environment.open()).publish(environment.source, pending_events(1, 2, 3, 4, 5))
    found = versions(await environment.read_until(log, 5))
    assert list(dict.fromkeys(found)) == [2, 4, 1, 3, 5]
    if environment.server.url.startswith("nats"):
        assert found == [2, 4, 1, 3, 5], "NATS drops repeated events"


async def test_a_reader_starts_at_any_position_and_reads_the_same_again(environment: LogEnvironment) -> None:
    log = await environment.open()
    await log.publish(environment.source, pending_events(*range(5)))
    entries = await environment.read_until(log, 5)
    positions = dict.fromkeys(await log.streams(environment.source), START)
    for number, entry in enumerate(entries):
        rest = await environment.read_until(log, 4 - number, positions | {entry.stream: entry.position})
        assert versions(rest) == list(range(number + 1, 5))
    assert versions(await environment.read_until(await environment.open(), 5)) == list(range(5)), (
        "another reader sees the same"
    )


@in_make_test("redis", "nats")
async def test_a_waiting_reader_gets_the_next_event_at_once(environment: LogEnvironment) -> None:
    log, reader = await environment.open(), await environment.open()
    await log.publish(environment.source, pending_events(1))
    first = await environment.read_until(reader, 1)
    reached = dict.fromkeys(await reader.streams(environment.source), START) | {e.stream: e.position for e in first}
    reading = asyncio.create_task(reader.read(reached, count=10, wait_s=3))
    began_s = time.monotonic()
    await log.publish(environment.source, pending_events(2))
    assert versions(await reading) == [2]
    assert time.monotonic() - began_s < 2.5, "it returned before its wait was over"


@in_make_test("redis")
@pytest.mark.usefixtures("own_database")
async def test_a_reader_killed_before_it_stores_its_effects_loses_and_repeats_nothing(
    environment: LogEnvironment, postgres_url: str
) -> None:
    """The next reader continues where the stored effects end: none is missing, none comes twice."""
    log, connection = await environment.open(), await asyncpg.connect(with_driver(postgres_url))
    await connection.execute(reader.TABLES)
    await log.publish(environment.source, pending_events(*range(5)))
    await reader.store(await reader.read(log, environment.source, connection), connection)
    command = [
        sys.executable,
        "-m",
        reader.__name__,
        environment.server.url,
        environment.source,
        with_driver(postgres_url),
    ]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    killed = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env)
    try:
        assert killed.stdout is not None
        assert await asyncio.wait_for(killed.stdout.readline(), 30) == b"has read 2\n"
    finally:
        killed.kill()
        await killed.communicate()
    while entries := await reader.read(log, environment.source, connection):
        await reader.store(entries, connection)
    effects = [
        Event.model_validate_json(row["body"]) for row in await connection.fetch("SELECT * FROM effect ORDER BY n")
    ]
    assert [event.version for event in effects] == [0, 1, 2, 3, 4]
    await connection.close()


@in_make_test("redis", "nats")
async def test_events_emitted_while_the_log_is_down_follow_in_order(
    environment: LogEnvironment, postgres, schema, monkeypatch
) -> None:
    """Emitting stays as fast as before; the relay fails, keeps trying, and loses nothing."""
    monkeypatch.setattr(jetstream, "PUBLISH_S", 1.0)
    monkeypatch.setattr(kafka, "PUBLISH_S", 1.0)
    relay, log = Process(Outbox(postgres, await environment.open(), schema)), await environment.open()
    environment.source = schema

    async def write(first: int, last: int) -> None:
        for number in range(first, last):
            await emit(postgres, schema, number)

    def behind_s() -> float:
        return REGISTRY.get_sample_value("onsale_event_log_behind_seconds", {"source": environment.source}) or 0

    await write(0, 5)
    await relay.relay()
    before = await environment.read_until(log, 5)
    environment.server.kill()
    try:
        began_s = time.monotonic()
        await write(5, 20)
        assert time.monotonic() - began_s < EMIT_WITHIN_S
        with pytest.raises(Exception):  # noqa: B017, PT011 - the relay's loop retries after any exception
            await relay.relay()
        assert behind_s() > 0
    finally:
        environment.server.restart()

    async def drained() -> bool:
        try:
            return not await relay.relay()
        except Exception:  # noqa: BLE001 - as its loop does
            return False

    await wait_until(drained)
    assert behind_s() == 0
    reached = dict.fromkeys(await log.streams(environment.source), START) | {e.stream: e.position for e in before}
    found: list[int] = []

    async def all_read() -> bool:
        try:
            found[:] = versions(await environment.read(log, reached))
        except Exception:  # noqa: BLE001 - as its loop does
            return False
        return len(set(found)) >= 15

    await wait_until(all_read)
    assert list(dict.fromkeys(found)) == list(range(5, 20))


# -- opening -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nats://", "nats://host:port"),
        ("nats://a,b/topic", "without a path or a query"),
        ("kafka://a?acks=0", "without a path or a query"),
        ("kafka://user:secret@a", "user and password are not supported"),
        ("amqp://a", "redis://… or kafka://host,host or nats://host,host, not amqp://"),
        ("somewhere", "redis://… or kafka://host,host or nats://host,host"),
    ],
)
async def test_an_invalid_event_log_url_is_refused_in_one_line(url: str, message: str) -> None:
    with pytest.raises(LogRefused) as refused:
        async with open_log(ServiceSettings(event_log_url=url), Redis()):
            pass
    assert "ONSALE_EVENT_LOG_URL" in str(refused.value)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["nats", "kafka"])
async def test_opening_a_log_does_not_connect_to_its_server(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}"
    async with open_log(ServiceSettings(event_log_url=url), Redis()):
        pass


async def test_a_missing_client_library_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    monkeypatch.delitem(sys.modules, kafka.__name__)
    with pytest.raises(LogRefused, match=r"pip install 'onsale\[kafka\]'"):
        async with open_log(ServiceSettings(event_log_url="kafka://a"), Redis()):
            pass


def test_a_service_without_the_client_library_ends_with_one_line() -> None:
    code = "import sys; sys.modules['nats'] = None; sys.argv[1:] = ['serve', 'queue']; import onsale.__main__"
    environ = os.environ | {"ONSALE_EVENT_LOG_URL": "nats://a", "QUEUE_PORT": str(free_port())}
    command = [sys.executable, "-P", "-c", code]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.endswith("is nats://…, which needs: pip install 'onsale[nats]'\n")
    assert "Traceback" not in ran.stderr
