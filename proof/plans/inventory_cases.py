"""The values each statement of inventory is run with: a hundred reservations of the first section, or all."""

from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any

from proof.plans.statements import Case, every, fan, ids
from services.inventory.store.snapshot import EACH_HOLDER

BATCH = 100
NULLS: list[None] = [None] * BATCH
HELD, PAID, BOUGHT = ids(5, BATCH), ids(1, BATCH), ids(2, BATCH)
SEATS: dict[str, Any] = {"section_ids": ["S1"] * BATCH, "positions": [r * 51 + s for r in range(4) for s in range(25)]}
PLACE: dict[str, Any] = {"section_id": "S1", "position": 0}
GA: dict[str, Any] = {"section_ids": ["G1", "G2"], "ns": [1, 1], "quantities": [1, 1], "versions": [1, 1]}


def sections(size: int) -> int:
    return size // 1000 + 3


def allotted(size: int) -> int:
    """The allotted tickets of all sections."""
    return size // 50


VALUES: dict[str, Any] = {
    "event_id": "e", "event_ids": ["e"] * BATCH, "reservation_id": HELD[0], "ids": HELD, "now_ms": 10**15,
    "clock_offset_ms": 0, "count_max": BATCH, "reason": "deadline",
    "status": "available", "allotment_id": "a1", "n": 1, "epoch": 1, "redis_epoch": 1, "expected": 0, "capacity": 10**6,
    "section_id": "G1", "position": 0, "holders": [fan(i) for i in range(1, BATCH)], "status_if_free": "available",
    "edges_s": [10, 20], "shares": [0.5, 0.99], "settle_s": 60, "rows_max": 20, "bodies": ["{}"],
    "after": "", "first": 0, "last": 49, "overbooked": 1, "id": 1, "oversell_id": 1, "excess": 1, "blocked": True,
    "start": datetime.now(UTC) - timedelta(hours=2), "step_s": 60, "steps": 240,
}  # fmt: skip


def _holds() -> list[Any]:
    """A hundred holds of one free seat each: every fifth seat of the first section."""
    new = [md5(f"new {i}".encode(), usedforsecurity=False).hexdigest() for i in range(BATCH)]
    nulls: list[str | None] = [None] * BATCH
    numbers = [[0] * BATCH, [0] * BATCH, [5000] * BATCH, [10**13] * BATCH]
    reservations = [new, new, nulls, *numbers, [""] * BATCH, [600] * BATCH, nulls, [False] * BATCH]
    seats = [["S1"] * BATCH, _positions(4), new, [5000] * BATCH, ["child"] * BATCH, [""] * BATCH]
    return ["e", "EUR", *reservations, [], [], [], [], [], ["S1", "~child"], [BATCH, BATCH], *seats, "{}"]


