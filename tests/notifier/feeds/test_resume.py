"""A listener who reconnects with its last id gets all it missed, or a snapshot; at any process."""

from functools import partial

import pytest

from shared.contracts.frames import LineFrame, StockFrame, log_key, stock_channel
from tests.notifier.client import SseClient
from tests.notifier.conftest import EVENT, FakeServices, Notifier, Start, channel_of, fan, line, order, stock
from tests.notifier.page import Page
from tests.support.wait import wait_until

FRAMES: tuple[LineFrame | StockFrame, ...] = (
    line(11, 6),
    stock(11, A=99, B=200, C=7, GA1=300),
    stock(12, A=98, B=199, C=7, GA1=300),
    line(12, 7),
    stock(13, A=99, B=199, C=7, GA1=299),
    stock(14, A=98, B=200, C=7, GA1=299),
    line(13, 8, message="Soon"),
    stock(15, A=98, B=200, C=7, GA1=0),
)
END = ({"A": 98, "B": 200, "C": 7, "GA1": 0}, 8)


def knows(page: Page) -> tuple[dict[str, int], int]:
    return page.available, page.line["head_seq"]


async def begun(notifier: Notifier) -> None:
    await notifier.show(line(10, 5))
    await notifier.show(stock(10, A=100, B=200, C=7, GA1=300))


def _got_more(client: SseClient, than: int) -> bool:
    return len(client.events) > than


async def every_cut(notifier: Notifier) -> list[Page]:
    """The state of a page after each frame of the sequence."""
    client = await notifier.listen(token=fan(1))
    await wait_until(lambda: client.last("sections"))
    cuts = [Page().apply(client.events)]
    for frame in FRAMES:
        heard = len(client.events)
        await notifier.show(frame)
        await wait_until(partial(_got_more, client, heard), interval_s=0.001)
        cuts.append(Page().apply(client.events))
    assert knows(cuts[-1]) == END
    await client.close()
    return cuts


async def continued(notifier: Notifier, page: Page, number: int) -> tuple[Page, list[str]]:
    """The page after it reconnected with its last id, and the events it got."""
    client = await notifier.listen(token=fan(number), last_event_id=page.last_id or "")
    await wait_until(lambda: client.retries)
    page.apply(client.events)
    names = [
        "whole" if heard.name == "sections" and "delta" not in heard.data else heard.name for heard in client.events
    ]
    await client.close()
    return page, names


async def test_from_every_cut_a_page_comes_to_the_same_end(start: Start):
    notifier = await start(window_ms=0)
    await begun(notifier)
    for number, page in enumerate(await every_cut(notifier), 2):
        page, names = await continued(notifier, page, number)
        assert knows(page) == END
        assert "whole" not in names
        assert names or number == len(FRAMES) + 2, "only the last cut misses nothing"


async def test_a_process_just_started_continues_what_another_began(start: Start):
    """Also a new process after one that ended: it received nothing, and restores everything from the log."""
    one = await start(window_ms=0)
    await begun(one)
    cuts = await every_cut(one)
    await one.drain()
    other = await start(window_ms=0)
    for number, page in enumerate(cuts, 2):
        page, names = await continued(other, page, number)
        assert (knows(page), "whole" in names) == (END, False)


async def test_a_frame_that_pubsub_lost_is_found_in_the_log(start: Start, services: FakeServices):
    one, other = await start(window_ms=0), await start(window_ms=0)
    await one.begin()
    clients = [await one.listen(), await other.listen()]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    calls_before = len(services.calls)
    await one.lose(stock(11, A=1, B=200, GA1=300))
    await one.show(stock(12, A=100, B=200, GA1=299))
    feed = one.state.feeds._feeds["event", EVENT]
    await wait_until(lambda: feed._histories[stock_channel(EVENT)].since(11) == {"A", "GA1"})
    assert len(services.calls) == calls_before
    saw_the_lost = Page().apply(clients[0].events)
    saw_the_lost.sections["A"] = (1, 1)
    saw_the_lost.last_id = "1.100000000000011"
    page, names = await continued(one, saw_the_lost, 9)
    assert (page.available, "whole" in names) == ({"A": 100, "B": 200, "GA1": 299}, False)


