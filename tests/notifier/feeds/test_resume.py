"""A listener that reconnects with its last id, at any process, gets every change it missed, or a snapshot."""

from functools import partial

import pytest

from shared.contracts.frames import LineFrame, StockFrame, line_channel, log_key, stock_channel
from tests.notifier.client import SseClient
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import EVENT, FIRST, channel_of, frame_id, line_frame, order_frame, stock_frame
from tests.notifier.page import Page
from tests.notifier.tokens import queue_token
from tests.support.running.services import Neighbours
from tests.support.wait import wait_until

pytestmark = pytest.mark.usefixtures("unpublished")
FRAMES: tuple[LineFrame | StockFrame, ...] = (
    line_frame(11, 6),
    stock_frame(11, A=99, B=200, C=7, GA1=300),
    stock_frame(12, A=98, B=199, C=7, GA1=300),
    line_frame(12, 7),
    stock_frame(13, A=99, B=199, C=7, GA1=299),
    stock_frame(14, A=98, B=200, C=7, GA1=299),
    line_frame(13, 8, message="Soon"),
    stock_frame(15, A=98, B=200, C=7, GA1=0),
)
END = ({"A": 98, "B": 200, "C": 7, "GA1": 0}, 8)


def state_of(page: Page) -> tuple[dict[str, int], int]:
    return page.available, page.line["head_seq"]


async def publish_first(notifier: Notifier, **more: int) -> None:
    await notifier.publish(line_frame(10, 5))
    await notifier.publish(stock_frame(10, A=100, B=200, **more, GA1=300))


def requests(neighbours: Neighbours) -> int:
    """How often a frame of the event was requested."""
    return neighbours.queue.calls["/rooms/frame"] + neighbours.inventory.calls["/stock"]


def _has_more(client: SseClient, than: int) -> bool:
    return len(client.events) > than


async def pages_after_each_frame(notifier: Notifier) -> list[Page]:
    """A page after the snapshot, and after each frame of the sequence."""
    client = await notifier.connect(token=queue_token(1))
    pages = [Page().apply(client.events)]
    for frame in FRAMES:
        known = len(client.events)
        await notifier.publish(frame)
        await wait_until(partial(_has_more, client, known), interval_s=0.001)
        pages.append(Page().apply(client.events))
    assert state_of(pages[-1]) == END
    await client.close()
    return pages


async def reconnect(notifier: Notifier, page: Page, join_seq: int) -> tuple[Page, list[str]]:
    """The page after it reconnected with its last id, and the names of the events it received."""
    client = await notifier.listen(token=queue_token(join_seq), last_event_id=page.last_id or "")
    await wait_until(lambda: client.retries)
    page.apply(client.events)
    names = [
        "snapshot" if event.name == "sections" and "delta" not in event.data else event.name for event in client.events
    ]
    await client.close()
    return page, names


@pytest.mark.parametrize("at_new_process", [False, True])
async def test_a_page_that_left_after_any_frame_reaches_the_same_state(start: Start, at_new_process: bool):
    """A process that starts after the other has ended restores the missed frames from the log."""
    notifier = await start(window_ms=0)
    await publish_first(notifier, C=7)
    pages = await pages_after_each_frame(notifier)
    if at_new_process:
        await notifier.drain()
        notifier = await start(window_ms=0)
    for number, page in enumerate(pages, 2):
        page, names = await reconnect(notifier, page, number)
        assert (state_of(page), "snapshot" in names) == (END, False)
        assert names or number == len(FRAMES) + 2, "only the page that left last has missed nothing"


async def test_a_frame_that_pubsub_lost_is_read_from_the_log(start: Start, neighbours: Neighbours):
    one, other = await start(window_ms=0), await start(window_ms=0)
    await publish_first(one)
    clients = [await one.listen(), await other.listen()]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    requests_before = requests(neighbours)
    await one.publish_to_log(stock_frame(11, A=1, B=200, GA1=300))
    await one.publish(stock_frame(12, A=100, B=200, GA1=299))
    feed = one.state.feeds._feeds[line_channel(EVENT)]
    await wait_until(lambda: feed.channels[stock_channel(EVENT)].since(FIRST + 11) == {"A", "GA1"})
    assert requests(neighbours) == requests_before
    page_with_lost_frame = Page().apply(clients[0].events)
    page_with_lost_frame.sections["A"] = (1, 1)
    page_with_lost_frame.last_id = frame_id(10, 11)
    page, names = await reconnect(one, page_with_lost_frame, 9)
    assert (page.available, "snapshot" in names) == ({"A": 100, "B": 200, "GA1": 299}, False)


