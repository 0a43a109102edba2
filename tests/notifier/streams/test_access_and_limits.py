"""Access to streams: credentials, refusals of bad requests, and limits of the number of open streams and of the memory.
A pass that was released, or that a reset of the waiting room ended, opens no stream, and its streams end.
"""

import asyncio
import time

import httpx
import pytest

from services.notifier.app import create_app
from services.notifier.headroom import MIB, Headroom
from services.notifier.settings import Settings
from services.notifier.tuning import Tuning
from services.queue.state import State as QueueState
from shared.contracts.queue import JoinBatch, JoinRequest, PlaceRef, PlacesQuestion
from tests.notifier.client import UPDATES, SseClient
from tests.notifier.conftest import ORDER_PATH, Notifier, Start
from tests.notifier.frames import EVENT, FIRST, REFERENCE, order_frame, seats_frame
from tests.notifier.orders import write_order
from tests.notifier.tokens import order_token, queue_token, signed_pass
from tests.support.running.services import TEST, Neighbours
from tests.support.wait import wait_until


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
