"""Stock coupling: the line follows inventory's frame, and says `sold_out` only when inventory's ledger says so."""

import asyncio

import pytest

from services.queue.replies import Stock
from services.queue.stock import StockBoard
from shared.contracts.frames import SectionCounts, StockFrame, stock_channel
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


def frame(version: int, *, available: int, held: int = 0, holders: int = 0, ready: bool = True) -> StockFrame:
    counts = SectionCounts(section_id="GA", available=available, held=held, sold=0, at_ms=1)
    return StockFrame(
        event_id=EVENT, epoch=1, version=version, ready=ready, at_ms=1, sections=[counts], holders_holding=holders
    )


def board(queue: Queue) -> StockBoard:
    return queue.running.gatekeeper.board


async def test_an_older_or_broken_frame_changes_nothing(queue: Queue):
    board(queue).take(frame(5, available=7).model_dump_json().encode())
    board(queue).take(frame(4, available=9).model_dump_json().encode())
    board(queue).take(b"{")
    assert (await board(queue).of(EVENT)).available == 7


async def test_frames_arrive_over_pub_sub(queue: Queue, redis):
    listening = asyncio.create_task(board(queue).listen())
    text = frame(1, available=3).model_dump_json()

    async def heard() -> bool:
        await redis.publish(stock_channel(EVENT), text)
        return (await board(queue).of(EVENT)).available == 3

    await wait_until(heard)
    listening.cancel()
    await asyncio.wait([listening])


async def test_sold_out_is_said_only_when_the_ledger_says_so(queue: Queue, inventory):
    await queue.open()
    await queue.turn()
    inventory.stock = frame(1, available=0, held=1)
    board(queue).take(frame(1, available=0).model_dump_json().encode())
    assert (await queue.turn()).state == "last_chance", "the frame alone decides nothing"
    assert inventory.asked_for_stock == 1
    board(queue)._asked.clear()
    inventory.stock = frame(1, available=0)
    assert (await queue.turn()).state == "sold_out"
    assert [j.word for j in await queue.join("late")] == ["sold-out"]
    board(queue).take(frame(2, available=1).model_dump_json().encode())
    assert (await queue.turn()).state == "open"
    await queue.join("ann", "ben")
    await queue.turn()
    assert await queue.called() == [1], "one ticket came back, one fan is called"


async def test_once_stock_was_shown_its_silence_pauses_the_calls(queue: Queue):
    await queue.open()
    board(queue).take(frame(1, available=100).model_dump_json().encode())
    await queue.turn()
    board(queue).take(frame(2, available=100, ready=False).model_dump_json().encode())
    await queue.join("ann")
    await queue.turn()
    assert await queue.called() == []
    await queue.configure(stock_coupling=False)
    await queue.turn()
    assert await queue.called() == [1], "the operator may let the line go on without"


async def test_a_room_without_stock_frames_is_not_held_up(queue: Queue):
    await queue.open()
    await queue.join("ann")
    await queue.turn()
    assert await queue.called() == [1]


@pytest.mark.parametrize("guarded", [True, False])
async def test_sessions_without_a_reservation_count_against_the_stock(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", " - math.max(0, active_n - tonumber(ARGV[4]))")
    await queue.open(max_active=2)
    await queue.crowd(10)
    await queue.turn()
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", "max_active", 1000)
    room, line = await queue.running.rooms.get(EVENT), queue.running.line
    queue.later(1)
    await line.tick(room, deaf=False, stock=Stock(available=3, holders_holding=0, word="plenty"))
    assert (len(await queue.called()) == 1) == guarded
    queue.later(1)
    await line.tick(room, deaf=False, stock=Stock(available=3, holders_holding=2, word="plenty"))
    assert len(await queue.called()) == 3
