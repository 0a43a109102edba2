"""The stream of an event: who may open it and how many may be open; a snapshot, then the changes, at most one frame in
each window.
"""

import asyncio
import time
from functools import partial

import httpx
import pytest
from prometheus_client import REGISTRY

from services.notifier.app import create_app
from services.notifier.headroom import MIB, Headroom
from services.notifier.settings import Settings
from services.notifier.tuning import Tuning
from services.queue.state import State as QueueState
from shared.contracts.frames import line_channel, stock_channel
from shared.contracts.queue import JoinBatch, JoinRequest, PlaceRef, PlacesQuestion
from tests.notifier.client import UPDATES, SseClient, all_have_head
from tests.notifier.conftest import ORDER_PATH, Notifier, Start
from tests.notifier.frames import EVENT, FIRST, REFERENCE, frame_id, line_frame, order_frame, seats_frame, stock_frame
from tests.notifier.orders import write_order
from tests.notifier.page import Page
from tests.notifier.streams.test_slow_reader import SlowReader, flood, slow_reader
from tests.notifier.tokens import order_token, queue_token, signed_pass
from tests.support.running.services import TEST, Neighbours
from tests.support.wait import wait_until


def available(client: SseClient) -> dict[str, int]:
    return Page().apply(client.events).available


async def test_a_stream_begins_with_a_snapshot_of_line_and_sections(notifier: Notifier):
    client = await notifier.connect()
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


async def test_what_is_reserved_for_a_code_or_a_lane_is_told_where_there_is_any(notifier: Notifier):
    client = await notifier.connect()
    changed = iter((7, 5, 0))

    async def is_told(number: int) -> None:
        await notifier.publish(stock_frame(9 + number, next(changed), A=100))
        await wait_until(lambda: len(client.all("sections")) == number)

    for number in (2, 3, 4):
        await is_told(number)
    told = [one for frame in client.all("sections")[1:] for one in frame["sections"]]
    assert [one.get("reserved_seats") for one in told] == [7, 5, None]


async def test_a_change_arrives_within_two_seconds_and_a_frame_without_one_is_not_sent(notifier: Notifier):
    client = await notifier.connect()
    await notifier.publish(stock_frame(11, A=100, B=200, GA1=300))
    began_s = time.monotonic()
    assert await notifier.publish(line_frame(11, 6)) == 1
    await wait_until(lambda: client.head_seq == 6)
    assert time.monotonic() - began_s < 2
    assert len(client.all("sections")) == 1


async def test_at_most_one_frame_is_sent_in_a_window_and_it_has_the_latest_state(start: Start):
    notifier = await start(window_ms=300)
    client = await notifier.connect()
    began_s = time.monotonic()
    for n in range(100):
        await notifier.publish(line_frame(11 + n, 6 + n))
    await wait_until(lambda: client.head_seq == 105)
    windows = 1 + (time.monotonic() - began_s) // 0.3
    heads = [data["head_seq"] for data in client.all("line")]
    assert len(heads) <= 2 + windows, "the snapshot, the first change, and one frame for each window"
    assert heads[1] < 105, "the first change is sent at once"
    assert heads == sorted(heads)


async def test_every_listener_gets_the_same_bytes(notifier: Notifier):
    clients = [await notifier.connect(token=queue_token(n)) for n in range(5)]
    before = [len(client.body) for client in clients]
    for head_seq in (20, 21, 22):
        await notifier.publish(line_frame(head_seq, head_seq))
        await wait_until(partial(all_have_head, clients, head_seq))
    assert len({client.body[size:] for client, size in zip(clients, before, strict=True)}) == 1
    assert len({client.headers["x-request-id"] for client in clients}) == 5


async def test_a_filtered_stream_has_only_its_sections(notifier: Notifier):
    client, unfiltered = await notifier.listen("?sections=A,GA1"), await notifier.listen()
    await wait_until(lambda: client.last("sections") and unfiltered.last("sections"))
    assert available(client) == {"A": 100, "GA1": 300}
    await notifier.publish(stock_frame(11, A=100, B=150, GA1=300))
    await wait_until(lambda: available(unfiltered)["B"] == 150)
    await notifier.publish(stock_frame(12, A=100, B=150, GA1=250))
    await wait_until(lambda: available(client)["GA1"] == 250)
    assert len(client.all("sections")) == 2


async def test_older_and_unready_frames_are_dropped(notifier: Notifier):
    client = await notifier.connect()
    await notifier.publish(line_frame(9, 99))
    await notifier.publish(line_frame(12, 98, ready=False))
    await notifier.publish(line_frame(11, 7))
    await wait_until(lambda: client.head_seq == 7)
    await notifier.publish(line_frame(1, 0, epoch=2))
    await wait_until(lambda: client.last("line")["epoch"] == 2)
    assert [data["head_seq"] for data in client.all("line")] == [5, 7, 0]


