"""The seats of a hall on the stream of its event: a snapshot, then what changed, for fans with a pass."""

import asyncio
from base64 import b64decode
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from features.hall.notifier import HallFeed
from features.hall.seat_codes import CLOSED, seats_channel, seats_watched_key
from services.inventory.redis_keys import Keys
from services.notifier.feeds.feed import ALL_SEATS, StreamFilter
from shared.contracts.frames import line_channel, stock_channel
from shared.runtime.clock import now_ms
from tests.notifier.client import SseClient, SseEvent
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import EVENT, FIRST, STOCK_EPOCH, line_frame, seats_frame, stock_frame
from tests.notifier.page import SeatPage, State
from tests.notifier.places import block
from tests.notifier.tokens import queue_token, signed_pass
from tests.support.running.services import Neighbours
from tests.support.wait import wait_until

FREE = bytes(8)


def held(*seats: int) -> bytes:
    return bytes(seat in seats for seat in range(8))


def is_complete(client: SseClient) -> bool:
    return client.complete


def shown(client: SseClient, seats: int = 8) -> bytes:
    page = SeatPage(seats)
    for data in client.all("seats"):
        page.apply(data, (0, b""))
    assert not page.healed
    return page.codes


async def listen(notifier: Notifier, query: str = "?seats=*", **more: Any) -> SseClient:
    client = await notifier.listen(query, token=more.pop("token", signed_pass()), **more)
    await wait_until(lambda: client.last("seats"))
    return client


async def test_a_stream_with_seats_begins_with_a_snapshot_and_goes_on_with_changes(notifier: Notifier):
    client = await listen(notifier)
    assert [event.name for event in client.events] == ["line", "sections", "seats"]
    assert client.last("seats") == {"v": FIRST + 10, "s": "AAA=", "all": True}
    await notifier.publish(seats_frame(11, held(0, 5)))
    await wait_until(lambda: shown(client) == held(0, 5))
    assert (client.last("seats")["v"], client.last("seats")["after"]) == (FIRST + 11, FIRST + 10)
    assert b64decode(client.last("seats")["d"]) == bytes([0 << 2 | 1, 4 << 2 | 1])
    await notifier.publish(seats_frame(12, held(5)))
    await wait_until(lambda: shown(client) == held(5))
    assert (client.last("seats")["after"], len(client.all("line"))) == (FIRST + 11, 1)


async def test_a_stream_shows_the_seats_of_the_sections_it_names(notifier: Notifier):
    client, both = await listen(notifier, "?sections=A&seats=B"), await listen(notifier, "?seats=B,A")
    await notifier.publish(seats_frame(11, held(0, 5)))
    await wait_until(lambda: shown(both) == held(0, 5))
    await wait_until(lambda: shown(client, 4) == bytes([0, 1, 0, 0]))
    assert [s["section_id"] for s in client.last("sections")["sections"]] == ["A"]
    await notifier.publish(seats_frame(12, held(1, 5)))
    await wait_until(lambda: shown(both) == held(1, 5))
    await notifier.publish(seats_frame(13, held(1)))
    await wait_until(lambda: shown(client, 4) == FREE[:4])
    assert client.last("seats")["after"] == FIRST + 11, "nothing of B changed in version 12"


async def test_seats_need_a_pass_for_this_event(notifier: Notifier, neighbours: Neighbours):
    for token, status, slug in (
        (queue_token(1), 403, "not-admitted"), (signed_pass(event_id="other"), 403, "wrong-event"),
        (signed_pass(until_s=1), 401, "bad-credential"),
    ):  # fmt: skip
        refused = await notifier.listen("?seats=*", token=token)
        await wait_until(partial(is_complete, refused))
        assert (refused.status, refused.problem) == (status, slug)
    unsigned = await notifier.open(f"/events/{EVENT}/sections/updates?seats=*")
    await wait_until(lambda: unsigned.complete)
    assert unsigned.status == 401
    assert not neighbours.inventory.calls, "nobody asked for seats"


async def test_a_stream_with_seats_ends_with_its_pass(start: Start):
    notifier = await start(heartbeat_s=0.3)
    client = await listen(notifier, token=signed_pass(until_s=now_ms() / 1000 + 1))
    await wait_until(lambda: client.closed)


