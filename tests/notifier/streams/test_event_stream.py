"""What a fan hears of an event: a snapshot first, then what changed, as little and as soon as a window allows."""

import time
from functools import partial

from tests.notifier.conftest import EVENT, Neighbours, Notifier, Start, admitted, fan, line, stock
from tests.notifier.ear import Ear
from tests.notifier.page import Page
from tests.support.wait import wait_until


def available(ear: Ear) -> dict[str, int]:
    return Page().hear(ear.heard).available


def all_at(ears: list[Ear], head_seq: int) -> bool:
    return all(ear.last("line")["head_seq"] == head_seq for ear in ears)


async def test_a_stream_begins_with_a_snapshot_of_line_and_sections(notifier: Notifier, neighbours: Neighbours):
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    assert (ear.status, ear.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert ear.headers["x-accel-buffering"] == "no"
    assert "no-store" in ear.headers["cache-control"]
    assert ear.last("line") == {
        "state": "open", "head_seq": 5, "tail_seq": 1000, "rate_per_s": 50, "live_ratio": 1.0, "message": None,
        "epoch": 1,
    }  # fmt: skip
    sections = ear.last("sections")
    assert set(sections) == {"sections", "timestamp"}
    assert set(sections["sections"][0]) == {"section_id", "available_seats", "held_seats", "timestamp"}
    assert available(ear) == {"A": 100, "B": 200, "GA1": 300}
    assert [heard.name for heard in ear.heard] == ["line", "sections"]
    assert len(ear.retries) == 1


async def test_a_change_arrives_well_within_two_seconds(notifier: Notifier):
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    began = time.monotonic()
    assert await notifier.show(stock(11, A=99, B=200, GA1=300)) == 1
    await wait_until(lambda: available(ear)["A"] == 99)
    assert time.monotonic() - began < 2
    assert len(ear.all("line")) == 1


async def test_a_repeated_frame_that_says_nothing_new_is_not_sent(notifier: Notifier):
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    await notifier.show(stock(11, A=100, B=200, GA1=300))
    await notifier.show(line(11, 6))
    await wait_until(lambda: ear.last("line")["head_seq"] == 6)
    assert len(ear.all("sections")) == 1


async def test_at_most_one_frame_a_window_and_the_latest_wins(start: Start):
    notifier = await start(window_ms=300)
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    began = time.monotonic()
    for n in range(100):
        await notifier.show(line(11 + n, 6 + n))
    await wait_until(lambda: ear.last("line")["head_seq"] == 105)
    windows = 1 + (time.monotonic() - began) // 0.3
    heads = [said["head_seq"] for said in ear.all("line")]
    assert len(heads) <= 2 + windows, "one snapshot, one at the leading edge, one a window"
    assert heads[1] < 105, "the first change goes at once"
    assert heads == sorted(heads)


async def test_every_listener_hears_the_same_bytes(notifier: Notifier):
    ears = [await notifier.listen(token=fan(n)) for n in range(5)]
    await wait_until(lambda: all(ear.last("sections") for ear in ears))
    before = [len(ear.body) for ear in ears]
    for head_seq in (20, 21, 22):
        await notifier.show(line(head_seq, head_seq))
        await wait_until(partial(all_at, ears, head_seq))
    assert len({ear.body[size:] for ear, size in zip(ears, before, strict=True)}) == 1
    assert len({ear.headers["x-request-id"] for ear in ears}) == 5


async def test_a_filter_lets_only_its_sections_through(notifier: Notifier):
    ear, everything = await notifier.listen("?sections=A,GA1"), await notifier.listen()
    await wait_until(lambda: ear.last("sections") and everything.last("sections"))
    assert available(ear) == {"A": 100, "GA1": 300}
    await notifier.show(stock(11, A=100, B=150, GA1=300))
    await wait_until(lambda: available(everything)["B"] == 150)
    await notifier.show(stock(12, A=100, B=150, GA1=250))
    await wait_until(lambda: available(ear)["GA1"] == 250)
    assert len(ear.all("sections")) == 2


async def test_older_and_unready_frames_are_dropped(notifier: Notifier):
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    await notifier.show(line(9, 99))
    await notifier.show(line(12, 98, ready=False))
    await notifier.show(line(11, 7))
    await wait_until(lambda: ear.last("line")["head_seq"] == 7)
    await notifier.show(line(1, 0, epoch=2))
    await wait_until(lambda: ear.last("line")["epoch"] == 2)
    assert [said["head_seq"] for said in ear.all("line")] == [5, 7, 0]


async def test_further_lanes_stand_beside_the_first(notifier: Notifier):
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("line"))
    lanes = {0: {"head_seq": 6, "tail_seq": 9}, 1: {"head_seq": 2, "tail_seq": 3}}
    await notifier.show(line(11, lanes=lanes))
    await wait_until(lambda: ear.last("line")["head_seq"] == 6)
    assert ear.last("line")["lanes"] == {"1": {"head_seq": 2, "tail_seq": 3}}


