"""Who lost the way to an order: the links by mail again, and this browser's orders."""

from shared.security.tokens import order_cookie, sign_order_token
from tests.orders.mailbox import mail_dispatcher, mail_rows
from tests.orders.shop import Shop, pass_header
from tests.support.running.suite import problem
from tests.support.wait import wait_until


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
