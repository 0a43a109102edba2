"""Claiming, leaving, purchases and the end of sessions: one pass per call, and a freed slot leaves no working pass."""

import asyncio
import itertools
import json

import jwt
import pytest

from services.queue.line.repository import LineRepository
from services.queue.places import purchases
from services.queue.places.sessions import revoked_passes
from shared.contracts.frames import Revoked, revoked_channel
from shared.contracts.queue import Extended, PlaceState
from shared.errors.problems import StaleEpoch, Unavailable
from shared.messaging.log import log_stream
from shared.process.clock_offsets import read_clocks
from shared.runtime.clock import now_ms
from shared.security.tokens import PassReader, unb64
from tests.inventory.clocks import HOUR_MS, Steps
from tests.inventory.clocks import steps as steps  # noqa: PLC0414 - a fixture
from tests.queue.conftest import EVENT, TEST, Inventory, Queue
from tests.support.wait import wait_until


async def admit_two(queue: Queue, **room) -> None:
    """Two fans have passes, a third waits."""
    await queue.open_and_call("ann", "ben", "cyd", max_active=2, **room)
    assert [c.word for c in await queue.claim((1, "ann"), (2, "ben"))] == ["admitted", "admitted"]


def revoked_jtis(inventory: Inventory) -> list[str]:
    return [session.jti for ending in inventory.ended for session in ending.sessions]


async def test_claiming_again_gives_the_same_pass(queue: Queue, new_queue):
    await queue.open_and_call("ann")
    others = [new_queue() for _ in range(3)]
    for other in others:
        other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
    claims = await asyncio.gather(*(one.claim((1, "ann")) for one in (queue, *others)))
    queue.advance_clock(5)
    claims.append(await queue.claim((1, "ann")))
    assert len({claim.admission for [claim] in claims}) == 1
    assert len({claim.expires_at_ms for [claim] in claims}) == 1
    assert len({claim.checkout_key for [claim] in claims}) == 1


async def test_a_claim_that_did_not_reach_the_database_is_completed_by_the_next_claim(queue: Queue):
    await queue.open_and_call("ann")
    _, [first] = await queue.state.line.claim(EVENT, 1, 0, [1])
    queue.advance_clock(3)
    [claim] = await queue.claim((1, "ann"))
    assert (claim.word, claim.expires_at_ms) == ("admitted", first.until_ms)


@pytest.mark.parametrize(("rate_per_s", "after_s"), [(0, 0.0), (1000, 10.1)])
async def test_a_fan_who_is_not_called_or_whose_call_is_past_its_deadline_gets_no_pass(
    queue: Queue, rate_per_s: float, after_s: float
):
    await queue.open_and_call("ann", rate_per_s=rate_per_s, claim_window_s=10)
    assert await queue.called() == ([1] if rate_per_s else [])
    queue.advance_clock(after_s)
    [claim] = await queue.claim((1, "ann"))
    assert (claim.word, claim.admission) == ("waiting", None)


async def test_a_place_is_claimed_only_by_its_holder(queue: Queue):
    await queue.open_and_call("ann")
    assert [claim.word for claim in await queue.claim((1, "mallory"), (99, "ann"))] == ["expired", "expired"]
    assert len(await queue.sorted_set("active")) == 0
    assert await queue.leave((1, "mallory")) == ["left"]
    assert await queue.called() == [1]


async def test_every_request_with_an_old_epoch_is_refused(queue: Queue):
    await queue.open_and_call("ann")
    old = queue.places((1, "ann"))
    room = await queue.state.rooms.reset(EVENT, TEST)
    with pytest.raises(StaleEpoch):
        await queue.state.line.claim(EVENT, 2, 0, [1])
    await queue.state.gatekeeper.apply_config(room)
    for request in (queue.state.claims.status, queue.state.claims.claim, queue.state.claims.leave):
        with pytest.raises(StaleEpoch):
            await request(old)
    for script in (queue.state.line.get_status, queue.state.line.claim, queue.state.line.touch):
        with pytest.raises(StaleEpoch):
            await script(EVENT, 1, 0, [1])


async def test_a_claim_from_before_a_rebuild_is_refused(queue: Queue):
    await queue.open_and_call("ann")
    await queue.sql("UPDATE queue.room SET generation = generation + 1")
    with pytest.raises(Unavailable):
        await queue.claim((1, "ann"))


