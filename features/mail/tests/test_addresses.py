"""Addresses of buyers: one spelling of a domain, none that can never be mailed, and their correction by who holds the
order.

Anybody can type anybody's address: one inbox gets a limited number of mails a day for which nobody paid.
"""

import asyncio
import uuid

import pytest
from sqlalchemy import select

from features.mail.orders.dispatcher import mail_recipient
from features.mail.orders.reminders import Outgoing
from features.mail.orders.smtp import MailServer, parse_mailbox, server_of
from features.mail.tests.test_reminders import consented
from services.orders.model.order import customer_key
from services.orders.settings import Settings as OrdersSettings
from shared.contracts.inventory import PaymentSteps
from shared.contracts.orders import OrderView
from shared.rules.addresses import normalize_email, suggested_address
from shared.security.tokens import sign_order_token
from tests.orders.shop import DROP, Mailbox, Shop, mail_dispatcher, mail_rows, pass_header, send_due
from tests.support.running.suite import problem
from tests.support.wait import wait_until


def server_of_shop(shop: Shop) -> MailServer:
    server: MailServer | None = shop.app.state.parts[Outgoing].server
    assert server is not None
    return server


async def body(shop: Shop, email: str, **customer) -> dict:
    return shop.body(await shop.inventory.hold()) | {"customer": {"name": "Ada", "email": email, **customer}}


async def ordered(shop: Shop, email: str, *, status: str = "confirmed") -> str:
    answer = await shop.post(await body(shop, email), key=uuid.uuid4().hex)
    assert answer.status_code == 202, answer.text
    reference = answer.json()["reference"]
    await shop.wait_until_settled(reference, status)
    return str(reference)


async def correct(shop: Shop, reference: str, email: str, **fields):
    headers = {"authorization": f"Bearer {sign_order_token(shop.settings.order_token_keys, reference)}"}
    return await shop.http.post(f"/orders/{reference}/email", json={"email": email, **fields}, headers=headers)


# -- one way to write a domain -----------------------------------------------------------------------------------------


async def test_mail_goes_to_the_domain_that_limits_count_by(mail_shop: Shop, mailbox: Mailbox):
    await ordered(mail_shop, "kunde@STRAßE.example")
    await mail_dispatcher(mail_shop).run_once()
    [(_, recipients)] = mailbox.envelopes
    assert recipients == ["kunde@xn--strae-oqa.example"] == [normalize_email("kunde@STRAßE.example")]
    assert mailbox.received[0]["To"] == "kunde@xn--strae-oqa.example"


@pytest.mark.parametrize("domain", [
    "βόλος.example", "faß.example", "bücher.example", "почта.example", "straße.example", "STRAßE.example",
    "xn--strae-oqa.example", "straße。example",
])  # fmt: skip
def test_the_recipient_of_any_domain_is_the_mailbox_that_is_counted(domain: str):
    assert parse_mailbox(f"ada@{domain}").domain == normalize_email(f"ada@{domain}").partition("@")[2]


def test_a_mail_server_is_found_by_the_same_name():
    assert server_of("smtp://mail.straße.example")["hostname"] == "mail.xn--strae-oqa.example"
    assert server_of("smtp://mail_server:25")["hostname"] == "mail_server"


def test_links_in_mail_have_the_shops_name_in_ascii():
    for typed, kept in (("straße.example:8443", "xn--strae-oqa.example:8443"), ("localhost:8000", "localhost:8000")):
        assert OrdersSettings(public_url=f"https://{typed}").public_url == f"https://{kept}"


async def test_links_are_found_in_either_spelling(mail_shop: Shop):
    reference = await ordered(mail_shop, "kunde@straße.example")
    answer = await mail_shop.http.post("/orders/links", json={"email": "Kunde@xn--strae-oqa.example"})
    assert answer.status_code == 204

    async def queued() -> bool:
        return any(key.startswith(f"again:{reference}:") for key in await mail_rows(mail_shop))

    await wait_until(queued)


# -- mail that can never come ------------------------------------------------------------------------------------------


async def test_an_address_that_the_server_cannot_write_to_is_refused_before_payment(mail_shop: Shop):
    order = await body(mail_shop, "müller@example.org")
    assert problem(await mail_shop.post(order)) == (422, "address-not-mailable")
    assert await mail_shop.charges() == []
    reminder = {"reservation_id": order["reservation_id"], "email": "müller@example.org"}
    assert problem(await mail_shop.http.post("/reminders", json=reminder, headers=pass_header()))[0] == 422
    assert (await mail_shop.post(order | {"customer": {"name": "Ada", "email": "m@example.org"}})).status_code == 202


