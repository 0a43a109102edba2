"""What each statement of the queue is tried with: fifty places of one lane, or the whole line."""

from hashlib import md5
from typing import Any

from tests.plans.case import Case, every

BATCH = 50
SEQS = list(range(1, 1 + 4 * BATCH, 4))
HASHES = [md5(str(i).encode(), usedforsecurity=False).digest() for i in range(1, BATCH + 1)]
NEW = [f"new{i}" for i in range(BATCH)]
NOBODY: list[str | None] = [None] * BATCH
FREE = 10_000_000

VALUES: dict[str, Any] = {
    "event_id": "e", "epoch": 1, "lane": 0, "fill": 1, "lanes": [0] * BATCH, "join_seqs": SEQS, "calls": [1] * BATCH,
    "ats_ms": [1] * BATCH, "holders": [f"h{i}" for i in range(2, BATCH)], "how": "left", "unclaimed": False,
    "now_ms": 1, "claim_window_ms": 1, "jtis": ["j"] * BATCH, "expires_at_ms": [1] * BATCH, "first": 1, "last": BATCH,
    "revoked_max": BATCH, "drawn": False, "seconds": 60, "actor": "guard", "bounds": [10, 20],
}  # fmt: skip

CASES = {
    "sql/code_uses": Case(BATCH, "e", 1, HASHES, [f"h{i}" for i in range(1, BATCH + 1)]),
    "sql/codes": Case(BATCH, "e", 1, HASHES),
    "sql/end_calls": Case(BATCH),
    "sql/end_places": Case(BATCH),
    "sql/ended_places": Case(every),
    "sql/entrants": Case(BATCH),
    "sql/filled_by": Case(1),
    "sql/join_in_db": Case(BATCH, holders=NEW, user_ids=NOBODY),
    "sql/lanes": Case(2),
    "sql/live_places": Case(BATCH),
    "sql/lock_lane": Case(1),
    "sql/lock_places": Case(BATCH),
    "sql/open_calls": Case(every),
    "sql/open_slots": Case(every, lane=0, join_seq=0, slots_max=BATCH),
    "sql/place": Case(BATCH, "e", 1, 0, FREE, NEW, NOBODY, 1, "{}"),
    "sql/record_calls": Case(BATCH, calls=[2] * BATCH),
    "sql/record_claims": Case(BATCH),
    "sql/record_heads": Case(
        2, lanes=[0, 1], head_seqs=[FREE, FREE], calls=[1, 1], contested=[1, 1], dues=[1.0, 1.0], contests=[1, 1]
    ),
    "sql/record_misses": Case(BATCH),
    "sql/record_purchase": Case(1, holder="h2", lane=None, join_seq=None, epoch=None),
    "sql/revoked": Case(every),
    "sql/slot_use": Case(every),
    "sql/spend_codes": Case(BATCH, "e", 1, 0, HASHES, NEW, SEQS, [True] * BATCH),
    "sql/stands": Case(BATCH),
    "sql/taken_places": Case(every),
    "sql/tallies": Case(2),
    "sql/user_places": Case(BATCH, holders=[f"user.{i}" for i in range(1, 10 * BATCH, 10)]),
    "rooms.invariants.CALLED": Case(every),
    "rooms.invariants.LOWEST_ROLLOUT": Case(every),
    "rooms.invariants.OPEN_CALLS": Case(every),
    "rooms.invariants.TAILS": Case(every),
    "admission.autotune.RECENT": Case(every),
    "rooms.invariants.CALLS": Case(every),
    "rooms.invariants.CALLERS": Case(every),
    "rooms.invariants.TRAIL": Case(every),
    "audit 3 a holder has one live place": Case(every),
    "audit 4 every call is of a place that joined": Case(every),
}
