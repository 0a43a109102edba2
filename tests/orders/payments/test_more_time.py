"""More time to pay: a pending order lasts longer, once; the places are held as long."""

from functools import partial
from typing import Any

import httpx
import pytest

from services.orders.requests.requests import extend_payment
from shared.errors.problems import AlreadyExtended
from tests.orders.shop import Shop, pass_header
from tests.support.wait import wait_until

PAY_TTL_S = 600


@pytest.fixture
async def shop(processes: Any) -> Shop:
    shop = await processes.open(webhooks=False)
    shop.inventory.sales["pay_ttl_s"] = PAY_TTL_S
    return shop


async def declined_order(shop: Shop) -> str:
    """An order that waits for its buyer to pay again, and 40 s later."""
    reference = await shop.order(method="decline")
    await wait_until(partial(shop.attempt_is, reference, "failed"))
    await shop.run(
        "UPDATE orders.\"order\" SET expires_at = expires_at - interval '40 s' WHERE reference = :reference",
        reference=reference,
    )
    return reference


async def ask_for_more(shop: Shop, reference: str, holder: str = "fan") -> httpx.Response:
    return await shop.http.post(f"/orders/{reference}/extend", headers=pass_header(holder))


async def test_a_pending_order_lasts_longer_and_its_places_are_held_as_long(shop: Shop) -> None:
    reference = await declined_order(shop)
    before = await shop.row(reference)
    answer = await ask_for_more(shop, reference)
    assert (answer.status_code, answer.json()["extended"]) == (200, True)
    after = await shop.row(reference)
    held = await shop.inventory.read(after.reservation_id)
    assert after.expires_at_ms == held.reserved_until_ms > before.expires_at_ms + 30_000
    assert after.version > before.version, "its stream tells the page"
    assert (await shop.pay_again(reference, key="k" * 30)).status_code == 202
    assert await shop.wait_until_settled(reference, "confirmed") == "confirmed"


async def test_only_once_also_for_two_requests_at_the_same_time(shop: Shop) -> None:
    reference = await declined_order(shop)
    earlier = await shop.row(reference)
    first, second = await ask_for_more(shop, reference), await ask_for_more(shop, reference)
    assert (second.status_code, second.json()["type"]) == (409, "/problems/already-extended")
    with pytest.raises(AlreadyExtended):  # what read the order before the first request was done
        await extend_payment(shop.state.store, shop.state.inventory, earlier)
    assert first.json()["expires_at"] == (await shop.view(reference))["expires_at"]


async def test_nobody_else_and_no_order_that_has_ended(shop: Shop) -> None:
    reference = await declined_order(shop)
    assert (await ask_for_more(shop, reference, "stranger")).status_code == 404
    await shop.cancel(reference)
    await shop.wait_until_settled(reference, "cancelled")
    ended = await ask_for_more(shop, reference)
    assert (ended.status_code, ended.json()["type"]) == (409, "/problems/order-not-pending")


async def test_a_hold_that_is_over_is_not_taken_up_again(shop: Shop) -> None:
    reference = await declined_order(shop)
    await shop.inventory.expire((await shop.row(reference)).reservation_id)
    over = await ask_for_more(shop, reference)
    assert (over.status_code, over.json()["type"]) == (410, "/problems/hold-expired")
    assert not (await shop.view(reference))["extended"]
