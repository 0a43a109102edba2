"""Histories of a line that break one promise each: of places, passes, calls and positions.

`onsale check-history`: a table of what was compared, one line for a broken promise, exit codes.

A made-up sale that keeps its promises is clean, and everything in it was compared.

Histories of holds that break one promise each: of their places, their end, and of nobody else having them.
"""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onsale.cli.app import app
from onsale.data_dir import Engines, write_engines_file
from onsale.errors import OperatorError
from onsale.history import command
from onsale.history.checker import BadHistory, lines
from onsale.history.checks.check import chunks
from onsale.history.checks.seats import TYPES
from tests.onsale.history.doctored import START_S, Sale, hold, line, of_place, order
from tests.support.engines.engines import run_in_thread

PLACE_3 = "WHERE join_seq = 3"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (f"DELETE FROM queue.place {PLACE_3}", "was acknowledged and is not stored"),
        (f"UPDATE queue.place SET holder = 'fan-9' {PLACE_3}", "belongs to another fan"),
        ("UPDATE queue.admission SET jti = 'jti-2' WHERE join_seq = 1", "the pass of place 1"),
        ("UPDATE queue.admission SET expires_at_ms = 1800000600000 WHERE join_seq = 1", "is shorter than its pass"),
        ("DELETE FROM queue.admission WHERE join_seq = 2", "the call of place 2"),
    ],
)
async def test_rows_that_are_missing_or_differ(sale: Sale, change: str, sentence: str) -> None:
    await sale.change(change)
    [found] = await sale.violations()
    assert sentence in found


TYPED = """UPDATE inventory.event
    SET price_types = '[{"type_id": "adult", "name": "A"}, {"type_id": "child", "name": "C"}]';
    INSERT INTO inventory.section (event_id, section_id, ordinal, name, kind, rows, seats_per_row, capacity,
        seats_remaining, price_minor, fee_minor) VALUES ('arena', '~child', 2, 'Child', 'type', 0, 0, 1, 0, 0, 0);
    UPDATE inventory.reservation_ga SET quantity = 1;
    INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor, type_id)
    VALUES ('arena', 'R1', 'GA1', 1, 3000, 'child')"""
TICKETS = [
    {"section_id": "A", "seat_id": "A-1-1", "quantity": 1, "type_id": "adult", "unit_price_minor": 5000},
    {"section_id": "GA1", "quantity": 1, "type_id": "adult", "unit_price_minor": 3000},
    {"section_id": "GA1", "quantity": 1, "type_id": "child", "unit_price_minor": 3000},
]


async def with_types(sale: Sale) -> None:
    """The second ticket of the floor is a child's; there is no other child's ticket."""
    await sale.change(TYPED)
    ga = [{"section_id": "GA1", "quantity": 2}]
    more = {"seats": ["A-1-1"], "ga": ga, "total_amount_minor_units": 11000, "tickets": TICKETS}
    sale.add(hold("types_changed", 385, "R1", **more))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("SELECT 1", ""),
        ("UPDATE inventory.section SET capacity = 0 WHERE kind = 'type'", "1 tickets of price type child of arena are"),
        ("UPDATE inventory.reservation_seat SET type_id = 'child' WHERE position = 0; UPDATE inventory.section SET "
         "capacity = 2, seats_remaining = 0 WHERE kind = 'type'", "of the price type child at 5000 for A-1-1"),
        ("UPDATE inventory.reservation_ga SET unit_price_minor = 1 WHERE type_id = ''", "of the price type adult at 1"),
    ],
)  # fmt: skip
async def test_price_types_that_are_too_many_or_differ(sale: Sale, change: str, sentence: str) -> None:
    await with_types(sale)
    await sale.change(change)
    found = await sale.violations()
    assert [sentence in each for each in found] == ([True] if sentence else []), found


@pytest.mark.parametrize("unanswered", [False, True])
async def test_a_change_of_types_without_an_answer_may_have_happened(sale: Sale, unanswered: bool) -> None:
    await with_types(sale)
    await sale.change("UPDATE inventory.reservation_seat SET unit_price_minor = 2500 WHERE position = 0")
    await sale.change("UPDATE inventory.reservation SET total_minor = 8500 WHERE reservation_id = 'R1'")
    if unanswered:
        sale.add(line("unanswered", 386, reservation_id="R1", of=TYPES))
    assert bool(await sale.violations()) != unanswered


