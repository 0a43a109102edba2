"""Histories of holds that break one promise each: of their places, their end, and of nobody else having them."""

from typing import Any

import pytest

from tests.onsale.history.doctored import Sale, hold, line, of_place, order

R1, R2 = "WHERE reservation_id = 'R1'", "WHERE reservation_id = 'R2'"
RELEASE = "DELETE /events/{event_id}/reservations/{reservation_id}"
KEEP = "POST /events/{event_id}/reservations/{reservation_id}/keep"
RESERVATION = "INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, " \
    "reserved_until_ms, fingerprint) VALUES ('arena', 'R3', 'fan-2', 5000, 'EUR', '{}', 1800000700000, '')"  # fmt: skip
SEAT = "INSERT INTO inventory.reservation_seat VALUES ('arena', 'R3', 'A', {}, 5000)"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (f"DELETE FROM inventory.reservation {R2}", "reservation R2 is not stored"),
        (f"UPDATE inventory.reservation SET holder = 'fan-9' {R2}", "R2 belongs to another fan"),
        (f"DELETE FROM inventory.reservation_seat {R2}", "R2 has lost places"),
        (f"UPDATE inventory.reservation_ga SET quantity = 1 {R1}", "R1 has lost places"),
        (f"UPDATE inventory.reservation_ga SET quantity = 3 {R1}", "R1 has places that were not acknowledged"),
        ("INSERT INTO inventory.reservation_seat VALUES ('arena', 'R2', 'A', 2, 5000)", "R2 has places that were not"),
        (f"UPDATE inventory.reservation SET total_minor = 4000 {R2}", "R2 costs 4000 EUR"),
        (f"UPDATE inventory.reservation SET ended_at = to_timestamp(1800000300) {R2}", "R2 expired before"),
        (f"UPDATE inventory.reservation SET status = 'cancelled' {R2}", "R2 was released and nobody asked"),
    ],
)
async def test_reservations_that_are_missing_or_differ(sale: Sale, change: str, sentence: str) -> None:
    await sale.change(change)
    [found] = await sale.violations()
    assert sentence in found


CANCELLED = f"UPDATE inventory.reservation SET status = 'cancelled', ended_at = to_timestamp(1800000050) {R2}"
LOGGED = "INSERT INTO inventory.release_log (event_id, reservation_id, positions, ga_quantity, reason, late_ms) " \
    "VALUES ('arena', 'R2', '{{1}}', 0, '{}', 0)"  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([line("released", 50, reservation_id="R2", fan="fan-1")], "cancelled"),
        ([line("unanswered", 50, reservation_id="R2", fan="fan-1", of=RELEASE)], "cancelled"),
        ([], "operator"),
        ([], "release-all"),
        ([line("unanswered", 50, fan="fan-1", of="DELETE /events/{event_id}/queue")], "leaving"),
    ],
)
async def test_a_release_that_somebody_asked_for_is_no_loss(
    sale: Sale, lines: list[dict[str, Any]], reason: str
) -> None:
    await sale.change(CANCELLED)
    await sale.change(LOGGED.format(reason))
    sale.add(*lines)
    assert await sale.violations() == []


async def test_nobody_is_made_to_leave(sale: Sale) -> None:
    await sale.change(CANCELLED)
    await sale.change(LOGGED.format("leaving"))
    assert await sale.violations() == ["reservation R2 was released and nobody asked for it (leaving)"]


async def test_an_expired_hold_with_more_time_had_it(sale: Sale) -> None:
    sale.add(hold("hold_extended", 45, "R2", until_ms=1800000500000))
    assert await sale.violations() == ["reservation R2 expired before 1800000500000"]


async def test_what_was_released_is_not_held(sale: Sale) -> None:
    await sale.change(f"UPDATE inventory.reservation SET status = 'pending_payment' {R2}")
    assert await sale.violations() == []
    sale.add(line("released", 50, reservation_id="R2", fan="fan-1"))
    assert await sale.violations() == ["reservation R2 had ended and is pending_payment"]


async def test_what_has_ended_is_not_held_again(sale: Sale) -> None:
    sale.add(hold("reservation", 360, "R2", status="expired"), hold("hold_extended", 361, "R2", until_ms=1))
    assert await sale.violations() == ["reservation R2 had ended and is held again"]


@pytest.mark.parametrize("what", ["kept", "unanswered"])
async def test_places_that_a_fan_did_not_keep_may_go(sale: Sale, what: str) -> None:
    await sale.change(f"UPDATE inventory.reservation SET total_minor = 5000 {R1}")
    await sale.change(f"DELETE FROM inventory.reservation_ga {R1}")
    await sale.change('UPDATE orders."order" SET total_minor = 5000')
    assert "reservation R1 has lost places" in await sale.violations()
    if what == "kept":
        sale.add(hold("kept", 385, "R1", seats=["A-1-1"]))
    else:
        sale.add(line("unanswered", 385, reservation_id="R1", fan="fan-1", of=KEEP))
    assert not any("reservation R1" in each for each in await sale.violations())


