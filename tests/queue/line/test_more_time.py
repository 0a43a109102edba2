"""More time to choose: a session gets its length again, once, and does not end before the new end."""

import json

import pytest

from shared.contracts.queue import Extended
from shared.security.tokens import unb64
from tests.queue.conftest import EVENT, Queue

SESSION_S = 60


async def admit(queue: Queue) -> int:
    """Ann has a pass; when it ends, in ms."""
    await queue.open_and_call("ann", session_s=SESSION_S)
    [claim] = await queue.claim((1, "ann"))
    assert claim.expires_at_ms is not None
    return claim.expires_at_ms


async def extend(queue: Queue, holder: str = "ann") -> Extended:
    [extended] = await queue.state.claims.extend(queue.places((1, holder)))
    return extended


async def statuses_after(queue: Queue, after_s: float) -> list[str]:
    await queue.tick(after_s)
    await queue.state.sessions.drain()
    return list(await queue.status((1, "ann")))


async def test_a_session_gets_its_length_again_from_now_on(queue: Queue):
    first_ms = await admit(queue)
    queue.advance_clock(SESSION_S / 2)
    extended = await extend(queue)
    assert extended.outcome == "given"
    until_ms = extended.claimed.expires_at_ms
    assert until_ms is not None
    assert until_ms - first_ms == pytest.approx(SESSION_S / 2 * 1000, abs=1500)
    assert extended.claimed.admission is not None
    assert json.loads(unb64(extended.claimed.admission.split(".")[1]))["exp"] == until_ms // 1000
    assert await queue.claim((1, "ann")) == [extended.claimed], "the same pass, with its new end"
    assert await statuses_after(queue, SESSION_S / 2 + 5) == ["admitted"], "past the first end"
    assert await statuses_after(queue, SESSION_S) == ["expired"], "past the new one"


async def test_only_once(queue: Queue):
    await admit(queue)
    first = await extend(queue)
    queue.advance_clock(5)
    second = await extend(queue)
    assert (second.outcome, second.claimed) == ("before", first.claimed)


async def test_a_session_that_is_ending_is_not_extended(queue: Queue):
    await admit(queue)
    queue.advance_clock(SESSION_S - 1)
    assert (await extend(queue)).outcome == "too-late"


async def test_only_for_its_holder_and_only_with_a_session(queue: Queue):
    await queue.open_and_call("ann", session_s=SESSION_S)
    assert (await extend(queue)).claimed.word == "waiting", "called, but not claimed"
    await queue.claim((1, "ann"))
    assert (await extend(queue, "mallory")).claimed.word == "expired"
    await queue.leave((1, "ann"))
    assert (await extend(queue)).claimed.word == "left"


async def test_a_session_whose_extension_did_not_reach_redis_is_found_in_the_database(queue: Queue):
    first_ms = await admit(queue)
    queue.advance_clock(10)
    extended = await extend(queue)
    await queue.state.line.extend(EVENT, 1, [(0, 1, first_ms)])
    assert await statuses_after(queue, SESSION_S - 5) == ["admitted"]
    assert await queue.sorted_set("active") == {"0:1": extended.claimed.expires_at_ms}