@pytest.mark.usefixtures("own_database")
@pytest.mark.parametrize("agrees", [True, False])
async def test_the_order_has_the_types_of_its_reservation(sale: Sale, agrees: bool) -> None:
    """As soon as orders knows price types: the column is that of its event."""
    await with_types(sale)
    await sale.change("ALTER TABLE orders.event ADD COLUMN IF NOT EXISTS price_types jsonb DEFAULT '[]'")
    await sale.change(
        "INSERT INTO orders.event (event_id, name, venue, starts_at, currency, section_names, applied_by, price_types) "
        "VALUES ('arena', 'A', 'H', now(), 'EUR', '{}', 'a', '[{}, {}]')"
    )
    lines = "jsonb_set(lines, '{1,tickets}', '[{\"id\": \"T2\"}]')"
    added = '{"section_id": "GA1", "unit_price_minor": 3000, "tickets": [{"id": "T3"}], "type_id": "child"}'
    if not agrees:
        added = added.replace("child", "senior")
    await sale.change(f"UPDATE orders.\"order\" SET lines = {lines} || '[{added}]'")
    found = await sale.violations()
    expected = ["order O1 does not have GA1 at the price type child, which its reservation has"]
    assert found == ([] if agrees else expected)


async def test_a_call_that_a_fault_took_is_no_violation(sale: Sale) -> None:
    await sale.change("DELETE FROM queue.admission WHERE join_seq = 2")
    sale.add(line("fault", 33, name="flush"))
    assert await sale.violations() == []


async def test_a_users_place_belongs_to_the_user(sale: Sale) -> None:
    sale.lines[2] = {**sale.lines[2], "fan": None, "user": "ada"}
    for each in sale.lines:
        if each.get("join_seq") == 3:
            each["fan"] = None
    [found] = await sale.violations()
    assert "another user" in found
    await sale.change(f"UPDATE queue.place SET user_id = 'ada' {PLACE_3}")
    assert await sale.violations() == []


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([of_place("joined", 14, 3, fan="fan-4")], "two fans were given place 3"),
        ([of_place("left", 40, 3)], "place 3 of lane 0, epoch 1, of arena had ended and is live"),
        ([of_place("position", 40, 3, status="expired")], "had ended and is live"),
        ([of_place("claimed", 31, 1, jti="jti-7", expires_at_ms=(START_S + 630) * 1000)], "was given two passes"),
    ],
)
async def test_answers_that_the_database_denies(sale: Sale, lines: list[dict[str, Any]], sentence: str) -> None:
    sale.add(*lines)
    found = await sale.violations()
    assert any(sentence in each for each in found), found


async def test_what_has_ended_waits_no_more(sale: Sale) -> None:
    await sale.change(f"UPDATE queue.place SET end_reason = 'left', ended_at = now() {PLACE_3}")
    sale.add(of_place("left", 38, 3))
    assert await sale.violations() == []
    sale.add(of_place("position", 40, 3, position_in_queue=1))
    [found] = await sale.violations()
    assert "is waiting again" in found


@pytest.mark.parametrize(("ended_s", "clean"), [(12, True), (14, False)])
async def test_a_fan_has_one_live_place(sale: Sale, ended_s: int, clean: bool) -> None:
    """The fan of place 3, which was given 13 s after the start, had place 2 until `ended_s`."""
    await sale.change(f"UPDATE queue.place SET end_reason = 'left', ended_at = to_timestamp({START_S + ended_s}) "
                      "WHERE join_seq = 2")  # fmt: skip
    await sale.change(f"UPDATE queue.place SET holder = 'fan-2' {PLACE_3}")
    sale.lines = [each | ({"fan": "fan-2"} if each.get("join_seq") == 3 else {}) for each in sale.lines]
    found = await sale.violations()
    assert found == ([] if clean else ["fan-2 has two live places at arena: 2 and 3"])


# -- calls -----------------------------------------------------------------------------------------------------------


def called(n: int, at_s: float) -> str:
    return f"UPDATE queue.admission SET deadline_ms = {round((START_S + at_s + 120) * 1000)} WHERE join_seq = {n}"


async def test_a_present_fan_is_not_overtaken(sale: Sale) -> None:
    await sale.change(called(1, 24))
    await sale.change(called(2, 18))
    [found] = await sale.violations()
    assert "place 1 of lane 0, epoch 1, of arena waited while 2 behind it was called" in found


async def test_a_present_fan_is_not_forgotten(sale: Sale) -> None:
    await sale.change("INSERT INTO queue.admission VALUES ('arena', 1, 0, 4, 1, 'called', "
                      f"{(START_S + 30 + 120) * 1000})")  # fmt: skip
    [found] = await sale.violations()
    assert "place 3" in found
    assert "while 4 behind it" in found


