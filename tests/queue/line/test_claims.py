"""Claiming, leaving, purchases and the end of sessions: one pass per call, and a freed slot leaves no working pass."""

import asyncio
import itertools

import pytest

from services.queue.line.repository import LineRepository
from services.queue.places import purchases
from shared.errors.problems import StaleEpoch, Unavailable
from shared.messaging.redis_streams import log_stream
from shared.runtime.clock import now_ms
from tests.queue.conftest import EVENT, TEST, Inventory, Queue


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