# -- nobody else has it ----------------------------------------------------------------------------------------------


async def other_hold(sale: Sale, at_s: float, position: int, status: str = "pending_payment") -> None:
    """The second fan holds this seat."""
    await sale.change(RESERVATION.format(status))
    await sale.change(SEAT.format(position))
    sale.add(hold("held", at_s, "R3", fan="fan-2", seats=[f"A-1-{position + 1}"]))


async def test_a_held_seat_is_not_given_to_another(sale: Sale) -> None:
    await other_hold(sale, 200, 1)
    assert await sale.violations() == ["A-1-2 of arena was given 2 times at once, there is 1"]


async def test_a_sold_seat_is_not_given_to_another(sale: Sale) -> None:
    await other_hold(sale, 5000, 0, "expired")
    await sale.change(
        "UPDATE inventory.reservation SET ended_at = to_timestamp(1800009000) WHERE reservation_id = 'R3'"
    )
    assert await sale.violations() == ["A-1-1 of arena was given 2 times at once, there is 1"]


@pytest.mark.parametrize(
    "lines",
    [
        [line("released", 100, reservation_id="R2", fan="fan-1")],
        [line("unanswered", 100, reservation_id="R2", fan="fan-1", of=RELEASE)],
        [line("unanswered", 100, reservation_id="R2", fan="fan-1", of="POST /orders")],
        [line("unanswered", 100, fan="fan-1", of="POST /gate/release")],
        [line("all_released", 100)],
        [order("ordered", 100, reference="O2", reservation_id="R2", total_minor=5000, fan="fan-1"),
         order("order", 110, reference="O2", reservation_id="R2", total_minor=5000, status="cancelled")],
    ],
    ids=["released", "perhaps released", "perhaps ordered", "perhaps left", "all released", "order over"],
)  # fmt: skip
async def test_a_seat_that_may_be_free_may_be_given_again(sale: Sale, lines: list[dict[str, Any]]) -> None:
    await other_hold(sale, 200, 1)
    sale.add(*lines)
    assert [each for each in await sale.violations() if "at once" in each] == []


async def test_a_seat_that_an_operator_released_may_be_given_again(sale: Sale) -> None:
    await other_hold(sale, 200, 1)
    await sale.change(LOGGED.format("operator"))
    await sale.change("UPDATE inventory.release_log SET released_at = to_timestamp(1800000100)")
    assert await sale.violations() == []


async def test_an_open_order_keeps_its_seat(sale: Sale) -> None:
    await other_hold(sale, 200, 1)
    facts: dict[str, Any] = {"reference": "O2", "reservation_id": "R2", "total_minor": 5000}
    sale.add(order("ordered", 100, fan="fan-1", **facts), order("order", 250, **facts))
    assert "A-1-2 of arena was given 2 times at once, there is 1" in await sale.violations()


async def test_kept_places_stay_and_the_others_are_free(sale: Sale) -> None:
    sale.lines = [each for each in sale.lines if each.get("reservation_id") != "R2"]
    seats = ["A-1-2", "A-1-3"]
    sale.add(hold("held", 40, "R2", seats=seats), hold("kept", 50, "R2"))
    await other_hold(sale, 200, 2)
    assert await sale.violations() == []
    sale.add(hold("held", 210, "R4", fan="fan-3"))
    assert "A-1-2 of arena was given 2 times at once, there is 1" in await sale.violations()


async def test_a_floor_is_not_given_beyond_its_places(sale: Sale) -> None:
    """Two of four places are sold."""
    await sale.change(RESERVATION.format("pending_payment"))
    await sale.change("INSERT INTO inventory.reservation_ga VALUES ('arena', 'R3', 'GA1', 3, 3000)")
    sale.add(hold("held", 600, "R3", fan="fan-2", seats=[], ga=[{"section_id": "GA1", "quantity": 3}]))
    assert await sale.violations() == ["GA1 of arena was given 5 times at once, there is 4"]


async def test_no_section_sells_more_than_it_has(sale: Sale) -> None:
    await sale.change("UPDATE inventory.section SET capacity = 1, seats_remaining = 0 WHERE section_id = 'GA1'")
    assert "2 places of section GA1 are sold, it has 1" in await sale.violations()
    await sale.change("UPDATE inventory.section SET overbooked_accepted = 1 WHERE section_id = 'GA1'")
    assert await sale.violations() == []


async def test_no_seat_belongs_to_two_reservations(sale: Sale) -> None:
    await sale.change(RESERVATION.format("confirmed"))
    await sale.change(SEAT.format(0))
    assert "seat A-1-1 belongs to R1 and R3" in await sale.violations()


async def test_a_fan_who_left_has_no_hold(sale: Sale) -> None:
    await sale.change("UPDATE queue.place SET ended_at = now(), end_reason = 'left' WHERE join_seq = 1")
    await other_hold(sale, 200, 1)
    sale.add(of_place("left", 100, 1))
    assert await sale.violations() == []
