"""Steps of a lottery for its tests: open it, close its entry, draw it, and read the calls of the drawn line."""

from collections.abc import Sequence

from features.lottery.contracts import PublishedLottery
from features.lottery.queue.draw import Lotteries
from shared.runtime.clock import rfc3339
from tests.queue.conftest import EVENT, TEST, Queue

VALUE = "closing number 24,331.09"


async def open_lottery(queue: Queue, **room) -> None:
    """Entry closes in 100 s, the value is known in 200 s, the sale starts in 240 s."""
    closes, known, starts = (rfc3339(queue.time_ms + 1000 * after_s) for after_s in (100, 200, 240))
    rules = {"entry_closes_at": closes, "public_value": {"what": "an index", "known_at": known}}
    await queue.open(ordering="lottery", sale_starts_at=starts, lottery=rules, **room)


async def close_entry(queue: Queue) -> None:
    queue.advance_clock(101)
    await Lotteries(queue.state).advance()


async def draw(queue: Queue, value: str = VALUE) -> PublishedLottery:
    return await Lotteries(queue.state).draw(EVENT, value, TEST)


async def published(queue: Queue) -> PublishedLottery:
    return await Lotteries(queue.state).published(EVENT)


async def open_and_draw(queue: Queue, entrants_n: int = 12, **room) -> list[int]:
    """Draws a line whose sale is about to start; the entry numbers in the order of the draw."""
    await open_lottery(queue, **room)
    await queue.join_fans(entrants_n)
    await close_entry(queue)
    queue.advance_clock(100)
    await draw(queue)
    queue.advance_clock(38)
    ranking = (await queue.state.rooms.get(EVENT)).ranking
    return [ranking.entry(0, rank) for rank in range(1, entrants_n + 1)]


async def calls(queue: Queue, order: Sequence[int] = ()) -> list[int]:
    """The called numbers, tick by tick. A tick on a busy machine calls several, and stores them by number: those are
    put in the given order.
    """
    rows = await queue.sql("""
        SELECT event -> 'after' -> 'places' FROM queue.outbox_batch, jsonb_array_elements(events) AS event
        WHERE event ->> 'type' = 'place.called' ORDER BY id""")
    rank = {seq: place for place, seq in enumerate(order)}
    return [seq for (places,) in rows for _, seq in sorted(places, key=lambda place: rank.get(place[1], place[1]))]


async def tick_calls(queue: Queue, ticks: int, order: Sequence[int]) -> list[int]:
    """The called numbers after so many short ticks."""
    for _ in range(ticks):
        await queue.tick(0.1)
    return await calls(queue, order)
