"""Access codes: each opens its lane for its number of uses and no more; a use is spent together with its place."""

import asyncio
from contextlib import nullcontext

import asyncpg
import pytest

from features.codes.queue import access_codes
from features.codes.queue.access_codes import CodeBatch, TooManyCodes, code_hash, create, new_code, revoke
from features.codes.schemas import CreateAccessCodes, RevokeAccessCodes
from services.queue.places.join import INSERT_NEW_PLACES
from services.queue.rooms.model import RequestedBy
from shared.contracts.queue import Joined, JoinRequest
from shared.errors.problems import InvalidRequest, Unavailable
from shared.security.auth import Operator
from tests.queue.conftest import EVENT, TEST, Queue, event_file

OPERATOR = Operator("test", "operator")
STORED = "a77010795fc71da38bcebe86abb5fdc93bebbbf6f8a26679490b0a4067d6c6d3"  # of a code that an earlier version made
LANES = [{"lane": 0, "name": "General"}, {"lane": 1, "name": "Presale", "weight": 3, "code_required": True}]


async def open_with_code(queue: Queue, *, uses: int = 1) -> str:
    """Opens a room and creates a code of its presale."""
    await queue.open(rate_per_s=0, lanes=LANES)
    return (await create(EVENT, CreateAccessCodes(lane=1, uses=uses), OPERATOR, queue.state)).codes[0]


async def join(
    queue: Queue, *holders_and_codes: tuple[str, str | None], known: bool = False, batch_id: str | None = None
) -> list[Joined]:
    joins = [JoinRequest(holder=holder, code=code, may_be_known=known) for holder, code in holders_and_codes]
    return await queue.join_batch(joins, batch_id=batch_id)


async def uses_spent(queue: Queue) -> list[int]:
    return [row.uses for row in await queue.sql("SELECT uses FROM queue.access_code ORDER BY created_at")]


async def places(queue: Queue) -> list[tuple[int, str]]:
    return [tuple(row) for row in await queue.sql("SELECT lane, holder FROM queue.place ORDER BY lane, join_seq")]


def outcomes(joined: list[Joined]) -> list[tuple[str, int]]:
    return [(one.word, one.lane) for one in joined]


def test_codes_are_random_and_accepted_in_other_spellings():
    code = new_code()
    assert len(code) == 19
    assert len({new_code() for _ in range(1000)}) == 1000
    for glue in (" ", "\u00a0", "\n", "\u2011", "\u2013", "", "\u200b-"):
        assert code_hash(EVENT, f" {glue.join(code.split('-')).lower()}\r\n") == code_hash(EVENT, code)
    assert code_hash(EVENT, "O1O1IL") == code_hash(EVENT, "0l0i11")
    assert code_hash(EVENT, code) != code_hash("other", code)
    assert code_hash("e", "7K3M-Q0ZD-4XWA-90TB").hex() == STORED


async def test_a_code_puts_its_fan_into_its_lane_and_no_other_fan(queue: Queue):
    code = await open_with_code(queue)
    joined = await join(queue, ("ann", None), ("ben", code), ("cyd", "no-such-code"), ("dan", code))
    assert outcomes(joined) == [("joined", 0), ("joined", 1), ("code-unknown", 0), ("code-used-up", 0)]
    assert await places(queue) == [(0, "ann"), (1, "ben")]
    assert await uses_spent(queue) == [1]
    assert outcomes(await join(queue, ("cyd", None))) == [("joined", 0)], "the general lane needs no code"


@pytest.mark.parametrize("redis_away", [False, True])
async def test_twenty_concurrent_joins_with_one_single_use_code_make_one_place(
    queue: Queue, new_queue, redis_away: bool
):
    code = await open_with_code(queue)
    processes = [new_queue() for _ in range(4)]
    for process in processes:
        process.state.rules.codes = CodeBatch
        process.state.line.unresponsive |= {EVENT} if redis_away else set()
    answers = await asyncio.gather(*(join(processes[n % 4], (f"fan-{n}", code)) for n in range(20)))
    results = [one.word for [one] in answers]
    assert (results.count("joined"), results.count("code-used-up")) == (1, 19)
    assert len(await places(queue)) == 1
    assert await uses_spent(queue) == [1]


async def test_a_code_of_five_uses_opens_its_lane_five_times(queue: Queue):
    code = await open_with_code(queue, uses=5)
    results = [one.word for one in await join(queue, *((f"fan-{n}", code) for n in range(8)))]
    assert results == ["joined"] * 5 + ["code-used-up"] * 3
    assert await uses_spent(queue) == [5]