async def test_leaving_ends_the_place_and_the_holder_may_join_again(queue: Queue):
    await queue.open("ann", rate_per_s=0)
    assert await queue.leave((1, "ann")) == ["left"]
    assert await queue.leave((1, "ann")) == ["left"]
    assert await queue.status((1, "ann")) == ["left"]
    assert [j.join_seq for j in await queue.join("ann")] == [2]
    await queue.configure(rate_per_s=100.0)
    queue.advance_clock(0.1)
    await queue.tick()
    assert await queue.called() == [2]


async def test_leaving_with_a_pass_revokes_it_before_the_slot_is_free(queue: Queue, inventory):
    await admit_two(queue)
    inventory.unavailable = True
    with pytest.raises(Exception, match="inventory"):
        await queue.leave((1, "ann"))
    await queue.tick()
    assert len(await queue.sorted_set("active")) == 2, "the slot of a working pass is not free"
    assert await queue.called() == [], "so no fan is called"
    inventory.unavailable = False
    assert await queue.leave((1, "ann")) == ["left"]
    [ended] = inventory.ended
    assert (ended.leaving, [s.jti for s in ended.sessions]) == (True, ["1-0-1-1"])
    await queue.tick()
    assert await queue.called() == [3]


async def test_leaving_during_a_claim_revokes_the_pass_of_that_claim(
    queue: Queue, inventory, monkeypatch: pytest.MonkeyPatch
):
    await queue.open_and_call("ann")
    sessions, end_places = queue.state.sessions, queue.state.sessions.end_places

    async def claim_then_end(*args, **named):
        if not claims:
            claims.extend(await queue.claim((1, "ann")))
        return await end_places(*args, **named)

    claims: list = []
    monkeypatch.setattr(sessions, "end_places", claim_then_end)
    assert await queue.leave((1, "ann")) == ["left"]
    assert claims[0].word == "admitted"
    assert revoked_jtis(inventory) == ["1-0-1-1"]


async def test_a_fan_with_a_live_reservation_cannot_leave_the_session(queue: Queue, inventory):
    await admit_two(queue)
    inventory.held_until_ms["ann"] = now_ms() + 10**6
    assert await queue.leave((1, "ann")) == ["admitted"]
    assert len(await queue.sorted_set("active")) == 2


async def test_a_session_past_its_end_is_revoked_then_freed(queue: Queue, inventory):
    await admit_two(queue, session_s=100)
    inventory.unavailable = True
    await queue.tick(101)
    await queue.drain_sessions()
    assert len(await queue.sorted_set("active")) == 2
    inventory.unavailable = False
    await queue.tick()
    await queue.drain_sessions()
    assert len(await queue.sorted_set("active")) == 0
    statuses = await queue.state.claims.status(queue.places((1, "ann"), (2, "ben")))
    assert [(place.status, place.why) for place in statuses] == [("expired", "session")] * 2
    assert [(claim.word, claim.why) for claim in await queue.claim((1, "ann"))] == [("expired", "session")]
    assert set(revoked_jtis(inventory)) == {"1-0-1-1", "1-0-2-1"}
    await queue.heartbeat(3)
    await queue.tick()
    assert await queue.called() == [3]


async def test_a_live_reservation_extends_its_session(queue: Queue, inventory):
    await admit_two(queue, session_s=100)
    inventory.held_until_ms["ann"] = now_ms() + queue.state.line.clock_offset_ms + 300_000
    await queue.tick(101)
    await queue.drain_sessions()
    await queue.tick()
    await queue.drain_sessions()
    assert list(await queue.sorted_set("active")) == ["0:1"]
    assert await queue.status((1, "ann")) == ["admitted"]
    [claim] = await queue.claim((1, "ann"))
    assert claim.expires_at_ms < inventory.held_until_ms["ann"], "the pass itself is not extended"
    inventory.held_until_ms.clear()
    await queue.tick(250)
    await queue.drain_sessions()
    assert await queue.status((1, "ann")) == ["expired"]


@pytest.mark.parametrize("place", [{"lane": 0, "join_seq": 1, "epoch": 1, "jti": "1-0-1-1"}, {}])
async def test_a_purchase_completes_the_place_and_frees_its_slot(queue: Queue, inventory, place: dict):
    await admit_two(queue)
    await queue.confirm_order(holder="ann", **place)
    await queue.confirm_order(holder="nobody")
    await queue.purchases().read()
    assert await queue.status((1, "ann"), (2, "ben")) == ["completed", "admitted"]
    assert revoked_jtis(inventory) == ["1-0-1-1"], "revoked before the slot is free"
    await queue.tick()
    assert await queue.called() == [3]
    offset = await queue.sql("SELECT last_id FROM queue.log_offset WHERE stream = :s", s=log_stream(EVENT))
    [last] = await queue.redis.xrevrange(log_stream(EVENT), count=1)
    assert offset == [(last[0].decode(),)]