async def test_a_filter_of_seats_is_checked(notifier: Notifier):
    for query, says in (
        ("?seats=A,,B", "1 to 50"),
        ("?seats=GA1", "no seats in a section GA1"),
        ("?seats=", "1 to 50"),
    ):
        refused = await notifier.listen(query, token=signed_pass())
        await wait_until(partial(is_complete, refused))
        assert (refused.status, refused.problem, says in refused.body.decode()) == (422, "malformed-filter", True)


async def test_seats_are_asked_for_and_watched_only_while_a_stream_shows_them(
    notifier: Notifier, neighbours: Neighbours
):
    plain = await notifier.connect()
    key, channels = seats_watched_key(EVENT), {line_channel(EVENT), stock_channel(EVENT)}
    assert (neighbours.inventory.calls["/seats"], await notifier.redis.exists(key)) == (0, 0)
    client = await listen(notifier)
    assert 0 < await notifier.redis.ttl(key) <= 15
    assert await notifier.channels() == {*channels, seats_channel(EVENT)}
    await notifier.redis.delete(key)
    await wait_until(lambda: _exists(notifier, key))  # again and again
    await client.close()
    await wait_until(lambda: notifier.has_channels(channels))
    await notifier.publish(line_frame(12, 9))
    await wait_until(lambda: plain.head_seq == 9)  # the other feed goes on


async def _exists(notifier: Notifier, key: str) -> bool:
    return bool(await notifier.redis.exists(key))


async def test_a_reconnecting_page_gets_all_seats_and_only_what_else_changed(start: Start):
    one, other = await start(), await start()
    client = await listen(one)
    assert client.last_id is not None
    await client.close()
    await one.publish(seats_frame(11, held(3)))
    again = await listen(other, last_event_id=client.last_id)
    await one.publish(seats_frame(12, held(3, 4)))
    await wait_until(lambda: shown(again) == held(3, 4))
    assert (again.all("line"), again.all("sections")) == ([], [])


async def test_a_frame_that_pubsub_lost_is_made_up_for(notifier: Notifier):
    client = await listen(notifier)
    await notifier.publish(seats_frame(11, held(1)))
    await wait_until(lambda: shown(client) == held(1))
    await notifier.publish_to_log(seats_frame(12, held(1, 2)))
    await notifier.publish(seats_frame(13, held(2)))
    await wait_until(lambda: shown(client) == held(2))


async def test_a_hall_of_another_epoch_begins_anew(notifier: Notifier):
    client = await listen(notifier)
    await notifier.publish(seats_frame(11, held(1), epoch=3))
    await wait_until(lambda: client.last("seats")["v"] == FIRST + 11)
    assert "s" in client.last("seats")
    await notifier.publish(seats_frame(12, bytes(12), epoch=4, sections=("A", "B", "C")))
    await wait_until(lambda: client.last("seats") == {"v": FIRST + 12, "s": "AAAA", "all": True})
    await notifier.publish(seats_frame(13, FREE, epoch=4))
    await wait_until(lambda: client.last("seats") == {"v": FIRST + 13, "s": "AAA=", "all": True})


@pytest.mark.usefixtures("unpublished")
async def test_the_ledgers_seats_are_followed_by_a_snapshot(notifier: Notifier, neighbours: Neighbours):
    await block(await neighbours.real_inventory.open(), "A-1-2")
    await notifier.redis.delete(Keys.of(EVENT).meta)
    client = await listen(notifier)
    assert (client.last("seats")["v"], shown(client)) == (0, bytes([0, CLOSED, 0, 0, 0, 0, 0, 0]))
    await notifier.publish(seats_frame(11, held(2)))
    await wait_until(lambda: shown(client) == held(2))
    assert "s" in client.last("seats")


