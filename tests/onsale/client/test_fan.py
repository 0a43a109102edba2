"""`Fan`: each step uses what the one before was given, and an order is seen through to its end."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from onsale.client import Client, Fan, NotCalled, Problem
from onsale.client import fan as fan_module
from onsale.client.fan import Pace, Paying
from onsale.client.fan_documents import CustomerDetails, OrderAccepted, Payment

ADA: CustomerDetails = {"name": "Ada Lovelace", "email": "ada@example.org"}
CARD: Payment = {"provider": "sandbox", "method": "ok"}
ORDER: Any = {"reference": "R", "order_token": "order-token"}
HELD: Any = {"reservation_id": "r1", "currency": "EUR"}
EAGER = Pace(poll_max_s=0.0, order_first_s=0.0, order_max_s=0.0)
TOO_LATE = httpx.Response(409, json={"type": "/problems/not-cancellable"})


class Suite:
    """Answers each path with its next answer, and its last one from then on."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers = answers
        self.asked: list[tuple[str, str, Any]] = []
        self.keys: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2].replace("-", "_")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.asked.append((f"{request.method} {name}", bearer, json.loads(request.content or b"null")))
        self.keys.append(request.headers.get("idempotency-key", ""))
        answers = self._answers[name]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def fan(self, **more: Any) -> Fan:
        client = Client("http://suite", http=httpx.AsyncClient(transport=httpx.MockTransport(self)), attempts_max=1)
        return Fan(client, "arena", pace=EAGER, **more)

    def times(self, what: str) -> int:
        return [asked for asked, *_ in self.asked].count(what)


def place(status: str, state: str = "open") -> dict[str, Any]:
    return {"status": status, "state": state, "poll_after_ms": 60_000, "join_seq": 7}


def order(status: str, attempt: str = "pending", page: str | None = None) -> dict[str, Any]:
    return {"reference": "R", "status": status, "attempt": {"status": attempt, "checkout_url": page}}


JOINED = {"queue_token": "queue-token", "join_seq": 7, "lane": 0}
PASS = {"pass": "a-pass", "checkout_key": "checkout"}


async def test_a_fan_comes_in_and_orders_at_the_quoted_price() -> None:
    suite = Suite(
        queue=[JOINED], status=[place("waiting"), place("ready")], **{"pass": [PASS]},
        quote=[{"total_minor": 5250, "currency": "EUR"}], orders=[ORDER], R=[order("pending"), order("confirmed")],
    )  # fmt: skip
    fan = await suite.fan(customer=ADA, payment=CARD).come_in()
    assert (fan.join_seq, fan.queue_token, fan.admission) == (7, "queue-token", "a-pass")
    assert (await fan.buy(HELD))["status"] == "confirmed"
    bearers = {what: bearer for what, bearer, _ in suite.asked}
    assert bearers == {
        "POST queue": "", "GET status": "queue-token", "POST pass": "queue-token", "POST quote": "a-pass",
        "POST orders": "a-pass", "GET R": "order-token",
    }  # fmt: skip
    body = next(body for what, _, body in suite.asked if what == "POST orders")
    assert (body["expected_total_minor"], body["customer"], body["payment"]) == (5250, ADA, CARD)


@pytest.mark.parametrize("last", [place("expired"), place("waiting", "sold_out")])
async def test_a_fan_who_is_not_called_does_not_come_in(last: dict[str, Any]) -> None:
    suite = Suite(queue=[JOINED], status=[place("waiting"), last])
    with pytest.raises(NotCalled) as over:
        await suite.fan().come_in()
    assert over.value.last == last


def line(head_seq: int, **more: Any) -> dict[str, Any]:
    return {"state": "open", "head_seq": head_seq, "poll_after_ms": 1, "heartbeat_after_ms": 60_000, "near_places": 2,
            **more}  # fmt: skip


@pytest.fixture
def reads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_module, "FIRST_READ_S", 0.0)


@pytest.mark.usefixtures("reads_at_once")
async def test_a_fan_far_back_reads_the_public_line_until_the_place_is_near_the_head() -> None:
    far = place("waiting") | {"heartbeat_after_ms": 60_000}
    suite = Suite(queue=[JOINED, line(1), line(3), line(4), line(5)], status=[far, place("ready")], **{"pass": [PASS]})
    fan = suite.fan()
    fan.pace = Pace()
    await fan.come_in()
    asked = [what for what, *_ in suite.asked]
    assert asked == ["POST queue", "GET status", *["GET queue"] * 4, "GET status", "POST pass"]