async def test_a_purchase_during_an_outage_of_inventory_completes_the_place_later(queue: Queue, inventory):
    await admit_two(queue, session_s=100)
    await queue.confirm_order(holder="ann")
    inventory.unavailable = True
    await queue.purchases().read()
    assert await queue.status((1, "ann")) == ["admitted"]
    inventory.unavailable = False
    await queue.tick(101)
    await queue.drain_sessions()
    assert await queue.status((1, "ann"), (2, "ben")) == ["completed", "expired"]


async def test_events_report_joins_calls_claims_and_leaves(queue: Queue):
    await admit_two(queue)
    await queue.leave((1, "ann"))
    rows = await queue.sql(
        "SELECT e ->> 'type', e -> 'after' FROM queue.outbox_batch, jsonb_array_elements(events) AS e ORDER BY id"
    )
    assert [row[0] for row in rows] == ["place.joined", "place.called", "place.claimed", "place.left"]
    assert rows[0][1] == {"epoch": 1, "lane": 0, "join_seqs": [[1, 3]]}
    assert list(itertools.chain(*rows[3][1]["places"])) == [0, 1]


async def test_one_process_of_several_consumes_the_purchases_and_the_next_goes_on_after_it(queue: Queue, monkeypatch):
    monkeypatch.setattr(purchases, "ASK_AGAIN_S", 0)
    monkeypatch.setattr(purchases, "WAIT_S", 0.05)
    first, second = queue.purchases(), queue.purchases()
    await admit_two(queue)
    await first.read()
    await queue.confirm_order(holder="ann")
    await second.read()
    assert await queue.status((1, "ann")) == ["admitted"], "the first one does it"
    await first.read()
    await queue.confirm_order(holder="ben")
    await second.end()
    await second.read()
    assert await queue.status((1, "ann"), (2, "ben")) == ["completed", "admitted"], "only its holder ends a lease"
    await first.end()
    await second.read()
    assert await queue.status((2, "ben")) == ["completed"]
    assert 0 < await queue.redis.pttl("queue:purchases") <= 6_000, "it expires if its process dies"
    await queue.redis.pexpire("queue:purchases", 3_000)
    await first.read()
    await second.read()
    assert await queue.redis.pttl("queue:purchases") > 5_000, "each look renews it"


async def test_other_events_are_skipped_unparsed_and_their_offset_is_saved_later(queue: Queue, monkeypatch):
    monkeypatch.setattr(purchases, "SAVE_OFFSETS_EVERY_S", 60)
    consumer = queue.purchases()
    stream = log_stream(EVENT)
    ids = []
    for n in range(2):
        ids.append((await queue.redis.xadd(stream, {"event": f"not even JSON {n}"})).decode())
        await consumer.read()
    stored = "SELECT last_id FROM queue.log_offset WHERE stream = :s"
    assert await queue.sql(stored, s=stream) == [(ids[0],)], "the second is not saved yet"
    await admit_two(queue)
    await queue.confirm_order(holder="ann")
    await consumer.read()
    [last] = await queue.redis.xrevrange(stream, count=1)
    assert await queue.sql(stored, s=stream) == [(last[0].decode(),)], "a purchase saves the offset at once"
    assert await queue.status((1, "ann")) == ["completed"]


async def test_a_claim_of_a_place_that_has_just_ended_is_not_stored(queue: Queue):
    """It ended after Redis had granted the claim."""
    await queue.open_and_call("ann")
    generation, [claim] = await queue.state.line.claim(EVENT, 1, 0, [1])
    await queue.sql("UPDATE queue.place SET ended_at = now(), end_reason = 'left'")
    async with queue.db.begin() as connection:
        repository = LineRepository(connection, EVENT, 1)
        row = (0, 1, claim.call, "1-0-1-1", claim.until_ms)
        assert await repository.insert_claims([row], generation=generation) == {}


async def test_a_purchase_ends_no_place_of_another_holder(queue: Queue):
    await queue.open_and_call("ann")
    await queue.claim((1, "ann"))
    await queue.confirm_order(holder="mallory", epoch=1, lane=0, join_seq=1)
    await queue.purchases().read()
    assert await queue.status((1, "ann")) == ["admitted"]


# -- more time to choose -----------------------------------------------------------------------------------------------


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


# -- a site releases a session -----------------------------------------------------------------------------------------


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


# -- clocks that step --------------------------------------------------------------------------------------------------


STEP_MS, CLAIM_S, LONG_SESSION_S = 55_000, 120, 900