@pytest.mark.parametrize("reason", ["silent", "late", "left"])
async def test_a_fan_who_was_not_there_may_be_overtaken(sale: Sale, reason: str) -> None:
    await sale.change(called(1, 24))
    await sale.change(called(2, 18))
    if reason == "silent":
        sale.lines = [each for each in sale.lines if each.get("join_seq") != 1 or each["at_ms"] > (START_S + 20) * 1000]
        sale.add(of_place("joined", 5, 1, position_in_queue=1))
    elif reason == "late":
        sale.lines[0] = of_place("joined", 17, 1, position_in_queue=1)
    else:
        await sale.change("UPDATE queue.place SET ended_at = now(), end_reason = 'left' WHERE join_seq = 1")
        sale.lines = [each for each in sale.lines if each.get("join_seq") != 1 or each["what"] in ("joined", "claimed")]
        sale.add(of_place("left", 15, 1), of_place("position", 19, 1, status="left"))
    assert [each for each in await sale.violations() if "waited while" in each] == []


async def test_missed_and_undated_calls_are_not_compared(sale: Sale) -> None:
    await sale.change("UPDATE queue.admission SET deadline_ms = NULL WHERE join_seq = 1")
    await sale.change(called(2, 18))
    assert await sale.violations() == []


async def test_no_more_fans_shop_than_may(sale: Sale) -> None:
    await sale.change("UPDATE queue.audit_log SET after = after || '{\"max_active\": 1}'")
    assert await sale.violations() == ["arena: 2 fans are called or shop, 1 may"]


async def test_a_fan_whose_place_has_ended_shops_no_more(sale: Sale) -> None:
    await sale.change("UPDATE queue.audit_log SET after = after || '{\"max_active\": 1}'")
    await sale.change("UPDATE queue.place SET ended_at = now(), end_reason = 'left' WHERE join_seq = 1")
    assert [each for each in await sale.violations() if "shop" in each] == []


def calls_at(at_s: float, n: int) -> str:
    return f"""INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms)
        SELECT 'arena', 1, 0, 100 + n, 1, 'ended', {round((START_S + at_s + 120) * 1000)} + n
        FROM generate_series(1, {n}) AS n"""


def setting(at_s: float, action: str = "change", **changes: Any) -> str:
    after = "".join(f""" || '{{"{name}": {value}}}'""" for name, value in changes.items())
    return f"""INSERT INTO queue.audit_log (at, actor, action, subject, after)
        SELECT to_timestamp({START_S + at_s}), 'system', '{action}', subject, after{after} FROM queue.audit_log
        ORDER BY id LIMIT 1"""


@pytest.mark.parametrize(
    ("settings", "calls", "clean"),
    [
        ([], 7, True),  # the burst, and a second's calls of slack
        ([], 8, False),
        ([setting(500, "admit", admit=20)], 27, True),
        ([setting(500, "admit", admit=20)], 28, False),
        ([setting(500, burst=10)], 12, True),
        ([setting(500, burst=2)], 4, True),
        ([setting(500, burst=2)], 5, False),
        ([setting(500, burst=10), setting(600, burst=5)], 8, False),
    ],
)
async def test_no_more_calls_than_burst_and_rate_allow(
    sale: Sale, settings: list[str], calls: int, clean: bool
) -> None:
    for each in settings:
        await sale.change(each)
    await sale.change(calls_at(1000, calls))
    found = [each for each in await sale.violations() if "too early" in each]
    assert (found == []) is clean


async def test_a_paused_room_calls_nobody(sale: Sale) -> None:
    """What was saved before the pause may be called at its end, and no more."""
    await sale.change(setting(500, state='"paused"'))
    await sale.change(calls_at(600, 7))
    await sale.change(calls_at(2000, 7).replace("100 + n", "200 + n"))
    assert any("too early" in each for each in await sale.violations())


async def test_events_with_fans_who_bypass_the_line_have_no_order(sale: Sale) -> None:
    await sale.change(called(1, 24))
    await sale.change(called(2, 18))
    await sale.change(setting(1, rollout_percent=50))
    assert await sale.violations() == []


async def test_a_lottery_calls_by_rank(sale: Sale) -> None:
    """Rank 1 was drawn by number 2, so calling number 1 first is wrong."""
    for each in sale.lines:
        if each["what"] == "position" and each.get("join_seq") in (1, 2, 3):
            each["rank"] = {1: 2, 2: 1, 3: 3}[each["join_seq"]]
    [found] = await sale.violations()
    assert "place 2 of lane 0, epoch 1, of arena waited while 1 behind it" in found


# -- positions -------------------------------------------------------------------------------------------------------


