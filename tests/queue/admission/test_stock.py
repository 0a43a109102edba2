"""Stock coupling: calls follow inventory's stock frames; `sold_out` needs the answer of inventory's database."""

import asyncio

import pytest

from services.queue.admission.stock import StockCache
from services.queue.line.redis_line import Stock
from shared.contracts.frames import SectionCounts, StockFrame, stock_channel
from tests.queue.conftest import EVENT, Queue
from tests.support.wait import wait_until


def frame(version: int, *, available: int, held: int = 0, holders: int = 0, ready: bool = True) -> StockFrame:
    counts = SectionCounts(section_id="GA", available=available, held=held, sold=0, at_ms=1)
    return StockFrame(
        event_id=EVENT, epoch=1, version=version, ready=ready, at_ms=1, sections=[counts], holders_holding=holders
    )


def stock_cache(queue: Queue) -> StockCache:
    return queue.state.gatekeeper.stock_cache


async def test_an_older_or_invalid_frame_is_ignored(queue: Queue):
    stock_cache(queue).on_frame(frame(5, available=7).model_dump_json().encode())
    stock_cache(queue).on_frame(frame(4, available=9).model_dump_json().encode())
    stock_cache(queue).on_frame(b"{")
    assert (await stock_cache(queue).get(EVENT)).available == 7


async def test_frames_arrive_over_pub_sub(queue: Queue, redis):
    listening = asyncio.create_task(stock_cache(queue).listen())
    text = frame(1, available=3).model_dump_json()

    async def received() -> bool:
        await redis.publish(stock_channel(EVENT), text)
        return (await stock_cache(queue).get(EVENT)).available == 3

    await wait_until(received)
    listening.cancel()
    await asyncio.wait([listening])


async def test_the_room_is_sold_out_only_when_the_database_of_inventory_confirms_it(queue: Queue, inventory):
    await queue.open()
    await queue.tick()
    inventory.stock = frame(1, available=0, held=1)
    stock_cache(queue).on_frame(frame(1, available=0).model_dump_json().encode())
    assert (await queue.tick()).state == "last_chance", "the frame alone is no proof"
    assert inventory.stock_requests == 1
    stock_cache(queue)._levels_by_db.clear()
    inventory.stock = frame(1, available=0)
    assert (await queue.tick()).state == "sold_out"
    assert [j.word for j in await queue.join("late")] == ["sold-out"]
    stock_cache(queue).on_frame(frame(2, available=1).model_dump_json().encode())
    assert (await queue.tick()).state == "open"
    await queue.join("ann", "ben")
    await queue.tick()
    assert await queue.called() == [1], "one ticket came back, one fan is called"


async def test_calls_pause_when_stock_frames_are_not_ready(queue: Queue):
    await queue.open()
    stock_cache(queue).on_frame(frame(1, available=100).model_dump_json().encode())
    assert (await queue.tick()).calls_left == 100, "the gateway paces polls by it"
    stock_cache(queue).on_frame(frame(2, available=100, ready=False).model_dump_json().encode())
    await queue.join("ann")
    await queue.tick()
    assert await queue.called() == []
    await queue.configure(stock_coupling=False)
    await queue.tick()
    assert await queue.called() == [1], "the operator may switch stock coupling off"


async def test_a_room_without_stock_frames_calls_fans(queue: Queue):
    await queue.open_and_call("ann")
    assert await queue.called() == [1]


async def test_sessions_without_a_reservation_count_against_the_stock(queue: Queue):
    await queue.open_and_call(fans=10, max_active=2)
    await queue.claim((1, "fan-1"), (2, "fan-2"))
    await queue.write_room_hash({"max_active": 1000})
    queue.advance_clock(1)
    await queue.tick_unsaved(stock=Stock(available=3, holders_holding=0, level="plenty"))
    assert len(await queue.called()) == 1
    queue.advance_clock(1)
    await queue.tick_unsaved(stock=Stock(available=3, holders_holding=2, level="plenty"))
    assert len(await queue.called()) == 3


