"""The ledger went back in time: a standby was promoted that had not heard of the last moments."""

import pytest

from tests.queue.conftest import EVENT, Queue


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_number_the_ledger_forgot_is_given_to_nobody_else(queue: Queue, without, guarded: bool):
    """The engine remembers how far it has counted, and a rebuild from the ledger does not take it back."""
    if not guarded:
        without("fill", "r[2] == ARGV[1]", "false")
    await queue.open(rate_per_s=0)
    await queue.crowd(5)
    await queue.sql("DELETE FROM queue.place WHERE join_seq > 3")
    await queue.running.recovery.rebuild(EVENT, by_hand=True)
    [joined] = await queue.join("somebody-else")
    assert joined.join_seq == (6 if guarded else 4)
