"""The lines in a webhook: what was bought at which price type, and what of it was back at the webhook's version."""

import json
import uuid
from typing import Any
from unittest.mock import AsyncMock

import pytest

from features.webhooks.orders.dispatcher import WebhookDispatcher, queue_deliveries
from features.webhooks.tests.test_webhooks import WEBHOOKS, have_read
from shared.contracts.inventory import ReservedItem
from shared.messaging.relay import EventReader, Relay
from tests.orders.checkout.test_names import bought as bought_with_names
from tests.orders.checkout.test_names import ids_of, rename
from tests.orders.conftest import OrdersProcesses
from tests.orders.inventory import EVENT
from tests.orders.priced_event import PRICE_TYPES, Sale, open_sale
from tests.orders.pricing.test_price_types import FLOOR, bought_of
from tests.orders.shop import ROOT, Shop, events_of
from tests.support.wait import wait_until


async def add_endpoint(shop: Shop, **fields: Any) -> None:
    """To which nothing is sent in these tests: deliveries are read where they are queued."""
    body = {"url": "http://127.0.0.1:9/", "reason": "x", **fields}
    answer = await shop.http.post(WEBHOOKS, json=body, headers=ROOT)
    assert answer.status_code == 201, answer.text


async def queued(shop: Shop, reference: str) -> dict[str, list[dict[str, Any]]]:
    """The data of what is queued about this order once all events were read, by kind, oldest first."""
    reader = EventReader(shop.state.db, "orders", "webhooks", queue_deliveries)
    await Relay(reader).run()
    await reader.work()
    query = "SELECT kind, body FROM orders.webhook_delivery WHERE reference = :reference ORDER BY id"
    found: dict[str, list[dict[str, Any]]] = {}
    for row in await shop.query(query, reference=reference):
        found.setdefault(row.kind.removeprefix("order."), []).append(json.loads(row.body)["data"])
    return found


@pytest.fixture
async def shop(processes: OrdersProcesses) -> Shop:
    """Reads events only when a test does."""
    opened = await processes.open(webhooks=True)
    await EventReader(opened.state.db, "orders", "webhooks", queue_deliveries).begin()
    return opened


async def shown_lines(shop: Shop, reference: str) -> list[dict[str, Any]]:
    """The lines of the order by the admin API, without names."""
    order = (await shop.admin_get(f"/{reference}/timeline"))["order"]
    return [{name: value for name, value in line.items() if name != "names"} for line in order["lines"]]


async def test_a_webhook_has_the_lines_of_its_order_and_their_tickets(shop: Shop) -> None:
    await add_endpoint(shop)
    sale = await open_sale(shop, price_types=PRICE_TYPES, fees=[{"name": "Fee", "amount_minor": 100}])
    reference = await bought_of(sale, *FLOOR, total_minor=20600)
    found = await queued(shop, reference)
    [created], [confirmed] = found["created"], found["confirmed"]
    assert created["lines"] == confirmed["lines"]
    added = [(line.pop("section_name"), line.pop("tickets")) for line in confirmed["lines"]]
    assert confirmed["lines"] == await shown_lines(shop, reference)
    assert [line["type_name"] for line in confirmed["lines"]] == ["Child", "Adult", "Child"]
    assert {name for name, _ in added} == {"x"}
    assert [len(tickets) for _, tickets in added] == [1, 2, 3]
    assert [ticket for _, tickets in added for ticket in tickets] == await ids_of(sale, reference)


async def test_a_price_type_that_the_event_file_has_no_more_is_called_by_its_id(shop: Shop) -> None:
    await add_endpoint(shop)
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    reference = await bought_of(sale, *FLOOR, total_minor=20000)
    await sale.apply_event_file(price_types=[{"type_id": "full", "name": "Full price"}])
    [created] = (await queued(shop, reference))["created"]
    named = [(line["type_id"], line["type_name"]) for line in created["lines"]]
    assert named == [("child", "child"), ("full", "Full price"), ("child", "child")]


async def test_lines_of_an_event_without_types_and_event_file_have_neither_types_nor_names(shop: Shop) -> None:
    await add_endpoint(shop)
    reference = await shop.order_of(await shop.inventory.hold())
    [created] = (await queued(shop, reference))["created"]
    for line in created["lines"]:
        del line["tickets"]
    assert created["lines"] == await shown_lines(shop, reference)
    assert "type_id" not in created["lines"][0]


async def refund(sale: Sale, reference: str, **tickets: Any) -> None:
    before = (await sale.view(reference))["refunded_minor"]
    answer = await sale.shop.admin_post(f"{reference}/refund", tickets=tickets, key=uuid.uuid4().hex)
    assert answer.is_success, answer.text

    async def is_done() -> bool:
        return bool((await sale.view(reference))["refunded_minor"] > before)

    await wait_until(is_done)
    await sale.shop.wait_for_status(reference, "partially_refunded", "refunded")


