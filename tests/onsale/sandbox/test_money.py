"""Money in the sandbox moves once, twice, later or back, exactly as its method says."""

import pytest

from tests.onsale.sandbox_fan import Fan, error_code
from tests.support.wait import wait_until


async def test_a_late_success_says_when_it_happened_and_takes_its_delay_from_metadata(fan: Fan) -> None:
    charge = await fan.charged("late_success", key="1")
    assert (charge["status"], charge["captured_minor"]) == ("processing", 0)
    late = await fan.settled(charge, "succeeded")
    assert late["captured_minor"] == 9350
    assert late["occurred_at"] > charge["occurred_at"]
    await wait_until(lambda: sorted(fan.shop.heard()) == ["charge.processing", "charge.succeeded"])
    for_ever = await fan.charged("late_success", key="2", metadata={"late_after_s": 3600})
    assert (await fan.now(for_ever))["status"] == "processing"


async def test_a_cancel_calls_a_late_success_off(fan: Fan) -> None:
    charge = await fan.charged("late_success", key="1")
    cancelled = (await fan.http.post(f"/charges/{charge['id']}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    assert (await fan.http.post(f"/charges/{charge['id']}/cancel")).json() == cancelled
    await fan.settled(await fan.charged("late_success", key="2", metadata={"late_after_s": 0.05}), "succeeded")
    assert await fan.now(charge) == cancelled


async def test_a_success_comes_after_the_cancel_was_granted_and_not_without_one(fan: Fan) -> None:
    left = await fan.charged("success_after_cancel", key="1")
    charge = await fan.charged("success_after_cancel", key="2")
    cancelled = (await fan.http.post(f"/charges/{charge['id']}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    assert (await fan.settled(charge, "succeeded"))["captured_minor"] == 9350
    assert (await fan.now(left))["status"] == "processing"
    await wait_until(lambda: fan.shop.heard().count("charge.succeeded") == 1)
    refused = await fan.http.post(f"/charges/{charge['id']}/cancel")
    assert (refused.status_code, error_code(refused)) == (409, "already_succeeded")


async def test_a_double_success_takes_the_money_twice_under_two_ids(fan: Fan) -> None:
    charge = await fan.charged("double_success")
    first, second = await fan.books(reference="order-1")
    assert first == charge
    assert second["id"] != first["id"]
    assert second["idempotency_key"] == "order-1:1#double"
    assert first["status"] == second["status"] == "succeeded"
    assert (await fan.charge("double_success")).json() == charge
    assert len(await fan.books()) == 2
    assert (await fan.refund(second, 9350)).status_code == 201
    assert (await fan.now(first))["refunded_minor"] == 0


async def test_a_refund_may_fail_once_is_idempotent_and_never_exceeds_the_charge(fan: Fan) -> None:
    charge = await fan.charged("refund_fails_once")
    assert (await fan.refund(charge, 9000)).status_code == 502
    assert (await fan.now(charge))["refunded_minor"] == 0
    refunded = await fan.refund(charge, 9000)
    assert (refunded.status_code, refunded.json()["status"]) == (201, "succeeded")
    again = await fan.refund(charge, 9000)
    assert (again.status_code, again.content) == (200, refunded.content)
    assert error_code(await fan.refund(charge, 9001)) == "idempotency_key_reused"
    assert error_code(await fan.refund(charge, 351, key="refund-2")) == "refund_exceeds_charge"
    assert (await fan.refund(charge, 350, key="refund-3")).status_code == 201
    now = await fan.now(charge)
    assert (now["status"], now["refunded_minor"], now["occurred_at"]) == ("succeeded", 9350, charge["occurred_at"])
    refunds = (await fan.http.get(f"/charges/{charge['id']}/refunds")).json()["refunds"]
    assert [refund["amount_minor"] for refund in refunds] == [9000, 350]
    await wait_until(lambda: fan.shop.heard().count("charge.refunded") == 2)


async def test_an_authorisation_is_captured_once_or_voided(fan: Fan) -> None:
    kept, given_up = [await fan.charged(key=key, capture=False) for key in ("1", "2")]
    assert (kept["status"], kept["captured_minor"]) == ("succeeded", 0)
    assert error_code(await fan.refund(kept, 1)) == "not_succeeded"
    for _ in range(2):
        assert (await fan.http.post(f"/charges/{kept['id']}/capture")).json()["captured_minor"] == 9350
    assert (await fan.http.post(f"/charges/{given_up['id']}/cancel")).json()["status"] == "cancelled"
    assert error_code(await fan.http.post(f"/charges/{given_up['id']}/capture")) == "not_succeeded"


@pytest.mark.parametrize(("choice", "status"), [("pay", "succeeded"), ("decline", "failed"), ("cancel", "cancelled")])
async def test_the_hosted_page_does_what_the_fan_presses_once_and_returns_to_the_shop(
    fan: Fan, choice: str, status: str
) -> None:
    charge = await fan.charged("redirect", return_url="http://shop/o/1?a=%22%3E&b=<i>")
    assert charge["status"] == "requires_action"
    page = await fan.http.get(charge["checkout_url"])
    assert all(word in page.text for word in (">Pay<", ">Decline<", ">Cancel<", "93.50 EUR"))
    pressed = await fan.http.post(charge["checkout_url"], data={"choice": choice})
    assert (pressed.status_code, pressed.headers["Location"]) == (303, "http://shop/o/1?a=%22%3E&b=%3Ci%3E")
    now = await fan.now(charge)
    assert (now["status"], now["checkout_url"]) == (status, None)
    await fan.http.post(charge["checkout_url"], data={"choice": "pay"})
    assert await fan.now(charge) == now
    used = (await fan.http.get(charge["checkout_url"])).text
    assert "b=&lt;i&gt;" in used
    assert "<button" not in used


async def test_a_return_url_makes_any_method_hosted_and_pay_does_what_the_method_does(fan: Fan) -> None:
    charge = await fan.charged("late_success", return_url="http://shop/back")
    assert charge["status"] == "requires_action"
    assert not fan.shop.received
    await fan.http.post(charge["checkout_url"], data={"choice": "pay"})
    assert (await fan.now(charge))["status"] == "processing"
    await fan.settled(charge, "succeeded")
    nonsense = await fan.http.post(charge["checkout_url"], data={"choice": "steal"})
    assert nonsense.status_code == 422
