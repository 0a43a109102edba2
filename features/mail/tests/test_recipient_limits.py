"""Anybody can type anybody's address: one inbox gets a limited number of mails a day for which nobody paid."""

import asyncio

import pytest
from sqlalchemy import select

from features.mail.orders.dispatcher import mail_recipient
from features.mail.tests.test_reminders import consented
from shared.security.tokens import sign_order_token
from tests.orders.mailbox import DROP, Mailbox, mail_dispatcher, mail_rows, send_due
from tests.orders.shop import Shop

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