async def test_a_position_never_grows(sale: Sale) -> None:
    sale.add(of_place("position", 39, 3, position_in_queue=2))
    assert await sale.violations() == ["place 3 of lane 0, epoch 1, of arena went back from position 1 to 2"]
    sale.add(line("fault_began", 38, name="gateway killed"), line("fault_ended", 38, name="gateway killed"))
    assert await sale.violations() == []


@pytest.mark.parametrize(("head", "later_s", "clean"), [(4, 41, True), (5, 41, False), (4, 42.5, False)])
async def test_a_gateway_may_have_an_older_head_for_two_seconds(
    sale: Sale, head: int, later_s: float, clean: bool
) -> None:
    sale.add(
        of_place("position", 40, 3, position_in_queue=0, head_seq=5),
        of_place("position", later_s, 3, position_in_queue=1, head_seq=head),
    )
    wrong = ["place 3 of lane 0, epoch 1, of arena went back from position 0 to 1"]
    assert await sale.violations() == ([] if clean else wrong)


@pytest.mark.parametrize(("head", "later_s", "clean"), [(7, 41, True), (8, 41, False), (7, 42.5, False)])
async def test_the_answer_to_a_joining_fan_tells_the_head_by_the_position(
    sale: Sale, head: int, later_s: float, clean: bool
) -> None:
    sale.add(
        of_place("joined", 40, 8, status="ready", position_in_queue=0),
        of_place("position", later_s, 8, position_in_queue=1, head_seq=head),
    )
    found = "place 8 of lane 0, epoch 1, of arena went back from position 0 to 1" in await sale.violations()
    assert found is not clean


async def test_overlapping_requests_have_no_order(sale: Sale) -> None:
    sale.add({**of_place("position", 39, 3, position_in_queue=2), "sent_ms": (START_S + 30) * 1000})
    assert await sale.violations() == []


@pytest.mark.parametrize(
    ("change", "clean"),
    [
        (None, False),
        ({"reason": "rate-lowered", "at": "2027-01-15T08:00:38Z"}, True),
        ({"reason": "rate-lowered", "at": "2027-01-15T07:58:00Z"}, False),
    ],
)
async def test_a_wait_grows_with_a_reason_only(sale: Sale, change: dict[str, str] | None, clean: bool) -> None:
    more = {} if change is None else {"estimate_changed": change}
    sale.add(of_place("position", 39, 3, position_in_queue=1, estimated_wait_time=5, **more))
    found = await sale.violations()
    wrong = ["the wait of place 3 of lane 0, epoch 1, of arena grew from 4 to 5 s without a reason"]
    assert found == ([] if clean else wrong)


@pytest.fixture
def ran(sale: Sale, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> "Ran":
    """The command on the sale's history, with the addresses in a data directory."""
    for name in ("ONSALE_POSTGRES_URL", "QUEUE_POSTGRES_URL", "INVENTORY_POSTGRES_URL", "ORDERS_POSTGRES_URL"):
        monkeypatch.delenv(name, raising=False)
    write_engines_file(tmp_path, Engines(postgres_url, "redis://none"), "http://provider")
    monkeypatch.setattr(command, "run_async", run_in_thread)
    return Ran(sale, tmp_path)


class Ran:
    """Exit code and output of the command."""

    def __init__(self, sale: Sale, folder: Path) -> None:
        self._sale, self._folder = sale, folder

    def __call__(self, *options: str) -> tuple[int, str]:
        path = self._sale.write()
        arguments = ["check-history", str(path), "--data-dir", str(self._folder), *options]
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}, catch_exceptions=False)
        return result.exit_code, result.output


async def test_a_kept_promise_is_a_row(ran: Ran) -> None:
    code, output = ran()
    assert code == 0
    assert "orders are kept" in output
    assert "broken:" not in output


async def test_a_broken_promise_is_a_line_with_its_proof(ran: Ran, sale: Sale) -> None:
    sale.add(of_place("position", 600, 3, position_in_queue=2))
    code, output = ran()
    assert code == 1
    assert "broken: place 3 of lane 0, epoch 1, of arena went back from position 1 to 2" in output
    assert f"({sale.path.name}:12, {len(sale.lines)})" in output
    assert ran("--event-id", "another")[0] == 0


async def test_what_cannot_be_read_is_said_in_one_line(ran: Ran, sale: Sale, tmp_path: Path) -> None:
    sale.lines = [{"at_ms": 1}]
    with pytest.raises(OperatorError, match="Line 1 of"):
        ran()
    (tmp_path / "engines.json").unlink()
    with pytest.raises(OperatorError, match="ONSALE_POSTGRES_URL"):
        ran()