CODES = st.binary(min_size=8, max_size=8).map(lambda data: bytes(byte & 1 for byte in data))
FILTERS = (StreamFilter(seats=ALL_SEATS), StreamFilter(seats=frozenset("A")), StreamFilter(seats=frozenset("BA")))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("seats"), CODES), st.tuples(st.just("seats"), CODES), st.tuples(st.just("frame"), st.none()),
        st.tuples(st.just("join"), st.none()), st.tuples(st.just("read"), st.integers(0, 5)),
        st.tuples(st.just("miss"), st.integers(0, 5)), st.tuples(st.just("epoch"), CODES),
    ),
    max_size=40,
)  # fmt: skip
BACK_AGAIN = [("seats", held(1)), ("read", 0), ("seats", FREE)]
TO_MISS = [("seats", held(0)), ("frame", None), ("miss", 0)]
MISSED = [("seats", held(1)), ("miss", 0), ("seats", held(1, 2)), ("frame", None)]


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(FILTERS))
@example(BACK_AGAIN, FILTERS[0])
@example(MISSED, FILTERS[0])
@example(TO_MISS, FILTERS[0])
def test_snapshots_deltas_and_states_lead_to_the_same_seats(steps: list[tuple[str, Any]], stream_filter: StreamFilter):
    """For any mix of changes, new listeners, lost frames, and pages that read the state at any moment."""
    asyncio.run(_run_steps(steps, stream_filter))


def _seats_of(data: bytes) -> list[dict[str, Any]]:
    client = SseClient(None, None)  # type: ignore[arg-type]
    client.body = data
    events: list[SseEvent] = client.events
    return [event.data for event in events if event.name == "seats"]


class Pages:
    """A feed whose hall changes, and pages that follow one of its topics."""

    def __init__(self, stream_filter: StreamFilter) -> None:
        stub: Any = SimpleNamespace(frame=print, stock=print, ask=print, schedule=lambda topic: None)
        self.feed = HallFeed(EVENT, stub, queue=stub, inventory=stub)
        self.shown = slice(0, 4 if stream_filter.seats == frozenset("A") else 8)
        self.epoch, self.version, self.codes = STOCK_EPOCH, 10, FREE
        self.feed.apply(line_channel(EVENT), line_frame(10, 0), exact=True)
        self.feed.apply(stock_channel(EVENT), stock_frame(10, A=1, B=1), exact=True)
        self.feed.apply(seats_channel(EVENT), seats_frame(10, FREE), exact=True)
        self.topic = self.feed.topic(stream_filter)
        self.pages, self.revisions, self.missing = list[SeatPage](), list[int](), set[int]()
        self.join()

    def state(self) -> State:
        return FIRST + self.version, self.codes[self.shown]

    def change(self, codes: bytes, *, epochs: int = 0) -> None:
        self.epoch += epochs
        self.version += codes != self.codes or epochs
        self.codes = codes
        frame = seats_frame(self.version, codes, epoch=self.epoch)
        self.feed.apply(seats_channel(EVENT), frame, exact=True)

    def join(self) -> None:
        page = SeatPage(len(self.codes[self.shown]))
        page.apply(_seats_of(self.topic.replay(None)[1])[0], self.state())
        self.pages.append(page)
        self.revisions.append(self.topic.revision)

    def read(self, which: int) -> None:
        page = self.pages[which % len(self.pages)]
        page.version, page.codes = self.state()

    def miss(self, which: int) -> None:
        self.missing.add(which % len(self.pages))

    def frame(self) -> None:
        """Writes a frame, as the hub does, to all pages that do not have its revision, and that do not miss it."""
        events = _seats_of(self.topic.next_frame()[0].data)
        for n, page in enumerate(self.pages):
            if events and self.revisions[n] < self.topic.revision:
                self.revisions[n] = self.topic.revision
                if n not in self.missing:
                    page.apply(events[0], self.state())
        self.missing -= set(range(len(self.pages))) if events else set()


async def _run_steps(steps: list[tuple[str, Any]], stream_filter: StreamFilter) -> None:
    pages = Pages(stream_filter)
    for verb, argument in [
        *steps,
        ("frame", None),
        ("seats", held(0)),
        ("frame", None),
        ("seats", held(1)),  # one of these two is a change, and is what a page misses that is still to miss one
        ("frame", None),
        ("seats", FREE),
        ("frame", None),
    ]:
        match verb:
            case "seats":
                pages.change(argument)
            case "epoch":
                pages.change(argument, epochs=1)
            case "join" | "frame":
                getattr(pages, verb)()
            case _:
                getattr(pages, verb)(argument)
    assert {page.codes for page in pages.pages} == {FREE[pages.shown]}
    assert {page.version for page in pages.pages} == {FIRST + pages.version}
