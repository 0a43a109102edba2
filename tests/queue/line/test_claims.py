"""Claiming, leaving, and the end of sessions: one pass per call, and no freed slot leaves a working pass."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from services.queue.line import purchases
from services.queue.line.purchases import Purchases
from shared.contracts.events import Event
from shared.messaging.redis_streams import RedisStreams, log_stream
from shared.runtime.clock import now_ms
from shared.web.problems import StaleEpoch
from tests.queue.conftest import EVENT, Queue

KEY = f"queue:{{{EVENT}}}:1"


async def admitted(queue: Queue, **room) -> None:
    """Two fans with a pass, one waiting."""
    await queue.open(max_active=2, **room)
    await queue.join("ann", "ben", "cyd")
    await queue.tick()
    assert [c.word for c in await queue.claim((1, "ann"), (2, "ben"))] == ["admitted", "admitted"]


async def test_claiming_again_gives_the_same_pass(queue: Queue, another):
    await queue.open()
    await queue.join("ann")
    await queue.tick()
    others = [another() for _ in range(3)]
    for other in others:
        other.state.line.clock_offset_ms = queue.state.line.clock_offset_ms
    claims = await asyncio.gather(*(one.claim((1, "ann")) for one in (queue, *others)))
    queue.later(5)
    claims.append(await queue.claim((1, "ann")))
    assert len({claim.admission for [claim] in claims}) == 1
    assert len({claim.expires_at_ms for [claim] in claims}) == 1
    assert len({claim.checkout_key for [claim] in claims}) == 1


async def test_a_claim_cut_off_before_the_database_is_taken_up_again(queue: Queue):
    await queue.open()
    await queue.join("ann")
    await queue.tick()
    _, [first] = await queue.state.line.claim(EVENT, 1, 0, [1])
    queue.later(3)
    [claim] = await queue.claim((1, "ann"))
    assert (claim.word, claim.expires_at_ms) == ("admitted", first.until_ms)


async def test_who_is_not_called_gets_no_pass(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join("ann")
    [claim] = await queue.claim((1, "ann"))
    assert (claim.word, claim.admission) == ("waiting", None)


async def test_a_place_is_claimed_only_by_its_holder(queue: Queue):
    await queue.open()
    await queue.join("ann")
    await queue.tick()
    assert [claim.word for claim in await queue.claim((1, "mallory"), (99, "ann"))] == ["expired", "expired"]
    assert len(await queue.part("active")) == 0
    assert await queue.leave((1, "mallory")) == ["left"]
    assert await queue.called() == [1]


async def test_a_call_past_its_deadline_is_not_claimed(queue: Queue):
    await queue.open(claim_window_s=10)
    await queue.join("ann")
    await queue.tick()
    queue.later(10.1)
    assert [c.word for c in await queue.claim((1, "ann"))] == ["waiting"]


async def test_another_epoch_is_refused_everywhere(queue: Queue):
    await queue.open()
    await queue.join("ann")
    await queue.tick()
    old = queue.places((1, "ann"))
    room = await queue.state.rooms.reset(EVENT, actor="test", reason=None)
    with pytest.raises(StaleEpoch):
        await queue.state.line.claim(EVENT, 2, 0, [1])
    await queue.state.gatekeeper.apply_config(room)
    for ask in (queue.state.claims.status, queue.state.claims.claim, queue.state.claims.leave):
        with pytest.raises(StaleEpoch):
            await ask(old)
    for verb in (queue.state.line.get_status, queue.state.line.claim, queue.state.line.touch):
        with pytest.raises(StaleEpoch):
            await verb(EVENT, 1, 0, [1])


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_claim_from_before_a_rebuild_is_refused(queue: Queue, guarded: bool, monkeypatch: pytest.MonkeyPatch):
    from shared.web.problems import Unavailable

    await queue.open()
    await queue.join("ann")
    await queue.tick()
    if not guarded:
        from sqlalchemy import text

        from services.queue.line import repository

        monkeypatch.setattr(
            repository,
            "INSERT_CLAIMS",
            text(str(repository.INSERT_CLAIMS).replace(" AND r.generation = :generation", "")),
        )
    await queue.sql("UPDATE queue.room SET generation = generation + 1")
    try:
        [claim] = await queue.claim((1, "ann"))
    except Unavailable:
        claim = None
    assert (claim is None) == guarded


async def test_leaving_ends_the_place_and_the_holder_may_join_again(queue: Queue):
    await queue.open(rate_per_s=0)
    await queue.join("ann")
    assert await queue.leave((1, "ann")) == ["left"]
    assert await queue.leave((1, "ann")) == ["left"]
    assert await queue.status((1, "ann")) == ["left"]
    assert [j.join_seq for j in await queue.join("ann")] == [2]
    await queue.configure(rate_per_s=100.0)
    queue.later(0.1)
    await queue.tick()
    assert await queue.called() == [2]


@pytest.fixture
def freed_first(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The other way round: the slot is given back, and then inventory is asked to revoke the pass."""

    def turn_round() -> None:
        sessions, end = queue.state.sessions, queue.state.sessions.end

        async def close_then_end(event_id, epoch, ending, *, end_reason, leaving=False):
            place_ids = [(one.lane, one.join_seq) for one in ending]
            await sessions.end_places(event_id, epoch, place_ids, end_reason=end_reason, unclaimed=False)
            return await end(event_id, epoch, ending, end_reason=end_reason, leaving=leaving)

        monkeypatch.setattr(sessions, "end", close_then_end)

    return turn_round


