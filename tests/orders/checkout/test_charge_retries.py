"""An order whose provider does not accept the charge: it is retried until the hold ends, and no longer."""

import pytest

from services.orders.tuning import DEFAULTS
from tests.orders.manual_orders import PAY_TTL_S, ManualShop, no_fault, open_manual_shop

IN_TIME = """SELECT p.due_at < o.expires_at + interval '0.9 s'
FROM orders."order" o JOIN orders.open_order p USING (reference) WHERE reference = :reference"""
TRIES, LEFT_S, RETRY_MAX_S = 6, 10, 60.0  # more tries than `payment_retries`


@pytest.mark.parametrize(("how", "at_its_end"), [("unreachable", "expired"), ("busy", "expired"), ("error", "pending")])
async def test_a_charge_is_retried_until_the_hold_ends_and_the_order_expires_unless_it_may_be_charged(
    how: str, at_its_end: str, postgres_url: str, redis_url: str
) -> None:
    """By its delay alone the last try would come after the end. A call answered 503 may have charged: the tickets stay
    held until the provider shows that it did not.
    """
    async with open_manual_shop(postgres_url, redis_url, retry_max_s=RETRY_MAX_S) as manual:
        tries = list[str]()

        def fault(call: str, key: str) -> str:
            tries.append(call)
            return how

        manual.connection.fault = fault
        reservation_id = await manual.inventory.hold()
        reference = await manual.order_of(reservation_id)
        await manual.work()
        for pause_s in (*[100] * (TRIES - 1), PAY_TTL_S - 100 * (TRIES - 1) - LEFT_S):
            await manual.travel(pause_s)
            await manual.work()
        assert tries.count("POST charges") > DEFAULTS.payment_retries + 1
        assert await manual.status(reference) == "pending"
        assert await manual.scalar(IN_TIME, reference=reference), "the next try is at the end of the hold"
        await manual.travel(LEFT_S)
        await manual.work()
        assert await manual.status(reference) == at_its_end
        assert (await manual.inventory.status(reservation_id) == "paying") == (at_its_end == "pending")
        manual.connection.fault = no_fault
        await manual.travel(2 * RETRY_MAX_S)
        await manual.work()
        assert await manual.status(reference) == "expired"
        assert await manual.inventory.status(reservation_id) not in ("paying", "confirmed")
        assert await manual.charges() == []


async def test_a_charge_that_keeps_failing_is_retried_three_times_and_cancelled(manual: ManualShop) -> None:
    tries = list[str]()

    def fault(call: str, key: str) -> str | None:
        tries.append(call)
        return "error" if call == "POST charges" else None

    manual.connection.fault = fault
    reservation_id = await manual.inventory.hold()
    reference = await manual.order_of(reservation_id)
    for _ in range(TRIES):
        await manual.work()
        await manual.travel(10)
    order = await manual.view(reference)
    assert (order["status"], order["attempt"]["reason"]) == ("cancelled", "provider-error")
    assert tries.count("POST charges") == DEFAULTS.payment_retries + 1
    assert await manual.inventory.status(reservation_id) not in ("paying", "confirmed")


async def test_an_order_shows_its_progress(manual: ManualShop) -> None:
    first, second = [await manual.order_of(await manual.inventory.hold(), method="redirect") for _ in range(2)]
    assert (await manual.view(first))["progress"] == "paying", "from its birth: a worker has it"
    manual.connection.fault = lambda call, key: "answer lost" if call == "POST charges" else None
    await manual.work()
    order = await manual.view(first)
    assert (order["progress"], order["attempt"]["status"]) == ("paying", "processing"), "never shown as failed"
    manual.connection.fault = no_fault
    await manual.travel(10)
    await manual.work()
    assert (await manual.view(second))["progress"] == "your-turn"
    assert (await manual.cancel(second)).is_success
    assert (await manual.view(second))["progress"] == "cancelling"
    await manual.work()
    assert (await manual.view(second))["progress"] is None
    manual.connection.fault = lambda call, key: "unreachable"
    third = await manual.order()
    await manual.work()
    assert (await manual.view(third))["progress"] == "waiting", "until the provider can be reached"
