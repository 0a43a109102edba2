"""A site releases a session: gateways receive the revoked pass before its slot is free."""

import pytest

from services.queue.places.sessions import revoked_passes
from shared.contracts.frames import Revoked, revoked_channel
from shared.contracts.queue import PlaceState
from shared.errors.problems import Unavailable
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


async def admit_one(queue: Queue) -> None:
    """ann has a pass, ben waits."""
    await queue.open_and_call("ann", "ben", max_active=1)
    assert [c.word for c in await queue.claim((1, "ann"))] == ["admitted"]


async def release(queue: Queue, *refs: tuple[int, str]) -> list[PlaceState]:
    return await queue.state.claims.release(queue.places(*refs))


async def test_a_released_slot_goes_to_the_next_fan(queue: Queue):
    await admit_one(queue)
    await queue.tick()
    assert await queue.called() == []
    assert await release(queue, (1, "ann")) == ["completed"]
    await queue.tick()
    assert await queue.called() == [2]
    assert await release(queue, (1, "ann")) == ["completed"], "a repeated release changes nothing"


async def test_a_revoked_pass_is_published_to_gateways_and_can_be_read_later(queue: Queue):
    await admit_one(queue)
    async with queue.redis.pubsub() as subscription:
        await subscription.subscribe(revoked_channel(EVENT))
        await subscription.get_message(timeout=1)
        await release(queue, (1, "ann"))
        message = await subscription.get_message(timeout=1)
    assert message is not None
    [(jti, until_ms)] = Revoked.model_validate_json(message["data"]).passes
    assert jti == "1-0-1-1"
    assert (await revoked_passes(queue.state.rooms, EVENT)).passes == [(jti, until_ms)]


async def test_no_slot_is_freed_while_the_revoked_pass_cannot_be_published(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    await admit_one(queue)

    async def unavailable(*_args):
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(queue.state.line.redis, "publish", unavailable)
        with pytest.raises(Unavailable):
            await release(queue, (1, "ann"))
    assert await queue.status((1, "ann")) == ["admitted"]
    await wait_until(lambda: release(queue, (1, "ann")))
    assert await queue.status((1, "ann")) == ["completed"]


async def test_a_live_reservation_keeps_the_slot(queue: Queue):
    await admit_one(queue)
    queue.inventory.held_until_ms["ann"] = queue.time_ms + 60_000
    assert await release(queue, (1, "ann")) == ["admitted"]
    assert (await revoked_passes(queue.state.rooms, EVENT)).passes == []


async def test_only_the_holder_of_a_session_can_release_it(queue: Queue):
    await admit_one(queue)
    await release(queue, (1, "ben"))
    await release(queue, (2, "ben"))
    assert await queue.status((1, "ann"), (2, "ben")) == ["admitted", "waiting"]
