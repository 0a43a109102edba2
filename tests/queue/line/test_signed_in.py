"""Places of signed-in fans: found by holder, one per user; a room may accept signed-in fans only."""

from shared.contracts.queue import HoldersQuestion, Joined, JoinRequest
from tests.queue.conftest import EVENT, TEST, Queue

ADA = "user.ada"


async def join_user(queue: Queue, holder: str = ADA, *, user_id: str | None = "ada") -> Joined:
    [joined] = await queue.join_batch([JoinRequest(holder=holder, user_id=user_id, may_be_known=True)])
    return joined


async def find(queue: Queue, *holders: str, epoch_min: int = 0) -> tuple[int, list[int | None]]:
    question = HoldersQuestion(event_id=EVENT, epoch_min=epoch_min, holders=list(holders))
    found = await queue.state.claims.find(question)
    return found.epoch, [place.join_seq if place else None for place in found.places]


async def test_only_users_are_found(queue: Queue):
    await queue.open("anonymous")
    await join_user(queue)
    assert await find(queue, ADA, "anonymous", "user.nobody", ADA) == (1, [2, None, None, 2])
    assert await queue.sql("SELECT user_id FROM queue.place ORDER BY join_seq") == [(None,), ("ada",)]


async def test_an_ended_place_is_found_unless_there_is_a_live_one(queue: Queue):
    await queue.open()
    first = await join_user(queue)
    await queue.leave((first.join_seq, ADA))
    assert await find(queue, ADA) == (1, [first.join_seq])
    second = await join_user(queue, user_id=None)
    assert second.join_seq > first.join_seq
    assert await find(queue, ADA) == (1, [second.join_seq]), "a place joined by cookie is the user's, too"
    await queue.leave((second.join_seq, ADA))
    assert await find(queue, ADA) == (1, [second.join_seq])


async def test_after_a_reset_users_are_found_in_the_new_line(queue: Queue, new_queue):
    await queue.open()
    await join_user(queue)
    other = new_queue()
    assert await find(other, ADA) == (1, [1])
    await queue.state.rooms.reset(EVENT, TEST)
    assert await find(other, ADA) == (1, [1]), "it does not know of the reset yet"
    assert await find(other, ADA, epoch_min=2) == (2, [None])


async def test_a_room_for_signed_in_fans_refuses_others_and_keeps_their_earlier_places(queue: Queue):
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
