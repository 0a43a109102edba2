"""Every operation of the internal APIs answers the same over HTTP and as a function of the same process, and neither
side changes what both of them hold.

Calls an internal endpoint of a service, or of its fake, and returns the parts of the answer that both must share.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

import httpx
import orjson
import pytest
from pydantic import BaseModel
from starlette.types import ASGIApp

from features.hall.inventory.api import INTERNAL as HALL
from features.hall.seat_codes import SeatsFrame
from features.lottery.contracts import EntryProof, ProofQuestion, PublishedLottery
from features.lottery.queue import draw
from features.pages import contracts as p
from features.pages import inventory, orders
from services.inventory.internal import API as INVENTORY
from services.orders.internal import API as ORDERS
from services.queue.admission.gatekeeper import admit_now
from services.queue.internal import API as QUEUE
from shared.contracts import catalogue as c
from shared.contracts import inventory as i
from shared.contracts import orders as o
from shared.contracts import queue as q
from shared.contracts.frames import LineFrame, Revoked, StockFrame
from shared.contracts.prices import PricesAnswer
from shared.errors.problems import Problem
from shared.routes import Service
from shared.rpc import ServiceClient, sign_service_call
from shared.security.tokens import development_keys
from shared.web.internal_api import InternalApi, OwnProcess
from tests.notifier.frames import EVENT, FILE, REFERENCE
from tests.notifier.orders import write_order
from tests.notifier.tokens import order_token
from tests.support.running.services import Neighbours

Answer = tuple[int, Any]
IGNORED = {"request_id", "detail", "instance", "title"}  # members of a problem that describe one case only
VARYING = {"at_ms", "until_ms", "expires_at_ms", "reserved_until_ms", "admission", "checkout_key", "version"}


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    """An HTTP client that calls the app without a network."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://service")


async def assert_same_answers(both: tuple[Any, Any], answers_of: Callable[[Any], Awaitable[Any]]) -> None:
    """Asks the real service and then its fake."""
    real, fake = [await answers_of(side) for side in both]
    assert fake == real


async def call_internal(client: httpx.AsyncClient, path: str, **request: Any) -> Answer:
    """Sends a signed request; returns the status and the comparable body."""
    content = orjson.dumps(request)
    headers = sign_service_call(development_keys("service"), "POST", f"/internal{path}", content)
    answer = await client.post(f"/internal{path}", content=content, headers=headers)
    return answer.status_code, comparable(answer.json())


def comparable(body: Any) -> Any:
    """The body without ignored fields; a varying field becomes whether it has a value."""
    if isinstance(body, dict):
        kept = {name: value for name, value in body.items() if name not in IGNORED}
        return {
            name: (value is not None) if name in VARYING else comparable(value) for name, value in sorted(kept.items())
        }
    return [comparable(each) for each in body] if isinstance(body, list) else body


SERVICES: dict[Service, InternalApi] = {
    "queue": InternalApi(QUEUE | draw.API), "inventory": InternalApi(INVENTORY | inventory.API | HALL),
    "orders": InternalApi(ORDERS | orders.API),
}  # fmt: skip


class Asked(NamedTuple):
    """A call as a client makes it."""

    service: Service
    path: str
    question: BaseModel
    answer: type[BaseModel]


PLACES = q.PlacesQuestion(event_id=EVENT, epoch=1, places=[q.PlaceRef(lane=0, join_seq=1, holder="h-1")])
JOINS = q.JoinBatch(event_id=EVENT, batch_id="batch-0001", joins=[q.JoinRequest(holder="h-1")])
ROOM = q.RoomQuestion(event_id=EVENT)


