"""What NATS is trusted with beyond other logs: order when something is lost on its way, and streams made anew."""

import signal
from collections.abc import Iterator

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from shared.messaging import jetstream
from shared.messaging.jetstream import JetStream
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
async def log(ground: LogEnvironment) -> JetStream:
    opened = await ground.open()
    assert isinstance(opened, JetStream)
    return opened


async def test_what_follows_something_lost_is_refused_with_it(
    ground: LogEnvironment, log: JetStream, monkeypatch
) -> None:
    await log.publish(ground.source, pending_events(1))
    publish = JetStreamContext.publish

    async def lossy(self, subject, payload, **how):
        if b'"version":3' in payload:
            raise TimeoutError
        return await publish(self, subject, payload, **how)

    with monkeypatch.context() as lost:
        lost.setattr(JetStreamContext, "publish", lossy)
        with pytest.raises(LogUnavailable):
            await log.publish(ground.source, pending_events(2, 3, 4))
    await log.publish(ground.source, pending_events(2, 3, 4))
    assert versions(await ground.reads(log, 4)) == [1, 2, 3, 4]


async def test_what_was_lost_on_its_way_to_a_reader_is_read_again(ground: LogEnvironment, log: JetStream) -> None:
    await log.publish(ground.source, pending_events(1, 2, 3))
    [first] = await log.read({ground.source: START}, count=1, wait_s=1)
    await log._cursors[ground.source].subscription.fetch(1, timeout=1)  # given by the server, and never seen by us
    with pytest.raises(LogUnavailable, match="lost in delivery"):
        await log.read({ground.source: first.position}, count=10, wait_s=0.2)
    assert versions(await ground.reads(log, 2, {ground.source: first.position})) == [2, 3]


async def test_two_writers_do_not_disturb_each_other_for_long(ground: LogEnvironment, log: JetStream) -> None:
    """A relay whose lease ran out meanwhile is refused once; then it goes on after the other."""
    other = await ground.open()
    await log.publish(ground.source, pending_events(1))
    await other.publish(ground.source, pending_events(2))
    with pytest.raises(LogUnavailable, match="wrong last sequence"):
        await log.publish(ground.source, pending_events(3))
    await log.publish(ground.source, pending_events(2, 3))
    assert versions(await ground.reads(log, 3)) == [1, 2, 3]


async def test_a_stream_that_was_made_anew_is_read_from_its_beginning(ground: LogEnvironment, log: JetStream) -> None:
    await log.publish(ground.source, pending_events(1, 2, 3))
    last = (await ground.reads(log, 3))[-1]
    client: Client | None = log._client
    assert client is not None
    await client.jetstream().delete_stream(f"ONSALE_{ground.source.upper()}")
    again = await ground.open()
    await again.publish(ground.source, pending_events(4))
    found: list[int] = []

    async def hears_of_it() -> bool:
        try:
            found[:] = versions(await ground.read(log, {last.stream: last.position}))
        except LogUnavailable:
            return False
        return bool(found)

    await wait_until(hears_of_it, timeout_s=10)
    assert found == [4]


async def test_a_log_that_does_not_know_us_gives_nothing(ground: LogEnvironment, monkeypatch) -> None:
    monkeypatch.setattr(jetstream, "TIMEOUT_S", 0.3)
    stranger = JetStream([ground.server.url.rpartition("@")[2]], user="onsale", password="wrong", kept_s=60, replicas=1)
    with pytest.raises(LogUnavailable):
        await stranger.read({ground.source: START}, count=1, wait_s=0.1)
    await stranger.close()
