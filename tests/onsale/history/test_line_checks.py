"""Histories of a line that break one promise each: of places, passes, calls and positions."""

from typing import Any

import pytest

from tests.onsale.history.doctored import START_S, Sale, line, of_place

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