@pytest.mark.parametrize("guarded", [True, False])
async def test_leaving_with_a_pass_revokes_it_before_the_slot_is_free(
    queue: Queue, inventory, freed_first, guarded: bool
):
    await admitted(queue)
    if not guarded:
        freed_first()
    inventory.away = True
    with pytest.raises(Exception, match="inventory"):
        await queue.leave((1, "ann"))
    await queue.tick()
    assert (len(await queue.part("active")) == 2) == guarded, "a working pass keeps its slot"
    assert (await queue.called() == []) == guarded, "nobody is called into it"
    if not guarded:
        return
    inventory.away = False
    assert await queue.leave((1, "ann")) == ["left"]
    [ended] = inventory.ended
    assert (ended.leaving, [s.jti for s in ended.sessions]) == (True, ["1-0-1-1"])
    await queue.tick()
    assert await queue.called() == [3]


@pytest.mark.parametrize("guarded", [True, False])
async def test_leaving_beside_a_claim_frees_no_slot_of_a_working_pass(
    queue: Queue, inventory, guarded: bool, monkeypatch: pytest.MonkeyPatch
):
    from sqlalchemy import text

    from services.queue.line import repository

    if not guarded:
        loose = str(repository.END_PLACES).replace(
            "NOT (CAST(:unclaimed AS boolean)", "NOT (false AND CAST(:unclaimed AS boolean)"
        )
        monkeypatch.setattr(repository, "END_PLACES", text(loose))
    await queue.open()
    await queue.join("ann")
    await queue.tick()
    sessions, leave_now = queue.state.sessions, queue.state.sessions.end_places

    async def claimed_meanwhile(*args, **named):
        if not claims:
            claims.extend(await queue.claim((1, "ann")))
        return await leave_now(*args, **named)

    claims: list = []
    monkeypatch.setattr(sessions, "end_places", claimed_meanwhile)
    assert await queue.leave((1, "ann")) == ["left"]
    assert claims[0].word == "admitted"
    revoked = [session.jti for question in inventory.ended for session in question.sessions]
    assert (revoked == ["1-0-1-1"]) == guarded


async def test_a_fan_who_is_paying_cannot_leave_the_session(queue: Queue, inventory):
    await admitted(queue)
    inventory.stands["ann"] = now_ms() + 10**6
    assert await queue.leave((1, "ann")) == ["admitted"]
    assert len(await queue.part("active")) == 2


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_session_past_its_end_is_revoked_then_freed(queue: Queue, inventory, freed_first, guarded: bool):
    await admitted(queue, session_s=100)
    if not guarded:
        freed_first()
    inventory.away = True
    await queue.tick(101)
    await queue.sessions_ended()
    assert (len(await queue.part("active")) == 2) == guarded
    if not guarded:
        return
    inventory.away = False
    await queue.tick()
    await queue.sessions_ended()
    assert len(await queue.part("active")) == 0
    statuses = await queue.state.claims.status(queue.places((1, "ann"), (2, "ben")))
    assert [(place.status, place.why) for place in statuses] == [("expired", "session")] * 2
    assert [(claim.word, claim.why) for claim in await queue.claim((1, "ann"))] == [("expired", "session")]
    assert {s.jti for question in inventory.ended for s in question.sessions} == {"1-0-1-1", "1-0-2-1"}
    await queue.heartbeat(3)
    await queue.tick()
    assert await queue.called() == [3]


