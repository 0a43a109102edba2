"""Credentials of streams, answers to bad requests, and the limits of open streams."""

import asyncio
import sys
import time

import pytest

from services.notifier.app import create_app
from services.notifier.settings import Settings
from tests.notifier.client import SseClient
from tests.notifier.conftest import EVENT, REFERENCE, FakeServices, Notifier, Start, admitted, fan, order, order_token
from tests.support.wait import wait_until


async def refusal(client: SseClient) -> tuple[int, str]:
    await wait_until(lambda: client.complete)
    return client.status, client.problem


@pytest.mark.parametrize("cookie", ["onsale_queue_arena", "onsale_pass_arena"])
async def test_a_token_in_its_cookie_opens_the_stream(notifier: Notifier, cookie: str):
    token = fan(1) if "queue" in cookie else admitted()
    client = await notifier.open(
        f"/events/{EVENT}/sections/updates", cookie=f"onsale_queue_arena=broken; {cookie}={token}"
    )
    await wait_until(lambda: client.last("sections"))


async def test_without_a_good_credential_nobody_listens(notifier: Notifier, services: FakeServices):
    path = f"/events/{EVENT}/sections/updates"
    assert await refusal(await notifier.open(path)) == (401, "no-credential")
    forged = fan(1)[:-4] + "AAAA"
    assert await refusal(await notifier.listen(token=forged)) == (401, "bad-credential")
    assert await refusal(await notifier.listen(token=order_token())) == (401, "bad-credential")
    ended = admitted(until_s=time.time() - 60)
    assert await refusal(await notifier.listen(token=ended)) == (401, "bad-credential")
    good_cookie = f"onsale_queue_{EVENT}={fan(1)}"
    assert await refusal(await notifier.listen(token=forged, cookie=good_cookie)) == (401, "bad-credential")
    assert services.calls == []
    assert await notifier.channels() == set()


async def test_an_order_page_listens_with_its_cookie_alone(notifier: Notifier):
    path = f"/orders/{REFERENCE}/updates"
    client = await notifier.open(path, cookie=f"onsale_order_{REFERENCE}={order_token()}")
    await wait_until(lambda: client.last("order"))
    await notifier.show(order(11, "refunded"))
    await wait_until(lambda: client.last("order")["status"] == "refunded")
    other = await notifier.open(path, cookie=f"onsale_order_{REFERENCE}={order_token('OTHER12345')}")
    assert await refusal(other) == (403, "not-allowed")


async def test_a_credential_for_another_event_is_refused(notifier: Notifier):
    for token in (fan(1, event_id="other"), admitted(event_id="other")):
        assert await refusal(await notifier.listen(token=token)) == (403, "wrong-event")


async def test_an_order_stream_reaches_its_owner_only(notifier: Notifier, services: FakeServices):
    services.orders["OTHER12345"] = order(10, "confirmed", "OTHER12345")
    path = f"/orders/{REFERENCE}/updates"
    assert await refusal(await notifier.open(path)) == (401, "no-credential")
    assert await refusal(await notifier.open(path, token=order_token("OTHER12345"))) == (403, "not-allowed")
    assert await refusal(await notifier.open(path, token=fan(1))) == (401, "bad-credential")
    mine, other = await notifier.listen_order(), await notifier.listen_order("OTHER12345")
    await wait_until(lambda: mine.last("order") and other.last("order"))
    await notifier.show(order(11, "confirmed"))
    await wait_until(lambda: mine.last("order")["status"] == "confirmed")
    assert [data["reference"] for data in other.all("order")] == ["OTHER12345"]


@pytest.mark.parametrize("query", ["?sections=", "?sections=A-1", "?sections=A,,B", f"?sections={'A,' * 50}A"])
async def test_a_malformed_filter_is_refused(notifier: Notifier, query: str):
    assert await refusal(await notifier.listen(query)) == (422, "malformed-filter")


async def test_a_section_that_the_event_does_not_have_is_named(notifier: Notifier):
    first = await notifier.listen()
    await wait_until(lambda: first.last("sections"))
    wrong = await notifier.listen("?sections=A,ZZZ")
    assert await refusal(wrong) == (422, "malformed-filter")
    assert b"no section ZZZ" in wrong.body


