"""The database lost its last commits: a standby was promoted that lagged."""

import pytest

from tests.queue.conftest import EVENT, Queue


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_number_the_database_forgot_is_given_to_nobody_else(queue: Queue, without, guarded: bool):
    """Redis remembers how far it has counted, and a rebuild from the database does not take it back."""
    if not guarded:
        without("rebuild", "r[2] == ARGV[1]", "false")
    await queue.open(rate_per_s=0)
    await queue.crowd(5)
    await queue.sql("DELETE FROM queue.place WHERE join_seq > 3")
    await queue.state.recovery.rebuild(EVENT, force=True)
    [joined] = await queue.join("somebody-else")
    assert joined.join_seq == (6 if guarded else 4)