class Sale:
    """A sale of few tickets as the tick gets it: free tickets, holders with a hold, and inventory's two totals."""

    def __init__(self, queue: Queue, available: int) -> None:
        self.queue, self.available = queue, available
        self.holding = self.begun = self.released = 0
        self.version = 1

    async def tick(self, after_s: float = 1.0, *, version: int | None = None) -> int:
        """The standing calls after a tick with the present stock frame, or with an older one."""
        self.queue.advance_clock(after_s)
        level = "plenty" if self.available else "last_chance"
        totals = (self.begun, self.released) if version is None else (0, 0)
        stock = Stock(self.available, self.holding, level, *totals, self.version if version is None else version)
        self.state = (await self.queue.tick_unsaved(stock=stock)).state
        return len(await self.queue.called())

    def hold(self, tickets: int = 1) -> None:
        """A fan without a hold takes one."""
        self.available, self.holding, self.begun = self.available - tickets, self.holding + 1, self.begun + 1
        self.version += 1

    def release(self, tickets: int = 1) -> None:
        """A hold expires or is released."""
        self.available, self.holding, self.released = self.available + tickets, self.holding - 1, self.released + 1
        self.version += 1


async def open_with_fans(queue: Queue, count: int) -> None:
    """All fans join before the first call."""
    await queue.open(fans=count, rate_per_s=0, claim_window_s=10, session_s=900)
    await queue.write_room_hash({"rate_per_s": 1000})


async def admit(queue: Queue, sale: Sale, last: int) -> None:
    """Waits for the calls of the first fans and claims them."""
    while await sale.tick() < last:
        pass
    await queue.claim(*((seq, f"fan-{seq}") for seq in range(1, last + 1)))
    await sale.tick(0.1)


@pytest.mark.parametrize("tickets", [1, 3])
async def test_idle_sessions_reserve_the_last_tickets_for_one_claim_window_only(queue: Queue, tickets: int) -> None:
    await open_with_fans(queue, 9)
    sale = Sale(queue, tickets)
    await admit(queue, sale, tickets)
    assert await sale.tick() == 0, "the admitted fans may still hold them"
    assert (sale.state["stock_bound"], sale.state["calls_left"]) == (True, 0)
    assert await sale.tick(7) == 0
    assert await sale.tick(3) == tickets, "the next fans are called for them"
    assert sale.state["active"] == tickets, "the sessions of the first fans go on"
    assert await queue.called() == list(range(tickets + 1, 2 * tickets + 1))


async def test_a_fan_who_took_a_hold_no_longer_counts_as_an_expected_buyer(queue: Queue) -> None:
    """Three sessions are idle, two fans come and take a hold at once, then a ticket is returned."""
    await open_with_fans(queue, 20)
    sale = Sale(queue, 3)
    await admit(queue, sale, 3)
    assert await sale.tick(10) == 3
    sale.available = 2
    await queue.claim(*((seq, f"fan-{seq}") for seq in (4, 5)))
    await queue.leave((6, "fan-6"))
    for _ in range(2):
        sale.hold()
        await sale.tick(0.5)
    sale.available, sale.version = 1, sale.version + 1
    assert await sale.tick(0.5) == 1
    assert await sale.tick(10) == 1, "after a claim window at the latest"


async def test_a_fan_whose_hold_ended_counts_as_an_expected_buyer_again(queue: Queue) -> None:
    await open_with_fans(queue, 9)
    sale = Sale(queue, 1)
    await admit(queue, sale, 1)
    sale.hold()
    await sale.tick(20)
    sale.release()
    assert await sale.tick() == 0, "the fan may want other seats"
    sale.hold()
    assert await sale.tick() == 0
    sale.release()
    assert await sale.tick(8) == 0
    assert await sale.tick(10) == 1


async def test_an_older_stock_frame_is_not_counted_again(queue: Queue) -> None:
    await open_with_fans(queue, 9)
    sale = Sale(queue, 5)
    await admit(queue, sale, 5)
    sale.hold()
    for _ in range(3):
        await sale.tick(0.2)
        await sale.tick(0.2, version=1)
    assert (await queue.room_hash())["expected_buyers"].endswith(":4")


async def test_after_a_rebuild_every_session_counts_as_an_expected_buyer_again(queue: Queue) -> None:
    await open_with_fans(queue, 9)
    sale = Sale(queue, 2)
    await admit(queue, sale, 2)
    await sale.tick(60)
    await queue.redis.flushall()
    await queue.state.recovery.rebuild(EVENT)
    called = len(await queue.called())
    assert await sale.tick() == called
    assert (await queue.room_hash())["expected_buyers"].endswith(":2")