@pytest.fixture
def line(steps: Steps, queue: Queue) -> Queue:
    """A queue that connects after the database's clock was made adjustable."""
    return queue


@pytest.mark.usefixtures("own_database")
@pytest.mark.parametrize("clock", ["redis", "postgres", "process"])
async def test_a_call_and_a_session_last_until_their_given_time_although_a_clock_steps(
    steps: Steps, line: Queue, clock: str
) -> None:
    await line.open(claim_window_s=CLAIM_S, session_s=LONG_SESSION_S)
    await line.join_fans(2)
    await line.tick()
    [first] = await line.claim((1, "fan-1"))
    assert first.word == "admitted"
    await steps.set(clock, STEP_MS)
    own_step_s = STEP_MS / 1000 if clock == "process" else 0  # `tick` moves Redis' clock relative to the process's
    later_s = CLAIM_S - 20 + own_step_s
    for noticed in (False, True):
        if noticed:
            await read_clocks(line.state.line.clocks, line.db, line.redis)
        await line.tick(0 if noticed else later_s)
        assert await line.called() == [2], "the call lasts until its deadline"
    [second] = await line.claim((2, "fan-2"))
    assert second.word == "admitted"
    await line.tick(LONG_SESSION_S - CLAIM_S)
    await line.drain_sessions()
    assert line.inventory.ended == [], "a pass is valid until it expires"
    await line.tick(STEP_MS / 1000 + 60)
    await line.drain_sessions()
    assert [session.holder for ending in line.inventory.ended for session in ending.sessions][:1] == ["fan-1"]


@pytest.mark.usefixtures("own_database")
async def test_a_pass_issued_while_redis_is_ahead_is_valid_at_once(steps: Steps, line: Queue) -> None:
    await line.open(session_s=LONG_SESSION_S)
    await steps.set("redis", STEP_MS)
    await line.join_fans(1)
    await line.tick()
    [claimed] = await line.claim((1, "fan-1"))
    assert claimed.admission is not None
    keys = line.state.claims.pass_keys.public()
    assert PassReader(keys).read(claimed.admission, now_s=now_ms() / 1000).holder == "fan-1"
    payload = jwt.decode(claimed.admission, options={"verify_signature": False})
    assert payload["nbf"] <= now_ms() / 1000, "other sites accept it, too"


@pytest.mark.usefixtures("own_database")
async def test_calls_go_on_soon_after_redis_was_an_hour_ahead(steps: Steps, line: Queue) -> None:
    await line.open(rate_per_s=10, burst=10)
    await line.join_fans(60)
    await steps.set("redis", HOUR_MS)
    await line.heartbeat(*range(1, 61))
    await line.tick()
    before = len(await line.called())
    assert 0 < before < 60
    await steps.set("redis", 0)
    for _ in range(10):
        await line.heartbeat(*range(1, 61))
        await line.tick(0.4)
    assert len(await line.called()) > before, "calls go on once the clock is right"
    assert int((await line.room_hash())["assume_live_until_ms"]) < now_ms() + HOUR_MS / 2


@pytest.mark.usefixtures("own_database")
async def test_nobody_is_passed_over_because_redis_steps_forward(steps: Steps, line: Queue) -> None:
    """A random sale found it: by a clock that was two minutes ahead all heartbeats were old."""
    await line.open(fans=10, rate_per_s=0)
    await line.end_assumed_liveness()
    await line.heartbeat(*range(1, 11))
    await line.tick()
    await steps.set("redis", 120_000)
    await line.configure(rate_per_s=50.0)
    await line.tick()
    assert await line.called() == list(range(1, 11))


@pytest.mark.usefixtures("own_database")
async def test_a_place_that_is_being_inserted_is_waited_for_although_redis_steps_forward(
    steps: Steps, line: Queue
) -> None:
    await line.open()
    async with line.blocked_join("slow") as joining:
        await line.join("quick")
        await line.tick()
        await steps.set("redis", 120_000)
        assert (await line.tick()).lanes[0].head_seq == 0
    await joining


@pytest.mark.usefixtures("own_database")
async def test_absent_fans_are_passed_over_again_once_redis_is_right(steps: Steps, line: Queue) -> None:
    await line.open(fans=5, rate_per_s=0)
    await line.end_assumed_liveness()
    await steps.set("redis", HOUR_MS)
    await line.tick()
    await steps.set("redis", 0)
    await line.tick()
    await line.end_assumed_liveness()
    await line.heartbeat(5)
    await line.configure(rate_per_s=50.0)
    await line.tick()
    assert await line.called() == [5]