async def test_a_live_reservation_lets_its_session_stand(queue: Queue, inventory):
    await admitted(queue, session_s=100)
    inventory.stands["ann"] = now_ms() + queue.state.line.clock_offset_ms + 300_000
    await queue.tick(101)
    await queue.sessions_ended()
    await queue.tick()
    await queue.sessions_ended()
    assert list(await queue.part("active")) == ["0:1"]
    assert await queue.status((1, "ann")) == ["admitted"]
    [claim] = await queue.claim((1, "ann"))
    assert claim.expires_at_ms < inventory.stands["ann"], "the pass itself keeps its end"
    inventory.stands.clear()
    await queue.tick(250)
    await queue.sessions_ended()
    assert await queue.status((1, "ann")) == ["expired"]


def purchases_of(queue: Queue) -> Purchases:
    return Purchases(queue.db, RedisStreams(queue.redis, length_max=1000), queue.state.sessions)


async def confirmed(queue: Queue, **after) -> None:
    event = Event(type="order.confirmed", event_id=EVENT, aggregate="order/x", after=after)
    await queue.redis.xadd(log_stream(EVENT), {"event": event.model_dump_json()})


@pytest.mark.parametrize("named", [{"lane": 0, "join_seq": 1, "epoch": 1, "jti": "1-0-1-1"}, {}])
async def test_a_purchase_completes_the_place_and_frees_its_slot(queue: Queue, inventory, named: dict):
    await admitted(queue)
    await confirmed(queue, holder="ann", **named)
    await confirmed(queue, holder="nobody")
    purchases = purchases_of(queue)
    await purchases.read()
    assert await queue.status((1, "ann"), (2, "ben")) == ["completed", "admitted"]
    assert [s.jti for question in inventory.ended for s in question.sessions] == ["1-0-1-1"], "revoked first"
    await queue.tick()
    assert await queue.called() == [3]
    offset = await queue.sql("SELECT last_id FROM queue.log_offset WHERE stream = :s", s=log_stream(EVENT))
    [last] = await queue.redis.xrevrange(log_stream(EVENT), count=1)
    assert offset == [(last[0].decode(),)]


async def test_a_purchase_whose_slot_could_not_be_freed_still_ends_as_completed(queue: Queue, inventory):
    await admitted(queue, session_s=100)
    await confirmed(queue, holder="ann")
    inventory.away = True
    await purchases_of(queue).read()
    assert await queue.status((1, "ann")) == ["admitted"]
    inventory.away = False
    await queue.tick(101)
    await queue.sessions_ended()
    assert await queue.status((1, "ann"), (2, "ben")) == ["completed", "expired"]


async def test_what_happens_to_places_is_told(queue: Queue):
    await admitted(queue)
    await queue.leave((1, "ann"))
    rows = await queue.sql("SELECT body ->> 'type', body -> 'after' FROM queue.outbox ORDER BY id")
    assert [row[0] for row in rows] == ["place.joined", "place.called", "place.claimed", "place.left"]
    assert rows[0][1] == {"epoch": 1, "lane": 0, "join_seqs": [[1, 3]]}
    assert list(itertools.chain(*rows[3][1]["places"])) == [0, 1]


async def test_what_is_no_purchase_is_passed_over_unread_and_its_offset_stored_in_time(queue: Queue, monkeypatch):
    monkeypatch.setattr(purchases, "SAVE_OFFSETS_EVERY_S", 60)
    consumer = purchases_of(queue)
    stream = log_stream(EVENT)
    ids = []
    for n in range(2):
        ids.append((await queue.redis.xadd(stream, {"event": f"not even JSON {n}"})).decode())
        await consumer.read()
    stored = "SELECT last_id FROM queue.log_offset WHERE stream = :s"
    assert await queue.sql(stored, s=stream) == [(ids[0],)], "the second could wait"
    await admitted(queue)
    await confirmed(queue, holder="ann")
    await consumer.read()
    [last] = await queue.redis.xrevrange(stream, count=1)
    assert await queue.sql(stored, s=stream) == [(last[0].decode(),)], "with a purchase, always"
    assert await queue.status((1, "ann")) == ["completed"]
