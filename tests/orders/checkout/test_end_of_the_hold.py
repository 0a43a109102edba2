"""An order whose provider does not accept the charge: retried until the hold ends, and not a second longer."""

import pytest
from sqlalchemy import text

from tests.orders.manual_orders import PAY_TTL_S, ManualShop, open_manual_shop
from tests.orders.shop import pass_of

IN_TIME = text("SELECT due_at < expires_at + interval '0.9 s' FROM orders.\"order\" WHERE reference = :reference")
TRIES, LEFT_S, RETRY_MAX_S = 6, 10, 60.0  # more tries than `payment_retries`


async def _tried(manual: ManualShop, how: str, *, only: str = "") -> tuple[str, str]:
    """An order and its hold a moment before its end, after many tries; the next would be half a minute later."""
    tries = list[str]()

    def fault(call: str, about: str) -> str | None:
        tries.append(call)
        return how if call.startswith(only) else None

    manual.connection.fault = fault
    held = manual.holds.hold()
    reference = await manual.order_of(held)
    await manual.work()
    for _ in range(TRIES - 1):
        await manual.travel(100)
        await manual.work()
    await manual.travel(PAY_TTL_S - 100 * (TRIES - 1) - LEFT_S)
    await manual.work()
    assert tries.count("POST charges") > 4
    return reference, held


@pytest.mark.parametrize("how", ["unreachable", "busy"])
async def test_a_provider_that_takes_no_call_is_asked_until_the_hold_ends_and_then_the_tickets_go_back(
    how: str, postgres_url: str, redis_url: str
) -> None:
    async with open_manual_shop(postgres_url, redis_url, retry_max_s=RETRY_MAX_S) as manual:
        reference, held = await _tried(manual, how)
        assert await manual.status(reference) == "pending"
        assert await _is_due_in_time(manual, reference), "the next look is at the end"
        await manual.travel(LEFT_S)
        await manual.work()
        assert await manual.status(reference) == "expired"
        assert manual.holds.reservations[held].status not in ("paying", "confirmed")
        assert await manual.charges() == []


async def test_a_provider_that_is_broken_altogether_is_asked_at_the_end_and_holds_nothing_once_it_answers(
    postgres_url: str, redis_url: str
) -> None:
    """A 503 may have charged: until the provider says that it did not, the tickets stay held."""
    async with open_manual_shop(postgres_url, redis_url, retry_max_s=RETRY_MAX_S) as manual:
        reference, held = await _tried(manual, "error")
        assert await _is_due_in_time(manual, reference)
        await manual.travel(LEFT_S)
        await manual.work()
        assert (await manual.status(reference), manual.holds.reservations[held].status) == ("pending", "paying")
        manual.connection.fault = lambda call, about: None
        await manual.travel(2 * RETRY_MAX_S)
        await manual.work()
        assert await manual.status(reference) == "expired"
        assert manual.holds.reservations[held].status not in ("paying", "confirmed")


async def test_a_provider_that_fails_one_charge_and_answers_otherwise_is_asked_four_times(
    postgres_url: str, redis_url: str
) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        tries = list[str]()

        def fault(call: str, about: str) -> str | None:
            tries.append(call)
            return "error" if call == "POST charges" else None

        manual.connection.fault = fault
        held = manual.holds.hold()
        reference = await manual.order_of(held)
        for _ in range(TRIES):
            await manual.work()
            await manual.travel(10)
        seen = await manual.see(reference)
        assert (seen["status"], seen["attempt"]["reason"]) == ("cancelled", "provider-error")
        assert tries.count("POST charges") == manual.settings.payment_retries + 1
        assert manual.holds.reservations[held].status not in ("paying", "confirmed")


async def test_who_looks_meanwhile_sees_where_the_order_stands(postgres_url: str, redis_url: str) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        first, second = [
            await manual.order_of(manual.holds.hold(holder), method="redirect") for holder in ("fan", "fan")
        ]
        assert (await manual.see(first))["progress"] == "waiting"
        manual.connection.fault = lambda call, about: "answer lost" if call == "POST charges" else None
        await manual.work()
        assert (await manual.see(first))["progress"] == "paying"
        manual.connection.fault = lambda call, about: None
        await manual.travel(10)
        await manual.work()
        assert (await manual.see(second))["progress"] == "your-turn"
        headers = {"authorization": f"Bearer {pass_of()}"}
        assert (await manual.http.post(f"/orders/{second}/cancel", headers=headers)).is_success
        assert (await manual.see(second))["progress"] is None


async def _is_due_in_time(manual: ManualShop, reference: str) -> bool:
    async with manual.state.db.connect() as connection:
        return bool(await connection.scalar(IN_TIME, {"reference": reference}))