async def test_a_batch_sent_twice_spends_one_use(queue: Queue):
    code = await open_with_code(queue)
    first = await join(queue, ("ann", code), batch_id="batch-twice")
    again = await join(queue, ("ann", code), batch_id="batch-twice")
    later = await join(queue, ("ann", code), known=True)
    assert [outcomes(answer) for answer in (first, again, later)] == [[("joined", 1)], [("known", 1)], [("known", 1)]]
    assert {answer[0].join_seq for answer in (first, again, later)} == {1}
    assert await uses_spent(queue) == [1]


@pytest.mark.parametrize("crash_at", [INSERT_NEW_PLACES, access_codes.REDEEM_CODES, "COMMIT"])
async def test_a_crash_during_the_insert_spends_no_use(queue: Queue, monkeypatch: pytest.MonkeyPatch, crash_at: str):
    code = await open_with_code(queue)

    def lose_connection(self, query, *values, **options):
        if query == crash_at:
            self.terminate()
        return original(self, query, *values, **options)

    method = "fetch" if crash_at == INSERT_NEW_PLACES else "execute"
    original = getattr(asyncpg.Connection, method)
    monkeypatch.setattr(asyncpg.Connection, method, lose_connection)
    with pytest.raises(Unavailable):
        await join(queue, ("ann", code), batch_id="batch-lost")
    monkeypatch.undo()
    assert (await places(queue), await uses_spent(queue)) == ([], [0])
    assert outcomes(await join(queue, ("ann", code), batch_id="batch-lost")) == [("joined", 1)]
    assert await uses_spent(queue) == [1]


async def test_the_same_holder_may_use_a_code_again_until_they_have_bought(queue: Queue):
    code = await open_with_code(queue)
    await join(queue, ("ann", code))
    await queue.sql("UPDATE queue.place SET ended_at = now(), end_reason = 'left'")
    assert outcomes(await join(queue, ("ben", code))) == [("code-used-up", 0)]
    assert outcomes(await join(queue, ("ann", code), known=True)) == [("joined", 1)]
    assert await uses_spent(queue) == [1]
    await queue.sql("UPDATE queue.place SET ended_at = now(), end_reason = 'completed' WHERE ended_at IS NULL")
    assert outcomes(await join(queue, ("ann", code), known=True)) == [("code-used-up", 0)]


async def test_a_revoked_code_opens_no_lane_and_ends_no_place(queue: Queue):
    code = await open_with_code(queue, uses=2)
    await join(queue, ("ann", code))
    assert (await revoke(EVENT, RevokeAccessCodes(codes=[code]), OPERATOR, queue.state)).revoked == 1
    assert outcomes(await join(queue, ("ben", code), ("cyd", "nonsense"))) == [("code-unknown", 0)] * 2
    assert await places(queue) == [(1, "ann")]


async def test_after_a_reset_codes_have_all_their_uses_again(queue: Queue):
    code = await open_with_code(queue)
    await join(queue, ("ann", code))
    await queue.reset()
    assert outcomes(await join(queue, ("ben", code), ("cyd", code))) == [("joined", 1), ("code-used-up", 0)]


async def test_a_code_of_a_removed_lane_is_unknown(queue: Queue):
    code = await open_with_code(queue)
    await queue.state.rooms.apply(event_file(rate_per_s=0), RequestedBy("test"))
    assert outcomes(await join(queue, ("ann", code))) == [("code-unknown", 0)]


async def test_codes_are_stored_as_hashes_and_their_creation_is_in_the_audit_log(queue: Queue):
    code = await open_with_code(queue)
    [row] = await queue.sql("SELECT * FROM queue.access_code")
    assert row.code_hash == code_hash(EVENT, code)
    assert code not in str(row)
    changes = await queue.sql("SELECT action, after FROM queue.audit_log ORDER BY id")
    assert (changes[-1].action, changes[-1].after) == ("codes create", {"lane": 1, "count": 1, "uses": 1})


async def test_a_room_has_so_many_codes_at_most_also_if_they_are_made_at_once(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    await open_with_code(queue)
    monkeypatch.setattr(access_codes, "CODES_MAX", 20)
    nine = CreateAccessCodes(lane=1, count=9)
    made = await asyncio.gather(*(create(EVENT, nine, OPERATOR, queue.state) for _ in range(6)), return_exceptions=True)
    assert sum(isinstance(answer, TooManyCodes) for answer in made) == 4
    assert len(await uses_spent(queue)) == 19


async def test_where_nobody_reads_codes_a_code_opens_nothing_and_no_lane_may_need_one(queue: Queue):
    code = await open_with_code(queue)
    queue.state.rules.codes = None
    assert outcomes(await join(queue, ("ann", code), ("ben", None))) == [("unknown-lane", 0), ("joined", 0)]
    for room in ({}, {"lanes": LANES}):
        applying = queue.state.operations.apply_event_file(event_file(**room), TEST, dry_run=True)
        with pytest.raises(InvalidRequest, match="code_required") if room else nullcontext():
            await applying