async def test_a_server_with_smtputf8_takes_it(mail_shop: Shop, mailbox: Mailbox):
    mailbox.smtputf8 = True
    await server_of_shop(mail_shop).refresh()
    await ordered(mail_shop, "müller@straße.example")
    await mail_dispatcher(mail_shop).run_once()
    assert mailbox.envelopes[0][1] == ["müller@xn--strae-oqa.example"]


async def test_without_a_mail_server_every_address_may_order(shop: Shop):
    await ordered(shop, "müller@example.org")


async def test_a_mail_that_was_given_up_shows_on_the_order_and_to_operators(mail_shop: Shop, mailbox: Mailbox):
    reference, other = await ordered(mail_shop, "nobody@example.org"), await ordered(mail_shop, "ada@example.org")
    mailbox.rejected = {"nobody@example.org": "550 nobody of this name"}
    before = await mail_shop.row(reference)
    await send_due(mail_shop)
    assert (await mail_shop.view(reference))["mail_failed"] is True
    assert (await mail_shop.row(reference)).version > before.version, "its stream tells"
    assert (await mail_shop.view(other))["mail_failed"] is False
    told = [OrderView.model_validate(await mail_shop.view(one)).model_dump() for one in (reference, other)]
    assert ["mail_failed" in each for each in told] == [True, False], "a neighbour of before knows no such field"
    found = await mail_shop.admin_get(mail_failed="true")
    assert [order["reference"] for order in found["orders"]] == [reference]
    mailbox.rejected = {}
    await mail_shop.http.post("/orders/links", json={"email": "nobody@example.org"})
    await wait_until(lambda: _sent_again(mail_shop, reference))
    assert (await mail_shop.view(reference))["mail_failed"] is False, "one came"


async def _sent_again(shop: Shop, reference: str) -> bool:
    await send_due(shop)
    return any(key.startswith(f"again:{reference}:") and row[1] for key, row in (await mail_rows(shop)).items())


async def test_a_server_that_lost_smtputf8_gives_the_mail_up_and_says_so(mail_shop: Shop, mailbox: Mailbox):
    mailbox.smtputf8 = True
    await server_of_shop(mail_shop).refresh()
    reference = await ordered(mail_shop, "müller@example.org")
    mailbox.smtputf8 = False
    await send_due(mail_shop)
    assert (await mail_rows(mail_shop))[f"confirmed:{reference}"][2:] == (True, "the mail server has no SMTPUTF8")
    assert (await mail_shop.view(reference))["mail_failed"] is True


# -- mistyped ----------------------------------------------------------------------------------------------------------


async def test_a_domain_needs_a_dot(mail_shop: Shop):
    for email in ("ada@gmial", "ada@localhost", "ada@1.2.3.4", "ada@example.c", "ada@example."):
        assert problem(await mail_shop.post(await body(mail_shop, email))) == (422, "invalid-request"), email


@pytest.mark.parametrize(
    ("domain", "meant"),
    [
        ("gmial.com", "gmail.com"), ("gmail.con", "gmail.com"), ("gmail.co", "gmail.com"), ("gmai.com", "gmail.com"),
        ("hotnail.com", "hotmail.com"), ("yahooo.com", "yahoo.com"), ("outlok.com", "outlook.com"),
        ("gmx.d", "gmx.de"), ("wbe.de", "web.de"), ("GMIAL.com", "gmail.com"), ("gmail.com", None), ("mail.com", None),
        ("gmx.es", None), ("yahoo.it", None), ("weg.de", None), ("example.org", None), ("straße.example", None),
    ],
)  # fmt: skip
def test_a_likely_slip_in_a_well_known_domain_is_recognised(domain: str, meant: str | None):
    assert suggested_address(f"Ada@{domain}") == (f"Ada@{meant}" if meant else None)


async def test_a_likely_mistyped_address_is_asked_about_once_and_never_refused(mail_shop: Shop):
    order = await body(mail_shop, "ada@gmial.com", check_spelling=True)
    refused = await mail_shop.post(order)
    assert problem(refused) == (409, "email-likely-mistyped")
    assert refused.json()["suggestion"] == "ada@gmail.com"
    assert await mail_shop.inventory.status(order["reservation_id"]) == "pending_payment"
    kept = order | {"customer": {"name": "Ada", "email": "ada@gmial.com"}}
    assert (await mail_shop.post(kept)).status_code == 202
    assert (await mail_shop.post(kept)).headers["idempotency-replayed"] == "true"


# -- correction --------------------------------------------------------------------------------------------------------


