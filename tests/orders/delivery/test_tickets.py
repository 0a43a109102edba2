"""An order's tickets: issued once, shown to their owner, void when they were given back."""

import asyncio
import csv
import io
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from pypdf import PdfReader

from services.orders.order.updates import Lease, LeaseRelease, OrderUpdate, Written, write
from services.orders.tickets import pdf
from services.orders.tickets.pdf import PdfRenderer, TicketPage
from services.orders.tickets.show import apply, read_show
from services.orders.tickets.tickets import ticket_id
from shared.contracts.event_file import EventFile
from shared.contracts.inventory import ReservedItem
from shared.runtime.settings import development_keys
from shared.security.credentials import order_cookie
from shared.security.jwks_client import parse
from shared.security.order_tokens import sign_order_token
from shared.security.tickets import TicketCode, read_ticket, require_rotating_code
from shared.security.tokens import jwks, unb64
from shared.web.problems import Overloaded
from tests.orders.holds import EVENT
from tests.orders.shop import ADMIN_SECRET, VIEWER_SECRET, Shop, pass_of
from tests.support.wait import wait_until

PUBLISHED = orjson.dumps(jwks(development_keys("ticket").public()))
KEYS = {key.kid or "": key.key for key in parse(PUBLISHED, ("EdDSA",))}
OPERATOR = {"authorization": f"Bearer {ADMIN_SECRET}"}
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


async def bought(shop: Shop) -> str:
    """A confirmed order of one seat and two tickets without."""
    reservation = shop.holds.hold()
    shop.holds.change(reservation, lines=LINES)
    reference = await shop.order_of(reservation)
    await shop.settled(reference, "confirmed")
    return reference


async def get(shop: Shop, path: str, *, holder: str = "fan", more: dict[str, str] | None = None):
    return await shop.http.get(path, headers={"authorization": f"Bearer {pass_of(holder)}"} | (more or {}))


async def applied(shop: Shop) -> dict[str, bool]:
    """Event files are for admins, who are not among this shop's keys; what the door does is done without it."""
    async with shop.app.state.deps.db.begin() as connection:
        return {"changed": await apply(connection, EventFile.model_validate(SHOW), actor="ops")}


async def test_every_seat_and_every_place_of_a_confirmed_order_is_a_ticket(shop):
    assert (await applied(shop), await applied(shop)) == ({"changed": True}, {"changed": False})
    reference = await bought(shop)
    told = (await get(shop, f"/orders/{reference}/tickets")).json()
    assert told["event"] == {
        "event_id": EVENT, "name": SHOW["name"], "venue": "Big Hall", "when": "Saturday, 4 May 2030, 20:00 (UTC+02:00)"
    }  # fmt: skip
    assert [(t["place"], t["status"]) for t in told["tickets"]] == [
        ("Block A, row 1, seat 2", "valid"), ("Floor", "valid"), ("Floor", "valid")
    ]  # fmt: skip
    read = [read_ticket(KEYS, t["code"]) for t in told["tickets"]]
    assert read[0] == TicketCode(EVENT, ticket_id(reference, 1, 1), "A", "A-1-2", reference[:6])
    assert len({ticket.ticket_id for ticket in read}) == 3
    assert (await shop.see(reference))["fulfilled_at"] is not None
    assert (await get(shop, f"/orders/{reference}/tickets")).json() == told


async def test_tickets_are_issued_once_however_often_the_step_is_taken(shop):
    reference = await bought(shop)
    before = (await get(shop, f"/orders/{reference}/tickets")).json()
    await shop.run('UPDATE orders."order" SET fulfilled_at = NULL, due_at = now(), wake_count = wake_count + 1')
    await wait_until(lambda: _fulfilled(shop, reference))
    assert (await get(shop, f"/orders/{reference}/tickets")).json() == before