async def test_other_methods_and_names_are_refused(notifier: Notifier):
    assert (await notifier.listen(event_id="-bad-")).status == 404
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(f"POST /events/{EVENT}/sections/updates HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode())
    assert b" 405 " in await reader.readline()
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    head = f"HEAD /orders/{REFERENCE}/updates HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {order_token()}\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(5):
        assert b" 200 " in await reader.read()
    writer.close()


def rejected(client: SseClient) -> bool:
    outcomes = [event.name for event in client.events] == ["turned_away"]
    return client.status == 200 and client.complete and client.closed and outcomes and client.retries[0] >= 10_000


async def test_when_full_a_listener_is_rejected_with_retry(start: Start):
    notifier = await start(streams_max=2)
    clients = [await notifier.listen(token=fan(n)) for n in range(2)]
    late = await notifier.listen(token=fan(3))
    await wait_until(lambda: rejected(late))
    await clients[0].close()
    await wait_until(lambda: len(notifier.state.hub) == 1)
    again = await notifier.listen(token=fan(4))
    await wait_until(lambda: again.last("sections"))


async def test_one_fan_cannot_take_all_streams(start: Start):
    notifier = await start(streams_per_identity=2)
    for _ in range(2):
        await notifier.listen(token=fan(1))
    late, another = await notifier.listen(token=admitted(1)), await notifier.listen(token=fan(2))
    await wait_until(lambda: rejected(late))
    await wait_until(lambda: another.last("sections"))


async def test_distinct_filters_are_bounded(start: Start):
    notifier = await start(filters_per_event=1)
    first, same = await notifier.listen("?sections=A"), await notifier.listen("?sections=A")
    everything, other = await notifier.listen(token=fan(2)), await notifier.listen("?sections=B")
    await wait_until(lambda: all(client.last("sections") for client in (first, same, everything)))
    await wait_until(lambda: rejected(other))


async def test_a_crowd_within_a_second_is_accepted(start: Start):
    notifier = await start(
        streams_new_per_s=500, lag_max_s=30, first_snapshot_timeout_s=30
    )  # others may be busy on this machine
    outcomes = await crowd(notifier, 3_000)
    assert outcomes == {"let in": 3_000}, "no number of a second is a reason"


async def test_while_the_loop_lags_new_streams_are_rejected_and_later_accepted(start: Start):
    notifier = await start(lag_max_s=0.2)
    early = await notifier.listen(token=fan(1))
    blocked = asyncio.create_task(block_the_loop(notifier))
    late = await notifier.listen(token=fan(2))
    await wait_until(lambda: rejected(late))
    assert late.last("turned_away")["why"] == "lag"
    blocked.cancel()
    await wait_until(lambda: notifier.state.headroom.shortage(asyncio.get_running_loop().time()) is None)
    again = await notifier.listen(token=fan(3))
    await wait_until(lambda: again.last("sections"))
    assert not early.closed, "who listens already is not sent away for it"


async def block_the_loop(notifier: Notifier) -> None:
    """Blocks the event loop for longer than its allowed lag."""
    while True:
        until_s = time.monotonic() + 0.6
        while time.monotonic() < until_s:
            pass
        await asyncio.sleep(0)


CROWD = """
import asyncio, collections, sys, time

async def one(port, token, begin):
    await asyncio.sleep(max(0, begin - time.time()))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /events/EVENT/sections/updates HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {token}\\r\\n\\r\\n"
    writer.write(head.encode())
    told = b""
    while b"event: sections" not in told and b"event: turned_away" not in told:
        some = await asyncio.wait_for(reader.read(4096), 60)
        if not some:
            return "closed", writer
        told += some
    return ("let in" if b"event: sections" in told else "turned away"), writer

async def main():
    port, *tokens = sys.stdin.read().split()
    begin = time.time() + 0.2
    told = await asyncio.gather(*(one(port, token, begin + n / len(tokens)) for n, token in enumerate(tokens)))
    for word, many in collections.Counter(word for word, _ in told).items():
        print(many, word)

asyncio.run(main())
"""


async def crowd(notifier: Notifier, size: int) -> dict[str, int]:
    """Opens so many streams from a process of its own within a second; returns their outcomes."""
    lines = "\n".join([str(notifier.port), *(fan(n) for n in range(1, size + 1))])
    program = CROWD.replace("EVENT", EVENT)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    outcomes, _ = await child.communicate(lines.encode())
    return {outcome: int(count) for count, outcome in (line.split(" ", 1) for line in outcomes.decode().splitlines())}


def test_the_streams_are_documented():
    document = create_app(Settings()).openapi()
    for path in ("/events/{event_id}/sections/updates", "/orders/{reference}/updates"):
        assert "text/event-stream" in document["paths"][path]["get"]["responses"]["200"]["content"]