async def test_a_correction_sends_the_tickets_to_the_new_address_and_nothing_more_to_the_old(
    mail_shop: Shop, mailbox: Mailbox
):
    reference = await ordered(mail_shop, "ada@gmial.com")
    await send_due(mail_shop)
    asked = await correct(mail_shop, reference, "ada@gmial.con", check_spelling=True)
    assert problem(asked) == (409, "email-likely-mistyped")
    answer = await correct(mail_shop, reference, "ada@gmail.com", check_spelling=True)
    assert answer.json()["customer"]["email"] == "ada@gmail.com"
    assert (await correct(mail_shop, reference, "ada@gmail.com")).status_code == 200, "the same again is no change"
    await send_due(mail_shop)
    assert (await mail_shop.admin_post(f"{reference}/refund")).is_success
    await mail_shop.wait_until_settled(reference, "refunded")
    await send_due(mail_shop)
    assert [to for _, to in mailbox.envelopes] == [["ada@gmial.com"], ["ada@gmail.com"], ["ada@gmail.com"]]
    subjects = [mail["Subject"].split(":")[0] for mail in mailbox.received]
    assert subjects == ["Your tickets", "Your tickets", "Refunded"]
    assert problem(await correct(mail_shop, reference, "x@example.org")) == (409, "address-change-refused")
    entries = (await mail_shop.admin_get(f"/{reference}/timeline"))["timeline"]
    [entry] = [entry for entry in entries if entry.get("action") == "change-email"]
    assert (entry["actor"], entry["after"]) == ("fan", {"changes": 1})
    assert "@" not in str(entry), "an address is in the order alone"


async def test_mail_that_waits_goes_to_the_new_address_once(mail_shop: Shop, mailbox: Mailbox):
    reference = await ordered(mail_shop, "ada@gmial.com")
    mailbox.replies = ["451 not now"]
    await send_due(mail_shop)
    await correct(mail_shop, reference, "ada@gmail.com")
    for _ in range(2):
        await send_due(mail_shop)
    assert [to for _, to in mailbox.envelopes] == [["ada@gmail.com"]]


async def test_mail_that_is_being_sent_stops_for_a_correction(mail_shop: Shop, mailbox: Mailbox):
    """The first of two mails is under way when the second, composed with it, is corrected."""
    first, second = await ordered(mail_shop, "one@example.org"), await ordered(mail_shop, "two@example.org")
    corrected: list[str] = []

    async def correct_the_other() -> None:
        if not corrected:
            corrected.append(second if mailbox.recipients == ["one@example.org"] else first)
            await correct(mail_shop, corrected[0], "new@example.org")

    mailbox.pause = correct_the_other
    await asyncio.wait_for(mail_dispatcher(mail_shop).run_once(), 30)
    await send_due(mail_shop)
    [kept, new] = [to[0] for _, to in mailbox.envelopes]
    assert kept in ("one@example.org", "two@example.org")
    assert new == "new@example.org"


async def test_a_worker_that_read_the_order_before_mails_the_new_address(mail_shop: Shop, mailbox: Mailbox):
    answer = await mail_shop.post(await body(mail_shop, "ada@gmial.com") | {"payment": {
        "provider": "sandbox", "method": "slow"}})  # fmt: skip
    reference = answer.json()["reference"]
    assert (await correct(mail_shop, reference, "ada@gmail.com")).status_code == 200
    await mail_shop.wait_until_settled(reference, "confirmed")
    await send_due(mail_shop)
    assert [to for _, to in mailbox.envelopes] == [["ada@gmail.com"]]