async def test_what_is_not_provable_is_answered_with_everything(start: Start, redis):
    notifier = await start(window_ms=0)
    await begun(notifier)
    cuts = await every_cut(notifier)
    for number, last_id in enumerate(("", "nonsense", "1.0", "2." + (cuts[3].last_id or "")[2:], "1.1", "9" * 70), 2):
        page = Page()
        page.last_id = last_id
        page, names = await continued(notifier, page, number)
        assert (knows(page), names) == (END, ["line", "whole"])
    client = await notifier.listen("?sections=A", token=fan(20), last_event_id=cuts[3].last_id or "")
    await wait_until(lambda: client.last("sections"))
    assert "delta" not in client.last("sections"), "that id was of another filter"
    for frame in FRAMES:
        await redis.delete(log_key(channel_of(frame)))
    forgetful = await start(window_ms=0)
    page, names = await continued(forgetful, cuts[3], 21)
    assert (page.available, names) == ({"A": 100, "B": 200, "GA1": 300}, ["line", "whole"]), "asked for"


async def test_a_filtered_stream_continues_with_its_own_sections(start: Start):
    notifier = await start(window_ms=0)
    await begun(notifier)
    client = await notifier.listen("?sections=A,GA1")
    await wait_until(lambda: client.last("sections"))
    await client.close()
    for frame in FRAMES:
        await notifier.show(frame)
    feed = notifier.state.feeds._feeds["event", EVENT]
    await wait_until(lambda: feed.frames[stock_channel(EVENT)].version == 15)
    back = await notifier.listen("?sections=A,GA1", last_event_id=client.last_id or "")
    await wait_until(lambda: back.last("sections"))
    assert {section["section_id"] for section in back.last("sections")["sections"]} == {"A", "GA1"}


async def test_a_requested_state_is_not_resumable_elsewhere(start: Start, services: FakeServices):
    """Between two frames inventory answers with the state of the second under the version of the first."""
    one = await start(window_ms=0)
    services.stock = stock(10, A=99, B=200, GA1=300)
    client = await one.listen()
    await wait_until(lambda: client.last("sections"))
    assert client.last_id == "1.0"
    await one.show(line(11, 5))
    await one.show(stock(11, A=99, B=200, GA1=300))
    feed = one.state.feeds._feeds["event", EVENT]
    await wait_until(lambda: feed.frames[stock_channel(EVENT)].version == 11)
    fresh = await one.listen(token=fan(2))
    await wait_until(lambda: fresh.last("sections"))
    assert fresh.last_id == "1.110000000000011"


async def test_a_restarted_process_requests_nothing_while_the_log_is_fresh(start: Start, services: FakeServices):
    one = await start()
    await one.begin()
    client = await one.listen()
    await wait_until(lambda: client.last("sections"))
    assert services.calls == []


@pytest.mark.parametrize("number", [10, 11, 12])
async def test_an_order_continues_from_every_state(notifier: Notifier, services: FakeServices, number: int):
    first = await notifier.listen_order()
    await wait_until(lambda: first.last("order"))
    for version, status in ((11, "confirmed"), (13, "refunded"), (12, "partially_refunded")):
        await notifier.show(order(version, status))
    await wait_until(lambda: first.last("order")["status"] == "refunded")
    assert [data["status"] for data in first.all("order")] in (
        ["pending", "confirmed", "refunded"],
        ["pending", "refunded"],
    ), "never back to an earlier state"
    back = await notifier.listen_order(last_event_id=f"1.{number}")
    await wait_until(lambda: back.last("order"))
    assert back.last("order")["status"] == "refunded"
    client = await notifier.listen_order(last_event_id="1.13")
    await wait_until(lambda: client.retries)
    assert client.events == []


async def test_unready_frames_are_no_states(start: Start, services: FakeServices):
    one = await start(window_ms=0)
    await one.begin()
    await one.show(stock(11, A=0).model_copy(update={"ready": False}))
    client = await one.listen()
    await wait_until(lambda: client.last("sections"))
    assert Page().apply(client.events).available == {"A": 100, "B": 200, "GA1": 300}
