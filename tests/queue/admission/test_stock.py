"""Stock coupling: the line follows inventory's frame, and says `sold_out` only when inventory's ledger says so."""

import asyncio

import pytest

from services.queue.admission.stock import StockCache
from services.queue.line.replies import Stock
from shared.contracts.frames import SectionCounts, StockFrame, stock_channel
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


def frame(version: int, *, available: int, held: int = 0, holders: int = 0, ready: bool = True) -> StockFrame:
    counts = SectionCounts(section_id="GA", available=available, held=held, sold=0, at_ms=1)
    return StockFrame(
        event_id=EVENT, epoch=1, version=version, ready=ready, at_ms=1, sections=[counts], holders_holding=holders
    )


def board(queue: Queue) -> StockCache:
    return queue.state.gatekeeper.stock_cache


async def test_an_older_or_broken_frame_changes_nothing(queue: Queue):
    board(queue).on_frame(frame(5, available=7).model_dump_json().encode())
    board(queue).on_frame(frame(4, available=9).model_dump_json().encode())
    board(queue).on_frame(b"{")
    assert (await board(queue).get(EVENT)).available == 7


async def test_frames_arrive_over_pub_sub(queue: Queue, redis):
    listening = asyncio.create_task(board(queue).listen())
    text = frame(1, available=3).model_dump_json()

    async def heard() -> bool:
        await redis.publish(stock_channel(EVENT), text)
        return (await board(queue).get(EVENT)).available == 3

    await wait_until(heard)
    listening.cancel()
    await asyncio.wait([listening])


async def test_sold_out_is_said_only_when_the_database_says_so(queue: Queue, inventory):
    await queue.open()
    await queue.tick()
    inventory.stock = frame(1, available=0, held=1)
    board(queue).on_frame(frame(1, available=0).model_dump_json().encode())
    assert (await queue.tick()).state == "last_chance", "the frame alone decides nothing"
    assert inventory.asked_for_stock == 1
    board(queue)._levels_by_db.clear()
    inventory.stock = frame(1, available=0)
    assert (await queue.tick()).state == "sold_out"
    assert [j.word for j in await queue.join("late")] == ["sold-out"]
    board(queue).on_frame(frame(2, available=1).model_dump_json().encode())
    assert (await queue.tick()).state == "open"
    await queue.join("ann", "ben")
    await queue.tick()
    assert await queue.called() == [1], "one ticket came back, one fan is called"


async def test_once_stock_was_shown_its_silence_pauses_the_calls(queue: Queue):
    await queue.open()
    board(queue).on_frame(frame(1, available=100).model_dump_json().encode())
    await queue.tick()
    board(queue).on_frame(frame(2, available=100, ready=False).model_dump_json().encode())
    await queue.join("ann")
    await queue.tick()
    assert await queue.called() == []
    await queue.configure(stock_coupling=False)
    await queue.tick()
    assert await queue.called() == [1], "the operator may let the line go on without"


async def test_a_room_without_stock_frames_is_not_held_up(queue: Queue):
    await queue.open()
    await queue.join("ann")
    await queue.tick()
    assert await queue.called() == [1]


@pytest.mark.parametrize("guarded", [True, False])
async def test_sessions_without_a_reservation_count_against_the_stock(queue: Queue, without, guarded: bool):
    if not guarded:
        without("tick", " - math.min(expected_n, math.max(0, active_n - tonumber(ARGV[4])))")
    await queue.open(max_active=2)
    await queue.crowd(10)
    await queue.tick()
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", "max_active", 1000)
    room, line = await queue.state.rooms.get(EVENT), queue.state.line
    queue.later(1)
    await line.tick(room, heartbeat_gap=False, stock=Stock(available=3, holders_holding=0, level="plenty"))
    assert (len(await queue.called()) == 1) == guarded
    queue.later(1)
    await line.tick(room, heartbeat_gap=False, stock=Stock(available=3, holders_holding=2, level="plenty"))
    assert len(await queue.called()) == 3


class Sale:
    """A sale of few tickets as the tick sees it: what is free, who holds, and inventory's two totals."""

    def __init__(self, queue: Queue, available: int) -> None:
        self.queue, self.available, self.holding, self.begun, self.let_go, self.version = queue, available, 0, 0, 0, 1

    async def tick(self, after_s: float = 1.0, *, version: int | None = None) -> int:
        """How many calls stand after a tick, which heard of the stock as it is, or of an older frame."""
        room, line = await self.queue.state.rooms.get(EVENT), self.queue.state.line
        self.queue.later(after_s)
        word = "plenty" if self.available else "last_chance"
        totals = (self.begun, self.let_go) if version is None else (0, 0)
        stock = Stock(self.available, self.holding, word, *totals, self.version if version is None else version)
        self.state = (await line.tick(room, heartbeat_gap=False, stock=stock)).state
        return len(await self.queue.called())

    def take(self, tickets: int = 1) -> None:
        """One who had nothing takes a hold."""
        self.available, self.holding, self.begun = self.available - tickets, self.holding + 1, self.begun + 1
        self.version += 1

    def give_back(self, tickets: int = 1) -> None:
        """A hold runs out, or is given back."""
        self.available, self.holding, self.let_go = self.available + tickets, self.holding - 1, self.let_go + 1
        self.version += 1


