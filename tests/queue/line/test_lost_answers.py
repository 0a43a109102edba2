"""The database commits and its answer is lost: a repeated join finds the place, and an ended place frees its slot."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.errors.problems import Unavailable
from shared.postgres import engine as postgres_engine
from shared.postgres.engine import DB_AWAY
from shared.postgres.settings import PostgresSettings
from tests.queue.conftest import Queue
from tests.support.engines.tcp_proxy import TcpProxy


@pytest.fixture
def wire(postgres_url: str) -> Iterator[TcpProxy]:
    with TcpProxy(postgres_url) as wire:
        yield wire


@pytest.fixture
async def postgres(wire: TcpProxy) -> AsyncIterator[AsyncEngine]:
    db = postgres_engine.connect(PostgresSettings(postgres_url=wire.url), name="test")
    yield db
    await db.dispose()


async def test_a_repeated_join_finds_the_place_and_it_is_called(queue: Queue, wire: TcpProxy):
    await queue.open(rate_per_s=0)
    wire.lose_next = 1
    with pytest.raises(Unavailable):
        await queue.join("ann", "ben")
    assert wire.lost == 1
    again = await queue.join("ann", "ben", may_be_known=True)
    assert [(place.word, place.join_seq) for place in again] == [("known", 1), ("known", 2)]
    [other] = await queue.join("cyd")
    assert other.join_seq > 2
    assert await queue.sql("SELECT count(*) FROM queue.place") == [(3,)]
    await queue.end_assumed_liveness()
    await queue.heartbeat(1, 2, other.join_seq)
    await queue.configure(rate_per_s=100, burst=10)
    await queue.tick()
    assert await queue.called() == [1, 2, other.join_seq]


async def test_reconciliation_frees_the_slot_of_a_place_whose_end_was_not_answered(queue: Queue, wire: TcpProxy):
    """As if the server died right after its commit."""
    await queue.open_and_call("ann", "ben", max_active=1)
    assert [claim.word for claim in await queue.claim((1, "ann"))] == ["admitted"]
    wire.lose_next = 1
    with pytest.raises(DB_AWAY):
        await queue.leave((1, "ann"))
    assert (wire.lost, list(await queue.sorted_set("active"))) == (1, ["0:1"])
    await queue.state.slot_reconciler.run_once()
    assert await queue.status((1, "ann")) == ["left"]
    await queue.tick()
    assert await queue.called() == [2]