async def test_the_line_has_further_lanes_throttling_and_the_lottery_while_they_apply_and_nothing_secret(
    notifier: Notifier,
):
    client = await notifier.connect()
    assert {"lanes", "throttled", "lottery"}.isdisjoint(client.last("line"))
    lanes = {0: {"head_seq": 6, "tail_seq": 9}, 1: {"head_seq": 2, "tail_seq": 3}}
    throttled, drawn = {"factor": 0.5, "reason": "orders-slow"}, {"0": {"entrants_n": 3, "key": "ab" * 32}}
    lottery = {"stage": "drawn", "lanes": drawn}
    await notifier.publish(line_frame(11, lanes=lanes, throttled=throttled, lottery=lottery))
    await wait_until(lambda: client.head_seq == 6)
    line = client.last("line")
    assert (line["lanes"], line["throttled"], line["lottery"]) == ({"1": lanes[1]}, throttled, "drawn")
    assert b"abab" not in client.body


async def test_a_listener_with_the_current_state_gets_no_snapshot(notifier: Notifier):
    client = await notifier.connect()
    assert client.last_id is not None
    assert [event.frame_id for event in client.events] == [None, frame_id(10, 10)], "half a frame has no id"
    back = await notifier.listen(last_event_id=client.last_id)
    await wait_until(lambda: back.retries)
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: back.last("line"))
    assert [event.name for event in back.events] == ["line"]
    after_unknown_id = await notifier.connect(last_event_id="1.77")
    assert available(after_unknown_id)["A"] == 100


async def test_a_listener_with_an_earlier_state_gets_the_changes_since(notifier: Notifier):
    client = await notifier.connect()
    first_id = client.last_id or ""
    for head_seq in (6, 7):
        await notifier.publish(line_frame(head_seq + 5, head_seq))
        await wait_until(partial(all_have_head, [client], head_seq))
    back = await notifier.listen(last_event_id=first_id)
    await wait_until(lambda: back.last("line"))
    assert [(event.name, event.data["head_seq"], event.frame_id) for event in back.events] == [
        ("line", 7, client.last_id)
    ]
    await notifier.publish(stock_frame(11, A=99, B=200, GA1=300))
    await wait_until(lambda: back.last("sections"))
    both = await notifier.connect(last_event_id=first_id)
    assert (both.head_seq, available(both)["A"]) == (7, 99)


async def test_a_silent_stream_gets_heartbeats(start: Start):
    notifier = await start(heartbeat_s=0.05)
    client = await notifier.listen()
    await wait_until(lambda: client.body.count(b"event: beat\ndata: {}\n\n") >= 2)


async def test_the_stream_of_an_unknown_event_is_refused(notifier: Notifier):
    client = await notifier.listen(event_id="nowhere", token=queue_token(1, event_id="nowhere"))
    await wait_until(lambda: client.complete)
    assert (client.status, client.problem) == (404, "unknown-event")


@pytest.mark.usefixtures("unpublished")
async def test_one_request_to_the_services_serves_all_new_streams(notifier: Notifier, neighbours: Neighbours):
    clients = [await notifier.listen(token=signed_pass(n)) for n in range(5)]
    await wait_until(lambda: all(client.last("sections") for client in clients))
    assert (neighbours.queue.calls["/rooms/frame"], neighbours.inventory.calls["/stock"]) == (1, 1)
    assert await notifier.channels() == {line_channel(EVENT), stock_channel(EVENT)}


__all__ = ["slow_reader"]


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"notifier_{name}", labels) or 0.0


class Increase:
    """By how much metric samples have grown since this was created."""

    def __init__(self) -> None:
        samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
        self._before = {(each.name, *sorted(each.labels.items())): each.value for each in samples}

    def of(self, name: str, **labels: str) -> float:
        return value(name, **labels) - self._before.get((f"notifier_{name}", *sorted(labels.items())), 0.0)


async def test_event_age_and_fan_out_are_measured_once_for_each_frame(notifier: Notifier):
    increase = Increase()
    clients = [await notifier.connect(token=queue_token(n)) for n in range(3)]
    old = line_frame(11, 6).model_copy(update={"at_ms": line_frame(1).at_ms - 1_500})
    await notifier.publish(old)
    await wait_until(lambda: all_have_head(clients, 6))
    counts = ("event_age_seconds_count", "fan_out_seconds_count", "frames_written_total")
    assert [increase.of(name, kind="event") for name in counts] == [1, 1, 3]
    assert 1.5 <= increase.of("event_age_seconds_sum", kind="event") < 3


