"""Mail about orders: owed in the transaction that makes it true, sent at least once, whatever the server does."""

import asyncio
import io

from pypdf import PdfReader

from shared.security.order_tokens import read_order_token
from tests.orders.mailbox import DROP, due_again, postman, rows
from tests.orders.shop import ADMIN_SECRET, Shop
from tests.support.wait import wait_until


async def confirmed(shop: Shop) -> str:
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    return reference


async def owed(shop: Shop, how_many: int) -> None:
    """So many mails, though of one order."""
    await confirmed(shop)
    await shop.run(
        "INSERT INTO orders.mail (mail_key, kind, address, event_id, reference)"
        " SELECT mail_key || n, kind, address, event_id, reference FROM orders.mail, generate_series(2, :n) AS n",
        n=how_many,
    )


async def test_a_confirmation_leads_to_the_order_page_and_says_nothing_a_buyer_typed(quiet, mailbox):
    reference = await confirmed(quiet)
    await postman(quiet).run_once()
    [taken] = mailbox.taken
    assert mailbox.envelopes == [("tickets@localhost", ["ada@example.org"])]
    assert (taken["From"], taken["To"]) == ("Onsale <tickets@localhost>", "ada@example.org")
    assert taken["Message-ID"].endswith("@localhost>")
    plain, html = (taken.get_body((kind,)).get_content() for kind in ("plain", "html"))
    link = plain.split("Your order: ")[1].split()[0]
    assert link in html
    page, _, key = link.partition("#key=")
    assert page == f"https://shop.test/o/{reference}"
    assert read_order_token(quiet.settings.order_token_keys, key) == reference
    assert "EUR 68.00" in plain
    assert "is your receipt" in plain
    assert not [text for text in (plain, html, taken["Subject"]) if "Ada" in text.replace(key, "")]
    assert taken["List-Unsubscribe"] is None
    await due_again(quiet)
    await postman(quiet).run_once()
    assert mailbox.tried == 1
    assert (await rows(quiet))[f"confirmed:{reference}"] == (0, True, False, "")


async def test_what_is_refused_for_now_comes_later_with_the_same_id(quiet, mailbox):
    reference = await confirmed(quiet)
    mailbox.words = ["451 not now"]
    await postman(quiet).run_once()
    tries, sent, given_up, error = (await rows(quiet))[f"confirmed:{reference}"]
    assert (tries, sent, given_up, "451" in error) == (1, False, False, True)
    await postman(quiet).run_once()
    assert mailbox.tried == 1, "its pause is not over"
    await due_again(quiet)
    mailbox.words = [DROP]
    await postman(quiet).run_once()
    await due_again(quiet)
    await postman(quiet).run_once()
    assert (mailbox.tried, len(mailbox.taken)) == (3, 1)
    assert (await rows(quiet))[f"confirmed:{reference}"] == (2, True, False, "")


async def test_a_lost_answer_means_the_same_mail_once_more_with_the_same_id(quiet, mailbox):
    await confirmed(quiet)
    await postman(quiet).run_once()
    await quiet.run("UPDATE orders.mail SET sent_at = NULL, due_at = now()")
    await postman(quiet).run_once()
    first, second = mailbox.taken
    assert first["Message-ID"] == second["Message-ID"]
    assert first["Date"] == second["Date"]


async def test_what_is_refused_for_good_is_given_up(quiet, mailbox):
    reference = await confirmed(quiet)
    mailbox.refused = {"ada@example.org": "550 nobody of this name"}
    await postman(quiet).run_once()
    await due_again(quiet)
    await postman(quiet).run_once()
    assert mailbox.tried == 0
    tries, sent, given_up, error = (await rows(quiet))[f"confirmed:{reference}"]
    assert (tries, sent, given_up, "nobody of this name" in error) == (0, False, True, True)


async def test_a_dropped_connection_costs_one_mail_a_try_and_the_others_nothing(quiet, mailbox):
    await owed(quiet, 3)
    mailbox.words = [None, DROP]
    await postman(quiet).run_once()
    assert len(mailbox.taken) == 2
    assert sorted((await rows(quiet)).values(), key=str) == sorted(
        [(0, True, False, ""), (0, True, False, ""), (1, False, False, _any_error(await rows(quiet)))], key=str
    )


async def test_while_the_server_is_away_nothing_is_lost_and_after_a_day_it_is_given_up(quiet, mailbox):
    away = postman(quiet, "smtp://127.0.0.1:9")
    await owed(quiet, 2)
    await away.run_once()
    assert {row[:3] for row in (await rows(quiet)).values()} == {(1, False, False)}
    await due_again(quiet)
    await quiet.run(
        "UPDATE orders.mail SET created_at = now() - interval '25 hours'"
        " WHERE mail_key = (SELECT min(mail_key) FROM orders.mail)"
    )
    await away.run_once()
    assert sorted(row[:3] for row in (await rows(quiet)).values()) == [(1, False, True), (2, False, False)]
    await due_again(quiet)
    await postman(quiet).run_once()
    assert len(mailbox.taken) == 1


async def test_two_postmen_take_no_mail_twice_and_no_more_than_they_may_in_a_second(quiet, mailbox):
    await owed(quiet, 7)
    over = asyncio.Event()

    async def with_the_first() -> None:
        if mailbox.tried == 1:
            await over.wait()

    mailbox.pause = with_the_first
    first = asyncio.create_task(postman(quiet).run_once())
    await wait_until(lambda: mailbox.tried == 1)
    await postman(quiet).run_once()
    over.set()
    await first
    assert (mailbox.tried, len(mailbox.taken)) == (7, 7)
    mailbox.pause = None
    await quiet.run("UPDATE orders.mail SET sent_at = NULL, due_at = now()")
    await postman(quiet).run_once()
    assert mailbox.tried == 7 + 5


async def test_a_refund_and_late_money_that_went_back_are_told(quiet, mailbox):
    reference = await confirmed(quiet)
    asked = {"json": {"reason": "show moved"}, "headers": {"authorization": f"Bearer {ADMIN_SECRET}"}}
    assert (await quiet.http.post(f"/admin/orders/{reference}/refund", **asked)).is_success
    await quiet.settled(reference, "refunded")
    late = await quiet.order(method="success_after_cancel")
    await wait_until(lambda: quiet.attempt_is(late, "processing"))
    quiet.holds.taken.add((await quiet.row(late)).reservation_id)
    await quiet.expire(late)
    await quiet.settled(late, "refunded")
    await postman(quiet).run_once()
    subjects = {taken["Subject"].split(":")[0]: taken.get_body(("plain",)).get_content() for taken in mailbox.taken}
    assert set(subjects) == {"Refunded", "Not booked, and refunded"}, "and no confirmation of what was given back"
    assert all("EUR 68.00 went back" in text for text in subjects.values())


async def test_tickets_come_along_if_the_operator_wants_them_to(processes, mailbox, monkeypatch):
    monkeypatch.setattr("services.orders.app.MAIL_INTERVAL_S", 0.05)
    shop = await processes.open(smtp_url=mailbox.url, mail_tickets=True)
    await confirmed(shop)
    await wait_until(lambda: mailbox.taken)
    [attached] = mailbox.taken[0].iter_attachments()
    assert len(PdfReader(io.BytesIO(attached.get_content())).pages) == 1


async def test_without_a_server_no_mail_is_owed(shop):
    await confirmed(shop)
    assert await rows(shop) == {}


def _any_error(told: dict[str, tuple[int, bool, bool, str]]) -> str:
    return next(error for _, sent, _, error in told.values() if not sent)
