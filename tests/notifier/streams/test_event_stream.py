"""The stream of an event: a snapshot first, then only changes, as soon as the window allows."""

import time
from functools import partial

from tests.notifier.client import SseClient
from tests.notifier.conftest import EVENT, FakeServices, Notifier, Start, admitted, fan, line, stock
from tests.notifier.page import Page
from tests.support.wait import wait_until


def available(client: SseClient) -> dict[str, int]:
    return Page().apply(client.events).available


def all_at(clients: list[SseClient], head_seq: int) -> bool:
    return all(client.last("line")["head_seq"] == head_seq for client in clients)


async def test_a_stream_begins_with_a_snapshot_of_line_and_sections(notifier: Notifier, services: FakeServices):
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    assert (client.status, client.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert client.headers["x-accel-buffering"] == "no"
    assert "no-store" in client.headers["cache-control"]
    assert client.last("line") == {
        "state": "open", "head_seq": 5, "tail_seq": 1000, "rate_per_s": 50, "live_ratio": 1.0, "message": None,
        "epoch": 1,
    }  # fmt: skip
    sections = client.last("sections")
    assert set(sections) == {"sections", "timestamp"}
    assert set(sections["sections"][0]) == {"section_id", "available_seats", "held_seats", "timestamp"}
    assert available(client) == {"A": 100, "B": 200, "GA1": 300}
    assert [event.name for event in client.events] == ["line", "sections"]
    assert len(client.retries) == 1


async def test_a_change_arrives_well_within_two_seconds(notifier: Notifier):
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    began = time.monotonic()
    assert await notifier.show(stock(11, A=99, B=200, GA1=300)) == 1
    await wait_until(lambda: available(client)["A"] == 99)
    assert time.monotonic() - began < 2
    assert len(client.all("line")) == 1


async def test_a_repeated_frame_that_says_nothing_new_is_not_sent(notifier: Notifier):
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    await notifier.show(stock(11, A=100, B=200, GA1=300))
    await notifier.show(line(11, 6))
    await wait_until(lambda: client.last("line")["head_seq"] == 6)
    assert len(client.all("sections")) == 1


async def test_at_most_one_frame_a_window_and_the_latest_wins(start: Start):
    notifier = await start(window_ms=300)
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    began = time.monotonic()
    for n in range(100):
        await notifier.show(line(11 + n, 6 + n))
    await wait_until(lambda: client.last("line")["head_seq"] == 105)
    windows = 1 + (time.monotonic() - began) // 0.3
    heads = [data["head_seq"] for data in client.all("line")]
    assert len(heads) <= 2 + windows, "one snapshot, one at the leading edge, one a window"
    assert heads[1] < 105, "the first change goes at once"
    assert heads == sorted(heads)


async def test_every_listener_gets_the_same_bytes(notifier: Notifier):
    clients = [await notifier.listen(token=fan(n)) for n in range(5)]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    before = [len(client.body) for client in clients]
    for head_seq in (20, 21, 22):
        await notifier.show(line(head_seq, head_seq))
        await wait_until(partial(all_at, clients, head_seq))
    assert len({client.body[size:] for client, size in zip(clients, before, strict=True)}) == 1
    assert len({client.headers["x-request-id"] for client in clients}) == 5


async def test_a_filter_lets_only_its_sections_through(notifier: Notifier):
    client, everything = await notifier.listen("?sections=A,GA1"), await notifier.listen()
    await wait_until(lambda: client.last("sections") and everything.last("sections"))
    assert available(client) == {"A": 100, "GA1": 300}
    await notifier.show(stock(11, A=100, B=150, GA1=300))
    await wait_until(lambda: available(everything)["B"] == 150)
    await notifier.show(stock(12, A=100, B=150, GA1=250))
    await wait_until(lambda: available(client)["GA1"] == 250)
    assert len(client.all("sections")) == 2


async def test_older_and_unready_frames_are_dropped(notifier: Notifier):
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    await notifier.show(line(9, 99))
    await notifier.show(line(12, 98, ready=False))
    await notifier.show(line(11, 7))
    await wait_until(lambda: client.last("line")["head_seq"] == 7)
    await notifier.show(line(1, 0, epoch=2))
    await wait_until(lambda: client.last("line")["epoch"] == 2)
    assert [data["head_seq"] for data in client.all("line")] == [5, 7, 0]


async def test_further_lanes_stand_beside_the_first(notifier: Notifier):
    client = await notifier.listen()
    await wait_until(lambda: client.last("line"))
    lanes = {0: {"head_seq": 6, "tail_seq": 9}, 1: {"head_seq": 2, "tail_seq": 3}}
    await notifier.show(line(11, lanes=lanes))
    await wait_until(lambda: client.last("line")["head_seq"] == 6)
    assert client.last("line")["lanes"] == {"1": {"head_seq": 2, "tail_seq": 3}}


async def test_a_listener_with_the_current_state_gets_no_snapshot(notifier: Notifier):
    await notifier.begin()
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    assert client.last_id is not None
    back = await notifier.listen(last_event_id=client.last_id)
    await wait_until(lambda: back.retries)
    await notifier.show(line(11, 6))
    await wait_until(lambda: back.last("line"))
    assert [event.name for event in back.events] == ["line"]
    unknown = await notifier.listen(last_event_id="1.77")
    await wait_until(lambda: unknown.last("sections"))
    assert available(unknown)["A"] == 100


async def test_a_listener_with_an_earlier_state_gets_the_changes_since(notifier: Notifier):
    await notifier.begin()
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    began = client.last_id or ""
    for head_seq in (6, 7):
        await notifier.show(line(head_seq + 5, head_seq))
        await wait_until(partial(all_at, [client], head_seq))
    back = await notifier.listen(last_event_id=began)
    await wait_until(lambda: back.last("line"))
    assert [(event.name, event.data["head_seq"], event.frame_id) for event in back.events] == [
        ("line", 7, client.last_id)
    ]
    await notifier.show(stock(11, A=99, B=200, GA1=300))
    await wait_until(lambda: back.last("sections"))
    both = await notifier.listen(last_event_id=began)
    await wait_until(lambda: both.last("sections"))
    assert (both.last("line")["head_seq"], available(both)["A"]) == (7, 99)


async def test_the_id_comes_with_the_last_event_so_that_half_a_frame_is_not_taken_for_whole(notifier: Notifier):
    await notifier.begin()
    client = await notifier.listen()
    await wait_until(lambda: client.last("sections"))
    assert [event.frame_id for event in client.events] == [None, "1.100000000000010"]


async def test_silence_is_broken_by_heartbeats(start: Start):
    notifier = await start(heartbeat_s=0.05)
    client = await notifier.listen()
    await wait_until(lambda: client.body.count(b"event: beat\ndata: {}\n\n") >= 2)


async def test_an_unknown_event_is_refused(notifier: Notifier):
    client = await notifier.listen(event_id="nowhere", token=fan(1, event_id="nowhere"))
    await wait_until(lambda: client.complete)
    assert (client.status, client.problem) == (404, "unknown-event")


async def test_one_request_to_the_services_serves_all_new_streams(notifier: Notifier, services: FakeServices):
    clients = [await notifier.listen(token=admitted(n)) for n in range(5)]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    assert services.calls.count("frame") == 1
    assert services.calls.count("stock") == 1
    assert await notifier.channels() == {f"show:{{{EVENT}}}:line", f"show:{{{EVENT}}}:sections"}