async def test_frames_that_wait_for_a_window_are_counted_as_conflated(start: Start):
    notifier, increase = await start(window_ms=200), Increase()
    client = await notifier.connect()
    for head_seq in range(6, 16):
        await notifier.publish(line_frame(head_seq + 5, head_seq))
    await wait_until(lambda: client.head_seq == 15)
    assert 7 <= increase.of("frames_conflated_total", kind="event") <= 9


async def test_a_slow_reader_is_counted_as_paused_skipped_and_ended(slow_reader: SlowReader):
    increase = Increase()
    notifier, _, client = await slow_reader(slow_reader_max_s=1.0, heartbeat_s=1)
    await flood(notifier, client, range(1000, 1012))
    assert value("streams_paused") == 1
    await wait_until(lambda: increase.of("streams_ended_total", reason="slow") == 1)
    assert increase.of("frames_skipped_total", kind="event") > 2
    assert value("streams_paused") == 0


async def test_reconnects_are_counted_by_the_kind_of_their_replay(notifier: Notifier):
    increase = Increase()
    client = await notifier.listen()
    await wait_until(lambda: client.last_id)
    first_id = client.last_id or ""
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: client.last_id != first_id)
    for last_event_id in (first_id, client.last_id or "", "1.77"):
        back = await notifier.listen(last_event_id=last_event_id)
        await wait_until(partial(getattr, back, "retries"))
    assert [increase.of("replays_total", kind=kind) for kind in ("none", "delta", "snapshot")] == [1, 1, 2]
    assert [increase.of(name) for name in ("reconnects_total", "resume_failures_total")] == [3, 1]
    assert increase.of("streams_opened_total", transport="detached") == 4


async def test_rejected_and_ended_streams_are_counted(start: Start):
    notifier, increase = await start(streams_max=1), Increase()
    client = await notifier.listen()
    await wait_until(lambda: value("streams_open", kind="event") == 1)
    late = await notifier.listen(token=queue_token(2))
    await wait_until(lambda: late.closed)
    assert increase.of("streams_rejected_total", reason="full") == 1
    await client.close()
    await wait_until(lambda: increase.of("streams_ended_total", reason="left") == 1)


async def refusal(client: SseClient) -> tuple[int, str]:
    await wait_until(lambda: client.complete)
    return client.status, client.problem


@pytest.mark.parametrize("cookie", ["onsale_queue_arena", "onsale_pass_arena"])
async def test_a_token_in_its_cookie_opens_the_stream(notifier: Notifier, cookie: str):
    token = queue_token(1) if "queue" in cookie else signed_pass()
    client = await notifier.open(UPDATES, cookie=f"onsale_queue_arena=broken; {cookie}={token}")
    await wait_until(lambda: client.last("sections"))


async def test_without_a_valid_credential_there_is_no_stream(notifier: Notifier, neighbours: Neighbours):
    forged, expired = queue_token(1)[:-4] + "AAAA", signed_pass(until_s=time.time() - 60)
    good_cookie = f"onsale_queue_{EVENT}={queue_token(1)}"
    assert await refusal(await notifier.open(UPDATES)) == (401, "no-credential")
    for token in (forged, order_token(), expired):
        assert await refusal(await notifier.listen(token=token, cookie=good_cookie)) == (401, "bad-credential")
    for token in (queue_token(1, event_id="other"), signed_pass(event_id="other")):
        assert await refusal(await notifier.listen(token=token)) == (403, "wrong-event")
    assert not neighbours.inventory.calls
    assert set(neighbours.queue.calls) <= {"/heartbeats"}
    assert await notifier.channels() == set()


async def test_an_order_stream_reaches_its_owner_only(notifier: Notifier, neighbours: Neighbours):
    await write_order(await neighbours.real_orders.open(), "OTHER12345")
    cookie = f"onsale_order_{REFERENCE}"
    assert await refusal(await notifier.open(ORDER_PATH)) == (401, "no-credential")
    assert await refusal(await notifier.open(ORDER_PATH, token=order_token("OTHER12345"))) == (403, "not-allowed")
    by_cookie_of_another = await notifier.open(ORDER_PATH, cookie=f"{cookie}={order_token('OTHER12345')}")
    assert await refusal(by_cookie_of_another) == (403, "not-allowed")
    assert await refusal(await notifier.open(ORDER_PATH, token=queue_token(1))) == (401, "bad-credential")
    mine = [await notifier.listen_order(), await notifier.open(ORDER_PATH, cookie=f"{cookie}={order_token()}")]
    other = await notifier.listen_order("OTHER12345")
    await wait_until(lambda: all(client.last("order") for client in (*mine, other)))
    await notifier.publish(order_frame(11, "confirmed"))
    await wait_until(lambda: all(client.last("order")["status"] == "confirmed" for client in mine))
    assert [data["reference"] for data in other.all("order")] == ["OTHER12345"]


