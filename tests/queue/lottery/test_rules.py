"""The rules of a lottery: which are refused, and that they are fixed once a fan has joined."""

from datetime import datetime

import pytest

from services.queue.problems import RoomStateConflict
from shared.contracts.room_options import LotteryRules
from shared.errors.problems import InvalidRequest, NoLottery
from shared.runtime.clock import rfc3339
from tests.queue.conftest import EVENT, TEST, Queue
from tests.queue.lottery.draws import draw, open_lottery


async def test_rules_cannot_change_once_a_fan_has_joined(queue: Queue):
    await open_lottery(queue)
    first = await queue.state.lottery.published(EVENT)
    queue.advance_clock(10)
    await open_lottery(queue)
    second = await queue.state.lottery.published(EVENT)
    assert second.commitment != first.commitment, "other rules, another seed"
    await queue.join_fans(1)
    queue.advance_clock(10)
    with pytest.raises(RoomStateConflict, match="joined under the present order"):
        await open_lottery(queue)
    with pytest.raises(RoomStateConflict, match="joined under the present order"):
        await queue.open()
    assert await queue.state.lottery.published(EVENT) == second
    await queue.state.rooms.reset(EVENT, TEST)
    third = await queue.state.lottery.published(EVENT)
    assert (third.epoch, third.stage, third.commitment != second.commitment) == (2, "open", True)


async def test_a_line_without_a_lottery_has_nothing_to_publish_or_draw(queue: Queue):
    await queue.open()
    await queue.state.lottery.advance()
    with pytest.raises(NoLottery):
        await queue.state.lottery.published(EVENT)
    with pytest.raises(NoLottery):
        await draw(queue)


def test_entry_must_close_before_the_public_value_is_known():
    rules = {
        "entry_closes_at": "2027-01-01T10:00:00Z",
        "public_value": {"what": "x", "known_at": "2027-01-01T11:00:00Z"},
    }
    assert LotteryRules.model_validate(rules).public_value.what == "x"
    with pytest.raises(ValueError, match="before the public value"):
        LotteryRules.model_validate({**rules, "entry_closes_at": "2027-01-01T12:00:00Z"})


async def test_a_lottery_whose_queue_has_opened_already_is_refused(queue: Queue) -> None:
    """Its seed would be committed to after entry opened. Applying, changing, resetting and opening check it."""
    past, soon = (rfc3339(queue.time_ms + 1000 * after_s) for after_s in (-60, 60))
    with pytest.raises(InvalidRequest, match="queue_opens_at"):
        await open_lottery(queue, queue_opens_at=past)
    assert not await queue.sql("SELECT 1 FROM queue.room")
    await open_lottery(queue, queue_opens_at=soon)
    rooms = queue.state.rooms
    with pytest.raises(InvalidRequest, match="is past"):
        await queue.configure(queue_opens_at=datetime.fromisoformat(past))
    await queue.sql("UPDATE queue.room SET queue_opens_at = clock_timestamp()")
    with pytest.raises(InvalidRequest, match="is past"):
        await rooms.reset(EVENT, TEST)
    assert (await rooms.read(EVENT)).epoch == 1
    await rooms.transition(EVENT, "close", TEST)
    await rooms.reset(EVENT, TEST)
    with pytest.raises(InvalidRequest, match="is past"):
        await rooms.transition(EVENT, "open", TEST)
    await queue.configure(queue_opens_at=None)
    await rooms.transition(EVENT, "open", TEST)


async def test_applying_the_event_file_of_an_open_lottery_again_changes_nothing(queue: Queue) -> None:
    await open_lottery(queue, queue_opens_at=rfc3339(queue.time_ms + 60_000))
    await queue.sql("UPDATE queue.lottery SET committed_at = committed_at - interval '1 day'")
    await queue.sql("UPDATE queue.room SET queue_opens_at = clock_timestamp() - interval '1 minute'")
    before = await queue.state.rooms.read(EVENT)
    assert before.queue_opens_at is not None
    await open_lottery(queue, queue_opens_at=before.queue_opens_at.isoformat())
    assert (await queue.state.rooms.read(EVENT)).version == before.version