@pytest.mark.parametrize(
    "read",
    [line(1, heartbeat_after_ms=None), line(1, state="sold_out"), line(1, lottery="drawn"),
     line(6)],
)  # fmt: skip
@pytest.mark.usefixtures("reads_at_once")
async def test_a_fan_asks_for_the_status_again_when_the_line_does_not_tell_it(read: dict[str, Any]) -> None:
    far = place("waiting") | {"heartbeat_after_ms": 60_000}
    suite = Suite(queue=[JOINED, read], status=[far, place("ready")], **{"pass": [PASS]})
    fan = suite.fan()
    fan.pace = Pace()
    await fan.come_in()
    assert (suite.times("GET queue"), suite.times("GET status")) == (1, 2)


async def test_a_cache_that_lags_behind_the_status_makes_no_fan_ask_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fan_module, "FIRST_READ_S", 0.05)
    suite = Suite(queue=[JOINED, line(6)], status=[place("waiting") | {"heartbeat_after_ms": 60_000}])
    fan = suite.fan()
    fan.pace = Pace()
    await fan.join()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await fan.wait()
    assert suite.times("GET status") <= 0.3 / (0.05 * 0.8) + 2


async def test_a_hold_that_came_too_late_is_asked_for_with_another_key() -> None:
    too_late, held = httpx.Response(410, json={"type": "/problems/hold-expired"}), {"reservation_id": "r1"}
    suite = Suite(reservations=[too_late, held])
    assert (await suite.fan().hold({"seats": ["A-1-1"]}))["reservation_id"] == "r1"
    assert len({*suite.keys}) == 2
    suite = Suite(reservations=[too_late, held])
    with pytest.raises(Problem):
        await suite.fan().hold({"seats": ["A-1-1"]}, key="mine")


async def test_an_order_needs_a_customer_and_a_payment() -> None:
    with pytest.raises(ValueError, match="a customer and a payment"):
        await Suite().fan(customer=ADA).order(HELD)


async def seen_through(answers: list[Any], paying: Paying, **more: Any) -> tuple[str, Suite]:
    """How an order ends that is answered so."""
    suite = Suite(R=answers, **more)
    accepted: OrderAccepted = ORDER
    return (await suite.fan().see_through(accepted, paying))["status"], suite


async def test_a_declined_payment_is_tried_again_with_what_the_fan_names() -> None:
    answers = [order("pending", "failed"), order("pending", "failed"), order("pending"), order("confirmed")]
    named: list[int] = []

    def again(number: int) -> Payment | None:
        named.append(number)
        return CARD if number == 2 else None

    status, suite = await seen_through(answers, Paying(again=again), payments=[{}])
    assert (status, named, suite.times("POST payments")) == ("confirmed", [2, 3], 1)


async def test_a_fan_goes_once_to_each_page_of_the_provider() -> None:
    first, second = order("pending", page="http://p/1"), order("pending", page="http://p/2")
    visited: list[str] = []

    async def go(url: str) -> None:
        visited.append(url)

    await seen_through([first, first, second, order("confirmed")], Paying(at_page=go))
    assert visited == ["http://p/1", "http://p/2"]


async def test_an_order_is_cancelled_once_and_what_comes_too_late_changes_nothing() -> None:
    answers = [order("pending"), order("pending"), order("confirmed")]
    status, suite = await seen_through(answers, Paying(cancels_after_s=-1), cancel=[TOO_LATE])
    assert (status, suite.times("POST cancel")) == ("confirmed", 1)
    with pytest.raises(Problem) as failed:
        await seen_through([order("pending")], Paying(cancels_after_s=-1), cancel=[httpx.Response(500)])
    assert (failed.value.status, failed.value.operation) == (500, "cancel_order")


async def test_a_fan_who_watches_asks_again_as_soon_as_the_line_reaches_the_place() -> None:
    frames = "".join(f'event: line\ndata: {{"head_seq": {head}, "state": "open"}}\n\n' for head in (6, 7))
    suite = Suite(updates=[httpx.Response(200, text=frames)])
    fan = suite.fan()
    fan.join_seq, fan.pace = 7, Pace()
    await fan.pause(place("waiting"), watches=True)  # type: ignore[arg-type]
    assert suite.times("GET updates") == 1
