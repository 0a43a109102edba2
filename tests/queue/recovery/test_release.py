"""A site reports that a session is over: gateways get the revoked pass before its slot is free."""

import pytest

from services.queue.line.sessions import revoked_passes
from shared.contracts.frames import Revoked, revoked_channel
from shared.contracts.queue import PlaceState
from shared.web.problems import Unavailable
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


async def inside(queue: Queue) -> None:
    await queue.open(max_active=1)
    await queue.join("ann", "ben")
    await queue.tick()
    assert [c.word for c in await queue.claim((1, "ann"))] == ["admitted"]


async def release(queue: Queue, *refs: tuple[int, str]) -> list[PlaceState]:
    return await queue.state.claims.release(queue.places(*refs))


async def test_a_released_slot_goes_to_the_next_fan(queue: Queue):
    await inside(queue)
    await queue.tick()
    assert await queue.called() == []
    assert await release(queue, (1, "ann")) == ["completed"]
    await queue.tick()
    assert await queue.called() == [2]
    assert await release(queue, (1, "ann")) == ["completed"], "twice is once"


async def test_gates_are_told_first_and_may_ask_later(queue: Queue):
    await inside(queue)
    async with queue.redis.pubsub() as subscription:
        await subscription.subscribe(revoked_channel(EVENT))
        await subscription.get_message(timeout=1)
        await release(queue, (1, "ann"))
        message = await subscription.get_message(timeout=1)
    assert message is not None
    [(jti, until_ms)] = Revoked.model_validate_json(message["data"]).passes
    assert jti == "1-0-1-1"
    assert (await revoked_passes(queue.state.rooms, EVENT)).passes == [(jti, until_ms)]


async def test_no_slot_is_freed_while_no_gate_can_be_told(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    await inside(queue)

    async def away(*_args):
        raise ConnectionError

    with monkeypatch.context() as cut:
        cut.setattr(queue.state.line.redis, "publish", away)
        with pytest.raises(Unavailable):
            await release(queue, (1, "ann"))
    assert await queue.status((1, "ann")) == ["admitted"]
    await wait_until(lambda: release(queue, (1, "ann")))
    assert await queue.status((1, "ann")) == ["completed"]


async def test_tickets_in_a_basket_keep_the_slot(queue: Queue):
    await inside(queue)
    queue.inventory.stands["ann"] = queue.time_ms + 60_000
    assert await release(queue, (1, "ann")) == ["admitted"]
    assert (await revoked_passes(queue.state.rooms, EVENT)).passes == []


async def test_nobody_releases_what_is_not_theirs(queue: Queue):
    await inside(queue)
    await release(queue, (1, "ben"))
    await release(queue, (2, "ben"))
    assert await queue.status((1, "ann"), (2, "ben")) == ["admitted", "waiting"]