def calls(held: str) -> list[Asked]:
    """Every operation, in an order that leaves something to do for each; `held` is a reservation of the fan."""
    step = i.PaymentStep(event_id=EVENT, reservation_id=held, order_reference="X1")
    steps, payment = i.PaymentSteps(steps=[step]), o.PaymentRef(reservation_id=held, order_reference=REFERENCE)
    return [
        Asked("orders", "/checkout/read", p.ReadCheckout(event_id=EVENT, holder="h-1", reservation_id=held),
              p.CheckoutFacts),
        Asked("inventory", "/reservations/of-holder", p.FindReservation(event_id=EVENT, holder="h-1"),
              p.FoundReservation),
        Asked("queue", "/joins", JOINS, q.JoinAnswer),
        Asked("queue", "/places", q.HoldersQuestion(event_id=EVENT, holders=["h-1"]), q.HoldersAnswer),
        Asked("queue", "/status", PLACES, q.PlaceStatuses),
        Asked("queue", "/claims", PLACES, q.ClaimAnswer),
        Asked("queue", "/extensions", PLACES, q.ExtendAnswer),
        Asked("queue", "/rooms/revoked", ROOM, Revoked),
        Asked("queue", "/heartbeats", q.HeartbeatReport(reporter="gateway-1", events=[]), q.HeartbeatAnswer),
        Asked("queue", "/lottery", ROOM, PublishedLottery),
        Asked("queue", "/lottery/proof", ProofQuestion(event_id=EVENT, epoch=1, place=PLACES.places[0]), EntryProof),
        Asked("queue", "/rooms/frame", ROOM, LineFrame),
        Asked("queue", "/rooms/frame", q.RoomQuestion(event_id="nobody-knows"), LineFrame),
        Asked("inventory", "/sessions/end", i.EndSessions(event_id=EVENT, sessions=[
            i.SessionRef(jti="j-1", holder="h-1", expires_at_ms=2_000_000_000_000)]), i.SessionsAnswer),
        Asked("inventory", "/passes/min-epoch", i.MinPassEpoch(event_id=EVENT, epoch=1), i.MinPassEpoch),
        Asked("inventory", "/reservations/read", i.ReadReservations(reservation_ids=[held]), i.ReservationsAnswer),
        Asked("inventory", "/reminder-consents/poll", i.PollConsents(), i.ReminderConsents),
        *(Asked("inventory", f"/reservations/{step}", steps, i.StepsAnswer)
          for step in ("begin-payment", "extend-payment", "end-payment", "confirm", "release", "reacquire")),
        Asked("inventory", "/reservations/returns", i.ReturnStock(steps=[step], reason="test"), i.StepsAnswer),
        Asked("inventory", "/reservations/ticket-returns", i.ReturnTickets(
            return_id="t-1", event_id=EVENT, reservation_id=held, order_reference="X1", reason="test"), i.StepDone),
        Asked("inventory", "/events/list", p.ListEvents(after=None), p.ListedEvents),
        Asked("inventory", "/events/page", p.ReadEventPage(event_id=EVENT), p.EventPageFacts),
        Asked("inventory", "/sections/seats", p.ReadSeats(
            event_id=EVENT, section_id=FILE.sections[0].section_id, page=1, page_size=50), c.SeatPage),
        Asked("inventory", "/stock", i.ReadStock(event_id=EVENT), StockFrame),
        Asked("inventory", "/seats", i.ReadStock(event_id=EVENT), SeatsFrame),
        Asked("orders", "/reservations/status", o.PaymentsQuestion(payments=[payment]), o.PaymentsAnswer),
        Asked("orders", "/orders/refund", o.RefundsQuestion(refunds=[payment], reason="oversell"), o.RefundsAnswer),
        Asked("orders", "/events/prices", p.ReadPrices(event_id=EVENT, each=[4200]), PricesAnswer),
        Asked("orders", "/orders/own", p.ReadOwnOrder(reference=REFERENCE, token=order_token()), p.OwnOrder),
        Asked("orders", "/orders/own", p.ReadOwnOrder(reference=REFERENCE, token="forged"), p.OwnOrder),
        Asked("orders", "/orders/read", o.OrdersQuestion(references=[REFERENCE, "N0B0DY0000"]), o.OrdersAnswer),
        Asked("queue", "/releases", PLACES, q.ReleaseAnswer),
        Asked("queue", "/leaves", PLACES, q.LeaveAnswer),
    ]  # fmt: skip


