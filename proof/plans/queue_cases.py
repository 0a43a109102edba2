"""The values each statement of the queue is run with: fifty places of one lane, or the whole line."""

from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any

from proof.plans.statements import Case, every, fan

BATCH = 50
SEQS = list(range(1, 1 + 4 * BATCH, 4))
HASHES = [md5(str(i).encode(), usedforsecurity=False).digest() for i in range(1, BATCH + 1)]
NEW = [f"new{i}" for i in range(BATCH)]
NULLS: list[str | None] = [None] * BATCH
FREE = 10_000_000
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

VALUES: dict[str, Any] = {
    "event_id": "e", "subject": "event:e", "epoch": 1, "lane": 0, "generation": 1,
    "lanes": [0] * BATCH, "join_seqs": SEQS, "calls": [1] * BATCH,
    "ats_ms": [1] * BATCH, "holders": [fan(i) for i in range(2, BATCH)], "end_reason": "left", "unclaimed": False,
    "now_ms": 1, "claim_window_ms": 1, "jtis": ["j"] * BATCH, "expires_at_ms": [1] * BATCH, "first": 1, "last": BATCH,
    "revoked_max": BATCH, "all_calls": False, "seconds": 60, "actor": "guard", "bounds": [10, 20],
    "start": datetime.now(UTC) - timedelta(hours=1), "step_s": 60, "steps": 240,
}  # fmt: skip

CASES = {
    "sql/access_code_uses": Case(BATCH, "e", 1, HASHES, [fan(i) for i in range(1, BATCH + 1)]),
    "sql/flow": Case(every),
    "sql/flow_history": Case(every),
    "sql/access_codes": Case(BATCH, "e", 1, HASHES),
    "sql/end_places": Case(BATCH),
    "sql/ended_places": Case(every),
    "sql/extend_claims": Case(BATCH, until_ms=10, expires_after_ms=0),
    "sql/entrants": Case(BATCH),
    "sql/is_current_generation": Case(1),
    "sql/insert_places_in_db": Case(BATCH, holders=NEW, user_ids=NULLS),
    "sql/lanes": Case(2),
    "sql/live_places": Case(BATCH),
    "sql/count_live_places": Case(2_000, head_seq=1, ahead=2_000),
    "sql/lock_lane": Case(1),
    "sql/lock_places": Case(BATCH),
    "sql/open_calls": Case(every),
    "sql/open_slots": Case(every, since=LONG_AGO, lane=0, join_seq=0, slots_max=BATCH),
    "sql/count_slots": Case(every, since=LONG_AGO),
    "sql/bought_places": Case(BATCH, places_max=BATCH),
    "sql/insert_places": Case(BATCH, "e", 1, 0, FREE, NEW, NULLS, 1, "{}"),
    "sql/insert_calls": Case(BATCH, calls=[2] * BATCH),
    "sql/insert_claims": Case(BATCH),
    "sql/save_heads": Case(
        2,
        lanes=[0, 1],
        head_seqs=[FREE, FREE],
        calls=[1, 1],
        contended_calls=[1, 1],
        fair_shares=[1.0, 1.0],
        contention_periods=[1, 1],
    ),
    "sql/insert_misses": Case(BATCH),
    "sql/find_bought": Case(
        BATCH,
        event_ids=["e"] * BATCH,
        holders=[fan(i) for i in range(2, 2 + BATCH)],
        epochs=NULLS,
        lanes=NULLS,
        join_seqs=NULLS,
    ),
    "sql/mark_bought": Case(BATCH, event_ids=["e"] * BATCH, epochs=[1] * BATCH, ended=[True] * BATCH),
    "sql/revoked_passes": Case(every),
    "sql/slot_use": Case(every),
    "sql/redeem_codes": Case(BATCH, "e", 1, 0, HASHES, NEW, SEQS, [True] * BATCH),
    "sql/get_places": Case(BATCH),
    "sql/taken_places": Case(every),
    "sql/lane_totals": Case(2),
    "sql/user_places": Case(BATCH, holders=["user." + fan(i) for i in range(1, 10 * BATCH, 10)]),
    "sql/calls_beyond_head": Case(every),
    "bypass.LOWEST_ROLLOUT": Case(every),
    "sql/live_slots": Case(every),
    "line.invariants.TAILS": Case(every),
    "autotune.ADJUSTED_RECENTLY": Case(every),
    "line.invariants.CALLS": Case(every),
    "line.invariants.CALLS_WITH_HOLDERS": Case(every),
    "line.invariants.AUDIT_LOG": Case(every),
    "audit 3 a holder has one live place": Case(every),
    "audit 4 every call is of a place that joined": Case(every),
}
