"""Names on tickets: what an order must bring, and who may change them until when."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from shared.contracts.event_file import SalesPart
from shared.contracts.inventory import ReservedItem
from shared.security.tokens import sign_order_token
from tests.orders.inventory import EVENT
from tests.orders.priced_event import Sale, open_sale
from tests.orders.shop import OPERATOR, VIEWER, Shop, events_of, pass_header
from tests.support.running.suite import problem
from tests.support.wait import wait_until

NAMES = ["Ada Lovelace", "Grace Hopper", "شهرزاد"]
SEAT = ReservedItem(section_id="A", seat_id="A-1-2", unit_price_minor=5000)
FLOOR = ReservedItem(section_id="GA1", quantity=2, unit_price_minor=5000)


async def order(
    sale: Sale, names: Any = None, *, key: str | None = None, held: str = "", **more: Any
) -> httpx.Response:
    """Orders a seat and two floor tickets; `names` as they are, or left out."""
    held = held or await sale.hold(SEAT, FLOOR)
    total_minor = more.pop("total_minor", 15_000)
    body = sale.shop.body(held, total_minor=total_minor) | ({} if names is None else {"names": names}) | more
    headers = {**pass_header(event_id=sale.event_id), "idempotency-key": key or uuid.uuid4().hex}
    return await sale.shop.http.post("/orders", json=body, headers=headers)


async def bought(sale: Sale, names: list[str] | None = None) -> str:
    answer = await order(sale, names)
    assert answer.status_code == 202, answer.text
    reference = str(answer.json()["reference"])

    async def is_issued() -> bool:
        return bool((await sale.view(reference))["fulfilled_at"])

    await wait_until(is_issued)
    return reference


async def tickets(sale: Sale, reference: str) -> dict[str, Any]:
    answer = await sale.shop.http.get(f"/orders/{reference}/tickets", headers=_key(sale.shop, reference))
    return dict(answer.json())


async def names_of(sale: Sale, reference: str) -> list[str | None]:
    return [ticket["name"] for ticket in (await tickets(sale, reference))["tickets"]]


async def ids_of(sale: Sale, reference: str) -> list[str]:
    return [ticket["ticket_id"] for ticket in (await tickets(sale, reference))["tickets"]]


async def rename(sale: Sale, reference: str, **body: Any) -> httpx.Response:
    return await sale.shop.http.post(f"/orders/{reference}/names", json=body, headers=_key(sale.shop, reference))


def _key(shop: Shop, reference: str) -> dict[str, str]:
    return {"authorization": f"Bearer {sign_order_token(shop.settings.order_token_keys, reference)}"}


# -- checkout ----------------------------------------------------------------------------------------------------------


async def test_each_ticket_gets_its_name_in_the_order_of_the_quoted_lines(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    held = await sale.hold(SEAT, FLOOR)
    quote = (await sale.quote(held)).json()
    assert quote["names"] == "ticket"
    assert [(line["seat_id"], line["quantity"]) for line in quote["lines"]] == [("A-1-2", 1), (None, 2)]
    typed = [" Ada\n Lovelace\u200b ", *NAMES[1:]]
    answer = await order(sale, typed, held=held)
    reference = answer.json()["reference"]
    view = await sale.wait_for_status(reference, "confirmed")
    assert [[one["name"] for one in line["names"]] for line in view["lines"]] == [NAMES[:1], NAMES[1:]]
    assert await names_of(sale, reference) == NAMES
    found = await tickets(sale, reference)
    assert (found["names"], found["names_until"]) == ("ticket", "2030-01-01T20:00:00.000Z")
    events = str(await events_of(shop, reference))
    assert not any(name in events for name in NAMES), "no name is in an event"


@pytest.mark.parametrize(
    ("asked", "names", "says"),
    [
        ("ticket", None, "Ticket 1 of 3 (A-1-2) has no name"),
        ("ticket", NAMES[:2], "Ticket 3 of 3 (GA1) has no name"),
        ("ticket", [*NAMES, "Bob"], "There are 4 names for 3 tickets."),
        ("order", NAMES, "one name an order, that of the customer"),
        ("none", NAMES, "The event asks for no names"),
    ],
)
async def test_names_that_do_not_fit_the_tickets_are_refused_and_nothing_is_changed(
    shop: Shop, asked: str, names: list[str] | None, says: str
) -> None:
    sale = await open_sale(shop, sales={"names": asked})
    held = await sale.hold(SEAT, FLOOR)
    answer = await order(sale, names, held=held)
    assert problem(answer) == (422, "ticket-names-refused")
    assert says in answer.json()["detail"]
    assert (answer.json()["names"], answer.json()["tickets"]) == (asked, 3 if asked == "ticket" else 0)
    assert await shop.inventory.status(held) == "pending_payment"
    good = NAMES if asked == "ticket" else None
    assert (await order(sale, good, held=held)).status_code == 202


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["Ada", " \u200b ", "Bob"], "ticket 2 has no name"),
        (["Ada", "Bob", "x" * 101], "the name on ticket 3 has more than 100 characters"),
        (["x"] * 101, "names: "),
        (["Ada", 3, "Bob"], "names.1: This must be text."),
        (["Ada", "Bob", "x\x00y" * 400], "ticket 3"),
        ("Ada", "names: "),
        (["4242 4242 4242 4242", "a", "b"], "names: this looks like a card number"),
    ],
)
async def test_a_name_that_is_none_is_refused_with_its_ticket(shop: Shop, names: Any, says: str) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    answer = await order(sale, names)
    assert answer.status_code == 422
    assert says.lower() in answer.json()["detail"].lower()


async def test_a_repeat_with_other_names_is_another_request(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    held = await sale.hold(SEAT, FLOOR)
    first = await order(sale, NAMES, key="k", held=held)
    again = await order(sale, ["Ada  Lovelace ", *NAMES[1:]], key="k", held=held)
    assert (again.status_code, again.json()["reference"]) == (202, first.json()["reference"])
    other = await order(sale, ["Somebody", *NAMES[1:]], key="k", held=held)
    assert problem(other) == (422, "idempotency-key-reused")


async def test_a_free_order_brings_its_names_too(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"}, price_minor=0)
    free = ReservedItem(section_id="GA1", quantity=2, unit_price_minor=0)
    held = await sale.hold(free)
    assert problem(await order(sale, held=held, total_minor=0)) == (422, "ticket-names-refused")
    answer = await order(sale, NAMES[:2], held=held, total_minor=0)
    reference = answer.json()["reference"]
    await sale.wait_for_status(reference, "confirmed")
    assert await names_of(sale, reference) == NAMES[:2]


async def test_without_names_nothing_is_asked_and_nothing_is_shown(shop: Shop) -> None:
    sale = await open_sale(shop)
    assert (await sale.quote(await sale.hold())).json()["names"] == "none"
    reference = await bought(sale)
    assert all("names" not in line for line in (await sale.view(reference))["lines"])
    found = await tickets(sale, reference)
    assert (found["names"], found["names_until"]) == ("none", None)
    assert await names_of(sale, reference) == [None] * 3
    assert problem(await rename(sale, reference, name="Bob")) == (409, "name-change-refused")


def test_a_time_to_change_names_needs_names() -> None:
    until = "2030-01-01T12:00:00Z"
    assert SalesPart.model_validate({"names": "order", "names_until": until}).names_until is not None
    with pytest.raises(ValueError, match="names_until needs names"):
        SalesPart.model_validate({"names_until": until})


# -- change ------------------------------------------------------------------------------------------------------------


async def test_a_changed_name_keeps_the_ticket_and_its_code(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference = await bought(sale, NAMES)
    before = (await tickets(sale, reference))["tickets"]
    second = before[1]["ticket_id"]
    answer = await rename(sale, reference, names={second: " Mary  Jackson"})
    assert answer.status_code == 200
    assert [one["name"] for one in answer.json()["lines"][1]["names"]] == ["Mary Jackson", NAMES[2]]
    after = (await tickets(sale, reference))["tickets"]
    assert [one["name"] for one in after] == [NAMES[0], "Mary Jackson", NAMES[2]]
    assert [(one["ticket_id"], one["code"]) for one in after] == [(one["ticket_id"], one["code"]) for one in before]
    event = (await events_of(shop, reference))[-1]
    assert (event["type"], event["after"]["tickets"], event["after"]["status"]) == (
        "order.renamed",
        [second],
        "confirmed",
    )
    assert event["version"] <= (await shop.row(reference)).version
    version = (await shop.row(reference)).version
    assert (await rename(sale, reference, names={second: "Mary Jackson"})).status_code == 200
    assert (await shop.row(reference)).version == version, "the same again is no change"
    rows = (await shop.admin_get(f"/{reference}/timeline"))["timeline"]
    [entry] = [row for row in rows if row.get("action") == "change-names"]
    assert (entry["actor"], entry["role"], entry["after"]) == ("fan", "fan", {"tickets": [second]})
    assert "Mary" not in str(entry), "a name is in the order alone"


async def test_the_one_name_of_an_order_is_its_customers(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "order"})
    reference = await bought(sale)
    assert await names_of(sale, reference) == ["Ada"] * 3
    answer = await rename(sale, reference, name="Grace Hopper")
    assert answer.json()["customer"]["name"] == "Grace Hopper"
    assert await names_of(sale, reference) == ["Grace Hopper"] * 3
    assert (await events_of(shop, reference))[-1]["after"]["tickets"] == []
    ticket = (await ids_of(sale, reference))[0]
    assert problem(await rename(sale, reference, names={ticket: "Bob"})) == (409, "name-change-refused")


async def test_buyers_change_names_until_the_time_and_operators_later_too(shop: Shop) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    for sales in ({"names_until": soon.isoformat()}, {"names_until": None}):
        start = soon + timedelta(hours=1 if sales["names_until"] else 0)
        rules = {"sales": {"names": "ticket", **sales}, "starts_at": start.isoformat()}
        sale = await open_sale(shop, **rules)
        reference = await bought(sale, NAMES)
        [first, *_] = await ids_of(sale, reference)
        assert (await rename(sale, reference, names={first: "Bob"})).status_code == 200
        past = datetime.now(UTC) - timedelta(seconds=1)
        field = "names_until" if sales["names_until"] else "starts_at"
        await shop.run(f"UPDATE orders.event SET {field} = :past WHERE event_id = :e", past=past, e=sale.event_id)
        refused = await rename(sale, reference, names={first: "Carl"})
        assert problem(refused) == (409, "name-change-refused")
        assert "Names could be changed until" in refused.json()["detail"]
        path, body = f"/admin/orders/{reference}/names", {"names": {first: "Carl"}, "reason": "misspelt"}
        assert (await shop.http.post(path, json=body, headers=VIEWER)).status_code == 403
        assert problem(await shop.http.post(path, json=body | {"reason": ""}, headers=OPERATOR))[0] == 422
        assert (await shop.http.post(path, json=body, headers=OPERATOR)).status_code == 200
        assert (await names_of(sale, reference))[0] == "Carl"
        rows = (await shop.admin_get(f"/{reference}/timeline"))["timeline"]
        entry = [row for row in rows if row.get("action") == "change-names"][-1]
        assert (entry["reason"], entry["after"]) == ("misspelt", {"tickets": [first]})


async def test_three_names_for_each_ticket_may_be_changed_and_concurrent_changes_are_counted(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference = await bought(sale, NAMES)
    [first, *_] = await ids_of(sale, reference)
    answers = await asyncio.gather(*(rename(sale, reference, names={first: f"Bob {n}"}) for n in range(11)))
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [409] * 2
    refused = await rename(sale, reference, names={first: "Carl"})
    assert (refused.json()["changed"], refused.json()["allowed"]) == (9, 9)


async def test_a_void_ticket_keeps_its_name(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference = await bought(sale, NAMES)
    void, *rest = await ids_of(sale, reference)
    refunded = await shop.admin_post(f"{reference}/refund", tickets={"seats": ["A-1-2"]}, key="k")
    assert refunded.status_code == 202, refunded.text

    async def is_void() -> bool:
        return (await tickets(sale, reference))["tickets"][0]["status"] == "void"

    await wait_until(is_void)
    names = [line["names"] for line in (await sale.view(reference))["lines"]]
    assert [[one["void"] for one in line] for line in names] == [[True], [False, False]]
    assert problem(await rename(sale, reference, names={void: "Bob"})) == (404, "unknown-ticket")
    assert problem(await rename(sale, reference, names={void: "Bob", rest[0]: "Carl"})) == (404, "unknown-ticket")
    assert await names_of(sale, reference) == NAMES
    body = {"names": {void: "Bob"}, "reason": "x"}
    by_hand = await shop.http.post(f"/admin/orders/{reference}/names", json=body, headers=OPERATOR)
    assert problem(by_hand) == (404, "unknown-ticket")
    assert (await rename(sale, reference, names={rest[0]: "Carl"})).status_code == 200


async def test_only_who_holds_the_order_changes_its_names(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference, other = await bought(sale, NAMES), await shop.order()
    [first, *_] = await ids_of(sale, reference)
    path, body = f"/orders/{reference}/names", {"names": {first: "Bob"}}
    shop.http.cookies.clear()
    assert (await shop.http.post(path, json=body)).status_code == 401
    assert (await shop.http.post(path, json=body, headers=pass_header("somebody"))).status_code == 404
    assert (await shop.http.post(path, json=body, headers=_key(shop, other))).status_code == 401
    assert (await shop.http.post(f"/orders/{other}/names", json=body, headers=pass_header())).status_code == 409
    assert await names_of(sale, reference) == NAMES


@pytest.mark.parametrize(
    "body",
    [
        {}, {"names": {}}, {"name": " "}, {"name": "Bob", "names": {"A" * 12: "Bob"}}, {"names": {"x": "Bob"}},
        {"names": {"A" * 12: "x" * 101}}, {"names": {"A" * 12: ""}}, {"name": "4242 4242 4242 4242"},
        {"names": {f"{n:012d}": "Bob" for n in range(101)}}, {"more": 1},
    ],
)  # fmt: skip
async def test_a_change_that_names_nobody_is_refused(shop: Shop, body: dict[str, Any]) -> None:
    reference = await shop.order()
    assert (await shop.http.post(f"/orders/{reference}/names", json=body, headers=pass_header())).status_code == 422


async def test_tickets_that_are_not_issued_have_no_names_to_change(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference = (await order(sale, NAMES, payment={"provider": "sandbox", "method": "decline"})).json()["reference"]
    line = (await shop.row(reference)).lines[0]
    assert problem(await rename(sale, reference, names={line.tickets[0].id: "Bob"})) == (404, "unknown-ticket")


async def test_an_order_that_has_ended_keeps_its_name(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "order"})
    reference = (await order(sale, payment={"provider": "sandbox", "method": "decline"})).json()["reference"]
    assert (await rename(sale, reference, name="Bob")).status_code == 200
    await shop.cancel(reference, event_id=sale.event_id)
    await sale.wait_for_status(reference, "cancelled")
    assert problem(await rename(sale, reference, name="Carl")) == (409, "name-change-refused")


async def test_orders_of_an_event_without_a_file_have_no_names(shop: Shop) -> None:
    reference = await shop.order()
    assert (await shop.view(reference))["event_id"] == EVENT
    answer = await shop.http.post(f"/orders/{reference}/names", json={"name": "Bob"}, headers=pass_header())
    assert problem(answer) == (409, "name-change-refused")
