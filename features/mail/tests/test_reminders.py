"""Mail that fans ask for: reminders of a hold, once before its end and once after, until they opt out with one click;
and the links of their orders.
"""

from features.mail.orders.reminders import UNSUBSCRIBE, import_consents
from services.orders.model.order import customer_key
from shared.security.tokens import b64, order_cookie, sign_order_token
from tests.orders.shop import Mailbox, Shop, mail_dispatcher, mail_rows, make_mail_due, pass_header, send_due
from tests.support.running.suite import problem
from tests.support.wait import wait_until

ADDRESS = "ada@example.org"


async def request_reminders(shop: Shop, reservation_id: str, *, email: str = ADDRESS, holder: str = "fan"):
    body = {"reservation_id": reservation_id, "email": email}
    return await shop.http.post("/reminders", json=body, headers=pass_header(holder))


async def consented(shop: Shop, *, until_ms: int = 600_000, email: str = ADDRESS) -> str:
    reservation_id = await shop.inventory.hold(until_ms=until_ms)
    assert (await request_reminders(shop, reservation_id, email=email)).status_code == 202
    return reservation_id


async def test_a_fan_is_reminded_before_the_hold_ends_and_notified_afterwards(mail_shop: Shop, mailbox: Mailbox):
    reservation_id = await consented(mail_shop)
    assert (await request_reminders(mail_shop, reservation_id)).status_code == 202
    await send_due(mail_shop)
    assert mailbox.received == [], "too early for the reminder, and the hold has not ended"
    await mail_shop.inventory.set_deadline(reservation_id, in_ms=100_000)
    await send_due(mail_shop)
    await mail_shop.inventory.expire(reservation_id)
    await send_due(mail_shop)
    await send_due(mail_shop)
    before, after = mailbox.received
    assert before["Subject"].startswith("Your tickets are held")
    assert after["Subject"].startswith("Your hold has ended")
    assert before["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    link = before["List-Unsubscribe"].strip("<>")
    assert link.startswith("https://shop.test/reminders/stop/")
    assert link in before.as_string().replace("=\n", "")


async def test_a_fan_who_bought_or_cancelled_gets_no_reminder(mail_shop: Shop, mailbox: Mailbox):
    for end in (mail_shop.inventory.sell, mail_shop.inventory.cancel):
        await end(await consented(mail_shop, until_ms=60_000))
    await send_due(mail_shop)
    assert mailbox.received == []
    rows = (await mail_rows(mail_shop)).values()
    assert {row[2] for row in rows} == {True}
    assert {row[3] for row in rows} == {"the reservation is confirmed", "the reservation is cancelled"}


async def test_a_post_to_the_opt_out_link_ends_mail_and_a_get_does_not(mail_shop: Shop, mailbox: Mailbox):
    reservation_id = await consented(mail_shop)
    keys = mail_shop.settings.customer_keys
    path = f"/reminders/stop/{sign_order_token(keys, customer_key(keys, ADDRESS), purpose=UNSUBSCRIBE)}"
    page = await mail_shop.http.get(path)
    assert (page.status_code, "<form method" in page.text) == (200, True)
    await mail_shop.inventory.set_deadline(reservation_id, in_ms=100_000)
    await make_mail_due(mail_shop)
    await mail_shop.run("UPDATE orders.mail SET due_at = now() + interval '1 h' WHERE kind = 'hold_over'")
    await mail_dispatcher(mail_shop).run_once()
    assert len(mailbox.received) == 1, "a GET changes nothing"
    for _ in range(2):
        assert (await mail_shop.http.post(path, content="List-Unsubscribe=One-Click")).status_code == 200
    await mail_shop.inventory.expire(reservation_id)
    await send_due(mail_shop)
    assert len(mailbox.received) == 1, "mail written before is not sent either"
    before = set(await mail_rows(mail_shop))
    await consented(mail_shop, email="ADA@example.org")
    assert set(await mail_rows(mail_shop)) == before


async def test_a_forged_opt_out_is_unknown(mail_shop: Shop):
    customer = customer_key(mail_shop.settings.customer_keys, ADDRESS)
    for token in (f"{customer}.dev.{b64(b'x' * 32)}", f"{customer}.k9.{b64(b'x' * 32)}"):
        for method in ("GET", "POST"):
            assert (await mail_shop.http.request(method, f"/reminders/stop/{token}")).status_code == 404


async def test_only_the_holder_requests_reminders_and_only_to_a_valid_address(mail_shop: Shop):
    reservation_id = await mail_shop.inventory.hold()
    for email in ("a@b\r\nBcc: c@d", "a@b@c", "nobody", ""):
        assert (await request_reminders(mail_shop, reservation_id, email=email)).status_code == 422, email
    assert (await request_reminders(mail_shop, reservation_id, holder="somebody")).json()[
        "type"
    ] == "/problems/unknown-reservation"
    assert (await request_reminders(mail_shop, "nothing")).json()["type"] == "/problems/unknown-reservation"
    await mail_shop.inventory.expire(reservation_id)
    assert (await request_reminders(mail_shop, reservation_id)).json()["type"] == "/problems/hold-expired"
    assert await mail_rows(mail_shop) == {}


async def test_without_mail_reminders_are_refused(shop: Shop):
    assert (await request_reminders(shop, await shop.inventory.hold())).json()["type"] == "/problems/mail-disabled"


async def test_consent_given_with_a_reservation_is_imported_once(mail_shop: Shop, mailbox: Mailbox):
    """Also when inventory returns it again, as after a crash between import and acknowledgement."""
    reservation_id = await mail_shop.inventory.hold(until_ms=600_000, reminders_to=ADDRESS)
    state = mail_shop.state
    for _ in range(2):
        await mail_shop.inventory.ask_again(reservation_id)
        await import_consents(state.db, state.inventory, state.settings)
        assert (await state.inventory.consents([])).consents == [], "the import is acknowledged"
    assert sorted(await mail_rows(mail_shop)) == [f"hold_over:{reservation_id}", f"remind:{reservation_id}"]
    await mail_shop.inventory.expire(reservation_id)
    await send_due(mail_shop)
    [mail] = mailbox.received
    assert mail["Subject"].startswith("Your hold has ended")


async def confirmed(shop: Shop, **order) -> str:
    reference = await shop.order(**order)
    await shop.wait_until_settled(reference, "confirmed")
    return reference


async def ask_for_links(shop: Shop, address: str):
    return await shop.http.post("/orders/links", json={"email": address})


async def test_the_links_of_an_address_are_mailed_again_once_in_ten_minutes(mail_shop, mailbox):
    references = {await confirmed(mail_shop) for _ in range(2)}
    await mail_dispatcher(mail_shop).run_once()
    mailbox.received.clear()
    for address in ("ADA@example.org", "ada@example.org"):
        answer = await ask_for_links(mail_shop, address)
        assert (answer.status_code, answer.content) == (204, b"")
    await mail_dispatcher(mail_shop).run_once()
    assert {envelope[1][0] for envelope in mailbox.envelopes} == {"ada@example.org"}, "the address that the order has"
    assert len(mailbox.received) == 2
    bodies = [mail.get_body(("plain",)).get_content() for mail in mailbox.received]
    assert all(any(f"/o/{reference}#key=" in body for body in bodies) for reference in references)


async def test_an_unknown_address_is_answered_alike_and_nothing_is_sent(mail_shop):
    known = await confirmed(mail_shop)
    before = await mail_rows(mail_shop)
    answers = [await ask_for_links(mail_shop, address) for address in ("nobody@example.org", "ada@example.org")]
    assert answers[0].content == answers[1].content
    assert {answer.status_code for answer in answers} == {204}

    async def queued() -> bool:
        return any(key.startswith(f"again:{known}:") for key in await mail_rows(mail_shop))

    await wait_until(queued)
    assert len(await mail_rows(mail_shop)) == len(before) + 1


async def test_one_client_may_ask_ten_times_and_then_waits(mail_shop):
    answers = [await ask_for_links(mail_shop, f"fan{n}@example.org") for n in range(12)]
    assert [answer.status_code for answer in answers] == [204] * 10 + [429] * 2
    assert 0 < int(answers[-1].headers["retry-after"]) <= 30


async def test_without_a_mail_server_it_says_so(shop):
    assert problem(await ask_for_links(shop, "ada@example.org"))[1] == "mail-disabled"


async def test_a_browser_lists_the_orders_that_its_cookies_open(shop):
    mine, other = await confirmed(shop), await confirmed(shop)
    shop.http.cookies.clear()
    keys = shop.settings.order_token_keys
    right = f"{order_cookie(mine)}={sign_order_token(keys, mine)}"
    forged = f"{order_cookie(other)}={sign_order_token(keys, mine)}"
    answer = await shop.http.get("/orders", headers={"cookie": f"{right}; {forged}; {order_cookie('x')}=1"})
    assert [order["reference"] for order in answer.json()["orders"]] == [mine]
    assert (await shop.http.get("/orders", headers={"cookie": forged})).status_code == 401
    both = await shop.http.get("/orders", headers=pass_header() | {"cookie": right})
    assert {order["reference"] for order in both.json()["orders"]} == {mine, other}, "by the pass"
