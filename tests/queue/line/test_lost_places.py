"""Tokens of places that the database does not have, or no longer: it was set back, and its fans come all the same."""

from tests.queue.conftest import Queue


async def test_a_place_that_was_lost_does_not_harm_who_asks_beside_it(queue: Queue):
    """After a restore two fans may hold tokens of one number: the database's is called, the other joins again."""
    await queue.open()
    await queue.join("ann")
    await queue.tick()
    lost, found = await queue.claim((1, "of a later ledger"), (1, "ann"))
    assert (lost.word, lost.admission, found.word) == ("expired", None, "admitted")
