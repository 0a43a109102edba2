"""Places of signed-in fans: found by holder, one each, and the only ones where the room says so."""

import asyncio

from shared.contracts.queue import HoldersQuestion, JoinBatch, Joined, JoinRequest
from tests.queue.conftest import EVENT, Queue

ADA = "user.ada"


async def join_user(queue: Queue, holder: str = ADA, *, user_id: str | None = "ada", batch: int = 1) -> Joined:
    joins = [JoinRequest(holder=holder, user_id=user_id, may_be_known=True)]
    answer = await queue.state.joins.join(JoinBatch(event_id=EVENT, batch_id=f"users-{batch:04}", joins=joins))
    return answer.joined[0]


async def found(queue: Queue, *holders: str, epoch_min: int = 0) -> tuple[int, list[int | None]]:
    question = HoldersQuestion(event_id=EVENT, epoch_min=epoch_min, holders=list(holders))
    answer = await queue.state.claims.find(question)
    return answer.epoch, [place.join_seq if place else None for place in answer.places]


async def test_a_user_is_found_and_nobody_else_is(queue: Queue):
    await queue.open()
    await queue.join("anonymous")
    await join_user(queue)
    assert await found(queue, ADA, "anonymous", "user.nobody", ADA) == (1, [2, None, None, 2])


async def test_twenty_joins_of_one_user_in_batches_of_their_own_are_one_place(queue: Queue, another):
    await queue.open()
    processes = [queue, another(), another()]
    joined = await asyncio.gather(*(join_user(processes[n % 3], batch=n) for n in range(20)))
    assert len({one.join_seq for one in joined}) == 1
    assert [one.word for one in joined].count("joined") == 1
    assert await queue.sql("SELECT count(*), max(user_id) FROM queue.place") == [(1, "ada")]


async def test_an_ended_place_is_found_until_there_is_a_live_one(queue: Queue):
    await queue.open()
    first = await join_user(queue)
    await queue.leave((first.join_seq, ADA))
    assert await found(queue, ADA) == (1, [first.join_seq])
    second = await join_user(queue, user_id=None, batch=2)
    assert second.join_seq > first.join_seq
    assert await found(queue, ADA) == (1, [second.join_seq]), "by cookie too, the place is the user's"
    await queue.leave((second.join_seq, ADA))
    assert await found(queue, ADA) == (1, [second.join_seq])


async def test_after_a_reset_users_are_looked_for_in_the_new_line(queue: Queue, another):
    await queue.open()
    await join_user(queue)
    other = another()
    assert await found(other, ADA) == (1, [1])
    await queue.state.rooms.reset(EVENT, actor="test", reason=None)
    assert await found(other, ADA) == (1, [1]), "it has not heard of the reset"
    assert await found(other, ADA, epoch_min=2) == (2, [None])


async def test_a_room_for_signed_in_fans_refuses_others_and_keeps_who_is_there(queue: Queue):
    await queue.open()
    [early] = await queue.join("early", may_be_known=True)
    await queue.configure(entry={"signed_in_only": True})
    [back, late] = await queue.join("early", "late", may_be_known=True)
    assert (back.word, back.join_seq) == ("known", early.join_seq)
    assert late.word == "sign-in-needed"
    assert (await join_user(queue)).word == "joined"
    assert [one.word for one in await queue.join("unknown", "to-us")] == ["sign-in-needed"] * 2
    await queue.configure(entry={"signed_in_only": False})
    assert [one.word for one in await queue.join("late")] == ["joined"]
    assert [row.holder for row in await queue.sql("SELECT holder FROM queue.place ORDER BY join_seq")] == [
        "early",
        ADA,
        "late",
    ]