@pytest.fixture
async def neighbours(redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Neighbours]:
    neighbours = Neighbours(FILE, monkeypatch, redis_url=redis_url, postgres_url=postgres_url)
    neighbours.real_orders.begins_with.append(write_order)
    yield neighbours
    await neighbours.close()


def test_every_operation_is_in_the_table() -> None:
    for name, api in SERVICES.items():
        assert {call.path for call in calls("r-1") if call.service == name} == api.keys()


def test_no_message_can_be_changed() -> None:
    kinds = {call.answer for call in calls("r-1")} | {
        each.question for api in SERVICES.values() for each in api.values()
    }
    found = {model for kind in kinds for model in _models(kind)}
    assert not [model.__name__ for model in found if not model.model_config.get("frozen")]


def _models(annotation: Any, seen: set[Any] | None = None) -> Iterator[type[BaseModel]]:
    """All models in this type."""
    seen = set() if seen is None else seen
    if annotation in seen if isinstance(annotation, type) else False:
        return
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        seen.add(annotation)
        yield annotation
        for field in annotation.model_fields.values():
            yield from _models(field.annotation, seen)
    for part in get_args(annotation):
        yield from _models(part, seen)


async def test_every_operation_answers_the_same_by_http_and_as_a_function(neighbours: Neighbours) -> None:
    own: dict[str, OwnProcess] = {}
    for name, api in SERVICES.items():
        service = getattr(neighbours, f"real_{name}")
        await service.open()
        own[name] = OwnProcess(name, service.app, api, None)
    http = {
        name: ServiceClient(neighbours.connections, f"http://{name}", development_keys("service"), name=f"{name} apart")
        for name in SERVICES
    }
    refused = set()
    for call in calls(await held_tickets(neighbours, http)):
        await _outcome(
            http[call.service].call(call.path, call.question, call.answer)
        )  # what it does, the next two find done
        over_http = await _outcome(http[call.service].call(call.path, call.question, call.answer))
        before = call.question.model_dump_json()
        as_function = await _outcome(own[call.service](call.path, call.question))
        assert type(as_function) is type(over_http), call
        assert comparable(_document(as_function)) == comparable(_document(over_http)), call
        assert call.question.model_dump_json() == before, f"{call.path} has changed what it was asked"
        if isinstance(as_function, BaseModel):
            assert as_function == call.answer.model_validate_json(as_function.model_dump_json()), "as the wire makes it"
        else:
            refused.add(call.path)
    assert refused == {"/lottery", "/lottery/proof", "/rooms/frame", "/orders/own"}, "all others have something to say"


async def held_tickets(neighbours: Neighbours, http: Mapping[Service, ServiceClient]) -> str:
    """The fan joins, is called, claims the pass and holds two tickets; the reservation."""
    await http["queue"].call("/joins", JOINS, q.JoinAnswer)
    queue = await neighbours.real_queue.open()
    assert await admit_now(queue.line, queue.gatekeeper, await queue.rooms.get(EVENT), 1) == 1
    [claimed] = (await http["queue"].call("/claims", PLACES, q.ClaimAnswer)).claims
    inventory = httpx.AsyncClient(transport=httpx.ASGITransport(neighbours.real_inventory), base_url="http://inventory")
    async with inventory:
        body = {"ga": [{"section_id": "GA1", "quantity": 2}]}
        headers = {"authorization": f"Bearer {claimed.admission}", "idempotency-key": "the-hold-of-the-test"}
        held = await inventory.post(f"/events/{EVENT}/reservations", json=body, headers=headers)
    assert held.status_code == 201, held.text
    return str(held.json()["reservation_id"])


async def _outcome(calling: Any) -> BaseModel | Problem:
    try:
        answered: BaseModel = await calling
        return answered
    except Problem as problem:
        return problem


def _document(outcome: BaseModel | Problem) -> Any:
    if isinstance(outcome, Problem):
        return [outcome.code, outcome.detail, outcome.retry_after_s, outcome.members]
    return outcome.model_dump(mode="json")