async def test_a_sound_sale_is_clean_and_was_compared(sale: Sale) -> None:
    report = await sale.report()
    assert report.violations == []
    assert report.is_clean
    assert report.read["joined"] == 3
    nothing = {check.title for check in report.checked if not check.compared}
    assert nothing == {"a repeated key has the same answer", "price types keep their numbers and prices"}


@pytest.mark.parametrize("text", ["", "{}", '{"what": 1, "at_ms": 2}', "[1]", '{"what": "joined"}'])
def test_a_file_that_is_no_history_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(f'{{"what": "note", "at_ms": 1}}\n{text}\n')
    with pytest.raises(BadHistory, match="Line 2"):
        list(lines(path))


def test_what_is_read_in_pieces_may_be_taken_out_meanwhile() -> None:
    waiting = dict.fromkeys(range(5), "sold")
    for some in chunks(waiting, size=2):
        for number in some:
            del waiting[number]
    assert waiting == {}


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


TYPED_EVENT = """UPDATE inventory.event SET price_types = '[{"type_id": "adult"}, {"type_id": "child"}]'"""
CHILDREN = "INSERT INTO inventory.section (event_id, section_id, ordinal, name, kind, rows, seats_per_row, capacity, " \
    "seats_remaining, price_minor, fee_minor) " \
    "VALUES ('arena', '~child', 2, 'Child', 'type', 0, 0, 2, 0, 0, 0)"  # fmt: skip
SPLIT = ["UPDATE inventory.reservation_ga SET quantity = 1 WHERE reservation_id = 'R1'",
         "INSERT INTO inventory.reservation_ga VALUES ('arena', 'R1', 'GA1', 1, 3000, 'child')"]  # fmt: skip


FLOOR = '{"section_id": "GA1", "unit_price_minor": 3000, "paid_minor": 3000, "tickets": [{"id": "%s"}]}'
LINES = f"""UPDATE orders."order" SET lines = jsonb_set(lines, '{{1}}', '{FLOOR % "T2"}')
    || jsonb_build_array('{FLOOR % "T3"}'::jsonb || '{{"type_id": "child"}}') WHERE reservation_id = 'R1'"""


def tickets_of(*tickets: Any) -> list[dict[str, Any]]:
    """As a reservation answers them, given by place, price type and number; a seat costs 50.00, others 30.00."""
    return [
        {
            "section_id": place.split("-")[0], "seat_id": place if "-" in place else None, "quantity": quantity,
            "type_id": type_id, "unit_price_minor": 5000 if "-" in place else 3000,
        }
        for place, type_id, quantity in tickets
    ]  # fmt: skip


async def of_types(sale: Sale) -> None:
    """The event has price types, two children in all; one floor ticket of the order is a child's."""
    for change in (TYPED_EVENT, CHILDREN, *SPLIT, LINES):
        await sale.change(change)
    tickets = tickets_of(["A-1-1", "adult", 1], ["GA1", "adult", 1], ["GA1", "child", 1])
    sale.lines = [{**each, "tickets": tickets} if each["what"] == "held" and each["reservation_id"] == "R1" else each
                  for each in sale.lines]  # fmt: skip


async def test_floor_tickets_of_several_types_are_one_section(sale: Sale) -> None:
    await of_types(sale)
    assert await sale.violations() == []
    await sale.change("UPDATE inventory.section SET capacity = 1, seats_remaining = 0 WHERE section_id = 'GA1'")
    assert "2 places of section GA1 are sold, it has 1" in await sale.violations()


async def test_no_price_type_is_given_or_sold_beyond_its_number_in_all(sale: Sale) -> None:
    await of_types(sale)
    await sale.change("UPDATE inventory.section SET capacity = 0 WHERE section_id = '~child'")
    found = await sale.violations()
    assert "1 tickets of price type child of arena are held or sold, there are 0" in found
    await sale.change("UPDATE inventory.section SET capacity = 2 WHERE section_id = '~child'")
    await sale.change(RESERVATION.format("pending_payment"))
    await sale.change("INSERT INTO inventory.reservation_ga VALUES ('arena', 'R3', 'GA1', 2, 3000, 'child')")
    ga = [{"section_id": "GA1", "quantity": 2}]
    sale.add(hold("held", 600, "R3", fan="fan-2", seats=[], ga=ga, tickets=tickets_of(["GA1", "child", 2])))
    assert "~child of arena was given 3 times at once, there is 2" in await sale.violations()
    sale.add(hold("types_changed", 590, "R1", seats=["A-1-1"], ga=ga, total_amount_minor_units=11000, tickets=[]))
    assert [each for each in await sale.violations() if "~child" in each] == []


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
