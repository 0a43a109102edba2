"""Access to streams: credentials, refusals of bad requests, and limits of the number of open streams."""

import asyncio
import sys
import time

import pytest

from services.notifier.app import create_app
from services.notifier.settings import Settings
from tests.notifier.client import UPDATES, SseClient, raw_request
from tests.notifier.conftest import Notifier, Start
from tests.notifier.fake_services import FakeServices
from tests.notifier.frames import EVENT, REFERENCE, order_frame
from tests.notifier.tokens import order_token, queue_token, signed_pass
from tests.support.wait import wait_until


async def refusal(client: SseClient) -> tuple[int, str]:
    await wait_until(lambda: client.complete)
    return client.status, client.problem


@pytest.mark.parametrize("cookie", ["onsale_queue_arena", "onsale_pass_arena"])
async def test_a_token_in_its_cookie_opens_the_stream(notifier: Notifier, cookie: str):
    token = queue_token(1) if "queue" in cookie else signed_pass()
    client = await notifier.open(UPDATES, cookie=f"onsale_queue_arena=broken; {cookie}={token}")
    await wait_until(lambda: client.last("sections"))


async def test_without_a_valid_credential_there_is_no_stream(notifier: Notifier, services: FakeServices):
    assert await refusal(await notifier.open(UPDATES)) == (401, "no-credential")
    forged = queue_token(1)[:-4] + "AAAA"
    assert await refusal(await notifier.listen(token=forged)) == (401, "bad-credential")
    assert await refusal(await notifier.listen(token=order_token())) == (401, "bad-credential")
    expired = signed_pass(until_s=time.time() - 60)
    assert await refusal(await notifier.listen(token=expired)) == (401, "bad-credential")
    good_cookie = f"onsale_queue_{EVENT}={queue_token(1)}"
    assert await refusal(await notifier.listen(token=forged, cookie=good_cookie)) == (401, "bad-credential")
    assert services.calls == []
    assert await notifier.channels() == set()


async def test_an_order_stream_opens_with_the_orders_cookie(notifier: Notifier):
    path = f"/orders/{REFERENCE}/updates"
    client = await notifier.open(path, cookie=f"onsale_order_{REFERENCE}={order_token()}")
    await wait_until(lambda: client.last("order"))
    await notifier.publish(order_frame(11, "refunded"))
    await wait_until(lambda: client.last("order")["status"] == "refunded")
    other = await notifier.open(path, cookie=f"onsale_order_{REFERENCE}={order_token('OTHER12345')}")
    assert await refusal(other) == (403, "not-allowed")


async def test_a_credential_for_another_event_is_refused(notifier: Notifier):
    for token in (queue_token(1, event_id="other"), signed_pass(event_id="other")):
        assert await refusal(await notifier.listen(token=token)) == (403, "wrong-event")


async def test_an_order_stream_reaches_its_owner_only(notifier: Notifier, services: FakeServices):
    services.orders["OTHER12345"] = order_frame(10, "confirmed", "OTHER12345")
    path = f"/orders/{REFERENCE}/updates"
    assert await refusal(await notifier.open(path)) == (401, "no-credential")
    assert await refusal(await notifier.open(path, token=order_token("OTHER12345"))) == (403, "not-allowed")
    assert await refusal(await notifier.open(path, token=queue_token(1))) == (401, "bad-credential")
    mine, other = await notifier.listen_order(), await notifier.listen_order("OTHER12345")
    await wait_until(lambda: mine.last("order") and other.last("order"))
    await notifier.publish(order_frame(11, "confirmed"))
    await wait_until(lambda: mine.last("order")["status"] == "confirmed")
    assert [data["reference"] for data in other.all("order")] == ["OTHER12345"]


@pytest.mark.parametrize("query", ["?sections=", "?sections=A-1", "?sections=A,,B", f"?sections={'A,' * 50}A"])
async def test_a_malformed_filter_is_refused(notifier: Notifier, query: str):
    assert await refusal(await notifier.listen(query)) == (422, "malformed-filter")


async def test_the_refusal_of_an_unknown_section_names_it(notifier: Notifier):
    await notifier.connect()
    wrong = await notifier.listen("?sections=A,ZZZ")
    assert await refusal(wrong) == (422, "malformed-filter")
    assert b"no section ZZZ" in wrong.body


