"""A pass that was released, or that a reset of the waiting room ended, opens no stream, and its streams end."""

import pytest

from services.queue.state import State as QueueState
from shared.contracts.queue import JoinBatch, JoinRequest, PlaceRef, PlacesQuestion
from tests.notifier.client import SseClient
from tests.notifier.conftest import Notifier
from tests.notifier.frames import EVENT
from tests.notifier.tokens import queue_token, signed_pass
from tests.support.running.services import TEST, Neighbours
from tests.support.wait import wait_until

STREAMS = pytest.mark.parametrize("query", ["", "?seats=*", "?sections=A", "?seats=A"])


PLACE = PlacesQuestion(event_id=EVENT, epoch=1, places=[PlaceRef(lane=0, join_seq=1, holder="ada")])


async def admit(queue: QueueState) -> str:
    """The pass of a fan who joined and was called."""
    await queue.joins.join(JoinBatch(event_id=EVENT, batch_id="a-batch-1", joins=[JoinRequest(holder="ada")]))
    queue.line.clock_offset_ms += 1_000
    await queue.gatekeeper.tick(EVENT)
    [claimed] = await queue.claims.claim(PLACE)
    assert claimed.admission is not None, claimed.word
    return claimed.admission


async def open_stream(notifier: Notifier, query: str, token: str) -> SseClient:
    client = await notifier.listen(query, token=token)
    await wait_until(lambda: client.last("seats" if "seats" in query else "sections"))
    return client


async def reset(neighbours: Neighbours) -> None:
    """The waiting room begins anew, in epoch 2."""
    queue = await neighbours.real_queue.open()
    await queue.operations.reset(EVENT, TEST)


async def is_refused(client: SseClient, status: int, slug: str) -> None:
    await wait_until(lambda: client.complete)
    assert (client.status, client.problem) == (status, slug)


@STREAMS
async def test_a_released_pass_opens_no_stream(notifier: Notifier, neighbours: Neighbours, query: str):
    queue = await neighbours.real_queue.open()
    token = await admit(queue)
    await queue.claims.leave(PLACE)
    await is_refused(await notifier.listen(query, token=token), 401, "bad-credential")


@STREAMS
async def test_a_pass_of_before_a_reset_opens_no_stream(notifier: Notifier, neighbours: Neighbours, query: str):
    await reset(neighbours)
    await is_refused(await notifier.listen(query, token=signed_pass(epoch=1)), 401, "bad-credential")
    await notifier.listen(query, token=signed_pass(epoch=2))
    assert notifier.clients[-1].status == 200


async def test_a_place_of_before_a_reset_opens_no_stream(notifier: Notifier, neighbours: Neighbours):
    await reset(neighbours)
    await is_refused(await notifier.listen(token=queue_token(1, epoch=1)), 410, "stale-epoch")


@STREAMS
async def test_releasing_a_pass_ends_its_streams_and_no_others(notifier: Notifier, neighbours: Neighbours, query: str):
    queue = await neighbours.real_queue.open()
    token = await admit(queue)
    client, other = await open_stream(notifier, query, token), await notifier.connect()
    await queue.claims.leave(PLACE)
    await wait_until(lambda: client.closed)
    await is_refused(await notifier.listen(query, token=token), 401, "bad-credential")
    assert not other.closed


@STREAMS
async def test_a_reset_ends_the_streams_of_the_passes_before_it(notifier: Notifier, neighbours: Neighbours, query: str):
    client = await open_stream(notifier, query, signed_pass())
    await reset(neighbours)
    await wait_until(lambda: client.closed)