async def test_who_has_seen_the_current_state_gets_no_snapshot(notifier: Notifier):
    await notifier.begin()
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    assert ear.last_id is not None
    back = await notifier.listen(last_event_id=ear.last_id)
    await wait_until(lambda: back.retries)
    await notifier.show(line(11, 6))
    await wait_until(lambda: back.last("line"))
    assert [heard.name for heard in back.heard] == ["line"]
    unknown = await notifier.listen(last_event_id="1.77")
    await wait_until(lambda: unknown.last("sections"))
    assert available(unknown)["A"] == 100


async def test_who_has_seen_an_earlier_state_gets_what_changed_since(notifier: Notifier):
    await notifier.begin()
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    began = ear.last_id or ""
    for head_seq in (6, 7):
        await notifier.show(line(head_seq + 5, head_seq))
        await wait_until(partial(all_at, [ear], head_seq))
    back = await notifier.listen(last_event_id=began)
    await wait_until(lambda: back.last("line"))
    assert [(heard.name, heard.data["head_seq"], heard.frame_id) for heard in back.heard] == [("line", 7, ear.last_id)]
    await notifier.show(stock(11, A=99, B=200, GA1=300))
    await wait_until(lambda: back.last("sections"))
    both = await notifier.listen(last_event_id=began)
    await wait_until(lambda: both.last("sections"))
    assert (both.last("line")["head_seq"], available(both)["A"]) == (7, 99)


async def test_the_id_comes_with_the_last_event_so_that_half_a_frame_is_not_taken_for_whole(notifier: Notifier):
    await notifier.begin()
    ear = await notifier.listen()
    await wait_until(lambda: ear.last("sections"))
    assert [heard.frame_id for heard in ear.heard] == [None, "1.100000000000010"]


async def test_silence_is_broken_by_heartbeats(start: Start):
    notifier = await start(heartbeat_s=0.05)
    ear = await notifier.listen()
    await wait_until(lambda: ear.body.count(b"event: beat\ndata: {}\n\n") >= 2)


async def test_an_unknown_event_is_refused(notifier: Notifier):
    ear = await notifier.listen(event_id="nowhere", token=fan(1, event_id="nowhere"))
    await wait_until(lambda: ear.complete)
    assert (ear.status, ear.problem) == (404, "unknown-event")


async def test_one_look_at_the_neighbours_serves_everyone_who_comes(notifier: Notifier, neighbours: Neighbours):
    ears = [await notifier.listen(token=admitted(n)) for n in range(5)]
    await wait_until(lambda: all(ear.last("sections") for ear in ears))
    assert neighbours.asked.count("frame") == 1
    assert neighbours.asked.count("stock") == 1
    assert await notifier.channels() == {f"show:{{{EVENT}}}:line", f"show:{{{EVENT}}}:sections"}