async def test_other_methods_and_malformed_event_ids_are_refused(notifier: Notifier):
    assert (await notifier.listen(event_id="-bad-")).status == 404
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(f"POST {UPDATES} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode())
    assert b" 405 " in await reader.readline()
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(raw_request(order_token(), f"/orders/{REFERENCE}/updates", method="HEAD"))
    async with asyncio.timeout(5):
        assert b" 200 " in await reader.read()
    writer.close()


def rejected(client: SseClient) -> bool:
    only_rejected = [event.name for event in client.events] == ["turned_away"]
    return client.status == 200 and client.complete and client.closed and only_rejected and client.retries[0] >= 10_000


async def test_a_full_process_rejects_new_streams_with_a_retry_delay(start: Start):
    notifier = await start(streams_max=2)
    clients = [await notifier.listen(token=queue_token(n)) for n in range(2)]
    late = await notifier.listen(token=queue_token(3))
    await wait_until(lambda: rejected(late))
    await clients[0].close()
    await wait_until(lambda: len(notifier.state.hub) == 1)
    await notifier.connect(token=queue_token(4))


async def test_the_streams_of_one_fan_are_limited(start: Start):
    notifier = await start(streams_per_identity=2)
    for _ in range(2):
        await notifier.listen(token=queue_token(1))
    late, another = await notifier.listen(token=signed_pass(1)), await notifier.listen(token=queue_token(2))
    await wait_until(lambda: rejected(late))
    await wait_until(lambda: another.last("sections"))


async def test_the_number_of_distinct_filters_is_limited(start: Start):
    notifier = await start(filters_per_event=1)
    first, same = await notifier.listen("?sections=A"), await notifier.listen("?sections=A")
    unfiltered, other = await notifier.listen(token=queue_token(2)), await notifier.listen("?sections=B")
    await wait_until(lambda: all(client.last("sections") for client in (first, same, unfiltered)))
    await wait_until(lambda: rejected(other))


async def test_many_new_streams_within_a_second_are_accepted(start: Start):
    notifier = await start(streams_new_per_s=500, lag_max_s=30, first_snapshot_timeout_s=30)  # a slow machine lags
    outcomes = await open_many(notifier, 3_000)
    assert outcomes == {"accepted": 3_000}, "the number in a second alone rejects no stream"


async def test_while_the_loop_lags_new_streams_are_rejected_and_later_accepted(start: Start):
    notifier = await start(lag_max_s=0.2)
    early = await notifier.listen(token=queue_token(1))
    blocked = asyncio.create_task(block_the_loop(notifier))
    late = await notifier.listen(token=queue_token(2))
    await wait_until(lambda: rejected(late))
    assert late.last("turned_away")["why"] == "lag"
    blocked.cancel()
    await wait_until(lambda: notifier.state.headroom.shortage(asyncio.get_running_loop().time()) is None)
    await notifier.connect(token=queue_token(3))
    assert not early.closed, "open streams stay open"


async def block_the_loop(notifier: Notifier) -> None:
    """Blocks the event loop for longer than its allowed lag."""
    while True:
        until_s = time.monotonic() + 0.6
        while time.monotonic() < until_s:
            pass
        await asyncio.sleep(0)


OPEN_MANY = """
import asyncio, collections, sys, time

async def one(port, token, begin):
    await asyncio.sleep(max(0, begin - time.time()))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /events/EVENT/sections/updates HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {token}\\r\\n\\r\\n"
    writer.write(head.encode())
    body = b""
    while b"event: sections" not in body and b"event: turned_away" not in body:
        data = await asyncio.wait_for(reader.read(4096), 60)
        if not data:
            return "closed", writer
        body += data
    return ("accepted" if b"event: sections" in body else "rejected"), writer

async def main():
    port, *tokens = sys.stdin.read().split()
    begin = time.time() + 0.2
    outcomes = await asyncio.gather(*(one(port, token, begin + n / len(tokens)) for n, token in enumerate(tokens)))
    for outcome, count in collections.Counter(outcome for outcome, _ in outcomes).items():
        print(count, outcome)

asyncio.run(main())
"""


async def open_many(notifier: Notifier, size: int) -> dict[str, int]:
    """Opens this many streams within a second, from another process; returns the number of each outcome."""
    lines = "\n".join([str(notifier.port), *(queue_token(n) for n in range(1, size + 1))])
    program = OPEN_MANY.replace("EVENT", EVENT)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    outcomes, _ = await child.communicate(lines.encode())
    return {outcome: int(count) for count, outcome in (line.split(" ", 1) for line in outcomes.decode().splitlines())}


def test_the_streams_are_in_the_openapi_document():
    document = create_app(Settings()).openapi()
    for path in ("/events/{event_id}/sections/updates", "/orders/{reference}/updates"):
        assert "text/event-stream" in document["paths"][path]["get"]["responses"]["200"]["content"]
