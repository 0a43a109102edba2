"""NATS JetStream beyond the common cases: order after a lost message, two writers, and streams created anew."""

import signal
from collections.abc import Iterator

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from features.event_logs import jetstream
from features.event_logs.jetstream import JetStream
from shared.messaging.log import START, LogUnavailable
from tests.shared.messaging.conftest import LogEnvironment, pending_events, versions
from tests.support.engines.logs import LogServer, Nats
from tests.support.wait import wait_until

PASSWORD = "p@ss/w:rd"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServer]:
    started = Nats(tmp_path_factory.mktemp("nats"), credentials=f"onsale:{PASSWORD}")
    started.start()
    try:
        started.wait()
        yield started
    finally:
        started.end(signal.SIGKILL)


@pytest.fixture
async def log(environment: LogEnvironment) -> JetStream:
    opened = await environment.open()
    assert isinstance(opened, JetStream)
    return opened


async def test_a_batch_with_a_lost_event_is_refused_and_published_in_order_later(
    environment: LogEnvironment, log: JetStream, monkeypatch
) -> None:
    await log.publish(environment.source, pending_events(1))
    publish = JetStreamContext.publish

    async def lossy(self, subject, payload, **options):
        if b'"version":3' in payload:
            raise TimeoutError
        return await publish(self, subject, payload, **options)

    with monkeypatch.context() as patch:
        patch.setattr(JetStreamContext, "publish", lossy)
        with pytest.raises(LogUnavailable):
            await log.publish(environment.source, pending_events(2, 3, 4))
    await log.publish(environment.source, pending_events(2, 3, 4))
    assert versions(await environment.read_until(log, 4)) == [1, 2, 3, 4]


async def test_an_event_lost_on_delivery_is_read_again(environment: LogEnvironment, log: JetStream) -> None:
    await log.publish(environment.source, pending_events(1, 2, 3))
    [first] = await log.read({environment.source: START}, count=1, wait_s=1)
    await log._cursors[environment.source].subscription.fetch(
        1, timeout=1
    )  # delivered by the server, never received by the reader
    with pytest.raises(LogUnavailable, match="lost in delivery"):
        await log.read({environment.source: first.position}, count=10, wait_s=0.2)
    assert versions(await environment.read_until(log, 2, {environment.source: first.position})) == [2, 3]


async def test_a_writer_refused_because_of_another_writer_continues_after_it(
    environment: LogEnvironment, log: JetStream
) -> None:
    """A relay whose lease ran out is refused once; then it continues after the other."""
    other = await environment.open()
    await log.publish(environment.source, pending_events(1))
    await other.publish(environment.source, pending_events(2))
    with pytest.raises(LogUnavailable, match="wrong last sequence"):
        await log.publish(environment.source, pending_events(3))
    await log.publish(environment.source, pending_events(2, 3))
    assert versions(await environment.read_until(log, 3)) == [1, 2, 3]


async def test_a_stream_created_anew_is_read_from_its_start(environment: LogEnvironment, log: JetStream) -> None:
    await log.publish(environment.source, pending_events(1, 2, 3))
    last = (await environment.read_until(log, 3))[-1]
    client: Client | None = log._client
    assert client is not None
    await client.jetstream().delete_stream(f"ONSALE_{environment.source.upper()}")
    other = await environment.open()
    await other.publish(environment.source, pending_events(4))
    found: list[int] = []

    async def read_new_events() -> bool:
        try:
            found[:] = versions(await environment.read(log, {last.stream: last.position}))
        except LogUnavailable:
            return False
        return bool(found)

    await wait_until(read_new_events)
    assert found == [4]


async def test_a_wrong_password_is_refused(environment: LogEnvironment, monkeypatch) -> None:
    monkeypatch.setattr(jetstream, "TIMEOUT_S", 0.3)
    client = JetStream([environment.server.url.rpartition("@")[2]], user="onsale", password="wrong", kept_s=60)
    with pytest.raises(LogUnavailable):
        await client.read({environment.source: START}, count=1, wait_s=0.1)
    await client.close()