async def test_an_address_may_be_corrected_three_times_by_who_holds_the_order(mail_shop: Shop):
    reference = await ordered(mail_shop, "ada@example.org")
    path, new = f"/orders/{reference}/email", {"email": "new@example.org"}
    assert (await mail_shop.http.post(path, json=new, headers=pass_header("somebody"))).status_code == 404
    mail_shop.http.cookies.clear()
    assert (await mail_shop.http.post(path, json=new)).status_code == 401
    answers = await asyncio.gather(*(correct(mail_shop, reference, f"ada{n}@example.org") for n in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [409] * 5
    assert problem(await correct(mail_shop, reference, "nobody")) == (422, "invalid-request")
    assert problem(await correct(mail_shop, reference, "müller@example.org")) == (422, "address-not-mailable")


async def test_limits_go_on_counting_the_mailbox_that_bought(mail_shop: Shop):
    reference = await ordered(mail_shop, "ada@example.org")
    await correct(mail_shop, reference, "new@example.org")
    [begun] = mail_shop.inventory.neighbour.received("/reservations/begin-payment", PaymentSteps)
    assert begun.steps[0].customer_key == customer_key(mail_shop.settings.customer_keys, "ada@example.org")


VICTIM = "victim@example.org"
_COUNTED = select(mail_recipient)


async def send_all(shop: Shop) -> None:
    for _ in range(6):  # five mails a run
        await send_due(shop)


async def confirmed(shop: Shop, email: str, *, total_minor: int = 6800) -> str:
    hold = await shop.inventory.hold(total_minor=total_minor)
    body = shop.body(hold, total_minor=total_minor) | {"customer": {"name": "Ada", "email": email}}
    reference = str((await shop.post(body, key=hold)).json()["reference"])
    await shop.wait_for_status(reference, "confirmed")
    return reference


async def test_five_holds_with_a_strangers_address_are_not_ten_mails(mail_shop: Shop, mailbox: Mailbox):
    holds = [await consented(mail_shop, email=f"victim+{n}@Example.org") for n in range(5)]
    for hold in holds:
        await mail_shop.inventory.set_deadline(hold, in_ms=100_000)
    await send_all(mail_shop)
    for hold in holds:
        await mail_shop.inventory.expire(hold)
    await send_all(mail_shop)
    assert len(mailbox.received) == 4
    errors = [row[3] for row in (await mail_rows(mail_shop)).values() if row[2]]
    assert errors == ["the address got its mails of today"] * 6
    await confirmed(mail_shop, VICTIM)
    await send_all(mail_shop)
    assert mailbox.received[-1]["Subject"].startswith("Your tickets"), "what was paid for is never held back"
    await mail_shop.run("UPDATE orders.mail_recipient SET day = day - 1")
    hold = await consented(mail_shop, email=VICTIM)
    await mail_shop.inventory.expire(hold)
    await send_all(mail_shop)
    assert len(mailbox.received) == 6, "another day"


async def test_links_sent_again_have_an_end(mail_shop: Shop, mailbox: Mailbox):
    reference = await confirmed(mail_shop, VICTIM)
    await mail_shop.run(
        "INSERT INTO orders.mail (mail_key, kind, address, event_id, reference, budget)"
        " SELECT concat_ws(':', 'again', reference, n), kind, address, event_id, reference, 'asked'"
        " FROM orders.mail, generate_series(1, 12) AS n"
    )
    await send_all(mail_shop)
    assert len(mailbox.received) == 1 + 4
    assert (await mail_shop.view(reference))["mail_failed"] is False, "its own mail came"


async def test_corrections_and_free_orders_keep_half_of_the_day(mail_shop: Shop, mailbox: Mailbox):
    for n in range(5):
        hold = await consented(mail_shop, email=VICTIM)
        await (mail_shop.inventory.expire if n else mail_shop.inventory.cancel)(hold)
    await send_all(mail_shop)
    assert len(mailbox.received) == 4
    free = [await confirmed(mail_shop, VICTIM, total_minor=0) for _ in range(3)]
    paid = await confirmed(mail_shop, "ada@example.org")
    key = sign_order_token(mail_shop.settings.order_token_keys, paid)
    await send_all(mail_shop)
    for address in (VICTIM, "other@example.org", VICTIM):
        answer = await mail_shop.http.post(
            f"/orders/{paid}/email", json={"email": address}, headers={"authorization": f"Bearer {key}"}
        )
        assert answer.status_code == 200
        await send_all(mail_shop)
    to_victim = [to for _, to in mailbox.envelopes if to == [VICTIM]]
    assert len(to_victim) == 8
    assert (await mail_shop.view(paid))["mail_failed"] is True, "the last correction was not mailed, and it says so"
    assert [(await mail_shop.view(reference))["mail_failed"] for reference in free] == [False] * 3


async def test_a_rejected_mail_is_given_back_and_one_of_unknown_outcome_is_not(mail_shop: Shop, mailbox: Mailbox):
    hold = await consented(mail_shop, email=VICTIM)
    await mail_shop.inventory.expire(hold)
    for reply, counted in (("451 not now", 0), (DROP, 1), (None, 2)):
        mailbox.replies = [reply]
        await send_due(mail_shop)
        [row] = await mail_shop.query(_COUNTED)
        assert row.mails == counted


@pytest.mark.parametrize(("budget", "most"), [("asked", 4), ("own", 8)])
async def test_the_count_is_exact_among_processes(mail_shop: Shop, budget, most: int):
    limits = [mail_dispatcher(mail_shop) for _ in range(3)]
    spellings = ["Vic.Tim@gmail.com", "victim+7@googlemail.com", "victim@GMAIL.com"]
    taken = await asyncio.gather(*(limits[n % 3].take(spellings[n % 3], budget) for n in range(30)))
    assert sum(one is not None for one in taken) == most
    await limits[0].give_back(next(one for one in taken if one))
    assert await limits[1].take(VICTIM.replace("example.org", "gmail.com"), budget) is not None


async def test_counts_are_forgotten(mail_shop: Shop):
    limits = mail_dispatcher(mail_shop)
    await limits.take(VICTIM, "own")
    await mail_shop.run("UPDATE orders.mail_recipient SET day = day - 3")
    await limits.take(VICTIM, "own")
    await limits.forget()
    [row] = await mail_shop.query(_COUNTED)
    assert (row.mails, VICTIM in row.recipient) == (1, False)
