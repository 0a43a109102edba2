"""The database lost its last commits, because a standby that lagged was promoted."""

from tests.queue.conftest import EVENT, Queue, guard


@guard("REBUILD", "room.epoch == ARGV[1]", "false")
async def test_the_number_of_a_lost_place_is_not_given_to_another_fan(queue: Queue, guarded: bool):
    """Redis knows the highest number that was given, and a rebuild from the database does not lower it."""
    await queue.open(fans=5, rate_per_s=0)
    await queue.sql("DELETE FROM queue.place WHERE join_seq > 3")
    await queue.state.recovery.rebuild(EVENT, force=True)
    [joined] = await queue.join("somebody-else")
    assert joined.join_seq == (6 if guarded else 4)


async def test_a_claim_of_a_lost_place_does_not_fail_others_of_its_batch(queue: Queue):
    """After a restore two fans may hold tokens of one number: the database's is called, the other joins again."""
    await queue.open_and_call("ann")
    lost, found = await queue.claim((1, "holder-of-a-lost-place"), (1, "ann"))
    assert (lost.word, lost.admission, found.word) == ("expired", None, "admitted")
