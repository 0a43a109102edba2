"""What each statement of inventory is tried with: a hundred reservations of the first section, or everything."""

from hashlib import md5
from typing import Any

from tests.plans.case import Case, every, ids

BATCH = 100
HELD, PAID, BOUGHT = ids(5, BATCH), ids(1, BATCH), ids(2, BATCH)
SEATS: dict[str, Any] = {"section_ids": ["S1"] * BATCH, "positions": [r * 51 + s for r in range(4) for s in range(25)]}
PLACE: dict[str, Any] = {"section_id": "S1", "position": 0}
GA: dict[str, Any] = {"section_ids": ["G1", "G2"], "ns": [1, 1], "quantities": [1, 1], "versions": [1, 1]}


def sections(size: int) -> int:
    """All of them."""
    return size // 1000 + 2


def allotted(size: int) -> int:
    """What is kept aside of all sections."""
    return size // 50


VALUES: dict[str, Any] = {
    "event_id": "e", "reservation_id": HELD[0], "ids": HELD, "now_ms": 10**15, "clock_offset_ms": 0,
    "count_max": BATCH, "how": "deadline",
    "mark": "available", "allotment_id": "a1", "n": 1, "epoch": 1, "gate_epoch": 1, "seen": 0, "capacity": 10**6,
    "section_id": "G1", "position": 0, "holders": [f"h{i}" for i in range(1, BATCH)], "free_mark": "available",
    "edges_s": [10, 20], "shares": [0.5, 0.99], "settle_s": 60, "rows_max": 20, "bodies": ["{}"], "many": BATCH,
    "after": "", "first": 0, "last": 49, "on_paper": 1, "id": 1, "oversell_id": 1, "excess": 1, "blocked": True,
}  # fmt: skip


def _take() -> list[Any]:
    """A hundred holds of one seat each that is free: every fifth of the first section."""
    fresh = [md5(f"new {i}".encode(), usedforsecurity=False).hexdigest() for i in range(BATCH)]
    nobody: list[str | None] = [None] * BATCH
    numbers = [[0] * BATCH, [0] * BATCH, [5000] * BATCH, [10**13] * BATCH]
    reservations = [fresh, fresh, nobody, *numbers, [""] * BATCH, [600] * BATCH, nobody, [False] * BATCH]
    seats = [["S1"] * BATCH, _positions(4), fresh, [5000] * BATCH]
    return ["e", "EUR", *reservations, [], [], [], [], ["S1"], [BATCH], *seats, "{}"]


