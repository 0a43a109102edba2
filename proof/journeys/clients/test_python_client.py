"""The Python client against the suite: a fan's whole way, what is refused, updates."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from onsale.client import Client, Fan, Problem
from onsale.client.fan_documents import CustomerDetails, Payment
from tests.support.running.suite import RunningSuite

BUYER: CustomerDetails = {"name": "Ada Lovelace", "email": "ada@example.org"}
CARD: Payment = {"provider": "sandbox", "method": "ok"}


@pytest.fixture
async def client(suite: RunningSuite) -> AsyncIterator[Client]:
    async with Client(suite.url) as client:
        yield client


async def test_a_fan_gets_from_joining_to_tickets(suite: RunningSuite, client: Client) -> None:
    fan = Fan(client, await suite.open_event())
    place, seen = await fan.join(), list[str]()
    ended = await fan.wait(lambda now: seen.append(now["status"]))
    assert (place["join_seq"], ended["status"], seen[-1]) == (1, "ready", "ready")
    await fan.claim()
    held = await fan.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]})
    order = await fan.order(held, BUYER, CARD)
    assert (await fan.order(held, BUYER, CARD))["reference"] == order["reference"]
    now = await fan.settled(order)
    assert (now["status"], now["total_minor"]) == ("confirmed", 8350)
    assert len((await fan.tickets(order))["tickets"]) == 2
    assert (await client.tickets_pdf(order["reference"], token=order["order_token"])).startswith(b"%PDF")
    assert await suite.wrong(fan.event_id) == []


async def test_what_the_suite_refuses_is_a_problem(suite: RunningSuite, client: Client) -> None:
    first, second = (Fan(client, event_id) for event_id in [await suite.open_event()] * 2)
    for fan in (first, second):
        await fan.join()
        await fan.wait()
        await fan.claim()
    await first.hold({"seats": ["A-1-1"]})
    with pytest.raises(Problem) as taken:
        await second.hold({"seats": ["A-1-1"]})
    assert (taken.value.status, taken.value.slug, taken.value.members["seats"]) == (409, "seats-taken", ["A-1-1"])
    with pytest.raises(Problem) as unknown:
        await client.event("nowhere")
    assert (unknown.value.status, unknown.value.type) == (404, "/problems/unknown-event")


async def test_updates_show_a_hold_of_somebody_else(suite: RunningSuite, client: Client) -> None:
    event_id = await suite.open_event()
    fan = Fan(client, event_id)
    await fan.join()
    await fan.wait()
    await fan.claim()
    left = []
    async with aclosing(client.event_updates(event_id, sections="GA1", token=fan.queue_token)) as updates:
        async for kind, frame in updates:
            if kind == "sections":
                left.append(frame["sections"][0]["available_seats"])
                if len(left) == 1:
                    await fan.hold({"ga": [{"section_id": "GA1", "quantity": 3}]})
                if left[-1] == 47:
                    break
    assert left[0] == 50