async def full_of_fans(queue: Queue, count: int) -> None:
    """They join before anybody is called."""
    await queue.open(rate_per_s=0, claim_window_s=10, session_s=900)
    await queue.crowd(count)
    await queue.redis.hset(f"queue:{{{EVENT}}}:room", "rate_per_s", 1000)


async def admitted(queue: Queue, sale: Sale, first: int, last: int) -> None:
    """Waits for their calls and claims them."""
    while await sale.tick() < last - first + 1:
        pass
    await queue.claim(*((seq, f"fan-{seq}") for seq in range(first, last + 1)))
    await sale.tick(0.1)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("tickets", [1, 3])
async def test_who_does_nothing_keeps_the_last_tickets_no_longer_than_a_claim_window(
    queue: Queue, without, tickets: int, guarded: bool
) -> None:
    if not guarded:
        without("tick", "math.min(expected_n, math.max(0, active_n - tonumber(ARGV[4])))",
                "math.max(0, active_n - tonumber(ARGV[4]))")  # fmt: skip
    await full_of_fans(queue, 9)
    sale = Sale(queue, tickets)
    await admitted(queue, sale, 1, tickets)
    assert await sale.tick() == 0, "they are coming"
    assert sale.state["stock_bound"]
    assert await sale.tick(7) == 0
    assert await sale.tick(3) == (tickets if guarded else 0), "the next in line is called for each"
    assert sale.state["active"] == tickets, "the first may still buy"
    assert not guarded or await queue.called() == list(range(tickets + 1, 2 * tickets + 1))


@pytest.mark.parametrize("guarded", [True, False])
async def test_who_takes_a_hold_is_waited_for_no_more(queue: Queue, without, guarded: bool) -> None:
    """Three idle sessions from before; two who came and took theirs at once; then a ticket comes back."""
    if not guarded:
        without("tick", "      arrived = stock.begun - begun\n")
    await full_of_fans(queue, 20)
    sale = Sale(queue, 3)
    await admitted(queue, sale, 1, 3)
    assert await sale.tick(10) == 3
    sale.available = 2
    await queue.claim(*((seq, f"fan-{seq}") for seq in (4, 5)))
    await queue.leave((6, "fan-6"))
    for _ in range(2):
        sale.take()
        await sale.tick(0.5)
    sale.available, sale.version = 1, sale.version + 1
    assert (await sale.tick(0.5) == 1) == guarded
    assert await sale.tick(10) == 1, "in a claim window at the latest"


@pytest.mark.parametrize("guarded", [True, False])
async def test_who_lets_a_hold_go_is_waited_for_once_more(queue: Queue, without, guarded: bool) -> None:
    if not guarded:
        without("tick", "      add(stock.released - released)\n")
    await full_of_fans(queue, 9)
    sale = Sale(queue, 1)
    await admitted(queue, sale, 1, 1)
    sale.take()
    await sale.tick(20)
    sale.give_back()
    assert (await sale.tick() == 0) == guarded, "other seats may be wanted"
    if guarded:
        sale.take()
        assert await sale.tick() == 0
        sale.give_back()
        assert await sale.tick(8) == 0
        assert await sale.tick(10) == 1


async def test_an_older_word_on_the_stock_is_not_counted_again(queue: Queue) -> None:
    await full_of_fans(queue, 9)
    sale = Sale(queue, 5)
    await admitted(queue, sale, 1, 5)
    sale.take()
    for _ in range(3):
        await sale.tick(0.2)
        await sale.tick(0.2, version=1)
    assert (await queue.room_hash())["expected_buyers"].endswith(":4")


async def test_a_line_rebuilt_waits_once_more_for_all_who_are_inside(queue: Queue) -> None:
    await full_of_fans(queue, 9)
    sale = Sale(queue, 2)
    await admitted(queue, sale, 1, 2)
    await sale.tick(60)
    await queue.redis.flushall()
    await queue.state.recovery.rebuild(EVENT)
    called = len(await queue.called())
    assert await sale.tick() == called
    assert (await queue.room_hash())["expected_buyers"].endswith(":2")