def _positions(first: int) -> list[int]:
    """Of the seats of every fifth reservation."""
    return [(i - 1) // 50 * 51 + (i - 1) % 50 for i in range(first, first + 5 * BATCH, 5)]


CASES = {
    "sql/arms": Case(every),
    "sql/aside_seats": Case(BATCH, **SEATS, allotment_id=None),
    "sql/aside_sections": Case(2, **GA),
    "sql/balance": Case(every),
    "sql/bought": Case(every, after="", upto="g"),
    "sql/cancel": Case(BATCH),
    "sql/count_customers": Case(
        BATCH, event_ids=["e"] * BATCH, customer_keys=[f"c{i}" for i in range(1, 1 + 5 * BATCH, 5)]
    ),
    "sql/expire": Case(BATCH),
    "sql/extend": Case(1, now_ms=1000),
    "sql/fans_returning": Case(every),
    "sql/give_back": Case(BATCH),
    "sql/give_some_back": Case(
        1, section_ids=["S1"], positions=[4], ga_section_ids=["G1"], quantities=[1], total_minor=0
    ),
    "sql/hold_times": Case(every),
    "sql/latest_buyers": Case(every, **PLACE),
    "sql/lock_payers": Case(BATCH, customer_keys=[f"n{i}" for i in range(BATCH)]),
    "sql/lock_reservations": Case(BATCH),
    "sql/lock_seats": Case(BATCH, **SEATS),
    "sql/mark_seats": Case(BATCH),
    "sql/move_reservations": Case(
        BATCH, event_ids=["e"] * BATCH, statuses=["paying"] * BATCH, references=["o"] * BATCH,
        customer_keys=[f"n{i}" for i in range(BATCH)], untils=["1"] * BATCH,
    ),
    "sql/read_reservations": Case(BATCH),
    "sql/retake_seats": Case(1, reservation_id=ids(4, 1)[0]),
    "sql/right_seats": Case(every, **SEATS),
    "sql/right_sections": Case(every, section_ids=["S1", "G1"], versions=[1, 1]),
    "sql/sales": Case(BATCH, is_rare=True, reservation_id="8", section_id="", position=-1),
    "sql/scan_due": Case(BATCH),
    "sql/section_counts": Case(every),
    "sql/take": Case(BATCH, *_take()),
    "sql/take_back": Case(BATCH, ids=BOUGHT),
    "sql/take_sections": Case(2, **GA),
    "sql/take_some_back": Case(
        BATCH, ids=BOUGHT, section_ids=["S1"] * BATCH, positions=_positions(2),
        ga_section_ids=["G1"], quantities=[1],
    ),
    "sql/tell": Case(1),
    "sql/tombstones": Case(BATCH, ids=[f"never{i}" for i in range(BATCH)]),
    "admin.PENDING": Case(BATCH),
    "admin_reconcile.GIVEN_BACK": Case(every),
    "allotments.WAITING": Case(BATCH),
    "allotments.OPENED": Case(1),
    "allotments.KEPT_SEATS": Case(1000, section_ids=["S1"]),
    "allotments.KEPT_GA": Case(1),
    "api.REVOKED": Case(1, jti="j1"),
    "api.SEAT_WORDS": Case(50, section_id="S1"),
    "aside.KEPT": Case(allotted, section_ids=["G1"]),
    "aside.KEEP": Case(2, **GA),
    "aside.GIVE": Case(2, section_ids=["G1", "G2"], ns=[0, 0]),
    "audit.confirmed": Case(every),
    "availability.HOLDING": Case(every),
    "balance.FREE_SECTIONS": Case(2, **GA),
    "balance.FREE_SEATS": Case(BATCH, **SEATS),
    "buffer.LOCK": Case(1),
    "buffer.BUFFERS": Case(allotted),
    "buffer.TAKE": Case(1, section_id="G2"),
    "buffer.UNBLOCK": Case(1),
    "change.LOCK_EVENT": Case(1),
    "consents.HEARD": Case(BATCH),
    "consents.UNHEARD": Case(BATCH),
    "exports.SEATS": Case(BATCH, **PLACE),
    "findings.RECENT": Case(BATCH, is_rare=True),
    "findings.FORGET": Case(every),
    "holds.SEAT_WORDS": Case(BATCH, **SEATS),
    "holds.LEFT": Case(2, sections=["S1", "G1"]),
    "oversell.LOCK": Case(1),
    "oversell.OPEN": Case(1, percent=1.0, policy="cancel", status="waiting", from_buffer=0),
    "oversell.ON_PAPER": Case(1),
    "oversell.IS_OPEN": Case(1),
    "oversell.WAITING": Case(5),
    "oversell.NO_LONGER_WAITS": Case(1),
    "oversell.DECIDED": Case(1, status="gone", by="a", reason="r"),
    "oversell.CASES": Case(BATCH, is_rare=True),
    "oversell.COUNT_WAITING": Case(5),
    "rebuild.RAISE_EPOCH": Case(1),
    "refunding.DUE": Case(BATCH),
    "refunding.IS_RETURNED": Case(BATCH, event_ids=["e"]),
    "refunding.IS_REFUNDED": Case(BATCH, event_ids=["e"] * BATCH, words=["w"] * BATCH),
    "refunding.ENDED": Case(BATCH),
    "reshape.SEATS": Case(1000, section_id="new", seats_per_row=50, first=1, rows=20),
    "resize.RESIZE": Case(1),
    "resize.PLACES": Case(sections),
    "returns.LOCK_SECTIONS": Case(2, **GA),
    "returns.LOCK_SEATS": Case(BATCH),
    "returns.BLOCK": Case(1),
    "returns.EPOCH": Case(1),
    "say.VERSION": Case(1),
    "say.SEATS": Case(BATCH, **SEATS),
    "say.SECTIONS": Case(2, **GA),
    "sessions.LIVE": Case(BATCH),
    "sessions.RAISE_FLOOR": Case(1),
    "stock_report.KEPT": Case(every),
    "stock_report.REVENUE": Case(every),
    "stocktake.EVENT": Case(1),
    "stocktake.SECTIONS": Case(sections),
    "stocktake.GONE_SEATS": Case(every, section_ids=[f"S{i}" for i in range(1, 51)]),
    "stocktake.LIVE": Case(every),
    "stocktake.PLACES": Case(BATCH),
    "stocktake.SLICE_END": Case(BATCH),
    "stocktake.SOLD": Case(BATCH, ids=BOUGHT),
    "stocktake.REVOKED": Case(every),
    "sweeper.PAYING_TOO_LONG": Case(BATCH),
    "audit.WRONG_KEPT": Case(every),
    "audit.WRONG_OWNERS": Case(every),
    "audit.OWNED_TWICE": Case(every),
    "audit.NOT_SOLD": Case(every),
}  # fmt: skip
