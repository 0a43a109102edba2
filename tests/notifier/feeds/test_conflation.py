"""A frame holds the changes of one window; a page that applies all frames has the state of a new snapshot."""

import asyncio
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.notifier.feeds.event_feed import EventFeed
from services.notifier.feeds.feed import SectionFilter, StreamFilter, event_frame_id, parse_event_frame_id
from services.notifier.metrics import CONFLATED
from services.notifier.topics import topic as topic_module
from services.notifier.topics.topic import Topic
from shared.contracts.frames import line_channel, stock_channel
from shared.contracts.room_options import RoomOptions, Updates
from tests.notifier.client import all_have_head
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import EVENT, line_frame, stock_frame
from tests.notifier.page import Page
from tests.notifier.tokens import queue_token
from tests.support.wait import wait_until

FILTERS = (None, frozenset({"A"}), frozenset({"A", "C"}))


async def test_a_frame_contains_only_the_sections_that_changed(notifier: Notifier):
    client = await notifier.connect()
    assert "delta" not in client.last("sections")
    await notifier.publish(stock_frame(11, A=100, B=199, GA1=300))
    await wait_until(lambda: client.last("sections").get("delta"))
    assert [section["section_id"] for section in client.last("sections")["sections"]] == ["B"]
    assert Page().apply(client.events).available == {"A": 100, "B": 199, "GA1": 300}


async def test_the_changes_of_one_window_are_sent_in_one_frame(start: Start):
    notifier = await start(window_ms=1500)
    client = await notifier.connect()
    await notifier.publish(stock_frame(11, A=99, B=200, GA1=300))
    await wait_until(lambda: len(client.all("sections")) == 2)
    await notifier.publish(stock_frame(12, A=98, B=200, GA1=300))
    await notifier.publish(line_frame(12, 9))
    await notifier.publish(stock_frame(13, A=97, B=199, GA1=300))
    await wait_until(lambda: len(client.all("sections")) == 3)
    last = {section["section_id"]: section["available_seats"] for section in client.last("sections")["sections"]}
    assert last == {"A": 97, "B": 199}
    assert [event.name for event in client.events][-2:] == ["line", "sections"]


async def test_a_change_undone_within_a_window_is_not_sent(start: Start):
    notifier = await start(window_ms=1500)
    client = await notifier.connect()
    await notifier.publish(stock_frame(11, A=99, B=200, GA1=300))
    await wait_until(lambda: len(client.all("sections")) == 2)
    conflated = CONFLATED.labels("event")._value.get()
    await notifier.publish(stock_frame(12, A=98, B=200, GA1=300))
    await notifier.publish(stock_frame(13, A=99, B=200, GA1=300))
    await wait_until(lambda: CONFLATED.labels("event")._value.get() == conflated + 1)  # a newcomer now gets A=99
    late = await notifier.listen(token=queue_token(2))
    await notifier.publish(line_frame(14, 9))
    await wait_until(lambda: late.head_seq == 9 == client.head_seq)
    assert len(client.all("sections")) == 2


async def test_an_event_file_can_set_its_own_window(start: Start):
    notifier = await start(window_ms=10_000)
    client = await notifier.connect()
    options = RoomOptions(updates=Updates(window_ms=0))
    for head_seq in (20, 21, 22):
        await notifier.publish(line_frame(head_seq, head_seq, options=options))
        await wait_until(partial(all_have_head, [client], head_seq))


async def test_a_full_snapshot_is_sent_from_time_to_time(notifier: Notifier, monkeypatch):
    client = await notifier.connect()
    monkeypatch.setattr(topic_module, "SNAPSHOT_EVERY_S", 0.0)
    await notifier.publish(stock_frame(11, A=99, B=200, GA1=300))
    await wait_until(lambda: len(client.all("sections")) == 2)
    assert "delta" not in client.last("sections")
    assert len(client.all("line")) == 2


STOCK = st.dictionaries(st.sampled_from("ABCD"), st.integers(0, 2), min_size=1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stock"), STOCK),
        st.tuples(st.just("line"), st.integers(0, 3)),
        st.tuples(st.just("requested"), STOCK),
        st.tuples(st.just("frame"), st.none()),
        st.tuples(st.just("join"), st.none()),
        st.tuples(st.just("return"), st.integers(0, 5)),
        st.tuples(st.just("down"), st.booleans()),
    ),
    max_size=40,
)


CHANGED_AND_BACK = [("stock", {"A": 2, "B": 1}), ("join", None), ("stock", {"A": 1, "B": 1})]
DOWN_AND_UP = [("down", True), ("frame", None), ("down", False), ("return", 0)]
SECTION_GONE = [("stock", {"A": 1, "B": 1, "C": 1}), ("frame", None), ("stock", {"A": 1, "B": 1})]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(STEPS, st.sampled_from(FILTERS))
@example(CHANGED_AND_BACK, None)
@example(DOWN_AND_UP, None)
@example(SECTION_GONE, None)
def test_deltas_lead_to_the_same_state_as_a_new_snapshot(steps: list[tuple[str, Any]], section_filter: SectionFilter):
    """For any mix of frames, new listeners, returning listeners and outages; sections appear and disappear."""
    asyncio.run(_run_steps(steps, section_filter))


class _Reader:
    """A page, and the revision of the topic that it has, which the hub keeps for a connection."""

    def __init__(self, topic: Topic, page: Page) -> None:
        self.page = page.read(topic.replay((page.last_id or "").encode() or None)[1])
        self.revision = topic.revision

    def read(self, data: bytes, revision: int) -> None:
        if self.revision < revision:
            self.page.read(data)
            self.revision = revision


async def _run_steps(steps: list[tuple[str, Any]], section_filter: SectionFilter) -> None:
    stub: Any = SimpleNamespace(frame=print, stock=print, schedule=lambda topic: None)
    feed, version = EventFeed(EVENT, stub, queue=stub, inventory=stub), 10
    feed.apply(line_channel(EVENT), line_frame(version, 0), exact=True)
    feed.apply(stock_channel(EVENT), stock_frame(version, A=1, B=1), exact=True)
    topic = feed.topic(StreamFilter(section_filter))
    readers = [_Reader(topic, Page())]
    for verb, argument in [*steps, ("frame", None)]:
        version += 1
        if verb in {"stock", "requested"}:
            feed.apply(stock_channel(EVENT), stock_frame(version, **argument), exact=verb == "stock")
        elif verb == "line":
            feed.apply(line_channel(EVENT), line_frame(version, argument), exact=True)
        elif verb == "down":
            feed.update_degraded(away=argument, now_s=0.0, channel_stale_after_s=1e9)
        elif verb == "join":
            readers.append(_Reader(topic, Page()))
        elif verb == "return":
            readers.append(_Reader(topic, copy(readers[argument % len(readers)].page)))
        else:
            data = topic.next_frame()[0].data
            for reader in readers:
                reader.read(data, topic.revision)
    newcomer = _Reader(topic, Page()).page
    assert all(reader.page.state == newcomer.state for reader in readers)


def test_a_frame_id_can_be_parsed_only_with_the_filter_it_was_made_for():
    versions = parse_event_frame_id(b"3.17000000000000000000000000011", None)
    assert versions is not None
    for section_filter in FILTERS:
        text = event_frame_id(versions, section_filter)
        assert [parse_event_frame_id(text, other) == versions for other in FILTERS] == [
            other == section_filter for other in FILTERS
        ]
    for text in (b"", b"1", b"x.1", b"1.1.1", b"-1.2", b"1." + b"9" * 60):
        assert parse_event_frame_id(text, None) is None