@pytest.mark.parametrize("query", ["?sections=", "?sections=A-1", "?sections=A,,B", f"?sections={'A,' * 50}A"])
async def test_a_malformed_filter_is_refused(notifier: Notifier, query: str):
    assert await refusal(await notifier.listen(query)) == (422, "malformed-filter")


async def test_the_refusal_of_an_unknown_section_names_it(notifier: Notifier):
    await notifier.connect()
    wrong = await notifier.listen("?sections=A,ZZZ")
    assert await refusal(wrong) == (422, "malformed-filter")
    assert b"no section ZZZ" in wrong.body


async def test_malformed_event_ids_and_other_methods_are_refused_and_head_opens_no_stream(notifier: Notifier):
    assert (await notifier.listen(event_id="-bad-")).status == 404
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{notifier.port}") as client:
        assert (await client.post(UPDATES)).status_code == 405
        for path, token in ((UPDATES, queue_token(1)), (ORDER_PATH, order_token())):
            answer = await client.head(path, headers={"authorization": f"Bearer {token}"})
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            assert (answer.headers["x-accel-buffering"], answer.content) == ("no", b"")
    assert len(notifier.state.hub) == 0


def rejected(client: SseClient, reason: str) -> bool:
    only_rejected = [(event.name, event.data["why"]) for event in client.events] == [("turned_away", reason)]
    return client.status == 200 and client.complete and client.closed and only_rejected and client.retries[0] >= 10_000


async def test_a_full_process_rejects_new_streams_with_a_retry_delay(start: Start):
    notifier = await start(streams_max=2)
    clients = [await notifier.listen(token=queue_token(n)) for n in range(2)]
    late = await notifier.listen(token=queue_token(3))
    await wait_until(lambda: rejected(late, "full"))
    await clients[0].close()
    await wait_until(lambda: len(notifier.state.hub) == 1)
    await notifier.connect(token=queue_token(4))


async def test_the_streams_of_one_fan_are_limited(start: Start):
    notifier = await start(streams_per_identity=2)
    for _ in range(2):
        await notifier.listen(token=queue_token(1))
    late = await notifier.listen(token=signed_pass(1))
    await wait_until(lambda: rejected(late, "identity"))
    await notifier.connect(token=queue_token(2))


def named(client: SseClient) -> list[str]:
    return [section["section_id"] for section in client.last("sections")["sections"]]


async def test_beyond_so_many_distinct_filters_a_stream_shows_everything(start: Start):
    notifier = await start(filters_per_event=1)
    first, same = await notifier.listen("?sections=A"), await notifier.listen("?sections=A")
    unfiltered, other = await notifier.listen(token=queue_token(2)), await notifier.listen("?sections=B")
    await wait_until(lambda: all(client.last("sections") for client in (first, same, unfiltered, other)))
    assert (named(first), named(same), named(other)) == (["A"], ["A"], named(unfiltered))
    assert (await refusal(await notifier.listen("?sections=NONE")))[0] == 422


async def test_the_seat_filters_of_one_fan_turn_no_other_fan_away(start: Start):
    notifier = await start(filters_per_event=2, streams_per_identity=10)
    for query in ("?seats=A", "?seats=B", "?seats=A,B"):
        await notifier.connect(query, token=signed_pass(1))
    other = await notifier.listen("?sections=A&seats=B", token=signed_pass(2))
    await wait_until(lambda: other.last("seats"))
    assert other.last("seats") == {"v": FIRST + 10, "s": "AAA=", "all": True}
    await notifier.publish(seats_frame(11, bytes([1, 0, 0, 0, 0, 1, 0, 0])))
    await wait_until(lambda: other.last("seats")["v"] == FIRST + 11)
    assert other.last("seats")["all"]


async def test_many_new_streams_within_a_second_are_accepted(start: Start):
    notifier = await start(streams_new_per_s=20, lag_max_s=30, first_snapshot_timeout_s=30)  # a slow machine lags
    clients = await asyncio.gather(*(notifier.listen(token=queue_token(n)) for n in range(100)))
    await wait_until(lambda: all(client.events for client in clients))
    assert len(notifier.state.hub) == 100, "the number in a second alone rejects no stream"


