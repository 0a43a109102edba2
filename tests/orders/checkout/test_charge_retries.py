"""An order whose provider does not accept the charge: it is retried until the hold ends, and no longer."""

import pytest
from sqlalchemy import text

from tests.orders.manual_orders import PAY_TTL_S, ManualShop, no_fault, open_manual_shop

IN_TIME = text("SELECT due_at < expires_at + interval '0.9 s' FROM orders.\"order\" WHERE reference = :reference")
TRIES, LEFT_S, RETRY_MAX_S = 6, 10, 60.0  # more tries than `payment_retries`


async def _failing_order(manual: ManualShop, how: str) -> tuple[str, str]:
    """An order after many failed charges, shortly before its hold ends, and the reservation. By its delay alone, the
    next try would come after the end.
    """
    tries = list[str]()

    def fault(call: str, key: str) -> str:
        tries.append(call)
        return how

    manual.connection.fault = fault
    reservation_id = manual.holds.hold()
    reference = await manual.order_of(reservation_id)
    await manual.work()
    for _ in range(TRIES - 1):
        await manual.travel(100)
        await manual.work()
    await manual.travel(PAY_TTL_S - 100 * (TRIES - 1) - LEFT_S)
    await manual.work()
    assert tries.count("POST charges") > 4
    return reference, reservation_id


@pytest.mark.parametrize("how", ["unreachable", "busy"])
async def test_an_order_whose_provider_accepts_no_call_expires_with_its_hold(
    how: str, postgres_url: str, redis_url: str
) -> None:
    async with open_manual_shop(postgres_url, redis_url, retry_max_s=RETRY_MAX_S) as manual:
        reference, reservation_id = await _failing_order(manual, how)
        assert await manual.status(reference) == "pending"
        assert await _is_due_in_time(manual, reference), "the next try is at the end of the hold"
        await manual.travel(LEFT_S)
        await manual.work()
        assert await manual.status(reference) == "expired"
        assert manual.holds.reservations[reservation_id].status not in ("paying", "confirmed")
        assert await manual.charges() == []


async def test_an_order_with_an_unknown_outcome_expires_once_the_provider_answers(
    postgres_url: str, redis_url: str
) -> None:
    """A call answered 503 may have charged: the tickets stay held until the provider shows that it did not."""
    async with open_manual_shop(postgres_url, redis_url, retry_max_s=RETRY_MAX_S) as manual:
        reference, reservation_id = await _failing_order(manual, "error")
        assert await _is_due_in_time(manual, reference)
        await manual.travel(LEFT_S)
        await manual.work()
        assert await manual.status(reference) == "pending"
        assert manual.holds.reservations[reservation_id].status == "paying"
        manual.connection.fault = no_fault
        await manual.travel(2 * RETRY_MAX_S)
        await manual.work()
        assert await manual.status(reference) == "expired"
        assert manual.holds.reservations[reservation_id].status not in ("paying", "confirmed")


async def test_a_charge_that_keeps_failing_is_retried_three_times_and_cancelled(
    postgres_url: str, redis_url: str
) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        tries = list[str]()

        def fault(call: str, key: str) -> str | None:
            tries.append(call)
            return "error" if call == "POST charges" else None

        manual.connection.fault = fault
        reservation_id = manual.holds.hold()
        reference = await manual.order_of(reservation_id)
        for _ in range(TRIES):
            await manual.work()
            await manual.travel(10)
        order = await manual.view(reference)
        assert (order["status"], order["attempt"]["reason"]) == ("cancelled", "provider-error")
        assert tries.count("POST charges") == manual.settings.payment_retries + 1
        assert manual.holds.reservations[reservation_id].status not in ("paying", "confirmed")


async def test_an_order_shows_its_progress(postgres_url: str, redis_url: str) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        first, second = [await manual.order_of(manual.holds.hold(), method="redirect") for _ in range(2)]
        assert (await manual.view(first))["progress"] == "waiting"
        manual.connection.fault = lambda call, key: "answer lost" if call == "POST charges" else None
        await manual.work()
        assert (await manual.view(first))["progress"] == "paying"
        manual.connection.fault = no_fault
        await manual.travel(10)
        await manual.work()
        assert (await manual.view(second))["progress"] == "your-turn"

        assert (await manual.cancel(second)).is_success
        assert (await manual.view(second))["progress"] is None


async def _is_due_in_time(manual: ManualShop, reference: str) -> bool:
    async with manual.state.db.connect() as connection:
        return bool(await connection.scalar(IN_TIME, {"reference": reference}))
