"""An order whose provider does not take the charge: asked for as long as the hold lasts, and not a second longer."""

import pytest
from sqlalchemy import text

from tests.orders.manual_orders import PAY_TTL_S, Desk, open_desk
from tests.orders.shop import pass_of

IN_TIME = text("SELECT due_at < expires_at + interval '0.9 s' FROM orders.\"order\" WHERE reference = :reference")
TRIES, LEFT_S, RETRY_MAX_S = 6, 10, 60.0  # more tries than `payment_retries`


async def _tried(desk: Desk, how: str, *, only: str = "") -> tuple[str, str]:
    """An order and its hold, a moment before its end, after many tries; the next would come half a minute later."""
    tries = list[str]()

    def mood(call: str, about: str) -> str | None:
        tries.append(call)
        return how if call.startswith(only) else None

    desk.line.mood = mood
    held = desk.holds.hold()
    reference = await desk.order_of(held)
    await desk.work()
    for _ in range(TRIES - 1):
        await desk.travel(100)
        await desk.work()
    await desk.travel(PAY_TTL_S - 100 * (TRIES - 1) - LEFT_S)
    await desk.work()
    assert tries.count("POST charges") > 4
    return reference, held


@pytest.mark.parametrize("how", ["unreachable", "busy"])
async def test_a_provider_that_takes_no_call_is_asked_until_the_hold_ends_and_then_the_tickets_go_back(
    how: str, postgres_url: str, redis_url: str
) -> None:
    async with open_desk(postgres_url, redis_url, retry_max_s=RETRY_MAX_S) as desk:
        reference, held = await _tried(desk, how)
        assert await desk.status(reference) == "pending"
        assert await _is_due_in_time(desk, reference), "the next look is at the end"
        await desk.travel(LEFT_S)
        await desk.work()
        assert await desk.status(reference) == "expired"
        assert desk.holds.reservations[held].status not in ("paying", "confirmed")
        assert await desk.charges() == []


async def test_a_provider_that_is_broken_altogether_is_asked_at_the_end_and_holds_nothing_once_it_answers(
    postgres_url: str, redis_url: str
) -> None:
    """A 503 may have charged: until the provider says that it did not, the tickets are nobody else's."""
    async with open_desk(postgres_url, redis_url, retry_max_s=RETRY_MAX_S) as desk:
        reference, held = await _tried(desk, "error")
        assert await _is_due_in_time(desk, reference)
        await desk.travel(LEFT_S)
        await desk.work()
        assert (await desk.status(reference), desk.holds.reservations[held].status) == ("pending", "paying")
        desk.line.mood = lambda call, about: None
        await desk.travel(2 * RETRY_MAX_S)
        await desk.work()
        assert await desk.status(reference) == "expired"
        assert desk.holds.reservations[held].status not in ("paying", "confirmed")


async def test_a_provider_that_fails_one_charge_and_answers_otherwise_is_asked_four_times(
    postgres_url: str, redis_url: str
) -> None:
    async with open_desk(postgres_url, redis_url) as desk:
        tries = list[str]()

        def mood(call: str, about: str) -> str | None:
            tries.append(call)
            return "error" if call == "POST charges" else None

        desk.line.mood = mood
        held = desk.holds.hold()
        reference = await desk.order_of(held)
        for _ in range(TRIES):
            await desk.work()
            await desk.travel(10)
        seen = await desk.see(reference)
        assert (seen["status"], seen["attempt"]["reason"]) == ("cancelled", "provider-error")
        assert tries.count("POST charges") == desk.settings.payment_retries + 1
        assert desk.holds.reservations[held].status not in ("paying", "confirmed")


async def test_who_looks_meanwhile_sees_where_the_order_stands(postgres_url: str, redis_url: str) -> None:
    async with open_desk(postgres_url, redis_url) as desk:
        first, second = [await desk.order_of(desk.holds.hold(holder), method="redirect") for holder in ("fan", "fan")]
        assert (await desk.see(first))["progress"] == "waiting"
        desk.line.mood = lambda call, about: "answer lost" if call == "POST charges" else None
        await desk.work()
        assert (await desk.see(first))["progress"] == "paying"
        desk.line.mood = lambda call, about: None
        await desk.travel(10)
        await desk.work()
        assert (await desk.see(second))["progress"] == "your-turn"
        headers = {"authorization": f"Bearer {pass_of()}"}
        assert (await desk.http.post(f"/orders/{second}/cancel", headers=headers)).is_success
        assert (await desk.see(second))["progress"] is None


async def _is_due_in_time(desk: Desk, reference: str) -> bool:
    async with desk.state.db.connect() as connection:
        return bool(await connection.scalar(IN_TIME, {"reference": reference}))