def _positions(first: int) -> list[int]:
    """The positions of every fifth reservation's seat."""
    return [(i - 1) // 50 * 51 + (i - 1) % 50 for i in range(first, first + 5 * BATCH, 5)]


CASES = {
    "sql/flow": Case(every),
    "sql/flow_history": Case(every),
    "sql/variants": Case(every),
    "sql/block_seats": Case(BATCH, **SEATS, allotment_id=None),
    "sql/block_places": Case(2, **GA),
    "sql/count_bought": Case(every, after="", upto="g", **EACH_HOLDER.columns()),
    "sql/count_live_holds": Case(every),
    # reservations, each with its seat; to begin also what its customer bought before
    "sql/begin": Case(
        2 * BATCH, ["e"] * BATCH, HELD, ["o"] * BATCH, [fan(i) for i in range(2, 2 + 5 * BATCH, 5)], NULLS, 1, 0
    ),
    "sql/confirm": Case(2 * BATCH, ["e"] * BATCH, PAID, [f"o{i}" for i in range(1, 1 + 5 * BATCH, 5)], ["e"], ["{}"]),
    "sql/excess": Case(every),
    "sql/end_unpaid": Case(BATCH, status="expired"),
    "sql/extend": Case(1, now_ms=1000),
    "sql/returning_holders": Case(every),
    "sql/release_stock": Case(BATCH, expired="{}", cancelled="{}"),
    "sql/release_some_stock": Case(  # a seat, a ticket and a type
        3, section_ids=["S1"], positions=[4], ga_section_ids=["G1"], quantities=[1], type_ids=["child"],
        type_quantities=[1],
    ),
    "sql/write_types": Case(
        1, "e", HELD[0], 1, 5000, ["~child"], [1], ["S1"], [4], [2500], ["child"], [], [], [], [], "{}", 0
    ),
    "sql/remove_places": Case(
        1, section_ids=["S1"], positions=[4], ga_section_ids=["G1"], quantities=[1], ga_type_ids=["child"],
        status="pending_payment", total_minor=0, released_tickets=1, reason="given-back",
    ),
    "sql/hold_times": Case(every),
    "sql/choose_latest_buyers": Case(every, **PLACE),
    "sql/lock_reservations": Case(BATCH),
    "sql/lock_seats": Case(BATCH, **SEATS),
    "sql/sell_seats": Case(BATCH),
    "sql/move_reservations": Case(
        BATCH, event_ids=["e"] * BATCH, statuses=["paying"] * BATCH, references=["o"] * BATCH, untils=["1"] * BATCH,
        unbegun=[""] * BATCH,
    ),
    "sql/owners": Case(BATCH, section_ids=["S1"] * BATCH, positions=_positions(5)),
    "sql/read_reservations": Case(BATCH),
    "sql/reacquire_seats": Case(1, reservation_id=ids(4, 1)[0]),
    "sql/repair_seats": Case(every, **SEATS),
    "sql/repair_sections": Case(every, section_ids=["S1", "G1"], versions=[1, 1]),
    "sql/sales": Case(BATCH, is_rare=True, reservation_id="8", section_id="", position=-1),
    "sql/scan_due": Case(BATCH),
    "sql/overdue_events": Case(every, soon_ms=5_000),
    "sql/section_counts": Case(every),
    "sql/count_traits": Case(every),
    "accessible.HAS_ACCESSIBLE": Case(1),
    "accessible.RELEASE": Case(1),
    "sql/insert_holds": Case(BATCH, *_holds()),
    "sql/mark_returned": Case(BATCH, ids=BOUGHT),
    "sql/reacquire_sections": Case(2, **GA),
    "sql/insert_tombstones": Case(BATCH, ids=[f"never{i}" for i in range(BATCH)]),
    "sql/unnamed_owners": Case(every, after="", upto="g"),
    "sql/unowned_seats": Case(every, section_ids=[f"S{i}" for i in range(1, 51)]),
    "reservations.holds.UNPAID": Case(BATCH),
    "oversell.RETURNS": Case(every),
    "allotments.NEXT_OPENINGS": Case(BATCH),
    "allotments.MARK_OPENED": Case(1),
    "allotments.ALLOTTED_SEATS": Case(1000, section_ids=["S1"]),
    "allotments.ALLOTTED_GA": Case(1),
    "redis_stock.seat_map.IS_REVOKED": Case(1, jti="j1"),
    "redis_stock.seat_map.SEAT_STATUSES": Case(50, section_id="S1"),
    "blocking.ALLOTTED": Case(allotted, section_ids=["G1"]),
    "sql/allot_ga": Case(2, **GA),
    "sql/allot_seats": Case(BATCH, **{**SEATS, "from": None, "to": "a1"}),
    "sql/add_pools": Case(2, section_ids=["G1", "G2"]),
    "sql/move_places": Case(2, section_ids=["G1", "G2"], ns=[0, 0], blocked=[0, 0]),
    "by_code.FREE_SEATS": Case(1000),
    "by_code.SEATS": Case(1000),
    "by_code.LEFT_IN_OPEN": Case(sections),
    "by_code.SOLD_IN": Case(every, pools=["G1"]),
    "redis_stock.availability.COUNT_RESERVED": Case(1000),
    "blocking.UNALLOT": Case(2, section_ids=["G1", "G2"], ns=[0, 0]),
    "reconcile.invariants.COUNT_CONFIRMED": Case(every),
    "redis_stock.availability.COUNT_HOLDERS": Case(every),
    "store.repair.LOCK_UNLOCKED_SECTIONS": Case(2, **GA),
    "store.repair.LOCK_UNLOCKED_SEATS": Case(BATCH, **SEATS),
    "oversell.LOCK_SECTION": Case(1),
    "oversell.BUFFERS": Case(allotted),
    "oversell.REDUCE_BUFFER": Case(1, section_id="G2"),
    "oversell.UNBLOCK": Case(1),
    "blocking.LOCK_EVENT": Case(1),
    "store.reservations.ACKNOWLEDGE_CONSENTS": Case(BATCH),
    "store.reservations.PENDING_CONSENTS": Case(BATCH),
    "store.reservations.FIND_EVENTS": Case(BATCH),
    "sql/seats": Case(BATCH, **PLACE),
    "oversell.RECENT_DRIFT": Case(BATCH, is_rare=True),
    "store.drift.DELETE_OLD_DRIFT": Case(every),
    "sql/seat_statuses": Case(BATCH, **SEATS),
    "store.repair.LOCK_CAPACITY": Case(1),
    "sql/insert_oversell": Case(1, percent=1.0, policy="cancel", status="waiting", from_buffer=0),
    "store.repair.ACCEPT_OVERBOOKED": Case(1),
    "oversell.OPEN_CASE": Case(1),
    "oversell.WAITING_CASES": Case(5),
    "oversell.DELETE_WAITING": Case(1),
    "oversell.UPDATE_CASE": Case(1, status="gone", by="a", reason="r"),
    "oversell.CASES": Case(BATCH, is_rare=True),
    "oversell.COUNT_WAITING": Case(5),
    "redis_stock.rebuild.RAISE_EPOCH": Case(1),
    "oversell.DUE": Case(BATCH),
    "oversell.MARK_RETURNED": Case(BATCH, event_ids=["e"]),
    "sql/mark_refunded": Case(BATCH, event_ids=["e"] * BATCH, refunds=["w"] * BATCH),
    "oversell.CLOSE_CASES": Case(BATCH),
    "sql/insert_seats": Case(
        1000, section_id="new", seats_per_row=50, first=1, rows=[f"R{n}" for n in range(20)], of_rows=[0] * 20,
        seats=str([[str(2 * n) for n in range(50)]]).replace("'", '"'),
    ),
    "sql/resize_section": Case(1),
    "catalogue.apply_event_file.TOTAL_CAPACITY": Case(sections),
    "reservations.returns.LOCK_SECTIONS": Case(2, **GA),
    "sql/lock_reservation_seats": Case(BATCH),
    "reservations.returns.BLOCK": Case(1),
    "store.reservations.REDIS_EPOCH": Case(1),
    "redis_stock.push.VERSION": Case(1),
    "redis_stock.push.SECTIONS": Case(2, **GA),
    "sql/live_reservations": Case(BATCH),
    "sql/revoke_passes": Case(BATCH, jtis=[f"1-0-{n}-1" for n in range(BATCH)], expire_at_ms=[10**13] * BATCH),
    "reservations.sessions.RAISE_MIN_PASS_EPOCH": Case(1),
    "sql/allotted_by_section": Case(every),
    "sql/revenue_by_section": Case(every),
    "store.snapshot.EVENT": Case(1),
    "store.snapshot.SECTIONS": Case(sections),
    "store.snapshot.TAKEN_SEATS": Case(every, section_ids=[f"S{i}" for i in range(1, 51)]),
    "store.snapshot.LIVE": Case(every),
    "sql/live_places": Case(BATCH),
    "store.snapshot.RANGE_END": Case(BATCH),
    "store.snapshot.SOLD": Case(BATCH, ids=BOUGHT),
    "store.snapshot.REVOKED": Case(every),
    "sql/overdue_payments": Case(BATCH),
    "sql/wrong_allotments": Case(every),
    "reconcile.invariants.SOLD_WITHOUT_ORDER": Case(every),
}  # fmt: skip