async def test_a_listener_with_an_unusable_last_id_gets_a_snapshot(start: Start, redis):
    notifier = await start(window_ms=0, feed_idle_ttl_s=60)
    await publish_first(notifier, C=7)
    pages = await pages_after_each_frame(notifier)
    for number, last_id in enumerate(("", "nonsense", "1.0", "2." + (pages[3].last_id or "")[2:], "1.1", "9" * 70), 2):
        page = Page()
        page.last_id = last_id
        page, names = await reconnect(notifier, page, number)
        assert (state_of(page), names) == (END, ["line", "snapshot"])
    client = await notifier.connect("?sections=A", token=queue_token(20), last_event_id=pages[3].last_id or "")
    assert "delta" not in client.last("sections"), "the id belongs to another filter"
    await notifier.publish(line_frame(1, 0, epoch=2))
    await wait_until(lambda: client.last("line")["epoch"] == 2)
    client = await notifier.connect(token=queue_token(22, epoch=2), last_event_id="2." + (pages[3].last_id or "")[2:])
    assert "delta" not in client.last("sections"), "the version belongs to the epoch before"
    for frame in FRAMES:
        await redis.delete(log_key(channel_of(frame)))
    without_log = await start(window_ms=0)
    page, names = await reconnect(without_log, pages[3], 21)
    assert (page.available, names) == ({"A": 4, "B": 4, "GA1": 300}, ["line", "snapshot"]), (
        "requested from the services"
    )


async def test_a_filtered_stream_continues_with_its_own_sections(start: Start):
    notifier = await start(window_ms=0, feed_idle_ttl_s=60)
    await publish_first(notifier, C=7)
    client = await notifier.connect("?sections=A,GA1")
    await client.close()
    for frame in FRAMES:
        await notifier.publish(frame)
    feed = notifier.state.feeds._feeds[line_channel(EVENT)]
    await wait_until(lambda: feed.channels[stock_channel(EVENT)].current.version == FIRST + 15)
    back = await notifier.connect("?sections=A,GA1", last_event_id=client.last_id or "")
    assert {section["section_id"] for section in back.last("sections")["sections"]} == {"A", "GA1"}


async def test_the_id_of_a_requested_state_cannot_be_resumed_elsewhere(start: Start):
    """Between two frames, inventory answers with the state of the second and the version of the first."""
    one = await start(window_ms=0)
    client = await one.connect()
    assert client.last_id == "1.0"
    elsewhere = await one.listen(token=queue_token(3), last_event_id=frame_id(10, 10))
    await wait_until(lambda: elsewhere.retries)
    assert elsewhere.last_id == "1.0", "the same version of another process is another state"
    await one.publish(line_frame(11, 5))
    await one.publish(stock_frame(11, A=99, B=200, GA1=300))
    feed = one.state.feeds._feeds[line_channel(EVENT)]
    await wait_until(lambda: feed.channels[stock_channel(EVENT)].current.version == FIRST + 11)
    fresh = await one.connect(token=queue_token(2))
    assert fresh.last_id == frame_id(11, 11)


async def test_a_new_process_requests_nothing_while_the_log_has_recent_frames(start: Start, neighbours: Neighbours):
    one = await start()
    await publish_first(one)
    await one.connect()
    assert not requests(neighbours)


@pytest.mark.parametrize("state", ["requested", "confirmed", "partially_refunded"])
async def test_an_order_stream_resumes_from_every_state(notifier: Notifier, state: str):
    first = await notifier.connect_order()
    ids = {"requested": first.last_id or ""}
    for version, status in ((11, "confirmed"), (13, "refunded"), (12, "partially_refunded")):
        await notifier.publish(order_frame(version, status))
        ids[status] = f"0.{FIRST + version}"
    await wait_until(lambda: first.last("order")["status"] == "refunded")
    assert [data["status"] for data in first.all("order")] in (
        ["pending", "confirmed", "refunded"],
        ["pending", "refunded"],
    ), "the order never returns to an earlier state"
    back = await notifier.connect_order(last_event_id=ids[state])
    assert back.last("order")["status"] == "refunded"
    client = await notifier.listen_order(last_event_id=ids["refunded"])
    await wait_until(lambda: client.retries)
    assert client.events == []


async def test_unready_frames_are_not_shown(start: Start):
    one = await start(window_ms=0)
    await publish_first(one)
    await one.publish(stock_frame(11, A=0).model_copy(update={"ready": False}))
    client = await one.connect()
    assert Page().apply(client.events).available == {"A": 100, "B": 200, "GA1": 300}