async def test_an_order_that_is_not_confirmed_has_neither_tickets_nor_receipt(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    assert (await get(shop, f"/orders/{reference}/tickets")).json()["tickets"] == []
    for paper, slug in (("tickets", "no-tickets"), ("receipt", "no-receipt")):
        answer = await get(shop, f"/orders/{reference}/{paper}.pdf")
        assert (answer.status_code, answer.json()["type"]) == (409, f"/problems/{slug}")


async def test_what_was_given_back_admits_nobody_and_scanners_hear_of_it(shop):
    kept, back = await bought(shop), await bought(shop)
    asked = {"json": {"reason": "=show moved"}, "headers": OPERATOR}
    assert (await shop.http.post(f"/admin/orders/{back}/refund", **asked)).is_success
    await shop.settled(back, "refunded")
    told = (await get(shop, f"/orders/{back}/tickets")).json()["tickets"]
    assert {(t["status"], t["code"]) for t in told} == {("void", None)}
    assert (await get(shop, f"/orders/{back}/tickets/{told[0]['ticket_id']}.svg")).status_code == 404
    assert (await get(shop, f"/orders/{back}/tickets.pdf")).json()["type"] == "/problems/no-tickets"
    path = f"/admin/orders/events/{EVENT}/tickets"
    listed = (await shop.http.get(f"{path}.json", headers=OPERATOR)).json()
    assert {(t["order"], t["status"], t["secret"]) for t in listed["tickets"]} == {
        (kept[:6], "valid", None), (back[:6], "void", None)
    }  # fmt: skip
    void = (await shop.http.get(f"{path}.json?status=void", headers=OPERATOR)).json()["tickets"]
    assert {t["ticket_id"] for t in void} == {t["ticket_id"] for t in told}
    rows = list(csv.DictReader(io.StringIO((await shop.http.get(f"{path}.csv", headers=OPERATOR)).text)))
    assert {(row["status"], row["void_reason"]) for row in rows} == {("valid", ""), ("void", "'=show moved")}
    viewer = {"authorization": f"Bearer {VIEWER_SECRET}"}
    assert (await shop.http.get(f"{path}.json", headers=viewer)).status_code == 403


async def test_one_of_several_tickets_is_given_back(shop):
    reference = await bought(shop)
    db = shop.app.state.deps.repository.db
    await shop.run("UPDATE orders.\"order\" SET due_at = now() + interval '1 h', lease = 'me', lease_until = now()")
    change = OrderUpdate(Lease(reference, "me", 9), await shop.row(reference), release=LeaseRelease(due_in_s=None))
    [written] = await write(db, [change.void_tickets(reason="asked", line_no=2, beyond=1)])
    assert isinstance(written, Written)
    told = (await get(shop, f"/orders/{reference}/tickets")).json()["tickets"]
    assert [(t["section_id"], t["status"]) for t in told] == [("A", "valid"), ("GA1", "valid"), ("GA1", "void")]


async def test_tickets_and_receipt_print(shop):
    await applied(shop)
    reference = await bought(shop)
    answer = await get(shop, f"/orders/{reference}/tickets.pdf")
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/pdf", "private, no-cache")
    pages = [page.extract_text() for page in PdfReader(io.BytesIO(answer.content)).pages]
    assert len(pages) == 3
    for words in (SHOW["name"], "4 May 2030, 20:00", "Big Hall", "Block A, row 1, seat 2", ticket_id(reference, 1, 1)):
        assert words in pages[0].replace("\n", " ")
    receipt = await get(shop, f"/orders/{reference}/receipt.pdf")
    text = PdfReader(io.BytesIO(receipt.content)).pages[0].extract_text()
    for words in (reference, "2 × Floor", "EUR 28.00", "EUR 68.00", "by sandbox", "Ada"):
        assert words in text
    drawn = await get(shop, f"/orders/{reference}/tickets/{ticket_id(reference, 3 - 1, 2)}.svg")
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert drawn.content.startswith(b"<svg")


async def test_nobody_else_sees_tickets_and_a_mails_link_opens_the_order_here(shop):
    reference = await bought(shop)
    token = sign_order_token(shop.settings.order_token_keys, reference)
    shop.http.cookies.clear()
    one = f"/orders/{reference}/tickets/{ticket_id(reference, 1, 1)}.svg"
    for path in (
        f"/orders/{reference}/tickets",
        f"/orders/{reference}/tickets.pdf",
        f"/orders/{reference}/receipt.pdf",
        one,
    ):
        assert (await shop.http.get(path)).status_code == 401
        assert (await get(shop, path, holder="somebody")).status_code == 404
        cookie = {"cookie": f"{order_cookie(reference)}={token}"}
        assert (await shop.http.get(path, headers=cookie)).status_code == 200
    for bad in ({}, {"authorization": f"Bearer {pass_of()}"}, {"cookie": f"{order_cookie(reference)}={token}"}):
        assert (await shop.http.post(f"/orders/{reference}/key", headers=bad)).status_code == 401
    other = {"authorization": f"Bearer {sign_order_token(shop.settings.order_token_keys, 'OTHERORDER12')}"}
    assert (await shop.http.post(f"/orders/{reference}/key", headers=other)).status_code == 404
    opened = await shop.http.post(f"/orders/{reference}/key", headers={"authorization": f"Bearer {token}"})
    assert (opened.status_code, opened.cookies[order_cookie(reference)]) == (204, token)


async def test_where_codes_move_a_scanner_gets_the_secrets_and_paper_has_no_code(processes):
    shop = await processes.open(ticket_window_s=30)
    reference = await bought(shop)
    told = (await get(shop, f"/orders/{reference}/tickets")).json()
    assert told["window_s"] == 30
    code = told["tickets"][0]["code"]
    listed = (await shop.http.get(f"/admin/orders/events/{EVENT}/tickets.json", headers=OPERATOR)).json()
    secrets = {t["ticket_id"]: unb64(t["secret"]) for t in listed["tickets"]}
    ticket = read_ticket(KEYS, code)
    require_rotating_code(ticket, secrets[ticket.ticket_id], code, at_s=datetime.now(UTC).timestamp())
    printed = PdfReader(io.BytesIO((await get(shop, f"/orders/{reference}/tickets.pdf")).content))
    assert "show the order page" in printed.pages[0].extract_text().replace("\n", " ")


async def test_a_busy_printer_says_so_and_never_draws_more_than_it_may():
    printer = PdfRenderer(workers=1, waiting_max=1, font=None)
    page = TicketPage("漢字 " + "x" * 500, "when", "venue", "place", "REFERENCE123", "TICKET", "T1.code")
    try:
        asked = [asyncio.create_task(printer.tickets([page] * 20 + more)) for more in ([], [page])]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await printer.tickets([page])
        assert [len(PdfReader(io.BytesIO(await task)).pages) for task in asked] == [20, 21]
        assert await printer.tickets([page])
    finally:
        printer.close()


async def test_a_paper_is_drawn_once_for_all_who_ask_and_again_when_it_says_something_else(monkeypatch):
    drawn: list[str] = []

    def draw(size: Any, title: str, pages: Any) -> bytes:
        drawn.append(title)
        return b"x" * 400

    monkeypatch.setattr(pdf, "_document", draw)
    printer = PdfRenderer(workers=2, waiting_max=1, font=None, cache_max_bytes=1_000)
    pages = [TicketPage("Show", "when", "venue", f"place {n}", "REFERENCE123", "TICKET", "code") for n in range(4)]
    try:
        assert len({await task for task in [asyncio.create_task(printer.tickets(pages[:1])) for _ in range(50)]}) == 1
        assert len(drawn) == 1, "a crowd asks once"
        for n in (0, 1, 0, 1, 2, 0, 1):
            await printer.tickets([pages[n]])
        assert len(drawn) == 5, "two fit: the third put the first out, and that the second"
    finally:
        printer.close()


async def test_papers_of_one_order_are_bounded_and_known_ones_are_not_sent_again(processes, monkeypatch):
    shop = await processes.open(prints_burst=3, prints_per_minute=1)
    reference, other = await bought(shop), await bought(shop)
    path = f"/orders/{reference}/tickets.pdf"
    first = await get(shop, path)
    again = await get(shop, path, more={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    seen = [(await get(shop, path)).status_code for _ in range(5)]
    assert seen == [200, 200, 429, 429, 429]
    assert 0 < int((await get(shop, path)).headers["retry-after"]) <= 60
    assert (await get(shop, f"/orders/{other}/tickets.pdf")).status_code == 200, "each order has its own"
    assert (await get(shop, f"/orders/{reference}/tickets")).status_code == 200, "the page has the codes"


async def _fulfilled(shop: Shop, reference: str) -> bool:
    return (await shop.row(reference)).fulfilled_at_ms is not None


@pytest.mark.parametrize(
    ("said", "zone", "when"),
    [
        ({"timezone": "Asia/Tokyo"}, "Asia/Tokyo", "Sunday, 5 May 2030, 03:00 (Asia/Tokyo, UTC+09:00)"),
        (
            {"timezone": "America/New_York"},
            "America/New_York",
            "Saturday, 4 May 2030, 14:00 (America/New York, UTC-04:00)",
        ),
        ({}, "+02:00", "Saturday, 4 May 2030, 20:00 (UTC+02:00)"),
        ({"starts_at": "2030-05-04T18:00:00Z"}, "UTC", "Saturday, 4 May 2030, 18:00 (UTC+00:00)"),
    ],
    ids=["tokyo", "new york", "offset", "utc"],
)
async def test_a_show_is_printed_on_the_clock_of_its_venue(shop, said: dict[str, str], zone: str, when: str):
    file = EventFile.model_validate({**SHOW, **said})
    assert file.zone == zone
    async with shop.app.state.deps.db.begin() as connection:
        await apply(connection, file, actor="ops")
    assert (await read_show(shop.app.state.deps.db, EVENT)).when == when


def test_a_time_zone_is_one_there_is():
    with pytest.raises(ValueError, match="time zone"):
        EventFile.model_validate({**SHOW, "timezone": "Mars/Olympus"})
