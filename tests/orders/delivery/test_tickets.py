"""An order's tickets: issued once, shown to their holder, and void after a refund."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from services.orders.model.order import Order, ticket_id
from services.orders.model.update import OrderUpdate
from services.orders.tickets.show import apply, read_show
from shared.contracts.event_file import EventFile
from shared.contracts.inventory import ReservedItem
from shared.security.tickets import TicketCode, published_keys, read_ticket, require_rotating_code
from shared.security.tokens import development_keys, jwks, order_cookie, sign_order_token, unb64
from shared.words.words import words
from tests.orders.inventory import EVENT
from tests.orders.shop import OPERATOR, VIEWER, Shop, pass_header
from tests.support.spreadsheets import csv_rows
from tests.support.wait import wait_until

PUBLISHED = orjson.dumps(jwks(development_keys("ticket").public()))
KEYS = published_keys(PUBLISHED)
SHOW: dict[str, Any] = {
    "event_id": EVENT, "name": "The Ünited States of Mind", "venue": "Big Hall", "currency": "EUR",
    "starts_at": "2030-05-04T20:00:00+02:00",
    "sections": [
        {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 4, "seats_per_row": 10, "price_minor": 2000},
        {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50, "price_minor": 1400},
    ],
}  # fmt: skip
LINES = [
    ReservedItem(section_id="A", seat_id="A-1-2", quantity=1, unit_price_minor=4000),
    ReservedItem(section_id="GA1", quantity=2, unit_price_minor=1400),
]
TICKETS_CSV = f"/admin/orders/events/{EVENT}/tickets.csv"


async def bought(shop: Shop, seat_id: str = "A-1-2") -> str:
    """A confirmed order of one seat and two GA tickets."""
    seat, floor = LINES
    reservation = await shop.inventory.hold(lines=[seat.model_copy(update={"seat_id": seat_id}), floor])
    reference = await shop.order_of(reservation)
    await shop.wait_until_settled(reference, "confirmed")
    return reference


async def get(shop: Shop, path: str, *, holder: str = "fan", headers: dict[str, str] | None = None):
    return await shop.http.get(path, headers=pass_header(holder) | (headers or {}))


async def tickets_of(shop: Shop, reference: str) -> Any:
    return (await get(shop, f"/orders/{reference}/tickets")).json()


async def ticket_list(shop: Shop, **params: str) -> Any:
    """The list for scanners."""
    path = f"/admin/orders/events/{EVENT}/tickets.json"
    return (await shop.http.get(path, params=params, headers=OPERATOR)).json()


async def apply_event_file(shop: Shop, **changes: Any) -> bool:
    """Returns whether it changed anything."""
    async with shop.state.db.begin() as connection:
        return await apply(connection, EventFile.model_validate({**SHOW, **changes}), actor="ops")


async def is_fulfilled(shop: Shop, reference: str) -> bool:
    return (await shop.row(reference)).fulfilled_at_ms is not None


async def test_a_confirmed_order_has_one_ticket_for_every_seat_and_ga_place(shop):
    assert (await apply_event_file(shop), await apply_event_file(shop)) == (True, False)
    reference = await bought(shop)
    issued = await tickets_of(shop, reference)
    assert issued["event"] == {
        "event_id": EVENT, "name": SHOW["name"], "venue": "Big Hall", "when": "Sat, 4 May 2030, 20:00 GMT+02:00"
    }  # fmt: skip
    assert [(t["place"], t["status"]) for t in issued["tickets"]] == [
        ("Block A, row 1, seat 2", "valid"), ("Floor", "valid"), ("Floor", "valid")
    ]  # fmt: skip
    codes = [read_ticket(KEYS, t["code"]) for t in issued["tickets"]]
    assert codes[0] == TicketCode(EVENT, ticket_id(reference, 1, 1), "A", "A-1-2", reference[:6])
    assert len({code.ticket_id for code in codes}) == 3
    assert (await shop.view(reference))["fulfilled_at"] is not None
    await shop.run('UPDATE orders."order" SET fulfilled_at = NULL')
    await shop.state.store.wake([reference])
    await wait_until(lambda: is_fulfilled(shop, reference))
    assert await tickets_of(shop, reference) == issued, "issued once although the step ran again"


async def test_refunded_tickets_are_void_also_in_the_lists_for_scanners(shop):
    sold, refunded = await bought(shop), await bought(shop, "A-1-3")
    assert (await shop.admin_post(f"{refunded}/refund", reason="=show moved")).is_success
    await shop.wait_until_settled(refunded, "refunded")
    tickets = (await tickets_of(shop, refunded))["tickets"]
    assert {(t["status"], t["code"]) for t in tickets} == {("void", None)}
    assert (await get(shop, f"/orders/{refunded}/tickets/{tickets[0]['ticket_id']}.svg")).status_code == 404
    assert {(t["order"], t["status"], t["secret"]) for t in (await ticket_list(shop))["tickets"]} == {
        (sold[:6], "valid", None), (refunded[:6], "void", None)
    }  # fmt: skip
    void = (await ticket_list(shop, status="void"))["tickets"]
    assert {t["ticket_id"] for t in void} == {t["ticket_id"] for t in tickets}
    path = f"/admin/orders/events/{EVENT}/tickets"
    rows = csv_rows((await shop.http.get(f"{path}.csv", headers=OPERATOR)).content)
    assert {(row["status"], row["void_reason"]) for row in rows} == {("valid", ""), ("void", "'=show moved")}
    assert (await shop.http.get(f"{path}.json", headers=VIEWER)).status_code == 403


async def test_scanners_get_the_names_on_tickets(shop):
    for asked, sent, expected in (
        ("ticket", ["=Ada()", "Grace", "Bob"], ["'=Ada()", "Grace", "Bob"]),
        ("order", [], ["Ada"] * 3),
        ("none", [], [""] * 3),
    ):
        await apply_event_file(shop, sales={"names": asked})
        shop.state.prices.invalidate(EVENT)
        await shop.run('TRUNCATE orders."order", orders.open_order')
        reservation = await shop.inventory.hold(lines=[shop.inventory.free_seat(4000), LINES[1]])
        answer = await shop.post(shop.body(reservation) | {"names": sent}, key=reservation)
        await shop.wait_until_settled(answer.json()["reference"], "confirmed")
        rows = csv_rows((await shop.http.get(TICKETS_CSV, headers=OPERATOR)).content)
        assert [row["name"] for row in rows] == expected
        listed = [ticket["name"] for ticket in (await ticket_list(shop))["tickets"]]
        assert listed == [sent[n] if sent else expected[n] or None for n in range(3)]


async def test_one_of_several_ga_tickets_is_voided(shop):
    reference = await bought(shop)

    async def void_one(_: Any, order: Order) -> OrderUpdate:
        return OrderUpdate(order).void_tickets(reason="a refund", line_no=2, beyond=1)

    assert await shop.state.store.change(reference, void_one)
    tickets = (await tickets_of(shop, reference))["tickets"]
    assert [(t["section_id"], t["status"]) for t in tickets] == [("A", "valid"), ("GA1", "valid"), ("GA1", "void")]


async def test_an_order_that_is_not_confirmed_has_no_tickets(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    assert (await tickets_of(shop, reference))["tickets"] == []


async def test_a_ticket_is_a_picture(shop):
    reference = await bought(shop)
    svg = await get(shop, f"/orders/{reference}/tickets/{ticket_id(reference, 2, 2)}.svg")
    assert svg.headers["content-type"] == "image/svg+xml"
    assert svg.content.startswith(b"<svg")


async def test_tickets_need_the_holder_or_the_order_token_that_a_mail_carries(shop):
    reference = await bought(shop)
    token = sign_order_token(shop.settings.order_token_keys, reference)
    shop.http.cookies.clear()
    svg = f"tickets/{ticket_id(reference, 1, 1)}.svg"
    for path in (f"/orders/{reference}/{part}" for part in ("tickets", svg)):
        assert (await shop.http.get(path)).status_code == 401
        assert (await get(shop, path, holder="somebody")).status_code == 404
        cookie = {"cookie": f"{order_cookie(reference)}={token}"}
        assert (await shop.http.get(path, headers=cookie)).status_code == 200
    for bad in ({}, pass_header(), {"cookie": f"{order_cookie(reference)}={token}"}):
        assert (await shop.http.post(f"/orders/{reference}/key", headers=bad)).status_code == 401
    other = {"authorization": f"Bearer {sign_order_token(shop.settings.order_token_keys, 'OTHERORDER12')}"}
    assert (await shop.http.post(f"/orders/{reference}/key", headers=other)).status_code == 404
    opened = await shop.http.post(f"/orders/{reference}/key", headers={"authorization": f"Bearer {token}"})
    assert (opened.status_code, opened.cookies[order_cookie(reference)]) == (204, token)


async def test_rotating_codes_are_verified_by_secrets(processes):
    shop = await processes.open(ticket_window_s=30)
    reference = await bought(shop)
    issued = await tickets_of(shop, reference)
    assert issued["window_s"] == 30
    code = issued["tickets"][0]["code"]
    secrets = {t["ticket_id"]: unb64(t["secret"]) for t in (await ticket_list(shop))["tickets"]}
    ticket = read_ticket(KEYS, code)
    require_rotating_code(ticket, secrets[ticket.ticket_id], code, at_s=datetime.now(UTC).timestamp())


async def test_the_start_of_a_show_is_in_the_time_zone_of_its_venue(shop):
    for changes, zone, when in (
        ({"timezone": "Asia/Tokyo"}, "Asia/Tokyo", "Sun, 5 May 2030, 03:00 Japan Standard Time"),
        ({"timezone": "America/New_York"}, "America/New_York", "Sat, 4 May 2030, 14:00 Eastern Daylight Time"),
        ({}, "+02:00", "Sat, 4 May 2030, 20:00 GMT+02:00"),
        ({"starts_at": "2030-05-04T18:00:00Z"}, "UTC", "Sat, 4 May 2030, 18:00 Coordinated Universal Time"),
    ):
        assert EventFile.model_validate({**SHOW, **changes}).zone == zone
        await apply_event_file(shop, **changes)
        assert (await read_show(shop.state.db, EVENT)).when(words("en")) == when
    with pytest.raises(ValueError, match="time zone"):
        EventFile.model_validate({**SHOW, "timezone": "Mars/Olympus"})