async def test_while_the_loop_lags_new_streams_are_rejected_and_later_accepted(start: Start):
    notifier = await start(lag_max_s=0.2)
    early = await notifier.listen(token=queue_token(1))
    blocked = asyncio.create_task(block_the_loop(notifier))
    late = await notifier.listen(token=queue_token(2))
    await wait_until(lambda: rejected(late, "lag"))
    blocked.cancel()
    await wait_until(lambda: notifier.state.headroom.shortage(asyncio.get_running_loop().time()) is None)
    await notifier.connect(token=queue_token(3))
    assert not early.closed, "open streams stay open"


async def block_the_loop(notifier: Notifier) -> None:
    """Blocks the event loop for longer than its allowed lag."""
    while True:
        until_s = time.monotonic() + 0.3
        while time.monotonic() < until_s:
            pass
        await asyncio.sleep(0)


def test_the_streams_are_in_the_openapi_document():
    document = create_app(Settings()).openapi()
    for path in ("/events/{event_id}/sections/updates", "/orders/{reference}/updates"):
        assert "text/event-stream" in document["paths"][path]["get"]["responses"]["200"]["content"]


def test_too_little_memory_rejects_new_streams() -> None:
    headroom = Headroom(tuning := Tuning())
    least = tuning.memory_free_min_mib * MIB
    for free_bytes, shortage in ((None, None), (least, None), (least - 1, "memory")):
        headroom._free_bytes = free_bytes
        assert headroom.shortage(0.0) == shortage


STREAMS = pytest.mark.parametrize("query", ["", "?seats=*", "?sections=A", "?seats=A"])


PLACE = PlacesQuestion(event_id=EVENT, epoch=1, places=[PlaceRef(lane=0, join_seq=1, holder="ada")])


async def admit(queue: QueueState) -> str:
    """The pass of a fan who joined and was called."""
    await queue.joins.join(JoinBatch(event_id=EVENT, batch_id="a-batch-1", joins=[JoinRequest(holder="ada")]))
    queue.line.clock_offset_ms += 1_000
    await queue.gatekeeper.tick(EVENT)
    [claimed] = await queue.claims.claim(PLACE)
    assert claimed.admission is not None, claimed.word
    return claimed.admission


async def open_stream(notifier: Notifier, query: str, token: str) -> SseClient:
    client = await notifier.listen(query, token=token)
    await wait_until(lambda: client.last("seats" if "seats" in query else "sections"))
    return client


async def reset(neighbours: Neighbours) -> None:
    """The waiting room begins anew, in epoch 2."""
    queue = await neighbours.real_queue.open()
    await queue.operations.reset(EVENT, TEST)


async def is_refused(client: SseClient, status: int, slug: str) -> None:
    await wait_until(lambda: client.complete)
    assert (client.status, client.problem) == (status, slug)


@STREAMS
async def test_a_released_pass_opens_no_stream(notifier: Notifier, neighbours: Neighbours, query: str):
    queue = await neighbours.real_queue.open()
    token = await admit(queue)
    await queue.claims.leave(PLACE)
    await is_refused(await notifier.listen(query, token=token), 401, "bad-credential")


@STREAMS
async def test_a_pass_of_before_a_reset_opens_no_stream(notifier: Notifier, neighbours: Neighbours, query: str):
    await reset(neighbours)
    await is_refused(await notifier.listen(query, token=signed_pass(epoch=1)), 401, "bad-credential")
    await notifier.listen(query, token=signed_pass(epoch=2))
    assert notifier.clients[-1].status == 200


async def test_a_place_of_before_a_reset_opens_no_stream(notifier: Notifier, neighbours: Neighbours):
    await reset(neighbours)
    await is_refused(await notifier.listen(token=queue_token(1, epoch=1)), 410, "stale-epoch")


@STREAMS
async def test_releasing_a_pass_ends_its_streams_and_no_others(notifier: Notifier, neighbours: Neighbours, query: str):
    queue = await neighbours.real_queue.open()
    token = await admit(queue)
    client, other = await open_stream(notifier, query, token), await notifier.connect()
    await queue.claims.leave(PLACE)
    await wait_until(lambda: client.closed)
    await is_refused(await notifier.listen(query, token=token), 401, "bad-credential")
    assert not other.closed


@STREAMS
async def test_a_reset_ends_the_streams_of_the_passes_before_it(notifier: Notifier, neighbours: Neighbours, query: str):
    client = await open_stream(notifier, query, signed_pass())
    await reset(neighbours)
    await wait_until(lambda: client.closed)