async def test_a_webhook_that_is_made_late_tells_the_tickets_that_were_back_at_its_version(shop: Shop) -> None:
    sale = await open_sale(shop, price_types=PRICE_TYPES, sales={"names": "ticket"})
    reference = await bought_of_types(sale)
    [seat, *_] = await ids_of(sale, reference)
    await refund(sale, reference, ga=[{"section_id": "GA1", "quantity": 2, "type_id": "child"}])
    await rename(sale, reference, names={seat: "Carl"})
    await refund(sale, reference, seats=["A-1-1"])
    await refund(sale, reference, ga=[{"section_id": "GA1", "quantity": 2, "type_id": "adult"}])
    await add_endpoint(shop, event_id=sale.event_id)
    found = await queued(shop, reference)
    returned = {kind: [[line["returned"] for line in one["lines"]] for one in each] for kind, each in found.items()}
    assert returned == {
        "created": [[0, 0, 0]], "confirmed": [[0, 0, 0]], "renamed": [[0, 0, 2]],
        "refunded": [[0, 0, 2], [1, 0, 2], [1, 2, 2]],
    }  # fmt: skip
    late = [message for each in found.values() for message in each]
    in_order = sorted(late, key=lambda message: message["version"])
    assert [[line["returned"] for line in one["lines"]] for one in in_order][2:] == [
        [0, 0, 2], [0, 0, 2], [1, 0, 2], [1, 2, 2]
    ]  # fmt: skip
    assert [line["returned"] for line in await shown_lines(shop, reference)] == [1, 2, 2]
    for message in late:
        for line in message["lines"]:
            del line["returned"]
        assert message["lines"] == late[0]["lines"], "nothing else of a line ever changes"
        assert "returned" not in message


async def bought_of_types(sale: Sale) -> str:
    """One child with a seat, two adults and three children without, each by name."""
    body = sale.shop.body(await sale.hold(*FLOOR), total_minor=20000) | {"names": list("abcdef")}
    reference = str((await sale.post(body)).json()["reference"])
    await sale.wait_for_status(reference, "confirmed")
    return reference


async def test_the_tickets_that_went_back_are_the_last_of_their_line(shop: Shop) -> None:
    await add_endpoint(shop, kinds=["order.refunded"])
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    reference = await bought_of(sale, *FLOOR, total_minor=20000)
    await refund(sale, reference, ga=[{"section_id": "GA1", "quantity": 2, "type_id": "child"}])
    [data] = (await queued(shop, reference))["refunded"]
    told = [ticket for line in data["lines"] for ticket in line["tickets"][line["quantity"] - line["returned"] :]]
    void = [one.id for line in (await shop.row(reference)).lines for one in line.tickets if one.void_at_ms]
    assert told == void
    assert len(void) == 2


async def test_no_webhook_has_a_name_of_a_ticket(shop: Shop) -> None:
    await add_endpoint(shop)
    sale = await open_sale(shop, sales={"names": "ticket"})
    names = ["Ada Lovelace", "Grace Hopper", "Bob"]
    reference = await bought_with_names(sale, names)
    sent = str(await queued(shop, reference))
    assert "tickets" in sent
    assert not any(name in sent for name in names)


async def test_an_event_says_which_tickets_went_back_only_if_any_did(shop: Shop) -> None:
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    reference = await bought_of(sale, *FLOOR, total_minor=20000)
    await shop.admin_post(f"{reference}/refund", amount_minor=100, key="k")
    await shop.wait_for_status(reference, "partially_refunded")
    assert not any("returned" in event["after"] for event in await events_of(shop, reference))
    await refund(sale, reference, seats=["A-1-1"])
    assert (await events_of(shop, reference))[-1]["after"]["returned"] == [1, 0, 0]


async def test_the_webhook_of_the_largest_order_is_about_30_kb(shop: Shop) -> None:
    """A hundred seats: more are in no order."""
    await add_endpoint(shop, kinds=["order.created"])
    long = [{"type_id": f"t{'x' * 22}{n}", "name": "n" * 60} for n in range(2)]
    sale = await open_sale(shop, price_types=long)
    seats = (
        ReservedItem(
            section_id="A",
            seat_id=f"A-{n // 10 + 1}-{n % 10 + 1}",
            unit_price_minor=5000,
            type_id=str(long[1]["type_id"]),
        )
        for n in range(100)
    )
    answer = await sale.order(await sale.hold(*seats), 500_000)
    await queued(shop, answer.json()["reference"])
    assert 25_000 < await shop.scalar("SELECT octet_length(body) FROM orders.webhook_delivery") < 35_000


@pytest.mark.parametrize(("wanted", "looks"), [(EVENT, True), ("another", False), (None, False)])
@pytest.mark.usefixtures("loops")
async def test_events_that_no_endpoint_wants_cause_no_look_for_deliveries(
    processes: OrdersProcesses, wanted: str | None, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    monkeypatch.setattr(WebhookDispatcher, "wake", lambda _: woken.append(1))
    monkeypatch.setattr(WebhookDispatcher, "poll", AsyncMock())
    shop = await processes.open()
    if wanted is not None:
        await add_endpoint(shop, event_id=wanted)
    for _ in range(2):  # the look follows the commit, and so comes before the next events
        await shop.wait_until_settled(await shop.order(), "confirmed")
        await wait_until(lambda: have_read(shop))
    assert bool(woken) is looks
