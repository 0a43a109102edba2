"""The Python client against the suite: a purchase whose answers are lost is one purchase, and an operator's calls.

The example of the whole way of a fan, in the page about client libraries, runs as it is printed.
"""

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from onsale.client import Client, Fan, Operator, Problem
from onsale.client.connection import Answer, Request
from onsale.client.fan_documents import CustomerDetails, Payment
from tests.support.running.suite import RunningSuite

BUYER: CustomerDetails = {"name": "Ada Lovelace", "email": "ada@example.org"}
CARD: Payment = {"provider": "sandbox", "method": "ok"}


@pytest.fixture
async def client(suite: RunningSuite) -> AsyncIterator[Client]:
    async with Client(suite.url) as client:
        yield client


class CutConnections(Client):
    """The first answers to these operations are lost: the suite executed what the client knows nothing of."""

    def __init__(self, url: str, operations: set[str]) -> None:
        super().__init__(url)
        self._cut, self.sent = set(operations), list[str]()

    async def send(self, request: Request) -> Answer:
        answer = await super().send(request)
        self.sent.append(request.operation)
        if request.operation in self._cut:
            self._cut.remove(request.operation)
            raise ConnectionError
        return answer


async def test_a_purchase_whose_answers_are_lost_is_one_purchase(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with CutConnections(suite.url, {"join", "hold", "create_order"}) as client:
        fan = Fan(client, event_id)
        await fan.join()
        await fan.wait()
        await fan.claim()
        held = await fan.hold({"seats": ["A-1-1"]})
        order = await fan.order(held, BUYER, CARD)
        assert (await fan.settled(order))["status"] == "confirmed"
        assert [client.sent.count(name) for name in ("join", "hold", "create_order")] == [2, 2, 2]
    async with Operator(suite.url, suite.admin_key) as operator:
        assert [found.reference for found in (await operator.search_orders(event_id=event_id)).orders] == [
            order["reference"]
        ]
        assert (await operator.read_queue_flow(event_id)).joined == 1
    assert await suite.wrong(event_id) == []


async def test_an_operator_reads_and_changes_a_room(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with Operator(suite.url, suite.admin_key) as operator:
        assert (await operator.change_room(event_id, {"rate_per_s": 7, "reason": "test"})).rate_per_s == 7
        assert (await operator.set_room_state(event_id, "pause", {"reason": "test"})).state == "paused"
        assert (await operator.export_orders_csv(event_id=event_id)).decode("utf-8-sig").startswith("reference")
    async with httpx.AsyncClient() as http:
        with pytest.raises(Problem) as refused:
            await Operator(suite.url, "wrong", http=http).read_room(event_id)
    assert refused.value.status == 401


PAGE = Path(__file__).parents[3] / "docs" / "use" / "client-libraries.md"


def test_the_example_of_a_fan_runs(suite: RunningSuite) -> None:
    [example] = [
        each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "tickets(order)" in each
    ]
    command = [sys.executable, "-P", "-c", example.replace("http://localhost:8000", suite.url)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert re.search(r"order \w+ confirmed 2 tickets", done.stdout), done.stdout + done.stderr
