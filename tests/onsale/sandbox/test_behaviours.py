"""Each payment method of the sandbox moves money as it promises: once, twice, later or back."""

import pytest

from tests.onsale.sandbox_client import SandboxClient, error_code
from tests.support.wait import wait_until


async def test_a_late_success_has_the_time_it_happened_and_takes_its_delay_from_metadata(client: SandboxClient) -> None:
    charge = await client.charged("late_success", key="1")
    assert (charge["status"], charge["captured_minor"]) == ("processing", 0)
    late = await client.wait_for_status(charge, "succeeded")
    assert late["captured_minor"] == 9350
    assert late["occurred_at"] > charge["occurred_at"]
    await wait_until(lambda: sorted(client.shop.event_types()) == ["charge.processing", "charge.succeeded"])
    delayed_an_hour = await client.charged("late_success", key="2", metadata={"late_after_s": 3600})
    assert (await client.read_charge(delayed_an_hour))["status"] == "processing"


async def test_cancelling_a_charge_prevents_its_late_success(client: SandboxClient) -> None:
    charge = await client.charged("late_success", key="1")
    cancelled = (await client.cancel(charge)).json()
    assert cancelled["status"] == "cancelled"
    assert (await client.cancel(charge)).json() == cancelled
    later = await client.charged("late_success", key="2", metadata={"late_after_s": 0.05})
    await client.wait_for_status(later, "succeeded")
    assert await client.read_charge(charge) == cancelled


async def test_success_after_cancel_succeeds_only_once_it_is_cancelled(client: SandboxClient) -> None:
    not_cancelled = await client.charged("success_after_cancel", key="1")
    charge = await client.charged("success_after_cancel", key="2")
    assert (await client.cancel(charge)).json()["status"] == "cancelled"
    assert (await client.wait_for_status(charge, "succeeded"))["captured_minor"] == 9350
    assert (await client.read_charge(not_cancelled))["status"] == "processing"
    await wait_until(lambda: client.shop.event_types().count("charge.succeeded") == 1)
    refused = await client.cancel(charge)
    assert (refused.status_code, error_code(refused)) == (409, "already_succeeded")


async def test_a_double_success_charges_twice_under_two_ids(client: SandboxClient) -> None:
    charge = await client.charged("double_success")
    first, second = await client.list_charges(reference="order-1")
    assert (first, second["id"] == first["id"]) == (charge, False)
    assert (second["idempotency_key"], second["status"]) == ("order-1:1#double", "succeeded")
    assert (await client.charge("double_success")).json() == charge
    assert len(await client.list_charges()) == 2
    assert (await client.refund(second, 9350)).status_code == 201
    assert (await client.read_charge(first))["refunded_minor"] == 0


async def test_a_refund_may_fail_once_is_idempotent_and_never_exceeds_the_charge(client: SandboxClient) -> None:
    charge = await client.charged("refund_fails_once")
    assert (await client.refund(charge, 9000)).status_code == 502
    assert (await client.read_charge(charge))["refunded_minor"] == 0
    refunded = await client.refund(charge, 9000)
    assert (refunded.status_code, refunded.json()["status"]) == (201, "succeeded")
    again = await client.refund(charge, 9000)
    assert (again.status_code, again.content) == (200, refunded.content)
    assert error_code(await client.refund(charge, 9001)) == "idempotency_key_reused"
    assert error_code(await client.refund(charge, 351, key="refund-2")) == "refund_exceeds_charge"
    assert (await client.refund(charge, 350, key="refund-3")).status_code == 201
    after = await client.read_charge(charge)
    assert after == charge | {"refunded_minor": 9350}
    refunds = (await client.http.get(f"/charges/{charge['id']}/refunds")).json()["refunds"]
    assert [refund["amount_minor"] for refund in refunds] == [9000, 350]
    await wait_until(lambda: client.shop.event_types().count("charge.refunded") == 2)


async def test_an_authorisation_is_captured_once_or_voided(client: SandboxClient) -> None:
    captured, voided = [await client.charged(key=key, capture=False) for key in ("1", "2")]
    assert (captured["status"], captured["captured_minor"]) == ("succeeded", 0)
    assert error_code(await client.refund(captured, 1)) == "not_succeeded"
    for _ in range(2):
        assert (await client.http.post(f"/charges/{captured['id']}/capture")).json()["captured_minor"] == 9350
    assert (await client.cancel(voided)).json()["status"] == "cancelled"
    assert error_code(await client.http.post(f"/charges/{voided['id']}/capture")) == "not_succeeded"


@pytest.mark.parametrize(("choice", "status"), [("pay", "succeeded"), ("decline", "failed"), ("cancel", "cancelled")])
async def test_the_hosted_page_applies_the_first_choice_only_and_returns_to_the_shop(
    client: SandboxClient, choice: str, status: str
) -> None:
    charge = await client.charged("redirect", return_url="http://shop/o/1?a=%22%3E&b=<i>")
    assert charge["status"] == "requires_action"
    page = await client.http.get(charge["checkout_url"])
    assert all(text in page.text for text in (">Pay<", ">Decline<", ">Cancel<", "EUR 93.50"))
    pressed = await client.choose(charge, choice)
    assert (pressed.status_code, pressed.headers["Location"]) == (303, "http://shop/o/1?a=%22%3E&b=%3Ci%3E")
    after = await client.read_charge(charge)
    assert (after["status"], after["checkout_url"]) == (status, None)
    await client.choose(charge, "pay")
    assert await client.read_charge(charge) == after
    used = (await client.http.get(charge["checkout_url"])).text
    assert ("b=&lt;i&gt;" in used, "<button" in used) == (True, False)


async def test_a_return_url_shows_the_hosted_page_for_any_method_and_pay_runs_that_method(
    client: SandboxClient,
) -> None:
    charge = await client.charged("late_success", return_url="http://shop/back")
    assert charge["status"] == "requires_action"
    assert not client.shop.received
    assert (await client.choose(charge, "steal")).status_code == 422
    await client.choose(charge, "pay")
    assert (await client.read_charge(charge))["status"] == "processing"
    await client.wait_for_status(charge, "succeeded")
