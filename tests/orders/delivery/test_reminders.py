"""Mail about a hold: with consent, once before, once after, only while it is true, and never again after one click."""

import pytest

from services.orders.mail.reminders import ConsentImporter, unsubscribe_token
from services.orders.order.references import customer_key
from shared.runtime.clock import now_ms
from shared.security.tokens import b64
from tests.orders.mailbox import Mailbox, due_again, postman, rows
from tests.orders.shop import Shop, pass_of

ADDRESS = "ada@example.org"


async def ask(shop: Shop, reservation_id: str, *, email: str = ADDRESS, holder: str = "fan"):
    body = {"reservation_id": reservation_id, "email": email}
    return await shop.http.post("/reminders", json=body, headers={"authorization": f"Bearer {pass_of(holder)}"})


async def consented(shop: Shop, *, until_ms: int = 600_000, email: str = ADDRESS) -> str:
    reservation_id = shop.holds.hold(until_ms=until_ms)
    assert (await ask(shop, reservation_id, email=email)).status_code == 202
    return reservation_id


async def walk(shop: Shop) -> None:
    """As if everything were due."""
    await due_again(shop)
    await postman(shop).run_once()


async def test_one_before_and_one_after(quiet: Shop, mailbox: Mailbox):
    held = await consented(quiet)
    assert (await ask(quiet, held)).status_code == 202
    await walk(quiet)
    assert mailbox.taken == [], "it is neither time for the one nor true of the other"
    quiet.holds.change(held, reserved_until_ms=now_ms() + 100_000)
    await walk(quiet)
    quiet.holds.change(held, status="expired")
    await walk(quiet)
    await walk(quiet)
    before, after = mailbox.taken
    assert before["Subject"].startswith("Your tickets are held")
    assert after["Subject"].startswith("Your hold has ended")
    assert before["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    link = before["List-Unsubscribe"].strip("<>")
    assert link.startswith("https://shop.test/reminders/stop/")
    assert link in before.as_string().replace("=\n", "")


async def test_who_has_bought_is_not_asked_to(quiet: Shop, mailbox: Mailbox):
    bought, given_back = await consented(quiet), await consented(quiet)
    quiet.holds.change(bought, status="confirmed", reserved_until_ms=now_ms() + 60_000)
    quiet.holds.change(given_back, status="cancelled", reserved_until_ms=now_ms() + 60_000)
    await walk(quiet)
    assert mailbox.taken == []
    told = await rows(quiet)
    assert {row[2] for row in told.values()} == {True}
    assert {row[3] for row in told.values()} == {"the reservation is confirmed", "the reservation is cancelled"}


async def test_one_click_ends_it_for_good_and_looking_at_the_link_does_not(quiet: Shop, mailbox: Mailbox):
    held = await consented(quiet)
    keys = quiet.settings.customer_keys
    path = f"/reminders/stop/{unsubscribe_token(keys, customer_key(keys, ADDRESS))}"
    page = await quiet.http.get(path)
    assert (page.status_code, "<form method" in page.text) == (200, True)
    quiet.holds.change(held, reserved_until_ms=now_ms() + 100_000)
    await due_again(quiet)
    await quiet.run("UPDATE orders.mail SET due_at = now() + interval '1 h' WHERE kind = 'hold_over'")
    await postman(quiet).run_once()
    assert len(mailbox.taken) == 1, "only looked"
    for _ in range(2):
        assert (await quiet.http.post(path, content="List-Unsubscribe=One-Click")).status_code == 200
    quiet.holds.change(held, status="expired")
    await walk(quiet)
    assert len(mailbox.taken) == 1, "what was owed before is not sent either"
    before = set(await rows(quiet))
    await consented(quiet, email="ADA@example.org")
    assert set(await rows(quiet)) == before


async def test_a_forged_opt_out_is_unknown(quiet: Shop):
    customer = customer_key(quiet.settings.customer_keys, ADDRESS)
    for token in (f"{customer}.dev.{b64(b'x' * 32)}", f"{customer}.k9.{b64(b'x' * 32)}"):
        for method in ("GET", "POST"):
            assert (await quiet.http.request(method, f"/reminders/stop/{token}")).status_code == 404


@pytest.mark.parametrize("email", ["a@b\r\nBcc: c@d", "a@b@c", "nobody", ""])
async def test_only_the_holder_gets_mail_and_only_at_an_address(quiet: Shop, email: str):
    held = quiet.holds.hold()
    assert (await ask(quiet, held, email=email)).status_code == 422
    assert (await ask(quiet, held, holder="somebody")).json()["type"] == "/problems/unknown-reservation"
    assert (await ask(quiet, "nothing")).json()["type"] == "/problems/unknown-reservation"
    quiet.holds.change(held, status="expired")
    assert (await ask(quiet, held)).json()["type"] == "/problems/hold-expired"
    assert await rows(quiet) == {}


async def test_where_no_mail_is_sent_nobody_is_promised_any(shop: Shop):
    assert (await ask(shop, shop.holds.hold())).json()["type"] == "/problems/mail-disabled"


async def test_consent_given_with_the_reservation_is_taken_once_and_heard(quiet: Shop, mailbox: Mailbox):
    """Also when it comes again, as after a crash between taking it and saying so."""
    held = quiet.holds.hold(until_ms=600_000)
    taker = ConsentImporter(quiet.app.state.deps.db, quiet.app.state.deps.inventory, quiet.app.state.deps.settings)
    for _ in range(2):
        quiet.holds.consents[held] = ADDRESS
        await taker.run_once()
        assert quiet.holds.consents == {}, "inventory may forget it"
    assert sorted(await rows(quiet)) == [f"hold_over:{held}", f"remind:{held}"]
    quiet.holds.change(held, status="expired")
    await walk(quiet)
    assert [letter["Subject"][:18] for letter in mailbox.taken] == ["Your hold has ended"[:18]]
