"""The database lost its last commits, because a standby that lagged was promoted; or Redis got a place's commit late or
never.
"""

from tests.queue.conftest import EVENT, Queue


async def test_the_number_of_a_lost_place_is_not_given_to_another_fan(queue: Queue):
    """Redis knows the highest number that was given, and a rebuild from the database does not lower it."""
    await queue.open(fans=5, rate_per_s=0)
    await queue.sql("DELETE FROM queue.place WHERE join_seq > 3")
    await queue.state.recovery.rebuild(EVENT, force=True)
    [joined] = await queue.join("somebody-else")
    assert joined.join_seq == 6


async def test_a_claim_of_a_lost_place_does_not_fail_others_of_its_batch(queue: Queue):
    """After a restore two fans may hold tokens of one number: the database's is called, the other joins again."""
    await queue.open_and_call("ann")
    lost, found = await queue.claim((1, "holder-of-a-lost-place"), (1, "ann"))
    assert (lost.word, lost.admission, found.word) == ("expired", None, "admitted")


async def test_a_place_that_ended_before_its_commit_reached_redis_is_called_once_at_most(queue: Queue):
    """A fan joined while Redis was away and left before it came back."""
    await queue.open("ann")
    await queue.insert_place(2, "ben")
    await queue.leave((2, "ben"))
    room = await queue.state.rooms.get(EVENT)
    await queue.state.line.commit_join(room, 0, "", {2})
    for _ in range(3):
        await queue.tick()
    before = (await queue.room_hash())["calls"]
    await queue.tick()
    assert (await queue.room_hash())["calls"] == before
    assert await queue.called() == [1]


async def test_a_place_whose_process_died_after_its_batch_was_given_up_is_not_lost(queue: Queue):
    """Its number was called, found void and taken for ended, before a slow process inserted it and died."""
    await queue.open()
    room = await queue.state.rooms.get(EVENT)
    await queue.state.line.allocate(room, 0, "slow", count=1)
    for _ in range(2):
        await queue.tick(6)
    await queue.insert_place(1, "ann")
    assert await queue.status((1, "ann")) == ["waiting"]
    await queue.tick()
    assert await queue.called() == [1]
